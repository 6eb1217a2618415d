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
#include "daemon/target.h"
#include "proto/ring_abi.h"

struct wire *wire_of_end(const struct wire_end *end)
{
	return container_of(end - end->notice.side, struct wire, ends[0]);
}

const struct wire_end *wire_other_end(const struct wire_end *end)
{
	return &wire_of_end(end)->ends[!end->notice.side];
}

struct wire *notice_wire(struct notice *notice)
{
	return wire_of_end(container_of(notice, struct wire_end, notice));
}

static bool is_tied(const struct wire_end *end)
{
	return end->qp || end->target;
}

/* It is nothing's any more; its process may still have to let go of it. */
static void end_untie(struct wire_end *end)
{
	list_remove(&end->link);
	end->qp = NULL;
	end->target = NULL;
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

static void end_init(struct wire_end *end, unsigned side)
{
	notice_init(&end->notice, side);
	list_init(&end->link);
}

static struct wire *wire_new(enum wire_kind kind)
{
	struct wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return NULL;
	wire->kind = kind;
	for (unsigned i = 0; i < 2; i++)
		end_init(&wire->ends[i], i);
	return wire;
}

static struct wire *wire_discard(struct wire *wire)
{
	for (unsigned i = 0; i < 2; i++) {
		assert(!is_tied(&wire->ends[i]));
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
	for (unsigned i = 0; i < 2; i++) {
		if (!wire->ends[i].released)
			process_notify(wire->ends[i].process, &wire->ends[i].notice, NOTICE_WIRE, 0);
	}
	/* The wire may be gone when a flush fails. */
	struct process *a = wire->ends[0].process, *b = wire->ends[1].process;

	process_flush(a);
	if (b != a)
		process_flush(b);
}

/* What an end is of, and where. */
struct party {
	struct qp *qp;
	struct xrc_target *target;
	struct process *process;
	uint32_t qpn, resets, rq_psn, max_send_wr;
};

static struct party party_qp(struct qp *qp)
{
	return (struct party){
		.qp = qp,
		.process = qp->process,
		.qpn = qp->attr.qpn,
		.resets = qp->resets,
		.rq_psn = qp->dest.rq_psn,
		.max_send_wr = qp->attr.max_send_wr,
	};
}

static void set_end(struct wire_end *end, const struct party *party, const struct party *peer)
{
	end->process = party->process;
	end->qpn = party->qpn;
	end->resets = party->resets;
	end->peer_qpn = peer->qpn;
	end->peer_rq_psn = peer->rq_psn;
}

static void tie(struct wire_end *end, const struct party *party)
{
	end->qp = party->qp;
	end->target = party->target;
	end->life = party->target ? party->target->life : 0;
	list_append(end->qp ? &end->qp->wires : &end->target->wires, &end->link);
}

static int join(
	struct server *server, enum wire_kind kind, const struct party *a, const struct party *b)
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
	wire = wire_new(kind);
	if (!wire)
		return -ENOMEM;
	set_end(&wire->ends[side], a, b);
	set_end(&wire->ends[!side], b, a);
	set_lanes(wire, server->config->lane_slots,
		a->max_send_wr > b->max_send_wr ? a->max_send_wr : b->max_send_wr);
	r = charge_ends(wire);
	if (r == 0)
		r = place(server, wire, pair, NULL);
	if (r < 0) {
		wire_discard(wire);
		return r;
	}
	tie(&wire->ends[side], a);
	tie(&wire->ends[!side], b);
	/* A QP that is connected to itself has one end to hold and to let go of. */
	wire->ends[1].released = a->qp && a->qp == b->qp;
	wire_announce(wire);
	return 0;
}

int wire_connect(struct server *server, struct qp *a, struct qp *b)
{
	const struct party x = party_qp(a), y = party_qp(b);

	return join(server, a->attr.type == QP_RC ? WIRE_RC : WIRE_UC, &x, &y);
}

int wire_connect_xrc(
	struct server *server, struct qp *qp, struct xrc_target *target, struct process *process)
{
	const struct party from = party_qp(qp);
	const struct party to = {
		.target = target,
		.process = process,
		.qpn = target->number.value,
		.rq_psn = target->dest.rq_psn,
	};

	return join(server, WIRE_XRC, &from, &to);
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
	struct qp *qp = end->qp;

	end_untie(end);
	end_untell(end);
	if (end->notice.kind == NOTICE_WIRE_CHANGED)
		notice_drop(&end->notice);
	if (!end->released && end->process && end->notice.kind == NOTICE_NONE) {
		process_notify(end->process, &end->notice, NOTICE_WIRE_GONE, reason);
		process_flush(end->process);
	}
	xrc_again(qp);
}

void wire_leave(struct wire_end *end)
{
	struct wire *wire = wire_of_end(end);
	struct wire_end *other = &wire->ends[!end->notice.side];
	bool folded = end->qp && other->qp == end->qp; /* connected to itself */

	if (end->target) {
		end_tell_gone(end, GONE_CLOSED); /* whoever serves it is not who closed it */
	} else {
		end_untie(end);
		end_untell(end);
	}
	if (folded) {
		end_untie(other);
		end_untell(other);
	} else if (is_tied(other)) {
		end_tell_gone(other, GONE_CLOSED);
	}
	wire_check(wire);
}

void wire_changed(struct wire_end *end)
{
	if (end->notice.kind != NOTICE_NONE || end->released)
		return; /* what it was not told of yet it is told as it is then */
	process_notify(end->process, &end->notice, NOTICE_WIRE_CHANGED, 0);
	process_flush(end->process);
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

struct xrc_target *wire_target(struct server *server, struct process *process, uint32_t segment,
	uint32_t index, uint32_t generation)
{
	unsigned side;
	struct wire *wire = wire_find(server, process, segment, index, generation, &side);
	const struct wire_end *end;

	/* The first end of a wire inside one process may be released or not. */
	if (wire && !segment && !wire->ends[side].life)
		side = !side;
	end = wire ? &wire->ends[side] : NULL;
	return end && end->life && !end->released ? target_in_life(server, end->qpn, end->life) : NULL;
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
	if (is_tied(end)) {
		struct qp *qp = end->qp;

		wire_leave(end);
		xrc_again(qp);
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

	end_untie(end);
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
			end_untie(&wire->ends[i]);
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
