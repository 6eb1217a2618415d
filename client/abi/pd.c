/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains. A PD with anything on it cannot be deallocated; a parent domain is deallocated through here too.
 * A PD may be known by several pointers, here and in other processes (ibv_import_pd); its number says that it is one.
 */
#include "client/abi/abi.h"

#include <stdlib.h>

/* In soft_pd.users: the program has let go of it while objects stood on it; the last of them frees it. */
#define UNIMPORTED (1u << 31)

static void pd_free(struct soft_pd *pd)
{
	struct soft_context *ctx = soft_context_of(pd->pd.context);

	free(pd);
	abi_context_of(ctx)->shared--;
	abi_context_unref(ctx);
}

void abi_pd_unref(struct soft_pd *pd)
{
	if (--pd->users == UNIMPORTED)
		pd_free(pd);
}

void abi_pd_unimport(struct soft_pd *pd)
{
	if (atomic_fetch_or(&pd->users, UNIMPORTED) == 0)
		pd_free(pd);
}

struct soft_pd *abi_pd_new(struct soft_context *ctx, uint16_t op, const ProtobufCMessage *request)
{
	ProtobufCMessage *message = NULL;
	struct soft_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return abi_null(ENOMEM);

	int r = control_call(op, request, &vsd__object_reply__descriptor, &message, NULL);

	if (r < 0) {
		free(pd);
		return abi_null(-r);
	}

	const Vsd__ObjectReply *reply = (const Vsd__ObjectReply *)message;

	pd->pd.handle = reply->handle;
	pd->number = reply->has_number ? reply->number : (ctx->id << 20) + reply->handle;
	protobuf_c_message_free_unpacked(message, NULL);
	pd->pd.context = &ctx->v.context;
	pd->base = pd;
	abi_context_of(ctx)->shared++;
	abi_context_ref(ctx);
	return pd;
}

VERBS_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	ABI_ENTER_PTR(c, ibv_alloc_pd, "IBVERBS_1.1", c);

	struct soft_context *ctx = soft_context_of(c);
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = ctx->id;

	struct soft_pd *pd = abi_pd_new(ctx, VSD__OP__OP_PD_ALLOC, &request.base);

	return pd ? &pd->pd : NULL;
}

VERBS_API int ibv_dealloc_pd(struct ibv_pd *p)
{
	ABI_ENTER_INT(p->context, ibv_dealloc_pd, "IBVERBS_1.1", p);

	struct soft_pd *pd = soft_pd_of(p);
	struct soft_context *ctx = soft_context_of(p->context);

	if (pd->base != pd)
		return abi_errno(abi_dealloc_parent_domain(pd));
	if (pd->users)
		return abi_errno(abi_busy(ctx, VSD__OBJECT_TYPE__OBJ_PD, p->handle, pd->users));

	/* Of a context that is closed and was let go, the PD is the importers'. */
	int r = abi_context_of(ctx)->detached ? 0 : control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_PD, p->handle);

	if (r < 0)
		return abi_errno(r);
	pd_free(pd);
	return 0;
}
