/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a wire in this process: made when the daemon says so, let go by its QP, freed when no thread can be
 * inside any more, and only then released to the daemon, which may give its memory to others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/in_child.h"
#include "client/soft/lane.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"
#include "client/soft/xrc.h"

#define SLOTS_MAX 4096u
#define LOOP_WIRES_MAX (1u << 20)

/* The memory of a wire between two QPs of this process: made for the first end, freed with the last. */
struct loop_memory {
	struct loop_memory *next;
	uint32_t index, gen, req, resp;
	unsigned ends;
	void *mem;
};

static struct loop_memory *loop_memories; /* under the progress lock */

void attach_in_child(void)
{
	loop_memories = NULL;
}

static struct loop_memory *loop_memory_find(uint32_t index, uint32_t gen)
{
	struct loop_memory *loop = loop_memories;

	while (loop && !(loop->index == index && loop->gen == gen))
		loop = loop->next;
	return loop;
}

static void *loop_memory_get(const Vsd__EvWire *event)
{
	struct loop_memory *loop = loop_memory_find(event->wire, event->generation);
	size_t size = (VSD_WIRE_SIZE(event->req_slots, event->resp_slots) + 63) & ~(size_t)63;

	if (loop) {
		if (loop->ends != 1 || loop->req != event->req_slots || loop->resp != event->resp_slots)
			return NULL;
		loop->ends++;
		return loop->mem;
	}
	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return NULL;
	loop->mem = aligned_alloc(64, size);
	if (!loop->mem) {
		free(loop);
		return NULL;
	}
	memset(loop->mem, 0, size);
	loop->index = event->wire;
	loop->gen = event->generation;
	loop->req = event->req_slots;
	loop->resp = event->resp_slots;
	loop->ends = 1;
	loop->next = loop_memories;
	loop_memories = loop;
	return loop->mem;
}

static void loop_memory_put(uint32_t index, uint32_t gen)
{
	for (struct loop_memory **at = &loop_memories; *at; at = &(*at)->next) {
		struct loop_memory *loop = *at;

		if (loop->index != index || loop->gen != gen)
			continue;
		if (--loop->ends == 0) {
			*at = loop->next;
			free(loop->mem);
			free(loop);
		}
		return;
	}
}

/* Loopback wires have the daemon's index, which no segment bounds. */
static int loop_room(struct pair *pair, uint32_t index)
{
	struct pair_private *priv = pair->priv;

	if (index < priv->n_wires)
		return 0;
	if (index >= LOOP_WIRES_MAX)
		return -EPROTO;

	uint32_t n = index + 1 + index / 2 + 64;
	struct wire **wires = realloc(priv->wires, n * sizeof(struct wire *));

	if (!wires)
		return -ENOMEM;
	memset(wires + priv->n_wires, 0, (n - priv->n_wires) * sizeof(struct wire *));
	priv->wires = wires;
	priv->n_wires = n;
	return 0;
}

static bool slots_sane(uint32_t n)
{
	return n >= 2 && n <= SLOTS_MAX && (n & (n - 1)) == 0;
}

/* Where the wire is in memory, its pages present. */
static int wire_memory(struct pair *pair, const Vsd__EvWire *event, uint8_t **base)
{
	size_t size = VSD_WIRE_SIZE(event->req_slots, event->resp_slots);

	if (!pair->segment) {
		*base = loop_memory_get(event);
		return *base ? 0 : -ENOMEM;
	}
	if (event->offset < VSD_SEGMENT_WIRES || event->offset % VSD_LINE || event->offset > pair->priv->size ||
	    size > pair->priv->size - event->offset)
		return -EPROTO;
	*base = (uint8_t *)pair->mem + event->offset;

	uintptr_t page = (uintptr_t)getpagesize(), from = (uintptr_t)*base & ~(page - 1);

	return rt_populate((void *)from, ((uintptr_t)*base + size - from + page - 1) & ~(page - 1));
}

static bool lane_init(struct lane_out *out, struct lane_in *in, uint8_t *mine, const uint8_t *theirs, uint32_t n)
{
	out->slots = mine;
	out->n = n;
	in->slots = theirs;
	in->n = n;
	lane_in_move(in, 0);
	out->chunks = malloc(n * sizeof(out->chunks[0]));
	for (uint32_t i = 0; out->chunks && i < n; i++)
		out->chunks[i] = -1;
	return out->chunks;
}

static void wire_free(struct wire *wire)
{
	free(wire->req_out.chunks);
	free(wire->resp_out.chunks);
	free(wire);
}

