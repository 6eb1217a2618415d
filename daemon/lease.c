/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: creating a QP or an MR must not cost a round trip for its number, and a stale number must not match soon.
 * Guarantees: no number is in two ranges; of all ranges that fit, the one that was freed longest ago is given, unused
 * ones before all; what a range holds is charged before it is given.
 */
#include "daemon/lease.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/refuse.h"

#define SPACE_BITS 24

int lease_pool_init(struct lease_pool *pool, enum slot slot, unsigned shift)
{
	*pool = (struct lease_pool){
		.slot = slot, .shift = shift, .units = 1u << (SPACE_BITS - shift), .fresh = 1
	};
	pool->freed = calloc(pool->units, sizeof(*pool->freed));
	return pool->freed ? 0 : -ENOMEM;
}

void lease_pool_deinit(struct lease_pool *pool)
{
	free(pool->freed);
	pool->freed = NULL;
}

static void mark(struct lease_pool *pool, uint32_t unit, uint32_t units, uint32_t stamp)
{
	for (uint32_t i = 0; i < units; i++)
		pool->freed[unit + i] = stamp;
}

/* Youngest stamp of a window, LEASE_UNIT_USED when it is not free. */
static uint32_t window_age(const struct lease_pool *pool, uint32_t unit, uint32_t units)
{
	uint32_t youngest = 0;

	for (uint32_t i = 0; i < units; i++) {
		if (pool->freed[unit + i] > youngest)
			youngest = pool->freed[unit + i];
	}
	return youngest;
}

int lease_pool_take(struct lease_pool *pool, uint32_t units, uint32_t *unit)
{
	uint32_t best = 0, best_age = LEASE_UNIT_USED;

	if (units <= pool->units - pool->fresh) {
		best = pool->fresh;
		pool->fresh += units;
	} else {
		for (uint32_t i = 1; i + units <= pool->units; i += units) {
			uint32_t age = window_age(pool, i, units);

			if (age < best_age) {
				best = i;
				best_age = age;
			}
		}
		if (best == 0)
			return -ENOSPC;
		if (best + units > pool->fresh)
			pool->fresh = best + units;
	}
	mark(pool, best, units, LEASE_UNIT_USED);
	*unit = best;
	return 0;
}

void lease_pool_give(struct lease_pool *pool, uint32_t unit, uint32_t units)
{
	if (pool->stamp < LEASE_UNIT_USED - 1)
		pool->stamp++;
	mark(pool, unit, units, pool->stamp);
}

static uint32_t leased(const struct list *leases, unsigned *n)
{
	uint32_t sum = 0;

	*n = 0;
	list_for_each (pos, leases) {
		sum += container_of(pos, struct lease, link)->count;
		++*n;
	}
	return sum;
}

static uint32_t units_for(const struct lease_pool *pool, uint32_t numbers)
{
	uint32_t units = 1;

	while (units < pool->units / 2 && units << pool->shift < numbers)
		units *= 2;
	return units;
}

int lease_new(struct lease_pool *pool, struct account *account, struct list *leases,
	uint32_t wanted, struct lease **lease)
{
	struct lease *made;
	uint32_t units, unit, have;
	unsigned n;
	int r;

	have = leased(leases, &n);
	if (n >= LEASES_MAX)
		return refuse(-ENOSPC, "%u ranges already", n);
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	units = units_for(pool, wanted > have ? wanted : have);
	for (;;) {
		r = charge_take(
			&made->charge, account, pool->slot, (uint64_t)units << pool->shift);
		if (r == 0) {
			r = lease_pool_take(pool, units, &unit);
			if (r == 0)
				break;
			charge_release(&made->charge);
		}
		if (units == 1) {
			free(made);
			return r;
		}
		units /= 2;
	}
	made->pool = pool;
	made->first = unit << pool->shift;
	made->count = units << pool->shift;
	list_append(leases, &made->link);
	*lease = made;
	return 0;
}

struct lease *lease_free(struct lease *lease)
{
	if (!lease)
		return NULL;
	list_remove(&lease->link);
	lease_pool_give(lease->pool, lease->first >> lease->pool->shift,
		lease->count >> lease->pool->shift);
	charge_release(&lease->charge);
	free(lease->taken);
	free(lease);
	return NULL;
}

static struct lease *lease_find(struct list *leases, uint32_t number)
{
	list_for_each (pos, leases) {
		struct lease *lease = container_of(pos, struct lease, link);

		if (number >= lease->first && number - lease->first < lease->count)
			return lease;
	}
	return NULL;
}

int lease_number_take(struct list *leases, uint32_t number)
{
	struct lease *lease = lease_find(leases, number);
	uint32_t i;

	if (!lease)
		return refuse(-EINVAL, "number 0x%x is not leased to it", number);
	if (!lease->taken) {
		lease->taken = calloc(lease->count / 64, sizeof(*lease->taken));
		if (!lease->taken)
			return -ENOMEM;
	}
	i = number - lease->first;
	if (lease->taken[i / 64] & 1ull << i % 64)
		return refuse(-EEXIST, "number 0x%x is in use", number);
	lease->taken[i / 64] |= 1ull << i % 64;
	return 0;
}

void lease_number_give(struct list *leases, uint32_t number)
{
	struct lease *lease = lease_find(leases, number);
	uint32_t i;

	if (!lease)
		return;
	i = number - lease->first;
	lease->taken[i / 64] &= ~(1ull << i % 64);
}
