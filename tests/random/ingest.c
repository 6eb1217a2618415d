/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completions and events, each looked at by itself: is it of a WR that is outstanding, in its turn, on its CQ, with what
 * verbs says it holds. Why it came is judged at the quiet point.
 */
#include "tests/random/coverage.h"
#include "tests/random/model.h"

#include <string.h>

/* --- what the polls of one answer found --- */

void ingest_wc(struct model *m, const struct wc_seen *seen)
{
	uint64_t id = seen->wc.wr_id & ~(uint64_t)RECV_ID;

	/* Places are free again once their completions are read. */
	if (!(seen->wc.wr_id & RECV_ID) && id < m->n_wrs)
		m->wrs[id]->flow->freed = m->wrs[id]->place + 1;
	if ((seen->wc.wr_id & RECV_ID) && id < m->n_recvs) {
		struct m_recv *recv = m->recvs[id];
		struct m_queue *queue = recv->qp < 0 ? &m->srqs[recv->srq].queue : &m->qps[recv->qp].rq;

		if (queue->unread && recv->state == RECV_POSTED) {
			queue->unread--;
			queue->reads++;
		}
	}
	m->wcs = grown(m->wcs, m->n_wcs, &m->wcs_room, sizeof(*m->wcs));
	m->wcs[m->n_wcs++] = *seen;
}

static void event_accept(struct model *m, unsigned worker, const struct event_seen *event)
{
	coverage_event(event->type);
	switch (event->type) {
	case -1:
		m->cqs[event->id].events++;
		break;
	case IBV_EVENT_CQ_ERR:
		if (!m->cqs[event->id].unsure || m->cqs[event->id].errors++)
			wrong(m, "event", "cq %u of worker %u is in error", event->id, worker);
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		m->srqs[event->id].events++;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		m->qps[event->id].events[event->type].seen++;
		break;
	default:
		wrong(m, "event", "event %d on worker %u", event->type, worker);
	}
}

static void state_accept(struct model *m, const struct state_seen *seen)
{
	struct m_qp *qp = &m->qps[seen->qp];
	int state = seen->state & 0xff;

	qp->draining = seen->state >> 8;
	if (!qp->live || state == qp->state)
		return;
	if (state != IBV_QPS_ERR && state != IBV_QPS_SQE) {
		wrong(m, "state", "qp %u is in state %d instead of %d", seen->qp, state, qp->state);
		return;
	}
	qp->failing = true;
	qp->state = state;
}

void ingest_reply(struct model *m, unsigned worker, const struct reply *reply)
{
	for (uint32_t i = 0; i < reply->n_events; i++)
		event_accept(m, worker, &reply->events[i]);
	for (uint32_t i = 0; i < reply->n_states; i++)
		state_accept(m, &reply->states[i]);
}

/* --- the CQ --- */

/* @solicited: also of what failed. */
static void cq_saw(struct model *m, unsigned id, enum tri solicited)
{
	struct m_cq *cq = &m->cqs[id];

	if (cq->due)
		cq->due--;
	if (cq->armed == UNARMED || (cq->armed == ARMED_SOLICITED && solicited == NO))
		return;
	/* In the batch in which it was asked for it may have come before. */
	if (cq->armed_at > m->batch_start || (cq->armed == ARMED_SOLICITED && solicited == MAYBE))
		cq->maybe_fired = true;
	else
		cq->fired = true;
}

/* --- sends --- */

static const uint8_t wc_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
};

static void wr_resolve(struct model *m, struct m_wr *wr, enum outcome outcome, enum ibv_wc_status status)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);

	wr->outcome = outcome;
	wr->status = status;
	wr->resolved_at = m->batch;
	wr->resolved_ms = m->now_ms;
	wr->resolved_look = m->looks;
	for (unsigned i = 0; i < wr->n_copies; i++)
		wr_resolve(m, wr->flow->at[wr->index + 1 + i], outcome, status);
	if (outcome == OUT_OK && !wr->signaled && !wr->parent && m->cqs[qp->send_cq].due)
		m->cqs[qp->send_cq].due--;
}

/* All in front of it that said nothing succeeded. */
static bool resolve_before(struct model *m, struct m_flow *flow, size_t index)
{
	for (; flow->done < index; flow->done++) {
		struct m_wr *wr = flow->at[flow->done];

		if (wr->outcome != OUT_NONE)
			continue;
		if (wr->signaled)
			return wrong(m, "order", "wr %u completed before wr %u of the same QP", flow->at[index]->id, wr->id);
		wr_resolve(m, wr, OUT_OK, IBV_WC_SUCCESS);
	}
	return true;
}

