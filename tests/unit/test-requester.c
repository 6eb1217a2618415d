/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sending side promises: what may be posted when, completions, errors of its own, RNR, retries, states. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/lane.h"
#include "client/soft/qp_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE (4 * VSD_CHUNK)
#define TWO  (VSD_CHUNK + 4000u) /* two descriptors */
#define THREE (2 * VSD_CHUNK + 7000u)

static void setup(void)
{
	pair_start(SIZE, 128);
}

static int send_one(uint64_t wr_id, uint32_t length)
{
	return loop_send(a, wr_id, IBV_WR_SEND, from_mr, from, length, NULL, NULL);
}

static int write_one(uint64_t wr_id, uint32_t length)
{
	return loop_send(a, wr_id, IBV_WR_RDMA_WRITE, from_mr, from, length, to_mr, to);
}

START_TEST(posting_follows_the_state)
{
	pair_make();
	ck_assert_int_eq(send_one(1, 8), EINVAL);
	ck_assert_int_eq(loop_recv(a, 1, from_mr, from, 8), 0);
	loop_rtr(a, b->v.qp.qp_num, &options);
	ck_assert_int_eq(send_one(1, 8), EINVAL);
	loop_rts(a, &options);
	ck_assert_int_eq(send_one(1, 8), 0);
	loop_state(a, IBV_QPS_ERR);
	loop_expect(send_cq, 1, IBV_WC_WR_FLUSH_ERR);
	loop_expect(recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(send_one(2, 8), 0);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(loop_recv(a, 3, from_mr, from, 8), 0);
	loop_expect(recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
	loop_state(a, IBV_QPS_RESET);
	ck_assert_int_eq(send_one(4, 8), EINVAL);
	ck_assert_int_eq(loop_recv(a, 4, from_mr, from, 8), EINVAL);
}
END_TEST

START_TEST(reset_drops_unread_completions)
{
	pair_connect(16);
	ck_assert_int_eq(write_one(1, 8), 0);
	ck_assert_int_eq(write_one(2, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_recv(a, 3, from_mr, from, 8);
	loop_state(a, IBV_QPS_ERR);
	loop_state(a, IBV_QPS_RESET);
	ck_assert(pair_nothing(send_cq));
	ck_assert(pair_nothing(recv_cq));
}
END_TEST

START_TEST(full_until_a_completion_is_read)
{
	options.send_wr = 4;
	pair_connect(16);
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_int_eq(write_one(i, 8), 0);
	ck_assert_int_eq(write_one(4, 8), ENOMEM);
	loop_expect(send_cq, 0, IBV_WC_SUCCESS);
	ck_assert_int_eq(write_one(4, 8), 0);
	ck_assert_int_eq(write_one(5, 8), ENOMEM);
}
END_TEST

START_TEST(bad_wr_is_named_and_those_before_it_go)
{
	struct ibv_sge sge = { (uintptr_t)from, 8, from_mr->key };
	struct ibv_send_wr wr[3], *bad = NULL;

	pair_connect(16);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL,
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wr[i].wr.rdma.remote_addr = (uintptr_t)to + 8 * i;
		wr[i].wr.rdma.rkey = to_mr->key;
	}
	wr[1].num_sge = 5;
	ck_assert_int_eq(soft_post_send(&a->v.qp, wr, &bad), EINVAL);
	ck_assert_ptr_eq(bad, &wr[1]);
	loop_expect(send_cq, 0, IBV_WC_SUCCESS);
	ck_assert(pair_nothing(send_cq));
	wr[1].num_sge = 1;
	wr[1].opcode = IBV_WR_TSO;
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr[1], &bad), EINVAL);
}
END_TEST

static const struct {
	const char *name;
	uint32_t bad_lkey;
	uint64_t off;
	uint32_t length;
} bad_locals[] = {
	{ "unknown key", 0x77777700, 0, 8 },
	{ "behind the end", 0, SIZE - 4, 8 },
	{ "long message", 0, 4, SIZE },
};

START_TEST(local_fault_fails_this_wr_and_flushes_the_rest)
{
	struct ibv_sge sge = { (uintptr_t)from + bad_locals[_i].off, bad_locals[_i].length,
		bad_locals[_i].bad_lkey ? bad_locals[_i].bad_lkey : from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1,
				 .opcode = IBV_WR_SEND };

	pair_connect(16);
	for (int i = 0; i < 4; i++)
		loop_recv(b, 10 + i, to_mr, to, SIZE);
	ck_assert_int_eq(send_one(1, 8), 0);
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	ck_assert_int_eq(send_one(3, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_LOC_PROT_ERR);
	loop_expect(send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	ck_assert(pair_nothing(recv_cq)); /* the peer lives on, and knows nothing of it */
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_ERR);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_RTS);
}
END_TEST

START_TEST(uc_local_fault_is_sqe_and_can_be_left)
{
	options.type = IBV_QPT_UC;
	pair_connect(16);
	loop_recv(b, 10, to_mr, to, SIZE);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_SEND, NULL, from, 8, NULL, NULL), 0);
	loop_expect(send_cq, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_SQE);
	ck_assert_int_eq(send_one(2, 8), 0);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	loop_rts(a, &options);
	ck_assert_int_eq(send_one(3, 8), 0);
	loop_expect(send_cq, 3, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
}
END_TEST

