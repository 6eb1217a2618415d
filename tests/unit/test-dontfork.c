/* SPDX-License-Identifier: BSD-2-Clause */
/* client/soft/dontfork.c: which pages a child gets, as the kernel says it, against a model that knows each byte. */
#include "client/soft/dontfork.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/soft/cover.h"
#include "tests/lib/harness.h"

#define PAGE   4096u
#define PAGES  48u
#define RANGES 24u

static uint8_t *memory;

/* Sets @out[i] for each page of [base, base + n pages) that is not in a child. */
static void smaps_read(const uint8_t *base, unsigned n, bool *out)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	uintptr_t start = 0, end = 0;
	char line[1024];

	ck_assert_ptr_nonnull(file);
	memset(out, 0, n * sizeof(*out));
	while (fgets(line, sizeof(line), file)) {
		uintptr_t from, to;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
			start = from;
			end = to;
		} else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dc ")) {
			for (unsigned i = 0; i < n; i++)
				if ((uintptr_t)base + i * PAGE >= start && (uintptr_t)base + i * PAGE < end)
					out[i] = true;
		}
	}
	fclose(file);
}

static bool is_out(const void *at)
{
	bool out;

	smaps_read((const uint8_t *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), 1, &out);
	return out;
}

/* Mappings that [base, base + size) is in. */
static unsigned mappings(const uint8_t *base, size_t size)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t from, to;
	char line[1024];
	unsigned n = 0;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		n += sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 && from < (uintptr_t)base + size &&
		     to > (uintptr_t)base;
	fclose(file);
	return n;
}

static void setup(void)
{
	memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(memory, 1, (size_t)PAGES * PAGE);
	ck_assert_int_eq(dontfork_start(), 0);
}

static void teardown(void)
{
	munmap(memory, (size_t)PAGES * PAGE);
}

/* --- against the model --------------------------------------------------------------------------------------------- */

static struct registration {
	size_t from, length;
	bool real;
	struct dontfork_range range;
} registrations[RANGES];

static unsigned n_registrations;

static void page_expect(unsigned page, bool *out)
{
	static unsigned char soft[PAGE];
	bool real = false, all = true;

	memset(soft, 0, sizeof(soft));
	for (unsigned i = 0; i < n_registrations; i++) {
		const struct registration *r = &registrations[i];

		for (size_t at = r->from; at < r->from + r->length; at++) {
			if (at / PAGE != page)
				continue;
			real |= r->real;
			soft[at % PAGE] |= !r->real;
		}
	}
	for (unsigned i = 0; i < PAGE; i++)
		all &= soft[i];
	*out = real || all;
}

static void pages_check(void)
{
	bool want[PAGES], got[PAGES];

	for (unsigned i = 0; i < PAGES; i++)
		page_expect(i, &want[i]);
	smaps_read(memory, PAGES, got);
	for (unsigned i = 0; i < PAGES; i++)
		ck_assert_msg(want[i] == got[i], "page %u: %s in a child", i, got[i] ? "is not" : "is");
}

static void register_one(void)
{
	struct registration *r = &registrations[n_registrations++];
	size_t size = (size_t)PAGES * PAGE, unit = rand() % 3 ? 1 : PAGE;

	r->real = rand() % 3 == 0;
	r->from = (size_t)rand() % size / unit * unit;
	r->length = 1 + (size_t)rand() % (5 * PAGE);
	if (rand() % 2 == 0)
		r->length = (r->length + unit - 1) / unit * unit;
	if (r->length > size - r->from)
		r->length = size - r->from;
	if (r->real)
		ck_assert_int_eq(dontfork_take_real(memory + r->from, r->length), 0);
	else
		dontfork_take(&r->range, memory + r->from, r->length);
}

static void deregister_one(void)
{
	unsigned i = (unsigned)rand() % n_registrations;
	struct registration *r = &registrations[i];

	if (r->real)
		ck_assert_int_eq(dontfork_put_real(memory + r->from, r->length), 0);
	else
		dontfork_put(&r->range);
	registrations[i] = registrations[--n_registrations];
}

