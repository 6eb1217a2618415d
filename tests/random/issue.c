/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on objects: each is a command to a worker, its errno is checked, and the model follows. An operation that
 * names what is not there is left out, so that any part of a program is a program.
 */
#include "tests/random/model.h"

#include <errno.h>
#include <string.h>

int issue_call(struct model *m, unsigned worker, const char *verb, int expected, int or_this)
{
	const struct result *result = worker_do(m, worker);

	if (!result)
		return -1;
	if (result->error != expected && result->error != or_this)
		wrong(m, "errno", "%s on worker %u: error %d instead of %d", verb, worker, result->error, expected);
	return result->error;
}

static const struct result *last_result(const struct model *m, unsigned worker)
{
	const struct m_worker *w = &m->worker[worker];

	return &w->reply.results[w->reply.n_results - 1];
}

struct cmd *issue_command(struct model *m, const struct op *op, enum cmd_kind kind, unsigned worker)
{
	struct cmd *cmd = cmd_add(m, worker, kind, op->id);

	memcpy(cmd->a, op->a, sizeof(cmd->a));
	return cmd;
}

void fill_note(struct model *m, const struct fill *fill, unsigned worker, bool waited_for, int mr, struct m_flow *life)
{
	for (uint32_t i = 0; i < fill->n; i++) {
		m->fills = grown(m->fills, m->n_fills, &m->fills_room, sizeof(*m->fills));
		m->fills[m->n_fills++] = (struct fill_seen){
			.seq = m->seq,
			.worker = worker,
			.waited_for = waited_for,
			.range = { fill->at[i].off, fill->at[i].off + fill->at[i].len },
			.seed = fill->seed,
			.mr = mr,
			.life = life,
		};
	}
}

static bool pd_is(const struct model *m, int64_t id, unsigned worker)
{
	return id >= 0 && id < OBJECTS && m->pds[id].live && m->pds[id].worker == worker;
}

static bool cq_is(const struct model *m, int64_t id, unsigned worker)
{
	return id >= 0 && id < OBJECTS && m->cqs[id].live && m->cqs[id].worker == worker;
}

/* --- made --- */

static bool issue_td(struct model *m, const struct op *op)
{
	issue_command(m, op, CMD_TD, op->worker);
	if (issue_call(m, op->worker, "ibv_alloc_td", 0, 0) == 0)
		m->tds[op->id] = (struct m_td){ .live = true, .worker = op->worker };
	return true;
}

static bool issue_pd(struct model *m, const struct op *op)
{
	issue_command(m, op, CMD_PD, op->worker);
	if (issue_call(m, op->worker, "ibv_alloc_pd", 0, 0) == 0)
		m->pds[op->id] = (struct m_pd){ .live = true, .worker = op->worker, .base = (int)op->id, .td = -1 };
	return true;
}

static bool issue_parent(struct model *m, const struct op *op)
{
	int64_t pd = op->a[PARENT_PD], td = op->a[PARENT_TD];

	if (!pd_is(m, pd, op->worker) || m->pds[pd].base != pd ||
		(td >= 0 && (td >= OBJECTS || !m->tds[td].live || m->tds[td].worker != op->worker)))
		return false;
	issue_command(m, op, CMD_PARENT, op->worker);
	if (issue_call(m, op->worker, "ibv_alloc_parent_domain", 0, 0) != 0)
		return true;
	m->pds[op->id] =
		(struct m_pd){ .live = true, .worker = op->worker, .base = (int)pd, .td = (int)td };
	m->pds[pd].users++;
	if (td >= 0)
		m->tds[td].users++;
	return true;
}

static bool issue_cq(struct model *m, const struct op *op)
{
	int64_t parent = op->a[CQ_EX] ? op->a[CQ_PARENT] : -1;

	if (parent >= 0 && (!pd_is(m, parent, op->worker) || m->pds[parent].base == parent))
		return false;
	issue_command(m, op, CMD_CQ, op->worker);
	if (issue_call(m, op->worker, "ibv_create_cq", 0, 0) != 0)
		return true;
	m->cqs[op->id] = (struct m_cq){
		.live = true,
		.worker = op->worker,
		.size = (unsigned)op->a[CQ_SIZE],
		.parent = (int)parent,
		.channel = op->a[CQ_CHANNEL] != 0,
		.may_overrun = op->a[CQ_OVERRUN] != 0,
	};
	if (parent >= 0)
		m->pds[parent].users++;
	return true;
}

