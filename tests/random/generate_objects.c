/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects: made, connected, changed, freed. */
#include "tests/random/generate.h"

#define EVERYTHING                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |              \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static const unsigned recv_sizes[] = { 64, 300, 2048, 9000, 70001, 1 << 20 };

/* A random live one of an array, by a condition. */
#define ANY(g, n, condition)                                                                      \
	do {                                                                                      \
		for (unsigned tries = 0; tries < 40 && (n); tries++) {                            \
			unsigned i = g_pick(g, n);                                                \
			if (condition)                                                            \
				return (int)i;                                                    \
		}                                                                                 \
		for (unsigned i = 0; i < (n); i++) {                                              \
			if (condition)                                                            \
				return (int)i;                                                    \
		}                                                                                 \
		return -1;                                                                        \
	} while (0)

int g_pd_any(struct generator *g, unsigned worker, bool plain)
{
	ANY(g, g->n_pds, g->pds[i].live && g->pds[i].worker == worker && (!plain || g->pds[i].base == (int)i));
}

int g_cq_any(struct generator *g, unsigned worker, bool big)
{
	ANY(g, g->n_cqs, g->cqs[i].live && !g->cqs[i].overrun && g->cqs[i].worker == worker && !(big && g->cqs[i].small));
}

static int srq_any(struct generator *g, unsigned worker)
{
	ANY(g, g->n_srqs, g->srqs[i].live && !g->srqs[i].xrc && g->srqs[i].worker == worker);
}

int g_mr_any(struct generator *g, unsigned worker)
{
	ANY(g, g->n_mrs, g->mrs[i].worker == worker && (g->mrs[i].live || g_chance(g, 300)));
}

static int mr_fit(struct generator *g, unsigned worker, unsigned pd, unsigned access, int64_t len)
{
	int base = g->pds[pd].base;

	ANY(g, g->n_mrs, g->mrs[i].live && g->mrs[i].worker == worker && g->pds[g->mrs[i].pd].base == base &&
		(g->mrs[i].access & access) == access && g->mrs[i].len >= len);
}

int g_mr_for(struct generator *g, unsigned worker, unsigned pd, unsigned access, int64_t len)
{
	int mr = mr_fit(g, worker, pd, access, len);

	if (mr >= 0)
		return mr;
	return g_mr_new(g, worker, pd, access & IBV_ACCESS_LOCAL_WRITE || !access ? access : access | IBV_ACCESS_LOCAL_WRITE,
		len + 1 + g_pick(g, 1 << g_pick(g, 20)));
}

int g_mw_any(struct generator *g, unsigned worker)
{
	ANY(g, g->n_mws, g->mws[i].live && g->mws[i].worker == worker);
}

int g_qp_any(struct generator *g, bool datagram, bool up)
{
	ANY(g, g->n_qps, g->qps[i].live && (g->qps[i].type == IBV_QPT_UD) == datagram && (!up || g->qps[i].health == G_UP));
}

/* --- made --- */

int g_pd_new(struct generator *g, unsigned worker)
{
	unsigned id = g->n_pds;

	if (id == G_MAX)
		return -1;
	g_op(g, OP_PD, worker, id);
	g->pds[g->n_pds++] = (struct g_pd){ .worker = worker, .id = id, .base = (int)id, .live = true };
	return (int)id;
}

int g_parent_new(struct generator *g, unsigned worker)
{
	int pd = g_pd_any(g, worker, true), td = -1;
	unsigned id = g->n_pds;
	struct op *op;

	if (pd < 0 || id == G_MAX)
		return -1;
	if (g_chance(g, 700) && g->n_tds < G_MAX) {
		td = (int)g->n_tds++;
		g->td_worker[td] = worker;
		g_op(g, OP_TD, worker, (uint32_t)td);
	}
	op = g_op(g, OP_PARENT, worker, id);
	op->a[PARENT_PD] = pd;
	op->a[PARENT_TD] = td;
	op->a[PARENT_ALLOC] = g_pick(g, 3);
	g->pds[g->n_pds++] = (struct g_pd){ .worker = worker, .id = id, .base = pd, .live = true };
	return (int)id;
}

static int parent_any(struct generator *g, unsigned worker)
{
	ANY(g, g->n_pds, g->pds[i].live && g->pds[i].worker == worker && g->pds[i].base != (int)i);
}

int g_cq_new(struct generator *g, unsigned worker, bool small)
{
	unsigned id = g->n_cqs, size = small ? 1 + g_pick(g, 24) : 1024 + g_pick(g, 1024);
	bool channel = g_chance(g, 500), ex = g_chance(g, 400);
	struct op *op;

	if (id == G_MAX)
		return -1;
	op = g_op(g, OP_CQ, worker, id);
	op->a[CQ_SIZE] = size;
	op->a[CQ_CHANNEL] = channel;
	op->a[CQ_EX] = ex;
	op->a[CQ_PARENT] = ex && g_chance(g, 500) ? parent_any(g, worker) : -1;
	g->cqs[g->n_cqs++] =
		(struct g_cq){ .worker = worker, .live = true, .small = small, .channel = channel, .size = size };
	return (int)id;
}

