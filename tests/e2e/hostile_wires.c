/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wires and segments that are somebody else's, or are gone, and peers that do not read what they are told.
 */
#include "hostile.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <infiniband/verbs.h>

struct ends {
	struct world a, b;
	Vsd__EvSegment *segment;
	Vsd__EvWire *wire, *wire_b;
};

static int segment_get(struct link *link, uint32_t segment)
{
	Vsd__SegmentGetRequest request = VSD__SEGMENT_GET_REQUEST__INIT;

	request.segment = segment;
	return link_call(link, VSD__OP__OP_SEGMENT_GET, &request.base, NULL);
}

static int wire_release(struct link *link, uint32_t segment, uint32_t wire, uint32_t generation)
{
	Vsd__WireReleaseRequest request = VSD__WIRE_RELEASE_REQUEST__INIT;

	request.segment = segment;
	request.wire = wire;
	request.generation = generation;
	return link_call(link, VSD__OP__OP_WIRE_RELEASE, &request.base, NULL);
}

static int peer_resolve(struct link *link, uint32_t qpn)
{
	Vsd__PeerResolveRequest request = VSD__PEER_RESOLVE_REQUEST__INIT;

	request.context = link->context;
	request.qpn = qpn;
	request.dlid = 1;
	return link_call(link, VSD__OP__OP_PEER_RESOLVE, &request.base, NULL);
}

static void connect_both(struct world *a, struct world *b)
{
	must_be(modify(&a->link, a->qp, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&b->link, b->qp, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&a->link, a->qp, IBV_QPS_RTR, b->qpn), 0, "RTR");
	must_be(modify(&b->link, b->qp, IBV_QPS_RTR, a->qpn), 0, "RTR");
}

static void ends_make(struct ends *ends)
{
	world_make(&ends->a);
	world_make(&ends->b);
	connect_both(&ends->a, &ends->b);
	ends->segment = (Vsd__EvSegment *)link_event(&ends->a.link, VSD__OP__EV_SEGMENT, &vsd__ev_segment__descriptor,
		10000);
	ends->wire = (Vsd__EvWire *)link_event(&ends->a.link, VSD__OP__EV_WIRE, &vsd__ev_wire__descriptor, 10000);
	ends->wire_b = (Vsd__EvWire *)link_event(&ends->b.link, VSD__OP__EV_WIRE, &vsd__ev_wire__descriptor, 10000);
	if (!ends->segment || !ends->wire || !ends->wire_b) {
		complain("two QPs were connected and nobody was told");
		exit(1);
	}
}

/* An answer waits until the events that belong to it are in the event socket, which holds few fds at a time. */
static void events_drain(struct link *link)
{
	ProtobufCMessage *event;

	while ((event = link_event(link, VSD__OP__EV_SEGMENT, &vsd__ev_segment__descriptor, 0)))
		protobuf_c_message_free_unpacked(event, NULL);
}

static void ends_close(struct ends *ends)
{
	world_end(&ends->a);
	world_end(&ends->b);
	protobuf_c_message_free_unpacked(&ends->segment->base, NULL);
	protobuf_c_message_free_unpacked(&ends->wire->base, NULL);
	protobuf_c_message_free_unpacked(&ends->wire_b->base, NULL);
}

