/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiver not ready as go-back-N: delivered once and in order, a WR that failed with
 * RNR exceeded is never delivered, nothing waits for ever. A lane of two slots is a
 * FIFO whatever the store buffers do, so this model is sequentially consistent.
 */
#define M	3		/* messages; number 1 takes two descriptors */
#define PARTS(m)	(m == 1 -> 2 : 1)
#ifndef LIMIT
#define LIMIT	1		/* resends before RNR exceeded */
#endif
#define NONE	255

chan lane = [2] of { byte, byte, bool };	/* msn, part, RESTART */
chan rsp = [1] of { byte };			/* RNR(msn) */
byte acked;			/* header line: messages acknowledged */
byte recvs;			/* receives posted and not taken */
bool hint;			/* header line: a receive was posted while dropping */
byte delivered;			/* ghost */
byte failed = NONE;		/* ghost: the WR that ended with RNR exceeded */
byte completed;			/* ghost: WRs that ended with success */
bool dropping;			/* responder, under the QP's lock */

inline resend()
{
	d_step {
		stopped = false;
		snd = completed;
		part = 0;
		restart = true;
		hint = false
	}
}

proctype requester()
{
	byte snd, part, n, retries;
	byte waits;			/* ghost: times the timer ran */
	bool stopped, restart;

	do
	:: !stopped && snd < M && nfull(lane) ->
		atomic {
			lane!snd, part, restart;
			restart = false;
			part++;
			if
			:: part == PARTS(snd) -> part = 0; snd++
			:: else
			fi
		}
	:: atomic { rsp?n -> 
			/* what was acknowledged before the RNR is complete first */
			if
			:: completed < acked -> completed = acked; retries = 0; waits = 0
			:: else
			fi;
			assert(n == completed);
#ifdef CLEAR_HINT_LATE
			hint = false;
#endif
			stopped = true
		}
#ifndef HINT_ONLY
		if
		:: retries == LIMIT && !hint ->
			failed = n;
			assert(waits == LIMIT);
			break
		:: retries < LIMIT || hint
		fi
#endif
	:: atomic { completed < acked -> completed = acked; retries = 0; waits = 0 }
	:: completed == M -> break
	:: stopped && hint ->
#ifdef HINT_COUNTS
		retries = (retries < LIMIT -> retries + 1 : retries);
#endif
		resend()
#ifndef HINT_ONLY
	:: stopped && retries < LIMIT ->	/* the timer */
		retries++;
		waits++;
		resend()
#endif
#ifdef RESEND_UNANSWERED
	:: !stopped && completed < snd && retries < LIMIT ->
		retries++;
		resend()
#endif
#ifdef FAIL_UNANSWERED
	:: !stopped && completed < snd && retries == LIMIT ->
		failed = completed;
		break
#endif
	od
}

inline answer_rnr()
{
	assert(nfull(rsp));		/* never waits: one answer per RESTART */
	rsp!expect;
#ifndef NO_DROP
	dropping = true
#endif
}

/* The first part takes a receive, the last one delivers. */
inline place()
{
	assert(m == expect && p == part);
	if
	:: p == 0 && recvs == 0 -> answer_rnr()
	:: else ->
		if
		:: p == 0 -> recvs--
		:: else
		fi;
		part++;
		if
		:: part == PARTS(m) ->
			assert(failed != m && delivered == m);
			delivered++;
			part = 0;
			expect++;
			acked = expect
		:: else
		fi
	fi
}

proctype responder()
{
	byte m, p, expect, part;
	bool r;

end:	do
	:: atomic {
		lane?m, p, r ->
		if
		:: dropping && !(r && m == expect) -> skip
		:: else -> dropping = false; place()
		fi;
		m = 0; p = 0; r = false
	}
	od
}

/* Posts receives at any time: all of them in the end, or fewer where the timer runs. */
proctype poster()
{
	byte n;

	do
	:: n < M ->
		atomic {
			n++;
			recvs++;
			if
			:: dropping -> hint = true
			:: else
			fi
		}
#ifndef HINT_ONLY
	:: break
#else
	:: n == M -> break
#endif
	od
}

proctype monitor()
{
end:	atomic {
		timeout ->
		assert((failed == NONE && delivered == M && completed == M) ||
		       (failed != NONE && delivered == failed && completed == failed))
	}
}

init
{
	atomic {
		run monitor();
		run requester();
		run responder();
		run poster()
	}
}