static bool issue_srq(struct model *m, const struct op *op)
{
	if (!pd_is(m, op->a[SRQ_PD], op->worker) || (op->a[SRQ_XRCD] && !xrc_srq_parts_are(m, op)))
		return false;
	issue_command(m, op, CMD_SRQ, op->worker);
	if (issue_call(m, op->worker, "ibv_create_srq", 0, 0) != 0)
		return true;
	m->srqs[op->id] = (struct m_srq){
		.live = true,
		.worker = op->worker,
		.pd = (int)op->a[SRQ_PD],
		.max_wr = last_result(m, op->worker)->value[0],
		.max_sge = last_result(m, op->worker)->value[1],
		.xrcd = (int)op->a[SRQ_XRCD] - 1,
		.cq = op->a[SRQ_XRCD] ? (int)op->a[SRQ_CQ] : -1,
		.number = last_result(m, op->worker)->value[2],
	};
	if (op->a[SRQ_XRCD]) {
		m->xrcds[op->a[SRQ_XRCD] - 1].users++;
		m->cqs[op->a[SRQ_CQ]].users++;
	}
	m->pds[op->a[SRQ_PD]].users++;
	return true;
}

static bool access_is_legal(int64_t access)
{
	return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) || (access & IBV_ACCESS_LOCAL_WRITE);
}

/* In the arena, in what comes and goes, or everywhere. */
static bool mr_is_somewhere(const struct op *op)
{
	int64_t off = op->a[MR_OFF], len = op->a[MR_LEN];
	bool paged = op->a[MR_ACCESS] & IBV_ACCESS_ON_DEMAND;

	if (op->a[MR_IMPLICIT])
		return paged && !off && !op->a[MR_SHIFT];
	return len > 0 && len <= ARENA && ((off >= 0 && off + len <= ARENA) || (paged && off >= PAGED && off + len <= SPACE));
}

static bool issue_mr(struct model *m, const struct op *op)
{
	struct m_mr *mr = &m->mrs[op->id];
	int expected = access_is_legal(op->a[MR_ACCESS]) ? 0 : EINVAL;

	if (pd_is(m, op->a[MR_PD], op->worker) && op->a[MR_DM] && op->a[MR_LEN] > 0)
		return issue_dm_mr(m, op, !expected);
	if (!pd_is(m, op->a[MR_PD], op->worker) || op->a[MR_DM] || !mr_is_somewhere(op))
		return false;
	if (op->a[MR_IMPLICIT] && op->a[MR_ACCESS] & IBV_ACCESS_MW_BIND)
		expected = EINVAL;
	issue_command(m, op, CMD_MR, op->worker);
	if (issue_call(m, op->worker, "ibv_reg_mr", expected, expected) != 0)
		return true;
	*mr = (struct m_mr){
		.worker = op->worker,
		.key = last_result(m, op->worker)->value[0],
		.shift = op->a[MR_SHIFT],
		.dm = -1,
		.now = {
			.live = true,
			.pd = (int)op->a[MR_PD],
			.off = op->a[MR_OFF],
			.len = (uint64_t)op->a[MR_LEN],
			.implicit = op->a[MR_IMPLICIT] != 0,
			.access = (unsigned)op->a[MR_ACCESS],
		},
	};
	m->pds[op->a[MR_PD]].users++;
	return true;
}

static bool issue_mw(struct model *m, const struct op *op)
{
	if (!pd_is(m, op->a[MW_PD], op->worker))
		return false;
	issue_command(m, op, CMD_MW, op->worker);
	if (issue_call(m, op->worker, "ibv_alloc_mw", 0, 0) != 0)
		return true;
	m->mws[op->id] = (struct m_mw){
		.live = true,
		.worker = op->worker,
		.pd = (int)op->a[MW_PD],
		.type = (int)op->a[MW_TYPE],
		.rkey = last_result(m, op->worker)->value[0],
		.aim_off = -1,
	};
	m->pds[op->a[MW_PD]].users++;
	return true;
}

