/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case of SENDs: a post that is whole at once, and every single thing that makes it leave all as it is; turns that
 * go on with what waits for room; and that it comes to the same as what the state machines do.
 */
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/lane.h"
#include "client/soft/mr_private.h"
#include "client/soft/quick.h"
#include "tests/unit/soft_kept.h"

#define SIZE 4096u /* the region, which is here for its gate and key alone */
#define TWO  ((uint32_t)(LANE_RW_BASE + LANE_MORE))

static uint8_t memory[64u << 10];
static struct soft_mr *read_only;
static struct ibv_sge sge[2];
static struct ibv_send_wr wr, second;

static void setup(void)
{
	mapped_start(SIZE, memory, sizeof(memory));
	read_only = loop_mr(&loop, memory, sizeof(memory), 0);
	mapped_region(MAPPED_BASE, SIZE, LOOP_ACCESS);
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 13 + (i >> 8));
	/* The first message of all is not common. */
	ck_assert_int_eq(loop_recv(b, 1, local, memory + 4096, 8), 0);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_SEND, local, memory, 8, NULL, NULL), 0);
	loop_expect(b_recv, 1, IBV_WC_SUCCESS);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
}

static void teardown(void)
{
	loop_mr_free(read_only);
	mapped_stop();
}

/* --- a post --------------------------------------------------------------------------------------------------------------- */

static void build(enum ibv_wr_opcode opcode, unsigned flags, uint32_t length)
{
	sge[0] = sge[1] = (struct ibv_sge){ (uintptr_t)memory + 3, length, local->key };
	wr = (struct ibv_send_wr){
		.wr_id = 7,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.imm_data = 0x01020304,
	};
}

/* What a post leaves: of the queue, relative to what was there, and of the lane. */
struct left {
	struct {
		uint64_t wr_id, off, msn;
		uint32_t imm, length, n_sge;
		uint8_t opcode, state, flags, internal;
		bool lane_only, own_sge, own_data;
	} wqe;
	struct ibv_sge sge;
	uint8_t data[TWO];
	struct {
		uint64_t head, tx, una, freed, owners, started, msn, acked;
		bool known, notify, restart, resp_dirty;
	} queue;
	struct {
		uint64_t slots, chunks;
		uint8_t op, flags, n;
		uint32_t imm, msn, len, total;
		uint8_t payload[TWO];
	} lane;
};

static void look(const struct swqe *w, const struct requester *then, uint64_t pos, struct left *left)
{
	struct requester *req = &a->priv->req;
	struct lane_out *lane = &wire_of(a)->req_out;
	uint64_t at = then->head & req->mask;
	const struct vsd_req *slot = lane_out_slot(lane, pos);
	const struct vsd_req_more *more = lane_out_slot(lane, pos + 1);

	memset(left, 0, sizeof(*left));
	left->wqe.wr_id = w->wr_id;
	left->wqe.off = w->off;
	left->wqe.msn = w->msn - then->msn;
	left->wqe.imm = w->imm;
	left->wqe.length = w->length;
	left->wqe.n_sge = w->n_sge;
	left->wqe.opcode = w->opcode;
	left->wqe.state = w->state;
	left->wqe.flags = w->flags;
	left->wqe.internal = w->internal;
	left->wqe.lane_only = w->lane_only;
	left->wqe.own_sge = w->sge == req->sges + at * req->max_sge;
	left->wqe.own_data = w->data == req->inlines + at * req->inline_stride;
	if (w->flags & IBV_SEND_INLINE)
		memcpy(left->data, w->data, w->length);
	else
		left->sge = *w->sge;
	left->queue.head = req->head - then->head;
	left->queue.tx = req->tx - then->head;
	left->queue.una = req->una - then->una;
	left->queue.freed = req->freed - then->freed;
	left->queue.owners = req->owners - then->head;
	left->queue.started = req->started - then->head;
	left->queue.msn = req->msn - then->msn;
	left->queue.acked = req->acked - then->acked;
	left->queue.known = req->known;
	left->queue.notify = req->notify;
	left->queue.restart = req->restart;
	left->queue.resp_dirty = req->resp_dirty;
	left->lane.slots = lane->pos - pos;
	for (uint64_t p = pos; p != lane->pos; p++) {
		const _Atomic uint32_t *tag = lane_out_slot(lane, p);

		ck_assert_uint_eq(*tag, lane_tag(p, lane->n));
		left->lane.chunks += lane->chunks[p & (lane->n - 1)] != -1;
	}
	left->lane.op = slot->op;
	left->lane.flags = slot->flags;
	left->lane.n = slot->slots;
	left->lane.imm = slot->flags & VSD_F_IMM ? slot->imm : 0;
	left->lane.msn = slot->msn - (uint32_t)then->msn;
	left->lane.len = slot->len;
	left->lane.total = slot->total;
	memcpy(left->lane.payload, slot->rw.data, slot->len < LANE_RW_BASE ? slot->len : LANE_RW_BASE);
	if (slot->len > LANE_RW_BASE)
		memcpy(left->lane.payload + LANE_RW_BASE, more->data, slot->len - LANE_RW_BASE);
}

