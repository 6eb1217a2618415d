/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domains: who shares one, and what each may have of its user's limits.
 */
#include "daemon/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/harness.h"

static struct domains domains;
static struct config *config;

static void setup(void)
{
	domains_init(&domains);
	config = config_new();
	ck_assert_ptr_nonnull(config);
}

static void teardown(void)
{
	ck_assert(list_empty(&domains.domains));
	ck_assert(list_empty(&domains.users));
	config_free(config);
}

static struct domain *get(const struct domain_key *key)
{
	struct domain *domain;

	ck_assert_int_eq(domain_get(&domains, config, key, &domain), 0);
	return domain;
}

/* What makes two clients strangers. */
static const struct domain_key keys[] = {
	{ .listener = &domains, .uid = 1, .pidns = 1 },
	{ .listener = &config, .uid = 1, .pidns = 1 },
	{ .listener = &domains, .uid = 2, .pidns = 1 },
	{ .listener = &domains, .uid = 1, .pidns = 2 },
	{ .listener = &domains, .uid = 1, .alone = 1 },
	{ .listener = &domains, .uid = 1, .alone = 2 },
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

START_TEST(same_key_is_the_same_domain)
{
	struct domain *one = get(&keys[_i]), *two = get(&keys[_i]);

	ck_assert_ptr_eq(one, two);
	domain_unref(one);
	domain_unref(two);
}
END_TEST

START_TEST(other_keys_are_other_domains)
{
	struct domain *all[KEYS];

	for (unsigned i = 0; i < KEYS; i++) {
		all[i] = get(&keys[i]);
		for (unsigned j = 0; j < i; j++)
			ck_assert_ptr_ne(all[i], all[j]);
	}
	for (unsigned i = 0; i < KEYS; i++)
		domain_unref(all[i]);
}
END_TEST

START_TEST(domains_of_one_user_share_his_limits)
{
	struct charge first = CHARGE_NULL, second = CHARGE_NULL;
	struct domain *one, *two;

	config->limit[SLOT_QPS] = 10;
	config->domain_share = 60;
	one = get(&keys[0]);
	two = get(&keys[3]);
	ck_assert_int_eq(charge_take(&first, &one->account, SLOT_QPS, 7), -ENOMEM);
	ck_assert_int_eq(charge_take(&first, &one->account, SLOT_QPS, 6), 0);
	ck_assert_int_eq(charge_take(&second, &two->account, SLOT_QPS, 5), -ENOMEM);
	ck_assert_int_eq(charge_take(&second, &two->account, SLOT_QPS, 4), 0);
	charge_release(&first);
	charge_release(&second);
	domain_unref(one);
	domain_unref(two);
}
END_TEST

START_TEST(share_of_a_huge_limit_does_not_overflow)
{
	struct domain *domain;

	config->limit[SLOT_QUEUE_BYTES] = 1ull << 62;
	config->domain_share = 99;
	domain = get(&keys[0]);
	ck_assert_uint_lt(domain->account.limit[SLOT_QUEUE_BYTES], 1ull << 62);
	ck_assert_uint_gt(domain->account.limit[SLOT_QUEUE_BYTES], 1ull << 61);
	domain_unref(domain);
}
END_TEST

START_TEST(fds_are_never_one_users_alone)
{
	struct domain *domain = get(&keys[0]);

	ck_assert_uint_gt(domain->account.limit[SLOT_FDS], 0);
	ck_assert_uint_le(domain->account.limit[SLOT_FDS], 1u << 19);
	domain_unref(domain);
}
END_TEST

START_TEST(reload_reaches_users_and_domains)
{
	struct domain *domain = get(&keys[0]);

	config->limit[SLOT_QPS] = 5;
	domains_set_limits(&domains, config);
	ck_assert_uint_eq(domain->account.limit[SLOT_QPS], 5);
	ck_assert_uint_eq(domain->account.parent->limit[SLOT_QPS], 5);
	domain_unref(domain);
}
END_TEST

/* Of this process: its namespace, and a pidfd. */
static struct domain_key own_key(void)
{
	struct stat st;

	ck_assert_int_eq(stat("/proc/self/ns/pid", &st), 0);
	return (struct domain_key){ .listener = &domains, .uid = 1, .pidns = st.st_ino };
}

/* In place of pidfds, which are readable when their process is dead: a pipe with a writer is not, one without is. */
static int pipe_end(bool dead, int *writer)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	*writer = fds[1];
	if (dead)
		close(fds[1]);
	return fds[0];
}

START_TEST(a_pinned_namespace_is_held_once)
{
	struct domain_key key = own_key();
	struct domain *domain = get(&key);
	int writer, alive = pipe_end(false, &writer), before = harness_fds_open();
	struct stat st;

	ck_assert_int_eq(domain_pin(domain, getpid(), alive), 0);
	ck_assert_int_eq(domain_pin(domain, getpid(), alive), 0);
	ck_assert_int_eq(harness_fds_open(), before + 1);
	ck_assert_uint_eq(domain->account.used[SLOT_FDS], 1);
	ck_assert_int_eq(fstat(domain->pidns, &st), 0);
	ck_assert_uint_eq(st.st_ino, key.pidns);
	domain_unpin(domain);
	ck_assert_int_eq(harness_fds_open(), before + 1);
	domain_unpin(domain);
	ck_assert_int_eq(harness_fds_open(), before);
	ck_assert_uint_eq(domain->account.used[SLOT_FDS], 0);
	close(alive);
	close(writer);
	domain_unref(domain);
}
END_TEST

/* Its number could be another one's already. */
START_TEST(a_namespace_that_may_be_gone_is_not_pinned)
{
	struct domain_key key = own_key();
	struct domain *domain = get(&key), *other;
	int writer, alive = pipe_end(false, &writer), gone, dead = pipe_end(true, &gone);

	ck_assert_int_eq(domain_pin(domain, getpid(), dead), -ESRCH);
	ck_assert_int_eq(domain_pin(domain, getpid(), -1), -ESRCH);
	ck_assert_int_eq(domain_pin(domain, INT_MAX, alive), -ENOENT);
	key.pidns++;
	other = get(&key);
	ck_assert_int_eq(domain_pin(other, getpid(), alive), -ESRCH);
	domain_unref(other);
	/* Where none was seen there is none to pin. */
	key.pidns = 0;
	other = get(&key);
	ck_assert_int_eq(domain_pin(other, getpid(), alive), 0);
	domain_unpin(other);
	ck_assert_uint_eq(domain->account.used[SLOT_FDS] + other->account.used[SLOT_FDS], 0);
	close(alive);
	close(writer);
	close(dead);
	domain_unref(domain);
	domain_unref(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("domain");
	TCase *tcase = harness_tcase(suite, "domain");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, same_key_is_the_same_domain, 0, (int)KEYS);
	tcase_add_test(tcase, other_keys_are_other_domains);
	tcase_add_test(tcase, domains_of_one_user_share_his_limits);
	tcase_add_test(tcase, share_of_a_huge_limit_does_not_overflow);
	tcase_add_test(tcase, fds_are_never_one_users_alone);
	tcase_add_test(tcase, a_pinned_namespace_is_held_once);
	tcase_add_test(tcase, a_namespace_that_may_be_gone_is_not_pinned);
	tcase_add_test(tcase, reload_reaches_users_and_domains);
	return harness_run(suite);
}
