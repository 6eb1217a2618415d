/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case by itself: what each of its parts takes, and every single thing that makes it leave all as it is. And that
 * what it does comes to the same as what the state machines do.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/lane.h"
#include "client/soft/map.h"
#include "client/soft/mr_private.h"
#include "client/soft/post.h"
#include "client/soft/quick.h"
#include "tests/unit/soft_kept.h"

#define SIZE (4u << 20)
#define LONG 4096u /* what is mixed below with what is short */

static struct soft_mr *read_only;
static uint8_t memory[64u << 10];
static struct soft_mr *large_mr;
static uint8_t large[3 * QP_COPY_SLICE];

/* The first use of a key takes the lane, and so does the first message of all. */
static void until_mapped(void)
{
	for (uint64_t before = mapped_runs(); mapped_runs() == before;) {
		ck_assert_int_eq(loop_send(a, 1, IBV_WR_RDMA_READ, local, memory, 1, mr, (void *)(uintptr_t)MAPPED_BASE), 0);
		loop_expect(a_send, 1, IBV_WC_SUCCESS);
	}
}

static void setup(void)
{
	mapped_start(SIZE, memory, sizeof(memory));
	read_only = loop_mr(&loop, memory, sizeof(memory), 0);
	large_mr = loop_mr(&loop, large, sizeof(large), LOOP_ACCESS);
	mapped_region(MAPPED_BASE, SIZE, LOOP_ACCESS);
	mapped_grant(SIZE, true, 0);
	until_mapped();
}

static void teardown(void)
{
	loop_mr_free(read_only);
	loop_mr_free(large_mr);
	mapped_stop();
}

/* --- a WR in the queue that nobody has looked at; all locks held ---------------------------------------------------------- */

static struct swqe *queued(enum ibv_wr_opcode opcode, uint32_t length)
{
	struct requester *req = &a->priv->req;
	const struct ibv_sge sge = { (uintptr_t)memory, length, local->key };
	struct swqe *w;

	ck_assert_int_eq(post_slot(a, req->head, opcode, &w), 0);
	ck_assert_int_eq(post_sges(a, w, &sge, 1), 0);
	w->wr_id = 3;
	w->raddr = MAPPED_BASE + 64;
	w->rkey = mr->key;
	w->compare_add = 5;
	w->swap = 6;
	req->head++;
	return w;
}

/* As if it had never been posted. */
static void taken_back(void)
{
	struct requester *req = &a->priv->req;

	req->head = req->tx;
}

/* --- READ, WRITE, atomics ------------------------------------------------------------------------------------------------- */

