/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. Any memory can be registered: it is probed, not populated or pinned, since whoever touches it does
 * so through its owner's address space. Keys come out of the lease, so that a registration costs one call.
 */
#include "client/abi/abi.h"

#include <stdlib.h>
#include <unistd.h>

#define ACCESS_KNOWN                                                                              \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |   \
		    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |       \
		    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB))

static _Atomic bool registered;
static _Atomic unsigned key_tag;

bool abi_mr_ever(void)
{
	return registered;
}

int abi_key_take(struct soft_context *ctx, uint32_t *key)
{
	uint32_t index;
	int r = lease_take(ctx->keys, &index);

	if (r == 0)
		*key = index << 8 | (key_tag++ & 0xff);
	return r;
}

void abi_key_put(struct soft_context *ctx, uint32_t key)
{
	lease_put(ctx->keys, key >> 8);
}

/* As the kernel checks it: whoever may write or change from afar must be allowed to write here. */
static int access_check(unsigned access)
{
	if (access & ~ACCESS_KNOWN)
		return -EINVAL;
	if (access & IBV_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		!(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static int range_check(const void *addr, size_t length, uint64_t iova, unsigned access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return -EINVAL;
	/* An atomic is aligned by its iova; the CPU goes by the address. */
	if (!(access & IBV_ACCESS_ZERO_BASED) && ((uintptr_t)addr & page) != (iova & page))
		return -EINVAL;
	return mr_probe(addr, length, access & IBV_ACCESS_LOCAL_WRITE);
}

static int daemon_reg(const struct soft_mr *mr, uint32_t *handle)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = mr->ctx->id;
	request.pd = mr->pd->pd.handle;
	request.key = mr->key;
	request.addr = (uintptr_t)mr->mr.addr;
	request.length = mr->mr.length;
	request.iova = mr->iova;
	request.access = mr->access;
	return control_create(VSD__OP__OP_MR_REG, &request.base, handle);
}

/* @mr is filled but for its key; it is the caller's on failure. */
static int mr_register(struct soft_mr *mr)
{
	int r = abi_key_take(mr->ctx, &mr->key);

	if (r < 0)
		return r;
	r = daemon_reg(mr, &mr->handle);
	if (r < 0)
		goto err_key;
	mr->mr.handle = mr->handle;
	mr->mr.lkey = mr->mr.rkey = mr->key;
	r = mr_open(mr);
	if (r < 0)
		goto err_destroy;
	abi_pd_ref(mr->pd);
	abi_context_ref(mr->ctx);
	registered = true;
	return 0;

err_destroy:
	control_destroy(mr->ctx->id, VSD__OBJECT_TYPE__OBJ_MR, mr->handle);
err_key:
	abi_key_put(mr->ctx, mr->key);
	return r;
}

static struct ibv_mr *mr_new(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access, bool null)
{
	struct soft_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return abi_null(ENOMEM);
	mr->ctx = soft_context_of(pd->context);
	mr->pd = soft_pd_of(pd);
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	mr->null = null;
	mr->mem = addr;
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;

	int r = mr_register(mr);

	if (r < 0) {
		free(mr);
		return abi_null(-r);
	}
	return &mr->mr;
}

struct ibv_mr *abi_reg_mr(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	/* What is optional may be ignored: every order is already as strict as it gets. */
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

	int r = access_check(access);

	if (r == 0)
		r = range_check(addr, length, iova, access);
	if (r < 0)
		return abi_null(-r);
	return mr_new(pd, addr, length, iova, access, false);
}

VERBS_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	ABI_ENTER_PTR(pd->context, ibv_reg_mr, "IBVERBS_1.1", pd, addr, length, access);
	return abi_reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

VERBS_API struct ibv_mr *ibv_reg_mr_iova(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	ABI_ENTER_PTR(pd->context, ibv_reg_mr_iova, "IBVERBS_1.7", pd, addr, length, iova, access);
	return abi_reg_mr(pd, addr, length, iova, (unsigned)access);
}

VERBS_API struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	ABI_ENTER_PTR(pd->context, ibv_reg_mr_iova2, "IBVERBS_1.8", pd, addr, length, iova, access);
	return abi_reg_mr(pd, addr, length, iova, access);
}

/* Reads as zeros, swallows what is written. */
struct ibv_mr *abi_alloc_null_mr(struct ibv_pd *pd)
{
	if (rt_is_child())
		return abi_null(ABI_CHILD_ERRNO);
	return mr_new(pd, NULL, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE, true);
}

VERBS_API int ibv_dereg_mr(struct ibv_mr *m)
{
	ABI_ENTER_INT(m->context, ibv_dereg_mr, "IBVERBS_1.1", m);

	struct soft_mr *mr = soft_container(m, struct soft_mr, mr);
	int r = mr->windows ? -EBUSY : mr_close(mr);

	if (r < 0)
		return abi_errno(r == -EBUSY ? abi_mr_busy(mr) : r);
	r = control_destroy(mr->ctx->id, VSD__OBJECT_TYPE__OBJ_MR, mr->handle);
	if (r < 0)
		control_debug("mr 0x%x: the daemon keeps it: error %d", mr->key, -r);
	abi_key_put(mr->ctx, mr->key);
	abi_pd_unref(mr->pd);

	struct soft_context *ctx = mr->ctx;

	free(mr);
	abi_context_unref(ctx);
	return 0;
}

/* --- rereg --------------------------------------------------------------------------------------------------------- */

#define REREG_KNOWN                                                                               \
	(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)

/* The region as it shall be: @to starts as a copy of what it is. */
static int rereg_check(struct soft_mr *to, int flags, struct ibv_pd *pd, void *addr, size_t length,
	unsigned access)
{
	if (flags & ~REREG_KNOWN || !flags || to->null)
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		if (!pd || pd->context != to->mr.context)
			return -EINVAL;
		to->pd = soft_pd_of(pd);
		to->mr.pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
		to->access = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

		int r = access_check(to->access);

		if (r < 0)
			return r;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		if (!addr || !length)
			return -EINVAL;
		to->mr.addr = addr;
		to->mr.length = length;
		to->iova = to->access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	return range_check(to->mr.addr, to->mr.length, to->iova, to->access);
}

static int daemon_rereg(const struct soft_mr *mr)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	request.context = mr->ctx->id;
	request.handle = mr->handle;
	request.has_pd = request.has_addr = request.has_length = true;
	request.has_iova = request.has_access = true;
	request.pd = mr->pd->pd.handle;
	request.addr = (uintptr_t)mr->mr.addr;
	request.length = mr->mr.length;
	request.iova = mr->iova;
	request.access = mr->access;
	return control_call(VSD__OP__OP_MR_REREG, &request.base, NULL, NULL, NULL);
}