static bool send_fields(struct model *m, const struct m_wr *wr, const struct ibv_wc *wc)
{
	if (wc->opcode != wc_opcodes[wr->opcode])
		return wrong(m, "opcode", "wr %u: opcode %d", wr->id, wc->opcode);
	if ((wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr)) && wc->byte_len != wr->len)
		return wrong(m, "byte_len", "wr %u: byte_len %u instead of %u", wr->id, wc->byte_len, (unsigned)wr->len);
	return true;
}

static void region_count(const struct m_mr *mr, bool remote)
{
	if (mr->dm >= 0)
		coverage_touched(TOUCHED_DM, remote);
	if (mr->now.implicit)
		coverage_touched(TOUCHED_ALL_MEMORY, remote);
	else if (mr->now.access & IBV_ACCESS_ON_DEMAND)
		coverage_touched(TOUCHED_PAGED, remote);
}

static void regions_count(struct model *m, const struct m_wr *wr)
{
	const struct m_mr *mr = wr->target < 0 ? NULL : key_mr(m, wr_worker(m, wr), wr->rkey);

	if (mr && wr->len)
		region_count(mr, true);
	for (unsigned i = 0; i < wr->n_sge && !wr->inlined; i++) {
		if (wr->sge[i].len)
			region_count(&m->mrs[wr->sge[i].mr], false);
	}
}

static bool take_send(struct model *m, const struct wc_seen *seen)
{
	const struct ibv_wc *wc = &seen->wc;

	if (wc->wr_id >= m->n_wrs)
		return wrong(m, "stray", "a completion of wr %llu, which never was", (unsigned long long)wc->wr_id);
	struct m_wr *wr = m->wrs[wc->wr_id];
	struct m_flow *flow = wr->flow;
	const struct m_qp *qp = flow_qp(m, flow);

	if (wr->outcome != OUT_NONE || flow->closed || wr->parent)
		return wrong(m, "stray", "wr %u completed (status %d) after outcome %d", wr->id, wc->status, wr->outcome);
	if (seen->cq != (uint32_t)qp->send_cq || wc->qp_num != qp->number)
		return wrong(m, "stray", "wr %u completed on cq %u as of qp 0x%x", wr->id, seen->cq, wc->qp_num);
	if (!resolve_before(m, flow, wr->index))
		return false;
	coverage_send(qp->xrc ? IBV_QPT_XRC_SEND : flow->type, wr->opcode, wc->status);
	flow->done = wr->index + 1;
	cq_saw(m, seen->cq, wc->status == IBV_WC_SUCCESS ? NO : YES);
	if (wc->status == IBV_WC_SUCCESS) {
		if (flow->failed || !wr->signaled)
			return wrong(m, "status", "wr %u succeeded %s", wr->id,
				flow->failed ? "behind one that failed" : "though it was not signalled");
		wr_resolve(m, wr, OUT_OK, IBV_WC_SUCCESS);
		regions_count(m, wr);
		return send_fields(m, wr, wc);
	}
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		flow->failed |= wr->index >= flow->revived;
		wr_resolve(m, wr, OUT_FLUSH, wc->status);
		return true;
	}
	if (flow->failed)
		return wrong(m, "status", "wr %u ended with status %d behind one that failed", wr->id, wc->status);
	flow->failed |= wr->index >= flow->revived;
	flow->failure = wc->status;
	flow->failed_wr = wr;
	wr_resolve(m, wr, OUT_FAIL, wc->status);
	return true;
}

/* --- receives --- */

static bool recv_turn(struct model *m, const struct m_recv *recv, struct m_queue *queue)
{
	while (queue->head < queue->n && queue->at[queue->head]->state != RECV_POSTED)
		queue->head++;
	if (recv->qp < 0)
		return true;
	if (queue->head == queue->n || queue->at[queue->head] != recv)
		return wrong(m, "order", "receive %u completed before receive %u of the same QP", recv->id,
			queue->head < queue->n ? queue->at[queue->head]->id : 0);
	return true;
}

