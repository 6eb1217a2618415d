/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hazard slots: what an executing thread of ours touches in a peer, and what peers touch in us (datapath.md 4). Both
 * sides have a full barrier between their store and their look, so one of the two always sees the other. What this
 * process itself frees goes by counts of its own (map.c): a peer may have cleared the slots. Likewise what a slot names of
 * this process's own: the barrier serves both, so a copy needs no other hold of its local region.
 */
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define KEPT_MAX (VSD_HAZARDS / 2) /* slots that thread domains and wires may keep */

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

static struct vsd_hazard *begin(struct pair *pair, int slot, uint32_t key, uint32_t peer_qpn, const void *local)
{
	struct vsd_hazard *hazard = &pair->mem->sides[pair->side].hazards[slot];

	turn(pair, (unsigned)slot, memory_order_relaxed);
	atomic_store_explicit(&pair->priv->locals[slot], local, memory_order_release);
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
	atomic_store_explicit(&pair->priv->locals[slot], NULL, memory_order_release);
	turn(pair, (unsigned)slot, memory_order_release);
	return slot;
}

struct vsd_hazard *pair_hazard_enter(struct pair *pair, uint32_t key, uint32_t peer_qpn)
{
	int slot = claim(pair, VSD_HAZARDS);

	return slot < 0 ? NULL : begin(pair, slot, key, peer_qpn, NULL);
}

void pair_hazard_leave(struct pair *pair, struct vsd_hazard *hazard)
{
	pair_hazard_give_back(pair, end(pair, hazard));
}

/* Where the wire or its domain keeps one, or would. */
static int *keeps(struct wire *wire)
{
	struct soft_td *td = atomic_load_explicit(&wire->td, memory_order_relaxed);

	if (!wire->pair->segment)
		return NULL;
	return td ? &td->words[wire->word].hazard : &wire->hazard;
}

struct vsd_hazard *wire_hazard_enter(struct wire *wire, uint32_t key, const void *local)
{
	struct pair *pair = wire->pair;
	int *kept = keeps(wire), slot;

	if (kept && *kept < 0)
		*kept = claim(pair, KEPT_MAX);
	slot = kept && *kept >= 0 ? *kept : claim(pair, VSD_HAZARDS);
	return slot < 0 ? NULL : begin(pair, slot, key, wire->peer_qpn, local);
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

/* A slot is claimed by a locked instruction: one that is not seen here is taken by who finds the region gone. */
static bool names_local(const struct pair_private *priv, const void *local)
{
	uint32_t used = atomic_load(&priv->hazards);

	for (; used; used &= used - 1)
		if (atomic_load_explicit(&priv->locals[__builtin_ctz(used)], memory_order_acquire) == local)
			return true;
	return false;
}

bool pair_local_named(const void *local)
{
	bool named = false;

	atomic_thread_fence(memory_order_seq_cst);
	pthread_mutex_lock(&rt.pairs_lock);
	/* Threads of ours: it does not matter whether the peer lives. */
	for (const struct pair *pair = rt.pairs; pair && !named; pair = pair->priv->next)
		named = names_local(pair->priv, local);
	for (unsigned side = 0; side < 2 && !named && rt.loop[side].priv; side++)
		named = names_local(rt.loop[side].priv, local);
	pthread_mutex_unlock(&rt.pairs_lock);
	return named;
}
