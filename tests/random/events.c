/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events: which ones a batch brings, at least and at most. All that is seen is acknowledged at once, so counts are of
 * this batch.
 */
#include "tests/random/model.h"

#include <string.h>

#define WHY(...) (snprintf(why, size, __VA_ARGS__), false)

static void may_come(struct m_qp *qp, int type)
{
	if (!qp->events[type].most)
		qp->events[type].most = (uint8_t)(1 + qp->lives);
}

static void must_come(struct m_qp *qp, int type)
{
	may_come(qp, type);
	qp->events[type].least = 1;
}

/* The event that a refusal brings to the one who refuses; -1: none. */
static int refusal_event(const struct model *m, const struct m_wr *wr, enum ibv_wc_status status)
{
	bool message = !is_write(wr) && takes_receive(wr);

	/* That it named no SRQ of the receive QP's domain. */
	if (status == IBV_WC_REM_INV_REQ_ERR && wr_srq_is(m, wr) != YES)
		return wr_srq_is(m, wr) == NO ? IBV_EVENT_QP_ACCESS_ERR : -1;
	if (message)
		return -1;
	if (status == IBV_WC_REM_ACCESS_ERR)
		return IBV_EVENT_QP_ACCESS_ERR;
	if (status == IBV_WC_REM_INV_REQ_ERR)
		return IBV_EVENT_QP_REQ_ERR;
	return -1;
}

static const enum ibv_wc_status refusals[] = { IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR };

static void wr_events(struct model *m, struct m_wr *wr)
{
	struct m_flow *flow = wr->flow;
	struct m_qp *peer = flow->peer < 0 ? NULL : &m->qps[flow->peer];

	if (!peer)
		return;
	for (size_t i = 0; i < 2 && flow->type == IBV_QPT_RC; i++) {
		int event = refusal_event(m, wr, refusals[i]);
		bool sure = wr->outcome == OUT_FAIL && wr->status == refusals[i];

		if (event < 0 || (!sure && !(wr_verdict(m, wr).mask & STATUS(refusals[i]))))
			continue;
		/* It may have failed for a reason of its own, or been reset. */
		if (sure && !flow->wrecked && !flow->back->failure && !flow->back->closed &&
			(peer->state_at <= m->batch_start || wr->seq > peer->state_at))
			must_come(peer, event);
		else
			may_come(peer, event);
	}
	if (peer->was_rtr && flow->back->established != YES)
		may_come(peer, IBV_EVENT_COMM_EST);
	if (peer->was_rtr && flow->back->established == NO && !flow->back->closed && flow->type == IBV_QPT_RC &&
		peer->state == IBV_QPS_RTR && !peer->xrc && wr->outcome == OUT_OK && !is_local(wr))
		must_come(peer, IBV_EVENT_COMM_EST);
}

/* What one that ended in an earlier batch may bring yet. */
static void late_events(struct model *m, const struct m_wr *wr)
{
	struct m_qp *peer = &m->qps[wr->flow->peer];

	for (size_t i = 0; i < 2 && wr->flow->type == IBV_QPT_RC; i++) {
		int event = refusal_event(m, wr, refusals[i]);

		if (event >= 0 && wr->mask & STATUS(refusals[i]))
			may_come(peer, event);
	}
	if (peer->was_rtr && wr->flow->back->established != YES)
		may_come(peer, IBV_EVENT_COMM_EST);
}

/* Whatever a QP may tell of its end. */
static void wreck_events(struct m_qp *qp)
{
	static const uint8_t types[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
		IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED };

	for (size_t i = 0; i < sizeof(types); i++) {
		qp->events[types[i]].least = 0;
		qp->events[types[i]].most = (uint8_t)(2 + qp->lives);
	}
}

/* What is unreliable may have been long on its way. */
bool may_be_established_late(const struct m_qp *qp)
{
	return qp->was_rtr && qp->in && qp->in->n && qp->type == IBV_QPT_UC && qp->out->established != YES;
}

