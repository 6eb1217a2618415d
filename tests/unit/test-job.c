/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Jobs: in threads, in order, told in the loop; who hangs or floods holds up himself alone.
 */
#include "daemon/job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "daemon/loop.h"
#include "tests/lib/harness.h"

static struct loop *loop;
static struct worker *worker;
static struct jobs *jobs;
static pthread_t loop_thread;

/* A gate that jobs wait at, so that what runs beside what is no matter of time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER, arrived = PTHREAD_COND_INITIALIZER;
static bool is_open;
static unsigned at_gate;

struct work {
	struct job job;
	unsigned number;
	bool waits;
};

static unsigned order[64], n_done, n_skipped;
static _Atomic unsigned n_run;

static void run(struct job *job)
{
	struct work *work = (struct work *)job;

	ck_assert(!pthread_equal(pthread_self(), loop_thread));
	n_run++;
	if (!work->waits)
		return;
	pthread_mutex_lock(&lock);
	at_gate++;
	pthread_cond_broadcast(&arrived);
	while (!is_open)
		pthread_cond_wait(&opened, &lock);
	at_gate--;
	pthread_mutex_unlock(&lock);
}

static void done(struct job *job)
{
	struct work *work = (struct work *)job;

	ck_assert(pthread_equal(pthread_self(), loop_thread));
	if (job->skipped)
		n_skipped++;
	else
		order[n_done++] = work->number;
	free(work);
}

static int submit(struct job_queue *queue, unsigned number, bool waits)
{
	struct work *work = calloc(1, sizeof(*work));
	int r;

	*work = (struct work){ .job = { .run = run, .done = done }, .number = number, .waits = waits };
	r = job_submit(jobs, queue, &work->job);
	if (r < 0)
		free(work);
	return r;
}

static void wait_at_gate(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (at_gate < n)
		pthread_cond_wait(&arrived, &lock);
	pthread_mutex_unlock(&lock);
}

static void open_gate(void)
{
	pthread_mutex_lock(&lock);
	is_open = true;
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&lock);
}

static void turn_until(const unsigned *counter, unsigned n)
{
	while (*counter < n)
		ck_assert_int_eq(loop_turn(loop, true), 0);
}

static void setup(void)
{
	loop_thread = pthread_self();
	is_open = false;
	at_gate = n_done = n_skipped = 0;
	n_run = 0;
	ck_assert_int_eq(loop_new(&loop), 0);
	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(jobs_new(loop, worker, &jobs), 0);
}

static void teardown(void)
{
	worker_free(worker);
	jobs = jobs_free(jobs);
	loop_free(loop);
}

START_TEST(one_client_is_served_in_order)
{
	struct job_queue *queue = job_queue_new(1);

	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(submit(queue, i, false), 0);
	turn_until(&n_done, 64);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_uint_eq(order[i], i);
	job_queue_end(jobs, queue, false);
}
END_TEST

START_TEST(who_takes_long_holds_up_himself_alone)
{
	struct job_queue *slow = job_queue_new(1), *other = job_queue_new(1);

	ck_assert_int_eq(submit(slow, 1, true), 0);
	ck_assert_int_eq(submit(slow, 2, false), 0);
	wait_at_gate(1);
	ck_assert_int_eq(submit(other, 3, false), 0);
	turn_until(&n_done, 1);
	ck_assert_uint_eq(order[0], 3);
	ck_assert_uint_eq(n_run, 2);
	open_gate();
	turn_until(&n_done, 3);
	ck_assert_uint_eq(order[1], 1);
	ck_assert_uint_eq(order[2], 2);
	job_queue_end(jobs, slow, false);
	job_queue_end(jobs, other, false);
}
END_TEST

START_TEST(one_user_has_not_all_the_threads)
{
	struct job_queue *many[JOBS_USER_MAX + 4], *other = job_queue_new(2);

	for (unsigned i = 0; i < JOBS_USER_MAX + 4; i++) {
		many[i] = job_queue_new(1);
		ck_assert_int_eq(submit(many[i], i, true), 0);
	}
	wait_at_gate(JOBS_USER_MAX);
	ck_assert_int_eq(submit(other, 99, false), 0);
	turn_until(&n_done, 1);
	ck_assert_uint_eq(order[0], 99);
	ck_assert_uint_eq(n_run, JOBS_USER_MAX + 1);
	open_gate();
	turn_until(&n_done, JOBS_USER_MAX + 5);
	for (unsigned i = 0; i < JOBS_USER_MAX + 4; i++)
		job_queue_end(jobs, many[i], false);
	job_queue_end(jobs, other, false);
}
END_TEST

START_TEST(what_has_not_begun_is_skipped_when_its_client_dies)
{
	struct job_queue *queue = job_queue_new(1);

	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(submit(queue, i, true), 0);
	wait_at_gate(1);
	job_queue_end(jobs, queue, true);
	ck_assert_uint_eq(n_skipped, 4);
	open_gate();
	turn_until(&n_done, 1);
	ck_assert_uint_eq(order[0], 0);
	ck_assert_uint_eq(n_run, 1);
}
END_TEST

START_TEST(or_done_all_the_same_if_so_wanted)
{
	struct job_queue *queue = job_queue_new(1);

	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(submit(queue, i, i == 0), 0);
	job_queue_end(jobs, queue, false);
	open_gate();
	turn_until(&n_done, 5);
	ck_assert_uint_eq(n_skipped, 0);
}
END_TEST

START_TEST(so_many_wait_and_no_more)
{
	struct job_queue *queue = job_queue_new(1);
	unsigned n = 0;

	ck_assert_int_eq(submit(queue, 0, true), 0);
	wait_at_gate(1);
	while (submit(queue, 1, false) == 0)
		n++;
	ck_assert_uint_eq(n, JOBS_WAITING_MAX);
	ck_assert_int_eq(submit(queue, 1, false), -EAGAIN);
	job_queue_end(jobs, queue, true);
	ck_assert_uint_eq(n_skipped, JOBS_WAITING_MAX);
	open_gate();
	turn_until(&n_done, 1);
}
END_TEST

/* Its worker ends first, and waits for what runs. */
START_TEST(the_end_tells_of_everything)
{
	struct job_queue *queue = job_queue_new(1);

	ck_assert_int_eq(submit(queue, 0, true), 0);
	for (unsigned i = 1; i < 5; i++)
		ck_assert_int_eq(submit(queue, i, false), 0);
	wait_at_gate(1);
	job_queue_end(jobs, queue, false);
	open_gate();
	worker = worker_free(worker);
	jobs = jobs_free(jobs);
	ck_assert_uint_eq(n_done + n_skipped, 5);
	ck_assert_uint_ge(n_done, 1);
}
END_TEST

static void run_plain(struct job *job)
{
	(void)job;
	n_run++;
}

START_TEST(without_a_pool_it_is_done_at_once)
{
	struct work *work = calloc(1, sizeof(*work));

	*work = (struct work){ .job = { .run = run_plain, .done = done }, .number = 7 };
	ck_assert_int_eq(job_submit(NULL, NULL, &work->job), 0);
	ck_assert_uint_eq(n_run, 1);
	ck_assert_uint_eq(order[0], 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("job");
	TCase *tcase = harness_tcase(suite, "job");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_client_is_served_in_order);
	tcase_add_test(tcase, who_takes_long_holds_up_himself_alone);
	tcase_add_test(tcase, one_user_has_not_all_the_threads);
	tcase_add_test(tcase, what_has_not_begun_is_skipped_when_its_client_dies);
	tcase_add_test(tcase, or_done_all_the_same_if_so_wanted);
	tcase_add_test(tcase, so_many_wait_and_no_more);
	tcase_add_test(tcase, the_end_tells_of_everything);
	tcase_add_test(tcase, without_a_pool_it_is_done_at_once);
	return harness_run(suite);
}
