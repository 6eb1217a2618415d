/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC: domains by file, SRQs in them of whatever process, pairs of QPs. */
#include "tests/random/generate.h"

/* The domain of a file that a process has open, 0: private; -1: none more. */
static int xrcd_get(struct generator *g, unsigned worker, int file)
{
	if (g->xrcds[worker][file])
		return g->xrcds[worker][file] - 1;
	if (g->n_xrcds == G_MAX)
		return -1;
	g_op(g, OP_XRCD, worker, g->n_xrcds)->a[XRCD_FILE] = file;
	g->xrcds[worker][file] = (int)++g->n_xrcds;
	return (int)g->n_xrcds - 1;
}

static void srq_new(struct generator *g, unsigned worker, int file)
{
	static const unsigned sizes[] = { 64, 300, 2048, 9000, 70001, 1 << 20 };
	int xrcd = xrcd_get(g, worker, file), pd = g_pd_any(g, worker, false), cq = g_cq_any(g, worker, true);
	unsigned id = g->n_srqs;
	struct op *op;

	if (xrcd < 0 || pd < 0 || cq < 0 || id == G_MAX)
		return;
	op = g_op(g, OP_SRQ, worker, id);
	op->a[SRQ_PD] = pd;
	op->a[SRQ_WR] = 2 + g_pick(g, 60);
	op->a[SRQ_SGE] = 1 + g_pick(g, SGES);
	op->a[SRQ_XRCD] = xrcd + 1;
	op->a[SRQ_CQ] = cq;
	g->srqs[g->n_srqs++] = (struct g_srq){
		.worker = worker,
		.pd = (unsigned)pd,
		.max_wr = (unsigned)op->a[SRQ_WR],
		.sges = (unsigned)op->a[SRQ_SGE],
		.recv_size = sizes[g_pick(g, 6)],
		.live = true,
		.xrc = true,
		.file = file,
	};
}

int g_xrc_aim(struct generator *g, const struct g_qp *to, struct g_qp *aim)
{
	for (unsigned tries = 0; tries < 60 && g->n_srqs; tries++) {
		unsigned i = g_pick(g, g->n_srqs);
		const struct g_srq *srq = &g->srqs[i];

		if (!srq->live || !srq->xrc || srq->file != to->file || (!srq->file && srq->worker != to->worker))
			continue;
		*aim = *to;
		aim->srq = (int)i;
		aim->worker = srq->worker;
		aim->pd = srq->pd;
		aim->sges = srq->sges;
		aim->recv_size = srq->recv_size;
		return (int)i;
	}
	return -1;
}

static int recv_new(struct generator *g, unsigned worker, int file)
{
	int xrcd = xrcd_get(g, worker, file);
	unsigned id = g->n_qps;
	struct op *op;

	if (xrcd < 0 || id == G_MAX)
		return -1;
	op = g_op(g, OP_QP, worker, id);
	op->a[QP_TYPE] = IBV_QPT_XRC_RECV;
	op->a[QP_PD] = op->a[QP_SEND_CQ] = op->a[QP_RECV_CQ] = op->a[QP_SRQ] = -1;
	op->a[QP_XRCD] = xrcd;
	g->qps[g->n_qps++] = (struct g_qp){
		.worker = worker,
		.type = IBV_QPT_XRC_RECV,
		.srq = -1,
		.peer = -1,
		.live = true,
		.file = file,
	};
	return (int)id;
}

void g_xrc_pair(struct generator *g)
{
	int file = g_chance(g, 900) ? 1 + (int)g_pick(g, 3) : 0;
	unsigned owner = g_pick(g, g->workers);
	int send = g_qp_new(g, g_pick(g, g->workers), IBV_QPT_XRC_SEND), recv = recv_new(g, owner, file);

	srq_new(g, file && g_chance(g, 500) ? g_pick(g, g->workers) : owner, file);
	if (send < 0 || recv < 0)
		return;
	g_connect(g, (unsigned)send, (unsigned)recv);
}

static void srq_free(struct generator *g)
{
	for (unsigned tries = 0; tries < 20 && g->n_srqs; tries++) {
		unsigned i = g_pick(g, g->n_srqs);

		if (!g->srqs[i].live || !g->srqs[i].xrc)
			continue;
		g_op(g, OP_FREE, g->srqs[i].worker, i)->a[FREE_WHAT] = OP_SRQ;
		g->srqs[i].live = false;
		return;
	}
}

/* Mostly it is in use, and stays. */
static void xrcd_free(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers), file = g_pick(g, 4);

	if (g->xrcds[worker][file])
		g_op(g, OP_FREE, worker, (uint32_t)g->xrcds[worker][file] - 1)->a[FREE_WHAT] = OP_XRCD;
}

void g_xrc_step(struct generator *g)
{
	uint32_t n = g_pick(g, 10);

	if (n < 3 && g->n_qps < 60)
		g_xrc_pair(g);
	else if (n < 7)
		srq_new(g, g_pick(g, g->workers), (int)g_pick(g, 4));
	else if (n < 9)
		srq_free(g);
	else
		xrcd_free(g);
}