START_TEST(rnr_for_ever_ends_with_a_receive)
{
	options.rnr_timer = 31; /* half a second: only the hint can be quicker */
	pair_connect(2);
	for (uint64_t i = 0; i < 5; i++)
		ck_assert_int_eq(send_one(i, THREE), 0);
	for (int i = 0; i < 20; i++)
		ck_assert(pair_nothing(send_cq));
	for (uint64_t i = 0; i < 5; i++) {
		loop_recv(b, 10 + i, to_mr, to, SIZE);
		loop_expect(recv_cq, 10 + i, IBV_WC_SUCCESS);
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	}
	ck_assert_mem_eq(from, to, THREE);
}
END_TEST

START_TEST(rnr_retries_run_out)
{
	options.rnr_retry = (uint8_t)_i;
	pair_connect(16);
	ck_assert_int_eq(send_one(1, 8), 0);
	ck_assert_int_eq(write_one(2, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(to[0], 0);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_RNR), 2 * (1 + (unsigned)_i)); /* both sides count */
}
END_TEST

/* The test is the responder: waits for the descriptor that restarts message @msn. */
static void await_restart(struct wire *wire, uint32_t msn)
{
	struct vsd_req head = { .flags = 0 };

	do {
		rt_progress();

		enum soft_held held = soft_hold(&b->rq_lock);

		if (wire_req_peek(wire, &head) == 1) {
			wire_req_consume(wire, &head);
			wire_ack(wire, atomic_load(&wire->mine->acked));
		} else {
			head.flags = 0;
		}
		soft_release(&b->rq_lock, held);
	} while (!(head.flags & VSD_F_RESTART));
	ck_assert_uint_eq(head.msn, msn);
}

/* Refuses @msn; the requester looked at the acknowledgements just before those of the messages before it came. */
static void answer_rnr(struct wire *wire, uint32_t msn)
{
	struct vsd_resp resp = { .op = VSD_RESP_RNR, .msn = msn, .value = 1 };

	enum soft_held sq = soft_hold(&a->sq_lock), rq = soft_hold(&b->rq_lock);

	wire_resp_put(wire, &resp, -1);
	ck_assert_int_eq(requester_inbound(a, atomic_load(&a->wire)), 1);
	wire_ack(wire, msn);
	soft_release(&b->rq_lock, rq);
	soft_release(&a->sq_lock, sq);
	rt_run_later(a);
}

