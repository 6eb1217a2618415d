/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Falling asleep, ready bits, the hot set and the kick: no wake-up is lost.
 * Two senders with a wire each, one receiver. See README.md for rules and variants.
 */
#define NS	2		/* senders, wires */
#ifndef N0
#define N0	2		/* descriptors of the first sender, each in a slot of its own */
#endif
#ifndef N1
#define N1	1		/* of the second */
#endif
#define COUNT(s)	(s == 0 -> N0 : N1)
#define R	NS		/* the receiver's store buffer */

#define SLOT(s, k)	((s) * N0 + (k))
#define BIT(s)		(N0 + N1 + (s))
#define STATE		(N0 + N1 + NS)	/* epoch << 1 | asleep */
#define NLOC		(N0 + N1 + NS + 1)
#define NBUF		(NS + 1)
#define LANDED(p, x, y)	skip
#include "tso.h"

#ifdef ONE_PROCESS		/* both senders are threads of one process */
#define LAST(s)	last[0]
#else
#define LAST(s)	last[s]
#endif

#ifdef POLLER
#define LOCKW(s)	atomic { !lock[s] -> lock[s] = true }
#define UNLOCKW(s)	lock[s] = false
bool lock[NS];
bool hot[NS];			/* polled without the bit */
#else
#define LOCKW(s)	skip
#define UNLOCKW(s)	skip
#endif

byte pipe;			/* bytes in the kick pipe */
byte last[NS];			/* epoch last kicked, private to the sender */
byte posted[NS];		/* ghost: descriptors of post calls that returned */
byte next[NS];			/* receiver's private index: slots consumed */
byte st[NS];			/* sender's copy of the status word */
bool blocked;			/* the receiver is in its blocking read */
bool lost;			/* ghost */
#ifdef HOSTILE
bool ticked;			/* the first tick of this sleep is over */
#define ASLEEP	(blocked && ticked)
#else
#define ASLEEP	blocked
#endif

#define LOST(s)	(ASLEEP && pipe == 0 && posted[s] > next[s])

inline kick()
{
	/* O_NONBLOCK: a full pipe is readable already */
	d_step {
		if
		:: pipe < 2 -> pipe++
		:: else
		fi
	}
}

/* Behind the barrier: the bit, and the status word. All that was published until then has been told. */
inline look(s, k, b)
{
	atomic {
#ifndef NO_SENDER_BARRIER
		FENCE(s);
#endif
		LOAD(s, BIT(s), b)
	}
	if
	:: b == 0 -> LOCKED(s, BIT(s), 1)
	:: else
	fi;
	b = 0;
	LOAD(s, STATE, st[s]);
	if
	:: (st[s] & 1) && (st[s] >> 1) != LAST(s) ->
#ifdef REMEMBER_FIRST
		LAST(s) = st[s] >> 1;
		kick()
#else
		kick();
		LAST(s) = st[s] >> 1
#endif
	:: else
	fi;
	d_step { posted[s] = k; st[s] = 0 }
}

proctype sender(byte s)
{
	byte k, b;
	bool owes;	/* a look, which a poll, a post or a tick of this process makes */

	do
	:: k < COUNT(s) ->
		STORE(s, SLOT(s, k), 1);
		k++;
		if
		:: k < COUNT(s) -> STORE(s, SLOT(s, k), 1); k++
		:: true
		fi;
#ifdef POLLS
		LOAD(s, BIT(s), b);
		LOAD(s, STATE, st[s]);
		owes = b && !(st[s] & 1);
		d_step { b = 0; st[s] = 0 };
		if
		:: owes ->
#ifdef OWES_NOTHING
			d_step { posted[s] = k; owes = false }
#else
			skip
#endif
		:: else -> look(s, k, b)
		fi
	:: owes -> look(s, k, b); owes = false
#else
		look(s, k, b)
#endif
	:: k == COUNT(s) && !owes -> break
	od
}

/*
 * An epoch that nobody remembers. A 63-bit counter never repeats, and epochs are only
 * compared for equality: taking the least unused one leaves the state space finite.
 */
inline fresh_epoch()
{
	d_step {
		epoch = 1;
		do
		:: epoch == LAST(0) || epoch == LAST(1) || epoch == st[0] >> 1 ||
		   epoch == st[1] >> 1 || epoch == mem[STATE] >> 1 ||
		   (sb[R].n > 0 && epoch == sb[R].v[0] >> 1) ||
		   (sb[R].n > 1 && epoch == sb[R].v[1] >> 1) -> epoch++
		:: else -> break
		od
	}
}

/* Load the slot due next on wire s. */
inline peek(s)
{
	d_step {
		if
		:: next[s] < COUNT(s) -> v = mem[SLOT(s, next[s])]
		:: else -> v = 0
		fi
	}
}

