/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread domain: its owner works on its objects with plain loads and stores; whoever holds the progress lock may park
 * the domain and then has it, until the owner takes it back under that lock. Never both inside; and no wake-up is lost
 * although the progress thread looks at the domain's wire, before it sleeps, without having the domain.
 */
#ifndef N
#define N	2		/* messages; the lane has one slot */
#endif
#ifndef OPS
#define OPS	2		/* calls of the owner, who then calls no verb any more */
#endif

#define S	0		/* store buffers: sender, owner, progress thread, a verb that waits */
#define O	1
#define P	2
#define C	3
#define NBUF	4

#define SLOT	0		/* k + 1: message k */
#define TAKEN	1
#define STATE	2		/* epoch << 1 | asleep */
#define BIT	3
#define SEQ	4		/* 1: the owner is inside */
#define GATE	5		/* 1: parked */
#define POS	6		/* messages taken, private to the receiving process */
#define HOT	7
#define RUN	8		/* the owner left work behind */
#define LOCK	9		/* the progress lock is taken */
#define NLOC	10
#define LANDED(p, x, y)	skip
#include "tso.h"

byte pipe;			/* kicks, and wakes of our own */
byte last = 255;		/* epoch kicked by the sender */
byte woken = 255;		/* epoch woken by the owner */
byte st[2];			/* copies of the state word: sender's, owner's */
byte posted;			/* ghost: messages whose post call returned */
bool owner_in, holder_in;	/* ghost: who has the domain */
bool blocked, lost;

inline kick()
{
	d_step {
		if
		:: pipe < 2 -> pipe++
		:: else
		fi
	}
}

/* The mutex of mutex.pml: taken by a locked instruction, let go by a store that may wait in the buffer. */
inline lock(p)
{
	atomic { sb[p].n == 0 && !mem[LOCK] -> mem[LOCK] = 1 }
}

inline unlock(p)
{
	STORE(p, LOCK, 0)
}

inline drain(p)
{
	do
	:: sb[p].n > 0 ->
		mem[sb[p].a[0]] = sb[p].v[0];
		sb[p].a[0] = sb[p].a[1];
		sb[p].v[0] = sb[p].v[1];
		sb[p].n--;
		sb[p].a[sb[p].n] = 0;
		sb[p].v[sb[p].n] = 0
	:: else -> break
	od
}

/* membarrier: a full barrier in every thread of the process. */
inline HEAVY(p)
{
#ifdef FENCED
#ifndef NO_HOLDER_FENCE
	FENCE(p)
#else
	skip
#endif
#else
#ifndef NO_MEMBARRIER
	atomic { drain(p); drain(O) }
#else
	FENCE(p)
#endif
#endif
}

inline LIGHT(p)
{
#ifdef FENCED
#ifndef NO_OWNER_FENCE
	FENCE(p)
#else
	skip
#endif
#else
	skip
#endif
}

proctype sender()
{
	byte v;

	do
	:: posted < N ->
		do			/* a slot is free */
		:: LOAD(S, TAKEN, v);
			if
			:: v == posted -> break
			:: else -> mem[TAKEN] == posted
			fi
		od;
		STORE(S, SLOT, posted + 1);
		FENCE(S);
		LOAD(S, BIT, v);
		if
		:: v == 0 -> LOCKED(S, BIT, 1)
		:: else
		fi;
		LOAD(S, STATE, st[0]);
		if
		:: (st[0] & 1) && (st[0] >> 1) != last ->
			kick();
			last = st[0] >> 1
		:: else
		fi;
		d_step { posted++; v = 0; st[0] = 0 }
	:: else -> break
	od
}

/* Takes one message, if it is there. */
inline serve(p, did)
{
	LOAD(p, POS, pos);
	LOAD(p, SLOT, v);
	if
	:: v == pos + 1 ->
		STORE(p, POS, pos + 1);
		STORE(p, TAKEN, pos + 1);
		did = true
	:: else
	fi;
	d_step { v = 0; pos = 0 }
}

/* The owner and a wire: by its bit when cold, directly when hot, retired at any time. */
inline look()
{
	LOAD(O, HOT, v);
	if
	:: v == 0 ->
		LOAD(O, BIT, v);
		if
		:: v -> STORE(O, HOT, 1)
		:: else
		fi
	:: else
	fi;
	if
	:: v -> v = 0; serve(O, did)
	:: else
	fi;
	if
	:: !did && mem[HOT] && sb[O].n == 0 ->	/* idle for long */
		STORE(O, HOT, 0);
		LOCKED(O, BIT, 0);
		LOAD(O, POS, pos);
		LOAD(O, SLOT, v);
		if
		:: v == pos + 1 ->
#ifdef RETIRE_MARKS
			LOCKED(O, BIT, 1)	/* and leaves it for the next look */
#else
			STORE(O, HOT, 1);
			STORE(O, RUN, 1)
#endif
		:: else
		fi;
		d_step { v = 0; pos = 0 }
	:: true
	fi
}