/* The progress lock keeps everybody else out; the post takes the locks that it needs. */
static void post_and_look(bool quick, struct left *left)
{
	bool inside = rt_enter();
	struct requester then = a->priv->req;
	uint64_t pos = wire_of(a)->req_out.pos, posts = loop_counter(VSD_COUNT_POSTS);
	struct ibv_send_wr *bad;

	a->priv->plain = quick;
	if (quick) {
		soft_lock(&a->sq_lock);
		ck_assert(quick_post(a, &wr));
		soft_unlock(&a->sq_lock);
	} else {
		ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
		ck_assert_uint_eq(loop_counter(VSD_COUNT_POSTS), posts + 1);
	}
	look(swqe_at(&a->priv->req, then.head), &then, pos, left);
	a->priv->plain = true;
	rt_leave(inside);
}

static void completed(enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_wc wc = loop_wait(b_recv);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, length);
	ck_assert_int_eq(wc.wc_flags, opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0);
	ck_assert_uint_eq(wc.imm_data, opcode == IBV_WR_SEND_WITH_IMM ? 0x01020304 : 0);
	ck_assert_mem_eq(memory + 8192, memory + 3, length);
	memset(memory + 8192, 0, length);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
}

static void posted_as_ever(enum ibv_wr_opcode opcode, unsigned flags, uint32_t length)
{
	static struct left quick, general;

	build(opcode, flags, length);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(loop_recv(b, 4, local, memory + 8192, TWO), 0);
		post_and_look(i == 0, i == 0 ? &quick : &general);
		completed(opcode, length);
	}
	ck_assert_uint_eq(quick.wqe.state, SWQE_SENT);
	ck_assert_uint_eq(quick.lane.slots, length > LANE_RW_BASE ? 2 : 1);
	ck_assert_mem_eq(&quick.wqe, &general.wqe, sizeof(quick.wqe));
	ck_assert_mem_eq(&quick.sge, &general.sge, sizeof(quick.sge));
	ck_assert_mem_eq(quick.data, general.data, sizeof(quick.data));
	ck_assert_mem_eq(&quick.queue, &general.queue, sizeof(quick.queue));
	ck_assert_mem_eq(&quick.lane, &general.lane, sizeof(quick.lane));
}

START_TEST(a_short_post_is_whole)
{
	static const uint32_t lengths[] = { 1, 7, 8, 23, LANE_RW_BASE, LANE_RW_BASE + 1, LANE_RW_BASE + 8, TWO - 1, TWO };
	unsigned flags = (_i & 1 ? IBV_SEND_INLINE : 0) | (_i & 2 ? IBV_SEND_SOLICITED : 0) | (_i & 4 ? IBV_SEND_SIGNALED : 0);

	for (int i = 0; i < COUNT_OF(lengths); i++) {
		posted_as_ever(IBV_WR_SEND, flags, lengths[i]);
		posted_as_ever(IBV_WR_SEND_WITH_IMM, flags, lengths[i]);
	}
}
END_TEST

START_TEST(a_short_post_is_counted)
{
	uint64_t posts = loop_counter(VSD_COUNT_POSTS);

	ck_assert_int_eq(loop_recv(b, 4, local, memory + 4096, 8), 0);
	ck_assert_int_eq(loop_send(a, 3, IBV_WR_SEND, read_only, memory, 8, NULL, NULL), 0); /* to be read is enough */
	ck_assert_uint_eq(loop_counter(VSD_COUNT_POSTS), posts + 1);
	loop_expect(b_recv, 4, IBV_WC_SUCCESS);
	loop_expect(a_send, 3, IBV_WC_SUCCESS);
}
END_TEST

