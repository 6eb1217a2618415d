/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posts: the WR of the model is made together with the command, before its result is known, since the other end may be
 * told of it first.
 */
#include "tests/random/model.h"

#include <stdlib.h>
#include <string.h>

/* Completions that a small CQ may have to hold: it is not made to overrun here. */
static bool cq_has_room(const struct model *m, int cq)
{
	return m->cqs[cq].size >= 1024 || m->cqs[cq].may_overrun || m->cqs[cq].due < m->cqs[cq].size;
}

/* --- keys and addresses --- */

static bool mr_was(const struct model *m, int64_t id)
{
	return id >= 0 && id < OBJECTS && m->mrs[id].key;
}

/* Through all memory of a process only what it has for that is used: what else there is, nobody knows. */
static bool is_ours(const struct m_mr *mr, int64_t off, uint64_t len)
{
	return !mr->now.implicit || (off >= 0 && off + (int64_t)len <= ARENA) ||
	       (off >= PAGED && off + (int64_t)len <= SPACE);
}

/* False: it names a region that never was. Any region's key will do, also one that is gone. */
static bool sge_make(const struct model *m, const int64_t *a, unsigned worker, struct m_sge *sge)
{
	const struct m_mr *mr;

	if (!mr_was(m, a[SGE_MR]) || a[SGE_LEN] < 0 || a[SGE_LEN] > ARENA)
		return false;
	mr = &m->mrs[a[SGE_MR]];
	sge->off = mr->now.off + a[SGE_OFF];
	sge->addr = m->worker[mr->worker].hello.arena + (uint64_t)(mr->now.off + mr->shift + a[SGE_OFF]);
	sge->len = (uint32_t)a[SGE_LEN];
	sge->key = mr->key ^ (uint32_t)a[SGE_TWEAK];
	sge->mr = (int)a[SGE_MR];
	return mr->worker == worker && is_ours(mr, sge->off, sge->len);
}

bool sges_make(const struct model *m, const int64_t *a, int64_t n, unsigned worker, struct m_sge *sge)
{
	if (n < 0 || n > SGES)
		return false;
	for (int64_t i = 0; i < n; i++) {
		if (!sge_make(m, a + i * SGE_ARGS, worker, &sge[i]))
			return false;
	}
	return true;
}

/* Inline data is read by the post itself, through no key and at its address: it has to be there. */
static bool sges_are_inside(const struct model *m, unsigned worker, struct m_sge *sge, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (sge[i].off < 0 || sge[i].off + (int64_t)sge[i].len > ARENA)
			return false;
		sge[i].addr = m->worker[worker].hello.arena + (uint64_t)sge[i].off;
	}
	return true;
}

void sges_copy(struct cmd *cmd, const struct m_sge *sge, unsigned n)
{
	cmd->n_sge = (uint8_t)n;
	for (unsigned i = 0; i < n; i++)
		cmd->sge[i] = (struct ibv_sge){ .addr = sge[i].addr, .length = sge[i].len, .lkey = sge[i].key };
}

/* --- what a WR is about --- */

static void touch(struct model *m, struct m_mw *mw)
{
	mw->touched = m->seq;
}

static bool target_mr(struct model *m, const struct op *op, struct m_wr *wr)
{
	const struct m_mr *mr = &m->mrs[op->a[SEND_TARGET]];

	wr->target = mr->now.off + op->a[SEND_OFF];
	wr->raddr = m->worker[mr->worker].hello.arena + (uint64_t)(wr->target + mr->shift);
	wr->rkey = mr->key ^ (uint32_t)op->a[SEND_TWEAK];
	return is_ours(mr, wr->target, wr->len);
}

/* What has to be added to an address of the binding to have its place in the arena. */
static int64_t binding_origin(const struct model *m, const struct m_mw *mw)
{
	const struct m_mr *mr = &m->mrs[mw->mr];
	int64_t off = (int64_t)(mw->addr - m->worker[mr->worker].hello.arena) - mr->shift;

	return mw->access & IBV_ACCESS_ZERO_BASED ? off : off - (int64_t)mw->addr;
}

/* Whether the key may be of an earlier binding, where the address is another place. */
static bool aims_elsewhere(const struct model *m, const struct m_mw *mw, uint32_t key)
{
	if (!mw->moved)
		return false;
	return mw->wild || key != mw->rkey ||
	       (mw->bound && mw->bound_key == key && binding_origin(m, mw) != mw->aim_off - (int64_t)mw->aim);
}

