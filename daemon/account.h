/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has how much of what. An account belongs to a domain; its parent is its uid's. A charge is taken on both
 * before anything is allocated, and lives in the object that it pays for.
 */
#ifndef DAEMON_ACCOUNT_H
#define DAEMON_ACCOUNT_H

#include <stdint.h>

enum slot {
	SLOT_SESSIONS,
	SLOT_FDS,
	SLOT_CONTEXTS,
	SLOT_PDS,
	SLOT_TDS,
	SLOT_PARENT_DOMAINS,
	SLOT_MRS,
	SLOT_MWS,
	SLOT_CQS,
	SLOT_SRQS,
	SLOT_QPS,
	SLOT_AHS,
	SLOT_WIRES,
	SLOT_QUEUE_BYTES,
	SLOT_SHARED_BYTES,
	SLOT_KEYS,
	SLOT_QPNS,
	SLOT_EVENTS,
	SLOT_REGIONS,
	SLOT_REGION_BYTES,
	SLOT_PERSISTENT_BYTES,
	SLOT_DMS,
	SLOT_DM_BYTES,
	SLOT_MCASTS,
	SLOT_REAL_CONTEXTS,
	SLOT_XRCDS,
	SLOT_PINNED_BYTES,
	SLOT_N,
};

struct slot_info {
	const char *name; /* the configuration's key as well */
	int error;        /* positive errno, as verbs users expect it */
	uint64_t limit;   /* by default, per uid */
	uint64_t max;     /* the configuration's bound */
};

extern const struct slot_info slot_info[SLOT_N];

struct account {
	struct account *parent; /* referenced */
	void (*free)(struct account *account);
	unsigned refs;
	uint64_t used[SLOT_N], limit[SLOT_N];
	uint64_t refused; /* charges refused since the start */
};

struct charge {
	struct account *account; /* NULL: nothing is charged */
	enum slot slot;
	uint64_t amount;
};

#define CHARGE_NULL                                                                               \
	{                                                                                         \
		.account = NULL                                                                   \
	}

/* One reference for the caller; @free is called when the last one goes. Limits are copied (SLOT_N of them). */
void account_init(struct account *account, struct account *parent, const uint64_t *limit,
	void (*free)(struct account *account));
struct account *account_ref(struct account *account);
struct account *account_unref(struct account *account);
/* New limits hold for new charges; what is over them already stays. */
void account_set_limits(struct account *account, const uint64_t *limit);

/* 0, or the slot's negative errno, in which case nothing was charged. @charge must be null. */
int charge_take(struct charge *charge, struct account *account, enum slot slot, uint64_t amount);
/* Makes it another amount; less is always granted. On failure it is what it was. */
int charge_change(struct charge *charge, uint64_t amount);
/* A charge may be null. */
void charge_release(struct charge *charge);

#endif