static void qp_events(struct model *m, struct m_qp *qp)
{
	bool changed = qp->state_at > m->batch_start;

	if (may_be_established_late(qp) || qp->established_late)
		may_come(qp, IBV_EVENT_COMM_EST);
	/* The daemon tells of an XRC receive QP when it gets to it. */
	if (qp->xrc == XRC_RECV) {
		may_come(qp, IBV_EVENT_COMM_EST);
		may_come(qp, IBV_EVENT_QP_REQ_ERR);
		may_come(qp, IBV_EVENT_QP_ACCESS_ERR);
	}
	if (qp->out->wrecked) {
		wreck_events(qp);
		return;
	}
	if (qp->drain_due) {
		if (qp->state == IBV_QPS_SQD && !qp->draining && !qp->draining_left)
			must_come(qp, IBV_EVENT_SQ_DRAINED);
		else
			may_come(qp, IBV_EVENT_SQ_DRAINED);
		qp->events[IBV_EVENT_SQ_DRAINED].most = qp->drain_due;
	}
	if (qp->srq >= 0 && qp->out->last_wqe == NO && qp->state == IBV_QPS_ERR && qp->served)
		must_come(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	else if (qp->srq >= 0 && (changed || qp->state == IBV_QPS_ERR) && qp->out->last_wqe != YES)
		may_come(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	/* Of lives that ended in this batch. */
	if (qp->srq >= 0 && changed)
		qp->events[IBV_EVENT_QP_LAST_WQE_REACHED].most = 100;
}

void events_expect(struct model *m)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		for (size_t k = 0; k < 32; k++)
			m->qps[i].events[k].least = m->qps[i].events[k].most = 0;
	}
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (wr_active(m, m->wrs[i]))
			wr_events(m, m->wrs[i]);
		else if (m->wrs[i]->adrift)
			late_events(m, m->wrs[i]);
	}
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		if (m->qps[i].live || m->qps[i].state_at > m->batch_start)
			qp_events(m, &m->qps[i]);
	}
}

static bool srq_is_low(const struct m_srq *srq)
{
	return srq->armed && !srq->may_be_armed && queue_waiting(&srq->queue) < srq->limit && !srq->lost;
}

static size_t srq_taken(const struct model *m, const struct m_srq *srq)
{
	size_t n = 0;

	for (size_t i = 0; i < srq->queue.n; i++) {
		const struct m_recv *recv = srq->queue.at[i];

		n += recv->state != RECV_POSTED && recv->state != RECV_NOT && recv->resolved_at == m->batch;
	}
	return n;
}

size_t srq_there(const struct model *m, const struct m_srq *srq)
{
	return queue_waiting(&srq->queue) + srq_taken(m, srq);
}

/* The fewest receives that it may have had since then: what was posted later may have been so after all others were taken. */
static size_t srq_least(struct model *m, const struct m_srq *srq)
{
	size_t gone = srq_taken(m, srq) + srq->begun + queue_demand(m, &srq->queue);

	return gone < srq->waiting ? srq->waiting - gone : 0;
}

static bool srq_check(struct model *m, unsigned id)
{
	const struct m_srq *srq = &m->srqs[id];

	if (srq->events > (srq->armed ? 1 + srq->rearmed : 0))
		return wrong(m, "event", "srq %u had %u limit events", id, srq->events);
	if (srq->events && !srq->lost && srq_least(m, srq) >= srq->limit_most)
		return wrong(m, "event", "srq %u had a limit event with %zu receives or more; its limit is %u", id,
			srq_least(m, srq), srq->limit_most);
	return true;
}

/* An event that comes late may be of a completion of the batch before, and one that comes early of one not yet read. */
static bool cq_may_fire(const struct m_cq *cq)
{
	return cq->channel && (cq->fired || cq->maybe_fired || cq->late);
}

