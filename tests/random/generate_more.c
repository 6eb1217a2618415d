/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs are made of beyond the base: made, changed and freed here, and used by the posts of all. */
#include "tests/random/generate.h"

/* --- device memory --- */

static int dm_any(struct generator *g, unsigned worker)
{
	for (unsigned tries = 0; tries < 20 && g->n_dms; tries++) {
		unsigned i = g_pick(g, g->n_dms);

		if (g->dms[i].live && g->dms[i].worker == worker)
			return (int)i;
	}
	return -1;
}

static void dm_new(struct generator *g, unsigned worker)
{
	unsigned id = g->n_dms;
	struct op *op;

	if (id == G_MAX)
		return;
	op = g_op(g, OP_DM, worker, id);
	op->a[DM_LEN] = 4 + 4 * g_pick(g, g_chance(g, 500) ? 100 : DM_MAX / 4);
	op->a[DM_ALIGN] = g_pick(g, 22);
	op->a[DM_SEED] = 1 + g_pick(g, 1 << 30);
	g->dms[g->n_dms++] = (struct g_dm){ .worker = worker, .len = op->a[DM_LEN], .live = true };
}

static void dm_copy(struct generator *g, unsigned id)
{
	struct op *op = g_op(g, OP_DM_COPY, g->dms[id].worker, id);
	int64_t words = g->dms[id].len / 4;

	op->a[DMCOPY_LEN] = 4 + 4 * g_pick(g, (uint32_t)words);
	op->a[DMCOPY_OFF] = 4 * g_pick(g, (uint32_t)(words - op->a[DMCOPY_LEN] / 4) + 1);
	if (g_chance(g, 50))
		op->a[g_chance(g, 500) ? DMCOPY_LEN : DMCOPY_OFF] += 1 + g_pick(g, 8);
	op->a[DMCOPY_SEED] = 1 + g_pick(g, 1 << 30);
}

static void dm_region(struct generator *g, unsigned id)
{
	static const unsigned always = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_ATOMIC;
	const struct g_dm *dm = &g->dms[id];
	int pd = g_pd_any(g, dm->worker, false);
	int64_t off = 4 * g_pick(g, (uint32_t)(dm->len / 4));
	unsigned access = (g_chance(g, 800) ? always : g_pick(g, 32)) | IBV_ACCESS_ZERO_BASED, mr = g->n_mrs;
	struct op *op;

	if (pd < 0 || mr == G_MAX)
		return;
	if (g_chance(g, 700))
		off &= ~(int64_t)7;
	if (g_chance(g, 20))
		access &= ~(unsigned)IBV_ACCESS_ZERO_BASED;
	op = g_op(g, OP_MR, dm->worker, mr);
	op->a[MR_PD] = pd;
	op->a[MR_OFF] = off;
	op->a[MR_LEN] = g_chance(g, 700) ? dm->len - off : 1 + g_pick(g, (uint32_t)(dm->len - off));
	if (g_chance(g, 20))
		op->a[MR_LEN] += 4;
	op->a[MR_ACCESS] = access;
	op->a[MR_DM] = id + 1;
	g->mrs[g->n_mrs++] = (struct g_mr){
		.worker = dm->worker,
		.pd = (unsigned)pd,
		.access = access,
		.off = ARENA + off,
		.len = op->a[MR_LEN],
		.live = access & IBV_ACCESS_ZERO_BASED && off + op->a[MR_LEN] <= dm->len,
	};
}

static void dm_free(struct generator *g, unsigned id)
{
	g_op(g, OP_FREE, g->dms[id].worker, id)->a[FREE_WHAT] = OP_DM;
}

static void dm_step(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);
	int id = dm_any(g, worker);
	uint32_t n = g_pick(g, 10);

	if (id < 0 || n < 1)
		dm_new(g, worker);
	else if (n < 5)
		dm_region(g, (unsigned)id);
	else if (n < 9)
		dm_copy(g, (unsigned)id);
	else
		dm_free(g, (unsigned)id);
}

/* --- on-demand paging --- */

