/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the daemon tells this process (segments, wires, deaths), and what the runtime asks it without waiting. The
 * progress thread alone reads and writes the event socket; other threads queue and wake it.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/control/control.h"
#include "client/soft/in_child.h"
#include "client/soft/map.h"
#include "client/soft/multicast.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/xrc.h"

#define EARLY_MAX 1024u
#define SEGMENT_AGAIN_NS (100 * (uint64_t)TICK_NS)

struct request {
	struct request *next;
	uint16_t op;
	uint32_t serial, peer; /* of those that are kept until their answer */
	uint64_t after;	       /* not to be sent before */
	union {
		Vsd__WireReleaseRequest release;
		Vsd__PeerResolveRequest resolve;
		Vsd__SegmentGetRequest segment;
		Vsd__RegionGrantRequest grant;
		Vsd__McastResolveRequest mcast;
		Vsd__XrcConnectRequest xrc_connect;
		Vsd__XrcReportRequest xrc_report;
		ProtobufCMessage base;
	};
	uint8_t dgid[16]; /* of PEER_RESOLVE */
	uint32_t qpn;	  /* of XRC_CONNECT */
	struct mcast_name group; /* of MCAST_RESOLVE */
	struct {
		uint32_t segment;
		unsigned side;
		uint64_t gen;
	} of; /* REGION_GRANT */
};

/* Wires that came before their segment, whose fds were lost and asked for again. */
struct early_wire {
	struct early_wire *next;
	Vsd__EvWire event;
};

static struct {
	pthread_mutex_t lock;
	struct request *head, **tail; /* to be sent */
	struct request *asked;	      /* sent, answer awaited; the progress thread's */
	struct early_wire *early;
	unsigned n_early;
	_Atomic bool reading;
} q = { .lock = PTHREAD_MUTEX_INITIALIZER, .tail = &q.head };

void events_queue_in_child(void)
{
	pthread_mutex_init(&q.lock, NULL);
	q.head = q.asked = NULL;
	q.tail = &q.head;
	q.early = NULL;
	q.n_early = 0;
	atomic_store(&q.reading, false);
}

static struct request *request_new(uint16_t op)
{
	struct request *request = calloc(1, sizeof(*request));

	if (request)
		request->op = op;
	else
		control_debug("a request to the daemon is lost: no memory");
	return request;
}

static void request_queue(struct request *request)
{
	pthread_mutex_lock(&q.lock);
	*q.tail = request;
	q.tail = &request->next;
	pthread_mutex_unlock(&q.lock);
	if (!rt_in_progress_thread())
		sleep_wake();
}

void events_release(uint32_t segment, uint32_t wire, uint32_t gen)
{
	struct request *request = request_new(VSD__OP__OP_WIRE_RELEASE);

	if (!request)
		return;
	vsd__wire_release_request__init(&request->release);
	request->release.segment = segment;
	request->release.wire = wire;
	request->release.generation = gen;
	request_queue(request);
}

void rt_resolve(struct soft_context *ctx, uint32_t qpn, uint32_t peer, uint16_t dlid, const union ibv_gid *dgid)
{
	struct request *request = request_new(VSD__OP__OP_PEER_RESOLVE);

	if (!request)
		return;
	vsd__peer_resolve_request__init(&request->resolve);
	request->peer = peer;
	request->resolve.context = ctx->id;
	request->resolve.qpn = qpn;
	request->resolve.dlid = dlid;
	if (dgid) {
		memcpy(request->dgid, dgid->raw, sizeof(request->dgid));
		request->resolve.has_dgid = true;
		request->resolve.dgid.data = request->dgid;
		request->resolve.dgid.len = sizeof(request->dgid);
	}
	request_queue(request);
}

void rt_mcast_resolve(uint32_t context, const struct mcast_name *name, uint32_t after)
{
	struct request *request = request_new(VSD__OP__OP_MCAST_RESOLVE);

	if (!request)
		return;
	vsd__mcast_resolve_request__init(&request->mcast);
	request->group = *name;
	request->mcast.context = context;
	request->mcast.gid.data = request->group.gid.raw;
	request->mcast.gid.len = sizeof(request->group.gid.raw);
	request->mcast.lid = name->lid;
	request->mcast.after = after;
	request_queue(request);
}

static void segment_ask(uint32_t segment)
{
	struct request *request = request_new(VSD__OP__OP_SEGMENT_GET);

	if (!request)
		return;
	vsd__segment_get_request__init(&request->segment);
	request->segment.segment = segment;
	request->after = rt_now() + SEGMENT_AGAIN_NS; /* the program may be at its fd limit for long */
	request_queue(request);
}

bool events_grant(const struct pair *pair, uint32_t key, uint32_t qpn, uint64_t gen)
{
	struct request *request = request_new(VSD__OP__OP_REGION_GRANT);

	if (!request)
		return false;
	vsd__region_grant_request__init(&request->grant);
	request->grant.peer = pair->peer;
	request->grant.key = key;
	request->grant.qpn = qpn;
	request->of.segment = pair->segment;
	request->of.side = pair->side;
	request->of.gen = gen;
	request_queue(request);
	return true;
}

