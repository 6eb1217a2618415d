/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues of the basic type; XRC and tag matching are refused. */
#include "client/abi/abi.h"
#include "client/soft/td.h"

#include <pthread.h>
#include <stdlib.h>

static int attr_check(const struct soft_context *ctx, const struct ibv_srq_attr *attr)
{
	if (attr->max_wr == 0 || attr->max_wr > ctx->info->max_srq_wr)
		return -EINVAL;
	if (attr->max_sge == 0 || attr->max_sge > ctx->info->max_sge)
		return -EINVAL;
	return 0;
}

static int daemon_create(struct soft_srq *srq, const struct ibv_srq_attr *attr)
{
	Vsd__SrqCreateRequest request = VSD__SRQ_CREATE_REQUEST__INIT;

	request.context = srq->ctx->id;
	request.pd = srq->pd->pd.handle;
	request.max_wr = attr->max_wr;
	request.max_sge = attr->max_sge;
	request.type = IBV_SRQT_BASIC;
	return control_create(VSD__OP__OP_SRQ_CREATE, &request.base, &srq->handle);
}

static void srq_fields(struct soft_srq *srq, void *context)
{
	struct ibv_srq *v = &srq->srq;

	v->context = &srq->ctx->v.context;
	v->srq_context = context;
	v->pd = &srq->pd->pd;
	v->handle = srq->handle;
	pthread_mutex_init(&v->mutex, NULL);
	pthread_cond_init(&v->cond, NULL);
	abi_pd_ref(srq->pd);
	abi_context_ref(srq->ctx);
}

/* *@attr is written on success: what was given is at least what was asked for. */
static struct ibv_srq *srq_new(struct ibv_pd *pd, struct ibv_srq_attr *attr, void *context)
{
	struct soft_context *ctx = soft_context_of(pd->context);
	int r = attr_check(ctx, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_srq *srq = calloc(1, sizeof(*srq));

	if (!srq)
		return abi_null(ENOMEM);
	srq->ctx = ctx;
	srq->pd = soft_pd_of(pd);
	r = soft_srq_init(srq, attr->max_wr, attr->max_sge, abi_pd_single(srq->pd));
	if (r < 0)
		goto err_free;
	r = daemon_create(srq, attr);
	if (r < 0)
		goto err_deinit;
	srq_fields(srq, context);
	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	return &srq->srq;

err_deinit:
	soft_srq_deinit(srq);
err_free:
	free(srq);
	return abi_null(-r);
}

VERBS_API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	ABI_ENTER_PTR(pd->context, ibv_create_srq, "IBVERBS_1.1", pd, init);
	return srq_new(pd, &init->attr, init->srq_context);
}

struct ibv_srq *abi_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr)
{
	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);
	if (attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD))
		return abi_null(EOPNOTSUPP);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)
		return abi_null(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != c)
		return abi_null(EINVAL);
	return srq_new(attr->pd, &attr->attr, attr->srq_context);
}

VERBS_API int ibv_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *attr, int mask)
{
	ABI_ENTER_INT(s->context, ibv_modify_srq, "IBVERBS_1.1", s, attr, mask);
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return abi_errno(-EINVAL);
	if ((mask & IBV_SRQ_MAX_WR) && attr->max_wr > soft_srq_of(s)->ctx->info->max_srq_wr)
		return abi_errno(-EINVAL);
	return abi_errno(soft_srq_modify(soft_srq_of(s), attr, mask));
}

VERBS_API int ibv_query_srq(struct ibv_srq *s, struct ibv_srq_attr *attr)
{
	ABI_ENTER_INT(s->context, ibv_query_srq, "IBVERBS_1.1", s, attr);

	struct soft_srq *srq = soft_srq_of(s);

	enum soft_held held = soft_hold(&srq->lock);

	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = srq->limit_armed ? srq->limit : 0;
	soft_release(&srq->lock, held);
	return 0;
}

VERBS_API int ibv_destroy_srq(struct ibv_srq *s)
{
	ABI_ENTER_INT(s->context, ibv_destroy_srq, "IBVERBS_1.1", s);

	struct soft_srq *srq = soft_srq_of(s);

	if (srq->users)
		return abi_errno(abi_busy(srq->ctx, VSD__OBJECT_TYPE__OBJ_SRQ, srq->handle, srq->users));
	soft_async_drop(&srq->ctx->async, s);

	int r = control_destroy(srq->ctx->id, VSD__OBJECT_TYPE__OBJ_SRQ, srq->handle);

	if (r < 0)
		return abi_errno(r);
	soft_srq_deinit(srq);
	abi_pd_unref(srq->pd);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->mutex);

	struct soft_context *ctx = srq->ctx;

	free(srq);
	abi_context_unref(ctx);
	return 0;
}
