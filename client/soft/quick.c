/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case of a turn and of a post. It does what qp_turn() and qp_posted() do there, by the same rules and to the same
 * state, without asking for what cannot be: so it may stop after any message, and they go on.
 */
#include "client/soft/quick.h"

#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/lane.h"

#define TWO_SLOTS (LANE_RW_BASE + LANE_MORE) /* the longest message here */

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

static bool place(struct soft_qp *qp, const struct ibv_sge *sge, const void *payload, uint32_t len)
{
	struct mr_ref ref;
	void *ptr;
	bool usual;

	if (!len)
		return true;
	if (mr_ref_in(qp_td(qp), sge->lkey, qp->srq ? qp->srq->pd : qp->pd, NULL, sge->addr, len, IBV_ACCESS_LOCAL_WRITE,
		    false, &ref, &ptr) < 0)
		return false;
	usual = !ref.mr->null && !mr_is_paged(&ref);
	if (usual)
		copy_ordered(ptr, payload, len);
	mr_unref(&ref);
	return usual;
}

static bool complete(struct soft_qp *qp, const struct vsd_req *head, uint64_t wr_id)
{
	struct soft_cqe cqe = {
		.wc = {
			.wr_id = wr_id,
			.opcode = IBV_WC_RECV,
			.byte_len = head->len,
			.qp_num = qp->v.qp.qp_num,
			.imm_data = head->flags & VSD_F_IMM ? head->imm : 0,
			.wc_flags = head->flags & VSD_F_IMM ? IBV_WC_WITH_IMM : 0,
		},
		.of = qp,
		.solicited = head->flags & VSD_F_SOLICITED,
	};

	return !qp->recv_cq || soft_cq_push(qp->recv_cq, &cqe);
}

static bool serve_send(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;
	const struct soft_rwqe *recv;
	uint8_t payload[TWO_SLOTS];
	struct vsd_req head;

	memcpy(&head, lane_in_slot(&wire->req_in, wire->req_in.pos), sizeof(head));
	if (!is_whole_send(qp, wire, &head))
		return false;
	recv = receive_for(qp, head.len);
	if (!recv)
		return false;
	memcpy(payload, head.rw.data, LANE_RW_BASE);
	if (head.slots == 2) {
		const struct vsd_req_more *more = lane_in_slot(&wire->req_in, wire->req_in.pos + 1);

		memcpy(payload + LANE_RW_BASE, more->data, LANE_MORE);
	}
	if (!place(qp, recv->sge, payload, head.len))
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

static bool can_turn(const struct soft_qp *qp, const struct wire *wire)
{
	const struct responder *resp = &qp->priv->resp;

	return quick_is_smooth(qp, wire) && qp->priv->req.tx == qp->priv->req.head && !wire->req_out.held &&
	       !wire->resp_out.held && !atomic_load_explicit(&wire->want, memory_order_relaxed) && !resp->open &&
	       !resp->rnr && !resp->rnr_owed && !resp->nak_owed && !resp->stream.active && !rt_in_progress_thread() &&
	       !(qp->srq && qp->srq->tags);
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
		if (!found || !order_is_kept(wire)) {
			qp_publish(qp);
			return true;
		}
		if (!serve_send(qp, wire))
			return false;
		*did = true;
		if (qp->priv->failure != QP_FINE)
			return false;
	}
	return false;
}

/* --- a post ------------------------------------------------------------------------------------------------------------- */

static bool is_short_send(const struct swqe *w)
{
	return w->state == SWQE_QUEUED && (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM) &&
	       w->length <= TWO_SLOTS && !(w->flags & IBV_SEND_FENCE) && !w->internal;
}

static bool gather(struct soft_qp *qp, const struct swqe *w, uint8_t *payload)
{
	struct mr_ref ref;
	void *ptr;
	bool usual;

	if (w->flags & IBV_SEND_INLINE || !w->length) {
		memcpy(payload, w->data, w->length);
		return true;
	}
	if (w->n_sge != 1 || rt_in_progress_thread() ||
	    mr_ref_in(qp_td(qp), w->sge->lkey, qp->pd, NULL, w->sge->addr, w->length, 0, false, &ref, &ptr) < 0)
		return false;
	usual = !ref.mr->null && !mr_is_paged(&ref);
	if (usual)
		memcpy(payload, ptr, w->length);
	mr_unref(&ref);
	return usual;
}

static void put(struct wire *wire, const struct swqe *w, uint64_t msn, const uint8_t *payload)
{
	struct lane_out *lane = &wire->req_out;
	struct vsd_req *slot = lane_out_slot(lane, lane->pos);
	unsigned slots = 1 + (w->length > LANE_RW_BASE);
	bool has_imm = w->opcode == IBV_WR_SEND_WITH_IMM;

	if (slots == 2) {
		struct vsd_req_more *more = lane_out_slot(lane, lane->pos + 1);

		memcpy(more->data, payload + LANE_RW_BASE, LANE_MORE);
		atomic_store_explicit(&more->tag, lane_tag(lane->pos + 1, lane->n), memory_order_relaxed);
		lane->chunks[(lane->pos + 1) & (lane->n - 1)] = -1;
	}
	slot->op = VSD_REQ_SEND;
	slot->flags = VSD_F_FIRST | VSD_F_LAST | (w->flags & IBV_SEND_SOLICITED ? VSD_F_SOLICITED : 0) |
		      (has_imm ? VSD_F_IMM : 0);
	slot->imm = has_imm ? w->imm : 0;
	slot->slots = (uint8_t)slots;
	slot->msn = (uint32_t)msn;
	slot->len = slot->total = w->length;
	memcpy(slot->rw.data, payload, LANE_RW_BASE);
	lane->chunks[lane->pos & (lane->n - 1)] = -1;
	atomic_store_explicit(&slot->tag, lane_tag(lane->pos, lane->n), memory_order_release);
	lane_pos_set(&lane->pos, lane->pos + slots);
}

bool quick_push(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	uint8_t payload[TWO_SLOTS] = { 0 }; /* the peer sees what is behind a short message, too */

	if (!quick_is_smooth(qp, wire) || req->restart || atomic_load_explicit(&wire->want, memory_order_relaxed))
		return false;
	while (req->tx != req->head) {
		struct swqe *w = swqe_at(req, req->tx);

		if (!is_short_send(w) || wire_req_space(wire) < 2 || !gather(qp, w, payload))
			return false;
		put(wire, w, req->msn, payload);
		w->msn = req->msn++;
		w->off = w->length;
		w->state = SWQE_SENT;
		req->known = req->notify = true;
		req->owners = ++req->tx;
		if (req->started < req->tx)
			req->started = req->tx;
	}
	return true;
}