static void wires(void)
{
	static const uint32_t bad[] = { 0, 2, 63, 4095, 4096, 0x7fffffff, 0x80000000u, 0xffffffffu };
	struct ends ends;
	struct world other;
	uint32_t segment, wire, generation;

	ends_make(&ends);
	world_make(&other);
	segment = ends.wire->segment;
	wire = ends.wire->wire;
	generation = ends.wire->generation;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (bad[i] != wire)
			must_be(wire_release(&ends.a.link, segment, bad[i], generation), ENOENT, "wire %u", bad[i]);
		if (bad[i] != segment)
			must_be(wire_release(&ends.a.link, bad[i], wire, generation), ENOENT, "segment %u", bad[i]);
		if (bad[i] != generation)
			must_be(wire_release(&ends.a.link, segment, wire, bad[i]), ENOENT, "generation %u", bad[i]);
	}
	for (unsigned i = 0; i < 100; i++) {
		must_be(wire_release(&other.link, segment, wire, generation), ENOENT, "a wire of others");
		must_be(segment_get(&other.link, segment), ENOENT, "a segment of others");
		must_be(segment_get(&other.link, (uint32_t)chance()), ENOENT, "a segment of nobody");
	}
	/* The other end must be told once, and this end may say it once. */
	must_be(wire_release(&ends.a.link, segment, wire, generation), 0, "WIRE_RELEASE");
	must_be(wire_release(&ends.a.link, segment, wire, generation), ENOENT, "WIRE_RELEASE twice");

	Vsd__EvWireGone *gone = (Vsd__EvWireGone *)link_event(&ends.b.link, VSD__OP__EV_WIRE_GONE,
		&vsd__ev_wire_gone__descriptor, 10000);

	if (!gone)
		complain("an end was not told that the other one let go");
	else
		protobuf_c_message_free_unpacked(&gone->base, NULL);
	must_be(wire_release(&ends.b.link, segment, wire, generation), 0, "WIRE_RELEASE of the other end");
	must_be(wire_release(&ends.b.link, segment, wire, generation), ENOENT, "WIRE_RELEASE of what is gone");
	world_end(&other);
	ends_close(&ends);
}