/* The peer is not ready: it is sent again, from what the ring has kept. */
START_TEST(a_refused_post_is_sent_again)
{
	uint8_t want[TWO];
	uint64_t refused = loop_counter(VSD_COUNT_RNR);

	build(IBV_WR_SEND_WITH_IMM, _i & 1 ? IBV_SEND_INLINE : 0, _i & 2 ? TWO : 9);
	memcpy(want, memory + 3, sizeof(want));
	soft_lock(&a->sq_lock);
	ck_assert(quick_post(a, &wr));
	soft_unlock(&a->sq_lock);
	sge[0] = (struct ibv_sge){ 0 };
	if (_i & 1)
		memset(memory + 3, 0xee, TWO);
	while (loop_counter(VSD_COUNT_RNR) < refused + 2) {
		struct ibv_wc wc;

		ck_assert_int_eq(soft_poll_cq(&a_send->v.cq, 1, &wc), 0);
	}
	ck_assert_int_eq(loop_recv(b, 4, local, memory + 8192, TWO), 0);
	loop_expect(b_recv, 4, IBV_WC_SUCCESS);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	ck_assert_mem_eq(memory + 8192, want, _i & 2 ? TWO : 9);
}
END_TEST

SPOIL(no_list, ck_assert(!quick_post(a, NULL)); wr.opcode = IBV_WR_RDMA_READ)
SPOIL(list_of_two, second = wr; wr.next = &second)
SPOIL(a_write, wr.opcode = IBV_WR_RDMA_WRITE)
SPOIL(a_write_with_imm, wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM)
SPOIL(a_read, wr.opcode = IBV_WR_RDMA_READ)
SPOIL(an_atomic, wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD)
SPOIL(that_invalidates, wr.opcode = IBV_WR_SEND_WITH_INV)
SPOIL(a_bind, wr.opcode = IBV_WR_BIND_MW)
SPOIL(no_opcode, wr.opcode = (enum ibv_wr_opcode)77)
SPOIL(of_no_piece, wr.num_sge = 0)
SPOIL(of_no_piece_at_all, wr.num_sge = 0; wr.sg_list = NULL)
SPOIL(of_two_pieces, wr.num_sge = 2)
SPOIL(of_negative, wr.num_sge = -1)
SPOIL(empty, sge[0].length = 0)
SPOIL(longer, sge[0].length = PULL_MIN)
SPOIL(longest, sge[0].length = UINT32_MAX)
SPOIL(fenced, wr.send_flags |= IBV_SEND_FENCE)
SPOIL(too_much_inline, wr.send_flags |= IBV_SEND_INLINE; req->max_inline = 7)
SPOIL(no_pieces_allowed, req->max_sge = 0)
SPOIL(queue_full, req->max = (uint32_t)(req->head - req->freed))
SPOIL(queue_full_unread, req->freed = req->head - req->max)
SPOIL(queued_before, req->head++)
SPOIL(lane_full, wire->req_out.pos = wire->theirs->req_taken + MAPPED_SLOTS)
SPOIL(lane_almost_full, sge[0].length = TWO; wire->req_out.pos = wire->theirs->req_taken + MAPPED_SLOTS - 1)
SPOIL(lane_beyond, wire->req_out.taken = wire->theirs->req_taken; wire->req_out.pos = wire->req_out.taken - 1)
SPOIL(waits_for_space, atomic_store(&wire->want, WIRE_WANT_REQ))
SPOIL(has_read_answers, req->resp_dirty = true)
SPOIL(has_not_told, req->notify = true)
SPOIL(other_has_not_acknowledged, atomic_store(&rt.owes, true); atomic_store(&rt.holder, NULL))
SPOIL(in_reset, atomic_store(&a->state, IBV_QPS_RESET))
SPOIL(in_init, atomic_store(&a->state, IBV_QPS_INIT))
SPOIL(in_rtr, atomic_store(&a->state, IBV_QPS_RTR))
SPOIL(in_sqd, atomic_store(&a->state, IBV_QPS_SQD))
SPOIL(in_sqe, atomic_store(&a->state, IBV_QPS_SQE))
SPOIL(in_error, atomic_store(&a->state, IBV_QPS_ERR))
SPOIL(no_such_key, sge[0].lkey = 0xabcdef00)
SPOIL(key_zero, sge[0].lkey = 0)
SPOIL(old_key, sge[0].lkey ^= 1)
SPOIL(behind_the_end, sge[0].addr += sizeof(memory))
SPOIL(over_the_end, sge[0].addr = (uintptr_t)memory + sizeof(memory) - 7)
SPOIL(before_it, sge[0].addr = (uintptr_t)memory - 1)
SPOIL(of_another_domain, local->pd = calloc(1, sizeof(struct soft_pd)); local->pd->base = local->pd)
SPOIL(paged, local->access |= IBV_ACCESS_ON_DEMAND)
SPOIL(null, local->null = true)
SPOIL(gone, ck_assert_int_eq(mr_close(local), 0))
SPOIL(progress_thread, atomic_store(&rt_progress_self, __builtin_thread_pointer()))
SPOIL(not_plain, a->priv->plain = false)
SPOIL(failed, a->priv->failure = QP_FAIL_RECV)
SPOIL(stopped, a->priv->stopped = true)
SPOIL(starts_again, req->restart = true)
SPOIL(not_ready, req->rnr_at = 1)
SPOIL(peer_away, req->retry_at = 1)
SPOIL(peer_lost, req->lost_at = 1)
SPOIL(has_a_timer, a->priv->timer_set = 1)
SPOIL(no_wire, atomic_store(&a->wire, NULL))
SPOIL(broken, wire->broken = true)
SPOIL(not_open, wire->peer_open = false)
SPOIL(closed, wire->peer_closed = true)
SPOIL(other_psn, wire->peer_rq_psn ^= 1)

