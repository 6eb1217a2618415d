/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a WR did to memory, judged by how it ended, and the list of all accesses of a batch.
 */
#include "tests/random/model.h"

bool wr_active(const struct model *m, const struct m_wr *wr)
{
	if (wr->outcome == OUT_NOT)
		return false;
	return wr->outcome == OUT_NONE || wr->resolved_at == m->batch;
}

/* --- effects --- */

static bool refused_by_peer(enum ibv_wc_status status)
{
	return STATUS(status) & (REFUSALS | STATUS(IBV_WC_RNR_RETRY_EXC_ERR));
}

/*
 * Behind a WR that failed nothing happens; but where only the connection ended, or a response found no memory, things
 * were on their way.
 */
static enum effect behind(const struct m_wr *wr)
{
	const struct m_flow *flow = wr->flow;
	const struct m_wr *failed = flow->failed_wr;

	/*
	 * What needs no peer does not wait until the peer has answered what is in front of it; which may be repeated then, and
	 * its memory not be there any more.
	 */
	if (is_local(wr) && (refused_by_peer(flow->failure) || flow->failure == IBV_WC_LOC_PROT_ERR))
		return EFFECT_MAYBE;
	if (!flow->failure || flow->failure == IBV_WC_RETRY_EXC_ERR || failed->index < flow->revived)
		return EFFECT_MAYBE;
	return flow->failure == IBV_WC_LOC_PROT_ERR && (failed->opcode == IBV_WR_RDMA_READ || is_atomic(failed))
		       ? EFFECT_MAYBE
		       : EFFECT_NONE;
}

static enum effect failed_effect(struct model *m, struct m_wr *wr)
{
	switch (wr->status) {
	case IBV_WC_RETRY_EXC_ERR:
		return flow_linked(m, wr->flow, wr->seq) == NO ? EFFECT_NONE : EFFECT_MAYBE;
	case IBV_WC_LOC_PROT_ERR: /* of a key that went while the message did */
		/* What a response stores before it comes to the wrong key is there. */
		if ((wr->opcode == IBV_WR_RDMA_READ && wr->n_sge > 1) || pages_matter(wr))
			return EFFECT_MAYBE;
		return sges_allow(m, flow_qp(m, wr->flow)->worker, flow_qp(m, wr->flow)->pd, wr->sge, wr->n_sge, 0, wr->len,
			       is_write(wr) || takes_receive(wr) ? 0 : IBV_ACCESS_LOCAL_WRITE, wr->seq) == NO
			       ? EFFECT_NONE
			       : EFFECT_MAYBE;
	case IBV_WC_REM_ACCESS_ERR: {
		struct verdict v = wr_verdict(m, wr);

		return v.mask & STATUS(IBV_WC_SUCCESS) || wr->opcode == IBV_WR_SEND_WITH_INV || pages_matter(wr) ? EFFECT_MAYBE
											     : EFFECT_NONE;
	}
	case IBV_WC_REM_OP_ERR:
		return EFFECT_MAYBE;
	case IBV_WC_REM_INV_REQ_ERR: /* of an SRQ that went in the middle of it */
		return wr_srq_went(m, wr) ? EFFECT_MAYBE : EFFECT_NONE;
	default:
		return EFFECT_NONE;
	}
}

static enum tri uc_remote(struct model *m, struct m_wr *wr)
{
	const struct m_qp *peer = &m->qps[wr->flow->peer];
	enum tri linked = flow_linked(m, wr->flow, wr->seq);
	struct use use = {
		.worker = peer->worker,
		.seq = wr->seq,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.pd = peer->pd,
		.key = wr->rkey,
		.addr = wr->raddr,
		.len = wr->len,
		.qp = wr->flow->peer,
	};

	if (linked == NO)
		return NO;
	if (wr->flow->back->closed || one_before_may_fail_peer(m, wr))
		return MAYBE;
	return tri_and(linked, wr->flow->access & IBV_ACCESS_REMOTE_WRITE ? key_allows(m, &use) : NO);
}

