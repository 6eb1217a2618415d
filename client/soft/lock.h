/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of the data path. An object under a thread domain says so (`single`): its program uses it from one thread at a
 * time. But whoever makes progress serves it too, so the lock stays until that is kept out otherwise.
 *
 * Order, outermost first: sq lock, rq lock (of the same or another QP), srq lock, cq lock, channel lock. Never two locks
 * of one kind, but sq → rq as written. No control call under any of them.
 */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct soft_lock {
	pthread_mutex_t mutex;
	bool single;
};

static inline void soft_lock_init(struct soft_lock *lock, bool single)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	pthread_mutex_init(&lock->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	lock->single = single;
}

static inline void soft_lock_deinit(struct soft_lock *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

static inline void soft_lock(struct soft_lock *lock)
{
	pthread_mutex_lock(&lock->mutex);
}

static inline bool soft_trylock(struct soft_lock *lock)
{
	return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void soft_unlock(struct soft_lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

#endif