#define ROW(name) { #name, name }

static const struct {
	const char *name;
	void (*spoil)(struct swqe *w);
} post_spoils[] = {
	ROW(no_list), ROW(list_of_two),
	ROW(a_write), ROW(a_write_with_imm), ROW(a_read), ROW(an_atomic), ROW(that_invalidates), ROW(a_bind), ROW(no_opcode),
	ROW(of_no_piece), ROW(of_no_piece_at_all), ROW(of_two_pieces), ROW(of_negative),
	ROW(empty), ROW(longer), ROW(longest), ROW(fenced), ROW(too_much_inline), ROW(no_pieces_allowed),
	ROW(queue_full), ROW(queue_full_unread), ROW(queued_before),
	ROW(lane_full), ROW(lane_almost_full), ROW(lane_beyond), ROW(waits_for_space),
	ROW(has_read_answers), ROW(has_not_told), ROW(other_has_not_acknowledged),
	ROW(in_reset), ROW(in_init), ROW(in_rtr), ROW(in_sqd), ROW(in_sqe), ROW(in_error),
	ROW(no_such_key), ROW(key_zero), ROW(old_key), ROW(behind_the_end), ROW(over_the_end), ROW(before_it),
	ROW(of_another_domain), ROW(paged), ROW(null), ROW(gone), ROW(progress_thread),
	ROW(not_plain), ROW(failed), ROW(stopped), ROW(starts_again),
	ROW(not_ready), ROW(peer_away), ROW(peer_lost), ROW(has_a_timer),
	ROW(no_wire), ROW(broken), ROW(not_open), ROW(closed), ROW(other_psn),
};

/* What a turn of the peer and the next post would find. */
struct seen {
	uint64_t head, tx, una, started, owners, msn, acked, pos, acked_here, taken_here;
	uint32_t tag, want;
	bool notify, known;
};

static void see(const struct wire *wire, struct seen *seen)
{
	const struct requester *req = &a->priv->req;
	const _Atomic uint32_t *tag = lane_out_slot(&wire->req_out, wire->req_out.pos);

	memset(seen, 0, sizeof(*seen));
	seen->head = req->head;
	seen->tx = req->tx;
	seen->una = req->una;
	seen->started = req->started;
	seen->owners = req->owners;
	seen->msn = req->msn;
	seen->acked = req->acked;
	seen->pos = wire->req_out.pos;
	seen->acked_here = wire->mine->acked;
	seen->taken_here = wire->mine->req_taken;
	seen->tag = *tag;
	seen->want = wire->mine->want_space;
	seen->notify = req->notify;
	seen->known = req->known;
}

START_TEST(a_post_leaves_what_is_not_common)
{
	struct seen before, after;
	struct wire *wire;

	ck_assert_int_eq(loop_recv(b, 4, local, memory + 4096, 8), 0);
	build(IBV_WR_SEND, 0, 8);
	kept_hold();
	wire = wire_of(a);
	ck_assert_msg(quick_post(a, &wr), "%s: not even without", post_spoils[_i].name);
	kept_save();
	post_spoils[_i].spoil(NULL);
	see(wire, &before);
	ck_assert_msg(!quick_post(a, &wr), "%s: taken", post_spoils[_i].name);
	see(wire, &after);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	atomic_store(&a->wire, wire);
	kept_put_right();
	kept_let_go();
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	loop_expect(b_recv, 4, IBV_WC_SUCCESS);
}
END_TEST

