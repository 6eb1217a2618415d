/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a process that has one processor of several spins before it sleeps.
 */
#include "client/soft/spin.h"
#include "tests/lib/harness.h"

static struct spin spin;

static unsigned spins_of(unsigned sleeps, bool come)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sleeps; i++) {
		if (!spin_begin(&spin))
			continue;
		n++;
		spin_end(&spin, come);
	}
	return n;
}

START_TEST(as_long_as_it_helps)
{
	spin_init(&spin, true);
	ck_assert_uint_eq(spins_of(1000, true), 1000);
}
END_TEST

START_TEST(not_in_vain)
{
	spin_init(&spin, true);
	ck_assert_uint_eq(spins_of(SPIN_CREDIT, false), SPIN_CREDIT);
	ck_assert_uint_eq(spins_of(SPIN_TRY * 10, false), 10);
}
END_TEST

/* One that helped is enough to go on. */
START_TEST(again_when_it_helps)
{
	spin_init(&spin, true);
	spins_of(SPIN_CREDIT, false);
	ck_assert_uint_eq(spins_of(SPIN_TRY - 1, true), 0);
	ck_assert_uint_eq(spins_of(1, true), 1);
	ck_assert_uint_eq(spins_of(100, true), 100);
	ck_assert_uint_eq(spins_of(SPIN_CREDIT - 1, false), SPIN_CREDIT - 1);
	ck_assert_uint_eq(spins_of(1, true), 1);
	ck_assert_uint_eq(spins_of(SPIN_CREDIT, false), SPIN_CREDIT);
}
END_TEST

START_TEST(never_on_the_only_processor)
{
	spin_init(&spin, false);
	ck_assert_uint_eq(spins_of(SPIN_TRY * 10, true), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spin");
	TCase *t = harness_tcase(suite, "spin");

	tcase_add_test(t, as_long_as_it_helps);
	tcase_add_test(t, not_in_vain);
	tcase_add_test(t, again_when_it_helps);
	tcase_add_test(t, never_on_the_only_processor);
	return harness_run(suite);
}
