/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. A PD with anything on it cannot be deallocated; a parent domain is deallocated through here too. */
#include "client/abi/abi.h"

#include <stdlib.h>

VERBS_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	ABI_ENTER_PTR(c, ibv_alloc_pd, "IBVERBS_1.1", c);

	struct soft_context *ctx = soft_context_of(c);
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;
	struct soft_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return abi_null(ENOMEM);
	request.context = ctx->id;

	int r = control_create(VSD__OP__OP_PD_ALLOC, &request.base, &pd->pd.handle);

	if (r < 0) {
		free(pd);
		return abi_null(-r);
	}
	pd->pd.context = c;
	pd->base = pd;
	abi_context_ref(ctx);
	return &pd->pd;
}

VERBS_API int ibv_dealloc_pd(struct ibv_pd *p)
{
	ABI_ENTER_INT(p->context, ibv_dealloc_pd, "IBVERBS_1.1", p);

	struct soft_pd *pd = soft_pd_of(p);
	struct soft_context *ctx = soft_context_of(p->context);

	if (pd->base != pd)
		return abi_errno(abi_dealloc_parent_domain(pd));
	if (pd->users)
		return abi_errno(-EBUSY);

	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_PD, p->handle);

	if (r < 0)
		return abi_errno(r);
	free(pd);
	abi_context_unref(ctx);
	return 0;
}
