/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a wire joins two processes that trust neither each other nor their own luck with timing. Guarantees: a wire is
 * made only when both QPs name each other; an end that was told of a wire is told of its end; memory of a wire is used
 * again only after both ends let go of it or died; no fd is kept per QP, and none per pair for long.
 */
#include "daemon/wire_pair.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/pair.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "proto/ring_abi.h"

struct wire *notice_wire(struct notice *notice)
{
	struct wire_end *end = container_of(notice, struct wire_end, notice);

	return container_of(end - notice->side, struct wire, ends[0]);
}

static uint32_t clamp_pow2(uint32_t n, uint32_t low, uint32_t high)
{
	uint32_t slots = low;

	while (slots < n && slots < high)
		slots *= 2;
	return slots;
}

static void set_lanes(struct wire *wire, uint32_t forced, uint32_t max_send_wr)
{
	wire->req_slots = clamp_pow2(2 * max_send_wr, 16, 128);
	wire->resp_slots = clamp_pow2(wire->req_slots / 2, 16, 64);
	if (wire->kind == WIRE_DGRAM) {
		wire->req_slots = 256;
		wire->resp_slots = 2;
	}
	if (forced) {
		wire->req_slots = forced;
		wire->resp_slots = forced;
	}
}

static struct wire *wire_new(enum wire_kind kind)
{
	struct wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return NULL;
	wire->kind = kind;
	for (unsigned i = 0; i < 2; i++)
		notice_init(&wire->ends[i].notice, i);
	return wire;
}

static struct wire *wire_discard(struct wire *wire)
{
	for (unsigned i = 0; i < 2; i++) {
		assert(!wire->ends[i].qp);
		notice_drop(&wire->ends[i].notice);
		charge_release(&wire->ends[i].charge);
	}
	free(wire);
	return NULL;
}

/* Gives the wire's place back when both ends are released. */
static void wire_check(struct wire *wire)
{
	struct segment *segment = wire->segment;

	if (!wire->ends[0].released || !wire->ends[1].released)
		return;
	if (segment) {
		if (segment->pair->dgram == wire)
			segment->pair->dgram = NULL;
		space_give(&segment->space, wire->place.index);
		segment->server->n_wires--;
	} else {
		/* Both ends are in one process; the side that is not dead knows it. */
		struct process *process = wire->ends[0].process;

		handle_remove(&process->loops, wire->place.index, HANDLE_LOOP);
		process->server->n_wires--;
	}
	wire_discard(wire);
	if (segment)
		segment_check(segment);
}

static int charge_ends(struct wire *wire)
{
	for (unsigned i = 0; i < 2; i++) {
		struct wire_end *end = &wire->ends[i];
		int r = charge_take(&end->charge, &end->process->domain->account, SLOT_WIRES, 1);

		if (r < 0)
			return r;
	}
	return 0;
}

static int place(
	struct server *server, struct wire *wire, struct pair *pair, struct process *payer)
{
	int r;

	if (pair) {
		r = pair_place(server, pair, payer, wire);
	} else {
		struct process *process = wire->ends[0].process;

		r = handle_insert(&process->loops, HANDLE_LOOP, wire, &wire->place.index);
		if (r == 0)
			wire->place.generation = ++process->loop_generation & (UINT32_MAX >> 2);
	}
	if (r == 0)
		server->n_wires++;
	return r;
}

/* Tells both ends; nothing can fail any more. */
static void wire_announce(struct wire *wire)
{
	for (unsigned i = 0; i < 2; i++)
		process_notify(wire->ends[i].process, &wire->ends[i].notice, NOTICE_WIRE, 0);
	/* The wire may be gone when a flush fails. */
	struct process *a = wire->ends[0].process, *b = wire->ends[1].process;

	process_flush(a);
	if (b != a)
		process_flush(b);
}

static void set_end(struct wire *wire, unsigned side, struct qp *qp, const struct qp *peer)
{
	wire->ends[side].process = qp->process;
	wire->ends[side].qpn = qp->attr.qpn;
	wire->ends[side].resets = qp->resets;
	wire->ends[side].peer_qpn = peer->attr.qpn;
	wire->ends[side].peer_rq_psn = peer->dest.rq_psn;
}

int wire_connect(struct server *server, struct qp *a, struct qp *b)
{
	struct pair *pair = NULL;
	struct wire *wire;
	unsigned side = 0;
	int r;

	if (a->process != b->process) {
		r = pair_get(server, a->process, b->process, false, &pair);
		if (r < 0)
			return r;
		side = pair->sides[1].process == a->process;
	}
	wire = wire_new(a->attr.type == QP_RC ? WIRE_RC : WIRE_UC);
	if (!wire)
		return -ENOMEM;
	set_end(wire, side, a, b);
	set_end(wire, !side, b, a);
	set_lanes(wire, server->config->lane_slots,
		a->attr.max_send_wr > b->attr.max_send_wr ? a->attr.max_send_wr
							  : b->attr.max_send_wr);
	r = charge_ends(wire);
	if (r == 0)
		r = place(server, wire, pair, NULL);
	if (r < 0) {
		wire_discard(wire);
		return r;
	}
	wire->ends[side].qp = a;
	wire->ends[!side].qp = b;
	a->wire = wire;
	b->wire = wire;
	wire_announce(wire);
	return 0;
}

