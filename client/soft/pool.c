/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The payload pools of a pair: 64 chunks a direction and kind, a bit each. A chunk belongs to the slot that names it
 * until the peer has taken that slot; when the wire goes first, the chunk strays until the peer cannot read it any more.
 */
#include <stdlib.h>

#include "client/control/control.h"
#include "client/soft/lane.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"

static uint8_t *chunk_at(struct pair *pair, enum pool_kind kind, int chunk)
{
	struct vsd_pool *pool = kind == POOL_REQ ? &pair->mem->pools[pair->side].req :
						   &pair->mem->pools[pair->side].resp;

	return pool->chunks[chunk];
}

void *pair_chunk(struct pair *pair, enum pool_kind kind, int chunk)
{
	return chunk_at(pair, kind, chunk);
}

static int chunk_take(struct pair *pair, enum pool_kind kind)
{
	struct pool_state *pool = &pair->priv->pools[kind];
	uint64_t free = atomic_load_explicit(&pool->free, memory_order_relaxed);

	while (free) {
		int next = atomic_load_explicit(&pool->next, memory_order_relaxed);
		int chunk = free >> next & 1 ? next : __builtin_ctzll(free);
		uint64_t bit = 1ull << chunk;

		if (!atomic_compare_exchange_weak(&pool->free, &free, free & ~bit))
			continue;
		if (atomic_load_explicit(&pool->populated, memory_order_relaxed) & bit)
			return chunk;
		if (rt_populate(chunk_at(pair, kind, chunk), VSD_CHUNK) == 0) {
			atomic_fetch_or(&pool->populated, bit);
			atomic_store(&pool->short_at, 0);
			return chunk;
		}
		atomic_fetch_or(&pool->free, bit);
		atomic_store(&pool->short_at, rt_now());
		return -1; /* out of memory: the next turn tries again */
	}
	return -1;
}

/*
 * The lines of a chunk are at the peer's processor, which has read them, and come back one after the other. So they are asked
 * for before there is something to be written, for the next message.
 */
void pair_chunk_ahead(struct pair *pair, enum pool_kind kind, size_t n)
{
	struct pool_state *pool = &pair->priv->pools[kind];
	uint64_t free = atomic_load_explicit(&pool->free, memory_order_relaxed);
	const uint8_t *lines;
	int next;

	if (!free)
		return;
	next = __builtin_ctzll(free);
	atomic_store_explicit(&pool->next, next, memory_order_relaxed);
	lines = chunk_at(pair, kind, next);
	for (size_t i = 0; i < n; i += VSD_LINE)
		line_own(lines + i);
}

/* True once the peer has read the chunk, or does not look at that half any more. */
static bool stray_done(const struct pool_stray *stray)
{
	uint64_t taken = atomic_load_explicit(stray->kind == POOL_REQ ? &stray->theirs->req_taken :
									&stray->theirs->resp_taken,
					      memory_order_acquire);

	return atomic_load_explicit(&stray->theirs->state, memory_order_acquire) != stray->state || taken > stray->pos;
}

/* Its chunk is free. pool_lock held. */
static void stray_end(struct pair_private *priv, struct pool_stray **at)
{
	struct pool_stray *stray = *at;

	atomic_fetch_or(&priv->pools[stray->kind].free, 1ull << stray->chunk);
	*at = stray->next;
	free(stray);
}

/* pool_lock held. */
static void strays_look(struct pair_private *priv)
{
	for (struct pool_stray **at = &priv->strays; *at;) {
		if (stray_done(*at))
			stray_end(priv, at);
		else
			at = &(*at)->next;
	}
}

/* pool_lock held. */
static void waiter_add(struct pair *pair, enum pool_kind kind, struct soft_qp *qp)
{
	struct pair_private *priv = pair->priv;

	if (qp->pool_prev) {
		qp->pool_kinds |= (uint8_t)(1u << kind);
		return;
	}
	qp->pool_kinds = (uint8_t)(1u << kind);
	atomic_store(&qp->pool_pair, pair);
	qp->pool_next = NULL;
	qp->pool_prev = priv->waiters_tail;
	*priv->waiters_tail = qp;
	priv->waiters_tail = &qp->pool_next;
	atomic_store(&priv->waiting, true);
	atomic_store(&pair->mem->sides[pair->side].want_pool, 1);
}

/* pool_lock held. */
static void waiter_remove(struct pair *pair, struct soft_qp *qp)
{
	struct pair_private *priv = pair->priv;

	*qp->pool_prev = qp->pool_next;
	if (qp->pool_next)
		qp->pool_next->pool_prev = qp->pool_prev;
	else
		priv->waiters_tail = qp->pool_prev;
	qp->pool_prev = NULL;
	qp->pool_next = NULL;
	atomic_store(&qp->pool_pair, NULL);
	if (!priv->waiters) {
		atomic_store(&priv->waiting, false);
		atomic_store(&pair->mem->sides[pair->side].want_pool, 0);
	}
}

/* Waits for this kind no more. pool_lock held. */
static void waiter_drop(struct pair *pair, enum pool_kind kind, struct soft_qp *qp)
{
	qp->pool_kinds &= (uint8_t)~(1u << kind);
	if (!qp->pool_kinds)
		waiter_remove(pair, qp);
}

int pair_chunk_get(struct pair *pair, enum pool_kind kind, struct soft_qp *waiter)
{
	int chunk = chunk_take(pair, kind);

	if (chunk >= 0)
		return chunk;
	/* It has another wire since it waited, or another datagram: one list at a time. */
	if (waiter) {
		const struct pair *before = atomic_load(&waiter->pool_pair);

		if (before && before != pair)
			pair_forget_waiter(waiter);
	}
	pthread_mutex_lock(&pair->priv->pool_lock);
	strays_look(pair->priv);
	if (waiter)
		waiter_add(pair, kind, waiter);
	/* Once more: one may have come back before the wish was known. */
	chunk = chunk_take(pair, kind);
	if (chunk >= 0 && waiter)
		waiter_drop(pair, kind, waiter);
	pthread_mutex_unlock(&pair->priv->pool_lock);
	return chunk;
}