/* An unreliable WR has ended when it was sent; whether it arrived is another matter. */
static enum effect unreliable_effect(struct model *m, struct m_wr *wr)
{
	if (is_local(wr))
		return EFFECT_DONE;
	if (wr->group)
		return EFFECT_NONE;
	if (takes_receive(wr) && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		return EFFECT_NONE;
	if (wr->flow->wrecked)
		return EFFECT_MAYBE;
	if (takes_receive(wr))
		return uc_remote(m, wr) != NO || pages_matter(wr) ? EFFECT_MAYBE : EFFECT_NONE;
	switch (uc_remote(m, wr)) {
	case NO:
		return pages_matter(wr) ? EFFECT_MAYBE : EFFECT_NONE;
	case MAYBE:
		return EFFECT_MAYBE;
	case YES:
		break;
	}
	return EFFECT_DONE;
}

/* Whether something in front of it waits, so that it has not begun. */
static bool waits(struct model *m, struct m_wr *wr)
{
	const struct m_flow *flow = wr->flow;
	const struct m_qp *qp = flow_qp(m, flow);

	if (!flow->closed && qp->state == IBV_QPS_SQD && wr->index >= flow->sqd)
		return true;
	for (size_t i = flow->done; i <= wr->index; i++) {
		struct verdict v;

		if (flow->at[i]->outcome != OUT_NONE)
			continue;
		v = wr_verdict(m, flow->at[i]);
		if (v.blocked && !(v.mask & STATUS(IBV_WC_SUCCESS)))
			return true;
	}
	return false;
}

/* It neither fails nor waits, for receives that others may have taken. */
static bool surely_succeeds(struct model *m, struct m_wr *wr)
{
	struct verdict v = wr_verdict(m, wr);

	return v.mask == STATUS(IBV_WC_SUCCESS) && !v.blocked;
}

static bool all_before_succeed(struct model *m, const struct m_wr *wr)
{
	const struct m_flow *flow = wr->flow;

	for (size_t i = flow->done; i < wr->index; i++) {
		if (flow->at[i]->outcome == OUT_NONE && !surely_succeeds(m, flow->at[i]))
			return false;
	}
	return true;
}

/* What its peer has sent may bring its QP into error first. */
static bool may_be_flushed(struct model *m, const struct m_wr *wr)
{
	const struct m_flow *in = wr->flow->type == IBV_QPT_RC ? wr->flow->back : NULL;

	for (size_t i = in ? in->done : 0; in && i < in->n; i++) {
		if (in->at[i]->outcome == OUT_NONE && wr_verdict(m, in->at[i]).mask & REFUSALS)
			return true;
	}
	return false;
}

static enum effect pending_effect(struct model *m, struct m_wr *wr)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);

	if (waits(m, wr))
		return EFFECT_NONE;
	if (qp->state == IBV_QPS_SQD || qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		return EFFECT_MAYBE;
	if (surely_succeeds(m, wr) && all_before_succeed(m, wr) && !may_be_flushed(m, wr))
		return qp->type == IBV_QPT_RC ? EFFECT_DONE : unreliable_effect(m, wr);
	return wr_verdict(m, wr).mask & STATUS(IBV_WC_SUCCESS) ? EFFECT_MAYBE : EFFECT_NONE;
}

enum effect wr_effect_now(struct model *m, struct m_wr *wr)
{
	enum effect effect = wr_effect(m, wr);

	return effect == EFFECT_DONE && wr->unsure ? EFFECT_MAYBE : effect;
}

enum effect wr_effect(struct model *m, struct m_wr *wr)
{
	if (wr->delivered)
		return EFFECT_DONE;
	if (wr->flow->wrecked && wr->outcome != OUT_NOT && wr->outcome != OUT_OK)
		return EFFECT_MAYBE;
	switch (wr->outcome) {
	case OUT_OK:
		return wr->flow->type == IBV_QPT_RC ? EFFECT_DONE : unreliable_effect(m, wr);
	case OUT_FAIL:
		return failed_effect(m, wr);
	case OUT_FLUSH:
	case OUT_GONE:
		return behind(wr);
	case OUT_NONE:
		return pending_effect(m, wr);
	case OUT_NOT:
		break;
	}
	return EFFECT_NONE;
}

/* --- accesses --- */

static void add(struct model *m, struct m_access access, int64_t off, uint64_t len)
{
	if (off < 0 || off >= SPACE || !len)
		return;
	access.threads = m->worker[access.worker].threads;
	access.lo = (uint32_t)off;
	access.hi = len > SPACE - (uint64_t)off ? SPACE : (uint32_t)(off + (int64_t)len);
	m->accesses = grown(m->accesses, m->n_accesses, &m->accesses_room, sizeof(*m->accesses));
	m->accesses[m->n_accesses++] = access;
}

static void add_sges(struct model *m, struct m_access access, const struct m_sge *sge, unsigned n, uint64_t skip,
	uint64_t len)
{
	for (unsigned i = 0; i < n && len; i++) {
		if (skip >= sge[i].len) {
			skip -= sge[i].len;
			continue;
		}
		uint64_t piece = sge[i].len - skip < len ? sge[i].len - skip : len;

		access.mr = sge[i].mr;
		add(m, access, sge[i].off + (int64_t)skip, piece);
		len -= piece;
		skip = 0;
	}
}

/* The requester's memory. What it sends is read even if nothing of it arrives. */
static void local_side(struct model *m, struct m_wr *wr, enum effect effect)
{
	bool response = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr);
	struct m_access access = {
		.wr = wr,
		.worker = flow_qp(m, wr->flow)->worker,
		.seq = wr->seq,
		.write = response,
		.maybe = effect == EFFECT_MAYBE,
		.old = wr->applied,
		.life = wr->flow,
	};

	if (is_local(wr) || wr->payload || (response && effect == EFFECT_NONE))
		return;
	add_sges(m, access, wr->sge, wr->n_sge, 0, wr->len);
}

