/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handle table: what a client's number may and may not reach.
 */
#include "daemon/handle.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/harness.h"

static int a, b;

START_TEST(absent_and_wrong_type_look_the_same)
{
	struct handle_table table = HANDLE_TABLE_NULL(10);
	uint32_t handle;

	ck_assert_ptr_null(handle_get(&table, 0, 1));
	ck_assert_ptr_null(handle_get(&table, 1, 1));
	ck_assert_int_eq(handle_insert(&table, 1, &a, &handle), 0);
	ck_assert_ptr_null(handle_get(&table, 0, 1));
	ck_assert_ptr_null(handle_get(&table, handle, 2));
	ck_assert_ptr_null(handle_get(&table, handle + 1, 1));
	ck_assert_ptr_null(handle_get(&table, UINT32_MAX, 1));
	ck_assert_ptr_eq(handle_get(&table, handle, 1), &a);
	handle_remove(&table, handle, 1);
	ck_assert_ptr_null(handle_get(&table, handle, 1));
	handle_table_deinit(&table);
}
END_TEST

START_TEST(handle_is_never_zero)
{
	struct handle_table table = HANDLE_TABLE_NULL(10);
	uint32_t handle = 0;

	ck_assert_int_eq(handle_insert(&table, 1, &a, &handle), 0);
	ck_assert_uint_ne(handle, 0);
	handle_remove(&table, handle, 1);
	handle_table_deinit(&table);
}
END_TEST

START_TEST(full_table_refuses_and_recovers)
{
	struct handle_table table = HANDLE_TABLE_NULL(3);
	uint32_t handles[3], more = 99;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(handle_insert(&table, 1, &a, &handles[i]), 0);
	ck_assert_int_eq(handle_insert(&table, 1, &a, &more), -ENOSPC);
	ck_assert_uint_eq(more, 99);
	handle_remove(&table, handles[1], 1);
	ck_assert_int_eq(handle_insert(&table, 1, &b, &more), 0);
	ck_assert_ptr_eq(handle_get(&table, more, 1), &b);
	handle_remove(&table, more, 1);
	handle_remove(&table, handles[0], 1);
	handle_remove(&table, handles[2], 1);
	handle_table_deinit(&table);
}
END_TEST

START_TEST(freed_handle_rests)
{
	struct handle_table table = HANDLE_TABLE_NULL(4);
	uint32_t first, handle;

	ck_assert_int_eq(handle_insert(&table, 1, &a, &first), 0);
	handle_remove(&table, first, 1);
	for (unsigned i = 1; i < HANDLE_REST; i++) {
		ck_assert_int_eq(handle_insert(&table, 1, &a, &handle), 0);
		ck_assert_uint_ne(handle, first);
		handle_remove(&table, handle, 1);
	}
	/* Now it is the oldest of HANDLE_REST, and comes again. */
	ck_assert_int_eq(handle_insert(&table, 1, &a, &handle), 0);
	ck_assert_uint_eq(handle, first);
	handle_remove(&table, handle, 1);
	handle_table_deinit(&table);
}
END_TEST

START_TEST(first_freed_comes_first)
{
	struct handle_table table = HANDLE_TABLE_NULL(4096);
	static uint32_t handles[HANDLE_REST + 2];
	uint32_t handle;

	for (unsigned i = 0; i < HANDLE_REST + 2; i++)
		ck_assert_int_eq(handle_insert(&table, 1, &a, &handles[i]), 0);
	for (unsigned i = HANDLE_REST + 2; i-- > 0;)
		handle_remove(&table, handles[i], 1);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(handle_insert(&table, 1, &a, &handle), 0);
		ck_assert_uint_eq(handle, handles[HANDLE_REST + 1 - i]);
	}
	handle_remove(&table, handles[HANDLE_REST + 1], 1);
	handle_remove(&table, handles[HANDLE_REST], 1);
	handle_table_deinit(&table);
}
END_TEST

START_TEST(next_walks_in_order)
{
	struct handle_table table = HANDLE_TABLE_NULL(10);
	uint32_t handles[3], at = 0, type;

	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(handle_insert(&table, 5 + i, &a, &handles[i]), 0);
	handle_remove(&table, handles[1], 6);
	ck_assert_ptr_eq(handle_next(&table, &at, &type), &a);
	ck_assert_uint_eq(at, handles[0]);
	ck_assert_uint_eq(type, 5);
	at++;
	ck_assert_ptr_eq(handle_next(&table, &at, &type), &a);
	ck_assert_uint_eq(at, handles[2]);
	ck_assert_uint_eq(type, 7);
	at++;
	ck_assert_ptr_null(handle_next(&table, &at, &type));
	handle_remove(&table, handles[0], 5);
	handle_remove(&table, handles[2], 7);
	handle_table_deinit(&table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handle");
	TCase *tcase = harness_tcase(suite, "handle");

	tcase_add_test(tcase, absent_and_wrong_type_look_the_same);
	tcase_add_test(tcase, handle_is_never_zero);
	tcase_add_test(tcase, full_table_refuses_and_recovers);
	tcase_add_test(tcase, freed_handle_rests);
	tcase_add_test(tcase, first_freed_comes_first);
	tcase_add_test(tcase, next_walks_in_order);
	return harness_run(suite);
}
