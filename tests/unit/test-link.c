/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the randomised tester found between two QPs: wires that are late or of another life, the first message, what is
 * flushed behind a failure, whose protection domain a receive is of.
 */
#include <errno.h>

#include "client/soft/qp_private.h"
#include "client/soft/xrc.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE 4096u

static void setup(void)
{
	pair_start(SIZE, 128);
}

static int send_one(uint64_t wr_id)
{
	return loop_send(a, wr_id, IBV_WR_SEND, from_mr, from, 8, NULL, NULL);
}

static void nothing_yet(struct soft_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(soft_poll_cq(&cq->v.cq, 1, &wc), 0);
}

/* Both ends are connected, and what the daemon says of it is still on its way. */
START_TEST(a_wire_on_its_way_is_no_timeout)
{
	options.timeout = 1;
	options.retry_cnt = 0;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_rts(a, &options);
	ck_assert_int_eq(loop_recv(b, 2, to_mr, to, 8), 0);
	ck_assert_int_eq(send_one(1), 0);
	nothing_yet(send_cq);
	loop_wire(&loop, a, b, 16);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* Nor is it one while the daemon has not said whether there is somebody; of a life before, it says nothing of this one. */
START_TEST(nobody_is_late_before_the_daemon_answers)
{
	uint32_t qpn;

	options.timeout = 1;
	options.retry_cnt = 0;
	pair_make();
	qpn = a->v.qp.qp_num;
	loop_connect(&loop, a, b, 16, &options);
	loop_state(b, IBV_QPS_RESET);

	enum soft_held held = qp_hold(a);

	a->priv->req.unanswered = 1;
	qp_release(a, held);
	ck_assert_int_eq(send_one(1), 0);
	nothing_yet(send_cq);
	xrc_on_answer(qpn, atomic_load(&a->resets) + 1);
	nothing_yet(send_cq);
	xrc_on_answer(qpn, atomic_load(&a->resets));
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

/* The wire of a life before, which its peer has closed, is not where a message is lost. */
START_TEST(an_old_wire_loses_no_message)
{
	options.type = IBV_QPT_UC;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, b, 16);
	loop_state(b, IBV_QPS_RESET);
	loop_rts(a, &options);
	ck_assert_int_eq(send_one(1), 0);
	nothing_yet(send_cq);
	loop_state(b, IBV_QPS_INIT);
	ck_assert_int_eq(loop_recv(b, 2, to_mr, to, 8), 0);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, b, 16);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* Nobody is there: what is sent is lost, and what needs nobody is done. */
START_TEST(what_is_local_is_not_lost)
{
	struct ibv_send_wr inv = { .wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED }, *bad;

	options.type = IBV_QPT_UC;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rts(a, &options);
	inv.invalidate_rkey = to_mr->key; /* a region's, which cannot be */
	ck_assert_int_eq(send_one(1), 0);
	ck_assert_int_eq(soft_post_send(&a->v.qp, &inv, &bad), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_LOC_QP_OP_ERR);
}
END_TEST

/* Whoever stores it: the peer is told that somebody is there. */
START_TEST(the_first_write_establishes_the_connection)
{
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, b, 16);
	loop_rts(a, &options);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_RDMA_WRITE, from_mr, from, 8, to_mr, to), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_mem_eq(to, from, 8);
	loop_event(&loop, IBV_EVENT_COMM_EST);
}
END_TEST

/* ... and those behind it wait for it, so that a queue that is always full does not stay in the lane. */
START_TEST(an_engine_runs_what_is_behind_the_first_write)
{
	uint64_t before = loop_counter(VSD_COUNT_INITIATOR_RUN);

	pair_connect(16);
	soft_lock(&b->rq_lock); /* the owner serves nothing */
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(loop_send(a, i, IBV_WR_RDMA_WRITE, from_mr, from + 8 * i, 8, to_mr, to + 8 * i), 0);
	soft_unlock(&b->rq_lock);
	for (unsigned i = 0; i < 4; i++)
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	ck_assert_mem_eq(to, from, 32);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_INITIATOR_RUN) - before, 3);
}
END_TEST

