/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The quiet point: nothing more comes of its own, and what was seen has its causes and had its consequences.
 */
#include "tests/random/model.h"

#include <string.h>

/* The first datagram to a process may be long on its way: its wire has to be made first. */
enum { LOST_MS = 3000, LOST_LOOKS = 30 };

#define WHY(...) (snprintf(why, size, __VA_ARGS__), false)

/* --- is all done --- */

/* A WR that is not completed: whether something must still come of it. @stop: those behind it wait for it. */
static bool pending_settled(struct model *m, struct m_wr *wr, bool *stop, char *why, size_t size)
{
	struct m_flow *flow = wr->flow;
	const struct m_qp *qp = flow_qp(m, flow);
	struct verdict v;

	if (flow->wrecked) {
		*stop = true;
		return true;
	}
	/* Those that said nothing may have succeeded before the error. */
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		return wr->signaled || !(wr_verdict(m, wr).mask & STATUS(IBV_WC_SUCCESS))
			       ? WHY("wr %u is not flushed", wr->id)
			       : true;
	if (qp->state == IBV_QPS_SQD && (wr->index >= flow->sqd || !qp->draining)) {
		*stop = true;
		return true;
	}
	v = wr_verdict(m, wr);
	if (v.blocked) {
		*stop = true;
		return true;
	}
	if (wr->signaled || !(v.mask & STATUS(IBV_WC_SUCCESS)))
		return WHY("wr %u does not complete (statuses 0x%x)", wr->id, v.mask);
	if (flow->type == IBV_QPT_RC && takes_receive(wr) && !wr->delivered && !wr_srq_went(m, wr) &&
		v.mask == STATUS(IBV_WC_SUCCESS))
		return WHY("wr %u is not delivered", wr->id);
	return true;
}

static bool flow_settled(struct model *m, struct m_flow *flow, char *why, size_t size)
{
	bool stop = false;

	for (size_t i = flow->done; i < flow->n && !stop; i++) {
		if (flow->at[i]->outcome == OUT_NONE && !flow->at[i]->parent && !pending_settled(m, flow->at[i], &stop, why, size))
			return false;
	}
	return true;
}

static bool deliveries_settled(struct model *m, struct m_wr *wr, char *why, size_t size)
{
	struct m_flow *flow = wr->flow;

	if (wr->outcome != OUT_OK || !takes_receive(wr) || wr->delivered || wr->lost || flow->wrecked)
		return true;
	if (flow->type != IBV_QPT_RC)
		return message_arrives(m, wr) == YES ? WHY("wr %u does not arrive", wr->id) : true;
	if ((flow->back && flow->back->closed) || wr_srq_went(m, wr))
		return true;
	return WHY("wr %u succeeded and nothing was received", wr->id);
}

static bool remote_failure(const struct m_wr *wr)
{
	return wr->outcome == OUT_FAIL && STATUS(wr->status) & REFUSALS;
}

/* The other end of a WR that it refused is in error too. */
static bool peer_settled(struct model *m, const struct m_wr *wr, char *why, size_t size)
{
	const struct m_flow *back = wr->flow->back;

	if (!remote_failure(wr) || !back || back->closed || back->wrecked)
		return true;
	if (takes_receive(wr) && !is_write(wr) && !wr->recv && wr_srq_is(m, wr) == YES)
		return WHY("wr %u was refused, and no receive says why", wr->id);
	if (m->qps[wr->flow->peer].state == IBV_QPS_ERR)
		return true;
	return WHY("wr %u was refused by qp %d, which is in state %d", wr->id, wr->flow->peer,
		m->qps[wr->flow->peer].state);
}

/* An error that the responder found: its requester's WR says so, or went before it could. */
static bool refused_its_peer(struct model *m, const struct m_qp *qp)
{
	const struct m_flow *in = qp->in;

	for (size_t i = 0; in && i < in->n; i++) {
		struct m_wr *wr = in->at[i];

		if (wr->adrift && wr->mask & REFUSALS)
			return true;
		if (!wr_active(m, wr))
			continue;
		if (remote_failure(wr))
			return true;
		if ((wr->outcome == OUT_FLUSH || wr->outcome == OUT_GONE || wr->outcome == OUT_FAIL) &&
			wr_verdict(m, wr).mask & REFUSALS)
			return true;
	}
	return false;
}

/* A QP that failed: what it failed for has to be seen as well. */
static bool error_settled(struct model *m, unsigned id, char *why, size_t size)
{
	const struct m_qp *qp = &m->qps[id];
	bool own = qp->out && qp->out->failure;

	if (!qp->live || !qp->failing || qp->out->wrecked)
		return true;
	if (qp->state == IBV_QPS_SQE && (qp->type == IBV_QPT_RC || !own))
		return WHY("qp %u is in SQE without a send that failed", id);
	if (qp->state == IBV_QPS_ERR && !qp->excused && !qp->excused_before && !(own && qp->type == IBV_QPT_RC) && !refused_its_peer(m, qp))
		return WHY("qp %u is in error, and nothing says why", id);
	return true;
}

