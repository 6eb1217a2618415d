/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CQs that are made to overrun. Once one may have, what becomes of its QPs is open, and of what is between them and their
 * peers: WRs may complete or not, in any way, and QPs be in error. All others are not to notice.
 */
#include "tests/random/model.h"

static bool uses(const struct m_qp *qp, int cq)
{
	return qp->live && (qp->send_cq == cq || qp->recv_cq == cq);
}

static void wreck(struct model *m, struct m_qp *qp)
{
	qp->out->wrecked = true;
	if (qp->out->back)
		qp->out->back->wrecked = true;
	if (qp->srq >= 0)
		m->srqs[qp->srq].lost += 1000; /* nobody knows how many */
}

void cq_filled(struct model *m, int id)
{
	struct m_cq *cq = &m->cqs[id];

	if (!cq->may_overrun || cq->unsure || cq->due <= cq->size)
		return;
	cq->unsure = true;
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		if (uses(&m->qps[i], id))
			wreck(m, &m->qps[i]);
	}
}

bool qp_is_wrecked(const struct model *m, const struct m_qp *qp)
{
	return m->cqs[qp->send_cq].unsure || m->cqs[qp->recv_cq].unsure;
}

unsigned wreck_statuses(void)
{
	return STATUS(IBV_WC_SUCCESS) | STATUS(IBV_WC_LOC_LEN_ERR) | STATUS(IBV_WC_LOC_QP_OP_ERR) |
	       STATUS(IBV_WC_LOC_PROT_ERR) | STATUS(IBV_WC_MW_BIND_ERR) | STATUS(IBV_WC_REM_ACCESS_ERR) |
	       STATUS(IBV_WC_REM_INV_REQ_ERR) | STATUS(IBV_WC_REM_OP_ERR) | STATUS(IBV_WC_RETRY_EXC_ERR) |
	       STATUS(IBV_WC_RNR_RETRY_EXC_ERR) | STATUS(IBV_WC_LOC_ACCESS_ERR);
}
