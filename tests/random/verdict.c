/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may become of a work request: a set of statuses. Checks are taken in the order in which the two ends make them:
 * the first that certainly fails decides, one that may fail adds its status.
 */
#include "tests/random/model.h"

enum tri flow_linked(struct model *m, const struct m_flow *flow, unsigned seq)
{
	const struct m_qp *peer = flow->peer < 0 ? NULL : &m->qps[flow->peer];

	if (!peer || flow->wrong_psn)
		return NO;
	if (!flow->linked) {
		if (flow->unlinked_at > m->batch_start && seq < flow->unlinked_at)
			return MAYBE;
		return NO;
	}
	/* It may have failed, at some time in this batch. */
	if (peer->failing || peer->state == IBV_QPS_ERR)
		return MAYBE;
	return YES;
}

/* Adds the outcome of one check; false: it certainly failed, nothing behind it counts. */
static bool check(struct verdict *v, enum tri result, enum ibv_wc_status status)
{
	if (result != YES)
		v->mask |= STATUS(status);
	return result != NO;
}

/* --- the requester's own --- */

static enum tri may_be(bool now, bool unsure)
{
	return unsure ? MAYBE : now ? YES : NO;
}

static enum tri bind_allowed(struct model *m, const struct m_wr *wr, const struct m_qp *qp)
{
	const struct m_mw *mw = &m->mws[wr->mw];
	const struct m_mr *mr = &m->mrs[wr->mr];
	unsigned access = (unsigned)wr->swap;
	bool unbinds = !wr->compare;
	bool unsure = mw->wild || mw->touched > m->batch_start, now;
	struct use use = {
		.worker = qp->worker,
		.seq = wr->seq,
		.access = IBV_ACCESS_MW_BIND,
		.pd = mw->pd,
		.key = mr->key,
		.addr = wr->raddr,
		.len = wr->compare,
		.qp = -1,
		.bind = true,
	};

	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
		use.access |= IBV_ACCESS_LOCAL_WRITE;
	if (m->pds[qp->pd].base != m->pds[mw->pd].base || wr->rkey >> 8 != mw->rkey >> 8)
		return NO;
	if (mw->type == IBV_MW_TYPE_2 && unbinds)
		return NO;
	now = mw->type == IBV_MW_TYPE_1 || !mw->bound;
	/* Nobody else touched it but this WR itself. */
	if (!window_is_shared(m, mw, wr))
		unsure = mw->wild || mw->freed_at > m->batch_start;
	if (mw->type == IBV_MW_TYPE_1)
		unsure = mw->freed_at > m->batch_start;
	return unbinds ? may_be(now, unsure) : tri_and(may_be(now, unsure), key_allows(m, &use));
}

/* Whether the window that the WR names can be invalidated through @qp. It stays bound through it when the QP is reset. */
static enum tri invalidate_allowed(struct model *m, const struct m_wr *wr, unsigned worker, int qp)
{
	const struct m_mw *mw = key_mw(m, worker, wr->imm);

	if (!mw || mw->type != IBV_MW_TYPE_2)
		return NO;
	if (mw->wild || mw->freed_at > m->batch_start || window_is_shared(m, mw, wr))
		return MAYBE;
	return mw->live && mw->bound && mw->bound_key == wr->imm && mw->qp == qp ? YES : NO;
}

static bool local_checks(struct model *m, struct m_wr *wr, struct verdict *v)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);
	unsigned access = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (takes_resources(wr) && !wr->flow->rd && !check(v, NO, IBV_WC_LOC_QP_OP_ERR))
		return false;
	if (wr->inlined)
		return true;
	return check(v, sges_allow(m, qp->worker, qp->pd, wr->sge, wr->n_sge, 0, wr->len, access, wr->seq),
		IBV_WC_LOC_PROT_ERR);
}

/* --- the responder's --- */

static enum tri remote_allowed(struct model *m, const struct m_wr *wr, unsigned access)
{
	struct use use = {
		.worker = wr_worker(m, wr),
		.seq = wr->seq,
		.access = access,
		.pd = wr_pd(m, wr),
		.key = wr->rkey,
		.addr = wr->raddr,
		.len = wr->len,
		.qp = wr->flow->peer,
	};

	if (!(wr->flow->access & access))
		return NO;
	return wr->len ? key_allows(m, &use) : YES;
}