inline leave_behind()
{
	STORE(O, SEQ, 0);
#ifndef NO_LEFT_WAKE
	LOAD(O, RUN, v);
	if
	:: v ->
		v = 0;
		FENCE(O);
		LOAD(O, STATE, st[1]);
		if
		:: (st[1] & 1) && (st[1] >> 1) != woken ->
			kick();
			woken = st[1] >> 1
		:: else
		fi;
		st[1] = 0
	:: else
	fi;
#endif
	v = 0
}

proctype owner()
{
	byte n, v, pos;
	bool did;

	do
	:: n < OPS -> n++;
#ifdef LATE_SEQ
		LOAD(O, GATE, v);
		STORE(O, SEQ, 1);
#else
		STORE(O, SEQ, 1);
		LIGHT(O);
		LOAD(O, GATE, v);
#endif
		if
		:: v ->
			v = 0;
#ifndef RECLAIM_INSIDE
			STORE(O, SEQ, 0);
#endif
#ifdef RECLAIM_UNLOCKED
			STORE(O, GATE, 0);
			STORE(O, SEQ, 1)
#else
			lock(O);
			STORE(O, GATE, 0);
			STORE(O, SEQ, 1);
			unlock(O)
#endif
		:: else
		fi;
		atomic { owner_in = true; assert(!holder_in) }
		if
		:: look()			/* a poll */
		:: STORE(O, RUN, 1)		/* a post whose turn did not do all */
		:: LOAD(O, RUN, v);		/* a poll that finds what was left */
			if
			:: v -> STORE(O, RUN, 0); serve(O, did)
			:: else
			fi;
			v = 0
		fi;
		atomic { owner_in = false }
		did = false;
		leave_behind()
	:: else -> break
	od
}

/* Has the domain on return, if it could: with the progress lock. */
inline park(p, got)
{
	LOAD(p, GATE, g);
	if
	:: g -> got = true
	:: else ->
		STORE(p, GATE, 1);
		HEAVY(p);
		LOAD(p, SEQ, g);
		if
		:: g -> STORE(p, GATE, 0); got = false
		:: else -> got = true
		fi
	fi;
	g = 0
}

/* What the domain shows to who does not have it. */
inline pending(p)
{
	LOAD(p, RUN, v);
	if
	:: v -> found = true
	:: else ->
		LOAD(p, HOT, v);
		if
		:: v ->
			LOAD(p, POS, pos);
			LOAD(p, SLOT, v);
			if
			:: v == pos + 1 -> found = true
			:: else
			fi
		:: else ->
			LOAD(p, BIT, v);
			if
			:: v -> found = true
			:: else
			fi
		fi
	fi;
	d_step { v = 0; pos = 0 }
}

inline round(p)
{
	lock(p);
	pending(p);
	if
	:: found ->
		park(p, got);
		if
		:: got ->
			atomic { holder_in = true; assert(!owner_in) }
			STORE(p, RUN, 0);
			/* whatever it was: the wire is hot, and is looked at until it has nothing */
			STORE(p, HOT, 1);
			LOCKED(p, BIT, 1);
			do
			:: did = false;
				serve(p, did);
				if
				:: !did -> break
				:: else
				fi
			od;
			atomic { holder_in = false }
			got = false
		:: else	/* the owner is inside: once more */
		fi
	:: else
	fi;
	unlock(p)
}

/* The least epoch that nobody remembers: see sleep.pml. */
inline fresh_epoch()
{
	d_step {
		epoch = 1;
		do
		:: epoch == last || epoch == woken || epoch == st[0] >> 1 || epoch == st[1] >> 1 ||
		   epoch == mem[STATE] >> 1 ||
		   (sb[P].n > 0 && sb[P].a[0] == STATE && epoch == sb[P].v[0] >> 1) ||
		   (sb[P].n > 1 && sb[P].a[1] == STATE && epoch == sb[P].v[1] >> 1) -> epoch++
		:: else -> break
		od
	}
}

proctype progress()
{
	byte epoch, v, g, pos;
	bool found, got, did;

	do
	:: atomic {
			fresh_epoch();
			STORE(P, STATE, epoch << 1 | 1);
			epoch = 0
		}
		FENCE(P);
		found = false;
		round(P);
		if
		:: found -> found = false
		:: else ->
			blocked = true;
end:			pipe > 0;
			d_step { blocked = false; pipe = 0 }
			if
			:: STORE(P, STATE, 0)
			:: true
			fi
		fi
	od
}

/* A verb of any thread that must have the domain, and waits for it. */
proctype control()
{
	byte g;

	lock(C);
	STORE(C, GATE, 1);
	HEAVY(C);
	do
	:: LOAD(C, SEQ, g);
		if
		:: g == 0 -> break
		:: else -> mem[SEQ] == 0
		fi
	od;
	atomic { holder_in = true; assert(!owner_in) }
	atomic { holder_in = false }
	unlock(C)
}

/* Nothing can move any more. */
proctype monitor()
{
end:	atomic {
		timeout ->
		lost = posted > mem[POS] || posted < N;
		assert(!lost)
	}
}

init
{
	atomic {
		mem[BIT] = 1;
		mem[HOT] = 1;
		run monitor();
		run sender();
		run owner();
		run progress();
#ifdef CONTROL
		run control();
		run cpu(C);
#endif
		run cpu(S);
		run cpu(O);
		run cpu(P)
	}
}
