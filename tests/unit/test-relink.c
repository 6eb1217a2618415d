/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A QP that gets another wire, or one late: which messages are lost then, and which are not; and what is seen by another
 * than who waits for it. Who holds the progress lock keeps the library from looking at anything, so that things happen in
 * the order of the test.
 */
#include <stdlib.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE (4 * VSD_CHUNK)
#define LATER 3600000000000ull /* ns */

static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_RC };

static void setup(void)
{
	pair_start(SIZE, 128);
}

static void pair_new(enum ibv_qp_type type)
{
	options.type = type;
	pair_make();
}

static void send_one(uint64_t wr_id)
{
	ck_assert_int_eq(loop_send(a, wr_id, IBV_WR_SEND, from_mr, from, 8, NULL, NULL), 0);
}

static void recv_one(struct soft_qp *qp, uint64_t wr_id)
{
	ck_assert_int_eq(loop_recv(qp, wr_id, to_mr, to, 8), 0);
}

static void comes_back(struct soft_qp *qp, const struct soft_qp *peer)
{
	loop_state(qp, IBV_QPS_RESET);
	loop_state(qp, IBV_QPS_INIT);
	loop_rtr(qp, peer->v.qp.qp_num, &options);
	loop_rts(qp, &options);
}

/* Time passes. True when something was decided. */
static bool later(struct soft_qp *qp)
{
	bool did;

	soft_lock(&qp->sq_lock);
	did = requester_timers(qp, rt_now() + LATER);
	soft_unlock(&qp->sq_lock);
	return did;
}

/* What is in the wire of a QP that is connected to itself is not lost for a second one. */
START_TEST(a_wire_to_itself_is_kept)
{
	struct wire *wire;

	options.type = types[_i];
	a = loop_qp(&loop, &options);
	loop_rtr(a, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, a, 16);
	loop_rts(a, &options);
	recv_one(a, 10);
	recv_one(a, 11);

	ck_assert(rt_enter());
	wire = atomic_load(&a->wire);
	send_one(1);
	loop_wire_tell(&loop, a, a, 16);
	sleep_read_events();
	ck_assert_ptr_eq(atomic_load(&a->wire), wire);
	rt_leave(true);

	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	send_one(2);
	loop_expect(recv_cq, 11, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* One event is all that there is to be had of it. */
START_TEST(a_wire_to_itself_has_one_end)
{
	options.type = types[_i];
	a = loop_qp(&loop, &options);
	loop_rtr(a, a->v.qp.qp_num, &options);
	loop_wire_end(&loop, a, a, 16, 0);
	loop_rts(a, &options);
	recv_one(a, 10);
	send_one(1);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

/*
 * The peer was reset and is connected again, and then the message is posted: whether the old wire is known to be closed
 * or not, the message is for the new one, of which nobody has read yet.
 */
START_TEST(a_message_to_a_peer_that_came_back_is_not_lost)
{
	uint64_t dropped = loop_counter(VSD_COUNT_DROPPED);

	pair_new(IBV_QPT_UC);
	loop_connect(&loop, a, b, 16, &options);
	recv_one(b, 10);
	send_one(1);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);

	ck_assert(rt_enter());
	comes_back(b, a);
	recv_one(b, 11);
	loop_wire_tell(&loop, a, b, 16);
	if (_i)
		qp_run(a);
	ck_assert_int_eq(wire_is_closed(atomic_load(&a->wire)), _i);
	send_one(2);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_DROPPED), dropped);
	rt_leave(true);

	loop_expect(recv_cq, 11, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* ... nor is one that the peer sent in its life before, which it was told was done. */
START_TEST(what_came_by_the_old_wire_is_served)
{
	pair_new(IBV_QPT_UC);
	loop_connect(&loop, a, b, 16, &options);

	ck_assert(rt_enter());
	recv_one(b, 10);
	recv_one(b, 11);
	send_one(1);
	comes_back(a, b);
	loop_wire_tell(&loop, a, b, 16);
	sleep_read_events();
	rt_leave(true);

	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	send_one(2);
	loop_expect(recv_cq, 11, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* Both ends are connected, and the peer's process does not come to its end: it lives, and time breaks nothing. */
START_TEST(a_peer_that_is_slow_is_waited_for)
{
	options.timeout = 1;
	options.retry_cnt = 0;
	pair_new(types[_i]);
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_rts(a, &options);
	recv_one(b, 10);
	send_one(1); /* its clock starts */
	loop_wire_end(&loop, a, b, 16, 0);
	while (!atomic_load(&a->wire))
		sched_yield();
	ck_assert(!later(a) && !later(a));
	loop_wire_end(&loop, b, a, 16, 1);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

/* What the daemon said is read before anything is decided by the clock. */
START_TEST(news_that_nobody_read_go_before_the_clock)
{
	pair_new(types[_i]);
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_rts(a, &options);
	recv_one(b, 10);

	ck_assert(rt_enter());
	send_one(1);
	ck_assert(!events_unread());
	loop_wire_tell(&loop, a, b, 16);
	ck_assert(events_unread());
	ck_assert(!later(a) && !later(a));
	rt_leave(true);

	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

/* ... and when there are none, it is. */
START_TEST(without_news_the_clock_decides)
{
	pair_new(types[_i]);
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rts(a, &options);

	ck_assert(rt_enter());
	send_one(1);
	ck_assert(later(a));
	rt_leave(true);

	loop_expect(send_cq, 1, types[_i] == IBV_QPT_UC ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
}
END_TEST

/*
 * A READ fills a lane of two slots and waits for space. The peer takes what is there, and whoever looks first takes note of
 * that: the READ goes on all the same.
 */
START_TEST(a_stream_goes_on_whoever_saw_the_space)
{
	setenv("VERBSD_ENGINE", "stage", 1);
	pair_new(IBV_QPT_RC);
	loop_connect(&loop, a, b, 2, &options);

	ck_assert(rt_enter());
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_RDMA_READ, from_mr, from, SIZE, to_mr, to), 0);
	qp_run(b);
	ck_assert(b->priv->resp.stream.active);
	qp_run(a);
	ck_assert(!atomic_load(&b->run_queued));
	ck_assert_int_eq(wire_resp_space(atomic_load(&b->wire)), 2);
	ck_assert(atomic_load(&b->run_queued));
	rt_leave(true);

	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relink");
	TCase *tcase = harness_tcase(suite, "relink");

	tcase_add_checked_fixture(tcase, setup, pair_stop);
	tcase_set_timeout(tcase, 10);
	tcase_add_loop_test(tcase, a_wire_to_itself_is_kept, 0, 2);
	tcase_add_loop_test(tcase, a_wire_to_itself_has_one_end, 0, 2);
	tcase_add_loop_test(tcase, a_message_to_a_peer_that_came_back_is_not_lost, 0, 2);
	tcase_add_test(tcase, what_came_by_the_old_wire_is_served);
	tcase_add_loop_test(tcase, a_peer_that_is_slow_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, news_that_nobody_read_go_before_the_clock, 0, 2);
	tcase_add_loop_test(tcase, without_news_the_clock_decides, 0, 2);
	tcase_add_test(tcase, a_stream_goes_on_whoever_saw_the_space);
	return harness_run(suite);
}