struct m_recv *wr_receive(struct model *m, struct m_wr *wr)
{
	const struct m_flow *flow = wr->flow;
	struct m_queue *queue = &m->qps[flow->peer].rq;
	size_t before = 0;

	if (wr->recv)
		return wr->recv;
	for (size_t i = flow->deliver; i < wr->index; i++)
		before += takes_receive(flow->at[i]) && !flow->at[i]->delivered && flow->at[i]->outcome != OUT_NOT;
	for (size_t at = queue->head; at < queue->n; at++) {
		if (queue->at[at]->state == RECV_POSTED && !before--)
			return queue->at[at];
	}
	return NULL;
}

/* A message that may still take a receive from that queue. */
static bool demands(struct model *m, const struct m_wr *wr, const struct m_queue *queue)
{
	bool datagram = wr->flow->type == IBV_QPT_UD;
	int peer = datagram ? wr->dst : wr->flow->peer;

	if (!takes_receive(wr) || wr->delivered || wr->lost || wr->outcome == OUT_NOT || peer < 0 ||
		(datagram ? qp_queue(m, &m->qps[peer]) : wr_queue(m, wr)) != queue || (!datagram && m->qps[peer].in != wr->flow))
		return false;
	if (wr->parent && multicast_reaches(m, wr) == NO)
		return false;
	/* A reliable one that ended took what it took; others may be on their way for a while. */
	if (wr->flow->type == IBV_QPT_RC)
		return wr_active(m, wr);
	return true;
}

size_t queue_demand(struct model *m, const struct m_queue *queue)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_wrs; i++)
		n += demands(m, m->wrs[i], queue);
	return n;
}

bool unreliable_demand(struct model *m, const struct m_queue *queue)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (m->wrs[i]->flow->type != IBV_QPT_RC && demands(m, m->wrs[i], queue))
			return true;
	}
	return false;
}

static bool fits(const struct m_recv *recv, uint64_t len)
{
	uint64_t room = 0;

	for (unsigned i = 0; i < recv->n_sge; i++)
		room += recv->sge[i].len;
	return room >= len;
}

static bool receive_checks(struct model *m, const struct m_wr *wr, const struct m_qp *peer, const struct m_recv *recv,
	struct verdict *v)
{
	unsigned seq = wr->seq > recv->seq ? wr->seq : recv->seq;
	uint64_t header = wr->flow->type == IBV_QPT_UD ? 40 : 0;
	enum tri keys;

	if (!fits(recv, wr->len + header)) {
		v->recv |= STATUS(IBV_WC_LOC_LEN_ERR);
		v->mask |= STATUS(IBV_WC_REM_INV_REQ_ERR);
		return false;
	}
	/* A receive of an SRQ is of the SRQ's PD. */
	keys = sges_allow(m, recv->srq < 0 ? peer->worker : m->srqs[recv->srq].worker, recv->srq < 0 ? peer->pd : m->srqs[recv->srq].pd, recv->sge,
		recv->n_sge, header && !wr->grh ? header : 0, wr->len + (wr->grh ? header : 0), IBV_ACCESS_LOCAL_WRITE, seq);
	if (keys != YES)
		v->recv |= STATUS(IBV_WC_LOC_PROT_ERR);
	return check(v, keys, IBV_WC_REM_OP_ERR);
}

/* The receive was posted before the message was. */
bool surely_there(struct model *m, const struct m_wr *wr, const struct m_recv *recv)
{
	unsigned worker = recv->qp < 0 ? m->srqs[recv->srq].worker : m->qps[recv->qp].worker;

	return (recv->posted_at && recv->posted_at < wr->seq) ||
	       (worker == flow_qp(m, wr->flow)->worker && !m->worker[worker].threads && recv->seq < wr->seq);
}

/* Whether an SRQ had a receive for every message of this batch, whatever order they came in. */
static bool srq_has_enough(struct model *m, const struct m_wr *wr, const struct m_queue *queue)
{
	size_t supply = 0, demand = queue_demand(m, queue);

	for (size_t i = 0; i < queue->n; i++) {
		const struct m_recv *recv = queue->at[i];

		if (recv->state == RECV_POSTED || (recv->state == RECV_TAKEN && recv->resolved_at == m->batch))
			supply += surely_there(m, wr, recv);
		demand += recv->state == RECV_TAKEN && recv->resolved_at == m->batch;
	}
	return supply >= demand;
}

