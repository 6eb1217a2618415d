/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows. A window has a key of its own, which only its owner executes; so revoking it waits for threads of
 * this process alone. A region with windows on it is executed by its owner too, and cannot be deregistered.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "client/soft/in_child.h"
#include "client/soft/mr_private.h"
#include "client/soft/page.h"
#include "client/soft/qp.h"

/* Local write says nothing of a window, which only peers use, but programs give it all the same. */
#define MW_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED)

#define WINDOWS 256 /* hash of open windows, by the index of their keys */

static struct soft_mw *windows[WINDOWS]; /* under bind_lock */

/* Guards the binding of every window against another bind or invalidate; lookups go by the slots. */
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;

void mw_in_child(void)
{
	memset(windows, 0, sizeof(windows));
	pthread_mutex_init(&bind_lock, NULL);
}

/* The slot's object is odd for windows. */
static uintptr_t object_of(struct soft_mw *mw)
{
	return (uintptr_t)mw | 1;
}

/* Where the window with that index is named, or the end of the list. bind_lock held. */
static struct soft_mw **window_at(uint32_t index)
{
	struct soft_mw **at = &windows[index % WINDOWS];

	while (*at && (*at)->index != index)
		at = &(*at)->next;
	return at;
}

int mw_open(struct soft_mw *mw)
{
	struct soft_mw **at;

	mw->mr = NULL;
	mw->qp = 0;
	mw->index = mw->mw.rkey >> 8;
	/* The slot is made now, so that binding cannot fail for memory; its object comes with the bind. */
	if (!key_slot_make(mw->mw.rkey))
		return -ENOMEM;
	pthread_mutex_lock(&bind_lock);
	at = &windows[mw->index % WINDOWS];
	mw->next = *at;
	*at = mw;
	pthread_mutex_unlock(&bind_lock);
	return 0;
}

/* Nobody is inside any more: the region is let go. bind_lock held. */
static void unbound(struct soft_mw *mw)
{
	struct soft_mr *mr = mw->mr;

	mw->mr = NULL;
	mw->qp = 0;
	/* First: without windows it may be deregistered, and freed. */
	if (atomic_load(&mr->windows) == 1)
		page_key_open(mr);
	atomic_fetch_sub(&mr->windows, 1);
}

/* On the data path. Those inside are threads of ours that copy a slice at most. bind_lock held. */
static void unbind(struct soft_mw *mw)
{
	struct key_slot *slot = key_slot_get(mw->index << 8);

	if (!mw->mr)
		return;
	atomic_store(&slot->object, 0);
	while (key_slot_used(slot))
		sched_yield();
	unbound(mw);
}

int mw_close(struct soft_mw *mw)
{
	struct key_slot *slot = key_slot_get(mw->index << 8);
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
	if (r == 0)
		*window_at(mw->index) = mw->next; /* binds that wait find it no more */
	pthread_mutex_unlock(&bind_lock);
	return r;
}

/* Whether the region may carry such a window. */
static int bind_check(const struct soft_mw *mw, const struct mw_bind *want, const struct soft_mr *mr)
{
	uint64_t start = mr->iova;

	if (mr->null || !soft_pd_same(mr->pd, mw->pd))
		return -EINVAL;
	if (!(mr->access & IBV_ACCESS_MW_BIND))
		return -EACCES;
	if (want->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	if (want->addr < start || want->addr - start > mr->mr.length ||
	    want->length > mr->mr.length - (want->addr - start))
		return -ERANGE;
	return 0;
}

static int bind(struct soft_mw *mw, struct soft_qp *qp, uint32_t rkey, const struct mw_bind *want)
{
	struct key_slot *mr_slot = key_slot_get(want->region);
	int r = -EINVAL;

	if (!mr_slot)
		return r;
	atomic_fetch_add(&mr_slot->users, 1);

	uintptr_t object = atomic_load(&mr_slot->object);
	struct soft_mr *mr = object & 1 ? NULL : (struct soft_mr *)object;

	if (mr && mr->key == want->region)
		r = bind_check(mw, want, mr);
	if (r == 0) {
		unbind(mw); /* a window of type 1 is bound anew */
		atomic_fetch_add(&mr->windows, 1);
		page_key_close(mr->key);
		mw->mr = mr;
		mw->qp = mw->mw.type == IBV_MW_TYPE_2 ? qp->serial : 0;
		mw->addr = want->addr;
		mw->length = want->length;
		mw->access = want->access;
		mw->key = rkey;
		if (mw->mw.type == IBV_MW_TYPE_2) /* perhaps in another thread than the program's, which knows it already */
			__atomic_store_n(&mw->mw.rkey, rkey, __ATOMIC_RELAXED);
		atomic_store(&key_slot_get(rkey)->object, object_of(mw));
	}
	key_slot_leave(mr_slot);
	return r;
}

struct mw_bind mw_bind_of(struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
	return (struct mw_bind){
		.context = mw ? mw->context : NULL,
		.window = mw ? soft_container(mw, struct soft_mw, mw)->index : 0,
		.region = info->mr ? soft_mr_of(info->mr)->key : 0,
		.addr = info->addr,
		.length = info->length,
		.access = info->mw_access_flags,
	};
}

int mw_bind(const struct mw_bind *want, struct soft_qp *qp, uint32_t rkey)
{
	bool unbinds = want->length == 0;
	struct soft_mw *mw;
	int r = 0;

	if (want->access & ~(unsigned)MW_ACCESS || rkey >> 8 != want->window || (!unbinds && !want->region))
		return -EINVAL;
	pthread_mutex_lock(&bind_lock);
	mw = *window_at(want->window);
	if (!mw || !soft_pd_same(qp->pd, mw->pd)) {
		r = -EINVAL;
	} else if (mw->mw.type == IBV_MW_TYPE_2 && (mw->mr || unbinds)) {
		r = -EINVAL; /* it has to be invalidated first */
	} else if (unbinds) {
		unbind(mw);
	} else {
		r = bind(mw, qp, rkey, want);
	}
	pthread_mutex_unlock(&bind_lock);
	return r;
}

int mw_check(struct soft_mw *mw, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	     uint64_t length, unsigned access, void **ptr)
{
	struct soft_mr *mr = mw->mr;
	uint64_t start = mw->access & IBV_ACCESS_ZERO_BASED ? 0 : mw->addr;

	if (mw->key != key || !soft_pd_same(mw->pd, pd) || (mw->mw.type == IBV_MW_TYPE_2 && mw->qp != qp->serial))
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
	if (mw && mw->mw.type == IBV_MW_TYPE_2 && mw->key == key && mw->qp == qp->serial) {
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
			keys[found - 1] = mw->key;
	}
	pthread_mutex_unlock(&bind_lock);
	return found;
}
