/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wires with descriptors that their receiver has not taken yet. One whose process computes, or spins on its memory, is kicked
 * all the same (datapath.md 5); who polls has taken them long before.
 */
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

static void watch_in(struct soft_td *td, struct wire *wire)
{
	if (atomic_load_explicit(&wire->watched, memory_order_relaxed))
		return;
	atomic_store_explicit(&wire->watched, true, memory_order_relaxed);
	wire->watch_since = 0;
	wire->watch_next = atomic_load_explicit(&td->watched, memory_order_relaxed);
	atomic_store_explicit(&td->watched, wire, memory_order_relaxed);
}

void watch_add(struct wire *wire)
{
	struct soft_td *td = atomic_load_explicit(&wire->td, memory_order_relaxed);

	if (td) {
		watch_in(td, wire);
		return;
	}
	if (atomic_exchange(&wire->watched, true))
		return;
	pthread_mutex_lock(&rt.watch_lock);
	wire->watch_since = 0;
	wire->watch_next = rt.watched;
	rt.watched = wire;
	atomic_store(&rt.watch_any, true);
	pthread_mutex_unlock(&rt.watch_lock);
}

void watch_forget(const struct wire *wire)
{
	pthread_mutex_lock(&rt.watch_lock);
	for (struct wire **at = &rt.watched; *at; at = &(*at)->watch_next)
		if (*at == wire) {
			*at = wire->watch_next;
			break;
		}
	pthread_mutex_unlock(&rt.watch_lock);
}

/* True when there is nothing to watch any more. A peer that is not there, or stopped, is kicked once a millisecond. */
static bool watch_look(struct wire *wire, uint64_t now)
{
	uint64_t taken = atomic_load_explicit(&wire->theirs->req_taken, memory_order_relaxed);
	uint64_t pos = __atomic_load_n(&wire->req_out.pos, __ATOMIC_RELAXED);

	if (taken == pos || wire_is_closed(wire) || wire->broken || atomic_load(&wire->pair->dead))
		return true;
	if (!wire_is_open(wire) || wire->watch_since == 0 || taken != wire->watch_pos) {
		wire->watch_pos = taken;
		wire->watch_since = now;
	} else if (now > wire->watch_since && now - wire->watch_since > UNTAKEN_NS) {
		wire_kick(wire);
		wire->watch_since = now + TICK_NS;
	}
	return false;
}

struct wire *watch_prune(struct wire *list, uint64_t now)
{
	struct wire *left = list;

	for (struct wire **at = &left; *at;) {
		struct wire *wire = *at;

		if (watch_look(wire, now)) {
			*at = wire->watch_next;
			atomic_store_explicit(&wire->watched, false, memory_order_release);
		} else {
			at = &wire->watch_next;
		}
	}
	return left;
}

void watch_all(uint64_t now)
{
	pthread_mutex_lock(&rt.watch_lock);
	rt.watched = watch_prune(rt.watched, now);
	atomic_store(&rt.watch_any, rt.watched != NULL);
	pthread_mutex_unlock(&rt.watch_lock);
}