static void odp_region(struct generator *g, unsigned worker)
{
	bool implicit = g_chance(g, 250);
	int pd = g_pd_any(g, worker, false);
	unsigned id = g->n_mrs;
	struct g_mr mr = {
		.worker = worker,
		.access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
		.len = ARENA,
		.live = true,
	};
	struct op *op;

	if (pd < 0 || id == G_MAX)
		return;
	mr.pd = (unsigned)pd;
	if (!implicit) {
		mr.len = 1 + g_pick(g, g_chance(g, 500) ? 3 * PAGE : PAGES * PAGE);
		mr.off = PAGED + g_pick(g, (uint32_t)(PAGES * PAGE - mr.len + 1));
	}
	if (!implicit || g_chance(g, 50))
		mr.access |= IBV_ACCESS_MW_BIND;
	op = g_op(g, OP_MR, worker, id);
	op->a[MR_PD] = pd;
	op->a[MR_OFF] = mr.off;
	op->a[MR_LEN] = mr.len;
	op->a[MR_ACCESS] = mr.access;
	op->a[MR_IMPLICIT] = implicit;
	mr.live = !implicit || !(mr.access & IBV_ACCESS_MW_BIND);
	g->mrs[g->n_mrs++] = mr;
}

/* Some are away for a while; most of them are there. */
static void odp_pages(struct generator *g, unsigned worker)
{
	struct op *op = g_op(g, OP_PAGES, worker, 0);

	op->a[PAGES_N] = 1 + g_pick(g, g_chance(g, 700) ? 4 : PAGES);
	op->a[PAGES_FROM] = g_pick(g, (uint32_t)(PAGES - op->a[PAGES_N] + 1));
	op->a[PAGES_THERE] = op->a[PAGES_N] > 8 || g_chance(g, 500);
	op->a[PAGES_SEED] = 1 + g_pick(g, 1 << 30);
}

static void odp_advise(struct generator *g, unsigned worker)
{
	int pd = g_pd_any(g, worker, false), mr = g_mr_any(g, worker);
	struct op *op;

	if (pd < 0 || mr < 0)
		return;
	if (g_chance(g, 800))
		pd = (int)g->mrs[mr].pd;
	op = g_op(g, OP_ADVISE, worker, (uint32_t)pd);
	op->a[ADVISE_HOW] = g_pick(g, 3);
	op->a[ADVISE_FLAGS] = g_pick(g, 2) ? IBV_ADVISE_MR_FLAG_FLUSH : 0;
	op->a[ADVISE_SGES] = 1;
	op->a[ADVISE_SGE + SGE_MR] = mr;
	op->a[ADVISE_SGE + SGE_LEN] = 1 + g_pick(g, (uint32_t)g->mrs[mr].len);
	op->a[ADVISE_SGE + SGE_OFF] = g_pick(g, (uint32_t)(g->mrs[mr].len - op->a[ADVISE_SGE + SGE_LEN]) + 1);
	if (g_chance(g, 50))
		op->a[ADVISE_SGE + SGE_OFF] += 1 + g_pick(g, 100);
	if (g_chance(g, 50))
		op->a[ADVISE_SGE + SGE_TWEAK] = 1 + g_pick(g, 255);
}

static void odp_step(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);
	uint32_t n = g_pick(g, 10);

	if (n < 3)
		odp_region(g, worker);
	else if (n < 7)
		odp_pages(g, worker);
	else
		odp_advise(g, worker);
}

/* --- multicast --- */

static void group_change(struct generator *g, unsigned id, unsigned group, bool in)
{
	struct op *op = g_op(g, OP_GROUP, g->qps[id].worker, id);

	op->a[GROUP_NUMBER] = group;
	op->a[GROUP_IN] = in;
	if (g->qps[id].type != IBV_QPT_UD)
		return;
	if (in)
		g->qps[id].groups |= 1u << group;
	else
		g->qps[id].groups &= ~(1u << group);
}

void g_join(struct generator *g, unsigned id)
{
	if (g_kind(g, KIND_MCAST, 700))
		group_change(g, id, g_pick(g, GROUPS), true);
}

static void mcast_step(struct generator *g)
{
	int id = g_qp_any(g, g_chance(g, 980), false);

	if (id >= 0)
		group_change(g, (unsigned)id, g_pick(g, GROUPS), g_chance(g, 700));
}

/* --- CQs that overrun --- */

static int cq_tiny(struct generator *g, unsigned worker)
{
	unsigned id = g->n_cqs;
	struct op *op;

	if (id == G_MAX)
		return -1;
	op = g_op(g, OP_CQ, worker, id);
	op->a[CQ_SIZE] = 1 + g_pick(g, 3);
	op->a[CQ_CHANNEL] = g_chance(g, 500);
	op->a[CQ_EX] = g_chance(g, 400);
	op->a[CQ_PARENT] = -1;
	op->a[CQ_OVERRUN] = 1;
	g->cqs[g->n_cqs++] = (struct g_cq){ .worker = worker, .live = true, .small = true, .overrun = true };
	return (int)id;
}

