/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path's mutex: taken by a locked instruction, let go by a plain store, with a barrier that only waiters pay
 * for. Thread 0 may have it for its own, and then takes it by a plain store; who else wants it ends that. One at a time,
 * what is stored inside is seen by the next, and nobody sleeps for ever. See README.md.
 */
#ifndef N
#define N	3		/* threads, each takes it TURNS times */
#endif
#ifndef TURNS
#define TURNS	2
#endif

#define TAKEN	0
#define WAITERS	1
#define DATA	2		/* what it guards: how often it was taken */
#define BIAS	3		/* NONE, OWN: thread 0's own, ENDING */
#define INSIDE	4		/* thread 0 has it, or tries, by a store */
#define NLOC	5
#define NONE	0
#define OWN	1
#define ENDING	2
#define NBUF	N
#define LANDED(p, x, y)	skip
#include "tso.h"

byte asleep[N];			/* in the futex of that word, plus 1 */
bool late;			/* ghost: two inside, or a store of the one before not seen */
byte inside, total;		/* ghost: threads in it; turns taken */

/* The whole buffer of a process reaches memory. */
inline drain(p)
{
	do
	:: sb[p].n > 0 ->
		mem[sb[p].a[0]] = sb[p].v[0];
		sb[p].a[0] = sb[p].a[1];
		sb[p].v[0] = sb[p].v[1];
		sb[p].n--
	:: else -> break
	od
}

/* membarrier(): every thread executes a full barrier. */
inline barrier_heavy(p)
{
#if defined(NO_MEMBARRIER) || defined(FENCED)
	FENCE(p)
#else
	d_step {
		i = 0;
		do
		:: i < N -> drain(i); i++
		:: else -> break
		od;
		i = 0
	}
#endif
}

/* A word, `taken` or that the owner is inside, let go. */
inline let_go(p, word)
{
	STORE(p, word, 0);
#ifdef FENCED			/* without membarrier */
	FENCE(p);
#endif
	LOAD(p, WAITERS, v);
	if
	:: v ->
#ifndef NO_WAKE_BARRIER
		FENCE(p);
#endif
		wake()
	:: else
	fi
}

inline end_bias(p)
{
	atomic {
		sb[p].n == 0;
		got = mem[BIAS] == OWN;
		if
		:: got -> mem[BIAS] = ENDING
		:: else
		fi
	}
	if
	:: got ->
#ifndef NO_END_BARRIER
		barrier_heavy(p);
#endif
		LOCKED(p, BIAS, NONE)
	:: else
	fi
}

inline take(p)
{
	LOAD(p, INSIDE, v);
#ifdef NO_INSIDE_LOOK
	v = 0;
#endif
	if
	:: v -> got = false
	:: else ->
		atomic {
			sb[p].n == 0;
			got = mem[TAKEN] == 0;
			if
			:: got -> mem[TAKEN] = 1
			:: else
			fi
		}
	fi;
	if
	:: got ->
		LOAD(p, BIAS, b);
#ifdef NO_BIAS_LOOK
		b = NONE;
#endif
		LOAD(p, INSIDE, v);
#ifdef NO_INSIDE_LOOK
		v = 0;
#endif
		if
		:: b != NONE || v -> got = false; let_go(p, TAKEN)
		:: else
		fi
	:: else
	fi
}

/* It becomes thread 0's own, or not. */
inline make_own(p)
{
	if
	:: LOCKED(p, INSIDE, 1);
		LOCKED(p, BIAS, OWN);
		let_go(p, TAKEN)
	:: skip
	fi
}

inline try_shared(p)
{
	LOAD(p, BIAS, b);
	if
	:: b == NONE -> take(p)
	:: b == OWN && p != 0 ->
		end_bias(p);
		if
		:: got -> take(p)
		:: else
		fi
	:: else -> got = false
	fi;
	if
	:: got && p == 0 -> make_own(p)
	:: else
	fi
}

inline trylock(p)
{
	if
	:: p == 0 ->
		LOAD(p, BIAS, b);
		if
		:: b == OWN ->
			STORE(p, INSIDE, 1);
#ifdef FENCED
			FENCE(p);
#endif
			LOAD(p, BIAS, b);
			if
			:: b == OWN -> got = true
			:: else ->
#ifdef NO_TRY_WAKE
				STORE(p, INSIDE, 0);
#else
				let_go(p, INSIDE);
#endif
				try_shared(p)
			fi
		:: else -> try_shared(p)
		fi
	:: else -> try_shared(p)
	fi;
	d_step { b = 0; v = 0 }
}

/* FUTEX_WAIT: compares and goes to sleep in one step. The look at which word it is comes before. */
inline sleep_on(p, word)
{
	atomic {
		if
		:: mem[word] == 1 -> asleep[p] = word + 1
		:: else
		fi
	}
	!asleep[p]
}

inline wait(p)
{
	LOAD(p, INSIDE, v);
	if
	:: v -> sleep_on(p, INSIDE)
	:: else ->
		LOAD(p, BIAS, b);
		if
		:: b == NONE -> sleep_on(p, TAKEN)
		:: else
		fi
	fi;
	d_step { b = 0; v = 0 }
}

/* FUTEX_WAKE of one at each word. */
inline wake_one(word)
{
	d_step {
		if
		:: asleep[0] == word + 1 -> asleep[0] = 0
		:: asleep[1] == word + 1 -> asleep[1] = 0
#if N > 2
		:: asleep[2] == word + 1 -> asleep[2] = 0
#endif
		:: else
		fi
	}
}

inline wake()
{
	wake_one(TAKEN);
#ifndef NO_WAKE_INSIDE
	wake_one(INSIDE)
#endif
}

inline lock(p)
{
	trylock(p);
	if
	:: got
	:: else ->
		atomic { sb[p].n == 0; mem[WAITERS]++ }
		barrier_heavy(p);
		do
		:: trylock(p);
			if
			:: got -> break
			:: else -> wait(p)
			fi
		od;
		atomic { sb[p].n == 0; mem[WAITERS]-- }
	fi
}

inline unlock(p)
{
	LOAD(p, INSIDE, v);
	if
	:: p == 0 && v -> let_go(p, INSIDE)
	:: else -> let_go(p, TAKEN)
	fi;
	v = 0
}

proctype thread(byte p)
{
	byte v, b, i, turn;
	bool got;

	do
	:: turn < TURNS ->
#ifdef TRIES			/* who does not get it goes away, thread 2 always waits */
		if
		:: p < 2 -> trylock(p)
		:: lock(p)
		fi;
#else
		lock(p);
#endif
		if
		:: got ->
			atomic {
				inside++;
				late = late || inside > 1;
				assert(!late)
			}
			LOAD(p, DATA, v);
			d_step { inside--; total++; v++ }
			atomic {
				late = late || v != total;
				assert(!late)
			}
			STORE(p, DATA, v);
			unlock(p)
		:: else
		fi;
		turn++
	:: else -> break
	od
}

init
{
	byte p;

	atomic {
#ifdef OWNED			/* it is thread 0's own already */
		mem[BIAS] = OWN;
#endif
		do
		:: p < N -> run thread(p); run cpu(p); p++
		:: else -> break
		od
	}
}