/* --- a turn --------------------------------------------------------------------------------------------------------------- */

/* Its locks are free; the caller has the progress lock. */
static bool turn(struct soft_qp *qp, bool *did)
{
	bool whole;

	*did = false;
	soft_lock(&qp->sq_lock);
	soft_lock(&qp->rq_lock);
	whole = quick_turn(qp, wire_of(qp), did);
	soft_unlock(&qp->rq_lock);
	soft_unlock(&qp->sq_lock);
	return whole;
}

static void sent(struct soft_qp *qp, uint64_t wr_id, unsigned n, uint32_t length)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(loop_send(qp, wr_id + i, IBV_WR_SEND, local, memory, length, NULL, NULL), 0);
}

static void receives(struct soft_qp *qp, uint64_t wr_id, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(loop_recv(qp, wr_id + i, local, memory + 8192, PULL_MIN), 0);
}

static void all_done(uint64_t first_sent, uint64_t first_received, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		loop_expect(b_recv, first_received + i, IBV_WC_SUCCESS);
		loop_expect(a_send, first_sent + i, IBV_WC_SUCCESS);
	}
}

static unsigned wish(const struct wire *wire)
{
	unsigned want = atomic_load(&wire->want);

	ck_assert_uint_eq(atomic_load(&wire->mine->want_space), want);
	return want;
}

START_TEST(what_waits_for_room_goes_on_within_the_turn)
{
	struct requester *req = &a->priv->req;
	bool inside, did;
	uint64_t tx;

	receives(b, 100, 50);
	inside = rt_enter();
	sent(a, 10, 50, 8);
	ck_assert_uint_eq(req->head - req->tx, 50 - MAPPED_SLOTS);
	ck_assert_uint_eq(wish(wire_of(a)), WIRE_WANT_REQ);
	tx = req->tx;
	ck_assert(turn(a, &did)); /* the peer will tell */
	ck_assert(!did);
	ck_assert_uint_eq(req->tx, tx);
	for (unsigned i = 0; req->tx != req->head; i++) {
		ck_assert_uint_lt(i, 5);
		ck_assert_uint_eq(wish(wire_of(a)), WIRE_WANT_REQ);
		ck_assert(turn(b, &did));
		ck_assert(did);
		ck_assert(turn(a, &did));
		ck_assert_uint_ge(req->tx, tx + (req->tx == req->head ? 1 : MAPPED_SLOTS - 1));
		tx = req->tx;
	}
	ck_assert_uint_eq(wish(wire_of(a)), 0);
	rt_leave(inside);
	all_done(10, 100, 50);
}
END_TEST

