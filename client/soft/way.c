/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trials of one size run one after the other, the way that is kept first, so that both are of the same hour.
 */
#include "client/soft/way.h"

#include <string.h>

#define SIZE_FIRST 15u /* the first size ends with 2^15 bytes */

/* The other one has to take this much less: noise is no reason. */
#define BETTER 0.875

unsigned way_size(uint32_t length)
{
	unsigned log = length > 1 ? 32 - (unsigned)__builtin_clz(length - 1) : 0;

	if (log <= SIZE_FIRST)
		return 0;
	return log - SIZE_FIRST < WAY_SIZES ? log - SIZE_FIRST : WAY_SIZES - 1;
}

/* Whether the one takes longer, byte for byte. Nothing at all does not. */
static bool is_slower(uint64_t ns, uint64_t bytes, uint64_t ns_then, uint64_t bytes_then)
{
	return !bytes_then || (double)ns * (double)bytes_then > (double)ns_then * (double)bytes;
}

static void trial_add(struct way_trial *trial, uint64_t bytes, uint64_t ns)
{
	trial->n++;
	trial->ns += ns;
	trial->bytes += bytes;
	for (unsigned i = 0; i < WAY_TRIM; i++) {
		uint64_t ns_then = trial->worst[i].ns, bytes_then = trial->worst[i].bytes;

		if (!is_slower(ns, bytes, ns_then, bytes_then))
			continue;
		trial->worst[i].ns = ns;
		trial->worst[i].bytes = bytes;
		ns = ns_then;
		bytes = bytes_then;
	}
}

/* Nanoseconds a byte. */
static double trial_cost(const struct way_trial *trial)
{
	uint64_t ns = trial->ns, bytes = trial->bytes;

	for (unsigned i = 0; i < WAY_TRIM; i++) {
		ns -= trial->worst[i].ns;
		bytes -= trial->worst[i].bytes;
	}
	return (double)ns / (double)(bytes ? bytes : 1);
}

static enum way other(enum way way)
{
	return way == WAY_FETCH ? WAY_CHUNKS : WAY_FETCH;
}

static void set_use(struct way_size *size, enum way way)
{
	atomic_store_explicit(&size->use, way, memory_order_relaxed);
	size->skip = 0;
}

static void hold(struct way_size *size, enum way way, unsigned n)
{
	size->kept = way;
	size->hold = size->left = n < WAY_HOLD_MAX ? n : WAY_HOLD_MAX;
	size->missed = size->away = 0;
	set_use(size, way);
	memset(size->trials, 0, sizeof(size->trials));
}

static void settle(struct way_size *size)
{
	enum way tried = other(size->kept);

	if (trial_cost(&size->trials[tried]) < BETTER * trial_cost(&size->trials[size->kept]))
		hold(size, tried, WAY_HOLD);
	else
		hold(size, size->kept, size->hold ? 2 * size->hold : WAY_HOLD);
}

static void took(struct way_size *size, enum way way, uint64_t bytes, uint64_t ns)
{
	struct way_trial *trial = &size->trials[way];

	if (way != atomic_load_explicit(&size->use, memory_order_relaxed))
		return; /* begun before it changed */
	if (size->left) {
		size->left--;
		return;
	}
	if (size->skip < WAY_SKIP) {
		size->skip++;
		return;
	}
	trial_add(trial, bytes, ns);
	if (trial->n < WAY_TRIAL)
		return;
	if (way == size->kept)
		set_use(size, other(way));
	else
		settle(size);
}

static void missed(struct way_size *size, bool away)
{
	unsigned n = away ? WAY_AWAY : 1;

	if (size->left) {
		size->left -= n < size->left ? n : size->left;
		return;
	}
	size->missed++;
	size->away += away;
	if (size->missed == WAY_MISSED)
		hold(size, size->away > WAY_MISSED / 2 ? WAY_FETCH : size->kept, WAY_HOLD);
}

static bool enter(struct ways *ways)
{
	return !atomic_load_explicit(&ways->busy, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&ways->busy, true, memory_order_acquire);
}

static void leave(struct ways *ways)
{
	atomic_store_explicit(&ways->busy, false, memory_order_release);
}

void ways_took(struct ways *ways, unsigned size, enum way way, uint64_t bytes, uint64_t ns)
{
	if (!enter(ways))
		return;
	took(&ways->sizes[size], way, bytes, ns);
	leave(ways);
}

void ways_missed(struct ways *ways, unsigned size, bool away)
{
	if (!enter(ways))
		return;
	missed(&ways->sizes[size], away);
	leave(ways);
}

void way_run_add(struct way_run *run, uint32_t length, enum way way)
{
	unsigned size = way_size(length);

	if (!run->waiting)
		return; /* a refusal ended the run, and this was before it */
	run->waiting--;
	run->mixed |= run->bytes && (size != run->size || way != run->way);
	run->bytes += length;
	run->size = size;
	run->way = way;
}

void way_run_mix(struct way_run *run)
{
	run->mixed |= run->since != 0;
}

void way_run_turn(struct way_run *run, struct ways *ways, uint64_t now, bool away)
{
	if (run->bytes && (away || run->mixed))
		ways_missed(ways, run->size, away);
	else if (run->bytes)
		ways_took(ways, run->size, run->way, run->bytes, now - run->since);
	*run = (struct way_run){ .waiting = run->waiting, .since = run->waiting ? now : 0 };
}