static bool qp_parts_are(const struct model *m, const struct op *op)
{
	int64_t srq = op->a[QP_SRQ];

	if (op->a[QP_TYPE] == IBV_QPT_XRC_RECV)
		return xrc_parts_are(m, op);
	if (!pd_is(m, op->a[QP_PD], op->worker) || !cq_is(m, op->a[QP_SEND_CQ], op->worker) ||
		!cq_is(m, op->a[QP_RECV_CQ], op->worker))
		return false;
	if (srq < 0)
		return true;
	/* How many completions an SRQ brings to whom is not known beforehand: no small CQs there. */
	if (srq >= OBJECTS || m->srqs[srq].xrcd >= 0 || op->a[QP_TYPE] == IBV_QPT_XRC_SEND)
		return false;
	return m->srqs[srq].live && m->srqs[srq].worker == op->worker &&
	       m->cqs[op->a[QP_RECV_CQ]].size >= 1024;
}

/* A receive QP has no PD and no CQ. */
static void xrc_made(struct model *m, struct m_qp *qp, const struct op *op)
{
	if (op->a[QP_TYPE] == IBV_QPT_XRC_RECV) {
		qp->xrc = XRC_RECV;
		qp->send_cq = qp->recv_cq = NO_CQ;
		qp->srq = -1;
		m->xrcds[qp->xrcd].users++;
		return;
	}
	if (op->a[QP_TYPE] == IBV_QPT_XRC_SEND) {
		qp->xrc = XRC_SEND;
		qp->recv_cq = qp->send_cq; /* nothing is received: the other one, if there is one, is free to go */
	}
	m->pds[qp->pd].users++;
}

static void qp_made(struct model *m, const struct op *op)
{
	struct m_qp *qp = &m->qps[op->id];

	*qp = (struct m_qp){
		.live = true,
		.worker = op->worker,
		.number = last_result(m, op->worker)->value[0],
		.pd = (int)op->a[QP_PD],
		.send_cq = (int)op->a[QP_SEND_CQ],
		.recv_cq = (int)op->a[QP_RECV_CQ],
		.srq = (int)op->a[QP_SRQ],
		.type = op->a[QP_TYPE] >= IBV_QPT_XRC_SEND ? IBV_QPT_RC : (enum ibv_qp_type)op->a[QP_TYPE],
		.xrcd = (int)op->a[QP_XRCD],
		.send_wr = (unsigned)op->a[QP_SEND_WR],
		.recv_wr = (unsigned)op->a[QP_RECV_WR],
		.sges = (unsigned)op->a[QP_SGE],
		.inline_max = (unsigned)op->a[QP_INLINE],
		.sig_all = op->a[QP_SIG_ALL] != 0,
		.ex = op->a[QP_EX] != 0,
		.state = IBV_QPS_RESET,
		.state_at = m->seq,
	};
	xrc_made(m, qp, op);
	m->cqs[qp->send_cq].users++;
	m->cqs[qp->recv_cq].users++;
	if (qp->srq >= 0)
		m->srqs[qp->srq].users++;
	if (m->tops[OP_QP] <= op->id)
		m->tops[OP_QP] = op->id + 1;
	qp->out = flow_new(m, (int)op->id);
}

static bool issue_qp(struct model *m, const struct op *op)
{
	/* Unreliable connections have no SRQ. */
	int expected = op->a[QP_TYPE] == IBV_QPT_UC && op->a[QP_SRQ] >= 0 ? EINVAL : 0;

	if (!qp_parts_are(m, op))
		return false;
	issue_command(m, op, CMD_QP, op->worker);
	if (issue_call(m, op->worker, "ibv_create_qp", expected, expected) == 0)
		qp_made(m, op);
	return true;
}

/* --- changed --- */

bool windows_are_unsure(const struct model *m, unsigned worker)
{
	for (unsigned i = 0; i < m->tops[OP_MW]; i++) {
		const struct m_mw *mw = &m->mws[i];

		if (mw->live && mw->worker == worker && (mw->wild || mw->touched > m->batch_start))
			return true;
	}
	return false;
}