/* An SRQ's receives are taken by whoever comes first: any of them may be this message's. */
static bool srq_checks(struct model *m, struct m_wr *wr, const struct m_qp *peer, struct verdict *v)
{
	const struct m_srq *srq = &m->srqs[wr_srq(m, wr)];
	const struct m_queue *queue = &srq->queue;
	size_t posted = queue_waiting(queue);
	bool any = false;

	if (wr->recv)
		return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || receive_checks(m, wr, peer, wr->recv, v);
	for (size_t i = 0; i < queue->n; i++) {
		const struct m_recv *recv = queue->at[i];

		/* What others took does not wait for this one any more. */
		if (recv->state != RECV_POSTED && (wr->outcome == OUT_NONE || recv->resolved_at != m->batch))
			continue;
		any |= wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || receive_checks(m, wr, peer, recv, v);
	}
	if (srq->lost || !srq_has_enough(m, wr, queue)) {
		v->blocked |= wr->flow->rnr_retry == 7 && posted <= srq->lost;
		if (wr->flow->rnr_retry != 7)
			v->mask |= STATUS(IBV_WC_RNR_RETRY_EXC_ERR);
	}
	return any;
}

static bool rq_checks(struct model *m, struct m_wr *wr, const struct m_qp *peer, struct verdict *v)
{
	const struct m_flow *flow = wr->flow;
	struct m_recv *recv = wr_receive(m, wr);

	if (!recv) {
		v->blocked |= flow->rnr_retry == 7;
		if (flow->rnr_retry != 7)
			v->mask |= STATUS(IBV_WC_RNR_RETRY_EXC_ERR);
		return false;
	}
	if (!surely_there(m, wr, recv) && flow->rnr_retry != 7)
		v->mask |= STATUS(IBV_WC_RNR_RETRY_EXC_ERR);
	return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || receive_checks(m, wr, peer, recv, v);
}

/* A word's address is a multiple of eight. */
static bool word_is_even(const struct m_wr *wr, struct verdict *v)
{
	return !is_word(wr) || check(v, may_be(!(wr->raddr & 7), false), IBV_WC_REM_INV_REQ_ERR);
}

/* And so is the place that a region or window of addresses of its own gives it. */
static bool place_is_even(const struct m_wr *wr, struct verdict *v)
{
	return !is_word(wr) || wr->target < 0 || check(v, may_be(!(wr->target & 7), false), IBV_WC_REM_INV_REQ_ERR);
}

/* The peer is set up for what needs @access. */
static bool is_supported(const struct m_wr *wr, unsigned access, struct verdict *v)
{
	bool is = wr->flow->access & access && (wr->flow->dest_rd || !takes_resources(wr));

	return check(v, may_be(is, false), IBV_WC_REM_INV_REQ_ERR);
}

static bool write_checks(struct model *m, const struct m_wr *wr, struct verdict *v)
{
	return is_supported(wr, IBV_ACCESS_REMOTE_WRITE, v) && word_is_even(wr, v) &&
	       check(v, remote_allowed(m, wr, IBV_ACCESS_REMOTE_WRITE), IBV_WC_REM_ACCESS_ERR) && place_is_even(wr, v);
}

static bool message_checks(struct model *m, struct m_wr *wr, struct verdict *v)
{
	const struct m_qp *peer = &m->qps[wr->flow->peer];
	bool written = !is_write(wr) || write_checks(m, wr, v);

	/* That a page is not there comes out when it is written to: with the receive that the immediate data waits for. */
	if (!written && !pages_matter(wr))
		return false;
	if (!takes_receive(wr))
		return written;
	if (!(wr_srq(m, wr) < 0 ? rq_checks(m, wr, peer, v) : srq_checks(m, wr, peer, v)) || !written)
		return false;
	if (wr->opcode == IBV_WR_SEND_WITH_INV) {
		enum tri may = invalidate_allowed(m, wr, peer->worker, wr->flow->peer);

		if (may != YES)
			v->recv |= STATUS(IBV_WC_LOC_ACCESS_ERR);
		return check(v, may, IBV_WC_REM_ACCESS_ERR);
	}
	return true;
}

