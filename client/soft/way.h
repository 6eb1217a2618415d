/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which way a long SEND goes to another process: fetched by its receiver, which is one copy, by the kernel; or in chunks, which
 * is two, by two processors at once. Either may take a fourth of the other's time, by the machine, by where its processors are
 * just now, and by what the programs do meanwhile. So the program's own messages say: some go one way, then as many the other,
 * and the many that follow take the one that took less.
 */
#ifndef SOFT_WAY_H
#define SOFT_WAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WAY_SIZES    8u	    /* of lengths, each up to twice the one before */
#define WAY_SKIP     2u	    /* acknowledgements at the begin of a trial: what was under way before is in them */
#define WAY_TRIAL    16u    /* those that count */
#define WAY_TRIM     2u	    /* of those, the slowest do not: a thread that was away */
#define WAY_HOLD     256u   /* acknowledgements until the next trial, where the last one changed something ... */
#define WAY_HOLD_MAX 16384u /* ... and at most, twice as many after each that did not */
#define WAY_MISSED   64u    /* acknowledgements that say nothing: so many end a trial */
#define WAY_AWAY     64u    /* as many of a hold does one stand for that no thread of the program took */

enum way { WAY_FETCH, WAY_CHUNKS };

struct way_trial {
	unsigned n;
	uint64_t ns, bytes; /* of all */
	struct {
		uint64_t ns, bytes;
	} worst[WAY_TRIM];
};

/* For messages of about one length. All zero: fetched, and tried from the first one on. */
struct way_size {
	_Atomic(enum way) use;
	enum way kept;
	unsigned hold, left; /* acknowledgements: of this hold; left of it, 0: a trial goes on */
	unsigned skip;	     /* skipped, of the trial */
	unsigned missed, away; /* of the trial: that said nothing; and of those, that no thread of the program took */
	struct way_trial trials[2];
};

struct ways {
	atomic_bool busy; /* a thread is in it */
	struct way_size sizes[WAY_SIZES];
};

/* Those of a QP's long SENDs that could go either way (sq lock). */
struct way_run {
	unsigned waiting; /* sent, and not acknowledged */
	uint64_t since;	  /* ns, CLOCK_MONOTONIC: it has waited for some since then, or since the last acknowledgement; 0: for none */
	/* acknowledged just now: */
	uint64_t bytes;
	unsigned size;
	enum way way;
	bool mixed; /* several sizes or ways: says nothing */
};

/* The place in ways.sizes of messages of @length bytes. */
unsigned way_size(uint32_t length);

/* How the next message of @length bytes goes. */
static inline enum way ways_next(const struct ways *ways, uint32_t length)
{
	return atomic_load_explicit(&ways->sizes[way_size(length)].use, memory_order_relaxed);
}

/* @bytes in messages of one @size that all went @way took @ns. Threads that come together lose what they came with. */
void ways_took(struct ways *ways, unsigned size, enum way way, uint64_t bytes, uint64_t ns);
/*
 * Some of that size were acknowledged, and how long they took says nothing. @away: since no thread of the program was there to look:
 * where it is so for long they are better fetched, which needs nobody at this end.
 */
void ways_missed(struct ways *ways, unsigned size, bool away);

/* A message of the run is acknowledged; or one that has no choice, and took some of the time. */
void way_run_add(struct way_run *run, uint32_t length, enum way way);
void way_run_mix(struct way_run *run);
/* All that are acknowledged just now were added. */
void way_run_turn(struct way_run *run, struct ways *ways, uint64_t now, bool away);

#endif