SPOIL(not_plain, a->priv->plain = false)
SPOIL(draining, atomic_store(&a->state, IBV_QPS_SQD))
SPOIL(failed, a->priv->failure = QP_FAIL_RECV)
SPOIL(stopped, a->priv->stopped = true)
SPOIL(waits_for_a_receive, req->rnr_at = 1)
SPOIL(waits_for_the_peer, req->retry_at = 1)
SPOIL(has_a_timer, a->priv->timer_set = 1)
SPOIL(broken, wire->broken = true)
SPOIL(not_open, wire->peer_open = false)
SPOIL(closed, wire->peer_closed = true)
SPOIL(other_psn, wire->peer_rq_psn ^= 1)
SPOIL(first_message, req->msn = req->acked = 0)
SPOIL(not_acknowledged, req->msn++)
SPOIL(not_completed, req->una--)
SPOIL(repeated, w->state = SWQE_DONE)
SPOIL(half_done, w->state = SWQE_ENGINE)
SPOIL(for_the_lane, w->lane_only = true)
SPOIL(of_the_library, w->internal = 1)
SPOIL(empty, w->length = w->sge->length = 0)
SPOIL(long_one, w->length = w->sge->length = QP_COPY_SLICE + 1)
SPOIL(in_pieces, w->n_sge = 2)
SPOIL(without_a_piece, w->n_sge = 0)
SPOIL(a_send_of_a_kind, w->opcode = IBV_WR_SEND)
SPOIL(with_immediate, w->opcode = IBV_WR_RDMA_WRITE_WITH_IMM)
SPOIL(atomic_write, w->opcode = IBV_WR_ATOMIC_WRITE)
SPOIL(no_such_key_here, w->sge->lkey = 0xabcdef00)
SPOIL(old_key_here, w->sge->lkey ^= 1)
SPOIL(read_only_here, w->sge->lkey = read_only->key)
SPOIL(behind_its_end_here, w->sge->addr += sizeof(memory))
SPOIL(before_it_here, w->sge->addr -= 1)
SPOIL(of_another_domain, local->pd = calloc(1, sizeof(struct soft_pd)); local->pd->base = local->pd)
SPOIL(paged_here, local->access |= IBV_ACCESS_ON_DEMAND)
SPOIL(null_here, local->null = true)
SPOIL(gone_here, ck_assert_int_eq(mr_close(local), 0))
SPOIL(old_key_there, w->rkey ^= 1)
SPOIL(behind_its_end_there, w->raddr = MAPPED_BASE + SIZE - 4)
SPOIL(before_it_there, w->raddr = MAPPED_BASE - 1)
SPOIL(no_region_there, wire->view.entry = 0; mapped_entry()->region = 0)
SPOIL(closed_there, atomic_store(&mapped_entry()->gen, 0))
SPOIL(closed_and_forgotten, closed_there(w); wire->view.entry = 0)
SPOIL(another_right, wire->view.access &= ~(unsigned)IBV_ACCESS_REMOTE_READ; mapped_entry()->access = IBV_ACCESS_REMOTE_WRITE)
SPOIL(opened_anew, atomic_fetch_add(&mapped_entry()->gen, 1000))
SPOIL(no_right_there, wire->view.entry = 0; mapped_entry()->access = 0)
SPOIL(gate_closed, atomic_store(&kept_gate()->gen, 0))
SPOIL(gate_of_another, wire->view.entry = 0; kept_gate()->peer_qpn ^= 1)
SPOIL(no_right_in_the_gate, wire->view.entry = 0; kept_gate()->access = 0)
SPOIL(not_allowed, wire->pair->engines &= ~(uint32_t)VSD__ENGINE_RIGHT__ENGINE_MAP)
SPOIL(peer_dead, atomic_store(&wire->pair->dead, true))
SPOIL(no_slot, atomic_store(&wire->pair->priv->hazards, UINT32_MAX))
SPOIL(progress_thread, atomic_store(&rt_progress_self, __builtin_thread_pointer()))
SPOIL(none_at_a_time, a->attr.max_rd_atomic = 0)
SPOIL(misaligned, w->raddr += 4)

