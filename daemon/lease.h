/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges of numbers (QPNs, key indexes) that clients choose from without asking. Both spaces are the daemon's, one for
 * all devices. A freed range rests behind all that were freed before it.
 */
#ifndef DAEMON_LEASE_H
#define DAEMON_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/account.h"
#include "daemon/list.h"

/* Ranges that one attachment may have of one kind. */
#define LEASES_MAX 64

enum lease_kind {
	LEASE_KIND_QPN = 1,
	LEASE_KIND_KEY = 2,
};

/* A space of 2^24 numbers in units. Unit 0 is never given (QPN 0 and 1, key index 0). */
struct lease_pool {
	enum slot slot; /* what it is charged as */
	unsigned shift; /* numbers of a unit, as a power of two */
	uint32_t units;
	uint32_t fresh;  /* units from here on were never given */
	uint32_t stamp;  /* grows with each range that is freed */
	uint32_t *freed; /* stamp when a unit was freed; LEASE_UNIT_USED: in use; 0: never given */
};

#define LEASE_UNIT_USED UINT32_MAX

struct lease {
	struct list link; /* of its attachment */
	struct lease_pool *pool;
	uint32_t first, count; /* numbers */
	struct charge charge;
	uint64_t *taken; /* bit per number that an object has; NULL: none yet */
};

int lease_pool_init(struct lease_pool *pool, enum slot slot, unsigned shift);
void lease_pool_deinit(struct lease_pool *pool);
/* @units is a power of two. 0 and the first unit, or -ENOSPC. */
int lease_pool_take(struct lease_pool *pool, uint32_t units, uint32_t *unit);
void lease_pool_give(struct lease_pool *pool, uint32_t unit, uint32_t units);

/*
 * A range of at least @wanted numbers, and of as many as @leases (the attachment's) has already; less when the space or the
 * account do not allow it, but never less than a unit. 0, -ENOSPC, -ENOMEM.
 */
int lease_new(struct lease_pool *pool, struct account *account, struct list *leases,
	uint32_t wanted, struct lease **lease);
struct lease *lease_free(struct lease *lease);

/* Takes @number for an object: 0, -EINVAL when it is in no range of @leases, -EEXIST when an object has it. */
int lease_number_take(struct list *leases, uint32_t number);
void lease_number_give(struct list *leases, uint32_t number);

#endif
