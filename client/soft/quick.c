/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case of a turn and of a post. It does what qp_turn() and qp_posted() do there, by the same rules and to the same
 * state, without asking for what cannot be: so it may stop after any message, and they go on.
 */
#include "client/soft/quick.h"

#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/in_piece.h"
#include "client/soft/lane.h"
#include "client/soft/mr_private.h"

#define OWN_AHEAD 8u /* slots in front of the one that is written */

/* Slots of a message of @n bytes that goes in one descriptor; a longer one has one, and a chunk. */
static inline unsigned slots_of(uint32_t n)
{
	if (n <= LANE_RW_BASE + LANE_MORE)
		return 1 + (n > LANE_RW_BASE);
	return n > VSD_INLINE_RW ? 1 : 1 + (unsigned)((n - LANE_RW_BASE + LANE_MORE - 1) / LANE_MORE);
}

/* The lane is full, and the peer will tell. */
static bool is_awaited(const struct wire *wire)
{
	return atomic_load_explicit(&wire->want, memory_order_relaxed) & WIRE_WANT_REQ;
}

/* --- a turn ------------------------------------------------------------------------------------------------------------ */

/* Those of a message of three and more. */
static __attribute__((noinline)) bool has_slots(const struct lane_in *lane, const struct vsd_req *head)
{
	if (head->len > VSD_INLINE_RW || head->slots != slots_of(head->len) || head->slots > lane->n)
		return false;
	for (unsigned i = 1; i < head->slots; i++)
		if (!lane_in_valid(lane, lane->pos + i))
			return false;
	return true;
}

/* A SEND whole, in one descriptor, and the one that is due. */
static bool is_whole_send(const struct soft_qp *qp, const struct wire *wire, const struct vsd_req *head)
{
	const uint8_t whole = VSD_F_FIRST | VSD_F_LAST, may = VSD_F_SOLICITED | VSD_F_IMM | VSD_F_CHUNK;

	if (head->op != VSD_REQ_SEND || (head->flags & (uint8_t)~may) != whole || head->len != head->total ||
	    head->msn != (uint32_t)qp->priv->resp.msn)
		return false;
	if (head->flags & VSD_F_CHUNK)
		return head->slots == 1 && head->len && head->len <= VSD_CHUNK;
	if (head->len > LANE_RW_BASE + LANE_MORE)
		return has_slots(&wire->req_in, head);
	return head->slots == 1 + (head->len > LANE_RW_BASE) &&
	       (head->slots == 1 || lane_in_valid(&wire->req_in, wire->req_in.pos + 1));
}

/* The oldest receive, if it is one piece with room for @len; of an SRQ it is taken. */
static const struct soft_rwqe *receive_for(struct soft_qp *qp, uint32_t len)
{
	struct responder *resp = &qp->priv->resp;
	const struct soft_rwqe *recv = &resp->recv;

	if (qp->srq) {
		if (!responder_take(qp))
			return NULL;
	} else {
		if (resp->has_recv || resp->rq.head == resp->rq.tail)
			return NULL;
		recv = &resp->rq.ring[resp->rq.tail & resp->rq.mask];
	}
	return recv->n_sge == 1 && recv->sge->length >= len ? recv : NULL;
}

/* From two slots or more. The aligned eight that end the message may begin in the one before the last, and are one store. */
static __attribute__((noinline)) void place_joined(const struct lane_in *lane, uint8_t *to, uint32_t n)
{
	const struct vsd_req *slot = lane_in_slot(lane, lane->pos);
	uint8_t whole[LANE_RW_BASE + (VSD_SPAN_MAX - 1) * LANE_MORE];

	memcpy(whole, slot->rw.data, LANE_RW_BASE);
	for (unsigned i = 1; i < slots_of(n); i++) {
		const struct vsd_req_more *more = lane_in_slot(lane, lane->pos + i);

		memcpy(whole + LANE_RW_BASE + (i - 1) * LANE_MORE, more->data, LANE_MORE);
	}
	copy_ordered(to, whole, n);
}

static void place_slots(const struct lane_in *lane, uint8_t *to, uint32_t n)
{
	const struct vsd_req *slot = lane_in_slot(lane, lane->pos);
	const struct vsd_req_more *more = lane_in_slot(lane, lane->pos + 1);

	if (n < LANE_RW_BASE + 8 || n > LANE_RW_BASE + LANE_MORE) {
		place_joined(lane, to, n);
		return;
	}
	copy_few(to, slot->rw.data, LANE_RW_BASE);
	copy_ordered(to + LANE_RW_BASE, more->data, n - LANE_RW_BASE);
}

