/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Leases: no number twice, none too soon, never more than is paid for.
 */
#include "daemon/lease.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/harness.h"

static struct lease_pool pool;
static struct account *account;
static struct list leases;

static void account_free(struct account *freed)
{
	free(freed);
}

static void setup(void)
{
	uint64_t limits[SLOT_N];

	for (unsigned i = 0; i < SLOT_N; i++)
		limits[i] = 1 << 24;
	ck_assert_int_eq(lease_pool_init(&pool, SLOT_QPNS, 8), 0);
	account = malloc(sizeof(*account));
	account_init(account, NULL, limits, account_free);
	list_init(&leases);
}

static void teardown(void)
{
	while (!list_empty(&leases))
		lease_free(container_of(leases.next, struct lease, link));
	ck_assert_uint_eq(account->used[SLOT_QPNS], 0);
	account = account_unref(account);
	lease_pool_deinit(&pool);
}

static struct lease *lease_get(uint32_t wanted)
{
	struct lease *lease;

	ck_assert_int_eq(lease_new(&pool, account, &leases, wanted, &lease), 0);
	return lease;
}

START_TEST(unit_zero_is_never_given)
{
	ck_assert_uint_ge(lease_get(1)->first, 256);
}
END_TEST

START_TEST(ranges_double)
{
	static const uint32_t want[] = { 256, 256, 512, 1024, 2048, 4096, 8192 };

	for (unsigned i = 0; i < 7; i++)
		ck_assert_uint_eq(lease_get(1)->count, want[i]);
}
END_TEST

START_TEST(wanted_is_rounded_up)
{
	ck_assert_uint_eq(lease_get(300)->count, 512);
}
END_TEST

START_TEST(ranges_do_not_overlap)
{
	struct lease *one = lease_get(1), *two = lease_get(1000);

	ck_assert(one->first + one->count <= two->first || two->first + two->count <= one->first);
}
END_TEST

START_TEST(quota_gives_less_then_nothing)
{
	uint64_t limits[SLOT_N] = { 0 };
	struct lease *lease;

	limits[SLOT_QPNS] = 512 + 256;
	account_set_limits(account, limits);
	ck_assert_uint_eq(lease_get(4096)->count, 512);
	ck_assert_uint_eq(lease_get(4096)->count, 256);
	ck_assert_int_eq(lease_new(&pool, account, &leases, 1, &lease), -ENOSPC);
	ck_assert_uint_eq(account->used[SLOT_QPNS], 768);
}
END_TEST

START_TEST(absurd_wish_is_cut)
{
	ck_assert_uint_le(lease_get(UINT32_MAX)->count, 1 << 23);
}
END_TEST

START_TEST(ranges_of_one_attachment_are_bounded)
{
	uint64_t limits[SLOT_N] = { 0 };
	struct lease *lease;

	/* With this quota each lease gets the smallest range. */
	for (unsigned i = 0; i < LEASES_MAX; i++) {
		limits[SLOT_QPNS] = (i + 1) * 256;
		account_set_limits(account, limits);
		lease_get(1);
	}
	limits[SLOT_QPNS] = 1 << 24;
	account_set_limits(account, limits);
	ck_assert_int_eq(lease_new(&pool, account, &leases, 1, &lease), -ENOSPC);
}
END_TEST

START_TEST(number_outside_is_refused)
{
	struct lease *lease = lease_get(1);

	ck_assert_int_eq(lease_number_take(&leases, lease->first - 1), -EINVAL);
	ck_assert_int_eq(lease_number_take(&leases, lease->first + lease->count), -EINVAL);
	ck_assert_int_eq(lease_number_take(&leases, 0), -EINVAL);
	ck_assert_int_eq(lease_number_take(&leases, UINT32_MAX), -EINVAL);
}
END_TEST

START_TEST(number_is_taken_once)
{
	struct lease *lease = lease_get(1);

	ck_assert_int_eq(lease_number_take(&leases, lease->first), 0);
	ck_assert_int_eq(lease_number_take(&leases, lease->first), -EEXIST);
	ck_assert_int_eq(lease_number_take(&leases, lease->first + 255), 0);
	lease_number_give(&leases, lease->first);
	ck_assert_int_eq(lease_number_take(&leases, lease->first), 0);
}
END_TEST

START_TEST(fresh_units_come_before_freed_ones)
{
	uint32_t one, two;

	ck_assert_int_eq(lease_pool_take(&pool, 1, &one), 0);
	lease_pool_give(&pool, one, 1);
	ck_assert_int_eq(lease_pool_take(&pool, 1, &two), 0);
	ck_assert_uint_ne(one, two);
	lease_pool_give(&pool, two, 1);
}
END_TEST

START_TEST(oldest_freed_unit_comes_first)
{
	uint32_t unit, got;

	for (unit = 1; unit < pool.units; unit++)
		ck_assert_int_eq(lease_pool_take(&pool, 1, &got), 0);
	ck_assert_int_eq(lease_pool_take(&pool, 1, &got), -ENOSPC);
	lease_pool_give(&pool, 300, 1);
	lease_pool_give(&pool, 7, 1);
	lease_pool_give(&pool, 5000, 1);
	ck_assert_int_eq(lease_pool_take(&pool, 1, &got), 0);
	ck_assert_uint_eq(got, 300);
	ck_assert_int_eq(lease_pool_take(&pool, 1, &got), 0);
	ck_assert_uint_eq(got, 7);
	ck_assert_int_eq(lease_pool_take(&pool, 2, &got), -ENOSPC);
	ck_assert_int_eq(lease_pool_take(&pool, 1, &got), 0);
	ck_assert_uint_eq(got, 5000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease");
	TCase *tcase = harness_tcase(suite, "lease");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, unit_zero_is_never_given);
	tcase_add_test(tcase, ranges_double);
	tcase_add_test(tcase, wanted_is_rounded_up);
	tcase_add_test(tcase, ranges_do_not_overlap);
	tcase_add_test(tcase, quota_gives_less_then_nothing);
	tcase_add_test(tcase, absurd_wish_is_cut);
	tcase_add_test(tcase, ranges_of_one_attachment_are_bounded);
	tcase_add_test(tcase, number_outside_is_refused);
	tcase_add_test(tcase, number_is_taken_once);
	tcase_add_test(tcase, fresh_units_come_before_freed_ones);
	tcase_add_test(tcase, oldest_freed_unit_comes_first);
	return harness_run(suite);
}
