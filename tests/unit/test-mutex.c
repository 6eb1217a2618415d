/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path's mutex: one at a time, nobody sleeps for ever, with membarrier and without.
 */
#include <pthread.h>
#include <sched.h>

#include "client/soft/mutex.h"
#include "client/soft/td.h"
#include "tests/lib/harness.h"

#ifdef VERBSD_POSIX_MUTEXES
int main(void)
{
	return 77; /* the C library's mutex is in its place */
}
#else
enum { THREADS = 4, TURNS = 20000 };

static struct soft_mutex mutex;
static unsigned long inside, count; /* plain: the mutex is what keeps them right */
static bool hold_on;

static void *take_turns(void *arg)
{
	for (unsigned i = 0; i < TURNS; i++) {
		soft_mutex_lock(&mutex);
		if (inside++)
			count += 1000000;
		count++;
		if (hold_on && i % 64 == 0)
			sched_yield(); /* longer than anybody spins, now and then */
		inside--;
		soft_mutex_unlock(&mutex);
	}
	return arg;
}

/* i & 1: without membarrier; i & 2: it is held for long */
START_TEST(one_at_a_time_and_all_get_it)
{
	pthread_t threads[THREADS];

	td_init();
	td_fences |= _i & 1;
	hold_on = _i & 2;
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(count, THREADS * TURNS);
	ck_assert_uint_eq(atomic_load(&mutex.waiters), 0);
	ck_assert(soft_mutex_trylock(&mutex));
}
END_TEST

static void *lock_once(void *arg)
{
	soft_mutex_lock(&mutex);
	count++;
	soft_mutex_unlock(&mutex);
	return arg;
}

/* Both have given up spinning: each is woken by the one before it. */
START_TEST(who_sleeps_is_woken)
{
	pthread_t threads[2];

	td_init();
	soft_mutex_lock(&mutex);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, lock_once, NULL), 0);
	while (atomic_load(&mutex.waiters) < 2)
		sched_yield();
	ck_assert(!soft_mutex_trylock(&mutex));
	ck_assert_uint_eq(count, 0);
	soft_mutex_unlock(&mutex);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(count, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mutex");
	TCase *t = harness_tcase(suite, "mutex");

	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, one_at_a_time_and_all_get_it, 0, 4);
	tcase_add_loop_test(t, who_sleeps_is_woken, 0, 20);
	return harness_run(suite);
}
#endif