static bool request_checks(struct model *m, struct m_wr *wr, struct verdict *v)
{
	unsigned access = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
	enum tri allowed;

	if (!is_supported(wr, access, v) || !word_is_even(wr, v))
		return false;
	allowed = remote_allowed(m, wr, access);
	return check(v, allowed, IBV_WC_REM_ACCESS_ERR) && place_is_even(wr, v);
}

/* --- all together --- */

/* The peer was reset or destroyed meanwhile: what it was like is forgotten. */
#define ANYTHING                                                                                  \
	(STATUS(IBV_WC_SUCCESS) | STATUS(IBV_WC_RETRY_EXC_ERR) | STATUS(IBV_WC_REM_ACCESS_ERR) |  \
		STATUS(IBV_WC_REM_INV_REQ_ERR) | STATUS(IBV_WC_REM_OP_ERR) |                      \
		STATUS(IBV_WC_RNR_RETRY_EXC_ERR))

static bool unlinked_checks(struct model *m, struct m_wr *wr, struct verdict *v)
{
	enum tri linked = flow_linked(m, wr->flow, wr->seq);

	if (linked == YES)
		return true;
	v->blocked |= !wr->flow->timeout;
	return check(v, linked, IBV_WC_RETRY_EXC_ERR);
}

/* The SRQ that the WR names; one that goes meanwhile may take with it what is in the middle of something. */
static bool xrc_checks(struct model *m, struct m_wr *wr, struct verdict *v)
{
	return check(v, wr_srq_is(m, wr), IBV_WC_REM_INV_REQ_ERR);
}

static void rc_verdict(struct model *m, struct m_wr *wr, struct verdict *v)
{
	if (!unlinked_checks(m, wr, v)) {
		/* A local error may be found first. */
		local_checks(m, wr, v);
		return;
	}
	if (!xrc_checks(m, wr, v)) {
		local_checks(m, wr, v);
		return;
	}
	if (!local_checks(m, wr, v)) {
		/* That a response finds no page comes out when it is there. */
		if (is_response(wr) && pages_matter(wr) && wr->flow->back->closed)
			v->mask |= ANYTHING & ~STATUS(IBV_WC_SUCCESS);
		else if (is_response(wr) && pages_matter(wr))
			request_checks(m, wr, v);
		return;
	}
	if (wr->flow->back->closed || wr_srq_went(m, wr)) {
		v->mask |= ANYTHING;
		return;
	}
	if (is_response(wr) ? request_checks(m, wr, v) : message_checks(m, wr, v))
		v->mask |= STATUS(IBV_WC_SUCCESS);
}

static void uc_verdict(struct model *m, struct m_wr *wr, struct verdict *v)
{
	/* Lost without a look, where nobody is. */
	if (flow_linked(m, wr->flow, wr->seq) != YES)
		v->mask |= STATUS(IBV_WC_SUCCESS);
	if (local_checks(m, wr, v))
		v->mask |= STATUS(IBV_WC_SUCCESS);
}

static void ud_verdict(struct model *m, struct m_wr *wr, struct verdict *v)
{
	if (wr->len > 4096) {
		v->mask = STATUS(IBV_WC_LOC_LEN_ERR);
		return;
	}
	uc_verdict(m, wr, v);
}

struct verdict wr_verdict(struct model *m, struct m_wr *wr)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);
	struct verdict v = { 0 };

	if (wr->opcode == IBV_WR_BIND_MW) {
		if (check(&v, bind_allowed(m, wr, qp), IBV_WC_MW_BIND_ERR))
			v.mask |= STATUS(IBV_WC_SUCCESS);
	} else if (wr->opcode == IBV_WR_LOCAL_INV) {
		if (check(&v, invalidate_allowed(m, wr, qp->worker, wr->flow->qp), IBV_WC_LOC_QP_OP_ERR))
			v.mask |= STATUS(IBV_WC_SUCCESS);
	} else if (qp->type == IBV_QPT_RC) {
		rc_verdict(m, wr, &v);
	} else if (qp->type == IBV_QPT_UC) {
		uc_verdict(m, wr, &v);
	} else {
		ud_verdict(m, wr, &v);
	}
	v.mask |= wr->mask;
	v.recv |= wr->recv_mask;
	if (wr->flow->wrecked) {
		v.mask |= wreck_statuses();
		v.recv |= wreck_statuses();
		v.blocked = true;
	}
	return v;
}