static bool qp_settled(struct model *m, unsigned id, char *why, size_t size)
{
	struct m_qp *qp = &m->qps[id];

	if (!qp->live || qp->out->wrecked)
		return true;
	if ((qp->excused || qp->flushed) && qp->state != IBV_QPS_ERR && qp->state_at <= m->batch_start)
		return WHY("a receive of qp %u failed, and it is in state %d", id, qp->state);
	if (qp->state == IBV_QPS_ERR && queue_waiting(&qp->rq))
		return WHY("qp %u is in error with %zu receives", id, queue_waiting(&qp->rq));
	if (qp->out && qp->out->failed && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_SQE &&
		qp->state_at <= m->batch_start)
		return WHY("a send of qp %u failed, and it is in state %d", id, qp->state);
	return flow_settled(m, qp->out, why, size);
}

bool model_settled(struct model *m, char *why, size_t size)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		if (!qp_settled(m, i, why, size) || !error_settled(m, i, why, size))
			return false;
	}
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];

		if (!wr_active(m, wr))
			continue;
		if (!deliveries_settled(m, wr, why, size) || !peer_settled(m, wr, why, size))
			return false;
	}
	events_expect(m);
	return events_complete(m, why, size);
}

/* --- was all as it should be --- */

static bool flush_is_due(const struct model *m, const struct m_qp *qp)
{
	return qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE || qp->failing || qp->state_at > m->batch_start;
}

static bool wr_check(struct model *m, struct m_wr *wr)
{
	struct m_flow *flow = wr->flow;
	struct verdict v;

	switch (wr->outcome) {
	case OUT_OK:
	case OUT_FAIL:
		v = wr_verdict(m, wr);
		if (!(v.mask & STATUS(wr->status)))
			return wrong(m, "status", "wr %u (opcode %u) ended with status %d; 0x%x were possible", wr->id,
				wr->opcode, wr->status, v.mask);
		break;
	case OUT_FLUSH:
		if (!flush_is_due(m, flow_qp(m, flow)))
			return wrong(m, "status", "wr %u was flushed in state %d", wr->id, flow_qp(m, flow)->state);
		break;
	case OUT_NONE:
	case OUT_GONE:
	case OUT_NOT:
		return true;
	}
	if (wr->delivered && flow->type == IBV_QPT_RC && wr->outcome != OUT_OK && wr_effect(m, wr) == EFFECT_NONE)
		return wrong(m, "message", "wr %u was delivered and ended with status %d", wr->id, wr->status);
	if (wr->lost && wr->outcome == OUT_OK && message_arrives(m, wr) == YES)
		return wrong(m, "message", "wr %u did not arrive, and one behind it did", wr->id);
	return true;
}

bool model_check(struct model *m)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (wr_active(m, m->wrs[i]) && !wr_check(m, m->wrs[i]))
			return false;
	}
	return events_check(m);
}

/* --- the next batch --- */

/* It may be bound to any region, or to none: that no region is busy for it is not known, nor that one is. */
static void lose_track(struct model *m, struct m_mw *mw)
{
	if (mw->bound)
		m->mrs[mw->mr].bound--;
	mw->bound = false;
	mw->wild = true;
}

/* What was bound and invalidated, now that it is known. Two at a time, and the model has lost track. */
static void window_follow(struct model *m, struct m_wr *wr, struct m_mw *mw)
{
	enum effect effect = wr_effect(m, wr);
	bool invalidates = wr->opcode != IBV_WR_BIND_MW;

	if (wr->outcome == OUT_FAIL && wr->opcode == IBV_WR_SEND_WITH_INV)
		effect = EFFECT_NONE; /* the invalidation is what failed, or was not come to */
	if (wr->outcome == OUT_NONE && effect != EFFECT_NONE)
		effect = EFFECT_MAYBE;
	if (effect == EFFECT_MAYBE) {
		lose_track(m, mw);
		return;
	}
	if (effect == EFFECT_NONE || !mw->live)
		return;
	if (mw->bound)
		m->mrs[mw->mr].bound--;
	mw->bound = false;
	if (invalidates || !wr->compare)
		return;
	mw->bound = true;
	mw->bound_key = wr->rkey;
	mw->mr = wr->mr;
	mw->qp = wr->flow->qp;
	mw->addr = wr->raddr;
	mw->len = wr->compare;
	mw->access = (unsigned)wr->swap;
	m->mrs[mw->mr].bound++;
}

