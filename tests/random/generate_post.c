/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts: mostly such that they succeed, and some that cannot. */
#include "tests/random/generate.h"

#include <string.h>

#define OPCODES(...) ((const uint8_t[]){ __VA_ARGS__ })

static const uint32_t sizes[] = { 0, 1, 7, 8, 9, 16, 24, 25, 36, 37, 64, 84, 128, 200, 220, 236, 237, 256, 264, 265, 300,
	512, 1000, 1024, 2048, 4095, 4096, 4097, 8192, 9000, 16383, 16384, 16385, 32767, 32768, 32769,
	65536, 70001, 262143, 262144, 262145, 1 << 20, 3 << 20 };

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Small ones mostly; none above @most. */
static uint32_t size_any(struct generator *g, uint32_t most)
{
	uint32_t n = g_chance(g, 700) ? 21 : g_chance(g, 800) ? 30 : g_chance(g, 900) ? 39 : SIZES;

	while (n > 1 && sizes[n - 1] > most)
		n--;
	return sizes[g_pick(g, n)];
}

/* Whose memory it is to be: a QP's or an SRQ's. */
struct place {
	unsigned worker, pd, sges;
};

/* A place for @len bytes: sometimes outside, with a wrong key, or where that may not be done. */
static bool sge_any(struct generator *g, int64_t *a, const struct place *place, unsigned access, uint32_t len)
{
	bool bad = g_chance(g, g->chaos / 4);
	int mr = bad ? g_mr_any(g, place->worker) : g_mr_for(g, place->worker, place->pd, access, len);

	if (mr < 0)
		return false;
	int64_t room = g->mrs[mr].len - len;

	a[SGE_MR] = mr;
	a[SGE_OFF] = room > 0 ? g_pick(g, (uint32_t)room + 1) : 0;
	a[SGE_LEN] = len;
	if (bad && g_chance(g, 300))
		a[SGE_TWEAK] = 1 + g_pick(g, 255);
	if (bad && g_chance(g, 300))
		a[SGE_OFF] = g_chance(g, 500) ? room + 1 : -1;
	return true;
}

/* Up to as many SGEs as the QP takes, @len bytes together. */
static int64_t sges_any(struct generator *g, int64_t *a, struct place place, unsigned access, uint32_t len)
{
	unsigned n = g_chance(g, 600) ? 1 : 1 + g_pick(g, place.sges);

	if (!len && g_chance(g, 500))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t piece = i + 1 == n ? len : g_pick(g, len + 1);
		/* Making a region adds operations: the arguments move, so they are built elsewhere. */
		int64_t sge[SGE_ARGS] = { 0 };

		if (!sge_any(g, sge, &place, access, piece))
			return i;
		memcpy(a + i * SGE_ARGS, sge, sizeof(sge));
		len -= piece;
	}
	return n;
}

/* --- receives --- */

/* @id: of the QP, unless it has an SRQ. */
static void recv_to(struct generator *g, struct g_qp *qp, unsigned id, uint32_t size, bool more)
{
	bool shared = qp->srq >= 0;
	int64_t sge[SGES * SGE_ARGS] = { 0 }, n;
	struct place place = { qp->worker, qp->pd, qp->sges };
	struct op *op;

	if (shared && !g->srqs[qp->srq].live)
		return;
	if (shared)
		place = (struct place){ qp->worker, g->srqs[qp->srq].pd, g->srqs[qp->srq].sges };
	if (g_chance(g, g->chaos / 3))
		size = size_any(g, size);
	n = sges_any(g, sge, place, IBV_ACCESS_LOCAL_WRITE, size + (qp->type == IBV_QPT_UD ? 40 : 0));
	op = g_op(g, OP_RECV, qp->worker, shared ? (uint32_t)qp->srq : id);
	op->a[RECV_IS_SRQ] = shared;
	op->a[RECV_MORE] = more;
	op->a[RECV_SGES] = n;
	memcpy(op->a + RECV_SGE, sge, sizeof(sge));
	if (shared)
		g->srqs[qp->srq].there++;
	else
		qp->there++;
}

static int *there_of(struct generator *g, struct g_qp *qp)
{
	return qp->srq >= 0 ? &g->srqs[qp->srq].there : &qp->there;
}

