/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path's mutex: one at a time, nobody sleeps for ever, with membarrier and without.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

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
static unsigned long inside, count, clashes; /* plain: the mutex is what keeps them right */
static bool hold_on;

static unsigned turns = TURNS;

static void turn(void)
{
	soft_mutex_lock(&mutex);
	if (inside++)
		clashes++;
	if (hold_on && count % 64 == 0)
		sched_yield(); /* longer than anybody spins, now and then */
	count++;
	inside--;
	soft_mutex_unlock(&mutex);
}

static void *take_turns(void *arg)
{
	for (unsigned i = 0; i < turns; i++)
		turn();
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
	ck_assert_uint_eq(clashes, 0);
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

/* Both have given up spinning while it is held: each is woken by the one before it. */
static void two_wait_and_are_woken(void)
{
	pthread_t threads[2];

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

START_TEST(who_sleeps_is_woken)
{
	td_init();
	two_wait_and_are_woken();
}
END_TEST

/* --- a thread's own ------------------------------------------------------------------------------------------------- */

static bool is_own(void)
{
	return atomic_load(&mutex.bias) == __builtin_thread_pointer();
}

/* Takes it until it is this thread's own, and leaves it free. */
static void make_own(void)
{
	for (unsigned i = 0; i < SOFT_MUTEX_STREAK; i++) {
		ck_assert(!is_own());
		ck_assert(soft_mutex_trylock(&mutex));
		soft_mutex_unlock(&mutex);
	}
	ck_assert(is_own());
}

static void *try_once(void *arg)
{
	*(bool *)arg = soft_mutex_trylock(&mutex);
	if (*(bool *)arg)
		soft_mutex_unlock(&mutex);
	return NULL;
}

static bool another_gets_it(void)
{
	pthread_t thread;
	bool got;

	ck_assert_int_eq(pthread_create(&thread, NULL, try_once, &got), 0);
	pthread_join(thread, NULL);
	return got;
}

START_TEST(becomes_the_thread_s_own)
{
	td_init();
	make_own();
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(soft_mutex_trylock(&mutex));
		ck_assert_uint_eq(atomic_load(&mutex.taken), 0); /* no locked instruction */
		ck_assert(!soft_mutex_trylock(&mutex));
		soft_mutex_unlock(&mutex);
	}
	ck_assert(is_own());
}
END_TEST

START_TEST(another_thread_ends_that)
{
	td_init();
	make_own();
	ck_assert(soft_mutex_trylock(&mutex));
	ck_assert(!another_gets_it()); /* and ends it, while the first is inside */
	ck_assert(!is_own());
	ck_assert(!soft_mutex_trylock(&mutex));
	soft_mutex_unlock(&mutex);
	ck_assert(another_gets_it());
	make_own(); /* again, from the beginning */
	ck_assert(another_gets_it());
	ck_assert(!is_own());
}
END_TEST

static void *take_often(void *arg)
{
	for (unsigned i = 0; i < 3 * SOFT_MUTEX_STREAK; i++) {
		soft_mutex_lock(&mutex);
		ck_assert(!is_own());
		soft_mutex_unlock(&mutex);
	}
	return arg;
}

/* Who had it once may be about to go inside: so no other thread ever does by a store. */
START_TEST(it_has_one_owner)
{
	pthread_t thread;

	td_init();
	make_own();
	ck_assert_int_eq(pthread_create(&thread, NULL, take_often, NULL), 0);
	pthread_join(thread, NULL);
	make_own();
}
END_TEST

START_TEST(where_barriers_are_dear_it_stays_all_threads_)
{
#ifdef TD_TSAN
	return;
#endif
	td_init();
	if (_i)
		atomic_store(&td_barriers_slow, true);
	else
		td_fences = true;
	take_often(NULL);
	ck_assert_ptr_eq(atomic_load(&mutex.owner), NULL);
}
END_TEST

/* Two give up spinning while the owner is inside by a store. */
START_TEST(who_waits_for_the_owner_is_woken)
{
	td_init();
	make_own();
	two_wait_and_are_woken();
}
END_TEST

static _Atomic unsigned wakes;

/* In the C library's place, for all of this program: it counts who is woken. */
long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long arg[6];
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		arg[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_futex && (int)arg[1] == FUTEX_WAKE_PRIVATE)
		atomic_fetch_add(&wakes, 1);
	return real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

/* Of two that wait for the owner, each would wake the other one to look, for as long as the owner is inside. */
START_TEST(who_finds_the_owner_inside_wakes_nobody)
{
	td_init();
	make_own();
	soft_mutex_lock(&mutex);
	atomic_fetch_add(&mutex.waiters, 1); /* somebody sleeps */
	for (unsigned i = 0; i < 2; i++) {   /* the first time it ends that it is its own */
		ck_assert(!another_gets_it());
		ck_assert_uint_eq(atomic_load(&wakes), 0);
	}
	soft_mutex_unlock(&mutex);
	ck_assert_uint_gt(atomic_load(&wakes), 0);
	atomic_fetch_sub(&mutex.waiters, 1);
}
END_TEST

static _Atomic bool over;

static void *take_now_and_then(void *arg)
{
	while (!atomic_load(&over)) {
		take_turns(NULL);
		for (unsigned i = 0; i < 20 && !atomic_load(&over); i++)
			sched_yield();
	}
	return arg;
}

/* One takes it all the time and has it for its own again and again, another one wants it now and then. */
START_TEST(one_at_a_time_while_it_changes)
{
	pthread_t thread;
	unsigned long mine = 0;

	td_init();
	turns = 3;
	ck_assert_int_eq(pthread_create(&thread, NULL, take_now_and_then, NULL), 0);
	for (unsigned changes = 0; changes < 200; mine++) {
		bool own = is_own();

		turn();
		changes += own && !is_own();
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(count % 3, mine % 3);
	ck_assert_uint_ge(count, mine);
	ck_assert_uint_eq(clashes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mutex");
	TCase *t = harness_tcase(suite, "mutex");

	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, one_at_a_time_and_all_get_it, 0, 4);
	tcase_add_loop_test(t, who_sleeps_is_woken, 0, 20);
	tcase_add_test(t, becomes_the_thread_s_own);
	tcase_add_test(t, another_thread_ends_that);
	tcase_add_test(t, it_has_one_owner);
	tcase_add_loop_test(t, where_barriers_are_dear_it_stays_all_threads_, 0, 2);
	tcase_add_loop_test(t, who_waits_for_the_owner_is_woken, 0, 20);
	tcase_add_test(t, who_finds_the_owner_inside_wakes_nobody);
	tcase_add_test(t, one_at_a_time_while_it_changes);
	return harness_run(suite);
}
#endif
