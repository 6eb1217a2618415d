/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Freeing what threads look up without a lock: grants of the map engine, used inside a hazard
 * slot, replaced and freed by another thread of the same process. NR threads share NS slots;
 * the peer may write the slots at any time. See README.md.
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
#define DROPS	2		/* grants that are replaced and freed */
#define F	NR		/* the store buffer of the thread that frees */

#define PLACE	0		/* the grant that is published */
#define DATA	1		/* the mapping: stores are judged when they land */
#define TURN(s)	(2 + (s))	/* private: odd while the slot is in use */
#define SLOT(s)	(2 + NS + (s))	/* in the segment: names a key */
#define USED(s)	(2 + 2 * NS + (s)) /* private: bits of the slots that are taken */
#define NLOC	(2 + 3 * NS)
#define NBUF	(NR + 1)

bool freed[DROPS + 2];
bool late;			/* a byte moved in a mapping that was gone */

#define LANDED(p, x, y)					\
	if						\
	:: x == DATA -> late = late || freed[y]		\
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
	byte s, t, g, n;

	do
	:: n < USES -> n++;
		s = 0;
		take_slot(i);
		if
		:: s < NS ->
			LOAD(i, TURN(s), t);
			STORE(i, TURN(s), t + 1);
			STORE(i, SLOT(s), 1);
#ifndef NO_USER_BARRIER
			FENCE(i);
#endif
			LOAD(i, PLACE, g);
			d_step { late = late || freed[g] }	/* its fields are read */
			STORE(i, DATA, g);
			STORE(i, DATA, g);
			STORE(i, SLOT(s), 0);
			STORE(i, TURN(s), t + 2);
			LOCKED(i, USED(s), 0)
		:: else		/* all taken: the lane */
		fi;
		d_step { s = 0; t = 0; g = 0 }
	:: else -> break
	od
}

/* What a slot says at the moment: to be remembered, and to be looked at again. */
#ifdef TRUST_SLOTS
#define LOOK(s)	SLOT(s)
#define INSIDE(now, then)	(now)
#else
#define LOOK(s)	TURN(s)
#define INSIDE(now, then)	((then) % 2 == 1 && (now) == (then))
#endif

proctype freeer()
{
	byte then[NS], now, s, g = 1;

	do
	:: g <= DROPS ->
		STORE(F, PLACE, g + 1);
#ifndef NO_FREER_BARRIER
		FENCE(F);
#endif
		s = 0;
		do
		:: s < NS ->
			LOAD(F, LOOK(s), now);
			then[s] = now;
			s++
		:: else -> break
		od;
		s = 0;
		do
		:: s < NS ->
			LOAD(F, LOOK(s), now);
			if
			:: INSIDE(now, then[s])		/* again at the next look */
			:: else -> s++
			fi
		:: else -> break
		od;
		freed[g] = true;
		g++
	:: else -> break
	od
}

#ifdef HOSTILE
proctype peer()
{
	byte s;

end:	do
	:: s < NS -> mem[SLOT(s)] = 0; s++
	:: s > 0 -> s--
	od
}
#endif

proctype monitor()
{
end:	late -> assert(!late)
}

init
{
	byte i;

	atomic {
		mem[PLACE] = 1;
		run monitor();
		run freeer();
		run cpu(F);
#ifdef HOSTILE
		run peer();
#endif
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
