/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for a mutex of the data path.
 */
#include "client/soft/mutex.h"

#include "client/soft/rt.h"

#ifndef VERBSD_POSIX_MUTEXES
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#define SPINS 100u   /* a few µs: most that are taken are free again by then */
#define ENDING 1ul   /* in bias */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Not a cancellation point, and errno stays the program's. */
static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	int saved = errno;

	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
	errno = saved;
}

/* `taken`, or `inside` of the owner's: who saw it set may sleep by it. */
static void let_go(struct soft_mutex *mutex, _Atomic uint32_t *word)
{
	atomic_store_explicit(word, 0, TD_ORDER_RELEASE);
	td_barrier_light();
	if (atomic_load_explicit(&mutex->waiters, TD_ORDER))
		soft_mutex_wake(mutex);
}

/*
 * It is no longer its owner's own. True: `taken` counts now. False: another thread is at it.
 *
 * The owner may have seen that it was its own and not yet be seen inside: not behind the barrier.
 */
static bool end_bias(struct soft_mutex *mutex, void *bias)
{
	void *ending = (void *)((uintptr_t)bias | ENDING);

	if ((uintptr_t)bias & ENDING || !atomic_compare_exchange_strong(&mutex->bias, &bias, ending))
		return false;
	td_barrier_heavy();
	atomic_store(&mutex->bias, NULL);
	return true;
}

/* With a full barrier in each take it would cost more than it saves. ThreadSanitizer is to see it all the same. */
static bool own_pays(void)
{
#ifdef TD_TSAN
	return true;
#else
	return !td_fences && !atomic_load_explicit(&td_barriers_slow, memory_order_relaxed);
#endif
}

/*
 * Counts what the thread that has it took in a row. True: it may be its own. Not the progress thread's, who may be the only
 * one for as long as the program only looks at its memory.
 */
static bool is_streak(struct soft_mutex *mutex, void *self)
{
	void *owner = atomic_load_explicit(&mutex->owner, memory_order_relaxed);

	if (!own_pays() || (owner && owner != self) || rt_in_progress_thread())
		return false;
	if (mutex->last != self) {
		mutex->last = self;
		mutex->streak = 0;
	}
	return ++mutex->streak >= SOFT_MUTEX_STREAK;
}

bool soft_mutex_try_shared(struct soft_mutex *mutex)
{
	void *self = __builtin_thread_pointer(), *bias = atomic_load(&mutex->bias);
	uint32_t none = 0;

	if (bias == self || (bias && !end_bias(mutex, bias)))
		return false;
	/* Who took it only to find the owner inside would let it go, and so wake others to do the same. */
	if (atomic_load(&mutex->inside))
		return false;
	if (!atomic_compare_exchange_strong_explicit(&mutex->taken, &none, 1, memory_order_acquire, memory_order_relaxed))
		return false;
	/* Who made it its own had it taken: that is seen here. And the owner may be inside since before. */
	if (atomic_load(&mutex->bias) || atomic_load(&mutex->inside)) {
		let_go(mutex, &mutex->taken);
		return false;
	}
	if (is_streak(mutex, self)) {
		mutex->streak = 0;
		atomic_store_explicit(&mutex->owner, self, memory_order_relaxed);
		atomic_store(&mutex->inside, 1);
		atomic_store(&mutex->bias, self);
		let_go(mutex, &mutex->taken);
	}
	return true;
}

bool soft_mutex_try_ended(struct soft_mutex *mutex)
{
	let_go(mutex, &mutex->inside);
	return soft_mutex_try_shared(mutex);
}

/* What it waits for. */
static void wait_free(struct soft_mutex *mutex)
{
	if (atomic_load(&mutex->inside))
		futex(&mutex->inside, FUTEX_WAIT_PRIVATE, 1);
	else if (atomic_load(&mutex->bias))
		sched_yield(); /* another thread ends that */
	else
		futex(&mutex->taken, FUTEX_WAIT_PRIVATE, 1);
}

void soft_mutex_wait(struct soft_mutex *mutex)
{
	for (unsigned i = 0; i < SPINS; i++) {
		pause_cpu();
		if (!(atomic_load_explicit(&mutex->taken, memory_order_relaxed) |
		      atomic_load_explicit(&mutex->inside, memory_order_relaxed)) &&
		    soft_mutex_trylock(mutex))
			return;
	}
	atomic_fetch_add(&mutex->waiters, 1);
	td_barrier_heavy();
	while (!soft_mutex_trylock(mutex))
		wait_free(mutex);
	atomic_fetch_sub(&mutex->waiters, 1);
}

void soft_mutex_wake(struct soft_mutex *mutex)
{
	/* Free is seen before it is woken: a locked instruction is the barrier. */
	atomic_fetch_add(&mutex->waiters, 0);
	futex(&mutex->taken, FUTEX_WAKE_PRIVATE, 1);
	futex(&mutex->inside, FUTEX_WAKE_PRIVATE, 1);
}
#endif