static bool target_mw(struct model *m, const struct op *op, struct m_wr *wr)
{
	const struct m_mw *mw = &m->mws[op->a[SEND_TARGET]];

	wr->raddr = mw->aim + (uint64_t)op->a[SEND_OFF];
	wr->target = mw->aim_off < 0 ? -1 : mw->aim_off + op->a[SEND_OFF];
	wr->rkey = mw->rkey ^ (uint32_t)op->a[SEND_TWEAK];
	return !aims_elsewhere(m, mw, wr->rkey);
}

static bool mw_was(const struct model *m, int64_t id)
{
	return id >= 0 && id < OBJECTS && m->mws[id].rkey;
}

static bool take_target(struct model *m, const struct op *op, struct m_wr *wr)
{
	int64_t id = op->a[SEND_TARGET];

	if (op->a[SEND_IS_MW])
		return mw_was(m, id) && target_mw(m, op, wr);
	return mr_was(m, id) && target_mr(m, op, wr);
}

static bool take_bind(struct model *m, const struct op *op, struct m_wr *wr)
{
	int64_t id = op->a[SEND_TARGET], region = op->a[SEND_MR];
	const struct m_qp *qp = flow_qp(m, wr->flow);
	struct m_mw *mw;
	const struct m_mr *mr;

	if (!mw_was(m, id) || !m->mws[id].live || !mr_was(m, region) || !m->mrs[region].now.live ||
		m->mws[id].worker != qp->worker || m->mrs[region].worker != qp->worker)
		return false;
	mw = &m->mws[id];
	mr = &m->mrs[region];
	/* The model would not know which of the two a later use aimed at. */
	if (mw->aim_off >= 0 && mr->shift != mw->aim_shift)
		return false;
	wr->mw = (int)id;
	wr->mr = (int)region;
	wr->raddr = m->worker[mr->worker].hello.arena + (uint64_t)(mr->now.off + mr->shift + op->a[SEND_OFF]);
	wr->compare = (uint64_t)op->a[SEND_COMPARE];
	wr->swap = (uint64_t)op->a[SEND_SWAP];
	/* A type 1 window's new key is told by the verb. */
	wr->rkey = mw->type == IBV_MW_TYPE_1 ? mw->rkey : (mw->rkey & ~0xffu) | (uint8_t)(mw->rkey + 1 + op->a[SEND_TWEAK]);
	return true;
}

/* Once it is certain that it is posted: later uses aim at what was asked for last. */
static void aim(struct model *m, const struct m_wr *wr)
{
	struct m_mw *mw = &m->mws[wr->mw];
	const struct m_mr *mr = &m->mrs[wr->mr];
	uint64_t aimed = wr->swap & IBV_ACCESS_ZERO_BASED ? 0 : wr->raddr;
	int64_t off = (int64_t)(wr->raddr - m->worker[mr->worker].hello.arena) - mr->shift;

	touch(m, mw);
	if (mw->type == IBV_MW_TYPE_2)
		mw->rkey = wr->rkey;
	mw->moved |= mw->aim_off >= 0 && mw->aim_off - (int64_t)mw->aim != off - (int64_t)aimed;
	mw->aim = aimed;
	mw->aim_shift = mr->shift;
	mw->aim_off = off;
}

static bool take_invalidation(struct model *m, const struct op *op, struct m_wr *wr)
{
	if (!mw_was(m, op->a[SEND_TARGET]))
		return false;
	wr->imm = m->mws[op->a[SEND_TARGET]].rkey ^ (uint32_t)op->a[SEND_TWEAK];
	wr->mw = (int)op->a[SEND_TARGET];
	return true;
}

static bool take_datagram(struct model *m, const struct op *op, struct m_wr *wr)
{
	int64_t id = op->a[SEND_TARGET];

	if (id < 0 || id >= OBJECTS || !m->qps[id].out)
		return false;
	wr->group = (int)op->a[SEND_GROUP];
	if (wr->group < 0 || wr->group > GROUPS || (wr->group && wr->opcode != IBV_WR_SEND_WITH_IMM))
		return false;
	wr->dst = wr->group ? -1 : (int)id;
	wr->qkey = m->qps[id].qkey ^ (uint32_t)op->a[SEND_TWEAK];
	wr->grh = op->a[SEND_GRH] != 0 || wr->group;
	wr->imm = (uint32_t)op->a[SEND_IMM];
	return true;
}