/* The number of the chunk is read here, once. False: there is no such chunk. */
static __attribute__((noinline)) bool place_chunk(const struct wire *wire, uint8_t *to, uint32_t n)
{
	const struct vsd_req *slot = lane_in_slot(&wire->req_in, wire->req_in.pos);
	uint32_t chunk = __atomic_load_n(&slot->rw.chunk, __ATOMIC_RELAXED);

	if (chunk >= VSD_POOL_CHUNKS)
		return false;
	copy_ordered(to, wire->pair->mem->pools[wire->far].req.chunks[chunk], n);
	return true;
}

/* What stands in slots or chunk goes where the program wants it: the peer may change it meanwhile, but no other's bytes. */
static bool place(struct soft_qp *qp, const struct wire *wire, const struct vsd_req *head, const struct ibv_sge *sge)
{
	const struct vsd_req *slot = lane_in_slot(&wire->req_in, wire->req_in.pos);
	struct mr_hold hold;
	bool placed = true;
	uint8_t *to;

	if (!head->len)
		return true;
	to = mr_hold(qp_td(qp), qp->srq ? qp->srq->pd : qp->pd, sge->lkey, sge->addr, head->len, IBV_ACCESS_LOCAL_WRITE, &hold);
	if (!to)
		return false;
	if (head->flags & VSD_F_CHUNK)
		placed = place_chunk(wire, to, head->len);
	else if (head->slots == 1)
		copy_word(to, slot->rw.data, head->len);
	else
		place_slots(&wire->req_in, to, head->len);
	mr_let_go(&hold);
	return placed;
}

static bool complete(struct soft_qp *qp, const struct vsd_req *head, uint64_t wr_id)
{
	struct soft_cq_place at;

	if (!qp->recv_cq)
		return true;
	if (!soft_cq_begin(qp->recv_cq, &at))
		return false;
	soft_wc_fill(at.wc, wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, head->len, qp->v.qp.qp_num);
	if (head->flags & VSD_F_IMM) {
		at.wc->imm_data = head->imm;
		at.wc->wc_flags = IBV_WC_WITH_IMM;
	}
	soft_cq_end(qp->recv_cq, &at, qp, head->flags & VSD_F_SOLICITED, NULL, 0);
	return true;
}

static bool serve_send(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;
	const struct soft_rwqe *recv;
	struct vsd_req head;

	memcpy(&head, lane_in_slot(&wire->req_in, wire->req_in.pos), offsetof(struct vsd_req, rw));
	if (!is_whole_send(qp, wire, &head))
		return false;
	recv = receive_for(qp, head.len);
	if (!recv || !place(qp, wire, &head, recv->sge))
		return false;
	resp->rq.tail += !qp->srq;
	resp->has_recv = false;
	qp_count(qp, VSD_COUNT_BYTES_RECEIVED, head.len);
	if (!complete(qp, &head, recv->wr_id))
		qp_fail(qp, QP_FAIL_CQ, IBV_EVENT_QP_FATAL);
	resp->msn++;
	resp->done++;
	resp->notify = resp->dirty = true;
	lane_in_move(&wire->req_in, wire->req_in.pos + head.slots);
	return true;
}

/* In RTR nothing is sent; the first message that comes then is an event. */
static bool can_turn(const struct soft_qp *qp, const struct wire *wire)
{
	const struct responder *resp = &qp->priv->resp;
	bool busy = resp->open | resp->rnr | resp->rnr_owed | resp->nak_owed | resp->stream.active;

	return (qp_state(qp) == IBV_QPS_RTR ? resp->comm_est && quick_is_calm(qp, wire) : quick_is_smooth(qp, wire)) &&
	       !(wire->resp_out.held | busy) &&
	       !(atomic_load_explicit(&wire->want, memory_order_relaxed) & WIRE_WANT_RESP) && !rt_in_progress_thread() &&
	       !(qp->srq && qp->srq->tags);
}

/* As qp_publish() where all there may be is messages that were served. */
static void publish(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;
	const struct requester *req = &qp->priv->req;

	if (req->notify | req->resp_dirty) {
		qp_publish(qp);
		return;
	}
	if (!resp->dirty)
		return;
	resp->dirty = resp->notify = false;
	wire_ack(wire, resp->done);
	wire_notify_ack(wire);
}

