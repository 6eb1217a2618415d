/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path's mutex: taken by a locked instruction, let go by a plain store, with a barrier that only waiters pay
 * for. One at a time, what is stored inside is seen by the next, and nobody sleeps for ever. See README.md.
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
#define NLOC	3
#define NBUF	N
#define LANDED(p, x, y)	skip
#include "tso.h"

bool asleep[N];			/* in the futex */
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

inline trylock(p)
{
	atomic {
		sb[p].n == 0;
		got = mem[TAKEN] == 0;
		if
		:: got -> mem[TAKEN] = 1
		:: else
		fi
	}
}

/* FUTEX_WAIT: compares and goes to sleep in one step. */
inline wait(p)
{
	atomic {
		if
		:: mem[TAKEN] == 1 -> asleep[p] = true
		:: else
		fi
	}
	!asleep[p]
}

/* FUTEX_WAKE of one. */
inline wake()
{
	d_step {
		if
		:: asleep[0] -> asleep[0] = false
		:: asleep[1] -> asleep[1] = false
#if N > 2
		:: asleep[2] -> asleep[2] = false
#endif
		:: else
		fi
	}
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
	STORE(p, TAKEN, 0);
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
	fi;
	v = 0
}

proctype thread(byte p)
{
	byte v, i, turn;
	bool got;

	do
	:: turn < TURNS ->
		lock(p);
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
		unlock(p);
		turn++
	:: else -> break
	od
}

init
{
	byte p;

	atomic {
		do
		:: p < N -> run thread(p); run cpu(p); p++
		:: else -> break
		od
	}
}
