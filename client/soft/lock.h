/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of the data path. An object under a thread domain has `off` set and takes none; the branch costs 0.4 ns where
 * the lock costs 20 (limits.md 8). Order, outermost first: sq lock, rq lock (of the same or another QP), srq lock,
 * cq lock, channel lock. Never two locks of one kind, but sq → rq as written. No control call under any of them.
 */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct soft_lock {
	pthread_mutex_t mutex;
	bool off;
};

static inline void soft_lock_init(struct soft_lock *lock, bool off)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	pthread_mutex_init(&lock->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	lock->off = off;
}

static inline void soft_lock_deinit(struct soft_lock *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

static inline void soft_lock(struct soft_lock *lock)
{
	if (!lock->off)
		pthread_mutex_lock(&lock->mutex);
}

static inline bool soft_trylock(struct soft_lock *lock)
{
	return lock->off || pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void soft_unlock(struct soft_lock *lock)
{
	if (!lock->off)
		pthread_mutex_unlock(&lock->mutex);
}

#endif
