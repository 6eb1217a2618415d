/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Barriers of which one side is cheap: what happens all the time orders its store and its load for the compiler alone; who
 * meets it seldom makes every thread of the process execute a full barrier (membarrier).
 *
 * Where membarrier is forbidden both sides have a full barrier of their own. ThreadSanitizer knows no barriers: for it
 * the store and the load are sequentially consistent, which is the same protocol with what it does know.
 */
#ifndef SOFT_BARRIER_H
#define SOFT_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>

#if defined(__SANITIZE_THREAD__)
#define TD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TD_TSAN 1
#endif
#endif

#ifdef TD_TSAN
#define TD_ORDER memory_order_seq_cst
#define TD_ORDER_RELEASE memory_order_seq_cst
#else
#define TD_ORDER memory_order_relaxed
#define TD_ORDER_RELEASE memory_order_release
#endif

extern bool td_fences; /* no membarrier */
extern _Atomic bool td_barriers_slow; /* it was forbidden since: a heavy barrier takes a tick, nobody makes new needs for one */

/* The cheap half: between its store and its load. */
static inline void td_barrier_light(void)
{
#ifndef TD_TSAN
	if (__builtin_expect(td_fences, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* The other one: every thread of the process that is not in here executes a full barrier. */
void td_barrier_heavy(void);

#endif