static bool could_be(const struct m_wr *wr, const struct ibv_wc *wc)
{
	uint32_t extra = wr->flow->type == IBV_QPT_UD ? 40 : 0;
	enum ibv_wc_opcode opcode =
		wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	unsigned flags = 0;

	if (!takes_receive(wr) || wr->delivered || wr->outcome == OUT_NOT || wr->outcome == OUT_FAIL)
		return false;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= IBV_WC_WITH_IMM;
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		flags |= IBV_WC_WITH_INV;
	if (wr->grh)
		flags |= IBV_WC_GRH;
	return wc->opcode == opcode && wc->byte_len == wr->len + extra && wc->wc_flags == flags &&
	       (!(flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) || wc->imm_data == wr->imm);
}

/* The next message of a reliable flow: nothing is left out. Of XRC the next one to that SRQ (-1: to any). */
static struct m_wr *next_message(struct m_flow *flow, int srq)
{
	for (size_t i = flow->deliver; i < flow->n; i++) {
		struct m_wr *wr = flow->at[i];

		if (srq >= 0 && wr->srq >= 0 && wr->srq != srq)
			continue;
		if (takes_receive(wr) && !wr->delivered && wr->outcome != OUT_NOT && wr->outcome != OUT_FAIL)
			return wr;
	}
	return NULL;
}

static struct m_wr *match_in_order(struct model *m, struct m_flow *flow, const struct m_recv *recv, const struct ibv_wc *wc)
{
	struct m_wr *wr = next_message(flow, recv->srq);

	if (!wr || !could_be(wr, wc)) {
		wrong(m, "message", "receive %u: no message of %u bytes, opcode %d, flags 0x%x, imm 0x%x is due; wr %d is",
			recv->id, wc->byte_len, wc->opcode, wc->wc_flags, wc->imm_data, wr ? (int)wr->id : -1);
		return NULL;
	}
	return wr;
}

/* The first message that it can be; those before it are lost. */
static struct m_wr *match_any(struct model *m, struct m_flow *flow, int dst, const struct ibv_wc *wc)
{
	for (size_t i = flow->deliver; i < flow->n; i++) {
		struct m_wr *wr = flow->at[i];

		if ((dst < 0 || wr->dst == dst) && (!wr->parent || multicast_reaches(m, wr) != NO) && could_be(wr, wc) && !wr->lost)
			return wr;
	}
	return NULL;
}

static void lost_before(struct m_wr *wr)
{
	for (size_t i = wr->flow->deliver; i < wr->index; i++) {
		struct m_wr *before = wr->flow->at[i];

		if (takes_receive(before) && !before->delivered && before->dst == wr->dst)
			before->lost = wr;
	}
}

static struct m_wr *match_datagram(struct model *m, const struct m_qp *to, const struct m_recv *recv,
	const struct ibv_wc *wc)
{
	int dst = (int)(to - m->qps);

	for (struct m_flow *flow = m->flows; flow; flow = flow->next) {
		const struct m_qp *qp = flow_qp(m, flow);
		struct m_wr *wr;

		if (flow->type != IBV_QPT_UD || qp->number != wc->src_qp)
			continue;
		wr = match_any(m, flow, dst, wc);
		if (wr) {
			lost_before(wr);
			return wr;
		}
	}
	wrong(m, "message", "receive %u: no datagram of qp 0x%x of %u bytes, flags 0x%x, imm 0x%x is due", recv->id,
		wc->src_qp, wc->byte_len, wc->wc_flags, wc->imm_data);
	return NULL;
}

static struct m_wr *match(struct model *m, struct m_qp *to, const struct m_recv *recv, const struct ibv_wc *wc)
{
	struct m_wr *wr;

	if (to->type == IBV_QPT_UD)
		return match_datagram(m, to, recv, wc);
	if (!to->in) {
		wrong(m, "message", "receive %u: a message, and nobody is connected", recv->id);
		return NULL;
	}
	if (to->type == IBV_QPT_RC)
		return match_in_order(m, to->in, recv, wc);
	wr = match_any(m, to->in, -1, wc);
	if (!wr)
		wrong(m, "message", "receive %u: no message of %u bytes is due", recv->id, wc->byte_len);
	else
		lost_before(wr);
	return wr;
}

/* Completions of several SRQs are read in any order. */
static void deliveries_follow(struct m_flow *flow)
{
	while (flow->deliver < flow->n && (!takes_receive(flow->at[flow->deliver]) || flow->at[flow->deliver]->delivered))
		flow->deliver++;
}

