/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what one user takes must not be missing for another. Guarantees: an account is never over its limit by a charge
 * that was granted; a charge keeps its account alive; sums do not overflow.
 */
#include "daemon/account.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/refuse.h"

#define BIG (1ull << 62)

/* clang-format off */
const struct slot_info slot_info[SLOT_N] = {
	/*			  key			errno	default		bound */
	[SLOT_SESSIONS]	      = { "sessions",		EAGAIN,	8192,		1 << 20 },
	[SLOT_FDS]	      = { "fds",		ENFILE,	1 << 20,	1 << 20 },
	[SLOT_CONTEXTS]	      = { "contexts",		ENOMEM,	16384,		1 << 20 },
	[SLOT_PDS]	      = { "pds",		ENOMEM,	65536,		1 << 24 },
	[SLOT_TDS]	      = { "tds",		ENOMEM,	65536,		1 << 24 },
	[SLOT_PARENT_DOMAINS] = { "parent_domains",	ENOMEM,	65536,		1 << 24 },
	[SLOT_MRS]	      = { "mrs",		ENOMEM,	1 << 21,	1 << 24 },
	[SLOT_MWS]	      = { "mws",		ENOMEM,	1 << 18,	1 << 24 },
	[SLOT_CQS]	      = { "cqs",		ENOMEM,	1 << 18,	1 << 24 },
	[SLOT_SRQS]	      = { "srqs",		ENOMEM,	65536,		1 << 24 },
	[SLOT_QPS]	      = { "qps",		ENOMEM,	1 << 18,	1 << 24 },
	[SLOT_AHS]	      = { "ahs",		ENOMEM,	1 << 20,	1 << 24 },
	[SLOT_WIRES]	      = { "wires",		ENOMEM,	1 << 18,	1 << 24 },
	[SLOT_QUEUE_BYTES]    = { "queue_bytes",	ENOMEM,	1ull << 38,	BIG },
	[SLOT_SHARED_BYTES]   = { "shared_bytes",	EDQUOT,	1ull << 42,	BIG },
	[SLOT_KEYS]	      = { "keys",		ENOSPC,	12u << 20,	1 << 24 },
	[SLOT_QPNS]	      = { "qpns",		ENOSPC,	8u << 20,	1 << 24 },
	[SLOT_EVENTS]	      = { "events",		ENOSPC,	16384,		1 << 24 },
	[SLOT_REGIONS]	      = { "regions",		EDQUOT,	16384,		1 << 20 },
	[SLOT_REGION_BYTES]   = { "region_bytes",	EDQUOT,	1ull << 40,	BIG },
	[SLOT_PERSISTENT_BYTES] = { "persistent_bytes",	EDQUOT,	64ull << 30,	BIG },
	[SLOT_DMS]	      = { "dms",		ENOMEM,	16384,		1 << 20 },
	[SLOT_DM_BYTES]	      = { "dm_bytes",		ENOMEM,	1ull << 30,	BIG },
	[SLOT_MCASTS]	      = { "mcasts",		ENOMEM,	65536,		1 << 24 },
	[SLOT_REAL_CONTEXTS]  = { "real_contexts",	ENOMEM,	4096,		1 << 20 },
	[SLOT_XRCDS]	      = { "xrcds",		ENOMEM,	16384,		1 << 20 },
	[SLOT_PINNED_BYTES]   = { "pinned_bytes",	ENOMEM,	64ull << 30,	BIG },
};
/* clang-format on */

void account_init(struct account *account, struct account *parent, const uint64_t *limit,
	void (*free)(struct account *account))
{
	*account = (struct account){ .parent = account_ref(parent), .free = free, .refs = 1 };
	account_set_limits(account, limit);
}

struct account *account_ref(struct account *account)
{
	if (account)
		account->refs++;
	return account;
}

struct account *account_unref(struct account *account)
{
	if (!account)
		return NULL;
	assert(account->refs > 0);
	if (--account->refs == 0) {
		for (unsigned i = 0; i < SLOT_N; i++)
			assert(account->used[i] == 0);
		struct account *parent = account->parent;

		account->free(account);
		account_unref(parent);
	}
	return NULL;
}

void account_set_limits(struct account *account, const uint64_t *limit)
{
	memcpy(account->limit, limit, sizeof(account->limit));
}

int charge_take(struct charge *charge, struct account *account, enum slot slot, uint64_t amount)
{
	assert(!charge->account);
	for (struct account *a = account; a; a = a->parent) {
		if (a->used[slot] > a->limit[slot] || amount > a->limit[slot] - a->used[slot]) {
			account->refused++;
			return refuse_quota(-slot_info[slot].error, slot_info[slot].name);
		}
	}
	for (struct account *a = account; a; a = a->parent)
		a->used[slot] += amount;
	*charge =
		(struct charge){ .account = account_ref(account), .slot = slot, .amount = amount };
	return 0;
}

int charge_change(struct charge *charge, uint64_t amount)
{
	uint64_t old = charge->amount;
	struct charge more = CHARGE_NULL;

	assert(charge->account);
	if (amount > old) {
		int r = charge_take(&more, charge->account, charge->slot, amount - old);

		if (r < 0)
			return r;
		more.amount = 0; /* what it took is the other's from here on */
	}
	charge_release(&more);
	for (struct account *a = charge->account; a && amount < old; a = a->parent) {
		assert(a->used[charge->slot] >= old - amount);
		a->used[charge->slot] -= old - amount;
	}
	charge->amount = amount;
	return 0;
}

void charge_release(struct charge *charge)
{
	if (!charge->account)
		return;
	for (struct account *a = charge->account; a; a = a->parent) {
		assert(a->used[charge->slot] >= charge->amount);
		a->used[charge->slot] -= charge->amount;
	}
	account_unref(charge->account);
	*charge = (struct charge)CHARGE_NULL;
}
