/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of the generator. It follows what it has made so far, roughly: enough to make operations that mean
 * something, without knowing how they end.
 */
#ifndef RANDOM_GENERATE_H
#define RANDOM_GENERATE_H

#include <infiniband/verbs.h>

#include "tests/random/program.h"

enum { G_MAX = 4000 };

struct g_pd {
	unsigned worker, id;
	int base;
	bool live;
};

struct g_cq {
	unsigned worker;
	bool live, small, channel, overrun;
	unsigned size;
};

struct g_srq {
	unsigned worker, pd, max_wr, sges, recv_size;
	bool live, xrc;
	int file, there;
};

struct g_mr {
	unsigned worker, pd, access;
	int64_t off, len, shift;
	bool live;
};

struct g_mw {
	unsigned worker, pd, type, access;
	int64_t len;
	int mr, qp;
	bool live, bound;
};

struct g_dm {
	unsigned worker;
	int64_t len;
	bool live;
};

enum g_health { G_DOWN, G_UP, G_SUSPECT, G_DRAINED };

struct g_qp {
	unsigned worker, pd, type, send_wr, recv_wr, sges, inline_max, recv_size;
	int srq, peer, file; /* of XRC: by which its domain is shared */
	bool live, ex, no_send;
	enum g_health health;
	unsigned access, rd, dest_rd;
	int there; /* receives, roughly */
	unsigned sent; /* in this batch */
	uint32_t qkey;
	unsigned groups; /* of multicast */
	uint64_t *hot;
};

struct generator {
	struct program *program;
	uint64_t state;
	unsigned workers, kinds;
	struct g_pd pds[G_MAX];
	struct g_cq cqs[G_MAX];
	struct g_srq srqs[G_MAX];
	struct g_mr mrs[G_MAX];
	struct g_mw mws[G_MAX];
	struct g_qp qps[G_MAX];
	struct g_dm dms[G_MAX];
	unsigned n_dms, n_xrcds, n_tags;
	unsigned tags_worker[G_MAX];
	int xrcds[WORKERS][4]; /* by file, 1 more than its number */
	unsigned n_tds, n_pds, n_cqs, n_srqs, n_mrs, n_mws, n_qps;
	unsigned td_worker[G_MAX];
	unsigned until_settle;
	unsigned chaos; /* permille of sends that are made to fail */
};

uint32_t g_pick(struct generator *g, uint32_t n); /* 0 to n-1 */
bool g_chance(struct generator *g, unsigned permille);
/* The same, if programs have that kind of thing at all; without it nothing is drawn. */
static inline bool g_kind(struct generator *g, unsigned kind, unsigned permille)
{
	return (g->kinds & kind) && g_chance(g, permille);
}
struct op *g_op(struct generator *g, enum op_kind kind, unsigned worker, uint32_t id);

/* generate_objects.c: numbers of objects, -1: none */
int g_pd_any(struct generator *g, unsigned worker, bool plain);
int g_cq_any(struct generator *g, unsigned worker, bool big);
int g_mr_for(struct generator *g, unsigned worker, unsigned pd, unsigned access, int64_t len);
int g_mr_any(struct generator *g, unsigned worker);
int g_mw_any(struct generator *g, unsigned worker);
int g_qp_any(struct generator *g, bool datagram, bool up);
int g_pd_new(struct generator *g, unsigned worker);
int g_parent_new(struct generator *g, unsigned worker);
int g_cq_new(struct generator *g, unsigned worker, bool small);
int g_srq_new(struct generator *g, unsigned worker);
int g_mr_new(struct generator *g, unsigned worker, unsigned pd, unsigned access, int64_t len);
int g_mw_new(struct generator *g, unsigned worker);
int g_qp_new(struct generator *g, unsigned worker, enum ibv_qp_type type);
void g_connect(struct generator *g, unsigned a, unsigned b);
void g_datagram(struct generator *g, unsigned id);
void g_free_any(struct generator *g);
void g_change_any(struct generator *g);
void g_state_any(struct generator *g);

void g_xrc_step(struct generator *g);
/* generate_more.c: a step of one of the kinds beyond the base. False: none was due. */
bool g_more(struct generator *g);

/* generate_xrc.c: a pair of QPs, with an SRQ in the same domain. */
void g_xrc_pair(struct generator *g);
/* An SRQ for what is sent to @to, -1: none; @aim is as if it were the QP's, in the SRQ's process. */
int g_xrc_aim(struct generator *g, const struct g_qp *to, struct g_qp *aim);
static inline bool g_xrc(const struct g_qp *qp)
{
	return qp->type == IBV_QPT_XRC_SEND || qp->type == IBV_QPT_XRC_RECV;
}
/* Most new QPs are in a multicast group. */
void g_join(struct generator *g, unsigned id);

/* generate_post.c */
void g_send_any(struct generator *g);
void g_recv_any(struct generator *g);

#endif
