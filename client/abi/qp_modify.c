/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modifying a queue pair: the table says whether the transition may be, then each attribute is checked, then the
 * daemon is told, then the data path. On the way down (RESET, ERR) the data path goes first, so that what the verb
 * forbids has ended when it returns, whatever became of the daemon.
 */
#include "client/abi/abi.h"
#include "client/abi/qp_state.h"

#include <pthread.h>

#include "client/soft/xrc.h"

#define QPN_MAX	     0xffffffu
#define TIMER_MAX    31
#define RETRY_MAX    7
#define ACCESS_KNOWN                                                                              \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |   \
		    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND))

struct check {
	int bit;
	int (*check)(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask);
};

/* The port that the QP is on once @attr is applied. */
static const Vsd__Port *port_of(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return abi_port(qp->ctx, mask & IBV_QP_PORT ? attr->port_num : qp->attr.port_num);
}

static int check_cur_state(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return (int)attr->cur_qp_state == qp->state ? 0 : -EINVAL;
}

static int check_port(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return abi_port(qp->ctx, attr->port_num) ? 0 : -EINVAL;
}

static int check_pkey_index(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const Vsd__Port *port = port_of(qp, attr, mask);

	return port && attr->pkey_index < port->n_pkeys ? 0 : -EINVAL;
}

static int check_access(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->qp_access_flags & ~ACCESS_KNOWN ? -EINVAL : 0;
}

static int check_av(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return abi_ah_attr_check(qp->ctx, &attr->ah_attr);
}

static int check_mtu(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const Vsd__Port *port = port_of(qp, attr, mask);

	return port && attr->path_mtu >= IBV_MTU_256 && attr->path_mtu <= port->max_mtu ? 0
											: -EINVAL;
}

static int check_dest_qpn(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->dest_qp_num > QPN_MAX ? -EINVAL : 0;
}

static int check_rd_atomic(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->max_rd_atomic > qp->ctx->info->max_rd_atom ? -EINVAL : 0;
}

static int check_dest_rd_atomic(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->max_dest_rd_atomic > qp->ctx->info->max_rd_atom ? -EINVAL : 0;
}

static int check_rnr_timer(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->min_rnr_timer > TIMER_MAX ? -EINVAL : 0;
}

static int check_timeout(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->timeout > TIMER_MAX ? -EINVAL : 0;
}

static int check_retry(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->retry_cnt > RETRY_MAX ? -EINVAL : 0;
}

static int check_rnr_retry(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return attr->rnr_retry > RETRY_MAX ? -EINVAL : 0;
}

static int check_path_migration(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return -EOPNOTSUPP;
}

static const struct check checks[] = {
	{ IBV_QP_CUR_STATE, check_cur_state },
	{ IBV_QP_PORT, check_port },
	{ IBV_QP_PKEY_INDEX, check_pkey_index },
	{ IBV_QP_ACCESS_FLAGS, check_access },
	{ IBV_QP_AV, check_av },
	{ IBV_QP_PATH_MTU, check_mtu },
	{ IBV_QP_DEST_QPN, check_dest_qpn },
	{ IBV_QP_MAX_QP_RD_ATOMIC, check_rd_atomic },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, check_dest_rd_atomic },
	{ IBV_QP_MIN_RNR_TIMER, check_rnr_timer },
	{ IBV_QP_TIMEOUT, check_timeout },
	{ IBV_QP_RETRY_CNT, check_retry },
	{ IBV_QP_RNR_RETRY, check_rnr_retry },
	{ IBV_QP_ALT_PATH, check_path_migration },
	{ IBV_QP_PATH_MIG_STATE, check_path_migration },
};

