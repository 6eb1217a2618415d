/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kick pipe changes hands between the progress thread and threads blocked in
 * ibv_get_cq_event, some of them cancelled: somebody always reads it, and no wake-up is
 * lost on the way. Sequentially consistent: the store buffers are sleep.pml's business.
 */
#define NB	2		/* threads that call ibv_get_cq_event, a channel each */
#ifndef CALLS
#define CALLS	2		/* calls per thread */
#endif
#ifndef NM
#define NM	2		/* messages; number m fires on channel m % NB */
#endif

byte pub;			/* messages published */
byte posted;			/* ghost: of post calls that returned */
byte used;			/* messages consumed */
byte pipe;			/* bytes in the kick pipe */
byte epoch = 1;
byte last, seen;		/* the sender's: epoch kicked, epoch just loaded */
bool asleep = true;
bool lock;			/* the receiver's progress lock */
byte blockers;			/* threads in ibv_get_cq_event */
bool inset = true;		/* the pipe is in the progress thread's epoll set */
byte ev[NB];			/* channel eventfds */
byte reading;			/* threads that wait for the pipe */

proctype sender()
{
	bool a;

	do
	:: posted < NM ->
		pub++;
		d_step { seen = epoch; a = asleep }
		if
		:: a && seen != last ->
			d_step {
				if
				:: pipe < 2 -> pipe++
				:: else
				fi;
				last = seen
			}
		:: else
		fi;
		d_step { posted++; seen = 0; a = false }
	:: else -> break
	od
}

inline take()
{
	d_step {
		do
		:: used < pub -> ev[used % NB]++; used++
		:: else -> break
		od
	}
}

/* The least epoch that nobody remembers: see sleep.pml. */
inline new_epoch()
{
	d_step {
		prev = epoch;
		epoch = 1;
		do
		:: epoch == last || epoch == seen || epoch == prev -> epoch++
		:: else -> break
		od;
		prev = 0;
		asleep = true
	}
}

/* After a kick: all there is, and a new sleep before anybody blocks or leaves. */
inline serve(leaving)
{
	atomic { !lock -> lock = true }
#ifdef SAME_EPOCH_ON_LEAVE
	take();
	if
	:: leaving
	:: else ->
#endif
	do
	:: new_epoch();
		if
		:: used < pub -> take()
		:: else -> break
		fi
	od;
#ifdef SAME_EPOCH_ON_LEAVE
	fi;
#endif
	lock = false
}

/* Level-triggered wait, then a read: whoever waits too may have emptied the pipe. */
inline drain()
{
#ifdef BLOCKING_READ
	d_step { pipe > 0 -> pipe = 0 }
#else
	pipe = 0
#endif
}

proctype progress()
{
	byte prev;

	/* active at first: it ticks, then falls asleep */
	asleep = false;
	serve(false);
end:	do
	:: inset && pipe > 0 ->
		drain();
		serve(false)
	od
}

proctype blocked(byte me)
{
	byte n, old, prev;
	bool cancelled, may_cancel;

	do
	:: n < CALLS && !cancelled -> n++;
		d_step { old = blockers; blockers++ }
		if
		:: old == 0 -> inset = false	/* DEL; ENOENT is fine */
		:: else -> old = 0
		fi;
		do
		:: atomic { ev[me] > 0 -> ev[me]-- }; break
		:: ev[me] == 0 ->
			atomic {
				if
				:: may_cancel = true
				:: may_cancel = false
				fi;
				reading++
			}
end:			if
			:: atomic { ev[me] > 0 -> reading--; may_cancel = false }
			:: atomic { pipe > 0 -> reading--; may_cancel = false };
				drain();
#ifdef CANCEL_AFTER_DRAIN
				if
				:: cancelled = true; break
				:: true
				fi;
#endif
				serve(ev[me] > 0)
			:: atomic { may_cancel -> reading--; may_cancel = false; cancelled = true }; break
			fi
		od;
#ifdef NO_GIVE_BACK
		if
		:: cancelled -> break
		:: else
		fi;
#endif
		atomic { old = blockers; blockers-- }
		if
		:: old == 1 -> d_step { inset = true; old = 0 }	/* ADD; EEXIST is fine */
		:: else -> old = 0
		fi
	:: else -> break
	od
}

/* Nothing can move any more. */
proctype monitor()
{
end:	atomic {
		timeout ->
		assert(used == posted);
		assert(inset || reading > 0)
	}
}

init
{
	byte i;

	atomic {
		run monitor();
		run sender();
		run progress();
		do
		:: i < NB -> run blocked(i); i++
		:: else -> break
		od;
		i = 0
	}
}