START_TEST(each_message_has_all_its_rnr_retries)
{
	options.rnr_retry = 1;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_wire(&loop, a, b, 16); /* b stays in INIT: it serves nothing */
	loop_rts(a, &options);

	struct wire *wire = atomic_load(&b->wire);

	ck_assert_int_eq(send_one(1, 8), 0);
	ck_assert_int_eq(send_one(2, 8), 0);
	answer_rnr(wire, 0);
	await_restart(wire, 0);
	answer_rnr(wire, 1);
	await_restart(wire, 1);

	enum soft_held held = soft_hold(&b->rq_lock);

	wire_ack(wire, 2);
	wire_notify(wire);
	soft_release(&b->rq_lock, held);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

/* WQEs are used again, and are not cleared for it. */
START_TEST(a_send_tells_nothing_of_the_write_before_it)
{
	const struct wire *wire;
	struct ibv_qp_ex *qpx;
	enum soft_held held;
	unsigned sends = 0;

	options.send_wr = 4;
	pair_connect(64);
	ck_assert_int_eq(soft_qp_fill_ex(a, IBV_QP_EX_WITH_SEND), 0);
	qpx = &a->v.qp_ex;
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(write_one(i, 8), 0);
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
		ck_assert_uint_eq(swqe_at(&a->priv->req, (uint32_t)i)->rkey, to_mr->mr.rkey);
	}
	a->priv->req.no_pull = true; /* it would have an address */
	ibv_wr_start(qpx);
	for (unsigned i = 0; i < 4; i++) {
		ibv_wr_send(qpx);
		ibv_wr_set_sge(qpx, from_mr->key, (uintptr_t)from, TWO);
	}
	ck_assert_int_eq(ibv_wr_complete(qpx), 0);
	wire = atomic_load(&a->wire);
	held = soft_hold(&a->sq_lock); /* there is no receive: some may have been refused, and wait */
	for (uint64_t i = 0; i < wire->req_out.pos; i++) {
		const struct vsd_req *slot = lane_out_slot(&wire->req_out, i);

		if (slot->op != VSD_REQ_SEND)
			continue; /* the first WRITE, by the lane */
		sends++;
		ck_assert(!slot->rw.raddr && !slot->rw.rkey && !slot->imm);
	}
	ck_assert_uint_ge(sends, 2);
	soft_release(&a->sq_lock, held);
}
END_TEST

START_TEST(bytes_and_completions_are_counted)
{
	pair_connect(16);
	loop_recv(b, 1, to_mr, to, SIZE);
	ck_assert_int_eq(send_one(2, 1000), 0);
	loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_BYTES_SENT), 1000);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_BYTES_RECEIVED), 1000);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_COMPLETIONS), 2);
	ck_assert_int_eq(write_one(3, 300), 0);
	loop_expect(send_cq, 3, IBV_WC_SUCCESS);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_BYTES_SENT), 1300);
	ck_assert_int_eq(loop_send(a, 4, IBV_WR_RDMA_READ, from_mr, from, 50, to_mr, to), 0);
	loop_expect(send_cq, 4, IBV_WC_SUCCESS);
	ck_assert_uint_ge(loop_counter(VSD_COUNT_BYTES_RECEIVED), 1050);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_COMPLETIONS), 4);
}
END_TEST