static int attr_check(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		int r = mask & checks[i].bit ? checks[i].check(qp, attr, mask) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* What the daemon needs to know: the state, whom this QP names, where its packets start. */
static int daemon_modify(struct soft_qp *qp, int state, const struct ibv_qp_attr *attr, int mask)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;
	const struct ibv_ah_attr *av = &attr->ah_attr;
	Vsd__SharedAttr shared;
	uint32_t values[SHARED_FIELDS];

	request.context = qp->ctx->id;
	request.handle = qp->handle;
	request.state = (uint32_t)state;
	if (mask & IBV_QP_PORT) {
		request.has_port = true;
		request.port = attr->port_num;
	}
	if (mask & IBV_QP_DEST_QPN) {
		request.has_dest_qpn = true;
		request.dest_qpn = attr->dest_qp_num;
	}
	if (mask & IBV_QP_AV) {
		request.has_dlid = true;
		request.dlid = av->dlid;
		request.has_dgid = av->is_global != 0;
		if (av->is_global) {
			request.dgid.data = (uint8_t *)(uintptr_t)av->grh.dgid.raw;
			request.dgid.len = sizeof(av->grh.dgid.raw);
		}
	}
	if (mask & IBV_QP_RQ_PSN) {
		request.has_rq_psn = true;
		request.rq_psn = attr->rq_psn & QPN_MAX;
	}
	if (mask & IBV_QP_SQ_PSN) {
		request.has_sq_psn = true;
		request.sq_psn = attr->sq_psn & QPN_MAX;
	}
	if (qp->xrcd) {
		abi_xrc_fill(&shared, values, attr, mask);
		request.attr = &shared;
	}
	return control_call(VSD__OP__OP_QP_MODIFY, &request.base, NULL, NULL, NULL);
}

static int modify_down(struct soft_qp *qp, int to, struct ibv_qp_attr *attr, int mask)
{
	int r = soft_qp_apply(qp, attr, mask);

	if (r < 0)
		return r;
	r = daemon_modify(qp, to, attr, mask);
	if (r == 0 && to == IBV_QPS_RESET)
		qp->resets++;
	return r == -ENOTCONN ? 0 : r;
}

static int modify_up(struct soft_qp *qp, int from, int to, struct ibv_qp_attr *attr, int mask)
{
	int r = from == to ? 0 : daemon_modify(qp, to, attr, mask);

	/* Attributes of a connected QP are its own affair: they can be changed without a daemon. */
	if (r < 0)
		return r;
	r = soft_qp_apply(qp, attr, mask);
	if (r == 0)
		soft_qp_kickoff(qp);
	return r;
}

/*
 * A receive QP that is shared: the state is what the daemon says, and may be another one when the change comes there. What
 * this process serves for it ends first.
 */
static int modify_shared(struct soft_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr now;
	int r = abi_xrc_refresh(qp, &now);

	if (r < 0)
		return r;

	int from = (int)now.qp_state, to = mask & IBV_QP_STATE ? (int)attr->qp_state : from;

	if (mask & IBV_QP_CUR_STATE && (int)attr->cur_qp_state != from)
		return -EINVAL;
	r = qp_state_check(IBV_QPT_XRC_RECV, (enum ibv_qp_state)from, (enum ibv_qp_state)to, mask);
	qp->attr.port_num = now.port_num; /* what the checks look at */
	if (r == 0)
		r = attr_check(qp, attr, mask & ~IBV_QP_CUR_STATE);
	if (r < 0)
		return r;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		xrc_silence(qp->v.qp.qp_num);
	r = daemon_modify(qp, to, attr, mask);
	if (r == 0)
		qp->v.qp.state = (enum ibv_qp_state)to;
	return r;
}

static int modify(struct soft_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int from = qp->state;
	int to = mask & IBV_QP_STATE ? (int)attr->qp_state : from;
	int r = qp_state_check(qp->init.qp_type, (enum ibv_qp_state)from, (enum ibv_qp_state)to, mask);

	if (r == 0)
		r = attr_check(qp, attr, mask);
	if (r < 0)
		return r;
	return to == IBV_QPS_RESET || to == IBV_QPS_ERR ? modify_down(qp, to, attr, mask)
							: modify_up(qp, from, to, attr, mask);
}

VERBS_API int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	ABI_ENTER_INT(q->context, ibv_modify_qp, "IBVERBS_1.1", q, attr, mask);

	struct soft_qp *qp = soft_qp_of(q);

	/* One transition at a time: between the check and the data path lies a call. */
	pthread_mutex_lock(&q->mutex);

	int r = qp->xrcd ? modify_shared(qp, attr, mask) : modify(qp, attr, mask);

	if (r == 0 && !qp->xrcd)
		q->state = (enum ibv_qp_state)(int)qp->state;
	pthread_mutex_unlock(&q->mutex);
	return abi_errno(r);
}