static void windows_follow(struct model *m)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];
		struct m_mw *mw = wr_active(m, wr) ? window_of(m, wr) : NULL;

		if (!mw)
			continue;
		/* Several flows at once, in any order. */
		if (mw->touchers > 1)
			lose_track(m, mw);
		else
			window_follow(m, wr, mw);
	}
}

static void windows_touch(struct model *m)
{
	for (unsigned i = 0; i < m->tops[OP_MW]; i++) {
		m->mws[i].touchers = 0;
		m->mws[i].last_flow = NULL;
	}
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];
		struct m_mw *mw = wr_active(m, wr) ? window_of(m, wr) : NULL;

		if (mw && mw->last_flow != wr->flow)
			mw->touchers++;
		if (mw)
			mw->last_flow = wr->flow;
	}
}

static void flows_follow(struct model *m)
{
	for (struct m_flow *flow = m->flows; flow; flow = flow->next) {
		const struct m_qp *peer = flow->peer < 0 ? NULL : &m->qps[flow->peer];

		if (peer && flow->linked && peer->state == IBV_QPS_ERR) {
			flow->linked = false;
			flow->unlinked_at = m->seq;
		}
	}
}

static void queues_follow(struct m_queue *queue)
{
	while (queue->head < queue->n && queue->at[queue->head]->state != RECV_POSTED)
		queue->head++;
}

/* Whoever serves an XRC receive QP tells the daemon of what failed there, also after the sender has left. */
static bool may_be_told_later(struct model *m, const struct m_qp *qp)
{
	return qp->live && qp->xrc == XRC_RECV && ((qp->excused_before && !qp->lives) || refused_its_peer(m, qp));
}

static void qps_follow(struct model *m)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		struct m_qp *qp = &m->qps[i];

		/* That it is in error may be seen after the completion that says why. */
		qp->excused_before = (qp->excused || may_be_told_later(m, qp)) && qp->state != IBV_QPS_ERR;
		qp->failing = qp->excused = qp->flushed = qp->draining_left = qp->established_late = false;
		qp->lives = 0;
		qp->was_rtr = qp->live && qp->state == IBV_QPS_RTR;
		queues_follow(&qp->rq);
	}
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++)
		queues_follow(&m->srqs[i].queue);
}

/* It was sent, or its QP went: the peer may come to it in another batch. */
static bool may_be_late(struct model *m, struct m_wr *wr)
{
	return wr->outcome != OUT_NONE && wr->outcome != OUT_NOT && !wr->delivered && wr->flow->peer >= 0 && !is_local(wr) &&
	       wr->opcode != IBV_WR_RDMA_READ && wr_effect_now(m, wr) == EFFECT_MAYBE;
}

/* Nothing of it comes any more: its peer's QP has another life, or its region is gone. */
static bool is_cut_off(struct model *m, const struct m_wr *wr)
{
	const struct m_mr *mr = is_write(wr) || is_atomic(wr) ? key_mr(m, wr_worker(m, wr), wr->rkey) : NULL;

	return (wr->flow->back && wr->flow->back->closed) || (mr && !mr->now.live);
}

void model_next_batch(struct model *m)
{
	unsigned now = ++m->seq;

	/* Of what was sent and may arrive later too: how it ended is judged again then. */
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];
		struct verdict v;

		if (!wr_active(m, wr))
			continue;
		v = wr_verdict(m, wr);
		wr->mask |= v.mask;
		wr->recv_mask |= v.recv;
		if (wr->flow->type != IBV_QPT_RC && takes_receive(wr) && !wr->delivered)
			wr->may_be_lost |= message_arrives(m, wr) != YES;
		wr->adrift = may_be_late(m, wr);
	}
	windows_touch(m);
	windows_follow(m);
	events_next_batch(m);
	flows_follow(m);
	qps_follow(m);
	for (unsigned i = 0; i < m->tops[OP_MR]; i++)
		m->mrs[i].changes = 0;
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];

		if (wr->adrift && is_cut_off(m, wr))
			wr->adrift = false;
		/* What did not arrive in all that time was lost. */
		if (wr->outcome == OUT_NONE || m->now_ms - wr->resolved_ms <= LOST_MS ||
			m->looks - wr->resolved_look <= LOST_LOOKS)
			continue;
		wr->adrift = false;
		if (wr->flow->type != IBV_QPT_RC && takes_receive(wr) && !wr->delivered && !wr->lost)
			wr->lost = wr;
	}
	m->n_fills = 0;
	m->batch++;
	m->batch_start = now;
	m->seq++;
	/* What is still outstanding may change its window at any time. */
	for (size_t i = 0; i < m->n_wrs; i++) {
		struct m_wr *wr = m->wrs[i];
		struct m_mw *mw = wr->outcome == OUT_NONE ? window_of(m, wr) : NULL;

		if (mw)
			mw->touched = m->seq;
	}
}
