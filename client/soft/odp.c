/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On-demand paging. Nothing is pinned here, so every region would do; one that is registered for it is looked at when it
 * is used, not when it is registered, and need not be there at all. What is left to do is to page in ahead of use.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/mr_private.h"

/* What is at the key, its slot held; NULL: a window, or nothing, which *@error tells apart. */
static struct soft_mr *region_hold(uint32_t key, struct key_slot **held, int *error)
{
	struct key_slot *slot = key_slot_get(key);
	uintptr_t object;

	*error = -EFAULT;
	if (!slot)
		return NULL;
	atomic_fetch_add(&slot->users, 1);
	object = atomic_load(&slot->object);
	if (object && !(object & 1)) {
		*held = slot;
		return (struct soft_mr *)object;
	}
	key_slot_leave(slot);
	*error = object ? -EINVAL : -EFAULT;
	return NULL;
}

static int check(const struct soft_mr *mr, const struct soft_pd *pd, const struct ibv_sge *sge, bool write)
{
	uint64_t off = sge->addr - mr->iova;

	if (mr->key != sge->lkey)
		return -ENOENT;
	if (!soft_pd_same(mr->pd, pd))
		return -EPERM;
	if (!(mr->access & IBV_ACCESS_ON_DEMAND))
		return -EINVAL;
	if (write && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return -EPERM;
	if (sge->addr < mr->iova || off > mr->mr.length || sge->length > mr->mr.length - off)
		return -EFAULT;
	return 0;
}

int mr_advise_check(const struct soft_pd *pd, const struct ibv_sge *sge, bool write)
{
	struct key_slot *slot;
	int r;
	const struct soft_mr *mr = region_hold(sge->lkey, &slot, &r);

	if (!mr)
		return r;
	r = check(mr, pd, sge, write);
	key_slot_leave(slot);
	return r;
}

/* The kernel does not say which page it was that it could not have: all of them are asked for. */
static int all_allow(uintptr_t from, uintptr_t to, bool write)
{
	int r = mr_probe((void *)from, to - from, write);

	return r < 0 || mr_maps_allow(from, to, write) < 0 ? -EFAULT : 0;
}

static int page_in(uintptr_t from, uintptr_t to, bool write, bool wait)
{
	int advice = !wait ? MADV_WILLNEED : write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	while (madvise((void *)from, to - from, advice) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == ENOMEM || errno == EFAULT)
			return -EFAULT;
		/* An older kernel, or memory that is no file's and no anonymous one: it is there, or will be. */
		return wait && errno == EINVAL ? all_allow(from, to, write) : 0;
	}
	return 0;
}

int mr_prefetch(const struct ibv_sge *sge, bool write, bool wait)
{
	uintptr_t page = (uintptr_t)getpagesize(), from, to;
	struct key_slot *slot;
	int r;
	const struct soft_mr *mr = region_hold(sge->lkey, &slot, &r);

	if (!mr)
		return r;
	from = (uintptr_t)mr->mem + (sge->addr - mr->iova);
	to = from + sge->length;
	r = -EFAULT;
	if (to >= from && to <= UINTPTR_MAX - page)
		r = sge->length ? page_in(from & ~(page - 1), (to + page - 1) & ~(page - 1), write, wait) : 0;
	key_slot_leave(slot);
	return r;
}