/* Receives that are there for an unreliable message: enough for all that may come first. */
static enum tri receive_waits(struct model *m, struct m_wr *wr, const struct m_qp *to)
{
	struct m_queue *queue = to->srq < 0 ? &m->qps[to - m->qps].rq : &m->srqs[to->srq].queue;
	size_t demand = queue_demand(m, queue), supply = 0;
	enum tri all = YES;

	for (size_t i = queue->head; i < queue->n; i++) {
		struct verdict v = { 0 };

		if (queue->at[i]->state != RECV_POSTED)
			continue;
		supply += surely_there(m, wr, queue->at[i]);
		if (!is_write(wr) && !receive_checks(m, wr, to, queue->at[i], &v))
			all = MAYBE;
	}
	return supply < demand || (to->srq >= 0 && m->srqs[to->srq].lost) ? MAYBE : all;
}

/* Another one behind it took this receive: was it there for the one that was lost? */
static enum tri receive_waited(struct model *m, struct m_wr *wr, const struct m_qp *to)
{
	const struct m_recv *recv = wr->lost->recv;
	struct verdict v = { 0 };

	if (!surely_there(m, wr, recv) || (!is_write(wr) && !receive_checks(m, wr, to, recv, &v)))
		return MAYBE;
	return YES;
}

/* The message finds a receive at fault, or a window that it cannot invalidate. */
static bool may_fail_its_peer(struct model *m, struct m_wr *wr, const struct m_qp *peer)
{
	const struct m_queue *queue = peer->srq < 0 ? &peer->rq : &m->srqs[peer->srq].queue;

	if (!takes_receive(wr) || is_write(wr) || wr->delivered || wr->lost || wr->outcome == OUT_NOT)
		return false;
	if (wr->opcode == IBV_WR_SEND_WITH_INV && invalidate_allowed(m, wr, peer->worker, wr->flow->peer) != YES)
		return true;
	for (size_t i = queue->head; i < queue->n; i++) {
		struct verdict v = { 0 };

		if (queue->at[i]->state != RECV_POSTED)
			continue;
		receive_checks(m, wr, peer, queue->at[i], &v);
		if (v.recv)
			return true;
	}
	return false;
}

bool one_before_may_fail_peer(struct model *m, const struct m_wr *wr)
{
	const struct m_flow *flow = wr->flow;

	for (size_t i = flow->deliver; i < wr->index; i++) {
		if (may_fail_its_peer(m, flow->at[i], &m->qps[flow->peer]))
			return true;
	}
	return false;
}

/* A message of an unreliable QP that ought to arrive. */
enum tri message_arrives(struct model *m, struct m_wr *wr)
{
	bool datagram = wr->flow->type == IBV_QPT_UD;
	enum tri all = datagram ? datagram_heard(m, wr) : flow_linked(m, wr->flow, wr->seq);
	const struct m_qp *to;

	if (all == NO)
		return NO;
	to = &m->qps[datagram ? wr->dst : wr->flow->peer];
	if (!to->live || to->failing || to->out->wrecked || (!datagram && wr->flow->back->closed))
		return MAYBE;
	if (is_write(wr))
		all = tri_and(all, remote_allowed(m, wr, IBV_ACCESS_REMOTE_WRITE));
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		all = tri_and(all, invalidate_allowed(m, wr, to->worker, wr->flow->peer));
	all = tri_and(all, wr->lost ? receive_waited(m, wr, to) : receive_waits(m, wr, to));
	return all == YES && wr->may_be_lost ? MAYBE : all;
}

static enum tri is_heard(struct model *m, const struct m_wr *wr)
{
	const struct m_qp *to = &m->qps[wr->dst];

	if (to->type != IBV_QPT_UD)
		return NO;
	if (!to->live || (to->state_at > m->batch_start && wr->seq < to->state_at) || to->failing)
		return to->live || to->state_at > m->batch_start ? MAYBE : NO;
	if (to->state != IBV_QPS_RTR && to->state != IBV_QPS_RTS && to->state != IBV_QPS_SQD && to->state != IBV_QPS_SQE)
		return NO;
	return to->qkey == wr->qkey ? YES : NO;
}

enum tri datagram_heard(struct model *m, const struct m_wr *wr)
{
	enum tri reached = wr->parent ? multicast_reaches(m, wr) : YES;

	return tri_and(reached, is_heard(m, wr));
}
