/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. Any memory can be registered: it is probed, not populated or pinned, since whoever touches it does
 * so through its owner's address space. Keys come out of the lease, and ordinary memory has a place in this process's page,
 * where the daemon looks for it when somebody asks: then a registration costs no call.
 */
#include "client/abi/abi.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/abi/file.h"
#include "client/abi/heap.h"
#include "client/abi/native_mr.h"
#include "client/soft/mr_place.h"
#include "client/soft/region.h"

#define ACCESS_KNOWN                                                                              \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |   \
		    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |       \
		    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB))

static _Atomic unsigned key_tag;

/*
 * An imported region has the key of the process that registered it, whose lease may be another's now. Such a number is left
 * alone for good.
 */
int abi_key_take(struct soft_context *ctx, uint32_t *key)
{
	uint32_t index;
	int r;

	do
		r = lease_take(ctx->keys, &index);
	while (r == 0 && key_is_used(index << 8));
	if (r == 0)
		*key = index << 8 | (key_tag++ & 0xff);
	return r;
}

void abi_key_put(struct soft_context *ctx, uint32_t key)
{
	lease_put(ctx->keys, key >> 8);
}

/* As the kernel checks it: whoever may write or change from afar must be allowed to write here. */
int abi_access_check(unsigned access)
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

int abi_range_check(const void *addr, size_t length, uint64_t iova, unsigned access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return -EINVAL;
	/* An atomic is aligned by its iova; the CPU goes by the address. */
	if (iova && ((uintptr_t)addr & page) != (iova & page))
		return -EINVAL;
	/* What is paged on demand need not be there, now or ever. */
	return access & IBV_ACCESS_ON_DEMAND ? 0 : mr_probe(addr, length, access & IBV_ACCESS_LOCAL_WRITE);
}

/*
 * Of the heap if it is, so that peers may get the map engine. What the daemon does not know as that (its region went with
 * an earlier session) is registered as any memory.
 */
static int reg_call(struct soft_mr *mr, Vsd__MrRegRequest *request)
{
	int r;

	if (!mr->mapped && !mr->null && !(mr->access & IBV_ACCESS_ON_DEMAND) &&
		abi_heap_find(mr->mem, mr->mr.length, &mr->heap, &request->offset)) {
		request->has_region = request->has_offset = true;
		request->region = mr->heap;
		r = control_create(VSD__OP__OP_MR_REG, &request->base, &mr->handle);
		if (r != -EINVAL)
			return r;
		control_debug("heap region %u is not the daemon's", mr->heap);
		request->has_region = request->has_offset = false;
	}
	mr->heap = 0;
	return control_create(VSD__OP__OP_MR_REG, &request->base, &mr->handle);
}

/* What the daemon has no part in: not of its memory, or of the heap that it keeps. */
static bool is_plain(const struct soft_mr *mr)
{
	uint64_t offset;
	uint32_t heap;

	return !mr->dm && !mr->mapped && !mr->null &&
	       (mr->access & IBV_ACCESS_ON_DEMAND || !abi_heap_find(mr->mem, mr->mr.length, &heap, &offset));
}

static int daemon_reg(struct soft_mr *mr)
{
	if (is_plain(mr) && mr_place_take(mr->ctx->places, mr) == 0)
		return 0;

	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = mr->ctx->id;
	request.pd = mr->pd->pd.handle;
	request.key = mr->key;
	request.addr = (uintptr_t)mr->mem;
	request.length = mr->mr.length;
	request.iova = mr->iova;
	request.access = mr->access;
	if (mr->dm) {
		request.has_dm = true;
		request.dm = mr->dm_handle;
		request.addr = mr->dm_offset;
	}
	return reg_call(mr, &request);
}

static int daemon_dereg(struct soft_mr *mr)
{
	if (!mr->place)
		return control_destroy(mr->ctx->id, VSD__OBJECT_TYPE__OBJ_MR, mr->handle);
	mr_place_put(mr->ctx->places, mr);
	return 0;
}

int abi_mr_start(struct soft_mr *mr)
{
	int r;

	mr->mr.handle = mr->handle;
	mr->mr.lkey = mr->key;
	mr->mr.rkey = mr->null ? 0 : mr->key;
	mr->refs = 1;
	r = mr_open(mr);
	if (r < 0) {
		daemon_dereg(mr);
		return r;
	}
	abi_pd_ref(mr->pd);
	abi_context_ref(mr->ctx);
	return 0;
}

/* @mr is filled but for its key; it is the caller's on failure. */
int abi_mr_register(struct soft_mr *mr)
{
	int r = abi_key_take(mr->ctx, &mr->key);

	if (r < 0)
		return r;
	mr->leased = true;
	r = daemon_reg(mr);
	if (r == 0)
		r = abi_mr_start(mr);
	if (r < 0) {
		abi_key_put(mr->ctx, mr->key);
		return r;
	}
	return 0;
}

