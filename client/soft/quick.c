/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case of a turn and of a post. It does what qp_turn() and qp_posted() do there, by the same rules and to the same
 * state, without asking for what cannot be: so it may stop after any message, and they go on.
 */
#include "client/soft/quick.h"

#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/lane.h"
#include "client/soft/mr_private.h"

#define TWO_SLOTS (LANE_RW_BASE + LANE_MORE) /* the longest message here */
#define OWN_AHEAD 8u /* slots in front of the one that is written */

/* The lane is full, and the peer will tell. */
static bool is_awaited(const struct wire *wire)
{
	return atomic_load_explicit(&wire->want, memory_order_relaxed) & WIRE_WANT_REQ;
}

/* --- a turn ------------------------------------------------------------------------------------------------------------ */

/* A SEND whole, in one slot or two, and the one that is due. */
static bool is_whole_send(const struct soft_qp *qp, const struct wire *wire, const struct vsd_req *head)
{
	const uint8_t whole = VSD_F_FIRST | VSD_F_LAST;

	return head->op == VSD_REQ_SEND && (head->flags & (uint8_t)~(VSD_F_SOLICITED | VSD_F_IMM)) == whole &&
	       head->len == head->total && head->msn == (uint32_t)qp->priv->resp.msn && head->len <= TWO_SLOTS &&
	       head->slots == 1 + (head->len > LANE_RW_BASE) &&
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

/* What stands in the slots goes where the program wants it: the peer may change it meanwhile, but no other's bytes. */
static bool place(struct soft_qp *qp, const struct wire *wire, const struct vsd_req *head, const struct ibv_sge *sge)
{
	const struct vsd_req *slot = lane_in_slot(&wire->req_in, wire->req_in.pos);
	struct mr_hold hold;
	uint8_t *to;

	if (!head->len)
		return true;
	to = mr_hold(qp_td(qp), qp->srq ? qp->srq->pd : qp->pd, sge->lkey, sge->addr, head->len, IBV_ACCESS_LOCAL_WRITE, &hold);
	if (!to)
		return false;
	if (head->slots == 1) {
		copy_word(to, slot->rw.data, head->len);
	} else {
		const struct vsd_req_more *more = lane_in_slot(&wire->req_in, wire->req_in.pos + 1);
		uint32_t behind = head->len - LANE_RW_BASE;

		/* The aligned eight that end the message may begin in the first slot: they are one store all the same. */
		if (behind < 8) {
			uint8_t whole[LANE_RW_BASE + 8];

			memcpy(whole, slot->rw.data, LANE_RW_BASE);
			memcpy(whole + LANE_RW_BASE, more->data, 8);
			copy_ordered(to, whole, head->len);
		} else {
			copy_few(to, slot->rw.data, LANE_RW_BASE);
			copy_ordered(to + LANE_RW_BASE, more->data, behind);
		}
	}
	mr_let_go(&hold);
	return true;
}

static bool complete(struct soft_qp *qp, const struct vsd_req *head, uint64_t wr_id)
{
	const struct ibv_wc wc = {
		.wr_id = wr_id,
		.opcode = IBV_WC_RECV,
		.byte_len = head->len,
		.qp_num = qp->v.qp.qp_num,
		.imm_data = head->flags & VSD_F_IMM ? head->imm : 0,
		.wc_flags = head->flags & VSD_F_IMM ? IBV_WC_WITH_IMM : 0,
	};
	struct ibv_wc *target;

	if (!qp->recv_cq)
		return true;
	target = soft_cq_target(qp->recv_cq);
	if (target) {
		*target = wc;
		return true;
	}
	return soft_cq_push(qp->recv_cq,
			    &(struct soft_cqe){ .wc = wc, .of = qp, .solicited = head->flags & VSD_F_SOLICITED });
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
	       !(wire->req_out.held | wire->resp_out.held | busy) &&
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
	wire_notify(wire);
}

/*
 * What waits for room in the lane goes on, and what was done is said. A wish for room that nothing waits for (an engine ran
 * the READ that did) ends, too: else whatever the peer takes is something to look at for ever.
 */
static bool end_turn(struct soft_qp *qp, struct wire *wire)
{
	const struct requester *req = &qp->priv->req;
	bool waits = req->tx != req->head || is_awaited(wire);

	if (waits && (rt_owes() || !quick_push(qp, wire)))
		return false;
	publish(qp, wire);
	return true;
}

/*
 * What the next steps wait for is asked for now: the line of the acknowledgement, which the peer looks at all the time, and in
 * a stream the next slot. One that is not written yet would only be taken from the peer.
 */
static void look_ahead(const struct wire *wire, unsigned n)
{
	if (n == 0)
		line_own(wire->mine);
	else
		__builtin_prefetch(lane_in_slot(&wire->req_in, wire->req_in.pos + 1));
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

static bool is_short_send(const struct swqe *w)
{
	return w->state == SWQE_QUEUED && (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM) &&
	       w->length <= TWO_SLOTS && !(w->flags & IBV_SEND_FENCE) && !w->internal;
}

/* The payload goes into slots of ours that the peer has taken before: what stands behind a short one it has seen. */
static void put_payload(struct lane_out *lane, const uint8_t *from, uint32_t n)
{
	struct vsd_req *slot = lane_out_slot(lane, lane->pos);
	struct vsd_req_more *more;

	if (n <= LANE_RW_BASE) {
		copy_few(slot->rw.data, from, n);
		return;
	}
	more = lane_out_slot(lane, lane->pos + 1);
	copy_few(slot->rw.data, from, LANE_RW_BASE);
	copy_few(more->data, from + LANE_RW_BASE, n - LANE_RW_BASE);
	atomic_store_explicit(&more->tag, lane_tag(lane->pos + 1, lane->n), memory_order_relaxed);
	lane->chunks[(lane->pos + 1) & (lane->n - 1)] = -1;
}

static bool gather(struct soft_qp *qp, const struct swqe *w, struct lane_out *lane)
{
	struct mr_hold hold;
	const uint8_t *from;

	if (w->flags & IBV_SEND_INLINE || !w->length) {
		put_payload(lane, w->data, w->length);
		return true;
	}
	if (w->n_sge != 1 || rt_in_progress_thread())
		return false;
	from = mr_hold(qp_td(qp), qp->pd, w->sge->lkey, w->sge->addr, w->length, 0, &hold);
	if (!from)
		return false;
	put_payload(lane, from, w->length);
	mr_let_go(&hold);
	return true;
}

static void put(struct lane_out *lane, const struct swqe *w, uint64_t msn)
{
	struct vsd_req *slot = lane_out_slot(lane, lane->pos);
	unsigned slots = 1 + (w->length > LANE_RW_BASE);
	bool has_imm = w->opcode == IBV_WR_SEND_WITH_IMM;

	slot->op = VSD_REQ_SEND;
	slot->flags = VSD_F_FIRST | VSD_F_LAST | (w->flags & IBV_SEND_SOLICITED ? VSD_F_SOLICITED : 0) |
		      (has_imm ? VSD_F_IMM : 0);
	slot->imm = has_imm ? w->imm : 0;
	slot->slots = (uint8_t)slots;
	slot->msn = (uint32_t)msn;
	slot->len = slot->total = w->length;
	lane->chunks[lane->pos & (lane->n - 1)] = -1;
	atomic_store_explicit(&slot->tag, lane_tag(lane->pos, lane->n), memory_order_release);
	lane_pos_set(&lane->pos, lane->pos + slots);
}

/* Room for a message of two slots; the peer's line is looked at when half of it is used up. */
static bool has_room(struct wire *wire)
{
	const struct lane_out *lane = &wire->req_out;

	return (!lane->held && lane->pos - lane->taken <= lane->n / 2 && lane->n >= 16) || wire_req_space(wire) >= 2;
}

/* The slots of messages to come, which the peer has read; not those that it may still read. */
static void own_ahead(const struct lane_out *lane, unsigned slots)
{
	if (lane->pos + OWN_AHEAD + 2 - lane->taken > lane->n)
		return;
	line_own(lane_out_slot(lane, lane->pos + OWN_AHEAD));
	if (slots > 1)
		line_own(lane_out_slot(lane, lane->pos + OWN_AHEAD + 1));
}

static bool can_push(const struct soft_qp *qp, const struct wire *wire)
{
	return quick_is_smooth(qp, wire) && !qp->priv->req.restart;
}

/* The WR at tx is in the lane. */
static void pushed(struct requester *req, struct wire *wire, struct swqe *w)
{
	put(&wire->req_out, w, req->msn);
	own_ahead(&wire->req_out, 1 + (w->length > LANE_RW_BASE));
	w->msn = req->msn++;
	w->off = w->length;
	w->state = SWQE_SENT;
	req->known = true;
	req->owners = ++req->tx;
	if (req->started < req->tx)
		req->started = req->tx;
}

bool quick_push(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;

	if (!can_push(qp, wire))
		return false;
	while (req->tx != req->head) {
		struct swqe *w = swqe_at(req, req->tx);

		if (!is_short_send(w))
			return false;
		if (!has_room(wire))
			return is_awaited(wire) && !wire->broken; /* by nonsense of the peer's: its QP is to fail */
		if (!gather(qp, w, &wire->req_out))
			return false;
		pushed(req, wire, w);
		req->notify = true;
	}
	wire_want_clear(wire, WIRE_WANT_REQ);
	return true;
}

/* One piece, short, and nothing that the general way would refuse. */
static bool is_short_post(const struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	const struct requester *req = &qp->priv->req;

	return wr && !wr->next && (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) && wr->num_sge == 1 &&
	       wr->sg_list->length <= TWO_SLOTS && wr->sg_list->length && !(wr->send_flags & IBV_SEND_FENCE) &&
	       (wr->send_flags & IBV_SEND_INLINE ? wr->sg_list->length <= req->max_inline : req->max_sge);
}

bool quick_post(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	struct swqe *w = swqe_at(req, req->head);
	uint32_t i = req->head & req->mask;

	if (!wire || !is_short_post(qp, wr) || req->tx != req->head || req->resp_dirty | req->notify || is_awaited(wire) ||
	    rt_owes() || !can_push(qp, wire) ||
	    req->head - req->internals - atomic_load_explicit(&req->freed, memory_order_acquire) >= req->max ||
	    !has_room(wire))
		return false;
	*w = (struct swqe){
		.wr_id = wr->wr_id,
		.imm = wr->imm_data,
		.length = wr->sg_list->length,
		.opcode = wr->opcode,
		.flags = wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE),
		.internal = TAG_WR_NO,
		.sge = req->sges + (size_t)i * req->max_sge,
		.data = req->inlines + i * req->inline_stride,
	};
	if (w->flags & IBV_SEND_INLINE) {
		copy_few(w->data, (const void *)(uintptr_t)wr->sg_list->addr, w->length);
	} else {
		w->n_sge = 1;
		*w->sge = *wr->sg_list;
	}
	if (!gather(qp, w, &wire->req_out))
		return false;
	req->head++;
	pushed(req, wire, w);
	wire_notify(wire);
	return true;
}