/*
 * What waits for room in the lane goes on, and what was done is said. A wish for room that nothing waits for (an engine ran
 * the READ that did) ends, too: else whatever the peer takes is something to look at for ever.
 */
static bool end_turn(struct soft_qp *qp, struct wire *wire)
{
	const struct requester *req = &qp->priv->req;
	bool waits = req->tx != req->head || is_awaited(wire);

	/* Another QP may wait for a chunk of ours. The line is the one that acknowledgements are in. */
	if (wire->req_out.held && wire_req_space(wire) < 0)
		return false;
	if (waits && (rt_owes() || !quick_push(qp, wire)))
		return false;
	publish(qp, wire);
	return true;
}

/*
 * What the next steps wait for is asked for now: the second slot of the message that was found, the line of the acknowledgement,
 * which the peer looks at all the time, and in a stream the next message. One that is not written yet would only be taken from
 * the peer.
 */
static void look_ahead(const struct wire *wire, unsigned n)
{
	const struct lane_in *lane = &wire->req_in;
	const struct vsd_req *found = lane_in_slot(lane, lane->pos);
	unsigned slots = found->slots;

	if (slots > 1)
		__builtin_prefetch(lane_in_slot(lane, lane->pos + 1));
	if (n == 0)
		line_own(wire->mine);
	else
		__builtin_prefetch(lane_in_slot(lane, lane->pos + slots));
}

bool quick_turn(struct soft_qp *qp, struct wire *wire, bool *did)
{
	if (!can_turn(qp, wire))
		return false;
	for (unsigned n = 0; n < QP_TURN_WRS; n++) {
		bool found = lane_in_next(&wire->req_in);

		/* What was acknowledged before the message was sent is completed before it. */
		if (atomic_load_explicit(&wire->theirs->acked, memory_order_acquire) != qp->priv->req.acked) {
			if (requester_acks(qp, wire) < 0)
				return false; /* and will again */
			*did = true;
		}
		if (lane_in_next(&wire->resp_in) || qp->priv->failure != QP_FINE)
			return false;
		if (!found || !order_is_kept(wire))
			return end_turn(qp, wire);
		look_ahead(wire, n);
		if (!serve_send(qp, wire))
			return false;
		*did = true;
		if (qp->priv->failure != QP_FINE)
			return false;
	}
	qp_again(qp);
	return end_turn(qp, wire);
}

/* --- a post ------------------------------------------------------------------------------------------------------------- */

/* How many slots the descriptor of a message takes; 0: it is none, or not in one. */
IN_PIECE unsigned slots_for(const struct wire *wire, uint32_t n)
{
	unsigned slots = slots_of(n);

	return n < PULL_MIN && slots <= wire->req_out.n && (n <= VSD_INLINE_RW || !pull_is_forced()) ? slots : 0;
}

static unsigned slots_of_wr(const struct wire *wire, const struct swqe *w)
{
	if (w->state != SWQE_QUEUED || (w->opcode != IBV_WR_SEND && w->opcode != IBV_WR_SEND_WITH_IMM) ||
	    w->flags & IBV_SEND_FENCE || w->internal)
		return 0;
	return slots_for(wire, w->length);
}

IN_PIECE void put_more(struct lane_out *lane, uint64_t pos, const uint8_t *from, uint32_t n)
{
	struct vsd_req_more *more = lane_out_slot(lane, pos);

	copy_few(more->data, from, n);
	atomic_store_explicit(&more->tag, lane_tag(pos, lane->n), memory_order_relaxed);
	lane->chunks[pos & (lane->n - 1)] = -1;
}

/* What the first of several slots have no room for, of a message of three and more. */
static __attribute__((noinline)) void put_rest(struct lane_out *lane, const uint8_t *from, uint32_t n)
{
	uint64_t pos = lane->pos + 1;

	for (; n > LANE_MORE; pos++) {
		put_more(lane, pos, from, LANE_MORE);
		from += LANE_MORE;
		n -= (uint32_t)LANE_MORE;
	}
	put_more(lane, pos, from, n);
}