void g_recv_any(struct generator *g)
{
	int id = g_qp_any(g, g_chance(g, 150), g_chance(g, 950));
	unsigned n = 1 + g_pick(g, 4);
	struct g_qp to, *qp = id < 0 ? NULL : &g->qps[id];

	if (qp && g_xrc(qp) && g_xrc_aim(g, qp, &to) >= 0)
		qp = &to;
	if (!qp || *there_of(g, qp) > 40 || (g_xrc(qp) && qp->srq < 0))
		return;
	for (unsigned i = 0; i < n; i++)
		recv_to(g, qp, (unsigned)id, qp->recv_size, i + 1 < n && g_chance(g, 800));
	if (qp->srq >= 0 && !g->srqs[qp->srq].xrc && g_chance(g, 150))
		g_op(g, OP_LIMIT, qp->worker, (uint32_t)qp->srq)->a[LIMIT_NEAR] = 1 + g_pick(g, 4);
}

/* --- targets --- */

/* Eight bytes at a place that is a multiple of eight. */
static bool is_word(unsigned opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == IBV_WR_ATOMIC_WRITE;
}

static unsigned access_for(unsigned opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		return IBV_ACCESS_REMOTE_WRITE;
	}
}

static int mw_fit(struct generator *g, const struct g_qp *peer, unsigned access, uint32_t len)
{
	for (unsigned tries = 0; tries < 20 && g->n_mws; tries++) {
		unsigned i = g_pick(g, g->n_mws);
		const struct g_mw *mw = &g->mws[i];

		if (mw->live && mw->bound && mw->worker == peer->worker && mw->len >= len && (mw->access & access) == access)
			return (int)i;
	}
	return -1;
}

static int64_t atomic_offset(struct generator *g, const struct g_mr *mr)
{
	int64_t first = (8 - mr->off % 8) % 8;

	/* A few words that many want. */
	return g_chance(g, 700) ? first + 8 * (int64_t)g_pick(g, 3) : first + 8 * (int64_t)g_pick(g, (uint32_t)(mr->len / 8));
}

static bool target_any(struct generator *g, int64_t *a, const struct g_qp *peer, unsigned opcode, uint32_t len)
{
	unsigned access = access_for(opcode);
	bool atomic = is_word(opcode), bad = g_chance(g, g->chaos / 2);
	int mw = access != IBV_ACCESS_REMOTE_ATOMIC && g_chance(g, 250) ? mw_fit(g, peer, access, len) : -1;
	int mr;

	if (mw >= 0) {
		a[SEND_TARGET] = mw;
		a[SEND_IS_MW] = 1;
		a[SEND_OFF] = g_pick(g, (uint32_t)(g->mws[mw].len - len) + 1);
	} else {
		mr = bad ? g_mr_any(g, peer->worker) : g_mr_for(g, peer->worker, peer->pd, access, atomic ? 64 : len);
		if (mr < 0)
			return false;
		int64_t room = g->mrs[mr].len - len;

		a[SEND_TARGET] = mr;
		a[SEND_OFF] = room > 0 ? g_pick(g, (uint32_t)room + 1) : 0;
		if (atomic && g->mrs[mr].len >= 64)
			a[SEND_OFF] = atomic_offset(g, &g->mrs[mr]);
		if (bad && g_chance(g, 300))
			a[SEND_OFF] = g_chance(g, 500) ? room + 1 : -1;
		if (atomic && bad && g_chance(g, 300))
			a[SEND_OFF] += 1 + g_pick(g, 7);
	}
	if (bad && g_chance(g, 300))
		a[SEND_TWEAK] = 1 + g_pick(g, 255);
	return true;
}

/* Half of the swaps are to succeed: the word is set first. */
static void compare_any(struct generator *g, int64_t *a, const struct g_qp *peer)
{
	const struct g_mr *mr = &g->mrs[a[SEND_TARGET]];
	int64_t off = mr->off + a[SEND_OFF], seed = 1 + g_pick(g, 1 << 30);
	uint8_t bytes[8];
	struct op *op;

	a[SEND_COMPARE] = g_pick(g, 1000);
	a[SEND_SWAP] = ((int64_t)g_pick(g, 1 << 30) << 20) + g_pick(g, 1000);
	if (a[SEND_IS_MW] || off < 0 || off + 8 > ARENA || g_chance(g, 500))
		return;
	op = g_op(g, OP_FILL, peer->worker, 0);
	op->a[FILL_OFF] = off;
	op->a[FILL_LEN] = 8;
	op->a[FILL_SEED] = seed;
	for (size_t i = 0; i < 8; i++)
		bytes[i] = pattern((uint64_t)seed, (size_t)off + i);
	memcpy(&a[SEND_COMPARE], bytes, 8);
	if (g_chance(g, 500)) {
		g_op(g, OP_SETTLE, 0, 0);
	}
}