/* A peer that says it took more than it was sent breaks the wire: that does not wait to be told of room. */
START_TEST(who_waits_for_a_peer_that_lies_is_left_to_others)
{
	struct vsd_half *theirs = (struct vsd_half *)(uintptr_t)wire_of(a)->theirs;
	bool inside = rt_enter(), did;

	sent(a, 10, MAPPED_SLOTS + 1, 8);
	ck_assert_uint_eq(wish(wire_of(a)), WIRE_WANT_REQ);
	atomic_fetch_add(&theirs->req_taken, MAPPED_SLOTS + 1);
	ck_assert(!turn(a, &did));
	ck_assert(wire_of(a)->broken);
	rt_leave(inside);
	loop_expect(a_send, 10, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

/* It is the first one that counts, and others may stand behind it. */
START_TEST(what_waits_and_is_long_is_left_to_others)
{
	struct requester *req = &a->priv->req;
	bool inside, did;
	uint64_t tx;

	receives(b, 100, MAPPED_SLOTS + 3);
	inside = rt_enter();
	sent(a, 10, MAPPED_SLOTS, 8);
	sent(a, 10 + MAPPED_SLOTS, 1, _i ? PULL_MIN : TWO);
	sent(a, 11 + MAPPED_SLOTS, 2, 8);
	tx = req->tx;
	ck_assert_uint_eq(req->head - tx, 3);
	ck_assert(turn(b, &did));
	ck_assert(turn(a, &did) == !_i);
	ck_assert_uint_eq(req->tx, _i ? tx : req->head);
	rt_leave(inside);
	all_done(10, 100, MAPPED_SLOTS + 3);
}
END_TEST

/* A READ that waited for room was run by an engine, say: what the peer takes must not be news for ever. */
START_TEST(a_wish_that_nothing_waits_for_ends)
{
	bool inside = rt_enter(), did;

	receives(b, 100, 1);
	sent(a, 10, 1, 8);
	wire_want_space(wire_of(a), WIRE_WANT_REQ);
	ck_assert(turn(b, &did));
	ck_assert(wire_space_pending(wire_of(a)));
	ck_assert(turn(a, &did));
	ck_assert(!wire_space_pending(wire_of(a)));
	ck_assert_uint_eq(wish(wire_of(a)), 0);
	rt_leave(inside);
	all_done(10, 100, 1);
}
END_TEST

/* The WR may be the answer to a message that another thread has completed and not acknowledged (order.h). */
START_TEST(what_waits_waits_for_acknowledgements_of_others)
{
	struct requester *req = &a->priv->req;
	void *self = __builtin_thread_pointer();
	bool inside, did;
	uint64_t tx;

	receives(b, 100, MAPPED_SLOTS + 2);
	inside = rt_enter();
	sent(a, 10, MAPPED_SLOTS + 2, 8);
	ck_assert(turn(b, &did));
	tx = req->tx;
	atomic_store(&rt.owes, true);
	atomic_store(&rt.holder, NULL);
	ck_assert(!turn(a, &did));
	ck_assert_uint_eq(req->tx, tx);
	atomic_store(&rt.holder, self);
	atomic_store(&rt.owes, false);
	ck_assert(turn(a, &did));
	ck_assert_uint_eq(req->tx, req->head);
	rt_leave(inside);
	all_done(10, 100, MAPPED_SLOTS + 2);
}
END_TEST

/* Another pair, c to d, on the same queues. */
static struct soft_qp *c, *d;

static void other_pair(uint32_t slots, bool rts)
{
	struct loop_options options = LOOP_OPTIONS;

	options.send_wr = options.recv_wr = 128;
	options.send_cq = a_send;
	options.recv_cq = b_recv;
	c = loop_qp(&loop, &options);
	d = loop_qp(&loop, &options);
	loop_rtr(c, d->v.qp.qp_num, &options);
	loop_rtr(d, c->v.qp.qp_num, &options);
	loop_wire(&loop, c, d, slots);
	loop_rts(c, &options);
	if (rts)
		loop_rts(d, &options);
}

static void other_free(void)
{
	loop_qp_free(c);
	loop_qp_free(d);
}

START_TEST(in_rtr_it_serves_once_established)
{
	bool inside, did;

	other_pair(MAPPED_SLOTS, false);
	receives(d, 100, 2);
	inside = rt_enter();
	sent(c, 10, 1, 8);
	ck_assert(!turn(d, &did));
	ck_assert(!did);
	ck_assert_uint_eq(d->priv->resp.msn, 0);
	rt_leave(inside);
	all_done(10, 100, 1);
	loop_event(&loop, IBV_EVENT_COMM_EST);
	inside = rt_enter();
	sent(c, 11, 1, 8);
	ck_assert(turn(d, &did));
	ck_assert(did);
	ck_assert_uint_eq(d->priv->resp.msn, 2);
	ck_assert_int_eq(atomic_load(&d->state), IBV_QPS_RTR);
	rt_leave(inside);
	all_done(11, 101, 1);
	other_free();
}
END_TEST

START_TEST(a_turn_has_an_end)
{
	bool inside, did;

	other_pair(256, true);
	receives(d, 100, QP_TURN_WRS + 20);
	inside = rt_enter();
	sent(c, 10, QP_TURN_WRS + 20, 8);
	ck_assert(!atomic_load(&d->run_queued));
	ck_assert(turn(d, &did));
	ck_assert(did);
	ck_assert_uint_eq(d->priv->resp.msn, QP_TURN_WRS);
	ck_assert_uint_eq(atomic_load(&wire_of(c)->theirs->acked), QP_TURN_WRS); /* those are said to be done */
	ck_assert(atomic_load(&d->run_queued));
	ck_assert(turn(d, &did));
	ck_assert_uint_eq(atomic_load(&wire_of(c)->theirs->acked), QP_TURN_WRS + 20);
	rt_leave(inside);
	all_done(10, 100, QP_TURN_WRS + 20);
	other_free();
}
END_TEST

/* --- the same as the state machines --------------------------------------------------------------------------------------- */

#define BATCHES 60u
#define BATCH	40u  /* WRs at most: more than the lane has slots */
#define PLACE	256u /* where one message is received */

static struct outcome {
	uint8_t received[BATCHES][BATCH * PLACE];
	struct ibv_wc sent_wc[BATCHES * BATCH], received_wc[BATCHES * BATCH];
	unsigned n_sent, n_received;
	uint64_t counts[6];
} outcome[2];

/* One of both runs, which see the same numbers. */
static unsigned seed;
static struct soft_srq *srq;
static uint8_t *const area = memory + (32u << 10);

static unsigned number(unsigned below)
{
	return (unsigned)rand_r(&seed) % below;
}

static void count(struct outcome *o)
{
	static const enum vsd_counter counters[] = { VSD_COUNT_POSTS,	   VSD_COUNT_RECVS,	     VSD_COUNT_COMPLETIONS,
						     VSD_COUNT_BYTES_SENT, VSD_COUNT_BYTES_RECEIVED, VSD_COUNT_RNR };
	bool inside = rt_enter(); /* turns end with it */

	for (int i = 0; i < COUNT_OF(counters); i++)
		o->counts[i] = loop_counter(counters[i]) - o->counts[i];
	rt_leave(inside);
}

static void receive(unsigned i, uint32_t length)
{
	uint8_t *at = area + (size_t)i * PLACE + number(16);
	uint32_t first = length && number(4) == 0 ? number(length) : length + number(64);
	struct ibv_sge pieces[] = { { (uintptr_t)at, first, local->key }, { (uintptr_t)at + first, length, local->key } };
	struct ibv_recv_wr *bad, recv = { .wr_id = 1000 + i, .sg_list = pieces, .num_sge = first < length ? 2 : 1 };

	if (srq)
		ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &recv, &bad), 0);
	else
		ck_assert_int_eq(soft_post_recv(&d->v.qp, &recv, &bad), 0);
}