START_TEST(no_peer_is_retry_exceeded_after_the_timeout)
{
	options.timeout = 1;
	options.retry_cnt = 0;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rts(a, &options);
	ck_assert_int_eq(send_one(1, 8), 0);
	ck_assert_int_eq(send_one(2, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
}
END_TEST

START_TEST(a_closed_peer_is_retry_exceeded_once_something_waits)
{
	options.timeout = 1;
	pair_connect(16);
	loop_state(b, IBV_QPS_ERR);
	for (int i = 0; i < 100; i++)
		ck_assert(pair_nothing(send_cq));
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_RTS);
	ck_assert_int_eq(send_one(1, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

START_TEST(wrs_wait_for_the_wire)
{
	options.timeout = 0; /* for ever */
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rts(a, &options);
	ck_assert_int_eq(send_one(1, 100), 0);
	ck_assert_int_eq(write_one(2, TWO), 0);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_recv(b, 10, to_mr, to + SIZE / 2, 100);
	loop_wire(&loop, a, b, 2);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	ck_assert_mem_eq(to, from, TWO);
}
END_TEST

static void up_to(struct soft_qp *qp, const struct soft_qp *peer, int from_state, int to_state)
{
	if (from_state < IBV_QPS_INIT && to_state >= IBV_QPS_INIT)
		loop_state(qp, IBV_QPS_INIT);
	if (from_state < IBV_QPS_RTR && to_state >= IBV_QPS_RTR)
		loop_rtr(qp, peer->v.qp.qp_num, &options);
	if (from_state < IBV_QPS_RTS && to_state >= IBV_QPS_RTS)
		loop_rts(qp, &options);
}

/* Reset and joined anew before the word of the last wire came: it is of a connection that both have left. */
START_TEST(a_wire_of_the_last_connection_is_refused)
{
	pair_make();
	for (unsigned i = 0; i < 2; i++) {
		loop_state(i ? b : a, IBV_QPS_RESET);
		(i ? b : a)->resets++;
		up_to(i ? b : a, i ? a : b, IBV_QPS_RESET, _i);
	}
	loop_wire_late(&loop, a, b, 16);
	up_to(a, b, _i, IBV_QPS_RTS);
	up_to(b, a, _i, IBV_QPS_RTS);
	ck_assert_int_eq(send_one(1, 8), 0);
	loop_recv(b, 10, to_mr, to, 8);
	for (int i = 0; i < 1000; i++)
		ck_assert(pair_nothing(send_cq));
	loop_wire(&loop, a, b, 16);
	ck_assert_uint_eq(atomic_load(&a->wire)->index, 1);
	ck_assert_uint_eq(atomic_load(&b->wire)->index, 1);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
}
END_TEST

START_TEST(a_wrong_psn_is_a_peer_that_is_not_there)
{
	options.timeout = 1;
	pair_make();
	loop_rtr(a, b->v.qp.qp_num, &options);
	loop_rtr(b, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, b, 16); /* expects PSN 0 */
	loop_rts(a, &options);
	a->attr.sq_psn = 5;
	ck_assert_int_eq(send_one(1, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

START_TEST(fence_waits_for_reads)
{
	uint64_t value = 7, fetched = 0;
	struct soft_mr *word = loop_mr(&loop, &value, 8, LOOP_ACCESS);
	struct soft_mr *result = loop_mr(&loop, &fetched, 8, LOOP_ACCESS);
	struct ibv_sge sge = { (uintptr_t)&fetched, 8, result->key };
	struct ibv_send_wr *bad, wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1,
				 .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_FENCE };

	setenv("VERBSD_ENGINE", "stage", 1);
	pair_connect(16);
	loop_recv(b, 10, to_mr, to, 8);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, result, &fetched, 8, word, &value), 0);
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 10, IBV_WC_SUCCESS);
	ck_assert_uint_eq(*(uint64_t *)(void *)to, 7); /* the SEND carried what the atomic had fetched */
	ck_assert_uint_eq(value, 8);
	loop_qp_free(a);
	loop_qp_free(b);
	a = b = NULL;
	loop_mr_free(word);
	loop_mr_free(result);
}
END_TEST

START_TEST(drained_sqd_says_so)
{
	struct ibv_qp_attr now, attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	pair_connect(16);
	ck_assert_int_eq(send_one(1, 8), 0); /* no receive: outstanding */
	ck_assert_int_eq(soft_qp_apply(a, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	ck_assert_int_eq(send_one(2, 8), 0);
	soft_qp_query(a, &now, NULL);
	ck_assert_int_eq(now.sq_draining, 1);
	loop_recv(b, 10, to_mr, to, 8);
	loop_recv(b, 11, to_mr, to, 8);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS); /* it had begun */
	loop_event(&loop, IBV_EVENT_SQ_DRAINED);
	soft_qp_query(a, &now, NULL);
	ck_assert_int_eq(now.sq_draining, 0);
	ck_assert(pair_nothing(send_cq));
	loop_rts(a, &options);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
}
END_TEST

START_TEST(a_dead_peer_fails_the_oldest_and_flushes_the_rest)
{
	pair_connect(16);
	loop_recv(a, 20, to_mr, to, 8);
	ck_assert_int_eq(send_one(1, 8), 0); /* no receive: outstanding */
	ck_assert_int_eq(send_one(2, 8), 0);
	qp_wire_gone(a, atomic_load(&a->wire), true);
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

START_TEST(a_peer_that_closed_before_it_died_is_no_news)
{
	pair_connect(16);
	loop_recv(a, 20, to_mr, to, 8);
	loop_state(b, IBV_QPS_RESET);
	qp_wire_gone(a, atomic_load(&a->wire), true);
	for (int i = 0; i < 100; i++)
		ck_assert(pair_nothing(recv_cq));
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_RTS);
	atomic_store(&atomic_load(&a->wire)->pair->dead, true);
	ck_assert_int_eq(send_one(1, 8), 0);
	loop_expect(send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

START_TEST(what_a_peer_sent_before_it_went_still_comes)
{
	options.type = IBV_QPT_UC;
	pair_connect(16);
	loop_recv(b, 20, to_mr, to, 100);
	ck_assert_int_eq(send_one(1, 100), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_qp_free(a);
	a = NULL;
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	ck_assert_mem_eq(from, to, 100);
}
END_TEST

/* The chunk of a sender that is gone is not used again before its message was read. */
START_TEST(a_message_outlives_its_sender)
{
	struct soft_qp *c, *d;
	uint8_t *other = to + SIZE / 2;

	options.type = IBV_QPT_UC;
	pair_connect(16);
	loop_recv(b, 20, to_mr, to, TWO);
	c = loop_qp(&loop, &options);
	d = loop_qp(&loop, &options);
	loop_connect(&loop, c, d, 16, &options);
	soft_lock(&b->rq_lock); /* it is busy */
	ck_assert_int_eq(send_one(1, TWO), 0);
	loop_qp_free(a);
	a = c;
	while (rt_progress())
		;
	for (int i = 0; i < 70; i++) {
		ck_assert_int_eq(loop_send(c, 2, IBV_WR_SEND, to_mr, other, 10000, NULL, NULL), 0);
		loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	}
	soft_unlock(&b->rq_lock);
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	ck_assert_mem_eq(from, to, TWO);
	loop_qp_free(d);
}
END_TEST

START_TEST(a_qp_connected_to_itself)
{
	setenv("VERBSD_ENGINE", _i ? "stage" : "auto", 1);
	a = loop_qp(&loop, &options);
	loop_rtr(a, a->v.qp.qp_num, &options);
	loop_wire(&loop, a, a, 2);
	loop_rts(a, &options);
	loop_recv(a, 20, to_mr, to, SIZE);
	ck_assert_int_eq(send_one(1, 3 * VSD_CHUNK), 0);
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_mem_eq(from, to, 3 * VSD_CHUNK);
	memset(from, 0, SIZE);
	ck_assert_int_eq(loop_send(a, 2, IBV_WR_RDMA_READ, from_mr, from, 3 * VSD_CHUNK, to_mr, to), 0);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	ck_assert_mem_eq(from, to, 3 * VSD_CHUNK);
}
END_TEST

START_TEST(the_new_interface_posts_all_or_nothing)
{
	struct ibv_qp_ex *qpx;

	options.send_wr = 3;
	options.signal_all = false;
	pair_connect(16);
	ck_assert_int_eq(soft_qp_fill_ex(a, IBV_QP_EX_WITH_TSO), -EOPNOTSUPP);
	ck_assert_int_eq(soft_qp_fill_ex(a, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND), 0);
	qpx = &a->v.qp_ex;
	ibv_wr_start(qpx);
	for (unsigned i = 0; i < 4; i++) {
		qpx->wr_id = i;
		ibv_wr_rdma_write(qpx, to_mr->key, (uintptr_t)to + i);
		ibv_wr_set_inline_data(qpx, from + i, 1);
	}
	ck_assert_int_eq(ibv_wr_complete(qpx), ENOMEM);
	ibv_wr_start(qpx);
	ibv_wr_rdma_write(qpx, to_mr->key, (uintptr_t)to);
	ibv_wr_set_inline_data(qpx, from, 257);
	ck_assert_int_eq(ibv_wr_complete(qpx), EINVAL);
	ck_assert_uint_eq(to[0], 0);
	ibv_wr_start(qpx);
	for (unsigned i = 0; i < 3; i++) {
		qpx->wr_id = i;
		qpx->wr_flags = i == 2 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(qpx, to_mr->key, (uintptr_t)to + i);
		ibv_wr_set_inline_data(qpx, from + i, 1);
	}
	ck_assert_int_eq(ibv_wr_complete(qpx), 0);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	ck_assert_mem_eq(to, from, 3);
	ibv_wr_start(qpx);
	ibv_wr_rdma_write(qpx, to_mr->key, (uintptr_t)to);
	ibv_wr_abort(qpx);
	ck_assert(pair_nothing(send_cq));
}
END_TEST

START_TEST(an_atomic_write_is_eight_bytes)
{
	struct ibv_qp_ex *qpx;
	uint64_t word = 0x1122334455667788u;

	pair_connect(16);
	qpx = &a->v.qp_ex;
	ck_assert_int_eq(soft_qp_fill_ex(a, IBV_QP_EX_WITH_ATOMIC_WRITE), 0);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_ATOMIC_WRITE, from_mr, from, 7, to_mr, to), EINVAL);
	ck_assert_int_eq(loop_send(a, 2, IBV_WR_ATOMIC_WRITE, from_mr, from, 8, to_mr, to), 0);
	ck_assert_int_eq(loop_wait(send_cq).opcode, IBV_WC_ATOMIC_WRITE);
	ck_assert_mem_eq(to, from, 8);
	ibv_wr_start(qpx);
	qpx->wr_id = 3;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qpx, to_mr->key, (uintptr_t)to + 8, &word);
	word = 0; /* it was copied */
	ck_assert_int_eq(ibv_wr_complete(qpx), 0);
	ck_assert_int_eq(loop_wait(send_cq).opcode, IBV_WC_ATOMIC_WRITE);
	memcpy(&word, to + 8, 8);
	ck_assert_uint_eq(word, 0x1122334455667788u);
	ibv_wr_start(qpx);
	ibv_wr_atomic_write(qpx, to_mr->key, (uintptr_t)to, &word);
	ibv_wr_set_inline_data(qpx, from, 1);
	ck_assert_int_eq(ibv_wr_complete(qpx), EINVAL);
	ck_assert_mem_eq(to, from, 8);
}
END_TEST

static void add_tests(TCase *tcase, bool domain)
{
	tcase_add_checked_fixture(tcase, setup, pair_stop);
	tcase_set_timeout(tcase, 10);
	tcase_add_test(tcase, posting_follows_the_state);
	tcase_add_test(tcase, reset_drops_unread_completions);
	tcase_add_test(tcase, full_until_a_completion_is_read);
	tcase_add_test(tcase, bad_wr_is_named_and_those_before_it_go);
	tcase_add_loop_test(tcase, local_fault_fails_this_wr_and_flushes_the_rest, 0, 3);
	tcase_add_test(tcase, uc_local_fault_is_sqe_and_can_be_left);
	tcase_add_test(tcase, rnr_for_ever_ends_with_a_receive);
	tcase_add_loop_test(tcase, rnr_retries_run_out, 0, 4);
	tcase_add_test(tcase, each_message_has_all_its_rnr_retries);
	tcase_add_test(tcase, a_send_tells_nothing_of_the_write_before_it);
	tcase_add_test(tcase, bytes_and_completions_are_counted);
	tcase_add_test(tcase, no_peer_is_retry_exceeded_after_the_timeout);
	tcase_add_test(tcase, a_closed_peer_is_retry_exceeded_once_something_waits);
	tcase_add_test(tcase, wrs_wait_for_the_wire);
	tcase_add_loop_test(tcase, a_wire_of_the_last_connection_is_refused, IBV_QPS_RESET, IBV_QPS_RTS + 1);
	tcase_add_test(tcase, a_wrong_psn_is_a_peer_that_is_not_there);
	tcase_add_test(tcase, fence_waits_for_reads);
	tcase_add_test(tcase, drained_sqd_says_so);
	tcase_add_test(tcase, a_dead_peer_fails_the_oldest_and_flushes_the_rest);
	tcase_add_test(tcase, a_peer_that_closed_before_it_died_is_no_news);
	tcase_add_test(tcase, what_a_peer_sent_before_it_went_still_comes);
	if (!domain) /* a QP of one cannot be busy by itself */
		tcase_add_test(tcase, a_message_outlives_its_sender);
	tcase_add_loop_test(tcase, a_qp_connected_to_itself, 0, 2);
	tcase_add_test(tcase, the_new_interface_posts_all_or_nothing);
	tcase_add_test(tcase, an_atomic_write_is_eight_bytes);
}

int main(void)
{
	Suite *suite = suite_create("requester");
	TCase *domain = harness_tcase(suite, "requester in a thread domain");

	add_tests(harness_tcase(suite, "requester"), false);
	tcase_add_checked_fixture(domain, loop_with_domain, NULL);
	add_tests(domain, true);
	return harness_run(suite);
}