bool events_xrc_connect(const struct soft_qp *qp, uint32_t srqn)
{
	struct request *request = request_new(VSD__OP__OP_XRC_CONNECT);

	if (!request)
		return false;
	vsd__xrc_connect_request__init(&request->xrc_connect);
	request->qpn = qp->v.qp.qp_num;
	request->xrc_connect.context = qp->ctx->id;
	request->xrc_connect.qp = qp->handle;
	request->xrc_connect.srqn = srqn;
	request->xrc_connect.has_resets = true;
	request->xrc_connect.resets = atomic_load(&qp->resets);
	request_queue(request);
	return true;
}

void events_xrc_report(const struct wire *wire, uint32_t event)
{
	struct request *request = request_new(VSD__OP__OP_XRC_REPORT);

	if (!request)
		return;
	vsd__xrc_report_request__init(&request->xrc_report);
	request->xrc_report.segment = wire->pair->segment;
	request->xrc_report.wire = wire->index;
	request->xrc_report.generation = wire->gen;
	request->xrc_report.has_event = event != 0;
	request->xrc_report.event = event;
	request_queue(request);
}

static bool is_answered(const struct request *request)
{
	return request->op == VSD__OP__OP_PEER_RESOLVE || request->op == VSD__OP__OP_REGION_GRANT ||
	       request->op == VSD__OP__OP_MCAST_RESOLVE || request->op == VSD__OP__OP_XRC_CONNECT;
}

static void resolve_answered(const struct request *request, struct control_event *in)
{
	const Vsd__PeerResolveReply *reply = (const void *)in->message;

	/* On success the wire came before, or was there already. */
	if (in->status || !reply || reply->peer != request->peer)
		datagram_refused(request->peer);
}

static void grant_answered(const struct request *request, struct control_event *in)
{
	map_answer(request->of.segment, request->of.side, request->grant.key, request->of.gen, in->status,
		   (const void *)in->message, in->fds.n ? fdlist_steal(&in->fds, 0) : -1);
}

/* The progress lock is held. */
static void answered(const struct request *request, struct control_event *in)
{
	if (request->op == VSD__OP__OP_PEER_RESOLVE)
		resolve_answered(request, in);
	else if (request->op == VSD__OP__OP_REGION_GRANT)
		grant_answered(request, in);
	else if (request->op == VSD__OP__OP_MCAST_RESOLVE)
		mcast_resolved(&request->group, request->mcast.context, in->status ? NULL : (const void *)in->message);
	else if (request->op == VSD__OP__OP_XRC_CONNECT)
		xrc_on_answer(request->qpn, request->xrc_connect.resets);
}

static void never_answered(const struct request *request, int status)
{
	struct control_event never = { .op = request->op, .status = status, .fds = FDLIST_NULL };

	answered(request, &never);
}

/* The first request that is due; those before it wait for their time. */
static struct request *request_due(void)
{
	struct request *request;
	uint64_t now = 0;

	pthread_mutex_lock(&q.lock);
	for (request = q.head; request; request = request->next) {
		if (!request->after)
			break;
		if (!now)
			now = rt_now();
		if (request->after <= now)
			break;
		sleep_arm(request->after);
	}
	pthread_mutex_unlock(&q.lock);
	return request;
}

static void request_unlink(struct request *request)
{
	pthread_mutex_lock(&q.lock);
	for (struct request **at = &q.head; *at; at = &(*at)->next)
		if (*at == request) {
			*at = request->next;
			if (q.tail == &request->next)
				q.tail = at;
			break;
		}
	pthread_mutex_unlock(&q.lock);
}

void events_send(void)
{
	struct request *request;

	while ((request = request_due())) {
		int r = rt.events < 0 ? -ENOTCONN :
					control_event_send(rt.events, request->op, &request->base, &request->serial);

		if (r == -EAGAIN) {
			sleep_arm(rt_now() + 10 * TICK_NS);
			return;
		}
		request_unlink(request);
		if (r == 0 && is_answered(request)) {
			request->next = q.asked;
			q.asked = request;
			continue;
		}
		if (r < 0) {
			bool entered = rt_enter();

			never_answered(request, -r);
			rt_leave(entered);
		}
		free(request);
	}
}

/* --- what comes ------------------------------------------------------------------------------------------------------ */

static void early_add(const Vsd__EvWire *event)
{
	struct early_wire *early = q.n_early < EARLY_MAX ? calloc(1, sizeof(*early)) : NULL;

	if (!early) {
		events_release(event->segment, event->wire, event->generation);
		return;
	}
	early->event = *event;
	early->next = q.early;
	q.early = early;
	q.n_early++;
}

static void early_attach(uint32_t segment)
{
	for (struct early_wire **at = &q.early; *at;) {
		struct early_wire *early = *at;

		if (early->event.segment != segment) {
			at = &early->next;
			continue;
		}
		*at = early->next;
		q.n_early--;
		wire_attach(&early->event);
		free(early);
	}
}