static struct batch {
	struct ibv_send_wr wrs[BATCH];
	struct ibv_sge sges[BATCH];
	unsigned n, signalled;
} batch;

static void make_batch(void)
{
	static const uint32_t bounds[] = { 9, LANE_RW_BASE + 2, TWO + 1, TWO + 41 };

	batch.n = 1 + number(number(3) ? 4 : BATCH);
	batch.signalled = 0;
	for (unsigned i = 0; i < batch.n; i++) {
		uint32_t length = number(bounds[number(4)]);
		unsigned flags = (number(3) == 0 ? IBV_SEND_INLINE : 0) | (number(4) == 0 ? IBV_SEND_SOLICITED : 0) |
				 (number(16) == 0 ? IBV_SEND_FENCE : 0) |
				 (i + 1 == batch.n || number(2) ? IBV_SEND_SIGNALED : 0);

		batch.sges[i] = (struct ibv_sge){ (uintptr_t)memory + number(16u << 10), length, local->key };
		batch.wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.sg_list = &batch.sges[i],
			.num_sge = 1,
			.opcode = number(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM,
			.send_flags = flags,
			.imm_data = number(1000),
			.next = i + 1 < batch.n ? &batch.wrs[i + 1] : NULL,
		};
		batch.signalled += (flags & IBV_SEND_SIGNALED) != 0;
		receive(i, length);
	}
}

static void post_by_builders(void)
{
	struct ibv_qp_ex *qpx = &c->v.qp_ex;

	ibv_wr_start(qpx);
	for (unsigned i = 0; i < batch.n; i++) {
		const struct ibv_send_wr *from = &batch.wrs[i];

		qpx->wr_id = from->wr_id;
		qpx->wr_flags = from->send_flags & ~(unsigned)IBV_SEND_INLINE;
		if (from->opcode == IBV_WR_SEND)
			ibv_wr_send(qpx);
		else
			ibv_wr_send_imm(qpx, from->imm_data);
		if (from->send_flags & IBV_SEND_INLINE)
			ibv_wr_set_inline_data(qpx, (void *)(uintptr_t)from->sg_list->addr, from->sg_list->length);
		else
			ibv_wr_set_sge(qpx, from->sg_list->lkey, from->sg_list->addr, from->sg_list->length);
	}
	ck_assert_int_eq(ibv_wr_complete(qpx), 0);
}

static void post_batch(void)
{
	struct ibv_send_wr *bad;

	switch (number(3)) {
	case 0:
		ck_assert_int_eq(soft_post_send(&c->v.qp, batch.wrs, &bad), 0);
		break;
	case 1:
		for (unsigned i = 0; i < batch.n; i++) {
			batch.wrs[i].next = NULL;
			ck_assert_int_eq(soft_post_send(&c->v.qp, &batch.wrs[i], &bad), 0);
		}
		break;
	default:
		post_by_builders();
	}
}

