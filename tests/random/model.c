/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects of the model, and how they are found. */
#include "tests/random/model.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool wrong(struct model *m, const char *kind, const char *format, ...)
{
	va_list args;

	if (m->failed)
		return false;
	m->failed = true;
	snprintf(m->kind, sizeof(m->kind), "%s", kind);
	va_start(args, format);
	vsnprintf(m->what, sizeof(m->what), format, args);
	va_end(args);
	return false;
}

void *grown(void *array, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return array;
	*room = *room ? 2 * *room : 64;
	array = realloc(array, *room * size);
	if (!array)
		abort();
	return array;
}

struct model *model_new(unsigned workers)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->workers = workers;
	for (unsigned i = 0; i < workers; i++) {
		m->worker[i].sock = -1;
		memory_init(&m->worker[i].memory);
	}
	m->seq = m->batch = 1;
	return m;
}

static void queue_free(struct m_queue *queue)
{
	free(queue->at);
}

void model_free(struct model *m)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		free(m->wrs[i]->payload);
		free(m->wrs[i]);
	}
	for (size_t i = 0; i < m->n_recvs; i++)
		free(m->recvs[i]);
	for (unsigned i = 0; i < m->tops[OP_QP]; i++)
		queue_free(&m->qps[i].rq);
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++)
		queue_free(&m->srqs[i].queue);
	while (m->flows) {
		struct m_flow *flow = m->flows;

		m->flows = flow->next;
		free(flow->at);
		free(flow);
	}
	for (unsigned i = 0; i < m->workers; i++)
		memory_deinit(&m->worker[i].memory);
	free(m->wrs);
	free(m->recvs);
	free(m->wcs);
	free(m->fills);
	free(m->accesses);
	free(m->atomics);
	free(m->torn.at);
	free(m->blurred.at);
	free(m->flying.at);
	free(m);
}

struct m_wr *wr_new(struct model *m, struct m_flow *flow)
{
	struct m_wr *wr = calloc(1, sizeof(*wr));

	if (!wr)
		abort();
	wr->id = (uint32_t)m->n_wrs;
	wr->seq = m->seq;
	wr->flow = flow;
	wr->index = flow->n;
	wr->mw = wr->mr = wr->dst = wr->srq = -1;
	m->wrs = grown(m->wrs, m->n_wrs, &m->wrs_room, sizeof(*m->wrs));
	m->wrs[m->n_wrs++] = wr;
	flow->at = grown(flow->at, flow->n, &flow->room, sizeof(*flow->at));
	flow->at[flow->n++] = wr;
	return wr;
}

struct m_recv *recv_new(struct model *m, struct m_queue *queue)
{
	struct m_recv *recv = calloc(1, sizeof(*recv));

	if (!recv)
		abort();
	recv->id = (uint32_t)m->n_recvs;
	recv->seq = m->seq;
	recv->qp = recv->srq = -1;
	m->recvs = grown(m->recvs, m->n_recvs, &m->recvs_room, sizeof(*m->recvs));
	m->recvs[m->n_recvs++] = recv;
	queue->at = grown(queue->at, queue->n, &queue->room, sizeof(*queue->at));
	queue->at[queue->n++] = recv;
	return recv;
}

struct m_flow *flow_new(struct model *m, int qp)
{
	struct m_flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		abort();
	flow->qp = qp;
	flow->peer = -1;
	flow->type = m->qps[qp].type;
	flow->sqd = SIZE_MAX;
	flow->wrecked = qp_is_wrecked(m, &m->qps[qp]);
	flow->next = m->flows;
	m->flows = flow;
	return flow;
}

/* The newest QP of that number: numbers come back after a long time. */
struct m_qp *qp_numbered(struct model *m, unsigned worker, uint32_t number)
{
	for (unsigned i = m->tops[OP_QP]; i-- > 0;) {
		struct m_qp *qp = &m->qps[i];

		if (qp->number == number && qp->worker == worker && qp->out)
			return qp;
	}
	return NULL;
}

size_t queue_waiting(const struct m_queue *queue)
{
	size_t n = 0;

	for (size_t i = queue->head; i < queue->n; i++)
		n += queue->at[i]->state == RECV_POSTED;
	return n;
}

struct m_queue *qp_queue(struct model *m, struct m_qp *qp)
{
	return qp->srq < 0 ? &qp->rq : &m->srqs[qp->srq].queue;
}
