/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting. The process's counters are in its page, once for all threads and some more times, each for one thread alone:
 * that one adds without a locked instruction. It takes such a shard when it first counts, and gives it back when it ends;
 * what is in there stays. Who reads adds them up. A thread that finds none free, or whose daemon does not know of them, counts
 * where all do.
 *
 * The same threads name what they use for a moment, each in a line of its own (mr_private.h).
 *
 * A thread is its thread pointer: no two that live have the same one, and who comes to have a dead one's goes on with its shard.
 */
#ifndef SOFT_SHARD_H
#define SOFT_SHARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/soft/barrier.h"
#include "client/soft/in_piece.h"
#include "proto/ring_abi.h"

#define SHARD_BITS 4
_Static_assert(VSD_PAGE_SHARDS == 1u << SHARD_BITS, "a hash is a shard's number");

#define SHARD_NAMES 4u

struct shard_line {
	_Alignas(VSD_LINE) _Atomic(const void *) names[SHARD_NAMES];
};

extern struct shard_line shard_lines[VSD_PAGE_SHARDS];
extern _Atomic(void *) shard_owners[VSD_PAGE_SHARDS]; /* NULL: free */

/* Before the process counts in a new page. @granted: the daemon adds them up. */
void shard_init(bool granted);
/* Nobody counts any more. */
void shard_deinit(void);
/* Of the calling thread, wherever it is; takes one if there is any. -1: none. */
int shard_find(void *self);

/* Where a thread looks first; then at its neighbour, in the same pair. */
static inline unsigned shard_home(const void *self)
{
	return (uint32_t)((uintptr_t)self >> 6) * 0x9e3779b1u >> (32 - SHARD_BITS);
}

/* The shard of the calling thread; -1: none. */
static inline int shard_mine(void)
{
	void *self = __builtin_thread_pointer();
	unsigned i = shard_home(self);

	if (__builtin_expect(atomic_load_explicit(&shard_owners[i], memory_order_relaxed) == self, 1))
		return (int)i;
	i ^= 1;
	return atomic_load_explicit(&shard_owners[i], memory_order_relaxed) == self ? (int)i : shard_find(self);
}

/*
 * Names @what as in use by this thread, before it looks whether it is still there. NULL: no room. A signal handler's names are
 * gone again when it returns.
 */
IN_PIECE _Atomic(const void *) *shard_name(const void *what)
{
	int shard = shard_mine();

	for (unsigned i = 0; shard >= 0 && i < SHARD_NAMES; i++) {
		_Atomic(const void *) *name = &shard_lines[shard].names[i];

		if (!atomic_load_explicit(name, memory_order_relaxed)) {
			atomic_store_explicit(name, what, TD_ORDER);
			td_barrier_light();
			return name;
		}
	}
	return NULL;
}

static inline void shard_unname(_Atomic(const void *) *name)
{
	atomic_store_explicit(name, NULL, memory_order_release);
}

/* Whether any thread names it; it was taken out before, with a full barrier. */
bool shard_named(const void *what);

/* One instruction where there is such, so that a signal handler that counts meanwhile loses nothing. */
static inline void shard_add(_Atomic uint64_t *count, uint64_t n)
{
#if defined(__x86_64__)
	__asm__("addq %1, %0" : "+m"(*(uint64_t *)(void *)count) : "er"(n) : "cc");
#else
	atomic_fetch_add_explicit(count, n, memory_order_relaxed);
#endif
}

static inline void shard_count(struct vsd_page *page, enum vsd_counter counter, uint64_t n)
{
	int i = shard_mine();

	if (__builtin_expect(i >= 0, 1))
		shard_add(&page->shards[i].counters[counter], n);
	else
		atomic_fetch_add_explicit(&page->counters[counter], n, memory_order_relaxed);
}

#endif
