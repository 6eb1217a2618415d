/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the holder of the progress lock does for thread domains: it looks at those whose owner may be away, parks those
 * that have work which nobody does, and serves the parked ones. It never waits for an owner here.
 */
#include "client/soft/lane.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define POLL_DOMAINS 4u	   /* parked ones that a poll of something else serves */
#define AWAY_NS	     2000u /* an owner that did not enter for so long does not poll */

static bool is_parked(const struct soft_td *td)
{
	return atomic_load_explicit(&td->gate, memory_order_relaxed);
}

static uint64_t seq_of(const struct soft_td *td)
{
	return atomic_load_explicit(&td->seq, memory_order_relaxed);
}

/* --- looks at a domain that the caller may not have ------------------------------------------------------------------------ */

static bool hot_pending(const struct soft_td *td)
{
	for (unsigned place = 0; place < HOT_MAX; place++) {
		struct wire *wire = hot_at(&td->hot, place);

		if (wire && (wire_pending(wire) || wire_owes_look(wire)))
			return true;
	}
	return false;
}

static bool hot_owes(const struct soft_td *td)
{
	bool owes = false;

	for (unsigned place = 0; place < HOT_MAX; place++) {
		struct wire *wire = hot_at(&td->hot, place);

		owes |= wire && wire_owes_look(wire);
	}
	return owes;
}

static bool cold_pending(const struct soft_td *td)
{
	for (unsigned i = 0; i < td->n_words; i++) {
		const struct td_word *word = &td->words[i];
		uint64_t cold = atomic_load_explicit(&word->cold, memory_order_relaxed);

		if (cold && ready_bits(word->pair, word->index) & cold)
			return true;
	}
	return false;
}

static bool handed_in(const struct soft_td *td)
{
	return atomic_load_explicit(&td->mail, memory_order_relaxed) ||
	       atomic_load_explicit(&td->run, memory_order_relaxed);
}

static bool is_due(const struct soft_td *td)
{
	uint64_t due = atomic_load_explicit(&td->due, memory_order_relaxed);

	return due && rt_now() >= due;
}

static bool is_pending(const struct soft_td *td)
{
	return handed_in(td) || hot_pending(td) || cold_pending(td) || is_due(td);
}

/* --- which to park ----------------------------------------------------------------------------------------------------------- */

/* Its owner does not come for it: two looks, some time apart, and it did not enter in between. */
static bool owner_is_away(struct soft_td *td)
{
	uint64_t seq = seq_of(td), now = rt_now();

	if (seq != td->looked_seq) {
		td->looked_seq = seq;
		td->looked_at = now;
		return false;
	}
	return now - td->looked_at >= AWAY_NS;
}

/* What has outlived a tick, whoever is to blame. What only an owner's next call would find, if none came. */
static bool has_outlived(struct soft_td *td)
{
	uint64_t seq = seq_of(td);
	bool old = false, idle = seq == td->tick_seq;

	td->tick_seq = seq;
	for (unsigned place = 0; place < HOT_MAX; place++) {
		struct wire *wire = hot_at(&td->hot, place);

		old |= wire && wire_outlived(wire);
	}
	for (unsigned i = 0; i < td->n_words; i++) {
		struct td_word *word = &td->words[i];
		uint64_t bits = atomic_load_explicit(&word->cold, memory_order_relaxed);

		if (bits)
			bits &= ready_bits(word->pair, word->index);
		old |= bits & word->then;
		word->then = bits;
	}
	return old || (idle && (handed_in(td) || is_due(td) || hot_owes(td) ||
				       atomic_load_explicit(&td->watched, memory_order_relaxed)));
}

static bool wants_parking(struct soft_td *td, enum td_look look)
{
	switch (look) {
	case TD_WORK:
		return is_pending(td) && owner_is_away(td);
	case TD_SWEEP:
		return is_pending(td);
	case TD_TICK:
		return has_outlived(td);
	default:
		return false;
	}
}

/* --- rounds ------------------------------------------------------------------------------------------------------------------- */

static bool serve(struct soft_td *td, bool clock)
{
	bool did = td_round(td, clock);

	if (handed_in(td))
		rt.leftover = true;
	return did;
}

/* A few of the parked ones, in turns. */
static bool serve_some(bool clock)
{
	unsigned left = rt.parked < POLL_DOMAINS ? rt.parked : POLL_DOMAINS;
	struct soft_td *td = rt.td_turn;
	bool did = false;

	while (left) {
		if (!td)
			td = rt.tds;
		if (is_parked(td)) {
			did |= serve(td, clock);
			left--;
		}
		td = td->next;
	}
	rt.td_turn = td;
	return did;
}

bool td_serve(enum td_look look, bool clock)
{
	bool did = false, marked = false;

	if (look == TD_POLL)
		return rt.parked && serve_some(clock);
	for (struct soft_td *td = rt.tds; td; td = td->next)
		if (!is_parked(td) && wants_parking(td, look)) {
			td_park_begin(td);
			marked = true;
		}
	if (marked)
		td_park_all();
	for (struct soft_td *td = rt.tds; td; td = td->next) {
		uint64_t due = atomic_load_explicit(&td->due, memory_order_relaxed);

		if (is_parked(td))
			did |= serve(td, clock);
		else if (marked && look == TD_SWEEP && is_pending(td))
			rt.leftover = true; /* its owner was inside: once more */
		if (look == TD_WORK)
			continue;
		td_flush_counts(td);
		if (due)
			sleep_arm(due);
	}
	return did;
}
