/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The region at this end of a copy, held by its name in a hazard slot of this process's own: NR threads copy, another one
 * deregisters the region, returns, and registers another with the same key. A slot is looked at only while it is taken.
 * See README.md.
 */
#ifndef NR
#define NR	2
#endif
#ifndef NS
#define NS	1
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
#define NAME(s)	(2 + (s))	/* 1: a thread copies to or from what is at the key */
#define USED(s)	(2 + NS + (s))	/* the slot is taken */
#define NLOC	(2 + 2 * NS)
#define NBUF	(NR + 1)

byte gone;			/* ghost: generations up to this one are the program's to reuse */
bool late;			/* a byte moved after the verb returned */

#define LANDED(p, x, y)					\
	if						\
	:: x == DATA -> late = late || (y) <= gone	\
	:: else						\
	fi
#include "tso.h"

/* A compare-and-swap that finds the bit clear. */
inline take_slot(i)
{
	do
	:: s < NS ->
		if
		:: atomic { sb[i].n == 0 && mem[USED(s)] == 0 -> mem[USED(s)] = 1 }; break
		:: atomic { mem[USED(s)] == 1 -> s++ }
		fi
	:: s == NS -> break
	od
}

proctype user(byte i)
{
	byte s, g, n;
	bool kept;

	do
	:: n < USES -> n++;
		if
		:: !kept -> s = 0; take_slot(i)
		:: else
		fi;
		if
		:: s < NS ->
			STORE(i, NAME(s), 1);
#ifndef NO_USER_BARRIER
			FENCE(i);
#endif
			LOAD(i, OBJECT, g);
			if
			:: g ->
				if
				:: STORE(i, DATA, g)				/* READ */
				:: d_step { late = late || g <= gone }		/* WRITE */
				fi
			:: else
			fi;
			STORE(i, NAME(s), 0);
			if
			:: kept = true		/* the wire keeps it */
			:: LOCKED(i, USED(s), 0); kept = false
			fi
		:: else		/* all taken: the lane */
		fi;
		g = 0
	:: else -> break
	od
}

/* Whether any slot that is taken names it. */
inline look()
{
	s = 0;
	named = false;
	do
	:: s < NS ->
#ifdef EARLY_MASK
		used = mask[s];
#else
		LOAD(C, USED(s), used);
#endif
		if
		:: used ->
			LOAD(C, NAME(s), v);
			named = named || v
		:: else
		fi;
		s++
	:: else -> break
	od;
	s = 0;
	v = 0;
	used = 0
}

proctype closer()
{
	byte gen = 1, s, v, used, n;
	bool named;
#ifdef EARLY_MASK
	byte mask[NS];
#endif

	do
	:: n < CLOSES -> n++;
		STORE(C, OBJECT, 0);
#ifdef EARLY_MASK
		do
		:: s < NS -> LOAD(C, USED(s), v); mask[s] = v; s++
		:: else -> break
		od;
		s = 0;
		v = 0;
#endif
#ifndef NO_CLOSER_BARRIER
		FENCE(C);
#endif
		do
		:: true ->
			look();
#ifdef NO_WAIT
			break
#else
			if
			:: !named -> break
			:: else
			fi
#endif
		od;
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