/* Up to @n in all, by arrays of what comes first. */
static void polled(struct soft_cq *cq, struct ibv_wc *wc, unsigned *have, unsigned n)
{
	unsigned max = 1 + (n - *have) % 5;
	int got;

	if (*have == n)
		return;
	got = soft_poll_cq(&cq->v.cq, (int)(max < n - *have ? max : n - *have), wc + *have);
	ck_assert_int_ge(got, 0);
	*have += (unsigned)got;
	if (!got)
		sched_yield();
}

static void run_batch(struct outcome *o, unsigned i)
{
	unsigned sent_then, received_then;

	memset(area, 0, sizeof(o->received[i]));
	make_batch();
	sent_then = o->n_sent + batch.signalled;
	received_then = o->n_received + batch.n;
	post_batch();
	while (o->n_sent < sent_then || o->n_received < received_then) {
		polled(b_recv, o->received_wc, &o->n_received, received_then);
		polled(a_send, o->sent_wc, &o->n_sent, sent_then);
	}
	memcpy(o->received[i], area, sizeof(o->received[i]));
}

static void run_all(unsigned first, bool quick, struct outcome *o)
{
	bool inside = rt_enter();

	seed = first;
	soft_lock(&c->sq_lock);
	soft_lock(&d->sq_lock);
	c->priv->plain = d->priv->plain = quick;
	soft_unlock(&d->sq_lock);
	soft_unlock(&c->sq_lock);
	rt_leave(inside);
	count(o);
	for (unsigned i = 0; i < BATCHES; i++)
		run_batch(o, i);
	count(o);
}

static void same_wc(const struct ibv_wc *one, const struct ibv_wc *two, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_mem_eq(&one[i], &two[i], offsetof(struct ibv_wc, dlid_path_bits) + sizeof(one->dlid_path_bits));
}

static void pair_for(bool shared)
{
	struct loop_options options = LOOP_OPTIONS;

	srq = shared ? loop_srq(&loop, 64, 2) : NULL;
	options.signal_all = false;
	options.send_cq = a_send;
	options.recv_cq = b_recv;
	c = loop_qp(&loop, &options);
	options.srq = srq;
	d = loop_qp(&loop, &options);
	ck_assert_int_eq(soft_qp_fill_ex(c, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM), 0);
	loop_connect(&loop, c, d, MAPPED_SLOTS, &options);
}

START_TEST(it_comes_to_the_same)
{
	pair_for(_i & 1);
	run_all((unsigned)_i, true, &outcome[0]);
	run_all((unsigned)_i, false, &outcome[1]);
	ck_assert_uint_eq(outcome[0].n_sent, outcome[1].n_sent);
	ck_assert_uint_eq(outcome[0].n_received, outcome[1].n_received);
	same_wc(outcome[0].sent_wc, outcome[1].sent_wc, outcome[0].n_sent);
	same_wc(outcome[0].received_wc, outcome[1].received_wc, outcome[0].n_received);
	ck_assert(memcmp(outcome[0].received, outcome[1].received, sizeof(outcome[0].received)) == 0);
	ck_assert_mem_eq(outcome[0].counts, outcome[1].counts, sizeof(outcome[0].counts));
	ck_assert_uint_eq(outcome[0].counts[0], outcome[0].n_received);
	ck_assert_uint_eq(outcome[0].counts[5], 0);
	other_free();
	if (srq)
		loop_srq_free(srq);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quick-send");
	TCase *t = harness_tcase(suite, "posts");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_short_post_is_whole, 0, 8);
	tcase_add_test(t, a_short_post_is_counted);
	tcase_add_loop_test(t, a_refused_post_is_sent_again, 0, 4);
	tcase_add_loop_test(t, a_post_leaves_what_is_not_common, 0, COUNT_OF(post_spoils));
	t = harness_tcase(suite, "turns");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_waits_for_room_goes_on_within_the_turn);
	tcase_add_test(t, who_waits_for_a_peer_that_lies_is_left_to_others);
	tcase_add_loop_test(t, what_waits_and_is_long_is_left_to_others, 0, 2);
	tcase_add_test(t, a_wish_that_nothing_waits_for_ends);
	tcase_add_test(t, what_waits_waits_for_acknowledgements_of_others);
	tcase_add_test(t, in_rtr_it_serves_once_established);
	tcase_add_test(t, a_turn_has_an_end);
	t = harness_tcase(suite, "streams");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, it_comes_to_the_same, 0, 8);
	return harness_run(suite);
}