/* The fds of a segment, asked for without end: some that read, some that do not. */
static void segments(void)
{
	struct ends ends;
	uint32_t segment;

	ends_make(&ends);
	segment = ends.segment->segment;
	for (unsigned i = 0; i < 2000 * setting.scale; i++) {
		struct link *link = &ends.a.link;
		ProtobufCMessage *event;
		int r = segment_get(link, segment);

		if (r != 0 && r != ESTALE)
			must_be(r, 0, "SEGMENT_GET");
		event = link_event(link, VSD__OP__EV_SEGMENT, &vsd__ev_segment__descriptor, 0);
		if (event)
			protobuf_c_message_free_unpacked(event, NULL);
	}
	/* Not read: the answers stop when the events do not fit any more, and nothing else happens. */
	for (unsigned i = 0; i < 400; i++) {
		Vsd__SegmentGetRequest request = VSD__SEGMENT_GET_REQUEST__INIT;
		uint8_t body[16], frame[64];

		request.segment = segment;
		if (send(ends.b.link.fd, frame,
			    frame_make(frame, sizeof(frame), VSD__OP__OP_SEGMENT_GET, i, body,
				    vsd__segment_get_request__pack(&request, body)),
			    MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		count("frames");
	}
	ends_close(&ends);
}

/* Wires made and broken while one end never looks at its event socket. */
static void unread_wires(void)
{
	struct ends ends;

	ends_make(&ends);
	for (unsigned i = 0; i < 300 * setting.scale; i++) {
		struct world *a = &ends.a, *b = &ends.b;

		/* Its own calls wait for room in its own event socket, so it is the other end that goes on. */
		must_be(modify(&a->link, a->qp, IBV_QPS_RESET, 0), 0, "RESET");
		must_be(modify(&a->link, a->qp, IBV_QPS_INIT, 0), 0, "INIT");
		must_be(modify(&a->link, a->qp, IBV_QPS_RTR, b->qpn), 0, "RTR");
		for (Vsd__EvWire *wire; (wire = (Vsd__EvWire *)link_event(&a->link, VSD__OP__EV_WIRE,
						 &vsd__ev_wire__descriptor, 0));) {
			wire_release(&a->link, wire->segment, wire->wire, wire->generation);
			protobuf_c_message_free_unpacked(&wire->base, NULL);
		}
	}
	ends_close(&ends);
}

/* Datagrams to everybody: to itself, nobody, connected QPs, and between many processes. */
static void resolves(void)
{
	enum { N = 12 };
	struct world worlds[N];

	for (unsigned i = 0; i < N; i++) {
		world_make(&worlds[i]);
		must_be(modify(&worlds[i].link, worlds[i].ud, IBV_QPS_INIT, 0), 0, "INIT");
		must_be(modify(&worlds[i].link, worlds[i].ud, IBV_QPS_RTR, 0), 0, "RTR");
	}
	for (unsigned i = 0; i < N; i++) {
		struct link *link = &worlds[i].link;

		events_drain(link);
		for (unsigned k = 0; k < N; k++) {
			must_be(peer_resolve(link, worlds[k].ud_qpn), 0, "PEER_RESOLVE");
			events_drain(link);
		}
		for (unsigned k = 0; k < 200; k++) {
			int r = peer_resolve(link, k % 2 ? (uint32_t)chance() : worlds[k % N].qpn);

			if (r != ENOENT && r != EHOSTUNREACH)
				must_be(r, ENOENT, "PEER_RESOLVE of nobody");
		}
	}
	for (unsigned i = 0; i < N; i++)
		world_end(&worlds[i]);
}

static int mcast(struct link *link, unsigned op, uint32_t qp, const uint8_t *gid, size_t n, uint32_t lid)
{
	Vsd__McastRequest request = VSD__MCAST_REQUEST__INIT;

	request.context = link->context;
	request.qp = qp;
	request.gid.data = (uint8_t *)(uintptr_t)gid;
	request.gid.len = n;
	request.lid = lid;
	return link_call(link, op, &request.base, NULL);
}

/* Asks on the event socket, where the wires come before the answer. False: refused. */
static bool mcast_resolve(struct link *link, const Vsd__McastResolveRequest *request, struct frame_header *header,
	uint8_t *buf, size_t size)
{
	struct pollfd poll_fd = { .fd = link->events, .events = POLLIN };
	struct fdlist fds = FDLIST_NULL;
	size_t n;

	*header = (struct frame_header){ .version = VSD_VERSION_MAX, .opcode = VSD__OP__OP_MCAST_RESOLVE };
	n = (size_t)frame_pack(buf, size, header, &request->base);
	if (send(link->events, buf, n, MSG_NOSIGNAL) != (ssize_t)n)
		complain("MCAST_RESOLVE cannot be sent");
	do {
		if (poll(&poll_fd, 1, 30000) <= 0 || sock_recv(link->events, buf, size, true, &fds, &n) < 0 || n == 0) {
			complain("MCAST_RESOLVE: no answer");
			return false;
		}
		fdlist_deinit(&fds);
	} while (frame_parse(buf, n, header) < 0 || header->flags != FRAME_REPLY);
	return header->status == 0;
}

/* How many processes are in the group, asked in pages; -1: it was refused. */
static int mcast_members(struct link *link, const uint8_t *gid, size_t n, uint32_t lid, uint32_t after)
{
	Vsd__McastResolveRequest request = VSD__MCAST_RESOLVE_REQUEST__INIT;
	struct frame_header header;
	uint8_t buf[1024];
	int members = 0;
	bool more = true;

	request.context = link->context;
	request.gid.data = (uint8_t *)(uintptr_t)gid;
	request.gid.len = n;
	request.lid = lid;
	request.after = after;
	while (more) {
		if (!mcast_resolve(link, &request, &header, buf, sizeof(buf)))
			return -1;

		Vsd__McastResolveReply *reply = vsd__mcast_resolve_reply__unpack(NULL, header.length, buf + sizeof(header));

		if (!reply) {
			complain("MCAST_RESOLVE: an answer that is none");
			return -1;
		}
		for (size_t i = 0; i < reply->n_peers; i++) {
			if (reply->peers[i] <= request.after)
				complain("MCAST_RESOLVE: process %u after %u", reply->peers[i], request.after);
			request.after = reply->peers[i];
		}
		members += (int)reply->n_peers;
		more = reply->more && reply->n_peers;
		vsd__mcast_resolve_reply__free_unpacked(reply, NULL);
	}
	return members;
}

static void members_must_be(int members, int expected, const char *what)
{
	if (members != expected)
		complain("%s: %d processes instead of %d", what, members, expected);
}

/* Groups: names that are none, QPs of others and of other kinds, members that die, and more than one answer names. */
static void groups(void)
{
	enum { N = 40, ATTACH = VSD__OP__OP_MCAST_ATTACH, DETACH = VSD__OP__OP_MCAST_DETACH };
	static const uint32_t lids[] = { 0, 1, 0xbfff, 0xffff, 0x10000, 0x1c001, 0xffffffffu };
	static const uint8_t gid[17] = { 0xff, 0x0e, [15] = 1 }, unicast[16] = { 0xfe, 0x80, [15] = 1 };
	struct world worlds[N];

	for (unsigned i = 0; i < N; i++)
		world_make(&worlds[i]);

	struct link *link = &worlds[0].link;

	for (size_t n = 0; n <= sizeof(gid); n++) {
		if (n == 16)
			continue;
		must_be(mcast(link, ATTACH, worlds[0].ud, gid, n, 0xc001), EINVAL, "a GID of %zu bytes", n);
		members_must_be(mcast_members(link, gid, n, 0xc001, 0), -1, "a GID of another length");
	}
	for (unsigned i = 0; i < sizeof(lids) / sizeof(lids[0]); i++) {
		must_be(mcast(link, ATTACH, worlds[0].ud, gid, 16, lids[i]), EINVAL, "LID 0x%x", lids[i]);
		members_must_be(mcast_members(link, gid, 16, lids[i], 0), -1, "a LID that is none");
	}
	must_be(mcast(link, ATTACH, worlds[0].ud, unicast, 16, 0xc001), EINVAL, "a GID of one port");
	must_be(mcast(link, ATTACH, worlds[0].qp, gid, 16, 0xc001), EINVAL, "an RC QP");
	must_be(mcast(link, DETACH, worlds[0].ud, gid, 16, 0xc001), EINVAL, "a QP that is not attached");
	for (unsigned i = 0; i < N; i++)
		for (unsigned again = 0; again < 2; again++)
			must_be(mcast(&worlds[i].link, ATTACH, worlds[i].ud, gid, 16, 0xc001), 0, "attach");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, worlds[0].ud), EBUSY, "a QP that is attached");
	members_must_be(mcast_members(link, gid, 16, 0xc001, 0), N - 1, "members");
	members_must_be(mcast_members(link, gid, 16, 0xc001, UINT32_MAX), 0, "members behind the last");
	members_must_be(mcast_members(link, gid, 16, 0xc002, 0), 0, "members of another LID");
	for (unsigned i = 1; i < N / 2; i++)
		world_end(&worlds[i]);
	/* The daemon hears of their end when it gets to it. */
	for (unsigned tries = 0; tries < 10000 && mcast_members(link, gid, 16, 0xc001, 0) > N / 2; tries++)
		;
	members_must_be(mcast_members(link, gid, 16, 0xc001, 0), N / 2, "members that live");
	must_be(mcast(link, DETACH, worlds[0].ud, gid, 16, 0xc001), 0, "detach");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, worlds[0].ud), 0, "a QP that was attached");
	world_end(&worlds[0]);
	for (unsigned i = N / 2; i < N; i++)
		world_end(&worlds[i]);
}

