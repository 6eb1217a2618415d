/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: created with a number of the lease, destroyed, queried. States and attributes are qp_modify.c's.
 */
#include "client/abi/abi.h"
#include "client/soft/multicast.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MASK_KNOWN                                                                                \
	((uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |                       \
		    IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_XRCD))

static int cap_check(const Vsd__Device *info, const struct ibv_qp_cap *cap, bool srq)
{
	if (cap->max_send_wr > info->max_qp_wr || cap->max_send_sge > info->max_sge)
		return -EINVAL;
	if (!srq && (cap->max_recv_wr > info->max_qp_wr || cap->max_recv_sge > info->max_sge))
		return -EINVAL;
	if (cap->max_inline_data > ABI_MAX_INLINE)
		return -EINVAL;
	return 0;
}

static int init_check(const struct ibv_context *c, const struct ibv_qp_init_attr_ex *init)
{
	if (init->comp_mask & ~MASK_KNOWN)
		return -EOPNOTSUPP;
	/* The others are for raw packets. */
	if ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags &&
		(init->create_flags != IBV_QP_CREATE_BLOCK_SELF_MCAST_LB || init->qp_type != IBV_QPT_UD))
		return -EOPNOTSUPP;
	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_UD &&
		init->qp_type != IBV_QPT_XRC_SEND && init->qp_type != IBV_QPT_XRC_RECV)
		return -EOPNOTSUPP;
	if (init->qp_type == IBV_QPT_XRC_RECV)
		return init->comp_mask & IBV_QP_INIT_ATTR_XRCD && init->xrcd && init->xrcd->context == c ? 0 : -EINVAL;
	if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || !init->pd || init->pd->context != c)
		return -EINVAL;
	if (!init->send_cq || init->send_cq->context != c)
		return -EINVAL;
	if (init->qp_type == IBV_QPT_XRC_SEND) /* what receives is not looked at */
		return 0;
	if (!init->recv_cq || init->recv_cq->context != c)
		return -EINVAL;
	if (init->srq && (init->srq->context != c || init->qp_type == IBV_QPT_UC || soft_srq_of(init->srq)->cq))
		return -EINVAL;
	if (init->srq && soft_srq_of(init->srq)->tags &&
		(init->qp_type != IBV_QPT_RC || !soft_pd_same(soft_pd_of(init->pd), soft_srq_of(init->srq)->pd)))
		return -EINVAL;
	return 0;
}

static void qp_fields(struct soft_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp *v = &qp->v.qp;

	v->context = init->pd->context;
	v->qp_context = init->qp_context;
	v->pd = init->pd;
	v->send_cq = init->send_cq;
	if (init->qp_type != IBV_QPT_XRC_SEND) {
		v->recv_cq = init->recv_cq;
		v->srq = init->srq;
	}
	v->state = IBV_QPS_RESET;
	v->qp_type = init->qp_type;
	pthread_mutex_init(&v->mutex, NULL);
	pthread_cond_init(&v->cond, NULL);
	qp->pd = soft_pd_of(init->pd);
	qp->send_cq = soft_cq_of(init->send_cq);
	qp->recv_cq = v->recv_cq ? soft_cq_of(v->recv_cq) : NULL;
	qp->srq = v->srq ? soft_srq_of(v->srq) : NULL;
	qp->init = *init;
	qp->init.recv_cq = v->recv_cq;
	qp->init.srq = v->srq;
	qp->state = IBV_QPS_RESET;
	if (v->srq || !v->recv_cq) {
		qp->init.cap.max_recv_wr = 0;
		qp->init.cap.max_recv_sge = 0;
	}
}

static int daemon_create(struct soft_qp *qp, uint32_t qpn)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;
	const struct ibv_qp_cap *cap = &qp->init.cap;

	request.context = qp->ctx->id;
	request.pd = qp->pd->pd.handle;
	request.type = qp->init.qp_type;
	request.qpn = qpn;
	request.has_send_cq = true;
	request.send_cq = qp->send_cq->handle;
	if (qp->recv_cq) {
		request.has_recv_cq = true;
		request.recv_cq = qp->recv_cq->handle;
	}
	if (qp->srq) {
		request.has_srq = true;
		request.srq = qp->srq->handle;
	}
	request.max_send_wr = cap->max_send_wr;
	request.max_recv_wr = cap->max_recv_wr;
	request.max_send_sge = cap->max_send_sge;
	request.max_recv_sge = cap->max_recv_sge;
	request.max_inline = cap->max_inline_data;
	return control_create(VSD__OP__OP_QP_CREATE, &request.base, &qp->handle);
}

/* Number, daemon, runtime; the queues are there. */
static int qp_start(struct soft_qp *qp)
{
	uint32_t qpn;
	int r = lease_take(qp->ctx->qpns, &qpn);

	if (r < 0)
		return r;
	r = daemon_create(qp, qpn);
	if (r < 0)
		goto err_number;
	qp->v.qp.qp_num = qpn;
	qp->v.qp.handle = qp->handle;
	r = soft_qp_start(qp);
	if (r < 0)
		goto err_destroy;
	return 0;

err_destroy:
	control_destroy(qp->ctx->id, VSD__OBJECT_TYPE__OBJ_QP, qp->handle);
err_number:
	lease_put(qp->ctx->qpns, qpn);
	return r;
}