START_TEST(as_the_model_says)
{
	/* Few at a time are often alone on their pages, many hardly ever. */
	unsigned most = _i % 2 ? RANGES : 6;

	srand((unsigned)_i + 1);
	n_registrations = 0;
	for (unsigned i = 0; i < 120; i++) {
		if (n_registrations == 0 || (n_registrations < most && rand() % 2))
			register_one();
		else
			deregister_one();
		pages_check();
	}
	while (n_registrations)
		deregister_one();
	pages_check();
}
END_TEST

/* --- what is on a page --------------------------------------------------------------------------------------------- */

START_TEST(half_a_page_stays)
{
	struct dontfork_range half, rest;

	dontfork_take(&half, memory + PAGE / 2, PAGE);
	ck_assert(!is_out(memory) && !is_out(memory + PAGE));
	dontfork_put(&half);
	/* Two halves of one page: nothing else is on it. */
	dontfork_take(&half, memory, PAGE / 2);
	dontfork_take(&rest, memory + PAGE / 2, PAGE / 2);
	ck_assert(is_out(memory) && !is_out(memory + PAGE));
	dontfork_put(&half);
	ck_assert(!is_out(memory));
	dontfork_put(&rest);
	ck_assert(!is_out(memory));
}
END_TEST

START_TEST(a_real_device_takes_what_it_touches)
{
	struct dontfork_range soft;

	ck_assert_int_eq(dontfork_take_real(memory + PAGE - 1, 2), 0);
	ck_assert(is_out(memory) && is_out(memory + PAGE) && !is_out(memory + (size_t)2 * PAGE));
	/* The soft device registers and deregisters the same: that changes nothing. */
	dontfork_take(&soft, memory, (size_t)3 * PAGE);
	ck_assert(is_out(memory + (size_t)2 * PAGE));
	dontfork_put(&soft);
	ck_assert(is_out(memory) && is_out(memory + PAGE) && !is_out(memory + (size_t)2 * PAGE));
	ck_assert_int_eq(dontfork_put_real(memory + PAGE - 1, 2), 0);
	ck_assert(!is_out(memory) && !is_out(memory + PAGE));
	/* Once too often, or what never was. */
	ck_assert_int_eq(dontfork_put_real(memory + PAGE - 1, 2), 0);
	ck_assert_int_eq(dontfork_put_real(memory, PAGE), 0);
}
END_TEST

START_TEST(what_the_program_took_out_stays_out)
{
	struct dontfork_range soft;

	ck_assert_int_eq(madvise(memory, PAGE, MADV_DONTFORK), 0);
	dontfork_take(&soft, memory + PAGE / 2, PAGE);
	dontfork_put(&soft);
	ck_assert(is_out(memory));
	ck_assert(!is_out(memory + PAGE));
}
END_TEST

/* --- what is kept aside -------------------------------------------------------------------------------------------- */

/* More than there is room for, and a real one beside one of them. */
START_TEST(many_alone)
{
	struct dontfork_range ranges[12];

	for (unsigned i = 0; i < 12; i++)
		dontfork_take(&ranges[i], memory + (size_t)4 * i * PAGE + PAGE / 2, (size_t)2 * PAGE);
	ck_assert_int_eq(dontfork_take_real(memory + (size_t)4 * 11 * PAGE, 1), 0);
	for (unsigned i = 0; i < 12; i++) {
		ck_assert(is_out(memory + (size_t)(4 * i + 1) * PAGE));
		ck_assert(!is_out(memory + (size_t)(4 * i + 2) * PAGE));
	}
	ck_assert(is_out(memory + (size_t)4 * 11 * PAGE));
	for (unsigned i = 12; i-- > 0;) {
		dontfork_put(&ranges[i]);
		ck_assert(!is_out(memory + (size_t)(4 * i + 1) * PAGE));
	}
	ck_assert(is_out(memory + (size_t)4 * 11 * PAGE));
	ck_assert_int_eq(dontfork_put_real(memory + (size_t)4 * 11 * PAGE, 1), 0);
	ck_assert_uint_eq(mappings(memory, (size_t)PAGES * PAGE), 1);
}
END_TEST

