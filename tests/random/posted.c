/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What posts return: a full queue, a state in which nothing can be posted, arguments beyond what the QP was made for.
 * Every post of a list before the first bad one counts; of a batch of ibv_wr_*() calls all or none.
 */
#include "tests/random/model.h"

#include <errno.h>

static unsigned chain(const struct m_worker *w, unsigned i, unsigned n)
{
	unsigned k = 1;

	while (i + k < n && cmd_goes_on(&w->cmds[i + k - 1], &w->cmds[i + k]))
		k++;
	return k;
}

/* --- sends --- */

bool opcode_is_legal(const struct m_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_WRITE:
		return wr->flow->type == IBV_QPT_RC;
	default:
		return wr->flow->type != IBV_QPT_UD;
	}
}

/* The errors that a post may return; none: it must succeed. */
struct errors {
	bool invalid, maybe_valid, full, maybe_full, denied;
};

/* The word of an ATOMIC WRITE needs no room of its own. */
static bool fits_queue(const struct m_wr *wr, const struct m_qp *qp)
{
	if (wr->inlined && wr->opcode == IBV_WR_ATOMIC_WRITE)
		return wr->n_sge == 1;
	return wr->inlined ? wr->len <= qp->inline_max : wr->n_sge <= qp->sges;
}

static struct errors send_errors(struct model *m, const struct m_wr *wr)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);
	struct errors errors = {
		.full = wr->flow->posted - wr->flow->freed >= qp->send_wr,
	};
	bool small = fits_queue(wr, qp), cannot = qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR;

	/* Its completions may have been lost, and their places be free. */
	if (wr->flow->wrecked) {
		errors.maybe_full = errors.full;
		errors.full = false;
	}
	/* Polled by another thread meanwhile, before or after. */
	if (m->worker[qp->worker].threads) {
		errors.maybe_full |= wr->flow->posted - wr->flow->freed_before >= qp->send_wr;
		errors.full = false;
	}
	errors.invalid = cannot || !opcode_is_legal(wr) || !small;
	/* Once a message of its peer failed, it is in error, where everything can be posted. */
	errors.maybe_valid = qp->state == IBV_QPS_RTR && qp->in && qp->in->n && opcode_is_legal(wr) && small;
	/* The verb itself wants the same PD, not only the same base. */
	errors.denied = wr->opcode == IBV_WR_BIND_MW && m->mws[wr->mw].type == IBV_MW_TYPE_1 &&
			m->mws[wr->mw].pd != m->mrs[wr->mr].now.pd;
	return errors;
}

static bool is_one_of(struct errors errors, int error)
{
	if (error == 0)
		return (!errors.invalid || errors.maybe_valid) && !errors.full && !errors.denied;
	return (error == EPERM && errors.denied) || (error == EINVAL && errors.invalid) || (error == ENOMEM && (errors.full || errors.maybe_full));
}

static void not_posted(struct model *m, struct m_wr *wr)
{
	struct m_cq *cq = &m->cqs[flow_qp(m, wr->flow)->send_cq];

	wr->outcome = OUT_NOT;
	for (unsigned i = 0; i < wr->n_copies; i++)
		wr->flow->at[wr->index + 1 + i]->outcome = OUT_NOT;
	if (cq->due)
		cq->due--;
}

static void was_posted(struct m_wr *wr, const struct result *result, struct model *m)
{
	wr->posted = true;
	wr->place = wr->flow->posted++;
	if (wr->opcode == IBV_WR_BIND_MW && m->mws[wr->mw].type == IBV_MW_TYPE_1) {
		wr->rkey = result->value[0];
		m->mws[wr->mw].rkey = wr->rkey;
	}
}