/* The first QP that waits for this kind goes on, and asks again for whatever it wants. False: none does. pool_lock held. */
static bool waiter_wake(struct pair *pair, unsigned kind)
{
	struct soft_qp *qp = pair->priv->waiters;

	while (qp && !(qp->pool_kinds >> kind & 1))
		qp = qp->pool_next;
	if (!qp)
		return false;
	waiter_remove(pair, qp);
	rt_run_later(qp);
	return true;
}

/*
 * Who was woken may have had no use for the chunk: its lane was full, or it failed meanwhile. And nobody says when a stray
 * has come back.
 */
bool pool_wake(struct pair *pair)
{
	struct pair_private *priv = pair->priv;
	bool did = false;

	if (!atomic_load(&priv->waiting))
		return false;
	pthread_mutex_lock(&priv->pool_lock);
	strays_look(priv);
	for (unsigned kind = 0; kind < 2; kind++) {
		uint64_t short_at = atomic_load(&priv->pools[kind].short_at);
		int n = __builtin_popcountll(atomic_load(&priv->pools[kind].free));

		if (short_at && rt_now() - short_at < 10 * TICK_NS)
			continue;
		while (n-- > 0 && waiter_wake(pair, kind))
			did = true;
	}
	pthread_mutex_unlock(&priv->pool_lock);
	return did;
}

void pool_abandon(struct pair *pair)
{
	struct pair_private *priv = pair->priv;

	pthread_mutex_lock(&priv->pool_lock);
	while (priv->waiters) {
		struct soft_qp *qp = priv->waiters;

		waiter_remove(pair, qp);
		rt_run_later(qp);
	}
	pthread_mutex_unlock(&priv->pool_lock);
}

void pair_chunk_put(struct pair *pair, enum pool_kind kind, int chunk)
{
	struct pair_private *priv = pair->priv;

	atomic_fetch_or(&priv->pools[kind].free, 1ull << chunk);
	if (!atomic_load(&priv->waiting))
		return;
	pthread_mutex_lock(&priv->pool_lock);
	waiter_wake(pair, kind);
	pthread_mutex_unlock(&priv->pool_lock);
}

static bool forget_in(struct pair *pair, struct soft_qp *qp)
{
	bool found = false;

	if (!pair->priv)
		return false;
	pthread_mutex_lock(&pair->priv->pool_lock);
	for (struct soft_qp *at = pair->priv->waiters; at && !found; at = at->pool_next)
		if (at == qp) {
			waiter_remove(pair, qp);
			found = true;
		}
	pthread_mutex_unlock(&pair->priv->pool_lock);
	return found;
}

void pair_forget_waiter(struct soft_qp *qp)
{
	pthread_mutex_lock(&rt.pairs_lock);

	bool found = forget_in(&rt.loop[0], qp) || forget_in(&rt.loop[1], qp);

	for (struct pair *pair = rt.pairs; pair && !found; pair = pair->priv->next)
		found = forget_in(pair, qp);
	pthread_mutex_unlock(&rt.pairs_lock);
}

void pool_release(struct pair *pair, enum pool_kind kind, struct lane_out *lane, uint64_t taken)
{
	for (uint64_t pos = lane->taken; pos != taken && lane->held; pos++) {
		int16_t *chunk = &lane->chunks[pos & (lane->n - 1)];

		if (*chunk < 0)
			continue;
		pair_chunk_put(pair, kind, *chunk);
		*chunk = -1;
		lane->held--;
	}
}

static void strand(struct wire *wire, enum pool_kind kind, struct lane_out *lane)
{
	struct pair_private *priv = wire->pair->priv;

	for (uint64_t pos = lane->taken; pos != lane->pos && lane->held; pos++) {
		int16_t chunk = lane->chunks[pos & (lane->n - 1)];

		if (chunk < 0)
			continue;
		lane->held--;

		struct pool_stray *stray = calloc(1, sizeof(*stray));

		if (!stray) /* the chunk is lost until the pair goes */
			continue;
		stray->theirs = wire->theirs;
		stray->state = (uint64_t)wire->gen << 2 | VSD_HALF_OPEN;
		stray->pos = pos;
		stray->chunk = chunk;
		stray->kind = (uint8_t)kind;
		stray->next = priv->strays;
		priv->strays = stray;
	}
}

void pool_forget_half(struct pair *pair, const struct vsd_half *half)
{
	struct pair_private *priv = pair->priv;

	pthread_mutex_lock(&priv->pool_lock);
	for (struct pool_stray **at = &priv->strays; *at;) {
		if ((*at)->theirs == half)
			stray_end(priv, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&priv->pool_lock);
}

void pool_strand(struct wire *wire)
{
	struct pair_private *priv = wire->pair->priv;

	if (!wire->req_out.held && !wire->resp_out.held)
		return;
	/* Two QPs of one process, the other gone before: nobody is left who could read. */
	if (!wire->pair->segment && !loop_far_end(wire)) {
		pool_release(wire->pair, POOL_REQ, &wire->req_out, wire->req_out.pos);
		pool_release(wire->pair, POOL_RESP, &wire->resp_out, wire->resp_out.pos);
		return;
	}
	pthread_mutex_lock(&priv->pool_lock);
	strand(wire, POOL_REQ, &wire->req_out);
	strand(wire, POOL_RESP, &wire->resp_out);
	strays_look(priv);
	pthread_mutex_unlock(&priv->pool_lock);
}
