/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key table, shared by regions and windows.
 */
#ifndef SOFT_MR_PRIVATE_H
#define SOFT_MR_PRIVATE_H

#include <stdatomic.h>

#include "client/soft/in_piece.h"
#include "client/soft/mr.h"
#include "client/soft/shard.h"
#include "client/soft/td.h"
#include "client/soft/wire.h"

/* A key index. It is never freed, so a thread may count itself in before it knows whether the object is still there. */
struct key_slot {
	_Atomic uintptr_t object; /* struct soft_mr, or struct soft_mw | 1; 0: closed */
	_Atomic uint32_t users;
	_Atomic bool named; /* threads name it; once set, for good: one that has seen it set may go on late */
};

/* Slots are made so many at a time. */
#define KEY_LEAF_SHIFT 10
#define KEY_LEAF (1u << KEY_LEAF_SHIFT)

extern struct key_slot *_Atomic key_leaves[1u << (24 - KEY_LEAF_SHIFT)];

/* The slot of a key; NULL: no key of that range was ever open. */
static inline struct key_slot *key_slot_get(uint32_t key)
{
	struct key_slot *leaf = atomic_load_explicit(&key_leaves[key >> (8 + KEY_LEAF_SHIFT)], memory_order_acquire);

	return leaf ? &leaf[(key >> 8) % KEY_LEAF] : NULL;
}

/* Makes it. NULL: no memory. */
struct key_slot *key_slot_make(uint32_t key);

/* Somebody is in it; after its object was taken out with a full barrier. */
static inline bool key_slot_used(const struct key_slot *slot)
{
	return atomic_load(&slot->users) || pair_local_named(slot) || td_key_named(slot) ||
	       (atomic_load(&slot->named) && shard_named(slot));
}

static inline void key_slot_leave(struct key_slot *slot)
{
	atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

/* The bytes [addr, addr+length) are within [start, start+size). */
static inline bool mr_within(uint64_t addr, uint64_t length, uint64_t start, uint64_t size)
{
	return addr >= start && addr - start <= size && length <= size - (addr - start);
}

/*
 * The region in @slot, if it has @key and allows @access, for who holds the slot: by a hazard that names it, or by mr_hold().
 * NULL: no region that simply is there, or none for this. What is found stays true as long as the slot is held.
 */
static inline const struct soft_mr *mr_named(const struct key_slot *slot, const struct soft_pd *pd, uint32_t key, unsigned access)
{
	uintptr_t object = atomic_load(&slot->object);
	const struct soft_mr *mr = (const void *)object;

	if (!object || object & 1 || mr->null || (mr->access & (access | IBV_ACCESS_ON_DEMAND)) != access || mr->key != key ||
	    !soft_pd_same(mr->pd, pd))
		return NULL;
	return mr;
}

/* The @length bytes at @addr of the region; NULL: not all of them are in it. */
static inline void *mr_named_at(const struct soft_mr *mr, uint64_t addr, uint64_t length)
{
	return mr_within(addr, length, mr->iova, mr->mr.length) ? mr->mem + (addr - mr->iova) : NULL;
}

/* A slot that is held for the time of a copy: named by the domain or the thread, else counted. */
struct mr_hold {
	struct key_slot *slot;
	struct soft_td *td;
	_Atomic(const void *) *name;
};

/* A key's first use says so: who deregisters one that was never used need not ask all threads. */
static inline _Atomic(const void *) *key_slot_name(struct key_slot *slot)
{
	if (__builtin_expect(!atomic_load_explicit(&slot->named, memory_order_acquire), 0))
		atomic_store(&slot->named, true);
	return shard_name(slot);
}

IN_PIECE void mr_let_go(struct mr_hold *hold)
{
	if (hold->td)
		td_key_leave(hold->td, hold->slot);
	else if (hold->name)
		shard_unname(hold->name);
	else
		key_slot_leave(hold->slot);
}

/* mr_ref_in() for the common case: one local piece, of a region as mr_named() wants it. NULL: ask mr_ref_in(). */
IN_PIECE void *mr_hold(struct soft_td *td, const struct soft_pd *pd, uint32_t key, uint64_t addr, uint64_t length,
			    unsigned access, struct mr_hold *hold)
{
	const struct soft_mr *mr;
	void *ptr;

	hold->slot = key_slot_get(key);
	if (!hold->slot)
		return NULL;
	hold->td = td && td_key_enter(td, hold->slot) ? td : NULL;
	hold->name = hold->td ? NULL : key_slot_name(hold->slot);
	if (!hold->td && !hold->name)
		atomic_fetch_add(&hold->slot->users, 1);
	mr = mr_named(hold->slot, pd, key, access);
	ptr = mr ? mr_named_at(mr, addr, length) : NULL;
	if (!ptr)
		mr_let_go(hold);
	return ptr;
}

/* Waits until nobody of ours is in the slot and no peer's hazard names @key (0: do not ask). -EBUSY after 10 s, which
 * tests shorten. */
extern uint64_t key_wait_limit;
int key_wait(struct key_slot *slot, uint32_t key);

/* The checks of a window, whose slot the caller holds. What it is bound to does not change meanwhile. */
int mw_check(struct soft_mw *mw, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	     uint64_t length, unsigned access, void **ptr);

#endif