int g_srq_new(struct generator *g, unsigned worker)
{
	int pd = g_pd_any(g, worker, false);
	unsigned id = g->n_srqs;
	struct op *op;

	if (pd < 0 || id == G_MAX)
		return -1;
	op = g_op(g, OP_SRQ, worker, id);
	op->a[SRQ_PD] = pd;
	op->a[SRQ_WR] = 2 + g_pick(g, 60);
	op->a[SRQ_SGE] = 1 + g_pick(g, SGES);
	g->srqs[g->n_srqs++] = (struct g_srq){
		.worker = worker,
		.pd = (unsigned)pd,
		.max_wr = (unsigned)op->a[SRQ_WR],
		.sges = (unsigned)op->a[SRQ_SGE],
		.recv_size = recv_sizes[g_pick(g, 6)],
		.live = true,
	};
	return (int)id;
}

int g_mr_new(struct generator *g, unsigned worker, unsigned pd, unsigned access, int64_t len)
{
	unsigned id = g->n_mrs;
	struct op *op;

	if (id == G_MAX)
		return -1;
	if (len > ARENA)
		len = ARENA;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && g_chance(g, 980))
		access |= IBV_ACCESS_LOCAL_WRITE;
	if (g_kind(g, KIND_ODP, 250))
		access |= IBV_ACCESS_ON_DEMAND;
	op = g_op(g, OP_MR, worker, id);
	op->a[MR_PD] = pd;
	op->a[MR_OFF] = g_pick(g, (uint32_t)(ARENA - len + 1));
	op->a[MR_LEN] = len;
	op->a[MR_ACCESS] = access;
	op->a[MR_SHIFT] = g_chance(g, 150) ? 4096 * (int64_t)(1 + g_pick(g, 1000)) : 0;
	bool refused = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE);

	g->mrs[g->n_mrs++] = (struct g_mr){
		.worker = worker,
		.pd = pd,
		.access = access,
		.off = op->a[MR_OFF],
		.len = len,
		.shift = op->a[MR_SHIFT],
		.live = !refused,
	};
	return refused ? -1 : (int)id;
}

int g_mw_new(struct generator *g, unsigned worker)
{
	int pd = g_pd_any(g, worker, false);
	unsigned id = g->n_mws;
	struct op *op;

	if (pd < 0 || id == G_MAX)
		return -1;
	op = g_op(g, OP_MW, worker, id);
	op->a[MW_PD] = pd;
	op->a[MW_TYPE] = 1 + g_pick(g, 2);
	g->mws[g->n_mws++] = (struct g_mw){
		.worker = worker,
		.pd = (unsigned)pd,
		.type = (unsigned)op->a[MW_TYPE],
		.mr = -1,
		.qp = -1,
		.live = true,
	};
	return (int)id;
}

int g_qp_new(struct generator *g, unsigned worker, enum ibv_qp_type type)
{
	static const unsigned inlines[] = { 0, 16, 64, 220, 236, 256, 512, 1024 };
	int pd = g_pd_any(g, worker, false), srq = g_chance(g, 250) ? srq_any(g, worker) : -1;
	int send_cq = g_cq_any(g, worker, false), recv_cq = g_chance(g, 400) ? send_cq : g_cq_any(g, worker, false);
	unsigned id = g->n_qps;
	struct op *op;

	if (type == IBV_QPT_XRC_SEND)
		srq = -1;
	/* Unreliable connections have no SRQ. */
	if (type == IBV_QPT_UC && g_chance(g, 980))
		srq = -1;
	if (srq >= 0)
		recv_cq = g_cq_any(g, worker, true);
	if (pd < 0 || send_cq < 0 || recv_cq < 0 || id == G_MAX)
		return -1;
	op = g_op(g, OP_QP, worker, id);
	op->a[QP_PD] = pd;
	op->a[QP_TYPE] = type;
	op->a[QP_SEND_CQ] = send_cq;
	op->a[QP_RECV_CQ] = recv_cq;
	op->a[QP_SRQ] = srq;
	op->a[QP_SEND_WR] = 1 + g_pick(g, g_chance(g, 300) ? 4 : 64);
	op->a[QP_RECV_WR] = 1 + g_pick(g, g_chance(g, 200) ? 4 : 64);
	op->a[QP_SGE] = 1 + g_pick(g, SGES);
	op->a[QP_INLINE] = inlines[g_pick(g, 8)];
	op->a[QP_SIG_ALL] = g_chance(g, 300);
	op->a[QP_EX] = g_chance(g, 400);
	if (type == IBV_QPT_UC && srq >= 0)
		return -1;
	g->qps[g->n_qps++] = (struct g_qp){
		.worker = worker,
		.pd = (unsigned)pd,
		.type = type,
		.send_wr = (unsigned)op->a[QP_SEND_WR],
		.recv_wr = (unsigned)op->a[QP_RECV_WR],
		.sges = (unsigned)op->a[QP_SGE],
		.inline_max = (unsigned)op->a[QP_INLINE],
		.recv_size = srq >= 0 ? g->srqs[srq].recv_size : recv_sizes[g_pick(g, 6)],
		.srq = srq,
		.peer = -1,
		.live = true,
		.ex = op->a[QP_EX] != 0,
	};
	return (int)id;
}

