/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mutex of the data path: taken by one locked instruction, let go by a plain store. Who waits counts itself in,
 * makes every thread execute a barrier, and looks again before it sleeps: either it finds the mutex free, or who lets it
 * go finds the count.
 *
 * Letting go touches the mutex after it is free: its memory is to stay until every thread that used it has left the call
 * in which it did. All zero is free.
 *
 * --enable-posix-mutexes puts the C library's in its place, for whoever knows only those: tests that count them, helgrind.
 */
#ifndef SOFT_MUTEX_H
#define SOFT_MUTEX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef VERBSD_POSIX_MUTEXES
#include <pthread.h>

struct soft_mutex {
	pthread_mutex_t posix;
};

static inline void soft_mutex_init(struct soft_mutex *mutex)
{
	pthread_mutex_init(&mutex->posix, NULL);
}

static inline bool soft_mutex_trylock(struct soft_mutex *mutex)
{
	return pthread_mutex_trylock(&mutex->posix) == 0;
}

static inline void soft_mutex_lock(struct soft_mutex *mutex)
{
	pthread_mutex_lock(&mutex->posix);
}

static inline void soft_mutex_unlock(struct soft_mutex *mutex)
{
	pthread_mutex_unlock(&mutex->posix);
}
#else
#include "client/soft/barrier.h"

struct soft_mutex {
	_Atomic uint32_t taken, waiters;
};

static inline void soft_mutex_init(struct soft_mutex *mutex)
{
	atomic_init(&mutex->taken, 0);
	atomic_init(&mutex->waiters, 0);
}

/* Out of line: it is taken; somebody waits. */
void soft_mutex_wait(struct soft_mutex *mutex);
void soft_mutex_wake(struct soft_mutex *mutex);

static inline bool soft_mutex_trylock(struct soft_mutex *mutex)
{
	uint32_t none = 0;

	return atomic_compare_exchange_strong_explicit(&mutex->taken, &none, 1, memory_order_acquire,
		memory_order_relaxed);
}

static inline void soft_mutex_lock(struct soft_mutex *mutex)
{
	if (__builtin_expect(!soft_mutex_trylock(mutex), 0))
		soft_mutex_wait(mutex);
}

static inline void soft_mutex_unlock(struct soft_mutex *mutex)
{
	atomic_store_explicit(&mutex->taken, 0, TD_ORDER_RELEASE);
	td_barrier_light();
	if (__builtin_expect(atomic_load_explicit(&mutex->waiters, TD_ORDER), 0))
		soft_mutex_wake(mutex);
}
#endif

#endif