void mr_change(struct model *m, struct m_mr *mr)
{
	mr->before = mr->now;
	mr->changed = m->seq;
	mr->changes++;
}

static bool rereg_is_legal(const struct op *op, struct m_mr_state *to)
{
	int64_t flags = op->a[REREG_FLAGS];
	unsigned was = to->access;

	if (flags & IBV_REREG_MR_CHANGE_PD)
		to->pd = (int)op->a[REREG_PD];
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		to->access = (unsigned)op->a[REREG_ACCESS];
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		to->off = op->a[REREG_OFF];
		to->len = (uint64_t)op->a[REREG_LEN];
	}
	if ((to->access ^ was) & IBV_ACCESS_ON_DEMAND)
		return false;
	return access_is_legal(to->access) && (!op->a[REREG_ACCESS] || (flags & IBV_REREG_MR_CHANGE_ACCESS));
}

static bool issue_rereg(struct model *m, const struct op *op)
{
	struct m_mr *mr = &m->mrs[op->id];
	struct m_mr_state to = mr->now;
	int expected, other;

	if (!mr->now.live || mr->shift || mr->now.implicit || op->a[REREG_LEN] <= 0 || op->a[REREG_OFF] < 0 ||
		op->a[REREG_OFF] + op->a[REREG_LEN] > ARENA ||
		((op->a[REREG_FLAGS] & IBV_REREG_MR_CHANGE_PD) && !pd_is(m, op->a[REREG_PD], mr->worker)) ||
		!workers_sync(m))
		return false;
	expected = !rereg_is_legal(op, &to) ? EINVAL : mr->bound ? EBUSY : 0;
	other = expected;
	/* What invalidates a window, or binds it, may or may not have been done. */
	if (expected != EINVAL && windows_are_unsure(m, mr->worker))
		other = expected ? 0 : EBUSY;
	issue_command(m, op, CMD_REREG, mr->worker);
	mr_change(m, mr);
	if (issue_call(m, mr->worker, "ibv_rereg_mr", expected, other) != 0)
		return true;
	m->pds[mr->now.pd].users--;
	m->pds[to.pd].users++;
	mr->now = to;
	if (last_result(m, mr->worker)->value[0] != mr->key)
		wrong(m, "errno", "ibv_rereg_mr changed the key of mr %u", op->id);
	return true;
}

static bool issue_resize(struct model *m, const struct op *op)
{
	struct m_cq *cq = &m->cqs[op->id];

	if (!cq->live || cq->may_overrun || op->a[RESIZE_TO] <= 0 || !workers_sync(m) || op->a[RESIZE_TO] < cq->due)
		return false;
	/* Those of an SRQ are not counted. */
	if (cq->size >= 1024 && op->a[RESIZE_TO] < 1024)
		return false;
	issue_command(m, op, CMD_RESIZE, cq->worker);
	if (issue_call(m, cq->worker, "ibv_resize_cq", 0, 0) == 0)
		cq->size = (unsigned)op->a[RESIZE_TO];
	return true;
}

static bool issue_limit(struct model *m, const struct op *op)
{
	struct m_srq *srq = &m->srqs[op->id];
	struct op now = *op;
	int64_t near;
	int expected;

	if (!srq->live || !workers_sync(m))
		return false;
	near = (int64_t)queue_waiting(&srq->queue) + 2 - op->a[LIMIT_NEAR];
	if (op->a[LIMIT_NEAR] && near >= 0)
		now.a[LIMIT_TO] = near;
	op = &now;
	expected = op->a[LIMIT_TO] > srq->max_wr ? EINVAL : 0;
	issue_command(m, op, CMD_LIMIT, srq->worker);
	if (issue_call(m, srq->worker, "ibv_modify_srq", expected, expected) != 0)
		return true;
	srq->limit = (unsigned)op->a[LIMIT_TO];
	if (srq->limit_most < srq->limit)
		srq->limit_most = srq->limit;
	if (!srq->armed)
		srq->waiting = srq_there(m, srq); /* no event is of a time before this */
	srq->rearmed += srq->armed;
	srq->armed = true;
	srq->may_be_armed = false;
	return true;
}

