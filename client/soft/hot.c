/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hot sets. Retiring a wire clears its bit with a full barrier and looks once more: either the sender sees the bit clear
 * and sets it, or this look sees what it sent.
 */
#include "client/soft/hot.h"

#include "client/soft/lane.h"
#include "client/soft/order.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"

#define RETIRE_FEW  1048576u /* idle rounds after which a hot wire that was used retires, when few are hot ... */
#define RETIRE_MANY 1024u    /* ... and when many are, or it was not: most are opened, and used later or never */
#define HOT_FEW	    4u

static _Atomic uint64_t *ready_word(const struct wire *wire)
{
	return &wire->pair->mem->sides[wire->pair->side].ready[wire->index / 64];
}

static uint64_t ready_bit(const struct wire *wire)
{
	return 1ull << (wire->index % 64);
}

uint64_t ready_bits(const struct pair *pair, unsigned index)
{
	return atomic_load_explicit(&pair->mem->sides[pair->side].ready[index], memory_order_acquire);
}

void ready_set(struct wire *wire)
{
	atomic_fetch_or(ready_word(wire), ready_bit(wire));
}

void ready_clear(struct wire *wire)
{
	atomic_fetch_and(ready_word(wire), ~ready_bit(wire));
}

/* As a sender marks it. */
static void mark_self(struct wire *wire)
{
	ready_set(wire);
	atomic_fetch_or(&wire->pair->mem->sides[wire->pair->side].summary, 1ull << (wire->index / 64));
}

static void place_clear(struct hot_set *set, unsigned place)
{
	atomic_store_explicit(&set->places[place], NULL, memory_order_release);
	set->n--;
	atomic_fetch_sub(&set->crowd, 1);
	while (set->top && !hot_at(set, set->top - 1))
		set->top--;
}

/* Takes a wire out; what came meanwhile is found by its bit. */
static void retire(struct hot_set *set, unsigned place)
{
	struct wire *wire = hot_at(set, place);
	struct soft_td *td = atomic_load_explicit(&wire->td, memory_order_relaxed);

	wire_look_owed(wire);
	place_clear(set, place);
	if (td) {
		td_wire_cool(td, wire);
		return;
	}
	if (!wire->pair->segment) {
		loop_retire(wire);
		return;
	}
	atomic_store_explicit(&wire->hot, false, memory_order_relaxed);
	ready_clear(wire);
	atomic_thread_fence(memory_order_seq_cst);
	order_await(wire);
	if (wire_pending(wire))
		mark_self(wire);
}

static unsigned victim(const struct hot_set *set)
{
	unsigned found = 0;

	for (unsigned place = 1; place < HOT_MAX; place++)
		if (hot_at(set, place)->idle > hot_at(set, found)->idle)
			found = place;
	return found;
}

/* Counts messages, responses and acknowledgements. */
static uint64_t came(const struct wire *wire)
{
	return lane_pos(&wire->req_in.pos) + lane_pos(&wire->resp_in.pos) +
	       atomic_load_explicit(&wire->seen_acked, memory_order_relaxed);
}

void hot_add(struct hot_set *set, struct wire *wire)
{
	unsigned place = 0;

	if (set->n == HOT_MAX)
		retire(set, victim(set));
	while (hot_at(set, place))
		place++;
	atomic_store_explicit(&wire->hot, true, memory_order_relaxed);
	wire->idle = 0;
	wire->came_then = came(wire);
	atomic_store_explicit(&set->places[place], wire, memory_order_release);
	set->n++;
	atomic_fetch_add(&set->crowd, 1);
	order_forget(wire);
	if (place >= set->top)
		set->top = place + 1;
}

void hot_remove(struct hot_set *set, const struct wire *wire)
{
	for (unsigned place = 0; place < set->top; place++)
		if (hot_at(set, place) == wire) {
			place_clear(set, place);
			return;
		}
}

/* Idle for long enough. One of this process's own has no bit: while it is awaited it is not looked for. */
static bool may_retire(const struct hot_set *set, const struct wire *wire)
{
	if (wire->idle <= RETIRE_MANY)
		return false;
	if (set->n <= HOT_FEW && wire->idle <= RETIRE_FEW && came(wire) != wire->came_then)
		return false;
	return wire->pair->segment || !wire_untaken(wire);
}

bool hot_serve(struct hot_set *set)
{
	bool did = false;

	for (unsigned place = 0; place < set->top; place++) {
		struct wire *wire = hot_at(set, place);

		if (!wire)
			continue;
		wire_look_owed(wire);
		if (wire_pending(wire) && wire_serve(wire)) {
			wire->idle = 0;
			did = true;
			continue;
		}
		wire->idle++;
		if (may_retire(set, wire))
			retire(set, place);
	}
	return did;
}

bool hot_quick(struct hot_set *set)
{
	bool did = false;

	for (unsigned place = 0; place < set->top; place++) {
		struct wire *wire = hot_at(set, place);

		if (!wire)
			continue;
		wire_look_owed(wire);
		if (wire_pending(wire) && wire_serve(wire)) {
			wire->idle = 0;
			did = true;
		}
	}
	return did;
}
