/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers, with the time given by the test.
 */
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"

#define MS 1000000ull
#define START (1000 * MS) /* the clock does not begin at 0 */

struct probe {
	struct soft_timer timer;
	unsigned fired, order;
	uint64_t again; /* sets itself to this when it fires */
};

static unsigned fired;

static void note(struct soft_timer *timer)
{
	struct probe *probe = (struct probe *)timer;

	probe->fired++;
	probe->order = ++fired;
	if (probe->again) {
		uint64_t again = probe->again;

		probe->again = 0;
		rt_timer_set(timer, again);
	}
}

static struct probe probe_new(void)
{
	return (struct probe){ .timer = { .fire = note } };
}

START_TEST(fires_when_due_and_not_before)
{
	struct probe p = probe_new();

	rt_timer_set(&p.timer, START + 5000);
	ck_assert(timer_any());
	ck_assert_uint_eq(timer_next(), START + 5000);
	ck_assert(!timer_fire_due(START + 4999));
	ck_assert(timer_fire_due(START + 5000));
	ck_assert_uint_eq(p.fired, 1);
	ck_assert(!timer_any());
	ck_assert(!timer_fire_due(START + 9 * MS));
	ck_assert_uint_eq(p.fired, 1);
}
END_TEST

START_TEST(two_in_one_bucket_fire_each_at_its_time)
{
	struct probe a = probe_new(), b = probe_new();

	rt_timer_set(&b.timer, START + 2000);
	rt_timer_set(&a.timer, START + 1000);
	ck_assert_uint_eq(timer_next(), START + 1000);
	ck_assert(timer_fire_due(START + 1500));
	ck_assert_uint_eq(a.fired, 1);
	ck_assert_uint_eq(b.fired, 0);
	ck_assert_uint_eq(timer_next(), START + 2000);
	ck_assert(timer_fire_due(START + 2000));
	ck_assert_uint_eq(b.fired, 1);
}
END_TEST

static const uint64_t distances[] = { 1, 1000, MS, 100 * MS, 511 * MS, 536 * MS, 537 * MS, 600 * MS, 5000 * MS,
				      3600000 * MS };

START_TEST(any_distance)
{
	struct probe p = probe_new();

	rt_timer_set(&p.timer, START);
	timer_fire_due(START);
	p.fired = 0;
	rt_timer_set(&p.timer, START + distances[_i]);
	ck_assert_uint_eq(timer_next(), START + distances[_i]);
	for (unsigned step = 1; step < 4; step++)
		timer_fire_due(START + distances[_i] * step / 4);
	ck_assert_uint_eq(p.fired, 0);
	ck_assert(timer_fire_due(START + distances[_i]));
	ck_assert_uint_eq(p.fired, 1);
}
END_TEST

START_TEST(setting_again_moves_it)
{
	struct probe p = probe_new();

	rt_timer_set(&p.timer, START + MS);
	rt_timer_set(&p.timer, START + 700 * MS);
	timer_fire_due(START + 2 * MS);
	ck_assert_uint_eq(p.fired, 0);
	rt_timer_set(&p.timer, START + 3 * MS);
	ck_assert(timer_fire_due(START + 3 * MS));
	ck_assert(!timer_fire_due(START + 800 * MS));
	ck_assert_uint_eq(p.fired, 1);
}
END_TEST

START_TEST(a_cleared_timer_does_not_fire)
{
	struct probe a = probe_new(), b = probe_new();

	rt_timer_set(&a.timer, START + 1);
	rt_timer_set(&b.timer, START + 2);
	rt_timer_clear(&a.timer);
	rt_timer_cancel(&a.timer);
	ck_assert(timer_fire_due(START + MS));
	ck_assert_uint_eq(a.fired, 0);
	ck_assert_uint_eq(b.fired, 1);
	rt_timer_clear(&a.timer);
}
END_TEST

START_TEST(one_that_sets_itself_fires_again)
{
	struct probe p = probe_new();

	p.again = START + 20 * MS;
	rt_timer_set(&p.timer, START + MS);
	ck_assert(timer_fire_due(START + 2 * MS));
	ck_assert_uint_eq(p.fired, 1);
	ck_assert(timer_fire_due(START + 20 * MS));
	ck_assert_uint_eq(p.fired, 2);
}
END_TEST

START_TEST(one_that_is_set_for_the_past_fires_at_once)
{
	struct probe old = probe_new(), p = probe_new();

	rt_timer_set(&old.timer, START + 50 * MS);
	ck_assert(timer_fire_due(START + 50 * MS));
	rt_timer_set(&p.timer, START);
	ck_assert(timer_fire_due(START + 50 * MS));
	ck_assert_uint_eq(p.fired, 1);
	p.again = START + 10 * MS;
	rt_timer_set(&p.timer, START + 60 * MS);
	ck_assert(timer_fire_due(START + 61 * MS));
	timer_fire_due(START + 61 * MS);
	ck_assert_uint_eq(p.fired, 3);
}
END_TEST

START_TEST(many_fire_in_the_order_of_their_buckets)
{
	enum { MANY = 3000 };
	static struct probe p[MANY];

	for (unsigned i = 0; i < MANY; i++) {
		p[i] = probe_new();
		rt_timer_set(&p[i].timer, START + (MANY - i) * 2 * MS);
	}
	for (unsigned i = 1; i <= MANY; i++)
		ck_assert(timer_fire_due(START + i * 2 * MS));
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_uint_eq(p[i].order, MANY - i);
	ck_assert(!timer_any());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timer");
	TCase *t = harness_tcase(suite, "timer");

	tcase_add_test(t, fires_when_due_and_not_before);
	tcase_add_test(t, two_in_one_bucket_fire_each_at_its_time);
	tcase_add_loop_test(t, any_distance, 0, sizeof(distances) / sizeof(distances[0]));
	tcase_add_test(t, setting_again_moves_it);
	tcase_add_test(t, a_cleared_timer_does_not_fire);
	tcase_add_test(t, one_that_sets_itself_fires_again);
	tcase_add_test(t, one_that_is_set_for_the_past_fires_at_once);
	tcase_add_test(t, many_fire_in_the_order_of_their_buckets);
	return harness_run(suite);
}