/* --- memory that goes meanwhile ------------------------------------------------------------------------------------ */

START_TEST(unmapped_while_registered)
{
	struct dontfork_range soft, again;
	size_t size = (size_t)4 * PAGE;

	dontfork_take(&soft, memory, size);
	munmap(memory, size);
	ck_assert_ptr_eq(mmap(memory, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory);
	/* New memory at the same place, registered as well: it is taken out, and given back only by its own end. */
	dontfork_take(&again, memory, size);
	ck_assert(is_out(memory));
	dontfork_put(&soft);
	ck_assert(is_out(memory));
	dontfork_put(&again);
	ck_assert(!is_out(memory));
	/* Nothing there, at the beginning or at the end. */
	dontfork_take(&soft, memory, size);
	munmap(memory + PAGE, PAGE);
	dontfork_put(&soft);
	ck_assert(!is_out(memory) && !is_out(memory + (size_t)2 * PAGE));
	dontfork_take(&soft, memory, size);
	ck_assert(is_out(memory) && is_out(memory + (size_t)2 * PAGE));
	dontfork_put(&soft);
	ck_assert(!is_out(memory) && !is_out(memory + (size_t)2 * PAGE));
}
END_TEST

START_TEST(our_own_mapping_where_registered_memory_was)
{
	struct dontfork_range soft;
	size_t size = (size_t)4 * PAGE;

	dontfork_take(&soft, memory, size);
	munmap(memory, size);
	ck_assert_ptr_eq(dontfork_mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		memory);
	dontfork_put(&soft);
	ck_assert(is_out(memory) && is_out(memory + size - 1));
	dontfork_munmap(memory, size);
	ck_assert_ptr_eq(mmap(memory, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory);
	ck_assert(!is_out(memory));
}
END_TEST

/* A page that the kernel will not give back is no reason to fail, nor to give back what is beside it. */
START_TEST(special_mappings)
{
	struct dontfork_range soft;
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t start = 0, end = 0;
	char line[512];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (strstr(line, "[vvar]") && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2)
			break;
	fclose(file);
	if (!start)
		return;
	dontfork_take(&soft, (void *)start, PAGE);
	dontfork_put(&soft);
	dontfork_take(&soft, (void *)start, end - start);
	dontfork_put(&soft);
	ck_assert_int_eq(madvise(memory, PAGE, MADV_DONTFORK), 0);
	ck_assert(is_out(memory));
}
END_TEST

/* --- D1 ------------------------------------------------------------------------------------------------------------ */

START_TEST(d1_churn_leaves_no_mappings)
{
	static struct dontfork_range live[16];

	srand(7);
	for (unsigned i = 0; i < 100000; i++) {
		struct dontfork_range *range = &live[i % 16];

		dontfork_put(range);
		dontfork_take(range, memory + (size_t)rand() % ((size_t)40 * PAGE), 1 + (size_t)rand() % ((size_t)8 * PAGE));
	}
	for (unsigned i = 0; i < 16; i++)
		dontfork_put(&live[i]);
	ck_assert_uint_eq(mappings(memory, (size_t)PAGES * PAGE), 1);
}
END_TEST

START_TEST(d1_neighbours_are_one_mapping)
{
	enum { N = 2000, SIZE = 6000 };
	static struct dontfork_range live[N];
	uint8_t *big = mmap(NULL, (size_t)N * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(big, MAP_FAILED);
	for (unsigned i = 0; i < N; i++)
		dontfork_take(&live[i], big + (size_t)i * SIZE, SIZE);
	ck_assert_uint_le(mappings(big, (size_t)N * SIZE), 2);
	for (unsigned i = 0; i < N; i++)
		dontfork_put(&live[i]);
	ck_assert_uint_eq(mappings(big, (size_t)N * SIZE), 1);
	munmap(big, (size_t)N * SIZE);
}
END_TEST

static unsigned mappings_allowed(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned n = 0;

	ck_assert(file && fscanf(file, "%u", &n) == 1);
	fclose(file);
	return n;
}

/* More stretches than a process should have mappings for: the program can still map. */
START_TEST(d1_there_is_a_limit)
{
	enum { N = 40000 };
	static struct dontfork_range live[N];
	size_t size = (size_t)2 * N * PAGE;
	uint8_t *big = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct dontfork_range all;

	ck_assert_ptr_ne(big, MAP_FAILED);
	for (unsigned i = 0; i < N; i++)
		dontfork_take(&live[i], big + (size_t)2 * i * PAGE, PAGE);
	ck_assert_uint_le(mappings(big, size), mappings_allowed() / 8 + 2);
	ck_assert(is_out(big) && !is_out(big + size - (size_t)2 * PAGE));
	/* One over all of them needs no more; and when it goes, that does not split it up again. */
	dontfork_take(&all, big, size);
	dontfork_put(&all);
	ck_assert_uint_le(mappings(big, size), mappings_allowed() / 8 + 2);
	for (unsigned i = 0; i < N; i++)
		dontfork_put(&live[i]);
	ck_assert_uint_eq(mappings(big, size), 1);
	munmap(big, size);
}
END_TEST

/* --- huge pages ---------------------------------------------------------------------------------------------------- */

#define HUGE (2u << 20)

static uint8_t *huge_pages(unsigned n)
{
	uint8_t *huge = mmap(NULL, (size_t)n * HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

	return huge == MAP_FAILED ? NULL : huge;
}

START_TEST(d6_parts_of_huge_pages)
{
	uint8_t *huge = huge_pages(3);
	struct dontfork_range a, b;

	dontfork_take(&a, huge + 8192, HUGE); /* no page is wholly in it */
	ck_assert(!is_out(huge) && !is_out(huge + HUGE));
	dontfork_put(&a);
	dontfork_take(&a, huge + 8192, 2u * HUGE);
	ck_assert(!is_out(huge) && is_out(huge + HUGE) && !is_out(huge + 2u * HUGE));
	/* Its two ends are completed. */
	dontfork_take(&b, huge, 8192);
	ck_assert(is_out(huge));
	dontfork_put(&a);
	ck_assert(!is_out(huge) && !is_out(huge + HUGE));
	dontfork_put(&b);
	/* What a real device registers takes the whole of it. */
	ck_assert_int_eq(dontfork_take_real(huge + 4096, 8), 0);
	ck_assert(is_out(huge) && !is_out(huge + HUGE));
	ck_assert_int_eq(dontfork_take_real(huge + 8192, 8), 0);
	ck_assert_int_eq(dontfork_put_real(huge + 4096, 8), 0);
	ck_assert(is_out(huge));
	dontfork_take(&a, huge, HUGE);
	dontfork_put(&a);
	ck_assert(is_out(huge));
	ck_assert_int_eq(dontfork_put_real(huge + 8192, 8), 0);
	ck_assert(!is_out(huge));
	munmap(huge, 3u * HUGE);
}
END_TEST

/* A range over memory of both kinds, of which each goes by its own size. */
START_TEST(d6_huge_pages_and_others)
{
	uint8_t *at = mmap(NULL, 6u * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *huge = (uint8_t *)(((uintptr_t)at + 2u * HUGE) & ~(uintptr_t)(HUGE - 1));
	struct dontfork_range range;

	ck_assert_ptr_eq(mmap(huge, HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED | 21 << MAP_HUGE_SHIFT, -1, 0), huge);
	dontfork_take(&range, huge - 3 * PAGE, 3u * PAGE + HUGE + 5u * PAGE);
	ck_assert(is_out(huge - 3 * PAGE) && is_out(huge) && is_out(huge + HUGE + 4 * PAGE));
	ck_assert(!is_out(huge - 4 * PAGE) && !is_out(huge + HUGE + 5 * PAGE));
	dontfork_put(&range);
	ck_assert(!is_out(huge - 3 * PAGE) && !is_out(huge) && !is_out(huge + HUGE + 4 * PAGE));
	dontfork_take(&range, huge - 3 * PAGE, 3u * PAGE + 8192);
	ck_assert(is_out(huge - 3 * PAGE) && !is_out(huge));
	dontfork_put(&range);
	ck_assert(!is_out(huge - 3 * PAGE));
	ck_assert_int_eq(dontfork_take_real(huge - 100, 200), 0);
	ck_assert(!is_out(huge - PAGE - 1) && is_out(huge - PAGE) && is_out(huge) && !is_out(huge + HUGE));
	ck_assert_int_eq(dontfork_put_real(huge - 100, 200), 0);
	ck_assert(!is_out(huge - PAGE) && !is_out(huge));
	munmap(at, 6u * HUGE);
}
END_TEST

/* --- children ------------------------------------------------------------------------------------------------------ */

/* What the parent registered is not there, and not counted: a child starts anew, with what was asked for. */
START_TEST(a_child_starts_anew)
{
	struct dontfork_range parent, own;
	int status;
	pid_t pid;

	dontfork_take(&parent, memory, PAGE);
	pid = fork();
	if (pid == 0) {
		dontfork_take(&own, memory + PAGE, PAGE);

		bool taken = is_out(memory + PAGE);

		dontfork_put(&own);
		_exit(!(dontfork_on() && taken && !is_out(memory + PAGE) && dontfork_start() == 0));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(is_out(memory));
	dontfork_put(&parent);
	ck_assert(!is_out(memory));
}
END_TEST

START_TEST(d8_too_late)
{
	struct dontfork_range range;

	ck_assert(!dontfork_late());
	dontfork_take(&range, "text", 4);
	ck_assert(dontfork_late());
	ck_assert_int_eq(dontfork_start(), -EINVAL);
	dontfork_put(&range);
	ck_assert_int_eq(dontfork_start(), -EINVAL);
	ck_assert(!dontfork_on());
}
END_TEST

START_TEST(twice)
{
	struct dontfork_range range;

	ck_assert(!dontfork_on());
	ck_assert_int_eq(dontfork_start(), 0);
	dontfork_take(&range, memory, 1);
	ck_assert_int_eq(dontfork_start(), 0);
	ck_assert(dontfork_on());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dontfork");
	TCase *t = harness_tcase(suite, "on"), *off = harness_tcase(suite, "off");
	uint8_t *huge = huge_pages(4);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, as_the_model_says, 0, 6);
	tcase_add_test(t, half_a_page_stays);
	tcase_add_test(t, many_alone);
	tcase_add_test(t, a_real_device_takes_what_it_touches);
	tcase_add_test(t, what_the_program_took_out_stays_out);
	tcase_add_test(t, unmapped_while_registered);
	tcase_add_test(t, our_own_mapping_where_registered_memory_was);
	tcase_add_test(t, special_mappings);
	tcase_add_test(t, d1_churn_leaves_no_mappings);
	tcase_add_test(t, d1_neighbours_are_one_mapping);
	tcase_add_test(t, d1_there_is_a_limit);
	tcase_add_test(t, a_child_starts_anew);
	if (huge) {
		munmap(huge, 4u * HUGE);
		tcase_add_test(t, d6_parts_of_huge_pages);
		tcase_add_test(t, d6_huge_pages_and_others);
	} else {
		fprintf(stderr, "skipped: d6_*, no huge pages are free here (tests/e2e/fork.sh has them)\n");
	}
	tcase_add_test(off, d8_too_late);
	tcase_add_test(off, twice);
	return harness_run(suite);
}