VERBS_API int ibv_rereg_mr(
	struct ibv_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!abi_ours(m->context))
		return REAL_INT(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr, "IBVERBS_1.1", m, flags, pd,
			addr, length, access);

	struct soft_mr *mr = soft_container(m, struct soft_mr, mr);
	struct soft_mr to = *mr;
	int r = rt_is_child() ? -ABI_CHILD_ERRNO
			      : rereg_check(&to, flags, pd, addr, length, (unsigned)access);

	if (r == 0 && mr->windows)
		r = -EBUSY;
	if (r == 0)
		r = mr_close(mr);
	if (r < 0) {
		if (r == -EBUSY)
			abi_mr_busy(mr);
		errno = -r;
		return IBV_REREG_MR_ERR_INPUT;
	}
	r = daemon_rereg(&to);
	if (r == 0) {
		abi_pd_ref(to.pd);
		abi_pd_unref(mr->pd);
		mr->pd = to.pd;
		mr->access = to.access;
		mr->iova = to.iova;
		mr->mr.pd = to.mr.pd;
		mr->mr.addr = to.mr.addr;
		mr->mem = to.mr.addr;
		mr->mr.length = to.mr.length;
	}

	int opened = mr_open(mr);

	if (r == 0 && opened == 0)
		return 0;
	errno = r < 0 ? -r : -opened;
	return opened == 0 ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
}
