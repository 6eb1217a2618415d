/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parent domains: a PD that extends another, with which it is interchangeable, and carries a thread domain and the
 * allocators that the queues of the objects on it come from.
 */
#include "client/abi/abi.h"
#include "client/soft/td.h"

#include <stdlib.h>

#define KNOWN_MASK                                                                                \
	((uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))

static int attr_check(const struct ibv_context *c, const struct ibv_parent_domain_init_attr *attr)
{
	if (attr->comp_mask & ~KNOWN_MASK)
		return -EOPNOTSUPP;
	if (!attr->pd || attr->pd->context != c)
		return -EINVAL;
	if (attr->td && attr->td->context != c)
		return -EINVAL;
	/* What one of them gave, the other has to take back. */
	if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
		(!attr->alloc || !attr->free))
		return -EINVAL;
	return 0;
}

static int daemon_alloc(struct soft_context *ctx, struct soft_pd *pd)
{
	Vsd__ParentDomainAllocRequest request = VSD__PARENT_DOMAIN_ALLOC_REQUEST__INIT;

	request.context = ctx->id;
	request.pd = pd->base->pd.handle;
	if (pd->td) {
		request.has_td = true;
		request.td = pd->td->handle;
	}
	return control_create(VSD__OP__OP_PARENT_DOMAIN_ALLOC, &request.base, &pd->pd.handle);
}

struct ibv_pd *abi_alloc_parent_domain(
	struct ibv_context *c, struct ibv_parent_domain_init_attr *attr)
{
	int r = abi_foreign(c) ? -ABI_CHILD_ERRNO : attr_check(c, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_context *ctx = soft_context_of(c);
	struct soft_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return abi_null(ENOMEM);
	pd->pd.context = c;
	/* A parent domain may stand for its PD here too; of what else it has, this one gets nothing. */
	pd->base = soft_pd_of(attr->pd)->base;
	if (attr->td)
		pd->td = soft_container(attr->td, struct soft_td, td);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->pd_context = attr->pd_context;
	r = daemon_alloc(ctx, pd);
	if (r < 0) {
		free(pd);
		return abi_null(-r);
	}
	abi_pd_ref(pd->base);
	if (pd->td)
		pd->td->users++;
	abi_context_ref(ctx);
	return &pd->pd;
}

int abi_dealloc_parent_domain(struct soft_pd *pd)
{
	struct soft_context *ctx = soft_context_of(pd->pd.context);

	if (pd->users)
		return abi_busy(ctx, VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN, pd->pd.handle, pd->users);

	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN, pd->pd.handle);

	if (r < 0)
		return r;
	abi_pd_unref(pd->base);
	if (pd->td)
		pd->td->users--;
	free(pd);
	abi_context_unref(ctx);
	return 0;
}