/* The other end may look already: whatever it sees there before the state says so it takes for nothing. */
static void half_clear(uint8_t *half, size_t size)
{
	_Atomic uint64_t *words = (void *)half;

	for (size_t i = 0; i < size / sizeof(*words); i++)
		atomic_store_explicit(&words[i], 0, memory_order_relaxed);
}

static struct wire *wire_new(struct pair *pair, const Vsd__EvWire *event, uint8_t *base)
{
	struct wire *wire = calloc(1, sizeof(*wire));
	size_t half = VSD_HALF_SIZE(event->req_slots, event->resp_slots);
	uint8_t *mine = base + pair->side * half, *theirs = base + !pair->side * half;
	size_t req = sizeof(struct vsd_half), resp = req + (size_t)event->req_slots * VSD_LINE;

	if (!wire)
		return NULL;
	wire->pair = pair;
	wire->set = &rt.hot;
	wire->hazard = -1;
	wire->far = !pair->side;
	wire->index = event->wire;
	wire->gen = event->generation;
	wire->kind = (uint8_t)event->kind;
	wire->local_qpn = event->local_qpn;
	wire->peer_qpn = event->peer_qpn;
	wire->peer_rq_psn = event->peer_rq_psn;
	wire->resets = event->has_resets ? (int64_t)event->resets : -1;
	wire->mine = (void *)mine;
	wire->theirs = (void *)theirs;
	if (!lane_init(&wire->req_out, &wire->req_in, mine + req, theirs + req, event->req_slots) ||
	    !lane_init(&wire->resp_out, &wire->resp_in, mine + resp, theirs + resp, event->resp_slots)) {
		wire_free(wire);
		return NULL;
	}
	half_clear(mine, half);
	atomic_store_explicit(&wire->mine->state, (uint64_t)wire->gen << 2 | VSD_HALF_OPEN, memory_order_release);
	return wire;
}

/* The two ends of a loopback wire know each other; what is there already is looked at by both. */
static void loop_link(struct wire *wire)
{
	struct pair *far = &rt.loop[!wire->pair->side];
	struct wire *other = wire->index < far->priv->n_wires ? far->priv->wires[wire->index] : NULL;

	pthread_mutex_lock(&rt.loop_lock);
	if (other && other->gen == wire->gen && !atomic_load(&other->released)) {
		atomic_store(&wire->other, other);
		atomic_store(&other->other, wire);
	}
	pthread_mutex_unlock(&rt.loop_lock);
}

struct wire *loop_far_end(const struct wire *wire)
{
	const struct pair_private *far = rt.loop[!wire->pair->side].priv;
	struct wire *other = wire->index < far->n_wires ? far->wires[wire->index] : NULL;

	return other && other->gen == wire->gen ? other : NULL;
}

/* The other end looks here under the lock, or in its domain without. */
static void loop_unlink(struct wire *wire)
{
	struct wire *other = atomic_load(&wire->other);
	struct soft_td *td = other ? atomic_load(&other->td) : NULL;

	if (td)
		td_park_wait(td);
	pthread_mutex_lock(&rt.loop_lock);
	if (other)
		atomic_store(&other->other, NULL);
	atomic_store(&wire->other, NULL);
	pthread_mutex_unlock(&rt.loop_lock);
}

/* Its QP, or the datagrams, take the wire over; or nobody wants it any more. */
static bool hand_over(struct wire *wire, const Vsd__EvWire *event)
{
	if (wire->kind == VSD__WIRE_KIND__WIRE_DGRAM) {
		datagram_attached(event->peer, wire);
		return true;
	}

	if (event->target) {
		struct soft_qp *leg = xrc_leg(event);

		return leg && qp_wire_attached(leg, wire);
	}

	struct soft_qp *qp = rt_qp_get(wire->local_qpn);
	bool wanted = qp && qp_wire_attached(qp, wire);

	if (qp)
		rt_qp_put(qp);
	return wanted;
}

static int event_sane(struct pair *pair, const Vsd__EvWire *event)
{
	if (!slots_sane(event->req_slots) || !slots_sane(event->resp_slots) || event->generation == 0)
		return -EPROTO;
	if (event->kind < VSD__WIRE_KIND__WIRE_RC || event->kind > VSD__WIRE_KIND__WIRE_XRC ||
	    (event->target && event->kind != VSD__WIRE_KIND__WIRE_XRC))
		return -EPROTO;
	if (!pair->segment)
		return loop_room(pair, event->wire);
	return event->wire < pair->priv->n_wires ? 0 : -EPROTO;
}

