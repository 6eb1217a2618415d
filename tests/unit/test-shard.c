/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting by many threads: nothing is lost, whoever has a shard and whoever has none, and each comes free again. What they
 * name is found.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/in_child.h"
#include "client/soft/shard.h"
#include "client/soft/td.h"
#include "tests/lib/harness.h"

enum { MANY = 3 * VSD_PAGE_SHARDS, TURNS = 20000 };

static struct vsd_page *page;
static pthread_barrier_t all_here;

static void setup(void)
{
	page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	shard_init(true);
}

static void teardown(void)
{
	shard_deinit();
	munmap(page, VSD_PAGE_SIZE);
}

static uint64_t in_common(enum vsd_counter counter)
{
	return atomic_load(&page->counters[counter]);
}

static unsigned taken(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VSD_PAGE_SHARDS; i++)
		n += atomic_load(&shard_owners[i]) != NULL;
	return n;
}

START_TEST(a_thread_counts_in_one_shard)
{
	for (unsigned i = 1; i <= 5; i++)
		shard_count(page, VSD_COUNT_POSTS, i);
	shard_count(page, VSD_COUNT_BYTES_SENT, UINT64_C(1) << 40);
	ck_assert_uint_eq(taken(), 1);
	ck_assert_uint_eq(in_common(VSD_COUNT_POSTS), 0);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_POSTS), 15);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_BYTES_SENT), UINT64_C(1) << 40);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_RECVS), 0);
}
END_TEST

START_TEST(a_daemon_that_knows_none_has_all_in_common)
{
	shard_init(false);
	shard_count(page, VSD_COUNT_POSTS, 3);
	ck_assert_uint_eq(taken(), 0);
	ck_assert_uint_eq(in_common(VSD_COUNT_POSTS), 3);
}
END_TEST

static void *count_many(void *arg)
{
	shard_count(page, VSD_COUNT_RECVS, 1);
	pthread_barrier_wait(&all_here);
	for (unsigned i = 0; i < TURNS; i++) {
		shard_count(page, VSD_COUNT_POSTS, 1);
		shard_count(page, VSD_COUNT_BYTES_SENT, i);
	}
	return arg;
}

static void run_many(void)
{
	pthread_t threads[MANY];

	pthread_barrier_init(&all_here, NULL, MANY);
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_many, NULL), 0);
	for (unsigned i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_here);
}

START_TEST(more_threads_than_shards_lose_nothing)
{
	for (unsigned round = 1; round <= 3; round++) {
		run_many();
		ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_RECVS), round * MANY);
		ck_assert_uint_eq(in_common(VSD_COUNT_RECVS), round * (MANY - VSD_PAGE_SHARDS));
		ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_POSTS), round * MANY * TURNS);
		ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_BYTES_SENT), (uint64_t)round * MANY * (TURNS / 2) * (TURNS - 1));
		/* All that ended gave theirs back. */
		ck_assert_uint_eq(taken(), 0);
	}
}
END_TEST

/* In the key's destructor of a program's own, which may run after the library's. */
static void count_late(void *arg)
{
	shard_count(page, VSD_COUNT_KICKS, 1);
	(void)arg;
}

static void *count_to_the_end(void *arg)
{
	shard_count(page, VSD_COUNT_KICKS, 1);
	pthread_setspecific(*(pthread_key_t *)arg, page);
	return NULL;
}

START_TEST(a_thread_may_count_while_it_ends)
{
	pthread_key_t key;
	pthread_t thread;

	ck_assert_int_eq(pthread_key_create(&key, count_late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, count_to_the_end, &key), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_KICKS), 2);
	ck_assert_uint_eq(taken(), 0);
	pthread_key_delete(key);
}
END_TEST

static _Atomic unsigned handled;

static void count_in_handler(int number)
{
	shard_count(page, VSD_COUNT_POSTS, 1);
	atomic_fetch_add(&handled, 1);
	(void)number;
}

static _Atomic bool over;

