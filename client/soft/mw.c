/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows. A window has a key of its own, which only its owner executes; so revoking it waits for threads of
 * this process alone. A region with windows on it is executed by its owner too, and cannot be deregistered.
 */
#include <errno.h>
#include <sched.h>

#include "client/soft/in_child.h"
#include "client/soft/mr_private.h"
#include "client/soft/page.h"
#include "client/soft/qp.h"

/* Local write says nothing of a window, which only peers use, but programs give it all the same. */
#define MW_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED)

/* Guards the binding of every window against another bind or invalidate; lookups go by the slots. */
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;

void mw_in_child(void)
{
	pthread_mutex_init(&bind_lock, NULL);
}

/* The slot's object is odd for windows. */
static uintptr_t object_of(struct soft_mw *mw)
{
	return (uintptr_t)mw | 1;
}

int mw_open(struct soft_mw *mw)
{
	mw->mr = NULL;
	mw->qp = NULL;
	/* The slot is made now, so that binding cannot fail for memory; its object comes with the bind. */
	return key_slot_make(mw->mw.rkey) ? 0 : -ENOMEM;
}

/* Nobody is inside any more: the region is let go. bind_lock held. */
static void unbound(struct soft_mw *mw)
{
	struct soft_mr *mr = mw->mr;

	mw->mr = NULL;
	mw->qp = NULL;
	/* First: without windows it may be deregistered, and freed. */
	if (atomic_load(&mr->windows) == 1)
		page_key_open(mr);
	atomic_fetch_sub(&mr->windows, 1);
}

/* On the data path. Those inside are threads of ours that copy a slice at most. bind_lock held. */
static void unbind(struct soft_mw *mw)
{
	struct key_slot *slot = key_slot_get(mw->mw.rkey);

	if (!mw->mr)
		return;
	atomic_store(&slot->object, 0);
	while (key_slot_used(slot))
		sched_yield();
	unbound(mw);
}

int mw_close(struct soft_mw *mw)
{
	struct key_slot *slot = key_slot_get(mw->mw.rkey);
	int r;

	pthread_mutex_lock(&bind_lock);
	if (mw->mr)
		atomic_store(&slot->object, 0);
	pthread_mutex_unlock(&bind_lock);
	r = slot ? key_wait(slot, 0) : 0; /* makes progress, so not under the lock */
	pthread_mutex_lock(&bind_lock);
	if (mw->mr && r == 0)
		unbound(mw);
	else if (mw->mr)
		atomic_store(&slot->object, object_of(mw));
	pthread_mutex_unlock(&bind_lock);
	return r;
}

/* Whether the region may carry such a window. */
static int bind_check(const struct soft_mw *mw, const struct ibv_mw_bind_info *info, const struct soft_mr *mr)
{
	uint64_t start = mr->iova;

	if (mr->null || !soft_pd_same(mr->pd, mw->pd))
		return -EINVAL;
	if (!(mr->access & IBV_ACCESS_MW_BIND))
		return -EACCES;
	if (info->mw_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	if (info->addr < start || info->addr - start > mr->mr.length ||
	    info->length > mr->mr.length - (info->addr - start))
		return -ERANGE;
	return 0;
}

static int bind(struct soft_mw *mw, struct soft_qp *qp, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct soft_mr *mr = soft_mr_of(info->mr);
	struct key_slot *mr_slot = key_slot_get(mr->key);
	int r = -EINVAL;

	if (!mr_slot)
		return r;
	atomic_fetch_add(&mr_slot->users, 1);
	if (atomic_load(&mr_slot->object) == (uintptr_t)mr)
		r = bind_check(mw, info, mr);
	if (r == 0) {
		unbind(mw); /* a window of type 1 is bound anew */
		atomic_fetch_add(&mr->windows, 1);
		page_key_close(mr->key);
		mw->mr = mr;
		mw->qp = mw->mw.type == IBV_MW_TYPE_2 ? qp : NULL;
		mw->addr = info->addr;
		mw->length = info->length;
		mw->access = info->mw_access_flags;
		mw->mw.rkey = rkey;
		atomic_store(&key_slot_get(rkey)->object, object_of(mw));
	}
	key_slot_leave(mr_slot);
	return r;
}

int mw_bind(struct soft_mw *mw, struct soft_qp *qp, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	bool unbinds = info->length == 0;
	int r = 0;

	if (info->mw_access_flags & ~(unsigned)MW_ACCESS || rkey >> 8 != mw->mw.rkey >> 8 ||
	    !soft_pd_same(qp->pd, mw->pd) || (!unbinds && !info->mr))
		return -EINVAL;
	pthread_mutex_lock(&bind_lock);
	if (mw->mw.type == IBV_MW_TYPE_2 && (mw->mr || unbinds)) {
		r = -EINVAL; /* it has to be invalidated first */
	} else if (unbinds) {
		unbind(mw);
		mw->mw.rkey = rkey;
	} else {
		r = bind(mw, qp, rkey, info);
	}
	pthread_mutex_unlock(&bind_lock);
	return r;
}

int mw_check(struct soft_mw *mw, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	     uint64_t length, unsigned access, void **ptr)
{
	struct soft_mr *mr = mw->mr;
	uint64_t start = mw->access & IBV_ACCESS_ZERO_BASED ? 0 : mw->addr;

	if (mw->mw.rkey != key || !soft_pd_same(mw->pd, pd) || (mw->mw.type == IBV_MW_TYPE_2 && mw->qp != qp))
		return -EINVAL;
	if ((mw->access & access) != access)
		return -EACCES;
	if (addr < start || addr - start > mw->length || length > mw->length - (addr - start))
		return -ERANGE;
	*ptr = mr->mem + (mw->addr - mr->iova) + (addr - start);
	return 0;
}

int key_invalidate(uint32_t key, const struct soft_qp *qp, bool remote)
{
	struct key_slot *slot = key_slot_get(key);
	int r = -EINVAL;

	if (!slot)
		return r;
	pthread_mutex_lock(&bind_lock);

	uintptr_t object = atomic_load(&slot->object);
	struct soft_mw *mw = object & 1 ? (void *)(object - 1) : NULL;

	/* Regions are not invalidated from user space, and windows of type 1 only by a bind. */
	if (mw && mw->mw.type == IBV_MW_TYPE_2 && mw->mw.rkey == key && mw->qp == qp) {
		unbind(mw);
		r = 0;
	}
	pthread_mutex_unlock(&bind_lock);
	return r;
}

/* Every key is looked at: only who was refused for them asks. */
unsigned mw_bound_to(const struct soft_mr *mr, uint32_t *keys, unsigned n)
{
	unsigned found = 0;

	pthread_mutex_lock(&bind_lock);
	for (uint32_t index = 0; index < 1u << 24; index++) {
		struct key_slot *slot = key_slot_get(index << 8);

		if (!slot) {
			index |= KEY_LEAF - 1; /* none of a whole leaf was ever open */
			continue;
		}

		uintptr_t object = atomic_load(&slot->object);
		struct soft_mw *mw = object & 1 ? (void *)(object - 1) : NULL;

		if (mw && mw->mr == mr && found++ < n)
			keys[found - 1] = mw->mw.rkey;
	}
	pthread_mutex_unlock(&bind_lock);
	return found;
}