int wire_datagram(struct server *server, struct process *from, struct process *to)
{
	struct pair *pair;
	struct wire *wire;
	int r;

	if (from == to)
		return 0;
	r = pair_get(server, from, to, true, &pair);
	if (r < 0 || pair->dgram)
		return r;
	wire = wire_new(WIRE_DGRAM);
	if (!wire)
		return -ENOMEM;
	wire->ends[0].process = pair->sides[0].process;
	wire->ends[1].process = pair->sides[1].process;
	set_lanes(wire, server->config->lane_slots, 0);
	r = charge_take(&wire->ends[0].charge, &from->domain->account, SLOT_WIRES, 1);
	if (r == 0)
		r = place(server, wire, pair, from);
	if (r < 0) {
		wire_discard(wire);
		return r;
	}
	pair->dgram = wire;
	wire_announce(wire);
	return 0;
}

/* An end that does not take part any more: was it told, it must release; was it not, it never will be told. */
static void end_untell(struct wire_end *end)
{
	if (end->notice.kind == NOTICE_WIRE) {
		notice_drop(&end->notice);
		end->released = true;
	}
}

static void end_tell_gone(struct wire_end *end, enum gone_reason reason)
{
	if (end->qp)
		end->qp->wire = NULL;
	end->qp = NULL;
	end_untell(end);
	if (!end->released && end->process && end->notice.kind == NOTICE_NONE) {
		process_notify(end->process, &end->notice, NOTICE_WIRE_GONE, reason);
		process_flush(end->process);
	}
}

void wire_leave(struct wire *wire, struct qp *qp)
{
	qp->wire = NULL;
	for (unsigned i = 0; i < 2; i++) {
		if (wire->ends[i].qp == qp) {
			wire->ends[i].qp = NULL;
			end_untell(&wire->ends[i]);
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		if (wire->ends[i].qp)
			end_tell_gone(&wire->ends[i], GONE_CLOSED);
	}
	wire_check(wire);
}

static struct wire *wire_find(struct server *server, struct process *process, uint32_t segment_id,
	uint32_t index, uint32_t generation, unsigned *side)
{
	struct segment *segment = NULL;
	struct wire *wire;

	if (segment_id) {
		segment = segment_get(server, process, segment_id);
		wire = segment ? space_get(&segment->space, index) : NULL;
	} else {
		wire = handle_get(&process->loops, index, HANDLE_LOOP);
	}
	if (!wire || wire->place.generation != generation)
		return NULL;
	*side = segment ? segment_side(segment, process) : wire->ends[0].released;
	return wire->ends[*side].released || wire->ends[*side].notice.kind == NOTICE_WIRE ? NULL
											  : wire;
}

int wire_release(struct server *server, struct process *process, uint32_t segment, uint32_t index,
	uint32_t generation)
{
	unsigned side;
	struct wire *wire = wire_find(server, process, segment, index, generation, &side);
	struct wire_end *end;

	if (!wire)
		return -ENOENT;
	end = &wire->ends[side];
	notice_drop(&end->notice);
	end->released = true;
	if (end->qp) {
		wire_leave(wire, end->qp);
		return 0;
	}
	if (wire->kind == WIRE_DGRAM) {
		if (wire->segment->pair->dgram == wire)
			wire->segment->pair->dgram = NULL;
		end_tell_gone(&wire->ends[!side], GONE_CLOSED);
	}
	wire_check(wire);
	return 0;
}

void wire_end_died(struct wire *wire, unsigned side, enum gone_reason reason)
{
	struct wire_end *end = &wire->ends[side];

	if (end->qp)
		end->qp->wire = NULL;
	end->qp = NULL;
	notice_drop(&end->notice);
	end->released = true;
	charge_release(&end->charge);
	end_tell_gone(&wire->ends[!side], reason);
	if (wire->segment)
		end->process = NULL;
	wire_check(wire);
}

void loops_break(struct process *process)
{
	uint32_t index = 0, type;
	struct wire *wire;

	while ((wire = handle_next(&process->loops, &index, &type))) {
		for (unsigned i = 0; i < 2; i++) {
			if (wire->ends[i].qp)
				wire->ends[i].qp->wire = NULL;
			wire->ends[i].qp = NULL;
			wire->ends[i].released = true;
		}
		wire_check(wire);
	}
}

pid_t wire_peer_pid(const struct wire *wire, const struct qp *qp)
{
	const struct wire_end *end = &wire->ends[wire->ends[0].qp == qp];

	return end->process ? end->process->pid : 0;
}

struct qp *wire_peer_qp(const struct wire *wire, const struct qp *qp)
{
	return wire->ends[wire->ends[0].qp == qp].qp;
}