static void *count_until_over(void *arg)
{
	uint64_t n = 0;

	for (; !atomic_load_explicit(&over, memory_order_relaxed); n++)
		shard_count(page, VSD_COUNT_POSTS, 1);
	*(uint64_t *)arg = n;
	return NULL;
}

START_TEST(a_signal_handler_counts_as_well)
{
	struct sigaction action = { .sa_handler = count_in_handler };
	pthread_t thread;
	uint64_t n = 0;

	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, count_until_over, &n), 0);
	for (unsigned i = 0; i < TURNS; i++)
		pthread_kill(thread, SIGUSR1);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(atomic_load(&handled), 0);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_POSTS), n + atomic_load(&handled));
}
END_TEST

START_TEST(a_child_has_none_of_its_parents)
{
	shard_count(page, VSD_COUNT_POSTS, 1);
	ck_assert_uint_eq(taken(), 1);
	shard_in_child();
	ck_assert_uint_eq(taken(), 0);
	shard_count(page, VSD_COUNT_POSTS, 1);
	ck_assert_uint_eq(in_common(VSD_COUNT_POSTS), 1); /* before it has joined */
	shard_init(true);
	shard_count(page, VSD_COUNT_POSTS, 1);
	ck_assert_uint_eq(in_common(VSD_COUNT_POSTS), 1);
	ck_assert_uint_eq(vsd_page_counter(page, VSD_COUNT_POSTS), 3);
}
END_TEST

static pthread_barrier_t turn;

static void *name_for_a_while(void *arg)
{
	_Atomic(const void *) *name = shard_name(arg);

	ck_assert_ptr_nonnull(name);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	shard_unname(name);
	pthread_barrier_wait(&turn);
	return NULL;
}

/* i & 1: without membarrier */
START_TEST(what_a_thread_names_is_found)
{
	pthread_t thread;
	int thing, other;

	td_init();
	td_fences |= _i & 1;
	pthread_barrier_init(&turn, NULL, 2);
	ck_assert(!shard_named(&thing));
	ck_assert_int_eq(pthread_create(&thread, NULL, name_for_a_while, &thing), 0);
	pthread_barrier_wait(&turn);
	ck_assert(shard_named(&thing));
	ck_assert(!shard_named(&other));
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	ck_assert(!shard_named(&thing));
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&turn);
}
END_TEST

START_TEST(names_have_an_end)
{
	_Atomic(const void *) *names[SHARD_NAMES];
	int things[SHARD_NAMES + 1];

	for (unsigned i = 0; i < SHARD_NAMES; i++) {
		names[i] = shard_name(&things[i]);
		ck_assert_ptr_nonnull(names[i]);
	}
	ck_assert_ptr_null(shard_name(&things[SHARD_NAMES]));
	for (unsigned i = 0; i < SHARD_NAMES; i++)
		ck_assert(shard_named(&things[i]));
	shard_unname(names[1]);
	ck_assert(!shard_named(&things[1]));
	ck_assert_ptr_eq(shard_name(&things[SHARD_NAMES]), names[1]);
	/* A child has none of them. */
	shard_in_child();
	for (unsigned i = 0; i <= SHARD_NAMES; i++)
		ck_assert(!shard_named(&things[i]));
	ck_assert_ptr_null(shard_name(&things[0]));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shard");
	TCase *tcase = harness_tcase(suite, "shard");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_thread_counts_in_one_shard);
	tcase_add_test(tcase, a_daemon_that_knows_none_has_all_in_common);
	tcase_add_test(tcase, more_threads_than_shards_lose_nothing);
	tcase_add_test(tcase, a_thread_may_count_while_it_ends);
	tcase_add_test(tcase, a_signal_handler_counts_as_well);
	tcase_add_test(tcase, a_child_has_none_of_its_parents);
	tcase_add_loop_test(tcase, what_a_thread_names_is_found, 0, 2);
	tcase_add_test(tcase, names_have_an_end);
	return harness_run(suite);
}