/* --- windows --- */

static bool bind_any(struct generator *g, int64_t *a, unsigned id)
{
	const struct g_qp *qp = &g->qps[id];
	int mw = g_mw_any(g, qp->worker), mr;
	struct g_mw *window;

	if (mw < 0)
		return false;
	window = &g->mws[mw];
	if (window->type == IBV_MW_TYPE_2 && window->bound && g_chance(g, 900))
		return false;
	mr = g_chance(g, 950) ? g_mr_for(g, qp->worker, qp->pd,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_WRITE |
						IBV_ACCESS_REMOTE_READ,
					64)
			      : g_mr_any(g, qp->worker);
	if (mr < 0)
		return false;
	int64_t len = g->mrs[mr].len;

	window->len = g_chance(g, 30) ? 0 : 1 + g_pick(g, (uint32_t)len);
	window->access = g_chance(g, 700) ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ : g_pick(g, 16) & ~1u;
	if (g_chance(g, 200))
		window->access |= IBV_ACCESS_ZERO_BASED;
	window->bound = true;
	window->mr = mr;
	window->qp = (int)id;
	a[SEND_TARGET] = mw;
	a[SEND_MR] = mr;
	a[SEND_OFF] = g_pick(g, (uint32_t)(len - window->len) + 1) + (g_chance(g, 30) ? 1 : 0);
	a[SEND_COMPARE] = window->len;
	a[SEND_SWAP] = window->access;
	a[SEND_TWEAK] = g_pick(g, 200);
	return true;
}

static bool invalidation_any(struct generator *g, int64_t *a, unsigned worker, int qp)
{
	for (unsigned tries = 0; tries < 20 && g->n_mws; tries++) {
		unsigned i = g_pick(g, g->n_mws);
		struct g_mw *mw = &g->mws[i];

		if (mw->worker != worker || ((mw->type != IBV_MW_TYPE_2 || !mw->bound || mw->qp != qp) && g_chance(g, 980)))
			continue;
		a[SEND_TARGET] = i;
		mw->bound = false;
		return true;
	}
	return false;
}

/* --- sends --- */

static unsigned opcode_any(struct generator *g, unsigned type)
{
	static const uint8_t rc[] = { IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
		IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV };
	static const uint8_t uc[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV };
	static const uint8_t ud[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM };

	if (g_chance(g, 4))
		return rc[g_pick(g, sizeof(rc))];
	if ((type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) && g_kind(g, KIND_ATOMIC_WRITE, 150))
		return IBV_WR_ATOMIC_WRITE;
	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		return rc[g_pick(g, sizeof(rc))];
	return type == IBV_QPT_UC ? uc[g_pick(g, sizeof(uc))] : ud[g_pick(g, sizeof(ud))];
}

