/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a region has one address and one key in every process, so they are the server's to give. Guarantees: ranges of
 * living regions never overlap and never touch; a key that was given back rests until at least half a unit of others
 * were given after it.
 */
#include "daemon/region_space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define UNIT_KEYS 4096u

void region_space_init(struct region_space *space, struct lease_pool *pool)
{
	*space = (struct region_space){ .pool = pool };
	list_init(&space->ranges);
}

void region_space_deinit(struct region_space *space)
{
	assert(list_empty(&space->ranges) && space->n_keys == 0);
	for (uint32_t i = 0; i < space->n_units; i++) {
		lease_pool_give(space->pool, space->units[i]->unit, 1);
		free(space->units[i]);
	}
	free(space->units);
	region_space_init(space, space->pool);
}

/* ---- addresses ---- */

/* Puts @range between @before (the list's head: first of all) and the one behind it, if it fits there. */
static int range_fit(struct region_space *space, struct list *before, uint64_t size,
	uint64_t align, struct region_range *range)
{
	struct list *after = before->next;
	uint64_t from = REGION_SPACE_FIRST, to = REGION_SPACE_END;

	if (before != &space->ranges) {
		const struct region_range *left = container_of(before, struct region_range, link);

		/* Not at its very end: what runs over it hits nothing. */
		from = left->base + left->size + 1;
	}
	if (after != &space->ranges)
		to = container_of(after, struct region_range, link)->base - 1;
	from = (from + align - 1) & ~(align - 1);
	if (from > to || size > to - from)
		return -ENOSPC;
	range->base = from;
	range->size = size;
	list_append(after, &range->link);
	space->last = range;
	return 0;
}

int region_range_take(
	struct region_space *space, uint64_t size, uint64_t align, struct region_range *range)
{
	struct list *start = space->last ? &space->last->link : &space->ranges, *at = start;

	do {
		if (range_fit(space, at, size, align, range) == 0)
			return 0;
		at = at->next;
	} while (at != start);
	return -ENOSPC;
}

void region_range_give(struct region_space *space, struct region_range *range)
{
	struct list *before = range->link.prev;

	if (list_empty(&range->link))
		return;
	if (space->last == range)
		space->last = before == &space->ranges
				      ? NULL
				      : container_of(before, struct region_range, link);
	list_remove(&range->link);
}

/* ---- keys ---- */

static int unit_add(struct region_space *space)
{
	struct region_key_unit *unit = calloc(1, sizeof(*unit)), **units;
	int r;

	units = reallocarray(space->units, space->n_units + 1, sizeof(struct region_key_unit *));
	if (units)
		space->units = units;
	if (!unit || !units) {
		free(unit);
		return -ENOMEM;
	}
	r = lease_pool_take(space->pool, 1, &unit->unit);
	if (r < 0) {
		free(unit);
		return r;
	}
	/* The new one is the next to be given from. */
	space->next = space->n_units * UNIT_KEYS;
	space->units[space->n_units++] = unit;
	return 0;
}

static uint32_t first_of(const struct region_space *space, const struct region_key_unit *unit)
{
	return unit->unit << space->pool->shift;
}

int region_key_take(struct region_space *space, uint32_t *index)
{
	uint32_t size = space->n_units * UNIT_KEYS;
	int r;

	if (space->n_keys >= size / 2) {
		r = unit_add(space);
		if (r < 0 && space->n_keys == size)
			return r;
		size = space->n_units * UNIT_KEYS;
	}
	for (;; space->next++) {
		struct region_key_unit *unit;
		uint32_t i;

		space->next %= size;
		unit = space->units[space->next / UNIT_KEYS];
		i = space->next % UNIT_KEYS;
		if (unit->taken[i / 64] & 1ull << i % 64)
			continue;
		unit->taken[i / 64] |= 1ull << i % 64;
		space->n_keys++;
		space->next++;
		*index = first_of(space, unit) + i;
		return 0;
	}
}

void region_key_give(struct region_space *space, uint32_t index)
{
	for (uint32_t n = 0; n < space->n_units; n++) {
		struct region_key_unit *unit = space->units[n];
		uint32_t i = index - first_of(space, unit);

		if (i >= UNIT_KEYS)
			continue;
		assert(unit->taken[i / 64] & 1ull << i % 64);
		unit->taken[i / 64] &= ~(1ull << i % 64);
		space->n_keys--;
		return;
	}
	assert(!"a key of the regions");
}
