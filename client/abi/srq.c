/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues of the basic type and of XRC; tag.c makes those that match tags. */
#include "client/abi/abi.h"
#include "client/soft/tag.h"
#include "client/soft/td.h"
#include "client/soft/xrc.h"

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

/* What it stands on; an XRC SRQ on a CQ and an XRC domain too. */
struct base {
	struct soft_pd *pd;
	struct soft_cq *cq; /* NULL: of the basic type */
	struct soft_xrcd *xrcd;
};

static int daemon_create(struct soft_srq *srq, const struct ibv_srq_attr *attr, const struct base *base)
{
	Vsd__SrqCreateRequest request = VSD__SRQ_CREATE_REQUEST__INIT;

	request.context = srq->ctx->id;
	request.pd = srq->pd->pd.handle;
	request.max_wr = attr->max_wr;
	request.max_sge = attr->max_sge;
	request.type = IBV_SRQT_BASIC;
	if (base->cq) {
		request.type = IBV_SRQT_XRC;
		request.has_cq = request.has_xrcd = request.has_number = true;
		request.cq = base->cq->handle;
		request.xrcd = base->xrcd->handle;
		request.number = srq->number;
	}
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
	if (!srq->cq)
		return;
	srq->cq->users++;
	srq->xrc->users++;
	xrc_srq_insert(srq);
}

static int srq_number(struct soft_srq *srq, const struct base *base)
{
	if (!base->cq)
		return 0;
	srq->cq = base->cq;
	srq->xrc = base->xrcd;
	srq->xrcd = base->xrcd->number;
	return lease_take(srq->ctx->qpns, &srq->number);
}

/* *@attr is written on success: what was given is at least what was asked for. */
static struct ibv_srq *srq_new(const struct base *base, struct ibv_srq_attr *attr, void *context)
{
	struct soft_context *ctx = soft_context_of(base->pd->pd.context);
	int r = attr_check(ctx, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_srq *srq = calloc(1, sizeof(*srq));

	if (!srq)
		return abi_null(ENOMEM);
	srq->ctx = ctx;
	srq->pd = base->pd;
	r = soft_srq_init(srq, attr->max_wr, attr->max_sge, abi_pd_single(srq->pd) && !base->cq);
	if (r < 0)
		goto err_free;
	r = srq_number(srq, base);
	if (r < 0)
		goto err_deinit;
	r = daemon_create(srq, attr, base);
	if (r < 0)
		goto err_number;
	srq_fields(srq, context);
	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	return &srq->srq;

err_number:
	if (base->cq)
		lease_put(ctx->qpns, srq->number);
err_deinit:
	soft_srq_deinit(srq);
err_free:
	free(srq);
	return abi_null(-r);
}

VERBS_API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	ABI_ENTER_PTR(pd->context, ibv_create_srq, "IBVERBS_1.1", pd, init);
	return srq_new(&(struct base){ .pd = soft_pd_of(pd) }, &init->attr, init->srq_context);
}

#define BASIC_MASK ((uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD))
#define XRC_MASK   (BASIC_MASK | (uint32_t)(IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ))

static int xrc_base(const struct ibv_srq_init_attr_ex *attr, struct base *base)
{
	if ((attr->comp_mask & XRC_MASK) != XRC_MASK || !attr->xrcd || attr->xrcd->context != attr->pd->context ||
		!attr->cq || attr->cq->context != attr->pd->context)
		return -EINVAL;
	base->cq = soft_cq_of(attr->cq);
	base->xrcd = soft_xrcd_of(attr->xrcd);
	return 0;
}

struct ibv_srq *abi_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr)
{
	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_TM)
		return abi_create_tag_srq(c, attr);

	bool typed = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE, xrc = typed && attr->srq_type == IBV_SRQT_XRC;

	if (attr->comp_mask & ~XRC_MASK || (typed && attr->srq_type != IBV_SRQT_BASIC && !xrc))
		return abi_null(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != c)
		return abi_null(EINVAL);

	struct base base = { .pd = soft_pd_of(attr->pd) };
	int r = xrc ? xrc_base(attr, &base) : 0;

	return r < 0 ? abi_null(-r) : srq_new(&base, &attr->attr, attr->srq_context);
}

int abi_get_srq_num(struct ibv_srq *s, uint32_t *number)
{
	const struct soft_srq *srq = soft_srq_of(s);

	if (abi_foreign(s->context))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (!srq->cq)
		return abi_errno(-EINVAL);
	*number = srq->number;
	return 0;
}

int abi_srq_charge(const struct soft_srq *srq, uint32_t max_wr, uint32_t max_tags)
{
	Vsd__SrqModifyRequest request = VSD__SRQ_MODIFY_REQUEST__INIT;

	request.context = srq->ctx->id;
	request.handle = srq->handle;
	request.max_wr = max_wr;
	request.has_max_tags = max_tags != 0;
	request.max_tags = max_tags;
	return control_call(VSD__OP__OP_SRQ_MODIFY, &request.base, NULL, NULL, NULL);
}

/* The daemon charges a larger queue before it is there; a smaller one is there before it pays less. */
static int modify(struct soft_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	uint32_t old = srq->max_wr, tags = srq->tags ? srq->tags->max_tags : 0;
	bool more = mask & IBV_SRQ_MAX_WR && attr->max_wr > old, less = mask & IBV_SRQ_MAX_WR && attr->max_wr < old;
	int r = more ? abi_srq_charge(srq, attr->max_wr, tags) : 0;

	if (r < 0)
		return r;
	r = soft_srq_modify(srq, attr, mask);
	if ((r == 0 && less) || (r < 0 && more)) {
		int told = abi_srq_charge(srq, srq->max_wr, tags);

		if (told < 0)
			control_debug("srq %u: the daemon still counts other sizes: error %d", srq->handle, -told);
	}
	return r;
}

VERBS_API int ibv_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *attr, int mask)
{
	ABI_ENTER_INT(s->context, ibv_modify_srq, "IBVERBS_1.1", s, attr, mask);
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return abi_errno(-EINVAL);
	if ((mask & IBV_SRQ_MAX_WR) && attr->max_wr > soft_srq_of(s)->ctx->info->max_srq_wr)
		return abi_errno(-EINVAL);
	return abi_errno(modify(soft_srq_of(s), attr, mask));
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

static void xrc_let_go(struct soft_srq *srq)
{
	xrc_srq_remove(srq);
	soft_async_drop(&srq->ctx->async, &srq->srq); /* legs took receives until now */
	lease_put(srq->ctx->qpns, srq->number);
	srq->xrc->users--;
	srq->cq->users--;
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
	if (srq->cq)
		xrc_let_go(srq);
	abi_tag_let_go(srq);
	soft_srq_deinit(srq);
	abi_pd_unref(srq->pd);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->mutex);

	struct soft_context *ctx = srq->ctx;

	free(srq);
	abi_context_unref(ctx);
	return 0;
}