static int qp_init(struct soft_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	int r = soft_qp_init(qp);

	if (r < 0)
		return r;
	if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		r = soft_qp_fill_ex(qp, init->send_ops_flags);
	if (r == 0)
		r = qp_start(qp);
	if (r < 0)
		soft_qp_deinit(qp);
	return r;
}

static void users_count(struct soft_qp *qp, bool up)
{
	unsigned by = up ? 1 : -1u;

	qp->send_cq->users += by;
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		qp->recv_cq->users += by;
	if (qp->srq)
		qp->srq->users += by;
	if (up)
		abi_pd_ref(qp->pd);
	else
		abi_pd_unref(qp->pd);
}

static struct ibv_qp *qp_new(struct ibv_context *c, struct ibv_qp_init_attr_ex *init)
{
	struct soft_context *ctx = soft_context_of(c);
	int r = init_check(c, init);

	if (r == 0 && init->qp_type == IBV_QPT_XRC_RECV)
		return abi_xrc_handle(c, init->xrcd, 0, init->qp_context);
	if (r == 0)
		r = cap_check(ctx->info, &init->cap, init->srq != NULL || init->qp_type == IBV_QPT_XRC_SEND);
	if (r < 0)
		return abi_null(-r);

	struct soft_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return abi_null(ENOMEM);
	qp->ctx = ctx;
	qp_fields(qp, init);
	r = qp_init(qp, init);
	if (r < 0) {
		free(qp);
		return abi_null(-r);
	}
	users_count(qp, true);
	abi_context_ref(ctx);
	init->cap = qp->init.cap;
	return &qp->v.qp;
}

VERBS_API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	ABI_ENTER_PTR(pd->context, ibv_create_qp, "IBVERBS_1.1", pd, init);

	struct ibv_qp_init_attr_ex ex = {
		.qp_context = init->qp_context,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = qp_new(pd->context, &ex);

	if (qp)
		init->cap = ex.cap;
	return qp;
}

struct ibv_qp *abi_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *init)
{
	return abi_foreign(c) ? abi_null(ABI_CHILD_ERRNO) : qp_new(c, init);
}

VERBS_API int ibv_destroy_qp(struct ibv_qp *q)
{
	ABI_ENTER_INT(q->context, ibv_destroy_qp, "IBVERBS_1.1", q);

	struct soft_qp *qp = soft_qp_of(q);

	if (qp->xrcd)
		return abi_xrc_destroy(qp);
	if (soft_mcast_groups(qp))
		return abi_errno(abi_busy(qp->ctx, VSD__OBJECT_TYPE__OBJ_QP, qp->handle, soft_mcast_groups(qp)));

	int r = soft_qp_stop(qp);

	if (r < 0)
		return abi_errno(r);
	soft_async_drop(&qp->ctx->async, q);
	r = control_destroy(qp->ctx->id, VSD__OBJECT_TYPE__OBJ_QP, qp->handle);
	if (r < 0)
		control_debug("qp 0x%x: the daemon keeps it: error %d", q->qp_num, -r);
	lease_put(qp->ctx->qpns, q->qp_num);
	soft_qp_deinit(qp);
	users_count(qp, false);
	pthread_cond_destroy(&q->cond);
	pthread_mutex_destroy(&q->mutex);

	struct soft_context *ctx = qp->ctx;

	free(qp);
	abi_context_unref(ctx);
	return 0;
}

static void init_narrow(const struct ibv_qp_init_attr_ex *from, struct ibv_qp_init_attr *to)
{
	*to = (struct ibv_qp_init_attr){
		.qp_context = from->qp_context,
		.send_cq = from->send_cq,
		.recv_cq = from->recv_cq,
		.srq = from->srq,
		.cap = from->cap,
		.qp_type = from->qp_type,
		.sq_sig_all = from->sq_sig_all,
	};
}

VERBS_API int ibv_query_qp(
	struct ibv_qp *q, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	ABI_ENTER_INT(q->context, ibv_query_qp, "IBVERBS_1.1", q, attr, mask, init);

	struct soft_qp *qp = soft_qp_of(q);

	if (qp->xrcd)
		return abi_errno(abi_xrc_query(qp, attr, init));
	soft_qp_query(qp, attr, init);
	attr->cap = qp->init.cap;
	init_narrow(&qp->init, init);
	q->state = attr->qp_state;
	return 0;
}

VERBS_API struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *q)
{
	if (!abi_ours(q->context))
		return REAL_PTR(ibv_qp_to_qp_ex, "IBVERBS_1.6", q);

	struct soft_qp *qp = soft_qp_of(q);

	return qp->init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? &qp->v.qp_ex : NULL;
}

/* No more than the aligned last bytes after the rest, which is less than what this asks for. */
VERBS_API int ibv_query_qp_data_in_order(struct ibv_qp *q, enum ibv_wr_opcode op, uint32_t flags)
{
	if (!abi_ours(q->context))
		return REAL_INT(0, ibv_query_qp_data_in_order, "IBVERBS_1.14", q, op, flags);
	return 0;
}
