/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains. The program uses the objects of one from one thread at a time, so its calls, the domain's *owner*, take
 * no lock: they enter with a store and a load. Everybody else has a domain only as the holder of the progress lock, who
 * *parks* it: closes its gate, makes every thread of the process execute a barrier (membarrier), and looks whether the
 * owner is inside; then it comes back later. A parked domain belongs to whoever holds the progress lock, until its owner
 * comes and takes it back, under that lock. Who *has* a domain below is its owner inside, or the holder of the progress
 * lock while it is parked. (tests/models/td.pml)
 */
#ifndef SOFT_TD_H
#define SOFT_TD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/soft/barrier.h"
#include "client/soft/hot.h"
#include "client/soft/in_piece.h"
#include "client/soft/lock.h"
#include "proto/ring_abi.h"

#define TD_KEYS 4u /* keys that a turn holds at a time; a longer list of pieces counts itself in */

struct soft_qp;
struct pair;

/* Ready bits of wires that are not hot, 64 at a time. */
struct td_word {
	const struct pair *pair; /* NULL: free */
	unsigned index;		 /* of the word in the pair's */
	unsigned wires;		 /* that have their bit in it */
	_Atomic uint64_t cold;
	uint64_t then; /* set at the last tick */
	int hazard;    /* slot of the pair's that the domain keeps, -1: none */
};

struct soft_td {
	struct ibv_td td;
	uint32_t handle;
	_Atomic unsigned users; /* parent domains on it */

	/* under the progress lock and the list's lock */
	struct soft_td *next;
	/* changed by who has parked it, with the progress lock: who holds that may look */
	struct td_word *words;
	unsigned n_words;
	struct soft_qp *qps;
	/* the holder's of the progress lock */
	uint64_t looked_seq, looked_at, tick_seq;
	uint64_t flushed[VSD_COUNT_N];
	bool parking, ready; /* ready: a bit of it was seen, and nobody has served it since */

	/* what others write, and the owner looks at */
	_Alignas(VSD_LINE) _Atomic uint32_t gate; /* 1: parked */
	_Atomic(struct soft_qp *) mail;		  /* QPs that others want to run */

	/* the owner's: of who has the domain. The holder of the progress lock may look at what is atomic. */
	_Alignas(VSD_LINE) _Atomic uint64_t seq; /* odd: the owner is inside */
	_Atomic uint64_t polls;
	_Atomic(struct soft_qp *) run;		 /* QPs that go on with the next round */
	struct soft_qp *run_last;
	_Atomic(struct wire *) watched; /* descriptors that may stay untaken */
	_Atomic uint64_t due;		/* no QP has a deadline before; 0: none has one */
	unsigned rounds, idle_rounds, next_word, n_cold;
	struct hot_set hot;
	_Atomic(const void *) keys[TD_KEYS]; /* slots of the key table that are in use */
	_Atomic uint64_t counts[VSD_COUNT_N];
};

/* Decides how; before any domain is used. */
void td_init(void);
struct soft_td *td_new(void);
void td_free(struct soft_td *td);

/* --- the owner -------------------------------------------------------------------------------------------------------- */

void td_take_back(struct soft_td *td);
/* Work is left, and this thread may not come back: the progress thread is woken if all sleep. */
void td_left_behind(void);

static inline void td_enter(struct soft_td *td)
{
	uint64_t seq = atomic_load_explicit(&td->seq, memory_order_relaxed);

	atomic_store_explicit(&td->seq, seq + 1, TD_ORDER);
	td_barrier_light();
	if (__builtin_expect(atomic_load_explicit(&td->gate, memory_order_acquire), 0))
		td_take_back(td);
}

static inline void td_leave(struct soft_td *td)
{
	bool left = atomic_load_explicit(&td->run, memory_order_relaxed);

	atomic_store_explicit(&td->seq, atomic_load_explicit(&td->seq, memory_order_relaxed) + 1,
			      memory_order_release);
	if (__builtin_expect(left, 0))
		td_left_behind();
}

static inline void td_count(struct soft_td *td, enum vsd_counter counter, uint64_t n)
{
	_Atomic uint64_t *count = &td->counts[counter];

	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* --- entry points of the data path ------------------------------------------------------------------------------------ */

/* The outermost lock of a call of the program's on one object: its domain, which is returned, or its mutex (NULL). */
IN_PIECE struct soft_td *soft_enter(struct soft_lock *lock)
{
	struct soft_td *td = soft_lock_td(lock);

	if (td) {
		td_enter(td);
		if (__builtin_expect(soft_lock_td(lock) == td, 1))
			return td;
		td_leave(td); /* it has just lost its elision */
	}
	soft_mutex_lock(&lock->mutex);
	return NULL;
}

IN_PIECE void soft_leave(struct soft_lock *lock, struct soft_td *td)
{
	if (td)
		td_leave(td);
	else
		soft_mutex_unlock(&lock->mutex);
}

/* The same for calls that any thread may make, and that may wait: the domain is parked. */
enum soft_held { HELD_MUTEX, HELD_TD, HELD_TD_INSIDE };
enum soft_held soft_hold(struct soft_lock *lock);
void soft_release(struct soft_lock *lock, enum soft_held held);

/* --- the holder of the progress lock ------------------------------------------------------------------------------------ */

/* Has the domain on return, and keeps it as long as the lock. False: its owner is inside. */
bool td_park(struct soft_td *td);
/* Waits for the owner, who never waits for the progress lock inside. */
void td_park_wait(struct soft_td *td);
/* The same for several at once: marks one, then takes all that were marked. True when it has the one. */
void td_park_begin(struct soft_td *td);
void td_park_all(void);
/* Brings the process's counters up to the domain's. */
void td_flush_counts(struct soft_td *td);

/* --- keys --------------------------------------------------------------------------------------------------------------- */

/* Names a slot of the key table as in use, for who has the domain. False: no place. */
static inline bool td_key_enter(struct soft_td *td, const void *slot)
{
	for (unsigned i = 0; i < TD_KEYS; i++)
		if (!atomic_load_explicit(&td->keys[i], memory_order_relaxed)) {
			atomic_store_explicit(&td->keys[i], slot, TD_ORDER);
			td_barrier_light();
			return true;
		}
	return false;
}

static inline void td_key_leave(struct soft_td *td, const void *slot)
{
	for (unsigned i = 0; i < TD_KEYS; i++)
		if (atomic_load_explicit(&td->keys[i], memory_order_relaxed) == slot) {
			atomic_store_explicit(&td->keys[i], NULL, memory_order_release);
			return;
		}
}

/* Whether any domain names the slot; its object was taken out before. */
bool td_key_named(const void *slot);

#endif
