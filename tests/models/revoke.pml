/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Revocation: no byte moves after dereg, or after closing a QP's gate, has returned.
 * NI initiator threads with a hazard slot each, one owner. See README.md.
 */
#ifndef NI
#define NI	2
#endif
#ifndef USES
#define USES	1		/* work requests per initiator */
#endif
#ifndef CLOSES
#define CLOSES	2		/* revocations by the owner */
#endif
#define O	NI		/* the owner's store buffer */

#define ENTRY	0		/* generation << 1 | open */
#define GATE	1		/* incarnation << 1 | open */
#define BOUNDS	2		/* the entry's other words: the generation they belong to */
#define DATA	3		/* the region: stores are judged when they land */
#define HZ(i)	(4 + (i))	/* 1: names the key and the QP */
#define GRANT(i)	(4 + NI + (i))
#define NLOC	(4 + 2 * NI)
#define NBUF	(NI + 1)

/* Ghosts: all generations up to these are gone and their memory is used for other things. */
byte dead_gen, dead_gate;
bool late;			/* a byte moved after the verb returned */

#define TAG		(kg << 4 | kq)
#define JUDGE(tag)	late = late || ((tag) >> 4) <= dead_gen || ((tag) & 15) <= dead_gate
#define LANDED(p, x, y)				\
	if					\
	:: x == DATA -> JUDGE(y)		\
	:: else					\
	fi
#include "tso.h"

/* Non-temporal stores: outside the FIFO, drained in any order. Tags of what waits. */
byte wc[NI];

proctype wc_drain(byte i)
{
end:	do
	:: d_step { wc[i] > 0 -> JUDGE(wc[i]); wc[i] = 0 }
	od
}

#define BARRIER(i)	(sb[i].n == 0 && wc[i] == 0)

inline copy_step(i)
{
	if
	:: STORE(i, DATA, TAG)			/* WRITE */
	:: d_step { wc[i] == 0 -> wc[i] = TAG }	/* the same, non-temporal */
	:: d_step { JUDGE(TAG) }		/* READ */
	fi
}

#ifdef NO_GENERATION
#define ENTRY_OK	(e & 1)
#else
#define ENTRY_OK	(e == (kg << 1 | 1))
#endif
#ifdef NO_GATE_GENERATION
#define GATE_OK		(g & 1)
#else
#define GATE_OK		(g == (kq << 1 | 1))
#endif

proctype initiator(byte i)
{
	byte kg, kq, e, g, b, n;
	bool granted;

	do
	:: n < USES -> n++;
		/* resolved some time ago: the owner's word of that time */
		atomic {
			kg = mem[ENTRY] >> 1;
			kq = mem[GATE] >> 1
		}
#ifndef GRANT_LATE
		if
		:: !granted -> STORE(i, GRANT(i), 1); granted = true
		:: else
		fi;
#endif
		STORE(i, HZ(i), 1);
		atomic {
#ifndef NO_INITIATOR_BARRIER
			BARRIER(i);
#endif
			LOAD(i, ENTRY, e)
		}
		LOAD(i, GATE, g);
#ifdef GRANT_LATE
		if
		:: !granted -> STORE(i, GRANT(i), 1); granted = true; BARRIER(i)
		:: else
		fi;
#endif
		if
		:: ENTRY_OK && GATE_OK ->
			LOAD(i, BOUNDS, b);
#ifndef NO_GENERATION
			assert(b == kg);
#endif
			copy_step(i);
			copy_step(i);
#ifndef NO_SFENCE
			wc[i] == 0	/* sfence */
#endif
		:: else			/* down the lane: the owner's verdict counts */
		fi;
		STORE(i, HZ(i), 0);
		d_step { kg = 0; kq = 0; e = 0; g = 0; b = 0 }
	:: else -> break
	od
}

/* Wait until no slot names it; gone is false after giving up with EBUSY. */
inline wait_slots()
{
	gone = true;
	i = 0;
	do
	:: i < NI ->
		LOAD(O, GRANT(i), g);
		if
		:: g ->
			if
			:: atomic { mem[HZ(i)] == 0 -> g = 0 }
#ifndef NO_WAIT
			:: atomic { mem[HZ(i)] == 1 -> gone = false; g = 0 }
#else
			:: g = 0
#endif
			fi
		:: else
		fi;
		i++
	:: gone == false || i == NI -> break
	od;
	i = 0
}

proctype owner()
{
	byte gen = 1, gate = 1, i, g, n;
	bool gone;

	do
	:: n < CLOSES -> n++;
		if
		:: STORE(O, ENTRY, gen << 1);
#ifndef NO_OWNER_BARRIER
			FENCE(O);
#endif
			wait_slots();
			if
			:: gone ->
				d_step { dead_gen = gen; gen++ }
				STORE(O, BOUNDS, gen)	/* the next one, same key */
			:: else			/* EBUSY: the object stays whole */
			fi;
			STORE(O, ENTRY, gen << 1 | 1)
		:: STORE(O, GATE, gate << 1);
#ifndef NO_OWNER_BARRIER
			FENCE(O);
#endif
			wait_slots();
			if
			:: gone -> d_step { dead_gate = gate; gate++ }
			:: else
			fi;
			STORE(O, GATE, gate << 1 | 1)
		fi
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
		mem[ENTRY] = 3;
		mem[GATE] = 3;
		mem[BOUNDS] = 1;
		run monitor();
		run owner();
		run cpu(O);
		do
		:: i < NI ->
			run initiator(i);
			run cpu(i);
			run wc_drain(i);
			i++
		:: else -> break
		od;
		i = 0
	}
}
