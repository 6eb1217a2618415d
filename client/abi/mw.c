/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows: allocated here, bound by the data path. The low byte of a type 2 window's key is the program's. */
#include "client/abi/abi.h"

#include <stdlib.h>

static int daemon_alloc(struct soft_mw *mw)
{
	Vsd__MwAllocRequest request = VSD__MW_ALLOC_REQUEST__INIT;

	request.context = mw->ctx->id;
	request.pd = mw->pd->pd.handle;
	request.type = mw->mw.type;
	request.key = mw->mw.rkey;
	return control_create(VSD__OP__OP_MW_ALLOC, &request.base, &mw->handle);
}

static int mw_start(struct soft_mw *mw)
{
	int r = abi_key_take(mw->ctx, &mw->mw.rkey);

	if (r < 0)
		return r;
	r = daemon_alloc(mw);
	if (r < 0)
		goto err_key;
	mw->mw.handle = mw->handle;
	r = mw_open(mw);
	if (r < 0)
		goto err_destroy;
	return 0;

err_destroy:
	control_destroy(mw->ctx->id, VSD__OBJECT_TYPE__OBJ_MW, mw->handle);
err_key:
	abi_key_put(mw->ctx, mw->mw.rkey);
	return r;
}

struct ibv_mw *abi_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (abi_foreign(pd->context))
		return abi_null(ABI_CHILD_ERRNO);
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return abi_null(EINVAL);

	struct soft_mw *mw = calloc(1, sizeof(*mw));

	if (!mw)
		return abi_null(ENOMEM);
	mw->ctx = soft_context_of(pd->context);
	mw->pd = soft_pd_of(pd);
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.type = type;

	int r = mw_start(mw);

	if (r < 0) {
		free(mw);
		return abi_null(-r);
	}
	abi_pd_ref(mw->pd);
	abi_context_ref(mw->ctx);
	return &mw->mw;
}

int abi_dealloc_mw(struct ibv_mw *m)
{
	if (abi_foreign(m->context))
		return abi_errno(-ABI_CHILD_ERRNO);

	struct soft_mw *mw = soft_container(m, struct soft_mw, mw);
	int r = mw_close(mw);

	if (r < 0)
		return abi_errno(r);
	r = control_destroy(mw->ctx->id, VSD__OBJECT_TYPE__OBJ_MW, mw->handle);
	if (r < 0)
		control_debug("mw 0x%x: the daemon keeps it: error %d", m->rkey, -r);
	abi_key_put(mw->ctx, m->rkey);
	abi_pd_unref(mw->pd);

	struct soft_context *ctx = mw->ctx;

	free(mw);
	abi_context_unref(ctx);
	return 0;
}
