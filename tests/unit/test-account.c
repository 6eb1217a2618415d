/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Charges: nobody gets more than his limit, nothing is charged twice or kept.
 */
#include "daemon/account.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/harness.h"

static unsigned freed;

static void count_free(struct account *account)
{
	free(account);
	freed++;
}

static struct account *account_make(struct account *parent, uint64_t limit)
{
	struct account *account = malloc(sizeof(*account));
	uint64_t limits[SLOT_N];

	ck_assert_ptr_nonnull(account);
	for (unsigned i = 0; i < SLOT_N; i++)
		limits[i] = limit;
	account_init(account, parent, limits, count_free);
	return account;
}

START_TEST(over_the_limit_is_refused_with_the_slots_errno)
{
	struct account *account = account_make(NULL, 10);
	struct charge charge = CHARGE_NULL;

	for (unsigned i = 0; i < SLOT_N; i++) {
		ck_assert_int_eq(
			charge_take(&charge, account, (enum slot)i, 11), -slot_info[i].error);
		ck_assert_ptr_null(charge.account);
		ck_assert_uint_eq(account->used[i], 0);
	}
	ck_assert_uint_eq(account->refused, SLOT_N);
	account_unref(account);
}
END_TEST

START_TEST(up_to_the_limit_is_granted)
{
	struct account *account = account_make(NULL, 10);
	struct charge first = CHARGE_NULL, second = CHARGE_NULL, third = CHARGE_NULL;

	ck_assert_int_eq(charge_take(&first, account, SLOT_QPS, 4), 0);
	ck_assert_int_eq(charge_take(&second, account, SLOT_QPS, 6), 0);
	ck_assert_int_eq(charge_take(&third, account, SLOT_QPS, 1), -ENOMEM);
	ck_assert_int_eq(charge_take(&third, account, SLOT_CQS, 1), 0);
	charge_release(&first);
	charge_release(&first);
	ck_assert_uint_eq(account->used[SLOT_QPS], 6);
	charge_release(&second);
	charge_release(&third);
	account_unref(account);
}
END_TEST

START_TEST(sums_do_not_overflow)
{
	struct account *account = account_make(NULL, UINT64_MAX);
	struct charge first = CHARGE_NULL, second = CHARGE_NULL;

	ck_assert_int_eq(charge_take(&first, account, SLOT_QUEUE_BYTES, UINT64_MAX), 0);
	ck_assert_int_eq(charge_take(&second, account, SLOT_QUEUE_BYTES, UINT64_MAX), -ENOMEM);
	charge_release(&first);
	account_unref(account);
}
END_TEST

START_TEST(parent_caps_its_children)
{
	struct account *user = account_make(NULL, 10);
	struct account *one = account_make(user, 8), *two = account_make(user, 8);
	struct charge first = CHARGE_NULL, second = CHARGE_NULL;

	ck_assert_int_eq(charge_take(&first, one, SLOT_MRS, 8), 0);
	ck_assert_int_eq(charge_take(&second, two, SLOT_MRS, 3), -ENOMEM);
	ck_assert_uint_eq(two->used[SLOT_MRS], 0);
	ck_assert_int_eq(charge_take(&second, two, SLOT_MRS, 2), 0);
	ck_assert_uint_eq(user->used[SLOT_MRS], 10);
	charge_release(&first);
	charge_release(&second);
	ck_assert_uint_eq(user->used[SLOT_MRS], 0);
	account_unref(one);
	account_unref(two);
	account_unref(user);
}
END_TEST

START_TEST(lower_limit_refuses_more_and_keeps_what_is)
{
	struct account *account = account_make(NULL, 10);
	struct charge first = CHARGE_NULL, second = CHARGE_NULL;
	uint64_t limits[SLOT_N] = { 0 };

	ck_assert_int_eq(charge_take(&first, account, SLOT_PDS, 10), 0);
	account_set_limits(account, limits);
	ck_assert_int_eq(charge_take(&second, account, SLOT_PDS, 1), -ENOMEM);
	ck_assert_int_eq(charge_take(&second, account, SLOT_PDS, 0), -ENOMEM);
	charge_release(&first);
	ck_assert_uint_eq(account->used[SLOT_PDS], 0);
	account_unref(account);
}
END_TEST

START_TEST(charge_keeps_its_account_alive)
{
	struct account *user = account_make(NULL, 10);
	struct account *account = account_make(user, 10);
	struct charge charge = CHARGE_NULL;

	freed = 0;
	ck_assert_int_eq(charge_take(&charge, account, SLOT_PDS, 1), 0);
	account_unref(user);
	account_unref(account);
	ck_assert_uint_eq(freed, 0);
	charge_release(&charge);
	ck_assert_uint_eq(freed, 2);
}
END_TEST

START_TEST(a_charge_can_be_changed)
{
	struct account *user = account_make(NULL, 10), *one = account_make(user, 8);
	const uint64_t lower[SLOT_N] = { 0 };
	struct charge charge = CHARGE_NULL;

	ck_assert_int_eq(charge_take(&charge, one, SLOT_QUEUE_BYTES, 5), 0);
	/* What it has already is not charged a second time. */
	ck_assert_int_eq(charge_change(&charge, 8), 0);
	ck_assert_int_eq(charge_change(&charge, 9), -ENOMEM);
	ck_assert_uint_eq(one->used[SLOT_QUEUE_BYTES], 8);
	ck_assert_uint_eq(user->used[SLOT_QUEUE_BYTES], 8);
	/* Less is granted even over the limit. */
	account_set_limits(one, lower);
	ck_assert_int_eq(charge_change(&charge, 8), 0);
	ck_assert_int_eq(charge_change(&charge, 3), 0);
	ck_assert_int_eq(charge_change(&charge, 4), -ENOMEM);
	ck_assert_uint_eq(one->used[SLOT_QUEUE_BYTES], 3);
	ck_assert_uint_eq(user->used[SLOT_QUEUE_BYTES], 3);
	charge_release(&charge);
	ck_assert_uint_eq(one->used[SLOT_QUEUE_BYTES], 0);
	ck_assert_uint_eq(user->used[SLOT_QUEUE_BYTES], 0);
	account_unref(one);
	account_unref(user);
}
END_TEST

START_TEST(every_slot_has_a_name_and_an_errno)
{
	ck_assert_ptr_nonnull(slot_info[_i].name);
	ck_assert_int_gt(slot_info[_i].error, 0);
	ck_assert_uint_le(slot_info[_i].limit, slot_info[_i].max);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("account");
	TCase *tcase = harness_tcase(suite, "account");

	tcase_add_test(tcase, over_the_limit_is_refused_with_the_slots_errno);
	tcase_add_test(tcase, up_to_the_limit_is_granted);
	tcase_add_test(tcase, sums_do_not_overflow);
	tcase_add_test(tcase, parent_caps_its_children);
	tcase_add_test(tcase, lower_limit_refuses_more_and_keeps_what_is);
	tcase_add_test(tcase, charge_keeps_its_account_alive);
	tcase_add_test(tcase, a_charge_can_be_changed);
	tcase_add_loop_test(tcase, every_slot_has_a_name_and_an_errno, 0, SLOT_N);
	return harness_run(suite);
}
