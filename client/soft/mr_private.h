/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key table, shared by regions and windows.
 */
#ifndef SOFT_MR_PRIVATE_H
#define SOFT_MR_PRIVATE_H

#include <stdatomic.h>

#include "client/soft/mr.h"
#include "client/soft/td.h"
#include "client/soft/wire.h"

/* A key index. It is never freed, so a thread may count itself in before it knows whether the object is still there. */
struct key_slot {
	_Atomic uintptr_t object; /* struct soft_mr, or struct soft_mw | 1; 0: closed */
	_Atomic uint32_t users;
};

/* Slots are made so many at a time. */
#define KEY_LEAF_SHIFT 10
#define KEY_LEAF (1u << KEY_LEAF_SHIFT)

/* The slot of a key; NULL: no key of that range was ever open. */
struct key_slot *key_slot_get(uint32_t key);
/* Makes it. NULL: no memory. */
struct key_slot *key_slot_make(uint32_t key);

/* Somebody is in it; after its object was taken out with a full barrier. */
static inline bool key_slot_used(const struct key_slot *slot)
{
	return atomic_load(&slot->users) || pair_local_named(slot) || td_key_named(slot);
}

static inline void key_slot_leave(struct key_slot *slot)
{
	atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

/*
 * The bytes that @sge names of the region in @slot, with @access to them, inside a hazard that names the slot. NULL: of no
 * region that simply is there, or none for this.
 */
void *mr_named(const struct key_slot *slot, const struct soft_pd *pd, const struct ibv_sge *sge, unsigned access);

/* Waits until nobody of ours is in the slot and no peer's hazard names @key (0: do not ask). -EBUSY after 10 s, which
 * tests shorten. */
extern uint64_t key_wait_limit;
int key_wait(struct key_slot *slot, uint32_t key);

/* The checks of a window, whose slot the caller holds. What it is bound to does not change meanwhile. */
int mw_check(struct soft_mw *mw, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	     uint64_t length, unsigned access, void **ptr);

#endif
