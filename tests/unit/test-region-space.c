/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses and keys of shared regions: never two alike, none again too soon, all given back.
 */
#include "daemon/region_space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/harness.h"

#define SIZE_2M (2ull << 20)
#define SIZE_1G (1ull << 30)
#define ALL     (REGION_SPACE_END - REGION_SPACE_FIRST)
#define RANGES  256
#define ROUNDS  4000

static struct lease_pool pool;
static struct region_space space;

static void setup(void)
{
	ck_assert_int_eq(lease_pool_init(&pool, SLOT_KEYS, 12), 0);
	region_space_init(&space, &pool);
}

static void teardown(void)
{
	region_space_deinit(&space);
	lease_pool_deinit(&pool);
}

START_TEST(the_whole_space_is_one_range_at_most)
{
	struct region_range all, more;

	ck_assert_int_eq(region_range_take(&space, ALL + 1, SIZE_2M, &all), -ENOSPC);
	ck_assert_int_eq(region_range_take(&space, ALL, SIZE_2M, &all), 0);
	ck_assert_uint_eq(all.base, REGION_SPACE_FIRST);
	ck_assert_int_eq(region_range_take(&space, 1, SIZE_2M, &more), -ENOSPC);
	region_range_give(&space, &all);
	ck_assert_int_eq(region_range_take(&space, 1, SIZE_2M, &more), 0);
	region_range_give(&space, &more);
}
END_TEST

START_TEST(a_range_that_was_given_back_rests)
{
	struct region_range one, two, three;

	ck_assert_int_eq(region_range_take(&space, SIZE_2M, SIZE_2M, &one), 0);
	ck_assert_int_eq(region_range_take(&space, SIZE_2M, SIZE_2M, &two), 0);
	ck_assert_uint_gt(two.base, one.base + one.size);
	region_range_give(&space, &one);
	ck_assert_int_eq(region_range_take(&space, SIZE_2M, SIZE_2M, &three), 0);
	ck_assert_uint_gt(three.base, two.base);
	region_range_give(&space, &three);
	region_range_give(&space, &two);
	/* Twice is once. */
	list_init(&two.link);
	region_range_give(&space, &two);
}
END_TEST

/* In the gaps, when there is nothing behind them. */
START_TEST(gaps_are_used_at_last)
{
	struct region_range ranges[3], big;

	ck_assert_int_eq(region_range_take(&space, SIZE_1G, SIZE_2M, &ranges[0]), 0);
	ck_assert_int_eq(region_range_take(&space, SIZE_1G, SIZE_2M, &ranges[1]), 0);
	ck_assert_int_eq(region_range_take(&space, ALL - 3 * SIZE_1G, SIZE_2M, &big), 0);
	ck_assert_int_eq(region_range_take(&space, SIZE_1G, SIZE_2M, &ranges[2]), -ENOSPC);
	region_range_give(&space, &ranges[0]);
	ck_assert_int_eq(region_range_take(&space, SIZE_1G, SIZE_1G, &ranges[0]), 0);
	ck_assert_uint_eq(ranges[0].base, REGION_SPACE_FIRST);
	/* It would touch its neighbour. */
	region_range_give(&space, &ranges[0]);
	ck_assert_int_eq(
		region_range_take(&space, SIZE_1G + SIZE_2M, SIZE_2M, &ranges[0]), -ENOSPC);
	region_range_give(&space, &ranges[1]);
	region_range_give(&space, &big);
}
END_TEST

static void check_apart(const struct region_range *range)
{
	const struct list *next = range->link.next, *prev = range->link.prev;

	ck_assert_uint_ge(range->base, REGION_SPACE_FIRST);
	ck_assert_uint_le(range->base + range->size, REGION_SPACE_END);
	if (next != &space.ranges)
		ck_assert_uint_lt(range->base + range->size,
			container_of(next, struct region_range, link)->base);
	if (prev != &space.ranges) {
		const struct region_range *left = container_of(prev, struct region_range, link);

		ck_assert_uint_lt(left->base + left->size, range->base);
	}
}

START_TEST(ranges_never_overlap)
{
	struct region_range *ranges = calloc(RANGES, sizeof(*ranges));

	ck_assert_ptr_nonnull(ranges);
	for (unsigned i = 0; i < RANGES; i++)
		list_init(&ranges[i].link);
	srandom(4711);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct region_range *range = &ranges[random() % RANGES];
		uint64_t align = random() % 4 ? SIZE_2M : SIZE_1G;
		/* Mostly small; some so large that the space is full of them. */
		uint64_t size = ((uint64_t)random() << (random() % 13)) + 1;

		if (!list_empty(&range->link)) {
			region_range_give(&space, range);
			continue;
		}
		if (region_range_take(&space, size, align, range) < 0)
			continue;
		ck_assert_uint_eq(range->base % align, 0);
		check_apart(range);
	}
	for (unsigned i = 0; i < RANGES; i++)
		region_range_give(&space, &ranges[i]);
	free(ranges);
}
END_TEST

START_TEST(a_key_rests_for_half_a_unit)
{
	uint32_t first, index;

	ck_assert_int_eq(region_key_take(&space, &first), 0);
	ck_assert_uint_gt(first, 0);
	region_key_give(&space, first);
	for (unsigned i = 0; i < 2048; i++) {
		ck_assert_int_eq(region_key_take(&space, &index), 0);
		ck_assert_uint_ne(index, first);
		region_key_give(&space, index);
	}
}
END_TEST

START_TEST(keys_are_each_others_and_no_clients)
{
	uint8_t *taken = calloc(1, 1 << 24);
	uint32_t index[5000], unit;

	ck_assert_ptr_nonnull(taken);
	for (unsigned i = 0; i < 5000; i++) {
		ck_assert_int_eq(region_key_take(&space, &index[i]), 0);
		ck_assert(!taken[index[i]]);
		taken[index[i]] = 1;
	}
	ck_assert_int_eq(lease_pool_take(&pool, 1, &unit), 0);
	for (unsigned i = 0; i < 4096; i++)
		ck_assert(!taken[(unit << 12) + i]);
	lease_pool_give(&pool, unit, 1);
	for (unsigned i = 0; i < 5000; i++)
		region_key_give(&space, index[i]);
	free(taken);
}
END_TEST

START_TEST(without_units_the_last_keys_are_given)
{
	uint32_t first, unit, index;

	ck_assert_int_eq(region_key_take(&space, &first), 0);
	while (lease_pool_take(&pool, 1, &unit) == 0)
		;
	for (unsigned i = 1; i < 4096; i++)
		ck_assert_int_eq(region_key_take(&space, &index), 0);
	ck_assert_int_eq(region_key_take(&space, &index), -ENOSPC);
	region_key_give(&space, first);
	ck_assert_int_eq(region_key_take(&space, &index), 0);
	ck_assert_uint_eq(index, first);
	for (unsigned i = 0; i < 4096; i++)
		region_key_give(&space, (first & ~4095u) + i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region-space");
	TCase *tcase = harness_tcase(suite, "region-space");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_whole_space_is_one_range_at_most);
	tcase_add_test(tcase, a_range_that_was_given_back_rests);
	tcase_add_test(tcase, gaps_are_used_at_last);
	tcase_add_test(tcase, ranges_never_overlap);
	tcase_add_test(tcase, a_key_rests_for_half_a_unit);
	tcase_add_test(tcase, keys_are_each_others_and_no_clients);
	tcase_add_test(tcase, without_units_the_last_keys_are_given);
	return harness_run(suite);
}
