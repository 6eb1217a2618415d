/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: the only place where segments, wires and XRC events become messages. Guarantees: an EV_SEGMENT goes out with all of its
 * fds or not at all; every receiver of a kick pipe's write end has an open file description of its own.
 */
#include "daemon/event.h"

#include <errno.h>
#include <fcntl.h>

#include "daemon/context.h"
#include "daemon/fd.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "daemon/pair.h"
#include "daemon/target.h"
#include "daemon/wire_pair.h"
#include "daemon/xrcd.h"
#include "proto/frame.h"
#include "proto/ring_abi.h"
#include "proto/sock.h"
#include "proto/verbsd.pb-c.h"

static int send_event(struct process *process, unsigned opcode, const ProtobufCMessage *msg,
	const struct fdlist *fds)
{
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = (uint16_t)opcode,
		.fds = (uint16_t)(fds ? fds->n : 0),
		.flags = FRAME_EVENT,
	};
	char buf[512];
	int n = frame_pack(buf, sizeof(buf), &header, msg);

	if (n < 0)
		return n;
	return sock_send(process->events, buf, (size_t)n, fds, false);
}

static int segment_fds(
	const struct segment *segment, const struct process *peer, struct fdlist *fds)
{
	int kick, r;

	r = fdlist_dup(fds, segment->memfd);
	if (r == 0)
		r = fdlist_dup(fds, peer->session->pidfd);
	if (r < 0)
		return r;
	kick = fd_reopen(peer->kick, O_WRONLY | O_NONBLOCK);
	if (kick < 0)
		return kick;
	r = fdlist_consume(fds, kick);
	if (r == 0)
		r = fdlist_dup(fds, peer->page);
	return r;
}

static int send_segment(
	struct process *process, const struct notice *notice, const struct segment *segment)
{
	const struct process *peer = segment->pair->sides[!notice->side].process;
	Vsd__EvSegment event = VSD__EV_SEGMENT__INIT;
	struct fdlist fds = FDLIST_NULL;
	int r;

	event.segment = segment->id;
	event.side = notice->side;
	event.size = VSD_SEGMENT_SIZE;
	event.peer = peer->id;
	event.engines = segment->pair->engines;
	event.wires = VSD_WIRES;
	r = segment_fds(segment, peer, &fds);
	if (r == 0)
		r = send_event(process, VSD__OP__EV_SEGMENT, &event.base, &fds);
	fdlist_deinit(&fds);
	return r;
}

static int send_peer_gone(
	struct process *process, const struct notice *notice, const struct segment *segment)
{
	Vsd__EvPeerGone event = VSD__EV_PEER_GONE__INIT;

	event.segment = segment->id;
	event.peer = segment->pair->ids[!notice->side];
	event.reason = (Vsd__GoneReason)notice->reason;
	return send_event(process, VSD__OP__EV_PEER_GONE, &event.base, NULL);
}

static void fill_target(const struct xrc_target *target, Vsd__XrcTarget *out)
{
	vsd__xrc_target__init(out);
	out->xrcd = target->domain->number;
	out->access = target_access(target);
	out->min_rnr_timer = target_min_rnr_timer(target);
	out->max_dest_rd_atomic = target_max_dest_rd_atomic(target);
	out->state = target->state;
}

static int send_wire(struct process *process, const struct notice *notice, const struct wire *wire)
{
	const struct wire_end *end = &wire->ends[notice->side];
	Vsd__EvWire event = VSD__EV_WIRE__INIT;
	Vsd__XrcTarget target;

	event.segment = wire->segment ? wire->segment->id : 0;
	event.wire = wire->place.index;
	event.generation = wire->place.generation;
	event.offset = wire->place.offset;
	event.kind = (Vsd__WireKind)wire->kind;
	event.local_qpn = end->qpn;
	event.peer_qpn = end->peer_qpn;
	event.req_slots = wire->req_slots;
	event.resp_slots = wire->resp_slots;
	event.peer_rq_psn = end->peer_rq_psn;
	event.peer = wire->segment ? wire->segment->pair->ids[!notice->side] : process->id;
	event.side = notice->side;
	event.has_resets = wire->kind != WIRE_DGRAM && !end->target;
	event.resets = end->resets;
	if (end->target) {
		fill_target(end->target, &target);
		event.target = &target;
	}
	return send_event(process, VSD__OP__EV_WIRE, &event.base, NULL);
}