static bool take_rest(struct model *m, const struct op *op, struct m_wr *wr)
{
	if (wr->flow->type == IBV_QPT_UD)
		return take_datagram(m, op, wr);
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		return take_bind(m, op, wr);
	case IBV_WR_LOCAL_INV:
	case IBV_WR_SEND_WITH_INV:
		return take_invalidation(m, op, wr);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		wr->imm = (uint32_t)op->a[SEND_IMM];
		return true;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->compare = (uint64_t)op->a[SEND_COMPARE];
		wr->swap = (uint64_t)op->a[SEND_SWAP];
		/* Another length is the program's error, and not a subject here. */
		return wr->len == 8 && take_target(m, op, wr);
	case IBV_WR_ATOMIC_WRITE:
		return wr->len == 8 && (wr->n_sge == 1 || !flow_qp(m, wr->flow)->ex) && take_target(m, op, wr);
	default:
		wr->imm = (uint32_t)op->a[SEND_IMM];
		return take_target(m, op, wr);
	}
}

static bool is_inline(const struct m_wr *wr, const struct m_qp *qp, int64_t flags)
{
	/* ibv_wr_atomic_write() takes the word itself. */
	if (wr->opcode == IBV_WR_ATOMIC_WRITE && qp->ex)
		return true;
	return (flags & IBV_SEND_INLINE) && wr->opcode != IBV_WR_RDMA_READ && !is_atomic(wr) && !is_local(wr);
}

/* Of XRC: any SRQ, also one that is gone, of a number that may be wrong. */
static bool take_srq(const struct model *m, const struct op *op, struct m_wr *wr)
{
	int64_t id = op->a[SEND_SRQ] - 1;

	if (flow_qp((struct model *)(uintptr_t)m, wr->flow)->xrc == XRC_NOT)
		return true;
	if (wr->opcode == IBV_WR_SEND_WITH_INV || id >= OBJECTS || (id >= 0 && !m->srqs[id].number))
		return false;
	wr->srq = (int)id;
	return true;
}

static bool wr_take(struct model *m, const struct op *op, struct m_wr *wr)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);
	int64_t flags = op->a[SEND_FLAGS];

	wr->opcode = (uint8_t)op->a[SEND_OPCODE];
	wr->signaled = qp->sig_all || (flags & IBV_SEND_SIGNALED);
	wr->fence = flags & IBV_SEND_FENCE;
	wr->solicited = flags & IBV_SEND_SOLICITED;
	wr->inlined = is_inline(wr, qp, flags);
	wr->target = -1;
	if (!is_local(wr)) {
		if (!sges_make(m, op->a + SEND_SGE, op->a[SEND_SGES], qp->worker, wr->sge))
			return false;
		wr->n_sge = (unsigned)op->a[SEND_SGES];
		for (unsigned i = 0; i < wr->n_sge; i++)
			wr->len += wr->sge[i].len;
		if (wr->inlined && !sges_are_inside(m, qp->worker, wr->sge, wr->n_sge))
			return false;
	}
	return take_srq(m, op, wr) && take_rest(m, op, wr);
}

/* --- commands --- */

static void command_fill(struct model *m, const struct op *op, const struct m_wr *wr, struct cmd *cmd)
{
	const struct m_qp *qp = flow_qp(m, wr->flow);
	unsigned flags = (unsigned)op->a[SEND_FLAGS] & (IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_SIGNALED);

	if (wr->signaled && !qp->sig_all)
		flags |= IBV_SEND_SIGNALED;
	cmd->wr_id = wr->id;
	cmd->more = op->a[SEND_MORE];
	sges_copy(cmd, wr->sge, wr->n_sge);
	cmd->send = (struct send_cmd){
		.opcode = wr->opcode,
		.grh = wr->grh,
		.flags = flags | (wr->inlined ? IBV_SEND_INLINE : 0),
		.imm = wr->imm,
		.rkey = wr->rkey,
		.raddr = wr->raddr,
		.compare = wr->compare,
		.swap = wr->swap,
		.ah_pd = (uint32_t)qp->pd,
		.srqn = wr->srq < 0 ? 0 : m->srqs[wr->srq].number,
	};
	if (wr->dst >= 0 || wr->group) {
		cmd->send.qpn = wr->group ? 0xffffff : m->qps[wr->dst].number;
		cmd->send.group = (uint8_t)wr->group;
		cmd->send.qkey = wr->qkey;
	}
	if (wr->opcode == IBV_WR_BIND_MW) {
		cmd->send.mw = (uint32_t)wr->mw;
		cmd->send.mr = (uint32_t)wr->mr;
		cmd->send.is_mw = (uint8_t)m->mws[wr->mw].type;
		cmd->more = cmd->more && cmd->send.is_mw == IBV_MW_TYPE_2;
	}
}

