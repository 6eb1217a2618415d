/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions by key. Lookups take no lock: a thread counts itself into the key's slot, then looks whether the
 * object is there; who closes takes the object out, then waits for the count (both with full barriers).
 */
#include "client/soft/mr.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/in_child.h"
#include "client/soft/mr_private.h"
#include "client/soft/page.h"
#include "client/soft/rt.h"
#include "client/soft/wire.h"

#define LEAF_SHIFT KEY_LEAF_SHIFT
#define LEAF KEY_LEAF
#define LEAVES ((1u << 24) >> LEAF_SHIFT)

#define WAIT_SPIN 50000ull
#define WAIT_SAY 1000000000ull

uint64_t key_wait_limit = 10000000000ull;

static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;
struct key_slot *_Atomic key_leaves[LEAVES];

void key_in_child(void)
{
	pthread_mutex_init(&grow_lock, NULL);
	for (size_t i = 0; i < LEAVES; i++)
		if (atomic_load_explicit(&key_leaves[i], memory_order_relaxed))
			atomic_store_explicit(&key_leaves[i], NULL, memory_order_relaxed);
}

bool key_is_used(uint32_t key)
{
	const struct key_slot *slot = key_slot_get(key);

	return slot && atomic_load(&slot->object);
}

struct key_slot *key_slot_make(uint32_t key)
{
	struct key_slot *_Atomic *at = &key_leaves[key >> (8 + LEAF_SHIFT)];

	pthread_mutex_lock(&grow_lock);
	if (!atomic_load(at))
		atomic_store(at, (struct key_slot *)calloc(LEAF, sizeof(struct key_slot)));
	pthread_mutex_unlock(&grow_lock);
	return key_slot_get(key);
}

int key_wait(struct key_slot *slot, uint32_t key)
{
	uint64_t start = 0;
	bool said = false;

	while (key_slot_used(slot) || (key && !pair_hazards_clear(key, 0))) {
		uint64_t now = rt_now();

		if (!start)
			start = now;
		if (now - start > key_wait_limit)
			return -EBUSY;
		if (!said && now - start > WAIT_SAY) {
			control_debug("key 0x%x is still in use after 1 s: is the peer stopped?", key);
			said = true;
		}
		rt_progress(); /* the user may be a state machine that waits for its turn */
		if (now - start > WAIT_SPIN) {
			struct timespec pause = { .tv_nsec = 50000 };

			syscall(SYS_nanosleep, &pause, NULL); /* nanosleep() is a cancellation point */
		}
	}
	return 0;
}

int mr_open(struct soft_mr *mr)
{
	struct key_slot *slot = key_slot_make(mr->key);
	uintptr_t none = 0;

	if (!slot)
		return -ENOMEM;
	atomic_store(&mr->windows, 0);
	/* Keys of shared regions come from the daemon: one that is in use here would be its mistake. */
	if (!atomic_compare_exchange_strong(&slot->object, &none, (uintptr_t)mr))
		return -EEXIST;
	page_key_open(mr);
	return 0;
}

int mr_close(struct soft_mr *mr)
{
	struct key_slot *slot = key_slot_get(mr->key);
	int r;

	if (!slot || atomic_load(&slot->object) != (uintptr_t)mr)
		return 0;
	if (atomic_load(&mr->windows))
		return -EBUSY;
	atomic_store(&slot->object, 0);
	page_key_close(mr->key);
	r = key_wait(slot, mr->key);
	/* A bind may have been inside while the slot was closed. */
	if (r == 0 && atomic_load(&mr->windows))
		r = -EBUSY;
	if (r < 0) {
		atomic_store(&slot->object, (uintptr_t)mr);
		page_key_open(mr);
	}
	return r;
}

struct soft_mr *mr_find(bool (*match)(const struct soft_mr *mr, const void *arg), const void *arg)
{
	struct soft_mr *found = NULL;

	for (size_t i = 0; i < (size_t)LEAVES * LEAF && !found; i++) {
		struct key_slot *leaf = atomic_load_explicit(&key_leaves[i / LEAF], memory_order_acquire);

		if (!leaf) {
			i |= LEAF - 1;
			continue;
		}

		struct key_slot *slot = &leaf[i % LEAF];
		uintptr_t object;

		atomic_fetch_add(&slot->users, 1);
		object = atomic_load(&slot->object);
		if (object && !(object & 1) && match((struct soft_mr *)object, arg)) {
			found = (struct soft_mr *)object;
			atomic_fetch_add(&found->refs, 1);
		}
		key_slot_leave(slot);
	}
	return found;
}

static int mr_check(const struct soft_mr *mr, uint32_t key, const struct soft_pd *pd, uint64_t addr, uint64_t length,
		    unsigned access, bool remote, void **ptr)
{
	if (mr->key != key || !soft_pd_same(mr->pd, pd))
		return -EINVAL;
	if (mr->null) {
		*ptr = NULL;
		return remote ? -EINVAL : 0;
	}
	if ((mr->access & access) != access)
		return -EACCES;
	if (!mr_within(addr, length, mr->iova, mr->mr.length))
		return -ERANGE;
	*ptr = (void *)((uintptr_t)mr->mem + (addr - mr->iova)); /* of an implicit region mem is NULL */
	return 0;
}

static void hold(struct mr_ref *ref, unsigned i, struct key_slot *slot)
{
	ref->slots[i] = slot;
	ref->named[i] = ref->td && td_key_enter(ref->td, slot);
	if (!ref->named[i])
		atomic_fetch_add(&slot->users, 1);
}

int mr_ref_in(struct soft_td *td, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	      uint64_t length, unsigned access, bool remote, struct mr_ref *ref, void **ptr)
{
	ref->mr = NULL;
	ref->mw = NULL;
	ref->td = td;
	ref->slots[0] = ref->slots[1] = NULL;
	*ptr = NULL;
	if (length == 0)
		return 0;

	struct key_slot *slot = key_slot_get(key);
	int r = -EINVAL;

	if (!slot)
		return r;
	hold(ref, 0, slot);

	uintptr_t object = atomic_load(&slot->object);

	if (object & 1) {
		struct soft_mw *mw = (void *)(object - 1);

		if (remote && qp)
			r = mw_check(mw, key, pd, qp, addr, length, access, ptr);
		if (r == 0) {
			ref->mw = mw;
			ref->mr = mw->mr;
			hold(ref, 1, key_slot_get(mw->mr->key));
		}
	} else if (object) {
		ref->mr = (void *)object;
		r = mr_check(ref->mr, key, pd, addr, length, access, remote, ptr);
	}
	if (r < 0)
		mr_unref(ref);
	return r;
}

int mr_ref(uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr, uint64_t length,
	   unsigned access, bool remote, struct mr_ref *ref, void **ptr)
{
	return mr_ref_in(NULL, key, pd, qp, addr, length, access, remote, ref, ptr);
}

void mr_unref(struct mr_ref *ref)
{
	for (unsigned i = 2; i-- > 0;) {
		if (!ref->slots[i])
			continue;
		if (ref->named[i])
			td_key_leave(ref->td, ref->slots[i]);
		else
			key_slot_leave(ref->slots[i]);
		ref->slots[i] = NULL;
	}
	ref->mr = NULL;
	ref->mw = NULL;
}