static bool take_message(struct model *m, struct m_qp *to, struct m_recv *recv, const struct ibv_wc *wc)
{
	struct m_wr *wr = match(m, to, recv, wc);

	if (!wr)
		return false;
	wr->delivered = true;
	/* It may have arrived in an earlier batch: what was stored there since then is not below it. */
	if (to->type != IBV_QPT_RC && wr->seq < m->batch_start)
		wr->unsure = true;
	if (wr->parent)
		coverage_touched(TOUCHED_GROUP, m->qps[wr->flow->qp].worker != to->worker);
	if (wr->outcome == OUT_OK) /* it was sent in an earlier batch, maybe */
		wr->resolved_at = m->batch;
	wr->recv = recv;
	recv->wr = wr;
	recv->state = RECV_TAKEN;
	if (to->xrc)
		deliveries_follow(wr->flow);
	else if (to->type != IBV_QPT_UD)
		wr->flow->deliver = wr->index + 1;
	return true;
}

/* Of an XRC receive QP that was reset or destroyed: its completions stay on the SRQ's CQ, and whose they were is forgotten. */
static bool is_of_before(const struct m_qp *to)
{
	return to->xrc && (!to->in || to->lives || !to->live);
}

/* The receive was at fault. Of a reliable QP it is known for which message. */
static bool take_failure(struct model *m, struct m_qp *to, struct m_recv *recv, const struct ibv_wc *wc)
{
	struct m_wr *wr = to->type == IBV_QPT_RC && to->in ? next_message(to->in, recv->srq) : NULL;

	/* Its own completion may have been read already. */
	for (size_t i = to->in && !wr ? to->in->deliver : 0; to->in && to->type == IBV_QPT_RC && i < to->in->n; i++) {
		if (to->in->at[i]->outcome == OUT_FAIL && takes_receive(to->in->at[i]) &&
			(!to->xrc || to->in->at[i]->srq == recv->srq))
			wr = to->in->at[i];
	}
	recv->state = RECV_FAILED;
	to->excused = true;
	if (to->type != IBV_QPT_RC)
		return true;
	if (!wr && is_of_before(to))
		return true;
	if (!wr)
		return wrong(m, "status", "receive %u ended with status %d, and no message is due", recv->id, wc->status);
	wr->recv = recv;
	recv->wr = wr;
	if (!(wr_verdict(m, wr).recv & STATUS(wc->status)))
		return wrong(m, "status", "receive %u ended with status %d for wr %u", recv->id, wc->status, wr->id);
	return true;
}

static bool recv_is_at_home(const struct model *m, const struct m_recv *recv, const struct m_qp *to, uint32_t cq)
{
	if (to->xrc)
		return cq == (uint32_t)m->srqs[recv->srq].cq &&
		       m->xrcds[m->srqs[recv->srq].xrcd].domain == m->xrcds[to->xrcd].domain;
	return cq == (uint32_t)to->recv_cq && (recv->qp >= 0 ? recv->qp == (int)(to - m->qps) : recv->srq == to->srq);
}

static bool is_next(const struct m_qp *to, const struct m_recv *recv, const struct ibv_wc *wc)
{
	const struct m_wr *wr = to->in ? next_message(to->in, recv->srq) : NULL;

	return wr && could_be(wr, wc);
}