/* A list ends before a bind of the old kind, which is a call of its own. */
static void chain_end(struct model *m, unsigned worker)
{
	struct m_worker *w = &m->worker[worker];

	if (w->n_cmds > w->n_sent)
		w->cmds[w->n_cmds - 1].more = false;
}

static void wr_forget(struct model *m, struct m_wr *wr)
{
	wr->flow->n--;
	m->n_wrs--;
	free(wr);
}

/* Messages that may be lost have to differ, or nobody could say which of them it was that arrived. */
static bool is_taken_for_another(struct model *m, const struct m_wr *wr)
{
	if (wr->flow->type == IBV_QPT_RC || !takes_receive(wr))
		return false;
	for (size_t i = 0; i < m->n_wrs; i++) {
		const struct m_wr *other = m->wrs[i];

		if (other != wr && other->flow->qp == wr->flow->qp && takes_receive(other) && !other->delivered &&
			!other->lost && other->outcome != OUT_NOT && other->dst == wr->dst &&
			other->opcode == wr->opcode && other->len == wr->len && other->grh == wr->grh &&
			(wr->opcode == IBV_WR_SEND || other->imm == wr->imm))
			return true;
	}
	return false;
}

bool issue_send(struct model *m, const struct op *op)
{
	struct m_qp *qp = &m->qps[op->id];
	struct m_wr *wr;
	struct cmd *cmd;

	if (!qp->live || qp->xrc == XRC_RECV || !cq_has_room(m, qp->send_cq))
		return false;
	wr = wr_new(m, qp->out);
	/* A QP for ibv_wr_*() has no function for what it was not made for, and a datagram names no window. */
	if (!wr_take(m, op, wr) || is_taken_for_another(m, wr) || (qp->ex && !opcode_is_legal(wr)) ||
		(wr->opcode == IBV_WR_BIND_MW && wr->mw < 0)) {
		wr_forget(m, wr);
		return false;
	}
	/* One unsignalled WR more, and the queue would be full for ever. */
	if (qp->out->n - qp->out->copies - qp->out->freed + 1 >= qp->send_wr || is_local(wr) || wr->opcode == IBV_WR_SEND_WITH_INV)
		wr->signaled = true;
	if (wr->opcode == IBV_WR_BIND_MW && m->mws[wr->mw].type == IBV_MW_TYPE_1)
		chain_end(m, qp->worker);
	cmd = cmd_add(m, qp->worker, CMD_SEND, op->id);
	cmd_is_send(m, qp->worker, wr);
	command_fill(m, op, wr, cmd);
	m->cqs[qp->send_cq].due++;
	cq_filled(m, qp->send_cq);
	if (wr->group)
		multicast_copy(m, wr);
	if (wr->opcode == IBV_WR_BIND_MW)
		aim(m, wr);
	else if (wr->mw >= 0)
		touch(m, &m->mws[wr->mw]);
	return true;
}

bool issue_recv(struct model *m, const struct op *op)
{
	bool shared = op->a[RECV_IS_SRQ];
	struct m_qp *qp = shared ? NULL : &m->qps[op->id];
	struct m_srq *srq = shared ? &m->srqs[op->id] : NULL;
	unsigned worker = shared ? srq->worker : qp->worker;
	struct m_sge sge[SGES] = { 0 };
	struct m_recv *recv;
	struct cmd *cmd;

	if (!(shared ? srq->live : qp->live && !qp->xrc) || (qp && !cq_has_room(m, qp->recv_cq)) ||
		!sges_make(m, op->a + RECV_SGE, op->a[RECV_SGES], worker, sge))
		return false;
	recv = recv_new(m, shared ? &srq->queue : &qp->rq);
	recv->qp = shared ? -1 : (int)op->id;
	recv->srq = shared ? (int)op->id : -1;
	recv->life = shared ? NULL : qp->out;
	recv->n_sge = (unsigned)op->a[RECV_SGES];
	memcpy(recv->sge, sge, sizeof(sge));
	cmd = cmd_add(m, worker, CMD_RECV, op->id);
	cmd_is_recv(m, worker, recv);
	cmd->a[RECV_IS_SRQ] = shared;
	cmd->wr_id = RECV_ID | recv->id;
	cmd->more = op->a[RECV_MORE];
	sges_copy(cmd, recv->sge, recv->n_sge);
	if (qp) {
		m->cqs[qp->recv_cq].due++;
		cq_filled(m, qp->recv_cq);
	}
	return true;
}