/* --- states --- */

static unsigned access_any(struct generator *g)
{
	if (g_chance(g, 800))
		return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return g_pick(g, 16) & ~1u;
}

void g_connect(struct generator *g, unsigned a, unsigned b)
{
	struct op *op = g_op(g, OP_CONNECT, g->qps[a].worker, a);
	unsigned ids[2] = { a, b };

	op->a[CONNECT_PEER] = b;
	op->a[CONNECT_HOW] = g_chance(g, 900) ? HOW_BOTH : (enum connect_how)g_pick(g, 3);
	op->a[CONNECT_TIMER] = 1 + g_pick(g, 8);
	op->a[CONNECT_TIMEOUT] = g_chance(g, 30) ? 0 : 1 + g_pick(g, 7);
	op->a[CONNECT_RETRY] = g_pick(g, 8);
	op->a[CONNECT_MTU] = 1 + g_pick(g, 5);
	for (unsigned i = 0; i < 2; i++) {
		struct g_qp *qp = &g->qps[ids[i]];

		qp->access = access_any(g);
		qp->dest_rd = g_chance(g, 970) ? 1 + g_pick(g, 16) : 0;
		op->a[CONNECT_ACCESS + i] = qp->access;
		op->a[CONNECT_RNR + i] = g_chance(g, 600) ? 7 : g_pick(g, 7);
		op->a[CONNECT_DEST_RD + i] = qp->dest_rd;
		/* The one that it had so far does not come to it again by itself. */
		if (qp->peer >= 0 && qp->peer != (int)ids[1 - i] && g->qps[qp->peer].peer == (int)ids[i])
			g->qps[qp->peer].health = G_SUSPECT;
		qp->peer = (int)ids[1 - i];
		qp->health = G_UP;
		qp->there = 0;
		qp->no_send = i == 1 && op->a[CONNECT_HOW] == HOW_PEER_RTR;
	}
	for (unsigned i = 0; i < 2; i++) {
		unsigned most = g->qps[ids[1 - i]].dest_rd;

		op->a[CONNECT_RD + i] = g_chance(g, 970) ? most ? 1 + g_pick(g, most) : 1 : 0;
		g->qps[ids[i]].rd = (unsigned)op->a[CONNECT_RD + i];
	}
}

void g_datagram(struct generator *g, unsigned id)
{
	struct g_qp *qp = &g->qps[id];

	qp->qkey = g_pick(g, 3);
	g_op(g, OP_DATAGRAM, qp->worker, id)->a[DATAGRAM_QKEY] = qp->qkey;
	qp->health = G_UP;
	qp->there = 0;
}

void g_state_any(struct generator *g)
{
	int id = g_qp_any(g, g_chance(g, 150), false);
	struct op *op;
	struct g_qp *qp;

	if (id < 0)
		return;
	qp = &g->qps[id];
	op = g_op(g, OP_STATE, qp->worker, (uint32_t)id);
	op->a[STATE_NOTIFY] = g_chance(g, 700);
	op->a[STATE_FILL] = g_chance(g, 600) ? 1 + g_pick(g, 1 << 30) : 0;
	if (qp->health == G_DRAINED || g_chance(g, 100)) {
		op->a[STATE_TO] = IBV_QPS_RTS;
		if (qp->health == G_DRAINED)
			qp->health = G_UP;
	} else if (g_chance(g, 500)) {
		op->a[STATE_TO] = IBV_QPS_SQD;
		if (qp->health == G_UP)
			qp->health = G_DRAINED;
	} else {
		op->a[STATE_TO] = g_chance(g, 600) ? IBV_QPS_ERR : IBV_QPS_RESET;
		qp->health = G_SUSPECT;
		if (qp->peer >= 0)
			g->qps[qp->peer].health = G_SUSPECT;
	}
}

/* --- changed, freed --- */