struct soft_mr *abi_mr_alloc(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	struct soft_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->ctx = soft_context_of(pd->context);
	mr->pd = soft_pd_of(pd);
	mr->access = access;
	mr->mem = addr;
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;
	return mr;
}

/* What abi_mr_register() or its like said of @mr: the program's pointer, or NULL. */
static struct ibv_mr *mr_result(struct soft_mr *mr, int r)
{
	if (r == 0)
		return &mr->mr;
	free(mr);
	return abi_null(-r);
}

struct ibv_mr *abi_reg_mr(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	/* What is optional may be ignored: every order is already as strict as it gets. */
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;

	bool implicit = access & IBV_ACCESS_ON_DEMAND && !addr && length == SIZE_MAX;
	int r = abi_access_check(access & ~(unsigned)IBV_ACCESS_ON_DEMAND);

	if (implicit && (iova || access & (IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND)))
		r = -EINVAL; /* addresses are the program's own, and pages of any size */
	if (!implicit && length > soft_context_of(pd->context)->info->max_mr_size)
		r = -EINVAL;
	if (r == 0)
		r = abi_range_check(addr, length, iova, access);
	if (r < 0)
		return abi_null(-r);

	struct soft_mr *mr = abi_mr_alloc(pd, addr, length, access);

	if (!mr)
		return abi_null(ENOMEM);
	mr->iova = iova;
	r = abi_mr_register(mr);
	if (r == 0 && !(access & IBV_ACCESS_ON_DEMAND))
		dontfork_take(&mr->fork, addr, length);
	return mr_result(mr, r);
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

/* Reads as zeros, swallows what is written; has no rkey, and nothing to be changed. */
struct ibv_mr *abi_alloc_null_mr(struct ibv_pd *pd)
{
	if (abi_foreign(pd->context))
		return abi_null(ABI_CHILD_ERRNO);

	struct soft_mr *mr = abi_mr_alloc(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE);

	if (!mr)
		return abi_null(ENOMEM);
	mr->null = true;
	return mr_result(mr, abi_mr_register(mr));
}

/* --- the end of it ------------------------------------------------------------------------------------------------- */

void abi_mr_unmap(struct soft_mr *mr)
{
	if (mr->map)
		dontfork_munmap(mr->map, mr->map_size);
	mr->map = NULL;
	abi_file_put(mr->file);
	mr->file = NULL;
}

static int mr_dereg(struct soft_mr *mr)
{
	/* Another pointer to it did that already: this one can only be unimported. */
	if (atomic_exchange(&mr->gone, true))
		return -EINVAL;

	int r = mr->windows ? -EBUSY : mr_close(mr);

	if (r < 0) {
		atomic_store(&mr->gone, false);
		return r == -EBUSY ? abi_mr_busy(mr) : r;
	}
	r = daemon_dereg(mr);
	if (r < 0)
		control_debug("mr 0x%x: the daemon keeps it: error %d", mr->key, -r);
	if (mr->leased)
		abi_key_put(mr->ctx, mr->key);
	abi_mr_unmap(mr);
	dontfork_put(&mr->fork);
	region_put(mr->region);
	if (mr->dm)
		abi_dm_unref(mr->dm);
	abi_pd_unref(mr->pd);
	abi_context_unref(mr->ctx);
	return 0;
}

/* What was never deregistered stays when its last pointer goes, but for what is this process's alone. */
void abi_mr_put(struct soft_mr *mr)
{
	if (atomic_fetch_sub(&mr->refs, 1) > 1)
		return;
	if (mr->imported && !atomic_load(&mr->gone))
		mr_dereg(mr);
	if (atomic_load(&mr->gone))
		free(mr);
}

/* The program has no use for this pointer any more. */
static void pointer_put(struct soft_mr *pointer)
{
	struct soft_mr *mr = pointer->of ? pointer->of : pointer;

	if (pointer->of) {
		struct soft_context *ctx = pointer->ctx;

		abi_pd_unref(pointer->pd);
		free(pointer);
		abi_context_unref(ctx);
	}
	abi_mr_put(mr);
}

VERBS_API int ibv_dereg_mr(struct ibv_mr *m)
{
	int r;

	if (!abi_ours(m->context) && !real_inside() && native_mr_dereg(m, &r))
		return r;
	ABI_ENTER_INT(m->context, ibv_dereg_mr, "IBVERBS_1.1", m);
	r = mr_dereg(soft_mr_of(m));

	if (r == 0)
		pointer_put(soft_container(m, struct soft_mr, mr));
	return abi_errno(r);
}

VERBS_API void ibv_unimport_mr(struct ibv_mr *m)
{
	if (!abi_ours(m->context)) {
		REAL_VOID(ibv_unimport_mr, "IBVERBS_1.10", m);
		return;
	}
	if (abi_foreign(m->context))
		return;
	pointer_put(soft_container(m, struct soft_mr, mr));
}
