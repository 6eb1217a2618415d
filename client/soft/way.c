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

static void trial_add(struct way_trial *trial, uint64_t bytes, uint64_t ns)
{
	trial->n++;
	trial->ns += ns;
	trial->bytes += bytes;
	for (unsigned i = 0; i < WAY_TRIM; i++) {
		uint64_t ns_then = trial->worst[i].ns, bytes_then = trial->worst[i].bytes;

		if (ns <= ns_then)
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

static void settle(struct way_size *size)
{
	enum way tried = other(size->kept);

	if (trial_cost(&size->trials[tried]) < BETTER * trial_cost(&size->trials[size->kept])) {
		size->kept = tried;
		size->hold = WAY_HOLD;
	} else {
		size->hold = size->hold ? 2 * size->hold : WAY_HOLD;
		if (size->hold > WAY_HOLD_MAX)
			size->hold = WAY_HOLD_MAX;
	}
	size->left = size->hold;
	set_use(size, size->kept);
	memset(size->trials, 0, sizeof(size->trials));
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

void ways_took(struct ways *ways, unsigned size, enum way way, uint64_t bytes, uint64_t ns)
{
	if (atomic_exchange_explicit(&ways->busy, true, memory_order_acquire))
		return;
	took(&ways->sizes[size], way, bytes, ns);
	atomic_store_explicit(&ways->busy, false, memory_order_release);
}

void way_run_add(struct way_run *run, uint32_t length, enum way way)
{
	unsigned size = way_size(length);

	run->mixed |= run->bytes && (size != run->size || way != run->way);
	run->bytes += length;
	run->size = size;
	run->way = way;
}

void way_run_turn(struct way_run *run, struct ways *ways, uint64_t now, bool wait)
{
	if (ways && run->bytes && !run->mixed)
		ways_took(ways, run->size, run->way, run->bytes, now - run->since);
	*run = (struct way_run){ .since = wait ? now : 0 };
}