static void list_posted(struct model *m, struct m_worker *w, unsigned i, unsigned n)
{
	bool bad = false;

	for (unsigned k = i; k < i + n; k++) {
		struct m_wr *wr = w->wrs[k];
		int error = w->reply.results[k].error;

		if (bad ? error != LINK_NOT_TRIED : !is_one_of(send_errors(m, wr), error))
			wrong(m, "post", "posting wr %u (opcode %u, %u SGEs, %u bytes) returned %d", wr->id, wr->opcode,
				wr->n_sge, (unsigned)wr->len, error);
		bad |= error != 0;
		if (bad)
			not_posted(m, wr);
		else
			was_posted(wr, &w->reply.results[k], m);
	}
}

static void batch_posted(struct model *m, struct m_worker *w, unsigned i, unsigned n)
{
	int error = w->reply.results[i].error;
	size_t before = w->wrs[i]->flow->posted;
	bool explained = error == 0;

	for (unsigned k = i; k < i + n; k++) {
		struct errors errors = send_errors(m, w->wrs[k]);

		if (error)
			explained |= is_one_of(errors, error);
		else
			explained &= is_one_of(errors, 0);
		was_posted(w->wrs[k], &w->reply.results[k], m);
	}
	if (!explained)
		wrong(m, "post", "ibv_wr_complete() for wr %u and %u more returned %d", w->wrs[i]->id, n - 1, error);
	if (!error)
		return;
	w->wrs[i]->flow->posted = before;
	for (unsigned k = i; k < i + n; k++) {
		w->wrs[k]->posted = false;
		not_posted(m, w->wrs[k]);
	}
}

unsigned posted_sends(struct model *m, struct m_worker *w, unsigned i, unsigned n)
{
	unsigned k = chain(w, i, n);
	const struct m_wr *wr = w->wrs[i];

	if (wr->opcode == IBV_WR_BIND_MW && m->mws[wr->mw].type == IBV_MW_TYPE_1)
		k = 1;
	if (flow_qp(m, wr->flow)->ex && k)
		(k == 1 ? list_posted : batch_posted)(m, w, i, k);
	else
		list_posted(m, w, i, k);
	return k;
}

/* --- receives --- */

/* Places of a receive queue are free when a message took the receive, which is seen only later. */
static struct errors recv_errors(struct model *m, const struct m_recv *recv)
{
	const struct m_qp *qp = recv->qp < 0 ? NULL : &m->qps[recv->qp];
	const struct m_srq *srq = qp ? NULL : &m->srqs[recv->srq];
	const struct m_queue *queue = qp ? &qp->rq : &srq->queue;
	unsigned max = qp ? qp->recv_wr : srq->max_wr;
	/* Another thread may have polled before, or behind. */
	struct errors errors = { .maybe_full = queue->unread + (m->worker[qp ? qp->worker : srq->worker].threads ? queue->reads : 0) >= max };

	if (qp)
		errors.invalid = qp->srq >= 0 || qp->state == IBV_QPS_RESET || recv->n_sge > qp->sges;
	else
		errors.invalid = recv->n_sge > srq->max_sge;
	return errors;
}

unsigned posted_recvs(struct model *m, struct m_worker *w, unsigned i, unsigned n)
{
	unsigned k = chain(w, i, n);
	bool bad = false;

	for (unsigned j = i; j < i + k; j++) {
		struct m_recv *recv = w->recvs[j];
		struct m_queue *queue = recv->qp < 0 ? &m->srqs[recv->srq].queue : &m->qps[recv->qp].rq;
		int error = w->reply.results[j].error;

		if (bad ? error != LINK_NOT_TRIED : !is_one_of(recv_errors(m, recv), error))
			wrong(m, "post", "posting receive %u returned %d", recv->id, error);
		bad |= error != 0;
		if (!bad) {
			queue->unread++;
			recv->posted_at = m->seq;
			continue;
		}
		recv->state = RECV_NOT;
		if (recv->qp >= 0 && m->cqs[m->qps[recv->qp].recv_cq].due)
			m->cqs[m->qps[recv->qp].recv_cq].due--;
	}
	return k;
}
