/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC in the model: QPs of it are reliable connections, but that each WR names the SRQ whose process, protection domain
 * and receives it is about. The receive QP's own process has no part in it.
 */
#include "tests/random/model.h"

static bool is_xrc(const struct model *m, const struct m_wr *wr)
{
	return m->qps[wr->flow->qp].xrc != XRC_NOT;
}

unsigned wr_worker(const struct model *m, const struct m_wr *wr)
{
	if (is_xrc(m, wr) && wr->srq >= 0)
		return m->srqs[wr->srq].worker;
	return m->qps[wr->flow->peer].worker;
}

int wr_pd(const struct model *m, const struct m_wr *wr)
{
	if (is_xrc(m, wr) && wr->srq >= 0)
		return m->srqs[wr->srq].pd;
	return m->qps[wr->flow->peer].pd;
}

int wr_srq(const struct model *m, const struct m_wr *wr)
{
	return is_xrc(m, wr) ? wr->srq : m->qps[wr->flow->peer].srq;
}

struct m_queue *wr_queue(struct model *m, const struct m_wr *wr)
{
	int srq = wr_srq(m, wr);

	return srq < 0 ? &m->qps[wr->flow->peer].rq : &m->srqs[srq].queue;
}

bool wr_srq_went(const struct model *m, const struct m_wr *wr)
{
	return is_xrc(m, wr) && wr->srq >= 0 && m->srqs[wr->srq].gone_at > wr->seq;
}

enum tri wr_srq_is(const struct model *m, const struct m_wr *wr)
{
	const struct m_qp *peer = &m->qps[wr->flow->peer];
	const struct m_srq *srq;

	if (!is_xrc(m, wr))
		return YES;
	if (wr->srq < 0)
		return NO;
	srq = &m->srqs[wr->srq];
	if (srq->xrcd < 0 || m->xrcds[srq->xrcd].domain != m->xrcds[peer->xrcd].domain)
		return NO;
	if (wr_srq_went(m, wr))
		return srq->gone_at > m->batch_start ? MAYBE : NO;
	return srq->live ? YES : NO;
}

struct m_qp *xrc_numbered(struct model *m, uint32_t number)
{
	for (unsigned i = m->tops[OP_QP]; i-- > 0;) {
		if (m->qps[i].number == number && m->qps[i].xrc == XRC_RECV)
			return &m->qps[i];
	}
	return NULL;
}

/* --- objects --- */

bool issue_xrcd(struct model *m, const struct op *op)
{
	int64_t file = op->a[XRCD_FILE];

	if (file < 0 || file > 3)
		return false;
	issue_command(m, op, CMD_XRCD, op->worker);
	if (issue_call(m, op->worker, "ibv_open_xrcd", 0, 0) == 0)
		m->xrcds[op->id] = (struct m_xrcd){ .live = true, .worker = op->worker, .domain = file ? file : -1 - op->id };
	return true;
}

static bool xrcd_is(const struct model *m, int64_t id, unsigned worker)
{
	return id >= 0 && id < OBJECTS && m->xrcds[id].live && m->xrcds[id].worker == worker;
}

bool xrc_parts_are(const struct model *m, const struct op *op)
{
	return xrcd_is(m, op->a[QP_XRCD], op->worker);
}

bool xrc_srq_parts_are(const struct model *m, const struct op *op)
{
	int64_t cq = op->a[SRQ_CQ];

	/* How many completions it brings is not known beforehand. */
	return xrcd_is(m, op->a[SRQ_XRCD] - 1, op->worker) && cq >= 0 && cq < OBJECTS && m->cqs[cq].live &&
	       m->cqs[cq].worker == op->worker && m->cqs[cq].size >= 1024;
}