inline retire(s)
{
	atomic {
		LOCKED(R, BIT(s), 0);
		hot[s] = false
	}
#ifndef NO_RELOOK
	atomic {
		peek(s);
		if
		:: v -> hot[s] = true; found = true
		:: else
		fi;
		v = 0
	}
#endif
}

/*
 * Serve one wire: directly when hot, else by its bit; or whatever the bit says. A quiet look is at hot wires only, and
 * retires none.
 */
inline serve(s, all, quiet)
{
	if
	:: hot[s] || quiet
	:: else ->
		atomic { LOAD(R, BIT(s), v); hot[s] = v || all; v = 0 }
	fi;
	if
	:: hot[s] ->
		atomic {
			peek(s);
			if
			:: v -> next[s]++; found = true; v = 0
			:: else -> idle = !quiet
			fi
		}
		if
		:: idle -> idle = false; retire(s)
		:: idle = false
		fi
	:: else
	fi
}

inline sweep(all, quiet)
{
	w = 0;
	do
	:: w < NS ->
#ifdef SKIP_LOCKED
		if
		:: atomic { !lock[w] -> lock[w] = true };
			serve(w, all, quiet);
			UNLOCKW(w)
		:: lock[w] -> skip
		fi;
#else
		LOCKW(w);
		serve(w, all, quiet);
		UNLOCKW(w);
#endif
		w++
	:: else -> break
	od;
	w = 0
}

proctype receiver()
{
	byte epoch, v, w;
	bool found, idle;
#ifndef POLLER
	bool hot[NS];
#endif

	do
	:: atomic {
			fresh_epoch();
			STORE(R, STATE, epoch << 1 | 1);
			epoch = 0
		}
#ifndef NO_RECEIVER_BARRIER
		FENCE(R);
#endif
		found = false;
#ifdef QUIET_SLEEP
		sweep(false, true);
#else
		sweep(false, false);
#endif
		if
		:: found
		:: else ->
			blocked = true;
#ifdef HOSTILE
#ifndef NO_FIRST_TICK
			if
			:: pipe > 0
			:: true -> sweep(true, false)
			fi;
#endif
#endif
			if
			:: found
			:: else ->
#ifdef HOSTILE
				ticked = true;
#endif
end:				pipe > 0
			fi;
			d_step {
				blocked = false;
#ifdef HOSTILE
				ticked = false;
#endif
				pipe = 0
			}
		fi;
		/* awake: say so or stay as we are, then serve a turn or none */
		if
		:: STORE(R, STATE, 0)	/* active; its epoch matters to nobody */
		:: true
		fi;
#ifndef NO_TURN
		if
		:: true
		:: found = false;
			sweep(false, false);
#ifdef HOSTILE
			if
			:: !found -> sweep(true, false)	/* a kick that finds no bit */
			:: else
			fi
#endif
		fi
#endif
	od
}

#ifdef POLLER
/*
 * A second thread of the receiver, in ibv_poll_cq: a quiet poll serves wire 0 if it is hot; one of a few looks at its bit
 * as well, and retires it when nothing comes. It stores nothing into shared memory but by locked instructions.
 */
proctype poller()
{
	byte v, n;
	bool idle;

	do
	:: n < 2 ->
		LOCKW(0);
		if
		:: hot[0]
		:: !hot[0] -> skip		/* quiet */
		:: !hot[0] -> hot[0] = mem[BIT(0)]
		fi;
		atomic {
			if
			:: hot[0] ->
				peek(0);
				if
				:: v -> next[0]++; v = 0
				:: else -> idle = true
				fi
			:: else
			fi
		}
		if
		:: idle -> idle = false;
			atomic { mem[BIT(0)] = 0; hot[0] = false }
			atomic {
				peek(0);
				if
				:: v -> mem[BIT(0)] = 1; v = 0
				:: else
				fi
			}
		:: idle = false
		fi;
		UNLOCKW(0);
		n++
	:: else -> break
	od
}
#endif

#ifdef HOSTILE
/* May write every bit that a sender may write, and kick. */
proctype hostile()
{
	byte n;

	do
	:: n < 2 ->
		if
		:: mem[BIT(0)] = 0
		:: mem[BIT(1)] = 0
		:: mem[BIT(1)] = 1
		:: kick()
		fi;
		n++
	:: else -> break
	od
}
#endif

proctype monitor()
{
end:	atomic {
		LOST(0) || LOST(1) -> lost = true;
		assert(!lost)
	}
}

init
{
	atomic {
		run monitor();
		run receiver();
		run sender(0);
		run sender(1);
		run cpu(0);
		run cpu(1);
		run cpu(R);
#ifdef POLLER
		run poller();
#endif
#ifdef HOSTILE
		run hostile()
#endif
	}
}