static bool issue_arm(struct model *m, const struct op *op)
{
	struct m_cq *cq = &m->cqs[op->id];

	/* One at a time, so that the events can be counted. */
	if (!cq->live || !cq->channel || cq->armed != UNARMED || cq->armed_at > m->batch_start)
		return false;
	issue_command(m, op, CMD_ARM, cq->worker);
	cq->armed = op->a[ARM_SOLICITED] ? ARMED_SOLICITED : ARMED_NEXT;
	cq->armed_at = m->seq;
	return true;
}

static bool issue_threads(struct model *m, const struct op *op)
{
	if (op->worker >= m->workers || op->a[THREADS_N] < 1 || op->a[THREADS_N] > THREADS_MAX || !workers_sync(m))
		return false;
	issue_command(m, op, CMD_THREADS, op->worker);
	if (issue_call(m, op->worker, "threads", 0, 0) == 0)
		m->worker[op->worker].threads |= op->a[THREADS_N] > 1;
	return true;
}

static bool issue_poll(struct model *m, const struct op *op)
{
	if (op->worker >= m->workers)
		return false;
	issue_command(m, op, CMD_POLL, op->worker);
	return true;
}

static bool issue_fill(struct model *m, const struct op *op)
{
	struct cmd *cmd;

	if (op->worker >= m->workers || op->a[FILL_OFF] < 0 || op->a[FILL_LEN] <= 0 ||
		op->a[FILL_OFF] + op->a[FILL_LEN] > ARENA)
		return false;
	cmd = issue_command(m, op, CMD_FILL, op->worker);
	cmd->fill.seed = (uint64_t)op->a[FILL_SEED];
	cmd->fill.n = 1;
	cmd->fill.at[0].off = (uint32_t)op->a[FILL_OFF];
	cmd->fill.at[0].len = (uint32_t)op->a[FILL_LEN];
	fill_note(m, &cmd->fill, op->worker, false, -1, NULL);
	return true;
}

/* --- any --- */

typedef bool issue_fn(struct model *m, const struct op *op);

static issue_fn *const table[OP_KINDS] = {
	[OP_TD] = issue_td,
	[OP_PD] = issue_pd,
	[OP_PARENT] = issue_parent,
	[OP_CQ] = issue_cq,
	[OP_SRQ] = issue_srq,
	[OP_MR] = issue_mr,
	[OP_MW] = issue_mw,
	[OP_QP] = issue_qp,
	[OP_FREE] = issue_free,
	[OP_REREG] = issue_rereg,
	[OP_RESIZE] = issue_resize,
	[OP_LIMIT] = issue_limit,
	[OP_CONNECT] = issue_connect,
	[OP_DATAGRAM] = issue_datagram,
	[OP_STATE] = issue_state,
	[OP_SEND] = issue_send,
	[OP_RECV] = issue_recv,
	[OP_POLL] = issue_poll,
	[OP_ARM] = issue_arm,
	[OP_FILL] = issue_fill,
	[OP_TAGS] = issue_tags,
	[OP_TAG] = issue_tag,
	[OP_THREADS] = issue_threads,
	[OP_XRCD] = issue_xrcd,
	[OP_GROUP] = issue_group,
	[OP_PAGES] = issue_pages,
	[OP_ADVISE] = issue_advise,
	[OP_DM] = issue_dm,
	[OP_DM_COPY] = issue_dm_copy,
};

static bool creates(const struct op *op)
{
	return op->kind <= OP_QP || op->kind == OP_DM || op->kind == OP_XRCD || op->kind == OP_TAGS;
}

bool issue(struct model *m, const struct op *op)
{
	bool done;

	if (op->id >= OBJECTS || (creates(op) && op->worker >= m->workers))
		return false;
	m->seq++;
	done = table[op->kind](m, op);
	/* A parent domain is numbered among the PDs. */
	enum op_kind numbered = op->kind == OP_PARENT ? OP_PD : (enum op_kind)op->kind;

	if (done && creates(op) && m->tops[numbered] <= op->id)
		m->tops[numbered] = op->id + 1;
	return done;
}