static const struct spoil {
	const char *name;
	enum ibv_wr_opcode opcode;
	void (*spoil)(struct swqe *w);
} engine_spoils[] = {
	{ "not plain", IBV_WR_RDMA_READ, not_plain },
	{ "draining", IBV_WR_RDMA_READ, draining },
	{ "failed", IBV_WR_RDMA_READ, failed },
	{ "stopped", IBV_WR_RDMA_READ, stopped },
	{ "RNR", IBV_WR_RDMA_WRITE, waits_for_a_receive },
	{ "waits for the peer", IBV_WR_RDMA_WRITE, waits_for_the_peer },
	{ "timer", IBV_WR_RDMA_WRITE, has_a_timer },
	{ "broken", IBV_WR_RDMA_READ, broken },
	{ "not open", IBV_WR_RDMA_READ, not_open },
	{ "closed", IBV_WR_RDMA_READ, closed },
	{ "PSN", IBV_WR_RDMA_READ, other_psn },
	{ "first message", IBV_WR_RDMA_READ, first_message },
	{ "not acknowledged", IBV_WR_RDMA_READ, not_acknowledged },
	{ "not completed", IBV_WR_RDMA_READ, not_completed },
	{ "repeated", IBV_WR_RDMA_WRITE, repeated },
	{ "half done", IBV_WR_RDMA_WRITE, half_done },
	{ "for the lane", IBV_WR_RDMA_WRITE, for_the_lane },
	{ "the library's", IBV_WR_RDMA_READ, of_the_library },
	{ "empty", IBV_WR_RDMA_WRITE, empty },
	{ "long", IBV_WR_RDMA_WRITE, long_one },
	{ "in pieces", IBV_WR_RDMA_WRITE, in_pieces },
	{ "without a piece", IBV_WR_RDMA_READ, without_a_piece },
	{ "SEND", IBV_WR_RDMA_WRITE, a_send_of_a_kind },
	{ "immediate", IBV_WR_RDMA_WRITE, with_immediate },
	{ "atomic write", IBV_WR_RDMA_WRITE, atomic_write },
	{ "no key here", IBV_WR_RDMA_READ, no_such_key_here },
	{ "old key here", IBV_WR_RDMA_WRITE, old_key_here },
	{ "read-only here", IBV_WR_RDMA_READ, read_only_here },
	{ "read-only here, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, read_only_here },
	{ "behind the end here", IBV_WR_RDMA_READ, behind_its_end_here },
	{ "before it here", IBV_WR_RDMA_WRITE, before_it_here },
	{ "another domain", IBV_WR_RDMA_READ, of_another_domain },
	{ "paged", IBV_WR_RDMA_READ, paged_here },
	{ "null", IBV_WR_RDMA_WRITE, null_here },
	{ "gone here", IBV_WR_RDMA_WRITE, gone_here },
	{ "old key there", IBV_WR_RDMA_READ, old_key_there },
	{ "behind the end there", IBV_WR_RDMA_WRITE, behind_its_end_there },
	{ "before it there", IBV_WR_RDMA_WRITE, before_it_there },
	{ "no region", IBV_WR_RDMA_WRITE, no_region_there },
	{ "closed there", IBV_WR_RDMA_WRITE, closed_there },
	{ "closed and forgotten", IBV_WR_RDMA_WRITE, closed_and_forgotten },
	{ "another right", IBV_WR_RDMA_READ, another_right },
	{ "opened anew", IBV_WR_RDMA_WRITE, opened_anew },
	{ "no right there", IBV_WR_RDMA_WRITE, no_right_there },
	{ "gate closed", IBV_WR_RDMA_READ, gate_closed },
	{ "gate of another", IBV_WR_RDMA_READ, gate_of_another },
	{ "no right in the gate", IBV_WR_ATOMIC_CMP_AND_SWP, no_right_in_the_gate },
	{ "not allowed", IBV_WR_RDMA_READ, not_allowed },
	{ "dead", IBV_WR_RDMA_READ, peer_dead },
	{ "no slot", IBV_WR_RDMA_READ, no_slot },
	{ "progress thread", IBV_WR_RDMA_WRITE, progress_thread },
	{ "no READs", IBV_WR_RDMA_READ, none_at_a_time },
	{ "no atomics", IBV_WR_ATOMIC_FETCH_AND_ADD, none_at_a_time },
	{ "misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, misaligned },
};

START_TEST(an_engine_leaves_what_is_not_common)
{
	const struct spoil *spoil = &engine_spoils[_i];
	uint8_t there[256], here[256];
	struct swqe *w;
	uint64_t tx;

	kept_hold();
	memset(region, 0x11, sizeof(there));
	memset(memory, 0x22, sizeof(here));
	queued(spoil->opcode, 8);
	ck_assert_msg(quick_engine(a, wire_of(a)), "%s: not even without", spoil->name);
	memcpy(there, region, sizeof(there));
	memcpy(here, memory, sizeof(here));
	w = queued(spoil->opcode, 8);
	kept_save();
	spoil->spoil(w);
	tx = a->priv->req.tx;
	ck_assert_msg(!quick_engine(a, wire_of(a)), "%s: taken", spoil->name);
	ck_assert_uint_eq(a->priv->req.tx, tx);
	ck_assert_mem_eq(region, there, sizeof(there));
	ck_assert_mem_eq(memory, here, sizeof(here));
	kept_put_right();
	taken_back();
	kept_let_go();
	loop_expect(a_send, 3, IBV_WC_SUCCESS);
}
END_TEST

/* Completions are in the order of the WRs, and what the next part takes is left to it. */
START_TEST(a_list_is_run_up_to_what_is_not_common)
{
	uint64_t before = mapped_runs();

	kept_hold();
	for (unsigned i = 0; i < 5; i++)
		queued(i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 8)->wr_id = 10 + i;
	queued(IBV_WR_SEND, 8)->wr_id = 15;
	ck_assert(!quick_engine(a, wire_of(a)));
	ck_assert_uint_eq(a->priv->req.head - a->priv->req.tx, 1);
	ck_assert(quick_push(a, wire_of(a)));
	ck_assert_uint_eq(a->priv->req.head, a->priv->req.tx);
	/* Behind what waits for the owner nothing is run. */
	queued(IBV_WR_RDMA_WRITE, 8)->wr_id = 16;
	ck_assert(!quick_engine(a, wire_of(a)));
	kept_let_go();
	for (unsigned i = 0; i < 5; i++)
		loop_expect(a_send, 10 + i, IBV_WC_SUCCESS);
	ck_assert_uint_eq(mapped_runs(), before + 5);
	ck_assert_int_eq(loop_recv(b, 1, local, memory + 4096, 8), 0);
	ck_assert_int_eq(loop_send(a, 17, IBV_WR_RDMA_READ, local, memory, 8, mr, (void *)(uintptr_t)MAPPED_BASE), 0);
	for (unsigned i = 15; i < 18; i++)
		loop_expect(a_send, i, IBV_WC_SUCCESS);
}
END_TEST

/* All over the region, to its last byte; a step further, and before its first one, the owner judges. */
START_TEST(a_list_is_run_up_to_what_is_out_of_the_region)
{
	static const uint64_t places[] = { 0, 65528, 65532, 65536, SIZE - 8, 3 * 65536 + 1, 0 };
	static const uint64_t outside[] = { SIZE - 7, SIZE, UINT64_MAX - 63, (uint64_t)0 - 1 };
	uint64_t before = mapped_runs();

	memset(region, 0x33, SIZE);
	memset(memory, 0x44, 8);
	kept_hold();
	for (int i = 0; i < COUNT_OF(places); i++)
		queued(IBV_WR_RDMA_WRITE, 8)->raddr = MAPPED_BASE + places[i];
	queued(IBV_WR_RDMA_WRITE, 8)->raddr = MAPPED_BASE + outside[_i];
	ck_assert(!quick_engine(a, wire_of(a)));
	ck_assert_uint_eq(a->priv->req.head - a->priv->req.tx, 1);
	for (int i = 0; i < COUNT_OF(places); i++)
		ck_assert_mem_eq(region + places[i], memory, 8);
	for (int i = 0; i < COUNT_OF(places); i++)
		memset(region + places[i], 0x33, 8);
	ck_assert_mem_eq(region, region + 1, SIZE - 1);
	qp_again(a);
	kept_let_go();
	for (int i = 0; i < COUNT_OF(places); i++)
		loop_expect(a_send, 3, IBV_WC_SUCCESS);
	loop_expect(a_send, 3, IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(mapped_runs(), before + COUNT_OF(places));
	ck_assert_mem_eq(region, region + 1, SIZE - 1);
}
END_TEST

/* One that is as long as what one call may copy, and lists that are longer. */
START_TEST(a_list_is_run_up_to_one_slice)
{
	static const struct {
		uint32_t length[4];
		unsigned run;
	} lists[] = {
		{ { QP_COPY_SLICE }, 1 },
		{ { QP_COPY_SLICE, 1 }, 1 },
		{ { 1, QP_COPY_SLICE }, 1 },
		{ { QP_COPY_SLICE / 2, QP_COPY_SLICE / 2 }, 2 },
		{ { QP_COPY_SLICE / 2, QP_COPY_SLICE / 2, 1 }, 2 },
		{ { QP_COPY_SLICE / 3, QP_COPY_SLICE / 3, QP_COPY_SLICE / 3, 2 }, 3 },
		{ { QP_COPY_SLICE / 2 + 1, QP_COPY_SLICE / 2, 1 }, 1 },
	};
	enum ibv_wr_opcode opcode = _i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	const uint32_t *length = lists[_i / 2].length;
	unsigned n = 0;
	uint64_t tx;

	kept_hold();
	for (; n < 4 && length[n]; n++) {
		struct swqe *w = queued(opcode, length[n]);

		w->sge->addr = (uintptr_t)large;
		w->sge->lkey = large_mr->key;
		w->wr_id = 20 + n;
	}
	memset(region, 0x33, SIZE);
	memset(large, 0x44, sizeof(large));
	tx = a->priv->req.tx;
	ck_assert(quick_engine(a, wire_of(a)));
	ck_assert_int_eq(atomic_load(&a->run_queued), lists[_i / 2].run < n);
	ck_assert_uint_eq(a->priv->req.tx, tx + lists[_i / 2].run);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(swqe_at(&a->priv->req, tx + i)->state, i < lists[_i / 2].run ? SWQE_DONE : SWQE_QUEUED);
	ck_assert_uint_eq(_i % 2 ? large[length[0] - 1] : region[64 + length[0] - 1], _i % 2 ? 0x33 : 0x44);
	ck_assert_uint_eq(_i % 2 ? large[QP_COPY_SLICE] : region[64 + QP_COPY_SLICE], _i % 2 ? 0x44 : 0x33);
	/* The rest is for the next turn. */
	qp_again(a);
	kept_let_go();
	for (unsigned i = 0; i < n; i++)
		loop_expect(a_send, 20 + i, IBV_WC_SUCCESS);
}
END_TEST

/* --- SENDs ------------------------------------------------------------------------------------------------------------------ */

SPOIL(fenced, w->flags |= IBV_SEND_FENCE)
SPOIL(long_send, w->length = w->sge->length = PULL_MIN)
SPOIL(send_with_invalidate, w->opcode = IBV_WR_SEND_WITH_INV)
SPOIL(starts_again, req->restart = true)
SPOIL(full, wire->req_out.pos = atomic_load(&wire->theirs->req_taken) + MAPPED_SLOTS)

static const struct spoil push_spoils[] = {
	{ "not plain", IBV_WR_SEND, not_plain },
	{ "draining", IBV_WR_SEND, draining },
	{ "failed", IBV_WR_SEND, failed },
	{ "stopped", IBV_WR_SEND, stopped },
	{ "RNR", IBV_WR_SEND, waits_for_a_receive },
	{ "waits for the peer", IBV_WR_SEND, waits_for_the_peer },
	{ "timer", IBV_WR_SEND, has_a_timer },
	{ "broken", IBV_WR_SEND, broken },
	{ "not open", IBV_WR_SEND, not_open },
	{ "closed", IBV_WR_SEND, closed },
	{ "PSN", IBV_WR_SEND, other_psn },
	{ "repeated", IBV_WR_SEND, repeated },
	{ "half done", IBV_WR_SEND, half_done },
	{ "the library's", IBV_WR_SEND, of_the_library },
	{ "in pieces", IBV_WR_SEND, in_pieces },
	{ "WRITE", IBV_WR_RDMA_WRITE, for_the_lane },
	{ "no key here", IBV_WR_SEND, no_such_key_here },
	{ "behind the end here", IBV_WR_SEND, behind_its_end_here },
	{ "another domain", IBV_WR_SEND, of_another_domain },
	{ "paged", IBV_WR_SEND, paged_here },
	{ "null", IBV_WR_SEND, null_here },
	{ "gone here", IBV_WR_SEND, gone_here },
	{ "progress thread", IBV_WR_SEND, progress_thread },
	{ "fence", IBV_WR_SEND, fenced },
	{ "long", IBV_WR_SEND, long_send },
	{ "invalidate", IBV_WR_SEND, send_with_invalidate },
	{ "starts again", IBV_WR_SEND, starts_again },
	{ "full", IBV_WR_SEND, full },
};

START_TEST(a_push_leaves_what_is_not_common)
{
	const struct spoil *spoil = &push_spoils[_i];
	struct swqe *w;
	uint64_t pos;

	ck_assert_int_eq(loop_recv(b, 4, local, memory + 4096, 8), 0);
	kept_hold();
	queued(IBV_WR_SEND, 8);
	ck_assert(quick_push(a, wire_of(a)));
	w = queued(spoil->opcode, 8);
	kept_save();
	spoil->spoil(w);
	pos = wire_of(a)->req_out.pos;
	ck_assert_msg(!quick_push(a, wire_of(a)), "%s: taken", spoil->name);
	ck_assert_uint_eq(wire_of(a)->req_out.pos, pos);
	kept_put_right();
	taken_back();
	qp_publish_sq(a);
	kept_let_go();
	loop_expect(a_send, 3, IBV_WC_SUCCESS);
	loop_expect(b_recv, 4, IBV_WC_SUCCESS);
}
END_TEST

/* --- receives ---------------------------------------------------------------------------------------------------------------- */

static struct soft_rwqe *next_receive(void)
{
	struct receive_queue *rq = &b->priv->resp.rq;

	return &rq->ring[rq->tail & rq->mask];
}

/* The message that waits in the lane, as its sender wrote it. */
static struct vsd_req *message(void)
{
	return lane_out_slot(&wire_of(a)->req_out, wire_of(a)->req_out.pos - 1);
}

SPOIL_OF(b, b_not_plain, b->priv->plain = false)
SPOIL_OF(b, b_draining, atomic_store(&b->state, IBV_QPS_SQD))
SPOIL_OF(b, b_failed, b->priv->failure = QP_FAIL_SEND)
SPOIL_OF(b, b_stopped, b->priv->stopped = true)
SPOIL_OF(b, b_broken, wire->broken = true)
SPOIL_OF(b, b_closed, wire->peer_closed = true)
SPOIL_OF(b, b_has_a_timer, b->priv->timer_set = 1)
SPOIL_OF(b, comes_to_rtr, atomic_store(&b->state, IBV_QPS_RTR))
SPOIL_OF(b, b_wants_answers_taken, wire->resp_out.held = 1)
SPOIL_OF(b, b_waits_for_space, atomic_store(&wire->want, WIRE_WANT_RESP))
SPOIL_OF(b, in_a_message, resp->open = true)
SPOIL_OF(b, not_ready, resp->rnr = true)
SPOIL_OF(b, owes_not_ready, resp->rnr_owed = true)
SPOIL_OF(b, owes_a_refusal, resp->nak_owed = true)
SPOIL_OF(b, reads, resp->stream.active = true)
SPOIL_OF(b, no_receive, resp->rq.tail = resp->rq.head)
SPOIL_OF(b, has_taken_one, resp->has_recv = true)
SPOIL_OF(b, not_due, resp->msn++)
SPOIL(short_receive, next_receive()->sge->length = 4)
SPOIL(receive_in_pieces, next_receive()->n_sge = 2)
SPOIL(receive_without_key, next_receive()->sge->lkey = 0xabcdef00)
SPOIL(receive_read_only, next_receive()->sge->lkey = read_only->key)
SPOIL(receive_behind_the_end, next_receive()->sge->addr += sizeof(memory))
SPOIL(of_a_write, message()->op = VSD_REQ_WRITE)
SPOIL(that_invalidates, message()->flags |= VSD_F_INV)
SPOIL(by_chunk_of_none, message()->flags |= VSD_F_CHUNK; message()->rw.chunk = VSD_POOL_CHUNKS)
SPOIL(to_be_continued, message()->flags &= (uint8_t)~VSD_F_LAST)
SPOIL(in_the_middle, message()->flags &= (uint8_t)~VSD_F_FIRST)
SPOIL(started_again, message()->flags |= VSD_F_RESTART)
SPOIL(shorter_than_all, message()->total++)
SPOIL(longer_than_its_slots, message()->len = message()->total = LANE_RW_BASE + 1)
SPOIL(of_too_many_slots, message()->slots = 2)
SPOIL(of_no_slots, message()->slots = 0)

static const struct {
	const char *name;
	void (*spoil)(struct swqe *w);
} turn_spoils[] = {
	{ "not plain", b_not_plain },
	{ "draining", b_draining },
	{ "failed", b_failed },
	{ "stopped", b_stopped },
	{ "broken", b_broken },
	{ "closed", b_closed },
	{ "timer", b_has_a_timer },
	{ "first one in RTR", comes_to_rtr },
	{ "wants answers taken", b_wants_answers_taken },
	{ "waits for space", b_waits_for_space },
	{ "in a message", in_a_message },
	{ "RNR", not_ready },
	{ "owes RNR", owes_not_ready },
	{ "owes a NAK", owes_a_refusal },
	{ "answers a READ", reads },
	{ "no receive", no_receive },
	{ "has taken one", has_taken_one },
	{ "not due", not_due },
	{ "short receive", short_receive },
	{ "receive in pieces", receive_in_pieces },
	{ "receive without a key", receive_without_key },
	{ "read-only receive", receive_read_only },
	{ "receive behind the end", receive_behind_the_end },
	{ "gone", gone_here },
	{ "paged", paged_here },
	{ "null", null_here },
	{ "another domain", of_another_domain },
	{ "progress thread", progress_thread },
	{ "WRITE", of_a_write },
	{ "invalidate", that_invalidates },
	{ "chunk out of range", by_chunk_of_none },
	{ "to be continued", to_be_continued },
	{ "in the middle", in_the_middle },
	{ "started again", started_again },
	{ "shorter than all", shorter_than_all },
	{ "longer than its slots", longer_than_its_slots },
	{ "too many slots", of_too_many_slots },
	{ "no slots", of_no_slots },
};

START_TEST(a_turn_leaves_what_is_not_common)
{
	struct soft_rwqe recv;
	struct vsd_req head;
	struct ibv_sge sge;
	bool did = false;
	uint64_t msn;

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(loop_recv(b, 4 + i, local, memory + 4096, 8), 0);
	kept_hold();
	queued(IBV_WR_SEND, 8);
	ck_assert(quick_push(a, wire_of(a)));
	ck_assert(quick_turn(b, wire_of(b), &did));
	ck_assert(did);
	ck_assert_int_eq(requester_acks(a, wire_of(a)), 1); /* or the next one waits for who has that QP */
	memset(memory, 0x33, 8);
	queued(IBV_WR_SEND, 8);
	ck_assert(quick_push(a, wire_of(a)));
	kept_save();
	recv = *next_receive();
	sge = *recv.sge;
	head = *message();
	turn_spoils[_i].spoil(NULL);
	msn = b->priv->resp.msn;
	did = false;
	ck_assert_msg(!quick_turn(b, wire_of(b), &did), "%s: all done", turn_spoils[_i].name);
	ck_assert_msg(!did, "%s: taken", turn_spoils[_i].name);
	ck_assert_uint_eq(b->priv->resp.msn, msn);
	ck_assert_uint_ne(memory[4096], 0x33);
	kept_put_right();
	*next_receive() = recv;
	*recv.sge = sge;
	*message() = head;
	qp_publish_sq(a);
	kept_let_go();
	for (unsigned i = 0; i < 2; i++) {
		loop_expect(b_recv, 4 + i, IBV_WC_SUCCESS);
		loop_expect(a_send, 3, IBV_WC_SUCCESS);
	}
	ck_assert_uint_eq(memory[4096], 0x33);
}
END_TEST

/* --- what is left behind ------------------------------------------------------------------------------------------------------- */

static _Atomic bool held, enough;

static void *has_the_progress_lock(void *arg)
{
	bool inside = rt_enter();

	atomic_store(&held, true);
	while (!atomic_load(&enough))
		sched_yield();
	rt_leave(inside);
	return arg;
}

/* While that thread runs nobody else makes progress, and the process is asleep: in the epoch that is returned. */
static uint64_t asleep_and_held(pthread_t *thread)
{
	for (;;) {
		uint64_t state;

		while (!rt_asleep())
			sched_yield();
		atomic_store(&enough, false);
		atomic_store(&held, false);
		ck_assert_int_eq(pthread_create(thread, NULL, has_the_progress_lock, NULL), 0);
		while (!atomic_load(&held))
			sched_yield();
		state = atomic_load(&rt.state);
		if (state & 1)
			return state;
		atomic_store(&enough, true);
		pthread_join(*thread, NULL);
	}
}

/* A WRITE of some slices: the post runs the first, and the program does not call again. */
START_TEST(what_a_post_leaves_wakes_the_progress_thread)
{
	const uint8_t *last = region + sizeof(large) - 1;
	pthread_t thread;
	uint64_t epoch;

	memset(large, 0x44, sizeof(large));
	epoch = asleep_and_held(&thread);
	ck_assert_int_eq(loop_send(a, 5, IBV_WR_RDMA_WRITE, large_mr, large, sizeof(large), mr, (void *)(uintptr_t)MAPPED_BASE), 0);
	ck_assert_uint_eq(*last, 0);
	ck_assert(atomic_load(&a->run_queued));
	ck_assert_uint_eq(atomic_load(&rt.self_kicked), epoch);
	atomic_store(&enough, true);
	pthread_join(thread, NULL);
	while (__atomic_load_n(last, __ATOMIC_ACQUIRE) != 0x44)
		sched_yield();
	loop_expect(a_send, 5, IBV_WC_SUCCESS);
	ck_assert_mem_eq(region, large, sizeof(large));
}
END_TEST

static void runs_unless_locked(struct soft_qp *qp, struct soft_lock *lock)
{
	soft_lock(lock);
	ck_assert(!qp_run(qp));
	ck_assert(atomic_load(&qp->run_queued));
	ck_assert(!progress_round(TD_WORK, false)); /* nothing was done */
	ck_assert(atomic_load(&qp->run_queued));
	soft_unlock(lock);
	ck_assert(qp_run(qp));
	ck_assert(progress_round(TD_WORK, false));
	ck_assert(!atomic_load(&qp->run_queued));
}

START_TEST(a_qp_that_others_have_is_not_run)
{
	struct loop_options options = LOOP_OPTIONS;
	struct soft_qp *datagrams;
	bool inside;

	options.type = IBV_QPT_UD;
	options.send_cq = options.recv_cq = a_send;
	datagrams = loop_qp(&loop, &options);
	inside = rt_enter();
	while (progress_round(TD_WORK, false))
		;
	runs_unless_locked(a, &a->sq_lock);
	runs_unless_locked(a, &a->rq_lock);
	runs_unless_locked(datagrams, &datagrams->sq_lock);
	rt_leave(inside);
	loop_qp_free(datagrams);
}
END_TEST

/* --- the same as the state machines --------------------------------------------------------------------------------------- */

#define WRS 400

static struct outcome {
	uint8_t there[2 * sizeof(memory)], here[sizeof(memory)];
	uint64_t counts[3];
} outcome[2];

static void count(struct outcome *o)
{
	static const enum vsd_counter counters[] = { VSD_COUNT_INITIATOR_RUN, VSD_COUNT_BYTES_SENT,
						     VSD_COUNT_BYTES_RECEIVED };

	for (unsigned i = 0; i < 3; i++)
		o->counts[i] = loop_counter(counters[i]) - o->counts[i];
}

static void run_one(unsigned *seed, unsigned i)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_ATOMIC_CMP_AND_SWP };
	enum ibv_wr_opcode opcode = opcodes[rand_r(seed) % 4];
	bool word = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint32_t length = word ? 8 : 1 + (uint32_t)rand_r(seed) % (rand_r(seed) % 2 ? 32 : LONG + 64);
	size_t here = (size_t)rand_r(seed) % (sizeof(memory) - length);
	size_t there = (size_t)rand_r(seed) % (sizeof(outcome->there) - length) & ~(word ? (size_t)7 : 0);

	ck_assert_int_eq(loop_send(a, i, opcode, local, memory + here, length, mr, (void *)(uintptr_t)(MAPPED_BASE + there)), 0);
	loop_expect(a_send, i, IBV_WC_SUCCESS);
}

static void run_all(unsigned seed, bool quick, struct outcome *o)
{
	memset(region, 0, SIZE);
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 13 + (i >> 8));
	a->priv->plain = quick;
	count(o);
	for (unsigned i = 0; i < WRS; i++)
		run_one(&seed, i);
	count(o);
	memcpy(o->there, region, sizeof(o->there));
	memcpy(o->here, memory, sizeof(o->here));
}

