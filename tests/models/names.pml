/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The region at this end of a copy, held by a thread that names its key in a line of its own, without a barrier: NR threads
 * copy, another one deregisters the region, returns, and registers another with the same key. The first use of a key says so,
 * by a locked instruction: who deregisters asks all threads (membarrier) of used keys alone. See README.md.
 */
#ifndef NR
#define NR	2
#endif
#ifndef USES
#define USES	2		/* work requests per thread */
#endif
#ifndef CLOSES
#define CLOSES	2		/* deregistrations */
#endif
#define C	NR		/* the store buffer of the thread that deregisters */

#define OBJECT	0		/* what is at the key: a generation; 0: nothing */
#define DATA	1		/* its memory: stores are judged when they land */
#define NAMED	2		/* threads name the key */
#define NAME(t)	(3 + (t))	/* 1: the thread names the key */
#define NLOC	(3 + NR)
#define NBUF	(NR + 1)

byte gone;			/* ghost: generations up to this one are the program's to reuse */
bool late;			/* a byte moved after the verb returned */

#define LANDED(p, x, y)					\
	if						\
	:: x == DATA -> late = late || (y) <= gone	\
	:: else						\
	fi
#include "tso.h"

inline drain(p)
{
	do
	:: sb[p].n > 0 ->
		LANDED(p, sb[p].a[0], sb[p].v[0]);
		mem[sb[p].a[0]] = sb[p].v[0];
		sb[p].a[0] = sb[p].a[1];
		sb[p].v[0] = sb[p].v[1];
		sb[p].n--;
		sb[p].a[sb[p].n] = 0;
		sb[p].v[sb[p].n] = 0
	:: else -> break
	od
}

/* membarrier: a full barrier in every thread, one after the other. */
inline HEAVY(p)
{
	FENCE(p);
#if !defined(FENCED) && !defined(NO_MEMBARRIER)
	do
	:: k < NR -> atomic { drain(k); k++ }
	:: else -> break
	od;
	k = 0
#endif
}

proctype user(byte i)
{
	byte g, n, named;

	do
	:: n < USES -> n++;
		LOAD(i, NAMED, named);
		if
		:: named
		:: else ->
#ifndef PLAIN_FIRST_USE
			LOCKED(i, NAMED, 1)
#else
			STORE(i, NAMED, 1)
#endif
		fi;
		STORE(i, NAME(i), 1);
#if defined(FENCED) && !defined(NO_USER_FENCE)
		FENCE(i);
#endif
		LOAD(i, OBJECT, g);
		if
		:: g ->
			if
			:: STORE(i, DATA, g)				/* a receive */
			:: d_step { late = late || g <= gone }		/* a SEND */
			fi
		:: else
		fi;
		STORE(i, NAME(i), 0);
		g = 0;
		named = 0
	:: else -> break
	od
}

/* Whether anybody has it. */
inline look()
{
	used = false;
	LOAD(C, NAMED, v);
	if
	:: v ->
		HEAVY(C);
		do
		:: k < NR -> LOAD(C, NAME(k), v); used = used || v; k++
		:: else -> break
		od;
		k = 0
	:: else
	fi;
	v = 0
}

proctype closer()
{
	byte gen = 1, k, v, n;
	bool used;

	do
	:: n < CLOSES -> n++;
#ifndef NO_CLOSER_BARRIER
		LOCKED(C, OBJECT, 0);
#else
		STORE(C, OBJECT, 0);
#endif
		do
		:: true ->
			look();
#ifdef NO_WAIT
			break
#else
			if
			:: !used -> break
			:: else
			fi
#endif
		od;
#ifdef FORGET_NAMED
		STORE(C, NAMED, 0);
#endif
		atomic { gone = gen; gen++ }
		STORE(C, OBJECT, gen)
	:: else -> break
	od
}

proctype monitor()
{
end:	late -> assert(!late)
}

init
{
	byte i;

	atomic {
		mem[OBJECT] = 1;
		run monitor();
		run closer();
		run cpu(C);
		do
		:: i < NR ->
			run user(i);
			run cpu(i);
			i++
		:: else -> break
		od;
		i = 0
	}
}
