/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of objects: what is in use stays. What a region gave access to may be filled once it is gone.
 */
#include "tests/random/model.h"

#include <errno.h>

struct freeing {
	bool live;
	unsigned worker;
	bool busy, maybe_busy;
};

static struct freeing freeing(const struct model *m, const struct op *op)
{
	uint32_t id = op->id;
	struct freeing none = { 0 };

	switch (op->a[FREE_WHAT]) {
	case OP_TD:
		return (struct freeing){ m->tds[id].live, m->tds[id].worker, m->tds[id].users, false };
	case OP_PD:
	case OP_PARENT:
		return (struct freeing){ m->pds[id].live, m->pds[id].worker, m->pds[id].users, false };
	case OP_CQ:
		return (struct freeing){ m->cqs[id].live, m->cqs[id].worker, m->cqs[id].users, false };
	case OP_SRQ:
		return (struct freeing){ m->srqs[id].live, m->srqs[id].worker, m->srqs[id].users, false };
	case OP_MR:
		return (struct freeing){ m->mrs[id].now.live, m->mrs[id].worker, m->mrs[id].bound,
			windows_are_unsure(m, m->mrs[id].worker) };
	case OP_XRCD:
		return (struct freeing){ m->xrcds[id].live, m->xrcds[id].worker, m->xrcds[id].users, false };
	case OP_DM:
		return (struct freeing){ m->dms[id].live, m->dms[id].worker, m->dms[id].users, false };
	case OP_MW:
		return (struct freeing){ m->mws[id].live, m->mws[id].worker, false, false };
	case OP_QP:
		return (struct freeing){ m->qps[id].live, m->qps[id].worker, m->qps[id].groups, false };
	default:
		return none;
	}
}

static void pd_freed(struct model *m, uint32_t id)
{
	struct m_pd *pd = &m->pds[id];

	pd->live = false;
	if (pd->base != (int)id) {
		m->pds[pd->base].users--;
		if (pd->td >= 0)
			m->tds[pd->td].users--;
	}
}

static void srq_freed(struct model *m, uint32_t id)
{
	struct m_queue *queue = &m->srqs[id].queue;

	m->srqs[id].live = false;
	m->srqs[id].gone_at = m->seq;
	m->pds[m->srqs[id].pd].users--;
	if (m->srqs[id].xrcd >= 0) {
		m->xrcds[m->srqs[id].xrcd].users--;
		m->cqs[m->srqs[id].cq].users--;
	}
	for (size_t i = queue->head; i < queue->n; i++) {
		if (queue->at[i]->state != RECV_POSTED)
			continue;
		queue->at[i]->state = RECV_GONE;
		queue->at[i]->resolved_at = m->batch;
	}
}

static void mw_freed(struct model *m, uint32_t id)
{
	struct m_mw *mw = &m->mws[id];

	if (mw->bound)
		m->mrs[mw->mr].bound--;
	mw->live = mw->bound = false;
	mw->touched = mw->freed_at = m->seq;
	m->pds[mw->pd].users--;
}

static void qp_freed(struct model *m, uint32_t id)
{
	struct m_qp *qp = &m->qps[id];

	flow_close(m, qp);
	qp->live = false;
	qp->state_at = m->seq;
	if (qp->xrc == XRC_RECV)
		m->xrcds[qp->xrcd].users--;
	else
		m->pds[qp->pd].users--;
	m->cqs[qp->send_cq].users--;
	m->cqs[qp->recv_cq].users--;
	if (qp->srq >= 0)
		m->srqs[qp->srq].users--;
}

static void freed(struct model *m, const struct op *op)
{
	uint32_t id = op->id;

	switch (op->a[FREE_WHAT]) {
	case OP_TD:
		m->tds[id].live = false;
		break;
	case OP_PD:
	case OP_PARENT:
		pd_freed(m, id);
		break;
	case OP_CQ:
		m->cqs[id].live = false;
		if (m->cqs[id].parent >= 0)
			m->pds[m->cqs[id].parent].users--;
		break;
	case OP_SRQ:
		srq_freed(m, id);
		break;
	case OP_MR:
		mr_change(m, &m->mrs[id]);
		m->mrs[id].now.live = false;
		m->pds[m->mrs[id].now.pd].users--;
		if (m->mrs[id].dm >= 0)
			m->dms[m->mrs[id].dm].users--;
		break;
	case OP_XRCD:
		m->xrcds[id].live = false;
		break;
	case OP_DM:
		m->dms[id].live = false;
		break;
	case OP_MW:
		mw_freed(m, id);
		break;
	case OP_QP:
		qp_freed(m, id);
		break;
	}
}

/* What a region gave access to is filled once it is gone: nobody else may write there after that. */
static void mr_fill(const struct model *m, const struct op *op, struct fill *fill)
{
	const struct m_mr *mr = &m->mrs[op->id];

	fill->seed = (uint64_t)op->a[FREE_FILL];
	fill->n = 1;
	fill->at[0].off = (uint32_t)mr->now.off;
	fill->at[0].len = (uint32_t)mr->now.len;
}

/* Device memory is copied to by words. */
static bool can_be_filled(const struct m_mr_state *mr)
{
	if (mr->implicit || mr->off >= PAGED)
		return false;
	return mr->off < ARENA || (mr->off % 4 == 0 && mr->len % 4 == 0);
}

bool issue_free(struct model *m, const struct op *op)
{
	struct freeing f = freeing(m, op);
	struct fill fill = { 0 };
	struct cmd *cmd;

	if (!f.live || !workers_sync(m))
		return false;
	if (op->a[FREE_WHAT] == OP_MR && op->a[FREE_FILL] && can_be_filled(&m->mrs[op->id].now))
		mr_fill(m, op, &fill);
	cmd = issue_command(m, op, CMD_FREE, f.worker);
	cmd->fill = fill;
	if (issue_call(m, f.worker, "destroying", f.busy && !f.maybe_busy ? EBUSY : 0,
		    f.busy || f.maybe_busy ? EBUSY : 0) != 0)
		return true;
	/* The window that the model did not know of is not bound there, then. */
	freed(m, op);
	fill_note(m, &fill, f.worker, true, op->a[FREE_WHAT] == OP_MR ? (int)op->id : -1, NULL);
	return true;
}