/* The payload goes into slots of ours that the peer has taken before: what stands behind a short one it has seen. */
IN_PIECE void put_payload(struct lane_out *lane, const uint8_t *from, uint32_t n)
{
	struct vsd_req *slot = lane_out_slot(lane, lane->pos);

	if (n <= LANE_RW_BASE) {
		copy_few(slot->rw.data, from, n);
		return;
	}
	copy_few(slot->rw.data, from, LANE_RW_BASE);
	if (n <= LANE_RW_BASE + LANE_MORE)
		put_more(lane, lane->pos + 1, from + LANE_RW_BASE, n - (uint32_t)LANE_RW_BASE);
	else
		put_rest(lane, from + LANE_RW_BASE, n - (uint32_t)LANE_RW_BASE);
}

static __attribute__((noinline)) void put_chunk(struct wire *wire, const uint8_t *from, uint32_t n, int chunk)
{
	copy_plain(pair_chunk(wire->pair, POOL_REQ, chunk), from, n);
}

/* @chunk: where a payload goes that is too long for slots. */
IN_PIECE void put_where(struct wire *wire, const uint8_t *from, uint32_t n, int chunk)
{
	if (__builtin_expect(chunk < 0, 1))
		put_payload(&wire->req_out, from, n);
	else
		put_chunk(wire, from, n, chunk);
}

IN_PIECE bool gather(struct soft_qp *qp, const struct swqe *w, struct wire *wire, int chunk)
{
	struct mr_hold hold;
	const uint8_t *from;

	if (w->flags & IBV_SEND_INLINE || !w->length) {
		put_where(wire, w->data, w->length, chunk);
		return true;
	}
	if (w->n_sge != 1 || rt_in_progress_thread())
		return false;
	from = mr_hold(qp_td(qp), qp->pd, w->sge->lkey, w->sge->addr, w->length, 0, &hold);
	if (!from)
		return false;
	put_where(wire, from, w->length, chunk);
	mr_let_go(&hold);
	return true;
}

IN_PIECE void put(struct lane_out *lane, const struct swqe *w, uint64_t msn, unsigned slots, int chunk)
{
	struct vsd_req *slot = lane_out_slot(lane, lane->pos);
	bool has_imm = w->opcode == IBV_WR_SEND_WITH_IMM;

	slot->op = VSD_REQ_SEND;
	slot->flags = VSD_F_FIRST | VSD_F_LAST | (w->flags & IBV_SEND_SOLICITED ? VSD_F_SOLICITED : 0) |
		      (has_imm ? VSD_F_IMM : 0) | (chunk < 0 ? 0 : VSD_F_CHUNK);
	slot->imm = has_imm ? w->imm : 0;
	slot->slots = (uint8_t)slots;
	slot->msn = (uint32_t)msn;
	slot->len = slot->total = w->length;
	lane->chunks[lane->pos & (lane->n - 1)] = (int16_t)chunk;
	if (chunk >= 0) {
		slot->rw.chunk = (uint32_t)chunk;
		lane->held++;
	}
	atomic_store_explicit(&slot->tag, lane_tag(lane->pos, lane->n), memory_order_release);
	lane_pos_set(&lane->pos, lane->pos + slots);
}

/*
 * Room for a message of @slots; the peer's line is looked at when half of it is used up. Chunks that it gave back meanwhile
 * are for the next turn to find, unless there is none left.
 */
static bool has_room(struct wire *wire, unsigned slots)
{
	const struct lane_out *lane = &wire->req_out;

	return (lane->pos - lane->taken <= lane->n / 2 && lane->n >= 16) || wire_req_space(wire) >= (int)slots;
}

/* The slots of messages to come, which the peer has read; not those that it may still read. */
static void own_ahead(const struct lane_out *lane, unsigned slots)
{
	if (lane->pos + OWN_AHEAD + slots - lane->taken > lane->n)
		return;
	for (unsigned i = 0; i < slots; i++)
		line_own(lane_out_slot(lane, lane->pos + OWN_AHEAD + i));
}

static bool can_push(const struct soft_qp *qp, const struct wire *wire)
{
	return quick_is_smooth(qp, wire) && !qp->priv->req.restart;
}

/* The WR at tx is in the lane. */
IN_PIECE void pushed(struct requester *req, struct wire *wire, struct swqe *w, unsigned slots, int chunk)
{
	put(&wire->req_out, w, req->msn, slots, chunk);
	own_ahead(&wire->req_out, slots);
	w->msn = req->msn++;
	w->off = w->length;
	w->state = SWQE_SENT;
	req->known = true;
	req->owners = ++req->tx;
	if (req->started < req->tx)
		req->started = req->tx;
}