static bool takes_receive(unsigned opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(unsigned opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static uint32_t length_any(struct generator *g, unsigned opcode, const struct g_qp *qp, const struct g_qp *peer)
{
	if (is_word(opcode))
		return 8;
	if (qp->type == IBV_QPT_UD)
		return size_any(g, g_chance(g, g->chaos / 8) ? 5000 : peer->recv_size < 4096 ? peer->recv_size : 4096);
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return size_any(g, 3 << 20);
	return size_any(g, g_chance(g, g->chaos / 4) ? 3 << 20 : peer->recv_size);
}

/* Mostly there is a receive; where not, it may come later or never. */
static void receive_ready(struct generator *g, struct g_qp *to, unsigned peer)
{
	int *there = there_of(g, to);

	if (*there <= 0 && g_chance(g, 850))
		recv_to(g, to, peer, to->recv_size, false);
	(*there)--;
}

static void members_ready(struct generator *g, unsigned group)
{
	for (unsigned i = 0; i < g->n_qps; i++) {
		if (g->qps[i].live && g->qps[i].groups >> (group - 1) & 1)
			receive_ready(g, &g->qps[i], i);
	}
}

static int64_t flags_any(struct generator *g, unsigned opcode, const struct g_qp *qp, uint32_t len)
{
	int64_t flags = 0;
	bool response = opcode == IBV_WR_RDMA_READ || is_atomic(opcode);

	flags |= g_chance(g, 650) ? IBV_SEND_SIGNALED : 0;
	flags |= g_chance(g, 80) && qp->type == IBV_QPT_RC ? IBV_SEND_FENCE : 0;
	flags |= g_chance(g, 120) ? IBV_SEND_SOLICITED : 0;
	if (!response && g_chance(g, 350) && (len <= qp->inline_max || g_chance(g, 10)))
		flags |= IBV_SEND_INLINE;
	return flags;
}

/* False: it cannot be made; some of its arguments are there. */
static bool send_args(struct generator *g, int64_t *a, unsigned id, unsigned peer, const struct g_qp *to, unsigned opcode)
{
	struct g_qp *qp = &g->qps[id];
	uint32_t len;

	if (opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV) {
		a[SEND_FLAGS] = flags_any(g, opcode, qp, 0) & ~IBV_SEND_INLINE;
		return opcode == IBV_WR_BIND_MW ? bind_any(g, a, id) : invalidation_any(g, a, qp->worker, (int)id);
	}
	len = length_any(g, opcode, qp, to);
	a[SEND_FLAGS] = flags_any(g, opcode, qp, len);
	a[SEND_SGES] = sges_any(g, a + SEND_SGE, (struct place){ qp->worker, qp->pd, qp->sges },
		opcode == IBV_WR_RDMA_READ || is_atomic(opcode) ? IBV_ACCESS_LOCAL_WRITE : 0, len);
	if (qp->type == IBV_QPT_UD) {
		a[SEND_TARGET] = peer;
		a[SEND_GRH] = g_chance(g, 300);
		a[SEND_TWEAK] = g_chance(g, 20);
		return true;
	}
	if (opcode == IBV_WR_SEND_WITH_INV)
		return invalidation_any(g, a, g->qps[peer].worker, (int)peer);
	if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM)
		return true;
	if (!target_any(g, a, to, opcode, len))
		return false;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		compare_any(g, a, to);
	else
		a[SEND_COMPARE] = 1 + g_pick(g, 1000);
	return true;
}

static int peer_any(struct generator *g, unsigned id)
{
	if (g->qps[id].type == IBV_QPT_UD)
		return g_qp_any(g, true, g_chance(g, 900));
	return g->qps[id].peer;
}

static bool send_one(struct generator *g, unsigned id, bool more)
{
	struct g_qp *qp = &g->qps[id];
	int peer = peer_any(g, id);
	unsigned opcode = opcode_any(g, qp->type), group = 0;
	int64_t a[OP_ARGS] = { 0 };
	struct g_qp aim, *to = peer < 0 ? NULL : &g->qps[peer];
	struct op *op;
	int srq = -1;

	if (qp->type == IBV_QPT_XRC_SEND && to) {
		srq = g_xrc_aim(g, to, &aim);
		if (srq < 0 || opcode == IBV_WR_SEND_WITH_INV)
			return false;
		to = &aim;
	}
	if (peer < 0 || qp->type == IBV_QPT_XRC_RECV || (qp->sent >= qp->send_wr && g_chance(g, 950)))
		return false;
	if ((opcode == IBV_WR_RDMA_READ || is_word(opcode)) && qp->rd == 0 && g_chance(g, 900))
		return false;
	if (qp->type == IBV_QPT_UD && g_kind(g, KIND_MCAST, 300))
		group = 1 + g_pick(g, GROUPS);
	if (group)
		opcode = IBV_WR_SEND_WITH_IMM, members_ready(g, group);
	else if (takes_receive(opcode))
		receive_ready(g, to, (unsigned)peer);
	if (!send_args(g, a, id, (unsigned)peer, to, opcode))
		return false;
	op = g_op(g, OP_SEND, qp->worker, id);
	memcpy(op->a, a, sizeof(a));
	op->a[SEND_GROUP] = group;
	op->a[SEND_SRQ] = srq + 1;
	if (srq >= 0 && g_chance(g, g->chaos / 2))
		op->a[SEND_SRQ] = g_pick(g, g->n_srqs + 1);
	op->a[SEND_OPCODE] = opcode;
	op->a[SEND_MORE] = more;
	if (opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		op->a[SEND_IMM] = g_pick(g, UINT32_MAX);
	qp->sent++;
	return true;
}

void g_send_any(struct generator *g)
{
	int id = g_qp_any(g, g_chance(g, 120), g_chance(g, 950));
	unsigned n = g_chance(g, 700) ? 1 : 1 + g_pick(g, 8);

	if (id < 0 || (g->qps[id].no_send && g_chance(g, 950)))
		return;
	for (unsigned i = 0; i < n; i++) {
		if (!send_one(g, (unsigned)id, i + 1 < n && g_chance(g, 500)))
			return;
	}
}
