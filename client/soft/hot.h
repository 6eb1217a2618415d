/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hot sets: the wires that were used last, polled without their ready bit. A wire in one keeps its bit set, so its
 * sender does not touch the bit. There is one set for the process, under the progress lock, and one for each thread
 * domain, which is its owner's.
 *
 * A wire does not change its place while it is in a set, and what retires it looks at it once more: so who only looks
 * at the places, without having the set, misses nothing that was there before that look began (tests/models/td.pml).
 */
#ifndef SOFT_HOT_H
#define SOFT_HOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HOT_MAX	    16u
#define HOT_AWAITED 64u

struct wire;
struct pair;

struct hot_set {
	_Atomic(struct wire *) places[HOT_MAX];
	unsigned n;   /* wires in it */
	unsigned top; /* no place from here on is taken */
	_Atomic unsigned crowd; /* n, and HOT_AWAITED for each wire that is in no set and awaited (order.h) */
};

/* Puts a wire in, which may cost another one its place. Not there already. */
void hot_add(struct hot_set *set, struct wire *wire);
/* Takes it out, if it is in, without a look at it: it goes. */
void hot_remove(struct hot_set *set, const struct wire *wire);
/* Serves those that have something; retires those that had nothing for long. True when something was done. */
bool hot_serve(struct hot_set *set);
/* The same, and none retires. */
bool hot_quick(struct hot_set *set);

static inline struct wire *hot_at(const struct hot_set *set, unsigned place)
{
	return atomic_load_explicit(&set->places[place], memory_order_acquire);
}

/* 64 ready bits; the wire's own, as its receiver has it. */
uint64_t ready_bits(const struct pair *pair, unsigned index);
void ready_set(struct wire *wire);
void ready_clear(struct wire *wire);

#endif
