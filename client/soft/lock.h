/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of the data path. That of an object under a thread domain names the domain: who has the domain has the object,
 * and these calls do nothing. It is entered once, by the outermost call (soft_enter, soft_hold in td.h).
 *
 * Order, outermost first: progress lock, thread domain, sq lock, rq lock (of the same or another QP), srq lock, cq lock,
 * channel lock. Never two locks of one kind, but sq → rq as written, and by trylock (order.c). No control call under any of them.
 */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/soft/mutex.h"

struct soft_td;

struct soft_lock {
	struct soft_mutex mutex;
	_Atomic(struct soft_td *) td; /* changes only to NULL, by who has parked the domain */
	bool shared;		      /* td_share.c's */
};

/* @td: NULL for an object that is safe for many threads. */
static inline void soft_lock_init(struct soft_lock *lock, struct soft_td *td)
{
	soft_mutex_init(&lock->mutex);
	atomic_init(&lock->td, td);
	lock->shared = false;
}

static inline struct soft_td *soft_lock_td(const struct soft_lock *lock)
{
	return atomic_load_explicit(&lock->td, memory_order_acquire);
}

static inline void soft_lock(struct soft_lock *lock)
{
	if (!soft_lock_td(lock))
		soft_mutex_lock(&lock->mutex);
}

static inline bool soft_trylock(struct soft_lock *lock)
{
	return soft_lock_td(lock) || soft_mutex_trylock(&lock->mutex);
}

static inline void soft_unlock(struct soft_lock *lock)
{
	if (!soft_lock_td(lock))
		soft_mutex_unlock(&lock->mutex);
}

#endif
