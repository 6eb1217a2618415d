/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on the states of QPs: connecting two of them, which resets both first, bringing one up for datagrams, and
 * single transitions, also while everything goes on.
 */
#include "tests/random/model.h"

#include <errno.h>
#include <string.h>

static void modify(struct model *m, unsigned id, int mask, const struct ibv_qp_attr *attr)
{
	struct cmd *cmd = cmd_add(m, m->qps[id].worker, CMD_MODIFY, id);

	cmd->modify.mask = mask;
	cmd->modify.attr = *attr;
}

static void modify_state(struct model *m, unsigned id, enum ibv_qp_state state)
{
	modify(m, id, IBV_QP_STATE, &(struct ibv_qp_attr){ .qp_state = state });
}

/* What a QP was ends: what it had sent is on its own. */
static void life_ends(struct model *m, struct m_qp *qp)
{
	flow_close(m, qp);
	qp->lives++;
	qp->out = flow_new(m, (int)(qp - m->qps));
	qp->state = IBV_QPS_RESET;
	qp->state_at = m->seq;
	qp->failing = qp->excused = qp->flushed = qp->served = qp->draining = false;
	qp->draining_left = true;
}

static bool to_reset(struct model *m, unsigned id)
{
	struct m_qp *qp = &m->qps[id];

	modify_state(m, id, IBV_QPS_RESET);
	if (issue_call(m, qp->worker, "ibv_modify_qp to RESET", 0, 0) != 0)
		return false;
	life_ends(m, qp);
	return true;
}

static void to_init(struct model *m, unsigned id, int64_t access)
{
	struct m_qp *qp = &m->qps[id];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = (unsigned)access,
		.qkey = qp->qkey,
	};

	modify(m, id,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(qp->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
		&attr);
}

