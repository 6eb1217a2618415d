/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hazard slots: what an executing thread of ours touches in a peer, and what peers touch in us (datapath.md 4). Both
 * sides have a full barrier between their store and their look, so one of the two always sees the other. What this
 * process itself frees goes by counts of its own (map.c): a peer may have cleared the slots.
 */
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define KEPT_MAX (VSD_HAZARDS / 2) /* slots that thread domains may keep */

/* Only the thread that has the slot changes its count. */
static void turn(struct pair *pair, unsigned i, memory_order order)
{
	uint32_t n = atomic_load_explicit(&pair->priv->turns[i], memory_order_relaxed);

	atomic_store_explicit(&pair->priv->turns[i], n + 1, order);
}

/* The lowest that nobody has; -1: none. @most: so many may be taken. */
static int claim(struct pair *pair, unsigned most)
{
	_Atomic uint32_t *used = &pair->priv->hazards;
	uint32_t now = atomic_load_explicit(used, memory_order_relaxed);
	int i;

	do {
		if ((unsigned)__builtin_popcount(now) >= most)
			return -1;
		i = __builtin_ctz(~now);
	} while (!atomic_compare_exchange_weak(used, &now, now | 1u << i));
	return i;
}

void pair_hazard_give_back(struct pair *pair, int slot)
{
	if (slot >= 0)
		atomic_fetch_and(&pair->priv->hazards, ~(1u << slot));
}

static struct vsd_hazard *begin(struct pair *pair, int slot, uint32_t key, uint32_t peer_qpn)
{
	struct vsd_hazard *hazard = &pair->mem->sides[pair->side].hazards[slot];

	turn(pair, (unsigned)slot, memory_order_relaxed);
	atomic_store_explicit(&hazard->qpn, peer_qpn, memory_order_relaxed);
	atomic_store_explicit(&hazard->key, 1ull << 32 | key, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return hazard;
}

static int end(struct pair *pair, struct vsd_hazard *hazard)
{
	int slot = (int)(hazard - pair->mem->sides[pair->side].hazards);

	atomic_store_explicit(&hazard->key, 0, memory_order_release);
	atomic_store_explicit(&hazard->qpn, 0, memory_order_release);
	turn(pair, (unsigned)slot, memory_order_release);
	return slot;
}

struct vsd_hazard *pair_hazard_enter(struct pair *pair, uint32_t key, uint32_t peer_qpn)
{
	int slot = claim(pair, VSD_HAZARDS);

	return slot < 0 ? NULL : begin(pair, slot, key, peer_qpn);
}

void pair_hazard_leave(struct pair *pair, struct vsd_hazard *hazard)
{
	pair_hazard_give_back(pair, end(pair, hazard));
}

/* Where the wire's domain keeps one, or would. */
static int *keeps(const struct wire *wire)
{
	struct soft_td *td = atomic_load_explicit(&wire->td, memory_order_relaxed);

	return td && wire->pair->segment ? &td->words[wire->word].hazard : NULL;
}

struct vsd_hazard *wire_hazard_enter(struct wire *wire, uint32_t key)
{
	int *kept = keeps(wire);

	if (kept && *kept < 0)
		*kept = claim(wire->pair, KEPT_MAX);
	if (kept && *kept >= 0)
		return begin(wire->pair, *kept, key, wire->peer_qpn);
	return pair_hazard_enter(wire->pair, key, wire->peer_qpn);
}

void wire_hazard_leave(struct wire *wire, struct vsd_hazard *hazard)
{
	const int *kept = keeps(wire);
	int slot = end(wire->pair, hazard);

	if (!kept || slot != *kept)
		pair_hazard_give_back(wire->pair, slot);
}

static bool side_clear(const struct vsd_side *side, uint32_t key, uint32_t qpn)
{
	for (unsigned i = 0; i < VSD_HAZARDS; i++) {
		const struct vsd_hazard *hazard = &side->hazards[i];

		if (key && atomic_load_explicit(&hazard->key, memory_order_acquire) == (1ull << 32 | key))
			return false;
		if (qpn && atomic_load_explicit(&hazard->qpn, memory_order_acquire) == qpn)
			return false;
	}
	return true;
}

bool pair_hazards_clear(uint32_t key, uint32_t qpn)
{
	bool clear = true;

	atomic_thread_fence(memory_order_seq_cst);
	pthread_mutex_lock(&rt.pairs_lock);
	for (const struct pair *pair = rt.pairs; pair && clear; pair = pair->priv->next) {
		/* As the daemon granted it: a right that we took away ourselves binds the peer to nothing. */
		if (!(pair->priv->granted & (VSD__ENGINE_RIGHT__ENGINE_CMA | VSD__ENGINE_RIGHT__ENGINE_MAP)) ||
		    atomic_load(&pair->dead))
			continue;
		clear = side_clear(&pair->mem->sides[!pair->side], key, qpn);
	}
	for (unsigned side = 0; side < 2 && clear && rt.loop[side].mem; side++)
		clear = side_clear(&rt.loop[side].mem->sides[side], key, qpn);
	pthread_mutex_unlock(&rt.pairs_lock);
	return clear;
}