START_TEST(it_comes_to_the_same)
{
	run_all((unsigned)_i, true, &outcome[0]);
	run_all((unsigned)_i, false, &outcome[1]);
	ck_assert(memcmp(outcome[0].there, outcome[1].there, sizeof(outcome[0].there)) == 0);
	ck_assert(memcmp(outcome[0].here, outcome[1].here, sizeof(outcome[0].here)) == 0);
	ck_assert_mem_eq(outcome[0].counts, outcome[1].counts, sizeof(outcome[0].counts));
	ck_assert_uint_eq(outcome[0].counts[0], WRS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quick");
	TCase *t = harness_tcase(suite, "engines");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, an_engine_leaves_what_is_not_common, 0, COUNT_OF(engine_spoils));
	tcase_add_test(t, a_list_is_run_up_to_what_is_not_common);
	tcase_add_loop_test(t, a_list_is_run_up_to_what_is_out_of_the_region, 0, 4);
	tcase_add_loop_test(t, a_list_is_run_up_to_one_slice, 0, 14);
	tcase_add_loop_test(t, a_push_leaves_what_is_not_common, 0, COUNT_OF(push_spoils));
	tcase_add_loop_test(t, a_turn_leaves_what_is_not_common, 0, COUNT_OF(turn_spoils));
	tcase_add_loop_test(t, it_comes_to_the_same, 1, 4);
	t = harness_tcase(suite, "left behind");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_a_post_leaves_wakes_the_progress_thread);
	tcase_add_test(t, a_qp_that_others_have_is_not_run);
	return harness_run(suite);
}