bool events_complete(struct model *m, char *why, size_t size)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		for (int k = 0; k < 32; k++) {
			if (m->qps[i].live && m->qps[i].events[k].seen < m->qps[i].events[k].least)
				return WHY("qp %u had no event %d", i, k);
			if (m->qps[i].events[k].seen > m->qps[i].events[k].most)
				return WHY("qp %u had event %d %u times", i, k, m->qps[i].events[k].seen);
		}
	}
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++) {
		if (m->srqs[i].live && srq_is_low(&m->srqs[i]) && !m->srqs[i].events)
			return WHY("srq %u had no limit event", i);
	}
	for (unsigned i = 0; i < m->tops[OP_CQ]; i++) {
		if (m->cqs[i].live && m->cqs[i].channel && m->cqs[i].fired && !m->cqs[i].events)
			return WHY("cq %u had no completion event", i);
		if (m->cqs[i].events && !cq_may_fire(&m->cqs[i]))
			return WHY("cq %u had a completion event, and no completion", i);
	}
	return true;
}

bool events_check(struct model *m)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		for (int k = 0; k < 32; k++) {
			if (m->qps[i].events[k].seen > m->qps[i].events[k].most)
				return wrong(m, "event", "qp %u had event %d %u times", i, k, m->qps[i].events[k].seen);
		}
	}
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++) {
		if (!srq_check(m, i))
			return false;
	}
	for (unsigned i = 0; i < m->tops[OP_CQ]; i++) {
		const struct m_cq *cq = &m->cqs[i];

		if (cq->events > cq_may_fire(cq))
			return wrong(m, "event", "cq %u had %u completion events", i, cq->events);
	}
	return true;
}

/* Where a life ended in this batch, the event may have been of that one. */
static void seen_by(const struct m_qp *qp, enum tri *had)
{
	if (!qp->lives)
		*had = YES;
	else if (*had == NO)
		*had = MAYBE;
}

/* Its first packet takes the receive, its last one completes it: one that fits into the least MTU is both. */
static void message_begun(struct model *m, const struct m_wr *wr)
{
	if (wr->flow->type != IBV_QPT_RC || wr->flow->peer < 0 || wr->len <= 256 || !takes_receive(wr) || wr->delivered ||
		wr->outcome == OUT_OK || wr->outcome == OUT_NONE || !wr_active(m, wr) || wr_srq(m, wr) < 0)
		return;
	m->srqs[wr_srq(m, wr)].begun++;
}

static void srqs_next_batch(struct model *m)
{
	for (size_t i = 0; i < m->n_wrs; i++)
		message_begun(m, m->wrs[i]);
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++) {
		struct m_srq *srq = &m->srqs[i];

		/* Of those armed in this batch the last may be the one that has not fired. */
		if (srq->events) {
			srq->armed = srq->events <= srq->rearmed;
			srq->may_be_armed = srq->armed;
		}
		srq->events = srq->rearmed = 0;
		srq->waiting = queue_waiting(&srq->queue);
		/* What is on its way may have brought an event that nobody has seen yet. */
		if (!queue_demand(m, &srq->queue))
			srq->limit_most = srq->armed ? srq->limit : 0;
	}
}

void events_next_batch(struct model *m)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		struct m_qp *qp = &m->qps[i];

		if (!qp->out)
			continue;
		if (qp->events[IBV_EVENT_COMM_EST].seen)
			seen_by(qp, &qp->out->established);
		if (qp->events[IBV_EVENT_QP_LAST_WQE_REACHED].seen && qp->state == IBV_QPS_ERR)
			seen_by(qp, &qp->out->last_wqe);
		if (qp->events[IBV_EVENT_SQ_DRAINED].seen || qp->state != IBV_QPS_SQD)
			qp->drain_due = 0;
		for (size_t k = 0; k < 32; k++)
			qp->events[k].seen = 0;
	}
	srqs_next_batch(m);
	for (unsigned i = 0; i < m->tops[OP_CQ]; i++) {
		struct m_cq *cq = &m->cqs[i];

		if (cq->events || cq->fired || (cq->maybe_fired && !cq->channel))
			cq->armed = UNARMED;
		cq->late = !cq->events && (cq->maybe_fired || cq->late);
		cq->events = 0;
		cq->fired = cq->maybe_fired = false;
	}
}
