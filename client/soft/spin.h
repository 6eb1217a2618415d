/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether spinning before sleep pays: what it did lately says so. Threads that change it at the same time make it a little wrong,
 * and nothing else.
 */
#ifndef SOFT_SPIN_H
#define SOFT_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>

#define SPIN_CREDIT 4u /* vain spins in a row that end it */
#define SPIN_TRY 64u   /* one sleep of so many begins with a spin all the same */

struct spin {
	_Atomic unsigned credit, tries;
	bool never; /* there is one processor: whoever spins keeps all others from it */
};

static inline void spin_init(struct spin *spin, bool many)
{
	atomic_store_explicit(&spin->credit, many ? SPIN_CREDIT : 0, memory_order_relaxed);
	atomic_store_explicit(&spin->tries, 0, memory_order_relaxed);
	spin->never = !many;
}

static inline bool spin_begin(struct spin *spin)
{
	if (spin->never)
		return false;
	return atomic_load_explicit(&spin->credit, memory_order_relaxed) ||
	       (atomic_fetch_add_explicit(&spin->tries, 1, memory_order_relaxed) + 1) % SPIN_TRY == 0;
}

/* It spun, and something came or not. */
static inline void spin_end(struct spin *spin, bool came)
{
	unsigned credit = atomic_load_explicit(&spin->credit, memory_order_relaxed);

	if (came)
		credit = SPIN_CREDIT;
	else if (credit)
		credit--;
	atomic_store_explicit(&spin->credit, credit, memory_order_relaxed);
}

#endif