static void target(struct model *m, struct m_wr *wr, enum effect effect)
{
	const struct m_mr *mr = key_mr(m, wr_worker(m, wr), wr->rkey);
	struct m_access access = {
		.wr = wr,
		.worker = wr_worker(m, wr),
		.seq = wr->seq,
		.write = wr->opcode != IBV_WR_RDMA_READ,
		.remote = true,
		.atomic = is_word(wr),
		.maybe = effect == EFFECT_MAYBE,
		.old = wr->applied,
		.mr = mr ? (int)(mr - m->mrs) : -1,
		.life = wr->flow->back,
	};

	add(m, access, wr->target, wr->len);
}

static void receive(struct model *m, struct m_wr *wr)
{
	const struct m_recv *recv = wr->recv;
	int peer = wr->flow->type == IBV_QPT_UD ? wr->dst : wr->flow->peer;
	uint64_t len = wr->flow->type == IBV_QPT_UD ? wr->len + 40 : wr->len;
	struct m_access access = {
		.wr = wr,
		.worker = recv->qp < 0 ? m->srqs[recv->srq].worker : m->qps[recv->qp].worker,
		.seq = wr->seq > recv->seq ? wr->seq : recv->seq,
		.write = true,
		.remote = true,
		.maybe = recv->state != RECV_TAKEN || wr->unsure,
		.old = wr->applied,
		.life = wr->flow->type == IBV_QPT_UD ? m->qps[peer].out : wr->flow->back,
	};
	uint64_t skip = wr->flow->type == IBV_QPT_UD && !wr->grh ? 40 : 0;

	add_sges(m, access, recv->sge, recv->n_sge, skip, len - skip);
}

/* Receives that ended without a message may have been begun by one. */
static void receive_left(struct model *m, const struct m_recv *recv)
{
	struct m_access access = {
		.worker = recv->qp < 0 ? m->srqs[recv->srq].worker : m->qps[recv->qp].worker,
		.seq = recv->seq,
		.write = true,
		.remote = true,
		.maybe = true,
		.life = recv->life,
	};

	add_sges(m, access, recv->sge, recv->n_sge, 0, UINT64_MAX);
}

/* A message may be on its way into the receive that is its. */
static void receive_begun(struct model *m, struct m_wr *wr)
{
	const struct m_qp *peer = &m->qps[wr->flow->peer];
	struct m_queue *queue = wr_queue(m, wr);
	const struct m_recv *recv = wr_srq(m, wr) < 0 && peer->xrc == XRC_NOT && peer->in == wr->flow ? wr_receive(m, wr) : NULL;

	if (recv)
		receive_left(m, recv);
	for (size_t i = queue->head; i < queue->n && !recv; i++) {
		if (queue->at[i]->state == RECV_POSTED)
			receive_left(m, queue->at[i]);
	}
}

static void wr_accesses(struct model *m, struct m_wr *wr)
{
	enum effect effect = wr_effect_now(m, wr);

	local_side(m, wr, effect);
	if (is_local(wr))
		return;
	if (effect != EFFECT_NONE && wr->flow->peer >= 0 &&
		(is_write(wr) || wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr)))
		target(m, wr, effect);
	if (wr->recv && !is_write(wr))
		receive(m, wr);
	else if (takes_receive(wr) && !is_write(wr) && effect == EFFECT_MAYBE && wr->flow->peer >= 0)
		receive_begun(m, wr);
}

/* By a message that nobody will tell of, or not yet. */
static bool may_be_taken(struct model *m, const struct m_recv *recv, const struct m_queue *queue)
{
	if (recv->srq >= 0)
		return m->srqs[recv->srq].lost || unreliable_demand(m, queue);
	if (m->qps[recv->qp].out->wrecked)
		return true;
	return m->qps[recv->qp].type != IBV_QPT_RC && unreliable_demand(m, queue);
}

static void receives_left(struct model *m)
{
	const struct m_queue *flushed = NULL;

	for (size_t i = 0; i < m->n_recvs; i++) {
		const struct m_recv *recv = m->recvs[i];
		struct m_queue *queue = recv->qp < 0 ? &m->srqs[recv->srq].queue : &m->qps[recv->qp].rq;

		if (recv->state == RECV_FAILED && recv->resolved_at == m->batch && !recv->wr)
			receive_left(m, recv);
		else if (recv->state == RECV_GONE && recv->resolved_at == m->batch)
			receive_left(m, recv);
		else if (recv->state == RECV_POSTED && may_be_taken(m, recv, queue))
			receive_left(m, recv);
		else if (recv->state == RECV_FLUSHED && recv->resolved_at == m->batch && queue != flushed)
			receive_left(m, recv), flushed = queue;
	}
}

void accesses_collect(struct model *m)
{
	m->n_accesses = 0;
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (wr_active(m, m->wrs[i]))
			wr_accesses(m, m->wrs[i]);
		else if (m->wrs[i]->adrift && (is_write(m->wrs[i]) || is_atomic(m->wrs[i])))
			target(m, m->wrs[i], EFFECT_MAYBE);
	}
	receives_left(m);
}
