/* SPDX-License-Identifier: BSD-2-Clause */
/* Falling asleep and waking: who reads the kick pipe when nobody is blocked, and when nobody is left who could kick. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

static struct loop loop;
static int fd;

static void setup(void)
{
	loop_start(&loop);
	fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	ck_assert_int_ge(fd, 0);
}

static void teardown(void)
{
	close(fd);
	loop_stop(&loop);
}

static bool given(void)
{
	pthread_mutex_lock(&rt.state_lock);

	bool is = rt.kick_given;

	pthread_mutex_unlock(&rt.state_lock);
	return is;
}

static bool led(void)
{
	pthread_mutex_lock(&rt.state_lock);

	bool is = rt.leader;

	pthread_mutex_unlock(&rt.state_lock);
	return is;
}

static bool is_asleep(void)
{
	return atomic_load(&rt.page->state) & 1;
}

static void await(bool (*what)(void))
{
	while (!what())
		sched_yield();
}

static void *block(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)rt_block(fd);
}

static void add_one(void)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

/* A thread that had the pipe is gone; the process falls asleep before a tick: the pipe has a reader all the same. */
START_TEST(sleeper_has_a_reader)
{
	pthread_t thread;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
	await(led);
	ck_assert(!given());
	add_one();
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	sleep_wake();
	await(is_asleep);
	await(given);
}
END_TEST

