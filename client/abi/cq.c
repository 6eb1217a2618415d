/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues, as ibv_create_cq() and ibv_create_cq_ex() make them. */
#include "client/abi/abi.h"

#include <pthread.h>
#include <stdlib.h>

#define FLAGS_KNOWN                                                                               \
	((uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
#define MASK_KNOWN ((uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))

static int attr_check(const struct soft_context *ctx, const struct ibv_cq_init_attr_ex *attr)
{
	const struct ibv_context *c = &ctx->v.context;

	if (attr->comp_mask & ~MASK_KNOWN)
		return -EOPNOTSUPP;
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~FLAGS_KNOWN))
		return -EOPNOTSUPP;
	if (attr->cqe == 0 || attr->cqe > ctx->info->max_cqe)
		return -EINVAL;
	if (attr->comp_vector >= (uint32_t)c->num_comp_vectors)
		return -EINVAL;
	if (attr->channel && attr->channel->context != c)
		return -EINVAL;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		struct ibv_pd *pd = attr->parent_domain;

		/* Only a parent domain can stand here. */
		if (!pd || pd->context != c || soft_pd_of(pd)->base == soft_pd_of(pd))
			return -EINVAL;
	}
	return 0;
}

static int daemon_create(struct soft_cq *cq, const struct ibv_cq_init_attr_ex *attr)
{
	Vsd__CqCreateRequest request = VSD__CQ_CREATE_REQUEST__INIT;

	request.context = cq->ctx->id;
	request.cqe = attr->cqe;
	request.comp_vector = attr->comp_vector;
	request.channel = attr->channel != NULL;
	if (cq->parent_domain) {
		request.has_parent_domain = true;
		request.parent_domain = cq->parent_domain->pd.handle;
	}
	return control_create(VSD__OP__OP_CQ_CREATE, &request.base, &cq->handle);
}

static void cq_fields(struct soft_cq *cq, const struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq *v = &cq->v.cq;

	v->context = &cq->ctx->v.context;
	v->channel = attr->channel;
	v->cq_context = attr->cq_context;
	v->handle = cq->handle;
	v->cqe = (int)attr->cqe;
	pthread_mutex_init(&v->mutex, NULL);
	pthread_cond_init(&v->cond, NULL);
	if (cq->channel) {
		cq->channel->users++;
		cq->channel->channel.refcnt = (int)cq->channel->users;
	}
	if (cq->parent_domain)
		abi_pd_ref(cq->parent_domain);
	abi_context_ref(cq->ctx);
}

/* @extended: the poll and read_* pointers are filled for the flags granted. */
static int cq_init(struct soft_cq *cq, const struct ibv_cq_init_attr_ex *attr, bool extended)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	bool single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;

	if (attr->channel)
		cq->channel = soft_container(attr->channel, struct soft_channel, channel);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		cq->parent_domain = soft_pd_of(attr->parent_domain);
	cq->ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

	int r = soft_cq_init(cq, attr->cqe, single);

	if (r < 0)
		return r;
	if (extended)
		r = soft_cq_fill_ex(cq, attr->wc_flags);
	if (r == 0)
		r = daemon_create(cq, attr);
	if (r < 0)
		soft_cq_deinit(cq);
	return r;
}

static struct soft_cq *cq_new(
	struct ibv_context *c, const struct ibv_cq_init_attr_ex *attr, bool extended)
{
	struct soft_context *ctx = soft_context_of(c);
	int r = attr_check(ctx, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return abi_null(ENOMEM);
	cq->ctx = ctx;
	r = cq_init(cq, attr, extended);
	if (r < 0) {
		free(cq);
		return abi_null(-r);
	}
	cq_fields(cq, attr);
	return cq;
}

VERBS_API struct ibv_cq *ibv_create_cq(
	struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *channel, int vector)
{
	ABI_ENTER_PTR(c, ibv_create_cq, "IBVERBS_1.1", c, cqe, context, channel, vector);
	if (cqe <= 0 || vector < 0)
		return abi_null(EINVAL);

	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)cqe,
		.cq_context = context,
		.channel = channel,
		.comp_vector = (uint32_t)vector,
	};
	struct soft_cq *cq = cq_new(c, &attr, false);

	return cq ? &cq->v.cq : NULL;
}

struct ibv_cq_ex *abi_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr)
{
	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);

	struct soft_cq *cq = cq_new(c, attr, true);

	return cq ? &cq->v.cq_ex : NULL;
}

static int daemon_resize(const struct soft_cq *cq, int cqe)
{
	Vsd__CqResizeRequest request = VSD__CQ_RESIZE_REQUEST__INIT;

	request.context = cq->ctx->id;
	request.handle = cq->handle;
	request.cqe = (uint32_t)cqe;
	return control_call(VSD__OP__OP_CQ_RESIZE, &request.base, NULL, NULL, NULL);
}

/* The daemon charges a larger queue before it is there; a smaller one is there before it pays less. */
VERBS_API int ibv_resize_cq(struct ibv_cq *c, int cqe)
{
	ABI_ENTER_INT(c->context, ibv_resize_cq, "IBVERBS_1.1", c, cqe);

	struct soft_cq *cq = soft_cq_of(c);
	int old = c->cqe, r = 0;

	if (cqe <= 0 || (uint32_t)cqe > cq->ctx->info->max_cqe)
		return abi_errno(-EINVAL);
	if (cqe > old)
		r = daemon_resize(cq, cqe);
	if (r < 0)
		return abi_errno(r);
	r = soft_cq_resize(cq, (uint32_t)cqe);
	if (r == 0 && cqe < old && daemon_resize(cq, cqe) < 0)
		control_debug("cq %u: the daemon still counts %d entries", cq->handle, old);
	if (r < 0 && cqe > old)
		daemon_resize(cq, old);
	return abi_errno(r);
}

/* Moderation is accepted: an event for each completion is within what was asked for. */
int abi_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	if (abi_foreign(cq->context))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return abi_errno(-EINVAL);
	return 0;
}

VERBS_API int ibv_destroy_cq(struct ibv_cq *c)
{
	ABI_ENTER_INT(c->context, ibv_destroy_cq, "IBVERBS_1.1", c);

	struct soft_cq *cq = soft_cq_of(c);

	if (cq->users)
		return abi_errno(abi_busy(cq->ctx, VSD__OBJECT_TYPE__OBJ_CQ, cq->handle, cq->users));
	soft_cq_drain_events(cq);
	soft_async_drop(&cq->ctx->async, c);

	int r = control_destroy(cq->ctx->id, VSD__OBJECT_TYPE__OBJ_CQ, cq->handle);

	if (r < 0)
		return abi_errno(r);
	soft_cq_deinit(cq);
	if (cq->channel) {
		cq->channel->users--;
		cq->channel->channel.refcnt = (int)cq->channel->users;
	}
	if (cq->parent_domain)
		abi_pd_unref(cq->parent_domain);
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&c->mutex);

	struct soft_context *ctx = cq->ctx;

	free(cq);
	abi_context_unref(ctx);
	return 0;
}
