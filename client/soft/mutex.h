/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mutex of the data path: taken by one locked instruction, let go by a plain store. Who waits counts itself in,
 * makes every thread execute a barrier, and looks again before it sleeps: either it finds the mutex free, or who lets it
 * go finds the count.
 *
 * One that the same thread takes again and again becomes that thread's own: then it takes it by a plain store, too. Another
 * thread that wants it ends that first: it says so, makes every thread execute a barrier, and from then on `taken` counts, for
 * the first thread as well; who takes it by that looks whether the first thread is still inside. The owner of a mutex is chosen
 * once, so that only that thread ever writes `inside`; whether it has it for its own changes.
 *
 * Letting go touches the mutex after it is free: its memory is to stay until every thread that used it has left the call
 * in which it did. All zero is free.
 *
 * --enable-posix-mutexes puts the C library's in its place, for whoever knows only those: tests that count them, helgrind.
 */
#ifndef SOFT_MUTEX_H
#define SOFT_MUTEX_H

#include <stdbool.h>
#include <stddef.h>
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

/* Takes in a row that make a mutex a thread's own: to end that costs as much as some hundred of them. */
#define SOFT_MUTEX_STREAK 1024u

struct soft_mutex {
	_Atomic uint32_t taken, waiters;
	_Atomic(void *) bias; /* owner, while it is its own; with bit 0: that is being ended; else NULL */
	_Atomic(void *) owner;
	_Atomic uint32_t inside; /* written by the owner: it has it, or tries, by a store */
	uint32_t streak;	 /* takes in a row by the owner, or by @last while there is none (taken) */
	void *last;
};

static inline void soft_mutex_init(struct soft_mutex *mutex)
{
	atomic_init(&mutex->taken, 0);
	atomic_init(&mutex->waiters, 0);
	atomic_init(&mutex->bias, NULL);
	atomic_init(&mutex->owner, NULL);
	atomic_init(&mutex->inside, 0);
	mutex->streak = 0;
	mutex->last = NULL;
}

/* Out of line: it is not this thread's own; it was until just now; it is taken; somebody waits. */
bool soft_mutex_try_shared(struct soft_mutex *mutex);
bool soft_mutex_try_ended(struct soft_mutex *mutex);
void soft_mutex_wait(struct soft_mutex *mutex);
void soft_mutex_wake(struct soft_mutex *mutex);

static inline bool soft_mutex_trylock(struct soft_mutex *mutex)
{
	void *self = __builtin_thread_pointer();

	if (__builtin_expect(atomic_load_explicit(&mutex->bias, memory_order_relaxed) != self, 0))
		return soft_mutex_try_shared(mutex);
	if (atomic_load_explicit(&mutex->inside, memory_order_relaxed))
		return false; /* a signal's handler, or who has it already */
	atomic_store_explicit(&mutex->inside, 1, TD_ORDER);
	td_barrier_light();
	if (__builtin_expect(atomic_load_explicit(&mutex->bias, TD_ORDER) == self, 1))
		return true;
	return soft_mutex_try_ended(mutex);
}

static inline void soft_mutex_lock(struct soft_mutex *mutex)
{
	if (__builtin_expect(!soft_mutex_trylock(mutex), 0))
		soft_mutex_wait(mutex);
}

static inline void soft_mutex_unlock(struct soft_mutex *mutex)
{
	/* Of who has it only the owner can find itself inside. */
	if (atomic_load_explicit(&mutex->inside, memory_order_relaxed) &&
	    atomic_load_explicit(&mutex->owner, memory_order_relaxed) == __builtin_thread_pointer())
		atomic_store_explicit(&mutex->inside, 0, TD_ORDER_RELEASE);
	else
		atomic_store_explicit(&mutex->taken, 0, TD_ORDER_RELEASE);
	td_barrier_light();
	if (__builtin_expect(atomic_load_explicit(&mutex->waiters, TD_ORDER), 0))
		soft_mutex_wake(mutex);
}
#endif

#endif
