/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a QP tells of its long SENDs (client/soft/way.h), between two QPs of this process. Those have no choice to make, so the
 * tests say that they had; and all turns are this thread's.
 */
#include <stdlib.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

enum { SIZE = 1 << 20, SLOTS = 16, LENGTH = 20000 };

static struct requester *req;
static const struct way_size *size;
static void *progress_self;

static void setup(void)
{
	setenv("VERBSD_ENGINE", "stage", 1);
	options.rnr_timer = 31; /* half a second: nothing is sent again before that */
	pair_start(SIZE, 16);
	pair_connect(SLOTS);
	req = &a->priv->req;
	size = &atomic_load(&a->wire)->pair->priv->ways.sizes[way_size(LENGTH)];
	progress_self = atomic_load(&rt_progress_self);
	ck_assert(rt_enter());
}

static void teardown(void)
{
	atomic_store(&rt_progress_self, progress_self);
	rt_leave(true);
	pair_stop();
}

static void send(uint64_t wr_id, uint32_t length)
{
	ck_assert_int_eq(loop_send(a, wr_id, IBV_WR_SEND, from_mr, from, length, NULL, NULL), 0);
}

/* As pull_choose() does, long ago. */
static void send_timed(uint64_t wr_id)
{
	send(wr_id, LENGTH);
	swqe_at(req, req->tx - 1)->timed = true;
	req->run.waiting++;
	req->run.since = 1;
}

static void receive(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(loop_recv(b, 20 + i, to_mr, to, SIZE), 0);
}

static void both_run(void)
{
	qp_run(b);
	qp_run(a);
}

START_TEST(an_acknowledgement_counts)
{
	receive(2);
	send_timed(1);
	send_timed(2);
	/* Staged: of the way that is tried just now they would be if they had been fetched. */
	swqe_at(req, 0)->pulled = swqe_at(req, 1)->pulled = true;
	both_run();
	ck_assert_uint_eq(req->una, 2);
	ck_assert_uint_eq(size->skip, 1);
	ck_assert_uint_eq(size->missed, 0);
	ck_assert_uint_eq(req->run.waiting, 0);
	ck_assert_uint_eq(req->run.since, 0);
}
END_TEST

START_TEST(one_that_was_staged_is_no_fetched_one)
{
	receive(1);
	send_timed(1);
	both_run();
	ck_assert_uint_eq(req->run.waiting, 0);
	ck_assert_uint_eq(size->skip, 0);
}
END_TEST

/* As long as one waits the next time begins with this acknowledgement. */
START_TEST(one_that_waits_is_timed_from_there)
{
	send_timed(1);
	send_timed(2);
	atomic_store(&atomic_load(&b->wire)->mine->acked, 1);
	qp_run(a);
	ck_assert_uint_eq(req->una, 1);
	ck_assert_uint_eq(req->run.waiting, 1);
	ck_assert_uint_gt(req->run.since, 1);
}
END_TEST

START_TEST(the_progress_threads_says_nothing)
{
	receive(1);
	send_timed(1);
	qp_run(b);
	atomic_store(&rt_progress_self, __builtin_thread_pointer());
	qp_run(a);
	ck_assert_uint_eq(req->una, 1);
	ck_assert_uint_eq(size->skip, 0);
	ck_assert_uint_eq(size->missed, 1);
	ck_assert_uint_eq(size->away, 1);
	ck_assert_uint_eq(req->run.since, 0);
}
END_TEST

/* A long one that had no choice took some of the time; a short one is no matter. */
START_TEST(what_else_is_acknowledged)
{
	receive(2);
	send_timed(1);
	swqe_at(req, 0)->pulled = true;
	send(2, _i ? LENGTH : 8);
	both_run();
	ck_assert_uint_eq(req->una, 2);
	ck_assert_uint_eq(size->missed, _i);
	ck_assert_uint_eq(size->skip, !_i);
}
END_TEST

/* Another QP's turn looks (order.c), and looks again. */
START_TEST(a_look_that_finds_nothing_new)
{
	struct wire *wire = atomic_load(&a->wire);

	receive(1);
	send_timed(1);
	send_timed(2);
	qp_run(b);
	requester_acks_first(a, wire);
	ck_assert_uint_eq(req->run.waiting, 1);
	req->run.since = 7;
	requester_acks_first(a, wire);
	ck_assert_uint_eq(req->run.since, 7);
}
END_TEST

/* Nobody knows how long the peer was not ready. */
START_TEST(a_refusal_ends_the_run)
{
	send_timed(1);
	send_timed(2);
	both_run();
	ck_assert_uint_ne(req->rnr_at, 0);
	ck_assert_uint_eq(req->run.waiting, 0);
	ck_assert_uint_eq(req->run.since, 0);
	ck_assert(!swqe_at(req, 0)->timed);
	ck_assert(!swqe_at(req, 1)->timed);
}
END_TEST

START_TEST(a_reset_ends_it)
{
	send_timed(1);
	rt_leave(true);
	loop_state(a, IBV_QPS_RESET);
	ck_assert(rt_enter());
	ck_assert_uint_eq(req->run.waiting, 0);
	ck_assert_uint_eq(req->run.since, 0);
}
END_TEST

/* Where there is nothing to choose nothing is timed, whatever the length. */
START_TEST(without_a_choice_there_is_no_run)
{
	receive(1);
	send(1, _i ? SIZE : LENGTH);
	ck_assert(!swqe_at(req, 0)->timed);
	ck_assert_uint_eq(req->run.since, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("way-run");
	TCase *tcase = harness_tcase(suite, "acknowledgements");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_acknowledgement_counts);
	tcase_add_test(tcase, one_that_was_staged_is_no_fetched_one);
	tcase_add_test(tcase, one_that_waits_is_timed_from_there);
	tcase_add_test(tcase, the_progress_threads_says_nothing);
	tcase_add_loop_test(tcase, what_else_is_acknowledged, 0, 2);
	tcase_add_test(tcase, a_look_that_finds_nothing_new);
	tcase_add_test(tcase, a_refusal_ends_the_run);
	tcase_add_test(tcase, a_reset_ends_it);
	tcase_add_loop_test(tcase, without_a_choice_there_is_no_run, 0, 2);
	return harness_run(suite);
}