static void rereg_any(struct generator *g, unsigned worker)
{
	int id = g_mr_any(g, worker), pd = g_pd_any(g, worker, false);
	struct op *op;
	struct g_mr *mr;

	if (id < 0 || pd < 0)
		return;
	mr = &g->mrs[id];
	op = g_op(g, OP_REREG, worker, (uint32_t)id);
	op->a[REREG_FLAGS] = 1 + g_pick(g, 7);
	op->a[REREG_PD] = pd;
	op->a[REREG_LEN] = 1 + g_pick(g, 1 << g_pick(g, 22));
	op->a[REREG_OFF] = g_pick(g, (uint32_t)(ARENA - op->a[REREG_LEN]));
	/* The verb refuses an access that is not to be changed. */
	if (op->a[REREG_FLAGS] & IBV_REREG_MR_CHANGE_ACCESS)
		op->a[REREG_ACCESS] = g_chance(g, 500) ? EVERYTHING : g_pick(g, 32);
	/* On-demand regions stay what they are. */
	if (op->a[REREG_ACCESS] && (mr->access & IBV_ACCESS_ON_DEMAND) && g_chance(g, 900))
		op->a[REREG_ACCESS] |= IBV_ACCESS_ON_DEMAND;
	if (op->a[REREG_FLAGS] & IBV_REREG_MR_CHANGE_PD)
		mr->pd = (unsigned)pd;
	if (op->a[REREG_FLAGS] & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = (unsigned)op->a[REREG_ACCESS];
	if (op->a[REREG_FLAGS] & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->off = op->a[REREG_OFF];
		mr->len = op->a[REREG_LEN];
	}
}

void g_change_any(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);
	int cq = g_cq_any(g, worker, false), srq = srq_any(g, worker);

	switch (g_pick(g, 3)) {
	case 0:
		rereg_any(g, worker);
		break;
	case 1:
		if (cq >= 0)
			g_op(g, OP_RESIZE, worker, (uint32_t)cq)->a[RESIZE_TO] =
				g->cqs[cq].small ? 1 + g_pick(g, 40) : 1024 + g_pick(g, 3000);
		break;
	default:
		if (srq >= 0)
			g_op(g, OP_LIMIT, worker, (uint32_t)srq)->a[LIMIT_TO] = g_pick(g, g->srqs[srq].max_wr + 2);
	}
}

static struct op *free_op(struct generator *g, enum op_kind what, unsigned worker, int id)
{
	struct op *op = g_op(g, OP_FREE, worker, (uint32_t)id);

	op->a[FREE_WHAT] = what;
	return op;
}

static void qp_free(struct generator *g, int id)
{
	struct g_qp *qp = &g->qps[id];

	for (unsigned i = 0; i < GROUPS && qp->groups; i++) {
		if (qp->groups >> i & 1 && g_chance(g, 950))
			g_op(g, OP_GROUP, qp->worker, (uint32_t)id)->a[GROUP_NUMBER] = i;
	}
	free_op(g, OP_QP, qp->worker, id);
	qp->live = false;
	if (qp->peer >= 0)
		g->qps[qp->peer].health = G_SUSPECT;
}

static void mr_free(struct generator *g, int id)
{
	struct op *op = free_op(g, OP_MR, g->mrs[id].worker, id);

	/* Filled afterwards: nobody may write there any more. Not a large one each time. */
	if (g->mrs[id].len < 1 << 18 || g_chance(g, 100))
		op->a[FREE_FILL] = 1 + g_pick(g, 1 << 30);
	g->mrs[id].live = false;
}

/* Most of it is in use, and stays. */
void g_free_any(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);
	int qp = g_qp_any(g, g_chance(g, 150), false), mr = g_mr_any(g, worker), mw = g_mw_any(g, worker);
	int cq = g_cq_any(g, worker, false), srq = srq_any(g, worker), pd = g_pd_any(g, worker, false);

	switch (g_pick(g, 12)) {
	case 0:
	case 1:
		if (qp >= 0)
			qp_free(g, qp);
		break;
	case 2:
	case 3:
		if (mw >= 0) {
			free_op(g, OP_MW, worker, mw);
			g->mws[mw].live = false;
		}
		break;
	case 4:
		if (cq >= 0)
			free_op(g, OP_CQ, worker, cq);
		break;
	case 5:
		if (srq >= 0)
			free_op(g, OP_SRQ, worker, srq);
		break;
	case 6:
		if (pd >= 0)
			free_op(g, OP_PD, worker, pd);
		if (g->n_tds) {
			unsigned td = g_pick(g, g->n_tds);

			free_op(g, OP_TD, g->td_worker[td], (int)td);
		}
		break;
	default:
		if (mr >= 0)
			mr_free(g, mr);
	}
}