/* One WR fails, whatever else is wrong with those behind it. */
START_TEST(only_one_wr_fails)
{
	struct soft_mr *other = loop_mr(&loop, to, SIZE, LOOP_ACCESS);

	pair_connect(16);
	soft_lock(&b->rq_lock); /* the first is not refused before the second is posted */
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_RDMA_WRITE, from_mr, from, 8, to_mr, to + SIZE), 0);
	ck_assert_int_eq(loop_send(a, 2, IBV_WR_SEND, other, to + SIZE, 8, NULL, NULL), 0);
	soft_unlock(&b->rq_lock);
	loop_expect(send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	loop_mr_free(other);
}
END_TEST

/* It failed after the caller had looked at its state. */
START_TEST(what_has_failed_is_not_drained)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	pair_connect(16);
	loop_state(a, IBV_QPS_ERR);
	ck_assert_int_eq(soft_qp_apply(a, &attr, IBV_QP_STATE), -EINVAL);
	ck_assert_int_eq(qp_state(a), IBV_QPS_ERR);
	attr.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(soft_qp_apply(a, &attr, IBV_QP_STATE), -EINVAL);
	ck_assert_int_eq(qp_state(a), IBV_QPS_ERR);
}
END_TEST

/* A send queue in error goes on, and is drained only then. */
START_TEST(a_send_queue_in_error_is_not_drained)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	options.type = IBV_QPT_UC;
	pair_connect(16);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_SEND, from_mr, from + SIZE, 8, NULL, NULL), 0);
	loop_expect(send_cq, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(qp_state(a), IBV_QPS_SQE);
	ck_assert_int_eq(soft_qp_apply(a, &attr, IBV_QP_STATE), -EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(soft_qp_apply(a, &attr, IBV_QP_STATE), 0);
	ck_assert_int_eq(qp_state(a), IBV_QPS_RTS);
}
END_TEST

/* A QP of one protection domain takes receives of an SRQ of another: their keys are of the SRQ's. */
START_TEST(a_shared_receive_is_of_the_srqs_domain)
{
	struct soft_pd other = { .pd = { .context = from_mr->mr.context, .handle = 77 } };
	struct soft_srq *srq = loop_srq(&loop, 4, 1);
	struct ibv_sge sge = { (uintptr_t)to, 8, to_mr->key };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	other.base = &other;
	other.number = loop.pd.number + 1;
	options.srq = srq;
	pair_connect(16);
	b->pd = &other;
	ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &wr, &bad), 0);
	ck_assert_int_eq(send_one(1), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 2, IBV_WC_SUCCESS);
	ck_assert_mem_eq(to, from, 8);
	b->pd = &loop.pd;
	loop_qp_free(a);
	loop_qp_free(b);
	a = b = NULL;
	loop_srq_free(srq);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link");
	TCase *tcase = harness_tcase(suite, "link");

	tcase_add_checked_fixture(tcase, setup, pair_stop);
	tcase_add_test(tcase, a_wire_on_its_way_is_no_timeout);
	tcase_add_test(tcase, nobody_is_late_before_the_daemon_answers);
	tcase_add_test(tcase, an_old_wire_loses_no_message);
	tcase_add_test(tcase, what_is_local_is_not_lost);
	tcase_add_test(tcase, the_first_write_establishes_the_connection);
	tcase_add_test(tcase, an_engine_runs_what_is_behind_the_first_write);
	tcase_add_test(tcase, only_one_wr_fails);
	tcase_add_test(tcase, what_has_failed_is_not_drained);
	tcase_add_test(tcase, a_send_queue_in_error_is_not_drained);
	tcase_add_test(tcase, a_shared_receive_is_of_the_srqs_domain);
	return harness_run(suite);
}
