/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs from seeds. It begins with a population of objects, then goes on with what a program does, mostly posts,
 * some of them made to fail, repairs what it broke, and now and then waits for everything.
 */
#include "tests/random/generate.h"

#include <stdlib.h>

uint32_t g_pick(struct generator *g, uint32_t n)
{
	uint64_t x = g->state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return n ? (uint32_t)(x % n) : 0;
}

bool g_chance(struct generator *g, unsigned permille)
{
	return g_pick(g, 1000) < permille;
}

struct op *g_op(struct generator *g, enum op_kind kind, unsigned worker, uint32_t id)
{
	return program_add(g->program, kind, worker, id);
}

static void settle(struct generator *g)
{
	/* Short and long batches: alone, and many things at once. */
	static const unsigned lengths[] = { 1, 4, 12, 30, 60, 120 };

	g_op(g, OP_SETTLE, 0, 0);
	g->until_settle = 1 + g_pick(g, lengths[g_pick(g, 6)]);
	for (unsigned i = 0; i < g->n_qps; i++)
		g->qps[i].sent = 0;
}

/* --- the beginning --- */

static enum ibv_qp_type type_any(struct generator *g)
{
	uint32_t n = g_pick(g, 10);

	if (g_kind(g, KIND_MCAST, 200))
		return IBV_QPT_UD;
	return n < 6 ? IBV_QPT_RC : n < 8 ? IBV_QPT_UC : IBV_QPT_UD;
}

static void pair_new(struct generator *g)
{
	unsigned a = g_pick(g, g->workers), b = g_chance(g, 250) ? a : g_pick(g, g->workers);
	enum ibv_qp_type type = type_any(g);
	int x = g_qp_new(g, a, type), y = g_qp_new(g, b, type);

	if (x < 0 || y < 0)
		return;
	if (type == IBV_QPT_UD) {
		g_datagram(g, (unsigned)x);
		g_datagram(g, (unsigned)y);
		g_join(g, (unsigned)x);
		g_join(g, (unsigned)y);
	} else {
		g_connect(g, (unsigned)x, (unsigned)y);
	}
}

static void populate(struct generator *g)
{
	for (unsigned w = 0; w < g->workers; w++) {
		int pd = g_pd_new(g, w);

		g_pd_new(g, w);
		g_parent_new(g, w);
		g_cq_new(g, w, false);
		g_srq_new(g, w);
		for (unsigned i = 0; i < 4; i++)
			g_mw_new(g, w);
		g_mr_new(g, w, (unsigned)pd,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
			4 << 20);
	}
	for (unsigned i = 0; i < g->workers + 1; i++)
		pair_new(g);
	for (unsigned i = 0; i < g->workers && g->kinds & KIND_THREADS; i++)
		g_op(g, OP_THREADS, i, 0)->a[THREADS_N] = 1 + g_pick(g, THREADS_MAX);
	for (unsigned i = 0; i < 2 && g->kinds & KIND_XRC; i++)
		g_xrc_pair(g);
}

/* --- on and on --- */

static unsigned alive(const struct generator *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->n_qps; i++)
		n += g->qps[i].live;
	return n;
}

static bool fit(const struct g_qp *a, const struct g_qp *b)
{
	return g_xrc(a) ? g_xrc(b) && a->type != b->type : a->type == b->type;
}

/* A QP that may be in error, with its peer, is set up again. */
static void repair(struct generator *g)
{
	for (unsigned tries = 0; tries < 20 && g->n_qps; tries++) {
		unsigned id = g_pick(g, g->n_qps);
		struct g_qp *qp = &g->qps[id];

		if (!qp->live || qp->health == G_UP)
			continue;
		if (qp->type == IBV_QPT_UD) {
			g_datagram(g, id);
			return;
		}
		int peer = qp->peer;

		/* Now and then with somebody else. */
		if (peer < 0 || !g->qps[peer].live || g_chance(g, 100)) {
			peer = (int)g_pick(g, g->n_qps);
			if (peer == (int)id || !g->qps[peer].live || !fit(qp, &g->qps[peer]))
				continue;
		}
		g_connect(g, id, (unsigned)peer);
		return;
	}
}

static void object_new(struct generator *g)
{
	unsigned worker = g_pick(g, g->workers);
	int pd = g_pd_any(g, worker, false);

	switch (g_pick(g, 8)) {
	case 0:
		g_cq_new(g, worker, g_chance(g, 500));
		break;
	case 1:
		g_srq_new(g, worker);
		break;
	case 2:
		g_parent_new(g, worker);
		break;
	case 3:
		g_pd_new(g, worker);
		break;
	case 4:
		g_mw_new(g, worker);
		break;
	case 5:
		if (alive(g) < 8 * g->workers)
			pair_new(g);
		break;
	default:
		if (pd >= 0)
			g_mr_new(g, worker, (unsigned)pd, g_pick(g, 32), 1 + g_pick(g, 1 << g_pick(g, 21)));
	}
}

static void fill_any(struct generator *g)
{
	struct op *op = g_op(g, OP_FILL, g_pick(g, g->workers), 0);

	op->a[FILL_LEN] = 1 + g_pick(g, 1 << (3 + g_pick(g, 15)));
	op->a[FILL_OFF] = g_pick(g, (uint32_t)(ARENA - op->a[FILL_LEN]));
	op->a[FILL_SEED] = 1 + g_pick(g, 1 << 30);
}

static void arm_any(struct generator *g)
{
	unsigned id = g_pick(g, g->n_cqs);

	if (!g->n_cqs || !g->cqs[id].live || !g->cqs[id].channel)
		return;
	g_op(g, OP_ARM, g->cqs[id].worker, id)->a[ARM_SOLICITED] = g_chance(g, 500);
}

static void step(struct generator *g)
{
	uint32_t n;

	if (g->kinds && g_more(g))
		return;
	n = g_pick(g, 1000);

	if (n < 550)
		g_send_any(g);
	else if (n < 700)
		g_recv_any(g);
	else if (n < 745)
		g_op(g, OP_POLL, g_pick(g, g->workers), 0);
	else if (n < 770)
		fill_any(g);
	else if (n < 790)
		arm_any(g);
	else if (n < 890)
		repair(g);
	else if (n < 908)
		g_state_any(g);
	else if (n < 938)
		g_free_any(g);
	else if (n < 955)
		g_change_any(g);
	else
		object_new(g);
}

void program_generate(struct program *program, uint64_t seed, size_t ops, unsigned workers, unsigned kinds)
{
	struct generator *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	g->program = program;
	g->state = seed * 0x2545f4914f6cdd1dull + workers;
	g->workers = workers;
	g->kinds = kinds;
	g->chaos = g_chance(g, 300) ? 0 : g_pick(g, 80);
	populate(g);
	while (program->n < ops) {
		step(g);
		if (g->until_settle-- == 0)
			settle(g);
	}
	free(g);
}