/* The event socket takes a few kinds of requests at most; anything else on it ends the session. */
static void event_socket(void)
{
	for (unsigned i = 0; i < 60; i++) {
		struct pollfd poll_fd = { .events = POLLIN };
		uint8_t frame[VSD_REQUEST_MAX * 2] = { 0 };
		struct world world;
		size_t n;

		world_make(&world);
		if (i < n_operations) {
			struct frame_header header = { .version = 1, .opcode = (uint16_t)operations[i].op };
			ProtobufCMessage *request = request_make(&operations[i], &world, true);

			n = (size_t)frame_pack(frame, sizeof(frame), &header, request);
			request_free(request);
		} else {
			n = i % 3 == 0 ? sizeof(frame) : i % 3 == 1 ? 1 : 30;
		}
		if (send(world.link.events, frame, n, MSG_NOSIGNAL) >= 0)
			count("frames");
		/* Answered there, or the end. */
		poll_fd.fd = world.link.events;
		if (poll(&poll_fd, 1, 30000) == 0)
			complain("%s on the event socket: silence", i < n_operations ? operations[i].name : "noise");
		world_end(&world);
	}
}

const struct attack attacks_wires[] = {
	{ "wires", wires },	  { "segments", segments },	    { "unread_wires", unread_wires },
	{ "resolves", resolves }, { "groups", groups },	    { "event_socket", event_socket },
	{ NULL, NULL },
};