static bool take_recv(struct model *m, unsigned worker, const struct wc_seen *seen)
{
	const struct ibv_wc *wc = &seen->wc;
	uint64_t id = wc->wr_id & ~(uint64_t)RECV_ID;
	bool xrc = id < m->n_recvs && m->recvs[id]->srq >= 0 && m->srqs[m->recvs[id]->srq].xrcd >= 0;
	struct m_qp *to = xrc ? xrc_numbered(m, wc->qp_num) : qp_numbered(m, worker, wc->qp_num);

	if (id >= m->n_recvs || !to || (!to->live && !xrc))
		return wrong(m, "stray", "a completion of receive %llu on qp 0x%x", (unsigned long long)id, wc->qp_num);
	struct m_recv *recv = m->recvs[id];
	struct m_queue *queue = recv->qp < 0 ? &m->srqs[recv->srq].queue : &m->qps[recv->qp].rq;

	if (recv->state != RECV_POSTED)
		return wrong(m, "stray", "receive %u completed (status %d) in state %d", recv->id, wc->status, recv->state);
	if (!recv_is_at_home(m, recv, to, seen->cq))
		return wrong(m, "stray", "receive %u completed on cq %u as of qp 0x%x", recv->id, seen->cq, wc->qp_num);
	if (!recv_turn(m, recv, queue))
		return false;
	coverage_receive(wc->status);
	recv->resolved_at = m->batch;
	recv->status = wc->status;
	recv->life = to->out;
	if (is_of_before(to) && wc->status == IBV_WC_SUCCESS && !is_next(to, recv, wc)) {
		recv->state = RECV_FAILED;
		cq_saw(m, seen->cq, MAYBE);
		return true;
	}
	if (wc->status == IBV_WC_SUCCESS) {
		if (!take_message(m, to, recv, wc))
			return false;
		cq_saw(m, seen->cq, recv->wr->solicited ? YES : NO);
		return true;
	}
	cq_saw(m, seen->cq, YES);
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		recv->state = RECV_FLUSHED;
		to->flushed = true;
		return true;
	}
	return take_failure(m, to, recv, wc);
}

bool ingest_completions(struct model *m)
{
	for (size_t i = 0; i < m->n_wcs && !m->failed; i++) {
		const struct wc_seen *seen = &m->wcs[i];

		if (seen->wc.wr_id & RECV_ID)
			take_recv(m, m->cqs[seen->cq].worker, seen);
		else
			take_send(m, seen);
	}
	m->n_wcs = 0;
	return !m->failed;
}

/* --- the end of a life --- */

static void receives_gone(struct model *m, struct m_qp *qp)
{
	for (size_t i = qp->rq.head; i < qp->rq.n; i++) {
		struct m_recv *recv = qp->rq.at[i];

		if (recv->state != RECV_POSTED)
			continue;
		recv->state = RECV_GONE;
		recv->resolved_at = m->batch;
		recv->life = qp->out;
		if (m->cqs[qp->recv_cq].due)
			m->cqs[qp->recv_cq].due--;
	}
	qp->rq.head = qp->rq.n;
	qp->rq.unread = 0;
}

static void srq_loss(struct model *m, const struct m_wr *wr)
{
	int srq = wr_srq(m, wr);

	if (srq >= 0)
		m->srqs[srq].lost++;
}

/* Messages that took a receive of the SRQ, whose completion went with the QP. */
static void srq_losses(struct model *m, struct m_qp *qp)
{
	struct m_flow *in = qp->in;

	if (qp->srq < 0 && qp->xrc != XRC_RECV)
		return;
	if (qp->type == IBV_QPT_UD) {
		m->srqs[qp->srq].lost += 1000; /* nobody knows how many */
		return;
	}
	for (size_t i = in ? in->deliver : 0; in && i < in->n; i++) {
		const struct m_wr *wr = in->at[i];

		if (!takes_receive(wr) || wr->delivered || wr->outcome == OUT_NOT)
			continue;
		if (wr_active(m, wr) && wr->posted)
			srq_loss(m, wr);
		else if (wr_srq(m, wr) >= 0)
			m->srqs[wr_srq(m, wr)].begun++;
	}
}

void flow_close(struct model *m, struct m_qp *qp)
{
	struct m_flow *flow = qp->out;

	qp->established_late |= may_be_established_late(qp);
	srq_losses(m, qp);
	receives_gone(m, qp);
	for (size_t i = flow->done; i < flow->n; i++) {
		if (flow->at[i]->outcome == OUT_NONE) {
			if (!flow->at[i]->parent && m->cqs[qp->send_cq].due)
				m->cqs[qp->send_cq].due--;
			wr_resolve(m, flow->at[i], OUT_GONE, IBV_WC_WR_FLUSH_ERR);
		}
	}
	flow->done = flow->n;
	flow->closed = true;
	flow->closed_at = m->batch;
	flow->linked = false;
	flow->unlinked_at = m->seq;
	if (flow->back) {
		flow->back->linked = false;
		flow->back->unlinked_at = m->seq;
	}
	qp->in = NULL;
	/* Completions that were dropped may have fired. */
	m->cqs[qp->send_cq].maybe_fired |= m->cqs[qp->send_cq].armed != UNARMED;
	m->cqs[qp->recv_cq].maybe_fired |= m->cqs[qp->recv_cq].armed != UNARMED;
}
