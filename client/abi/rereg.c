/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Changing a memory region. What is new is checked first, so that a refusal leaves the region as it was; it is closed
 * while it changes, so that nobody reaches half of the old through half of the new.
 */
#include "client/abi/abi.h"

#include <stddef.h>
#include <string.h>

#include "client/abi/native_mr.h"
#include "client/soft/mr_place.h"
#include "client/soft/region.h"

#define FLAGS_KNOWN                                                                               \
	(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)
#define WRITES                                                                                    \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
		    IBV_ACCESS_MW_BIND))

/* What the program asked for. */
struct rereg {
	int flags;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	unsigned access;
};

/* @to has the new access; what it is zero-based by follows. */
static int access_change(struct soft_mr *to, unsigned access)
{
	unsigned was = to->access;
	bool was_zero = was & IBV_ACCESS_ZERO_BASED;

	to->access = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

	/* On-demand regions stay what they are, and others do not become one. */
	if ((to->access ^ was) & IBV_ACCESS_ON_DEMAND)
		return -EINVAL;

	int r = abi_access_check(to->access & ~(unsigned)IBV_ACCESS_ON_DEMAND);

	if (r < 0)
		return r;
	if (to->access & IBV_ACCESS_ZERO_BASED)
		to->iova = 0;
	else if (was_zero)
		to->iova = (uintptr_t)to->mem;
	return 0;
}

/* Memory that the library mapped stays where it is, and is written only if it was mapped for that. */
static int mapped_check(const struct soft_mr *to, const struct soft_mr *from)
{
	if ((to->access ^ from->access) & IBV_ACCESS_ZERO_BASED)
		return -EINVAL;
	if (!to->mapped_writable && to->access & WRITES)
		return -EACCES;
	return 0;
}

/* The region as it shall be: @to starts as a copy of what it is. */
static int rereg_check(struct soft_mr *to, const struct ibv_mr *pointer, const struct rereg *want)
{
	struct soft_mr from = *to;
	int r = 0;

	if (want->flags & ~FLAGS_KNOWN || !want->flags || to->null ||
		(want->access && !(want->flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return -EINVAL;
	if (want->flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		if (!want->addr || !want->length || from.mapped)
			return -EINVAL;
		to->mem = want->addr;
		to->mr.addr = want->addr;
		to->mr.length = want->length;
		to->iova = to->access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)want->addr;
	}
	if (want->flags & IBV_REREG_MR_CHANGE_PD) {
		if (!want->pd || want->pd->context != pointer->context)
			return -EINVAL;
		to->pd = soft_pd_of(want->pd);
	}
	if (want->flags & IBV_REREG_MR_CHANGE_ACCESS)
		r = access_change(to, want->access);
	if (r < 0)
		return r;
	return from.mapped ? mapped_check(to, &from)
			   : abi_range_check(to->mem, to->mr.length, to->iova, to->access);
}

static int daemon_rereg(const struct soft_mr *mr)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	/* What it may become was checked as the daemon would. */
	if (mr->place) {
		mr_place_change(mr);
		return 0;
	}
	request.context = mr->ctx->id;
	request.handle = mr->handle;
	request.has_pd = request.has_access = true;
	request.pd = mr->pd->pd.handle;
	request.access = mr->access;
	if (!mr->mapped) {
		request.has_addr = request.has_length = request.has_iova = true;
		request.addr = (uintptr_t)mr->mem;
		request.length = mr->mr.length;
		request.iova = mr->iova;
	}
	return control_call(VSD__OP__OP_MR_REREG, &request.base, NULL, NULL, NULL);
}

static void take_over(struct soft_mr *mr, const struct soft_mr *to)
{
	abi_pd_ref(to->pd);
	abi_pd_unref(mr->pd);
	mr->pd = to->pd;
	mr->access = to->access;
	/* The daemon's rule: what moves is ordinary memory from then on. */
	if (mr->mem != to->mem || mr->iova != to->iova || mr->mr.length != to->mr.length)
		mr->heap = 0;
	mr->mem = to->mem;
	mr->iova = to->iova;
	mr->mr.addr = to->mr.addr;
	mr->mr.length = to->mr.length;
	if (!mr->mapped) {
		dontfork_put(&mr->fork);
		dontfork_take(&mr->fork, mr->mem, mr->mr.length);
	}
}

/* The pointer that the program used shows it too. */
static void show(struct ibv_mr *pointer, const struct soft_mr *mr, const struct rereg *want)
{
	if (want->flags & IBV_REREG_MR_CHANGE_PD)
		pointer->pd = want->pd;
	pointer->length = mr->mr.length;
}

static int refused(int r)
{
	errno = -r;
	return IBV_REREG_MR_ERR_INPUT;
}

/* Without what other threads may be changing. */
static void describe(const struct soft_mr *mr, struct soft_mr *copy)
{
	memset(copy, 0, sizeof(*copy));
	memcpy(copy, mr, offsetof(struct soft_mr, windows));
}

static int mr_rereg(struct soft_mr *mr, struct ibv_mr *pointer, const struct rereg *want)
{
	struct soft_mr to;

	describe(mr, &to);

	int r = atomic_load(&mr->gone) ? -EINVAL : rereg_check(&to, pointer, want);

	if (r == 0 && mr->windows)
		r = -EBUSY;
	if (r == 0)
		r = mr_close(mr);
	if (r == -EBUSY)
		abi_mr_busy(mr);
	if (r < 0)
		return refused(r);
	r = daemon_rereg(&to);
	if (r == 0) {
		take_over(mr, &to);
		show(pointer, mr, want);
	}

	int opened = mr_open(mr);

	if (opened < 0) { /* no use to anybody now, but for ibv_dereg_mr() */
		errno = -opened;
		return IBV_REREG_MR_ERR_CMD;
	}
	return r < 0 ? refused(r) : 0;
}

VERBS_API int ibv_rereg_mr(
	struct ibv_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!abi_ours(m->context) && native_mr_is(m))
		return refused(-EOPNOTSUPP);
	if (!abi_ours(m->context))
		return REAL_INT(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr, "IBVERBS_1.1", m, flags, pd,
			addr, length, access);
	if (abi_foreign(m->context))
		return refused(-ABI_CHILD_ERRNO);

	const struct rereg want = { flags, pd, addr, length, (unsigned)access };

	return mr_rereg(soft_mr_of(m), m, &want);
}
