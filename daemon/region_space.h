/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where shared regions lie, for everybody: a range of addresses that no other region has, and a key that no client was
 * leased. Neither is given again soon.
 */
#ifndef DAEMON_REGION_SPACE_H
#define DAEMON_REGION_SPACE_H

#include <stdint.h>

#include "daemon/lease.h"
#include "daemon/list.h"

/*
 * Addresses: above what sanitizers and small programs use, below where programs and their libraries are loaded, so that
 * a process can nearly always map a region at its address.
 */
#define REGION_SPACE_FIRST 0x110000000000ull
#define REGION_SPACE_END   0x500000000000ull

struct region_range {
	struct list link; /* in the order of addresses; not in the list: no range */
	uint64_t base, size;
};

struct region_key_unit {
	uint32_t unit; /* of the server's pool */
	uint64_t taken[64];
};

struct region_space {
	struct list ranges;
	struct region_range
		*last; /* the one given last, or before it; NULL: begin at the first address */
	struct lease_pool *pool;
	struct region_key_unit **units;
	uint32_t n_units, n_keys; /* keys in use */
	uint32_t next;            /* index over all units of the next key to try */
};

void region_space_init(struct region_space *space, struct lease_pool *pool);
/* Nothing may be in use. */
void region_space_deinit(struct region_space *space);

/* @align is a power of two. 0, or -ENOSPC. */
int region_range_take(
	struct region_space *space, uint64_t size, uint64_t align, struct region_range *range);
void region_range_give(struct region_space *space, struct region_range *range);

/* The index of a key: 0, -ENOSPC or -ENOMEM. */
int region_key_take(struct region_space *space, uint32_t *index);
void region_key_give(struct region_space *space, uint32_t index);

#endif