/* False: the event was about a wire that is not attached yet. */
static bool early_drop(const Vsd__EvWireGone *gone)
{
	for (struct early_wire **at = &q.early; *at; at = &(*at)->next) {
		struct early_wire *early = *at;

		if (early->event.segment != gone->segment || early->event.wire != gone->wire ||
		    early->event.generation != gone->generation || early->event.local_qpn != gone->local_qpn)
			continue;
		*at = early->next;
		q.n_early--;
		events_release(gone->segment, gone->wire, gone->generation);
		free(early);
		return true;
	}
	return false;
}

static void on_segment(struct control_event *in)
{
	const Vsd__EvSegment *event = (const void *)in->message;

	if (in->fds_lost || in->fds.n < 4) {
		segment_ask(event->segment);
		return;
	}

	int mem = fdlist_steal(&in->fds, 0), pidfd = fdlist_steal(&in->fds, 1);
	int kick = fdlist_steal(&in->fds, 2), page = fdlist_steal(&in->fds, 3);

	int r = pair_add(event, mem, pidfd, kick, page);

	if (r == 0)
		early_attach(event->segment);
	else if (r != -EPROTO && r != -EEXIST)
		segment_ask(event->segment);
}

static void on_wire(struct control_event *in)
{
	const Vsd__EvWire *event = (const void *)in->message;

	if (wire_attach(event) == -ENXIO)
		early_add(event);
}

static void on_wire_gone(struct control_event *in)
{
	const Vsd__EvWireGone *event = (const void *)in->message;
	struct wire *wire = wire_find(event->segment, event->wire, event->generation, event->local_qpn);

	if (!wire) {
		early_drop(event);
		return;
	}
	wire_gone(wire, event->reason != VSD__GONE_REASON__GONE_CLOSED);
}

static void on_wire_changed(struct control_event *in)
{
	const Vsd__EvWireChanged *event = (const void *)in->message;
	struct wire *wire = wire_find(event->segment, event->wire, event->generation, event->local_qpn);
	struct soft_qp *qp = wire ? atomic_load(&wire->qp) : NULL;

	/* One that is not attached yet came with what was true then. */
	if (qp && qp_is_leg(qp))
		xrc_leg_changed(qp, event->target);
}

static void on_xrc_refused(struct control_event *in)
{
	xrc_on_refused((const void *)in->message);
}

static void on_xrc_event(struct control_event *in)
{
	xrc_on_event((const void *)in->message);
}

static void on_peer_gone(struct control_event *in)
{
	const Vsd__EvPeerGone *event = (const void *)in->message;

	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		if (pair->segment == event->segment)
			pair_died(pair);
}

static void on_async(struct control_event *in)
{
	const Vsd__EvAsync *event = (const void *)in->message;

	soft_async_raise_context(event->context, (enum ibv_event_type)event->event, (int)event->port);
}

static void on_answer(struct control_event *in)
{
	if (in->status)
		control_debug("the daemon refused a request (%u): %s", in->op, strerror(in->status));
	for (struct request **at = &q.asked; *at; at = &(*at)->next) {
		struct request *request = *at;

		if (request->serial != in->serial || request->op != in->op)
			continue;
		*at = request->next;
		answered(request, in);
		free(request);
		return;
	}
}

static const struct {
	int kind;
	void (*handle)(struct control_event *event);
	bool message; /* needs one */
} handlers[] = {
	{ CONTROL_SEGMENT, on_segment, true },	   { CONTROL_WIRE, on_wire, true },
	{ CONTROL_WIRE_GONE, on_wire_gone, true }, { CONTROL_PEER_GONE, on_peer_gone, true },
	{ CONTROL_ASYNC, on_async, true },	   { CONTROL_ANSWER, on_answer, false },
	{ CONTROL_WIRE_CHANGED, on_wire_changed, true }, { CONTROL_XRC_REFUSED, on_xrc_refused, true },
	{ CONTROL_XRC_EVENT, on_xrc_event, true },
};

bool events_read(void)
{
	struct control_event event;
	int r;

	atomic_store(&q.reading, true);
	while ((r = control_event_read(rt.events, &event)) == 1) {
		for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++)
			if (handlers[i].kind == event.kind && (event.message || !handlers[i].message))
				handlers[i].handle(&event);
		control_event_deinit(&event);
	}
	atomic_store(&q.reading, false);
	return r == 0;
}

void events_lost(void)
{
	while (q.asked) {
		struct request *request = q.asked;

		q.asked = request->next;
		never_answered(request, ENOTCONN);
		free(request);
	}
}

/* What was in the socket first is what somebody may have read, and not handled yet. */
bool events_unread(void)
{
	int bytes = 0;

	return (ioctl(__atomic_load_n(&rt.events, __ATOMIC_RELAXED), SIOCINQ, &bytes) == 0 && bytes > 0) ||
	       atomic_load(&q.reading);
}

static void requests_free(struct request *request)
{
	while (request) {
		struct request *next = request->next;

		free(request);
		request = next;
	}
}

void events_deinit(void)
{
	requests_free(q.head);
	requests_free(q.asked);
	q.head = q.asked = NULL;
	q.tail = &q.head;
	while (q.early) {
		struct early_wire *next = q.early->next;

		free(q.early);
		q.early = next;
	}
	q.n_early = 0;
}