/* A pair of QPs, one of them with such a CQ for what it sends, or receives. */
static void overrun_step(struct generator *g)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	enum ibv_qp_type type = types[g_pick(g, 4)];
	unsigned worker = g_pick(g, g->workers);
	int cq = cq_tiny(g, worker), x = g_qp_new(g, worker, type), y;
	bool sends = g_chance(g, 500);

	if (cq < 0 || x < 0)
		return;
	g->program->ops[g->program->n - 1].a[sends ? QP_SEND_CQ : QP_RECV_CQ] = cq;
	y = g_qp_new(g, g_pick(g, g->workers), type);
	if (type == IBV_QPT_UD)
		g_datagram(g, (unsigned)x);
	if (y < 0)
		return;
	if (type == IBV_QPT_UD)
		g_datagram(g, (unsigned)y);
	else
		g_connect(g, (unsigned)x, (unsigned)y);
}

/* --- tag matching --- */

static void tags_new(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);

	g_op(g, OP_TAGS, worker, g->n_tags)->a[TAGS_CLIENT] = g_pick(g, g->workers);
	g->tags_worker[g->n_tags++] = worker;
}

static enum tag_what tag_what_any(struct generator *g)
{
	static const uint8_t what[] = { WHAT_ADD, WHAT_ADD, WHAT_ADD, WHAT_DEL, WHAT_SYNC, WHAT_PLAIN, WHAT_PLAIN, WHAT_PLAIN, WHAT_SEND,
		WHAT_SEND, WHAT_SEND, WHAT_SEND_NO_TAG };

	return (enum tag_what)what[g_pick(g, sizeof(what))];
}

static void tag_step(struct generator *g)
{
	static const uint64_t masks[] = { 0, 1, 3, UINT64_MAX >> 1, UINT64_MAX >> 1, UINT64_MAX >> 1 };
	static const uint32_t lengths[] = { 0, 1, 100, 1000, 4096, 40000 };
	unsigned id = g_pick(g, g->n_tags);
	struct op *op;
	int64_t mask;

	if (g->n_tags < 2 || (g->n_tags < 20 && g_chance(g, 20))) {
		tags_new(g);
		return;
	}
	op = g_op(g, OP_TAG, g->tags_worker[id], id);
	mask = (int64_t)masks[g_pick(g, 6)];
	op->a[TAG_WHAT] = tag_what_any(g);
	op->a[TAG_TAG] = g_pick(g, 6);
	op->a[TAG_FLAGS] = g_chance(g, 600) ? IBV_OPS_SIGNALED : 0;
	op->a[TAG_LEN] = lengths[g_pick(g, 6)];
	op->a[TAG_SEED] = 1 + g_pick(g, 1 << 30);
	op->a[TAG_N] = 1 + g_pick(g, TAG_SENDS);
	op->a[TAG_COUNT] = g_chance(g, 800) ? 0 : g_pick(g, 3);
	if (op->a[TAG_WHAT] == WHAT_ADD) {
		op->a[TAG_MASK] = mask;
		op->a[TAG_TAG] &= mask;
		op->a[TAG_LEN] = 40000;
	} else if (op->a[TAG_WHAT] == WHAT_DEL) {
		op->a[TAG_N] = g_pick(g, TAGS_MAX + 2);
	}
}

/* --- threads --- */

static void threads_step(struct generator *g)
{
	g_op(g, OP_THREADS, g_pick(g, g->workers), 0)->a[THREADS_N] = 1 + g_pick(g, THREADS_MAX);
}

/* --- all --- */

static const struct {
	unsigned kind, permille;
	void (*step)(struct generator *g);
} steps[] = {
	{ KIND_DM, 60, dm_step },
	{ KIND_ODP, 60, odp_step },
	{ KIND_MCAST, 40, mcast_step },
	{ KIND_XRC, 30, g_xrc_step },
	{ KIND_OVERRUN, 15, overrun_step },
	{ KIND_THREADS, 8, threads_step },
	{ KIND_TAGS, 150, tag_step },
};

bool g_more(struct generator *g)
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (!g_kind(g, steps[i].kind, steps[i].permille))
			continue;
		steps[i].step(g);
		return true;
	}
	return false;
}
