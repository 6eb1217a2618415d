/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for a mutex of the data path.
 */
#include "client/soft/mutex.h"

#ifndef VERBSD_POSIX_MUTEXES
#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#define SPINS 100u /* a few µs: most that are taken are free again by then */

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

void soft_mutex_wait(struct soft_mutex *mutex)
{
	for (unsigned i = 0; i < SPINS; i++) {
		pause_cpu();
		if (!atomic_load_explicit(&mutex->taken, memory_order_relaxed) && soft_mutex_trylock(mutex))
			return;
	}
	atomic_fetch_add(&mutex->waiters, 1);
	td_barrier_heavy();
	while (!soft_mutex_trylock(mutex))
		futex(&mutex->taken, FUTEX_WAIT_PRIVATE, 1);
	atomic_fetch_sub(&mutex->waiters, 1);
}

void soft_mutex_wake(struct soft_mutex *mutex)
{
	/* Free is seen before it is woken: a locked instruction is the barrier. */
	atomic_fetch_add(&mutex->waiters, 0);
	futex(&mutex->taken, FUTEX_WAKE_PRIVATE, 1);
}
#endif
