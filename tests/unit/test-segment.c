/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places of wires in a segment.
 */
#include "daemon/segment.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/ring_abi.h"
#include "tests/lib/harness.h"

static int wire;

START_TEST(places_lie_inside_and_apart)
{
	static const uint32_t lanes[][2] = { { 16, 16 }, { 128, 64 }, { 256, 2 }, { 2, 2 } };
	struct place places[64];
	struct space space;
	uint64_t end = VSD_SEGMENT_WIRES;

	space_init(&space);
	for (unsigned i = 0; i < 64; i++) {
		ck_assert_int_eq(
			space_take(&space, lanes[i % 4][0], lanes[i % 4][1], &wire, &places[i]),
			0);
		ck_assert_uint_ge(places[i].offset, end);
		ck_assert_uint_eq(places[i].offset % 64, 0);
		end = places[i].offset + VSD_WIRE_SIZE(lanes[i % 4][0], lanes[i % 4][1]);
		ck_assert_uint_le(end, VSD_SEGMENT_SIZE);
		ck_assert_uint_ne(places[i].index, 0);
	}
	space_deinit(&space);
}
END_TEST

START_TEST(segment_of_large_wires_is_full_by_bytes)
{
	struct space space;
	struct place place;
	unsigned n = 0;
	int r;

	space_init(&space);
	while ((r = space_take(&space, 128, 64, &wire, &place)) == 0)
		n++;
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_gt(n, 1000);
	ck_assert_uint_lt(n, VSD_WIRES);
	ck_assert_uint_le(place.offset + VSD_WIRE_SIZE(128, 64), VSD_SEGMENT_SIZE);
	space_deinit(&space);
}
END_TEST

START_TEST(segment_of_small_wires_is_full_by_count)
{
	struct space space;
	struct place place;
	unsigned n = 0;

	space_init(&space);
	while (space_take(&space, 2, 2, &wire, &place) == 0)
		n++;
	ck_assert_uint_eq(n, VSD_WIRES - 1);
	ck_assert_uint_eq(place.index, VSD_WIRES - 1);
	space_deinit(&space);
}
END_TEST

START_TEST(place_comes_again_for_the_same_size_only)
{
	struct place small, large, again;
	struct space space;

	space_init(&space);
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &small), 0);
	space_give(&space, small.index);
	ck_assert_int_eq(space_take(&space, 32, 16, &wire, &large), 0);
	ck_assert_uint_ne(large.index, small.index);
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &again), 0);
	ck_assert_uint_eq(again.index, small.index);
	ck_assert_uint_eq(again.offset, small.offset);
	ck_assert_uint_gt(again.generation, small.generation);
	space_deinit(&space);
}
END_TEST

START_TEST(first_freed_comes_first)
{
	struct place places[3], again;
	struct space space;

	space_init(&space);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(space_take(&space, 16, 16, &wire, &places[i]), 0);
	space_give(&space, places[2].index);
	space_give(&space, places[0].index);
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &again), 0);
	ck_assert_uint_eq(again.index, places[2].index);
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &again), 0);
	ck_assert_uint_eq(again.index, places[0].index);
	space_deinit(&space);
}
END_TEST

START_TEST(get_knows_only_what_is_there)
{
	struct space space;
	struct place place;

	space_init(&space);
	ck_assert_ptr_null(space_get(&space, 0));
	ck_assert_ptr_null(space_get(&space, 1));
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &place), 0);
	ck_assert_ptr_null(space_get(&space, 0));
	ck_assert_ptr_eq(space_get(&space, place.index), &wire);
	ck_assert_ptr_null(space_get(&space, place.index + 1));
	ck_assert_ptr_null(space_get(&space, UINT32_MAX));
	space_give(&space, place.index);
	ck_assert_ptr_null(space_get(&space, place.index));
	space_deinit(&space);
}
END_TEST

START_TEST(generations_end_before_they_repeat)
{
	struct space space;
	struct place place;

	space_init(&space);
	space.generation = (UINT32_MAX >> 2) - 1;
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &place), 0);
	ck_assert_int_eq(space_take(&space, 16, 16, &wire, &place), -ENOSPC);
	space_deinit(&space);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("segment");
	TCase *tcase = harness_tcase(suite, "segment");

	tcase_add_test(tcase, places_lie_inside_and_apart);
	tcase_add_test(tcase, segment_of_large_wires_is_full_by_bytes);
	tcase_add_test(tcase, segment_of_small_wires_is_full_by_count);
	tcase_add_test(tcase, place_comes_again_for_the_same_size_only);
	tcase_add_test(tcase, first_freed_comes_first);
	tcase_add_test(tcase, get_knows_only_what_is_there);
	tcase_add_test(tcase, generations_end_before_they_repeat);
	return harness_run(suite);
}