static int send_wire_gone(
	struct process *process, const struct notice *notice, const struct wire *wire)
{
	Vsd__EvWireGone event = VSD__EV_WIRE_GONE__INIT;

	event.segment = wire->segment ? wire->segment->id : 0;
	event.wire = wire->place.index;
	event.generation = wire->place.generation;
	event.reason = (Vsd__GoneReason)notice->reason;
	event.local_qpn = wire->ends[notice->side].qpn;
	return send_event(process, VSD__OP__EV_WIRE_GONE, &event.base, NULL);
}

static int send_wire_changed(
	struct process *process, const struct notice *notice, const struct wire *wire)
{
	const struct wire_end *end = &wire->ends[notice->side];
	Vsd__EvWireChanged event = VSD__EV_WIRE_CHANGED__INIT;
	Vsd__XrcTarget target;

	event.segment = wire->segment ? wire->segment->id : 0;
	event.wire = wire->place.index;
	event.generation = wire->place.generation;
	event.local_qpn = end->qpn;
	fill_target(end->target, &target);
	event.target = &target;
	return send_event(process, VSD__OP__EV_WIRE_CHANGED, &event.base, NULL);
}

static int send_refused(struct process *process, const struct qp *qp)
{
	Vsd__EvXrcRefused event = VSD__EV_XRC_REFUSED__INIT;

	event.qpn = qp->attr.qpn;
	event.srqn = qp->refused;
	return send_event(process, VSD__OP__EV_XRC_REFUSED, &event.base, NULL);
}

/* The first one of those that it has. */
static int send_xrc_event(struct process *process, const struct qp *qp)
{
	Vsd__EvXrcEvent event = VSD__EV_XRC_EVENT__INIT;

	event.context = qp->object.owner->id;
	event.handle = qp->object.handle;
	event.event = (uint32_t)__builtin_ctz(qp->events);
	return send_event(process, VSD__OP__EV_XRC_EVENT, &event.base, NULL);
}

/* enum ibv_event_type */
enum { EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERR = 10 };

static int send_port(struct process *process, struct notice *notice)
{
	const struct attachment *attachment = container_of(notice, struct attachment, notice);
	Vsd__EvAsync event = VSD__EV_ASYNC__INIT;

	event.context = attachment->id;
	event.event = attachment->context->device->config.active ? EVENT_PORT_ACTIVE : EVENT_PORT_ERR;
	event.port = 1;
	return send_event(process, VSD__OP__EV_ASYNC, &event.base, NULL);
}

int event_send(struct process *process, struct notice *notice)
{
	switch (notice->kind) {
	case NOTICE_NONE:
		return 0;
	case NOTICE_SEGMENT:
		return send_segment(process, notice, notice_segment(notice));
	case NOTICE_PEER_GONE:
		return send_peer_gone(process, notice, notice_segment(notice));
	case NOTICE_WIRE:
		return send_wire(process, notice, notice_wire(notice));
	case NOTICE_WIRE_GONE:
		return send_wire_gone(process, notice, notice_wire(notice));
	case NOTICE_WIRE_CHANGED:
		return send_wire_changed(process, notice, notice_wire(notice));
	case NOTICE_XRC_REFUSED:
		return send_refused(process, notice_qp(notice));
	case NOTICE_XRC_EVENT:
		return send_xrc_event(process, notice_qp(notice));
	case NOTICE_PORT:
		return send_port(process, notice);
	}
	return -EINVAL;
}