int wire_make(struct pair *pair, const Vsd__EvWire *event, struct wire **wire)
{
	int r = event_sane(pair, event);
	uint8_t *base;

	if (r == 0 && pair->priv->wires[event->wire])
		r = -EEXIST;
	if (r == 0)
		r = wire_memory(pair, event, &base);
	if (r < 0)
		return r;
	*wire = wire_new(pair, event, base);
	if (!*wire) {
		if (!pair->segment)
			loop_memory_put(event->wire, event->generation);
		return -ENOMEM;
	}
	pair->priv->wires[event->wire] = *wire;
	pair->priv->attached++;
	atomic_fetch_add(&pair->priv->wires_made, 1);
	if (!pair->segment)
		loop_link(*wire);
	return 0;
}

int wire_attach(const Vsd__EvWire *event)
{
	wire_collect(); /* its index may be one that was let go just now */
	xrc_reap();

	struct pair *pair = pair_find(event->segment, event->side);
	struct wire *wire;

	if (!pair)
		return -ENXIO;

	int r = wire_make(pair, event, &wire);

	if (r < 0) {
		control_debug("wire %u of segment %u cannot be used: %s", event->wire, event->segment, strerror(-r));
		events_release(event->segment, event->wire, event->generation);
		return r;
	}
	if (!hand_over(wire, event)) {
		wire_release(wire);
		return 0;
	}
	progress_adopt(wire);
	wire_notify(wire);
	return 0;
}

struct wire *wire_find(uint32_t segment, uint32_t index, uint32_t gen, uint32_t local_qpn)
{
	for (unsigned side = 0; side < (segment ? 1 : 2); side++) {
		struct pair *pair = pair_find(segment, side);
		struct wire *wire = pair && index < pair->priv->n_wires ? pair->priv->wires[index] : NULL;

		if (wire && wire->gen == gen && wire->local_qpn == local_qpn && !atomic_load(&wire->released))
			return wire;
	}
	return NULL;
}

/* Whether a dead peer is news to the QP is the QP's to say: one that closed its half first went in order. */
void wire_gone(struct wire *wire, bool dead)
{
	wire_look(wire);
	struct soft_qp *qp = atomic_load(&wire->qp);

	if (!qp) {
		datagram_gone(wire);
		return;
	}
	__atomic_store_n(&wire->peer_closed, true, __ATOMIC_RELAXED);
	qp_wire_gone(qp, wire, dead);
}

void wire_close(struct wire *wire)
{
	atomic_store_explicit(&wire->mine->state, (uint64_t)wire->gen << 2 | VSD_HALF_CLOSED, memory_order_release);
	wire_notify(wire);
}

void wire_release(struct wire *wire)
{
	if (atomic_exchange(&wire->released, true))
		return;
	pthread_mutex_lock(&rt.garbage_lock);
	wire->garbage_next = rt.garbage;
	rt.garbage = wire;
	atomic_store(&rt.garbage_any, true);
	pthread_mutex_unlock(&rt.garbage_lock);
	if (!rt_inside())
		sleep_wake();
}

static void collect_one(struct wire *wire)
{
	struct pair *pair = wire->pair;
	uint64_t open = (uint64_t)wire->gen << 2 | VSD_HALF_OPEN;

	/* First: the other end could put it into the list of ready ones again. */
	if (!pair->segment)
		loop_unlink(wire);
	progress_forget_wire(wire);
	if (atomic_load_explicit(&wire->mine->state, memory_order_relaxed) == open)
		atomic_store(&wire->mine->state, (uint64_t)wire->gen << 2 | VSD_HALF_CLOSED);
	pool_strand(wire);
	pair_hazard_give_back(pair, wire->hazard);
	pair->priv->wires[wire->index] = NULL;
	pair->priv->attached--;
	if (!pair->segment) {
		pool_forget_half(&rt.loop[!pair->side], wire->mine);
		loop_memory_put(wire->index, wire->gen);
	}
	events_release(pair->segment, wire->index, wire->gen);
	wire_free(wire);
}

void wire_collect(void)
{
	if (!atomic_load_explicit(&rt.garbage_any, memory_order_relaxed))
		return;
	pthread_mutex_lock(&rt.garbage_lock);

	struct wire *wire = rt.garbage;

	rt.garbage = NULL;
	atomic_store(&rt.garbage_any, false);
	pthread_mutex_unlock(&rt.garbage_lock);
	while (wire) {
		struct wire *next = wire->garbage_next;

		collect_one(wire);
		wire = next;
	}
	pair_collect();
}
