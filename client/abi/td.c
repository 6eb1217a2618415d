/* SPDX-License-Identifier: BSD-2-Clause */
/* Thread domains: their objects are used by one thread at a time, and so take no lock. */
#include "client/abi/abi.h"

#include "client/soft/td.h"

struct ibv_td *abi_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr)
{
	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);
	if (attr->comp_mask)
		return abi_null(EOPNOTSUPP);

	struct soft_context *ctx = soft_context_of(c);
	Vsd__TdAllocRequest request = VSD__TD_ALLOC_REQUEST__INIT;
	struct soft_td *td = td_new();

	if (!td)
		return abi_null(ENOMEM);
	request.context = ctx->id;

	int r = control_create(VSD__OP__OP_TD_ALLOC, &request.base, &td->handle);

	if (r < 0) {
		td_free(td);
		return abi_null(-r);
	}
	td->td.context = c;
	abi_context_ref(ctx);
	return &td->td;
}

int abi_dealloc_td(struct ibv_td *t)
{
	if (abi_foreign(t->context))
		return abi_errno(-ABI_CHILD_ERRNO);

	struct soft_td *td = soft_container(t, struct soft_td, td);
	struct soft_context *ctx = soft_context_of(t->context);

	if (td->users)
		return abi_errno(abi_busy(ctx, VSD__OBJECT_TYPE__OBJ_TD, td->handle, td->users));

	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_TD, td->handle);

	if (r < 0)
		return abi_errno(r);
	td_free(td);
	abi_context_unref(ctx);
	return 0;
}
