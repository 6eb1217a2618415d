/* SPDX-License-Identifier: BSD-2-Clause */
/* client/soft/cover.c against a count for each byte. */
#include "client/soft/cover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/harness.h"

#define BYTES  200u
#define BASE   ((uintptr_t)1 << 40)
#define RANGES 64u

struct range {
	unsigned from, to;
};

static struct cover cover;
static int naive[BYTES + 1]; /* the last one stays 0 */
static struct range ranges[RANGES];
static unsigned n_ranges;

/* An assertion leaves a mark in a file: too slow for so many. */
#define NEED(condition)                                                                           \
	do {                                                                                      \
		if (!(condition))                                                                 \
			ck_abort_msg("not so: %s", #condition);                                   \
	} while (0)

static void setup(void)
{
	cover = (struct cover){ 0 };
	memset(naive, 0, sizeof(naive));
	n_ranges = 0;
}

static void teardown(void)
{
	cover_clear(&cover);
}

static struct range range_random(void)
{
	unsigned from = (unsigned)rand() % BYTES, to = from + 1 + (unsigned)rand() % (BYTES - from);

	return (struct range){ from, to };
}

static void naive_raise(struct range r, int by)
{
	for (unsigned i = r.from; i < r.to; i++)
		naive[i] += by;
}

static void stretch_check(struct range r, bool hole)
{
	uintptr_t start = 0, end = 0;
	unsigned first = r.from, last;
	bool found = hole ? cover_hole(&cover, BASE + r.from, BASE + r.to, &start, &end)
			  : cover_part(&cover, BASE + r.from, BASE + r.to, &start, &end);

	while (first < r.to && (naive[first] == 0) != hole)
		first++;
	for (last = first; last < r.to && (naive[last] == 0) == hole; last++)
		;
	NEED(found == (first < r.to));
	if (found) {
		NEED(start == BASE + first);
		NEED(end == BASE + last);
	}
}

static void gap_check(struct range r)
{
	uintptr_t lo = BASE, hi = BASE + BYTES;
	unsigned from = r.from, to = r.to;
	bool none = true;

	for (unsigned i = r.from; i < r.to; i++)
		none &= naive[i] == 0;
	while (from > 0 && naive[from - 1] == 0)
		from--;
	while (to < BYTES && naive[to] == 0)
		to++;
	NEED(cover_gap(&cover, BASE + r.from, BASE + r.to, &lo, &hi) == none);
	NEED(lo == (none ? BASE + from : BASE));
	NEED(hi == (none ? BASE + to : BASE + BYTES));
}

static void all_check(void)
{
	unsigned edges = naive[0] != 0;

	for (unsigned i = 0; i < BYTES; i++)
		edges += naive[i] != naive[i + 1];
	NEED(cover.edges == edges);
	for (unsigned i = 0; i < 8; i++) {
		stretch_check(range_random(), true);
		stretch_check(range_random(), false);
		gap_check(range_random());
	}
	stretch_check((struct range){ 0, BYTES }, true);
	stretch_check((struct range){ 0, BYTES }, false);
}

static void add_one(void)
{
	struct range r = range_random();

	if (rand() % 2) {
		NEED(cover_add(&cover, BASE + r.from, BASE + r.to) == 0);
	} else {
		NEED(cover_promise(&cover) == 0);
		cover_keep(&cover, BASE + r.from, BASE + r.to);
	}
	naive_raise(r, 1);
	ranges[n_ranges++] = r;
}

static void del_one(void)
{
	unsigned i = (unsigned)rand() % n_ranges;
	struct range r = ranges[i];
	const struct cover_node *nodes = cover.nodes;

	NEED(cover_del(&cover, BASE + r.from, BASE + r.to) == 0);
	NEED(cover.nodes == nodes); /* it needed no memory */
	naive_raise(r, -1);
	ranges[i] = ranges[--n_ranges];
}

START_TEST(counts_as_each_byte_would)
{
	srand((unsigned)_i + 1);
	for (unsigned i = 0; i < 3000; i++) {
		if (n_ranges == 0 || (n_ranges < RANGES && rand() % 2))
			add_one();
		else
			del_one();
		all_check();
	}
	while (n_ranges)
		del_one();
	all_check();
	NEED(cover.edges == 0);
}
END_TEST

START_TEST(fills_and_cuts_as_each_byte_would)
{
	srand((unsigned)_i + 100);
	for (unsigned i = 0; i < 3000; i++) {
		struct range r = range_random();
		bool fill = rand() % 2;

		NEED((fill ? cover_fill : cover_cut)(&cover, BASE + r.from, BASE + r.to) == 0);
		for (unsigned j = r.from; j < r.to; j++)
			naive[j] = fill;
		all_check();
	}
}
END_TEST

START_TEST(what_was_not_added_is_not_taken_away)
{
	uintptr_t start, end;

	ck_assert_int_eq(cover_del(&cover, BASE, BASE + 1), -EINVAL);
	ck_assert_int_eq(cover_add(&cover, BASE, BASE + 10), 0);
	ck_assert_int_eq(cover_del(&cover, BASE + 5, BASE + 11), -EINVAL);
	ck_assert_int_eq(cover_del(&cover, BASE - 1, BASE + 10), -EINVAL);
	ck_assert(!cover_hole(&cover, BASE, BASE + 10, &start, &end));
	ck_assert_int_eq(cover_del(&cover, BASE, BASE + 10), 0);
	ck_assert(!cover_part(&cover, 0, UINTPTR_MAX, &start, &end));
}
END_TEST

/* What was promised has its room, whatever came between. */
START_TEST(a_promise_needs_no_memory)
{
	const struct cover_node *nodes;

	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(cover_promise(&cover), 0);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(cover_add(&cover, BASE + 1000 + (uintptr_t)i * 10, BASE + 1005 + (uintptr_t)i * 10), 0);
	nodes = cover.nodes;
	cover_break(&cover);
	for (unsigned i = 0; i < 19; i++)
		cover_keep(&cover, BASE + (uintptr_t)i * 10, BASE + (uintptr_t)i * 10 + 5);
	ck_assert_ptr_eq(cover.nodes, nodes);
	ck_assert_uint_eq(cover.ranges, 39);
	ck_assert_uint_eq(cover.edges, 78);
}
END_TEST

/* The time per step is not looked at, but a list instead of a tree would need minutes. */
START_TEST(many_ranges)
{
	const unsigned n = 200000;
	uintptr_t start, end;

	for (unsigned i = 0; i < n; i++)
		NEED(cover_add(&cover, BASE + (uintptr_t)i * 100, BASE + (uintptr_t)i * 100 + 50) == 0);
	ck_assert_uint_eq(cover.edges, 2 * n);
	for (unsigned i = 0; i < 100000; i++) { /* each lies over all of them */
		NEED(cover_add(&cover, BASE, BASE + (uintptr_t)n * 100) == 0);
		NEED(!cover_hole(&cover, BASE, BASE + (uintptr_t)n * 100, &start, &end));
		NEED(cover_del(&cover, BASE, BASE + (uintptr_t)n * 100) == 0);
	}
	ck_assert(cover_hole(&cover, BASE, BASE + (uintptr_t)n * 100, &start, &end));
	ck_assert_uint_eq(start, BASE + 50);
	for (unsigned i = 0; i < n; i++)
		NEED(cover_del(&cover, BASE + (uintptr_t)i * 100, BASE + (uintptr_t)i * 100 + 50) == 0);
	ck_assert_uint_eq(cover.edges, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cover");
	TCase *t = harness_tcase(suite, "cover");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, counts_as_each_byte_would, 0, 5);
	tcase_add_loop_test(t, fills_and_cuts_as_each_byte_would, 0, 5);
	tcase_add_test(t, what_was_not_added_is_not_taken_away);
	tcase_add_test(t, a_promise_needs_no_memory);
	tcase_add_test(t, many_ranges);
	return harness_run(suite);
}