enum { CHUNK_NONE = -1, CHUNK_OUT = -2 };

/* CHUNK_OUT: there is none, and @waiter, unless NULL, goes on when there is, or the wire is broken. */
static __attribute__((noinline)) int take_chunk(struct wire *wire, struct soft_qp *waiter)
{
	int chunk;

	if (pool_is_out(wire->pair, POOL_REQ) && wire->req_out.held && wire_req_space(wire) < 0)
		return CHUNK_OUT;
	if (!waiter && pool_is_out(wire->pair, POOL_REQ))
		return CHUNK_OUT;
	chunk = pair_chunk_get(wire->pair, POOL_REQ, waiter);
	return chunk >= 0 ? chunk : CHUNK_OUT;
}

/* The same for a message of @n bytes, which may need none. */
static inline int chunk_for(struct wire *wire, uint32_t n, struct soft_qp *waiter)
{
	return n <= VSD_INLINE_RW ? CHUNK_NONE : take_chunk(wire, waiter);
}

IN_PIECE bool push_one(struct soft_qp *qp, struct wire *wire, struct swqe *w, unsigned slots, int chunk)
{
	if (!gather(qp, w, wire, chunk)) {
		if (chunk >= 0)
			pair_chunk_put(wire->pair, POOL_REQ, chunk);
		return false;
	}
	pushed(&qp->priv->req, wire, w, slots, chunk);
	return true;
}

bool quick_push(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	uint32_t copied = 0;
	int chunk;

	if (!can_push(qp, wire))
		return false;
	while (req->tx != req->head) {
		struct swqe *w = swqe_at(req, req->tx);
		unsigned slots = slots_of_wr(wire, w);

		if (!slots)
			return false;
		if (!has_room(wire, slots))
			return is_awaited(wire) && !wire->broken; /* by nonsense of the peer's: its QP is to fail */
		if (copied >= QP_SLICE) {
			qp_again(qp);
			break;
		}
		chunk = chunk_for(wire, w->length, qp);
		if (chunk == CHUNK_OUT)
			break;
		if (!push_one(qp, wire, w, slots, chunk))
			return false;
		copied += w->length;
		req->notify = true;
	}
	wire_want_clear(wire, WIRE_WANT_REQ);
	return !wire->broken;
}

/* One piece, in one descriptor, and nothing that the general way would refuse: so many slots. */
static unsigned slots_of_post(const struct soft_qp *qp, const struct wire *wire, const struct ibv_send_wr *wr)
{
	const struct requester *req = &qp->priv->req;

	if (!wr || wr->next || (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) || wr->num_sge != 1 ||
	    !wr->sg_list->length || wr->send_flags & IBV_SEND_FENCE ||
	    !(wr->send_flags & IBV_SEND_INLINE ? wr->sg_list->length <= req->max_inline : req->max_sge))
		return 0;
	return slots_for(wire, wr->sg_list->length);
}

bool quick_post(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	struct swqe *w = swqe_at(req, req->head);
	uint32_t i = req->head & req->mask;
	unsigned slots = wire ? slots_of_post(qp, wire, wr) : 0;
	int chunk;

	if (!slots || req->tx != req->head || req->resp_dirty | req->notify ||
	    is_awaited(wire) || rt_owes() || !can_push(qp, wire) ||
	    req->head - req->internals - atomic_load_explicit(&req->freed, memory_order_acquire) >= req->max ||
	    !has_room(wire, slots))
		return false;
	chunk = chunk_for(wire, wr->sg_list->length, NULL);
	if (chunk == CHUNK_OUT)
		return false;
	swqe_begin(w, wr->opcode);
	w->wr_id = wr->wr_id;
	w->imm = wr->imm_data;
	w->length = wr->sg_list->length;
	w->flags = wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
	w->sge = req->sges + (size_t)i * req->max_sge;
	w->data = req->inlines + i * req->inline_stride;
	if (w->flags & IBV_SEND_INLINE) {
		copy_few(w->data, (const void *)(uintptr_t)wr->sg_list->addr, w->length);
	} else {
		w->n_sge = 1;
		copy_sges(w->sge, wr->sg_list, 1);
	}
	if (!push_one(qp, wire, w, slots, chunk))
		return false;
	req->head++;
	wire_notify_post(wire);
	if (chunk >= 0)
		pair_chunk_ahead(wire->pair, POOL_REQ, w->length);
	return true;
}
