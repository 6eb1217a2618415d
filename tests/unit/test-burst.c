/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/burst.h: when the daemon looks for the next request without sleeping, and when it ceases to. */
#include <check.h>

#include "daemon/burst.h"
#include "tests/lib/harness.h"

static struct burst burst;
static uint64_t now;

static void setup(void)
{
	burst = (struct burst){ .until = 0 };
	now = 1000000;
}

/* It looks on until it would sleep; true: it looked at all. */
static bool look_in_vain(void)
{
	bool on = burst_goes_on(&burst, now);

	now += BURST_NS;
	ck_assert(!burst_goes_on(&burst, now));
	return on;
}

static void serve_in_vain(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		burst_served(&burst, now);
		ck_assert(look_in_vain());
	}
}

START_TEST(without_requests_it_sleeps)
{
	ck_assert(!burst_goes_on(&burst, now));
	ck_assert(!burst_goes_on(&burst, now + 10 * BURST_NS));
}
END_TEST

START_TEST(it_looks_on_for_a_time)
{
	burst_served(&burst, now);
	ck_assert(burst_goes_on(&burst, now));
	ck_assert(burst_goes_on(&burst, now + BURST_NS - 1));
	ck_assert(!burst_goes_on(&burst, now + BURST_NS));
	ck_assert(!burst_goes_on(&burst, now + 1)); /* it sleeps, whatever the clock says */
}
END_TEST

START_TEST(each_request_begins_the_time_anew)
{
	for (unsigned i = 0; i < 1000; i++) {
		burst_served(&burst, now);
		now += BURST_NS - 1;
		ck_assert(burst_goes_on(&burst, now));
	}
}
END_TEST

START_TEST(single_requests_end_it)
{
	serve_in_vain(BURST_CREDIT);
	burst_served(&burst, now);
	ck_assert(!look_in_vain());
}
END_TEST

/* In a row: one that came begins the count anew. The look behind the last one of a burst is in vain. */
START_TEST(a_burst_keeps_it)
{
	for (unsigned i = 0; i < 10; i++) {
		serve_in_vain(BURST_CREDIT - 2);
		burst_served(&burst, now);
		ck_assert(burst_goes_on(&burst, now));
		burst_served(&burst, now);
		ck_assert(look_in_vain());
	}
}
END_TEST

/* What comes with another one was not waited for. */
START_TEST(requests_in_pairs_end_it_as_well)
{
	for (unsigned i = 0; i < BURST_CREDIT; i++) {
		burst_served(&burst, now);
		burst_served(&burst, now);
		ck_assert(look_in_vain());
	}
	burst_served(&burst, now);
	ck_assert(!look_in_vain());
}
END_TEST

START_TEST(one_of_some_tries_again)
{
	unsigned tries = 0;

	serve_in_vain(BURST_CREDIT);
	for (unsigned i = 0; i < 4 * BURST_TRY; i++) {
		burst_served(&burst, now);
		tries += look_in_vain();
	}
	ck_assert_uint_eq(tries, 4);
	for (unsigned i = 0; i < BURST_TRY; i++)
		burst_served(&burst, now);
	ck_assert(burst_goes_on(&burst, now));
	burst_served(&burst, now); /* this one came */
	ck_assert(look_in_vain());
	serve_in_vain(BURST_CREDIT - 1);
	burst_served(&burst, now);
	ck_assert(!look_in_vain());
}
END_TEST

START_TEST(never_on_the_only_processor)
{
	burst.never = true;
	for (unsigned i = 0; i < 4 * BURST_TRY; i++) {
		burst_served(&burst, now);
		ck_assert(!burst_goes_on(&burst, now));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("burst");
	TCase *t = harness_tcase(suite, "burst");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, without_requests_it_sleeps);
	tcase_add_test(t, it_looks_on_for_a_time);
	tcase_add_test(t, each_request_begins_the_time_anew);
	tcase_add_test(t, single_requests_end_it);
	tcase_add_test(t, a_burst_keeps_it);
	tcase_add_test(t, requests_in_pairs_end_it_as_well);
	tcase_add_test(t, one_of_some_tries_again);
	tcase_add_test(t, never_on_the_only_processor);
	return harness_run(suite);
}