/* Cancelled while it waits: the pipe goes back, and the process may block again. */
START_TEST(cancelled_gives_back)
{
	pthread_t thread;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
	await(led);
	ck_assert_int_eq(pthread_cancel(thread), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(!led());
	await(given);
	add_one();
	ck_assert_int_eq(rt_block(fd), 0);
}
END_TEST

/* A kick wakes a blocked reader, which falls asleep in another epoch: one that has not been kicked in. */
START_TEST(kick_begins_an_epoch)
{
	pthread_t thread;
	char byte = 0;

	ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
	await(led);
	await(is_asleep);

	uint64_t epoch = atomic_load(&rt.page->state);

	ck_assert_int_eq(write(loop.kick, &byte, 1), 1);
	while (atomic_load(&rt.page->state) <= epoch || !is_asleep())
		sched_yield();
	add_one();
	pthread_join(thread, NULL);
}
END_TEST

/* A pipe that hung up is always readable: it is not looked at any more, blocked or not. */
START_TEST(hung_up_pipe_is_left_alone)
{
	int kick = atomic_exchange(&loop.kick, -1);
	pthread_t thread;

	close(kick);
	while (!atomic_load(&rt.kick_over))
		sched_yield();
	ck_assert(!given());
	ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
	await(led);
	await(is_asleep);
	add_one();
	pthread_join(thread, NULL);
	ck_assert(!given());
}
END_TEST

/* A program that always finds something polls as well: it is active, and its peers need not kick. */
START_TEST(polls_of_full_queues_make_it_active)
{
	struct soft_cq *cq = loop_cq(&loop, 4);
	bool active = false;

	for (unsigned n = 0; n < 1u << 20 && !active; n++) {
		struct ibv_wc wc[2];

		ck_assert(soft_cq_push(cq, &(struct soft_cqe){ .wc = { .wr_id = n, .opcode = IBV_WC_SEND } }));
		ck_assert_int_eq(soft_poll_cq(&cq->v.cq, 1 + n % 2, wc), 1);
		active = atomic_load(&rt.polling) && !is_asleep();
	}
	ck_assert(active);
	loop_cq_free(cq);
}
END_TEST

/* A poll counts as one when another thread is at it: who serves for long would else find that nobody polls. */
START_TEST(polls_count_whoever_makes_the_progress)
{
	struct soft_cq *cq = loop_cq(&loop, 4);
	bool inside = rt_enter();
	unsigned before = atomic_load(&rt.poll_rounds);
	struct ibv_wc wc;

	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(soft_poll_cq(&cq->v.cq, 1, &wc), 0);
	ck_assert_uint_eq(atomic_load(&rt.poll_rounds) - before, 10);
	rt_leave(inside);
	loop_cq_free(cq);
}
END_TEST

/* One kick, and polls until the progress thread has read it. */
static void kick_and_poll(struct soft_cq *cq)
{
	struct ibv_wc wc;
	char byte = 0;
	int left;

	ck_assert_int_eq(write(loop.kick, &byte, 1), 1);
	do {
		for (unsigned i = 0; i < 16; i++)
			ck_assert_int_eq(soft_poll_cq(&cq->v.cq, 1, &wc), 0);
		ck_assert_int_eq(ioctl(rt.kick, FIONREAD, &left), 0);
	} while (left);
}

/* Who polls finds by itself what it is kicked for. (A kick that comes with a tick counts.) */
START_TEST(kicks_of_who_polls_are_left_to_the_polls)
{
	struct soft_cq *cq = loop_cq(&loop, 4);
	uint64_t before;
	struct ibv_wc wc;
	bool left = false;

	while (!atomic_load(&rt.polling) || !given())
		soft_poll_cq(&cq->v.cq, 1, &wc);
	for (unsigned tries = 0; tries < 1000 && !left; tries++) {
		before = loop_counter(VSD_COUNT_WAKEUPS);
		for (unsigned i = 0; i < 4; i++)
			kick_and_poll(cq);
		left = loop_counter(VSD_COUNT_WAKEUPS) == before;
	}
	ck_assert(left);
	loop_cq_free(cq);
}
END_TEST

static void block_until_asleep(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
	await(led);
	await(is_asleep);
	add_one();
	pthread_join(thread, NULL);
}

static void drain(void)
{
	uint64_t n;

	ck_assert_int_eq(read(fd, &n, sizeof(n)), sizeof(n));
}

/* What never comes while it spins is waited for without; one of many waits tries again. */
START_TEST(spins_in_vain_come_to_an_end)
{
	bool entered = rt_enter();

	spin_init(&rt.spin, true);
	rt_leave(entered);
	for (unsigned i = 0; i < SPIN_CREDIT; i++) {
		ck_assert_uint_eq(atomic_load(&rt.spin.credit), SPIN_CREDIT - i);
		block_until_asleep();
		drain();
	}
	ck_assert_uint_eq(atomic_load(&rt.spin.credit), 0);
	for (unsigned i = 1; i < SPIN_TRY; i++) {
		ck_assert_uint_eq(atomic_load(&rt.spin.tries), i - 1);
		block_until_asleep();
		drain();
	}
	ck_assert_uint_eq(atomic_load(&rt.spin.credit), 0);
	ck_assert(spin_begin(&rt.spin));
}
END_TEST

static unsigned rounds(void)
{
	bool entered = rt_enter();
	unsigned n = rt.rounds;

	rt_leave(entered);
	return n;
}

/*
 * On the only processor whoever spins keeps all others from it: a thread that blocks looks once, and sleeps. (The progress thread
 * makes a round now and then.)
 */
START_TEST(nobody_spins_on_the_only_processor)
{
	unsigned once = 0;

	for (unsigned tries = 0; tries < 100; tries++) {
		bool entered = rt_enter();
		pthread_t thread;
		unsigned before;
		uint64_t taken;

		spin_init(&rt.spin, true); /* it would pay, were there another processor */
		rt.spin.never = true;
		before = rt.rounds;
		rt_leave(entered);
		ck_assert_int_eq(pthread_create(&thread, NULL, block, NULL), 0);
		await(led);
		once += rounds() - before < 2 * LOOK_ROUNDS; /* the progress thread's are among them */
		add_one();
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert_int_eq(read(fd, &taken, sizeof(taken)), sizeof(taken));
	}
	ck_assert_uint_ge(once, 50);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sleep");
	TCase *t = harness_tcase(suite, "sleep");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, sleeper_has_a_reader);
#ifdef VERBSD_SANITIZED
	/* ThreadSanitizer does not see the locks of a cancelled thread's clean-up handler. */
	fprintf(stderr, "skipped: cancelled_gives_back, sanitizers do not know cancellation\n");
	(void)cancelled_gives_back;
#else
	tcase_add_test(t, cancelled_gives_back);
#endif
	tcase_add_test(t, kick_begins_an_epoch);
	tcase_add_test(t, hung_up_pipe_is_left_alone);
	tcase_add_test(t, polls_of_full_queues_make_it_active);
	tcase_add_test(t, polls_count_whoever_makes_the_progress);
	tcase_add_test(t, kicks_of_who_polls_are_left_to_the_polls);
	tcase_add_test(t, spins_in_vain_come_to_an_end);
	tcase_add_test(t, nobody_spins_on_the_only_processor);
	t = harness_tcase(suite, "sleep in a thread domain");
	tcase_add_checked_fixture(t, loop_with_domain, NULL);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, polls_of_full_queues_make_it_active);
	return harness_run(suite);
}