static void to_rtr(struct model *m, unsigned id, unsigned peer, const struct op *op, uint32_t psn)
{
	struct m_qp *qp = &m->qps[id];
	const struct hello *hello = &m->worker[m->qps[peer].worker].hello;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)op->a[CONNECT_MTU],
		.dest_qp_num = m->qps[peer].number,
		.rq_psn = psn,
		.max_dest_rd_atomic = (uint8_t)(qp->in ? qp->in->dest_rd : 0),
		.min_rnr_timer = (uint8_t)op->a[CONNECT_TIMER],
		.ah_attr = { .dlid = (uint16_t)hello->lid, .port_num = 1, .is_global = 1,
			     .grh = { .dgid = hello->gid, .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (qp->type == IBV_QPT_RC && qp->xrc != XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(m, id, mask, &attr);
}

static void to_rts(struct model *m, unsigned id, uint32_t psn)
{
	struct m_qp *qp = &m->qps[id];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = (uint8_t)qp->out->timeout,
		.retry_cnt = (uint8_t)qp->out->retry,
		.rnr_retry = (uint8_t)qp->out->rnr_retry,
		.max_rd_atomic = (uint8_t)qp->out->rd,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->xrc == XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	else if (qp->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	modify(m, id, mask, &attr);
}

/* The commands that wait succeed, all of them. */
static bool all_good(struct model *m, unsigned worker, unsigned from)
{
	const struct m_worker *w = &m->worker[worker];

	if (!worker_do(m, worker))
		return false;
	for (unsigned i = from; i < w->reply.n_results; i++) {
		if (w->reply.results[i].error)
			return wrong(m, "errno", "ibv_modify_qp number %u: error %d", i, w->reply.results[i].error);
	}
	return true;
}

static bool restart(struct model *m, unsigned id, int64_t access)
{
	struct m_qp *qp = &m->qps[id];

	if (!to_reset(m, id))
		return false;
	to_init(m, id, access);
	if (!all_good(m, qp->worker, 0))
		return false;
	qp->state = IBV_QPS_INIT;
	return true;
}

static bool bring_up(struct model *m, unsigned id, unsigned peer, const struct op *op, bool wrong_psn, bool rts)
{
	struct m_qp *qp = &m->qps[id];
	uint32_t own = (id * 0x10101 + 7) & 0xffffff, other = (peer * 0x10101 + 7) & 0xffffff;

	to_rtr(m, id, peer, op, other);
	if (rts)
		to_rts(m, id, wrong_psn ? own + 1 : own);
	if (!all_good(m, qp->worker, 0))
		return false;
	qp->state = rts ? IBV_QPS_RTS : IBV_QPS_RTR;
	qp->was_rtr = true;
	qp->served = true;
	return true;
}

static void attributes(struct m_flow *flow, const struct op *op, int side)
{
	flow->rnr_retry = (unsigned)op->a[CONNECT_RNR + side];
	flow->rd = (unsigned)op->a[CONNECT_RD + side];
	flow->timeout = (unsigned)op->a[CONNECT_TIMEOUT];
	flow->retry = (unsigned)op->a[CONNECT_RETRY];
	flow->access = (unsigned)op->a[CONNECT_ACCESS + !side];
	flow->dest_rd = (unsigned)op->a[CONNECT_DEST_RD + !side];
}

static void link_flows(struct model *m, unsigned id, unsigned peer, const struct op *op)
{
	struct m_flow *out = m->qps[id].out, *back = m->qps[peer].out;

	attributes(out, op, 0);
	attributes(back, op, 1);
	out->peer = (int)peer;
	back->peer = (int)id;
	out->back = back;
	back->back = out;
	out->wrecked = back->wrecked = out->wrecked || back->wrecked;
	out->linked = back->linked = true;
	out->wrong_psn = op->a[CONNECT_HOW] == HOW_WRONG_PSN;
	m->qps[id].in = back;
	m->qps[peer].in = out;
}

/* One that sends and one that receives; PSNs are not looked at between them. */
static bool xrc_fit(const struct m_qp *a, const struct m_qp *b, const struct op *op)
{
	if (!a->xrc && !b->xrc)
		return true;
	return a->xrc && b->xrc && a->xrc != b->xrc && op->a[CONNECT_HOW] != HOW_WRONG_PSN;
}

bool issue_connect(struct model *m, const struct op *op)
{
	int64_t peer = op->a[CONNECT_PEER];
	bool rts = op->a[CONNECT_HOW] != HOW_PEER_RTR;

	if (peer < 0 || peer >= OBJECTS || peer == op->id || !m->qps[op->id].live || !m->qps[peer].live ||
		m->qps[op->id].type != m->qps[peer].type || m->qps[op->id].type == IBV_QPT_UD ||
		!xrc_fit(&m->qps[op->id], &m->qps[peer], op) || !workers_sync(m))
		return false;
	if (!restart(m, op->id, op->a[CONNECT_ACCESS]) || !restart(m, (unsigned)peer, op->a[CONNECT_ACCESS + 1]))
		return true;
	link_flows(m, op->id, (unsigned)peer, op);
	if (bring_up(m, op->id, (unsigned)peer, op, op->a[CONNECT_HOW] == HOW_WRONG_PSN, true))
		bring_up(m, (unsigned)peer, op->id, op, false, rts);
	return true;
}

bool issue_datagram(struct model *m, const struct op *op)
{
	struct m_qp *qp = &m->qps[op->id];

	if (!qp->live || qp->type != IBV_QPT_UD || !workers_sync(m))
		return false;
	qp->qkey = (uint32_t)op->a[DATAGRAM_QKEY];
	if (!restart(m, op->id, 0))
		return true;
	modify_state(m, op->id, IBV_QPS_RTR);
	to_rts(m, op->id, 1);
	if (!all_good(m, qp->worker, 0))
		return true;
	qp->state = IBV_QPS_RTS;
	qp->state_at = m->seq;
	qp->served = true;
	return true;
}

/* --- one transition --- */

static bool transition_is_legal(int from, int to)
{
	switch (to) {
	case IBV_QPS_RESET:
	case IBV_QPS_ERR:
		return true;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	case IBV_QPS_RTS:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_SQE;
	default:
		return false;
	}
}

/* 0, or EINVAL; *or_this: it may have failed meanwhile. */
static int transition_result(const struct m_qp *qp, int64_t to, int64_t notify, int *or_this)
{
	bool now = transition_is_legal(qp->state, (int)to), then;

	/* The option goes with RTS to SQD alone. */
	if (to == IBV_QPS_SQD && qp->state == IBV_QPS_SQD && notify)
		now = false;
	then = qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT
		       ? now
		       : transition_is_legal(IBV_QPS_ERR, (int)to);
	*or_this = now == then ? now ? 0 : EINVAL : now ? EINVAL : 0;
	return now ? 0 : EINVAL;
}

/* Where its peer writes, and where it receives: nothing does after the verb returned. */
static void qp_fill(struct model *m, const struct m_qp *qp, int64_t seed, struct fill *fill)
{
	const struct m_flow *in = qp->in;

	if (!seed)
		return;
	fill->seed = (uint64_t)seed;
	for (size_t i = in ? in->done : 0; in && i < in->n && fill->n < 4; i++) {
		const struct m_wr *wr = in->at[i];

		if (wr->outcome != OUT_NONE || !is_write(wr) || wr->target < 0 || !wr->len ||
			wr->target + (int64_t)wr->len > ARENA)
			continue;
		fill->at[fill->n].off = (uint32_t)wr->target;
		fill->at[fill->n++].len = (uint32_t)wr->len;
	}
	(void)m;
}

static void enter(struct model *m, struct m_qp *qp, int64_t to, int64_t notify)
{
	if (to == IBV_QPS_RESET) {
		life_ends(m, qp);
		return;
	}
	if (to == IBV_QPS_ERR) {
		struct m_flow *back = qp->out->back;

		if (qp->state != IBV_QPS_ERR && back) {
			back->linked = false;
			back->unlinked_at = m->seq;
		}
		if (qp->state == IBV_QPS_SQD)
			qp->draining_left = true;
	}
	if (to == IBV_QPS_SQD && qp->state != IBV_QPS_SQD) {
		qp->out->sqd = qp->out->n;
		qp->drain_due += notify != 0;
		qp->draining_left = false;
	}
	if (to == IBV_QPS_RTS) {
		qp->draining_left = qp->state == IBV_QPS_SQD;
		qp->out->sqd = SIZE_MAX;
		/* What was in error is not any more, also if that was not seen yet. */
		if (qp->type != IBV_QPT_RC)
			qp->out->revived = qp->out->n;
		qp->out->failed = false;
		qp->out->failure = 0;
	}
	qp->state = (int)to;
	qp->state_at = m->seq;
}

bool issue_state(struct model *m, const struct op *op)
{
	struct m_qp *qp = &m->qps[op->id];
	struct ibv_qp_attr attr = { .qp_state = (enum ibv_qp_state)op->a[STATE_TO], .en_sqd_async_notify = 1 };
	int mask = IBV_QP_STATE, expected, or_this;
	struct m_flow *life = qp->out;
	struct fill fill = { 0 };

	if (!qp->live || !workers_sync(m))
		return false;
	/* What an XRC receive QP has of it is its end. */
	if (qp->xrc == XRC_RECV && op->a[STATE_TO] != IBV_QPS_ERR && op->a[STATE_TO] != IBV_QPS_RESET)
		return false;
	/* InfiniBand and the kernel do not agree about this one. */
	if (qp->state == IBV_QPS_RESET && op->a[STATE_TO] == IBV_QPS_ERR)
		return false;
	if (op->a[STATE_TO] == IBV_QPS_SQD && op->a[STATE_NOTIFY])
		mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
	expected = transition_result(qp, op->a[STATE_TO], mask & IBV_QP_EN_SQD_ASYNC_NOTIFY, &or_this);
	if (!qp->xrc && (op->a[STATE_TO] == IBV_QPS_RESET || op->a[STATE_TO] == IBV_QPS_ERR))
		qp_fill(m, qp, op->a[STATE_FILL], &fill);
	modify(m, op->id, mask, &attr);
	m->worker[qp->worker].cmds[m->worker[qp->worker].n_cmds - 1].fill = fill;
	if (issue_call(m, qp->worker, "ibv_modify_qp", expected, or_this) != 0)
		return true;
	enter(m, qp, op->a[STATE_TO], mask & IBV_QP_EN_SQD_ASYNC_NOTIFY);
	fill_note(m, &fill, qp->worker, true, -1, life);
	return true;
}
