/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is joined with whom, who is told what and when, and when a wire's memory may be used again.
 */
#include "daemon/wire_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/pair.h"
#include "proto/ring_abi.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

enum { RC = 2, UC = 3, UD = 4 };
enum { RESET = 0, INIT = 1, RTR = 2, RTS = 3, ERR = 6 };

static struct client a, b;
static uint32_t qa, qb;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
	qa = (uint32_t)client_qp(&a, RC, a.qpn);
	qb = (uint32_t)client_qp(&b, RC, b.qpn);
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

static void expect_none(struct client *client)
{
	struct event_got event = client_event(client);

	ck_assert_uint_eq(event.opcode, 0);
}

/* The next event must be @opcode; its message is copied out. */
static void expect(struct client *client, unsigned opcode, void *msg, size_t size)
{
	struct event_got event = client_event(client);

	ck_assert_uint_eq(event.opcode, opcode);
	memcpy(msg, event.msg, size);
	event_release(&event);
}

static Vsd__EvWire expect_wire(struct client *client)
{
	Vsd__EvWire wire;

	expect(client, VSD__OP__EV_WIRE, &wire, sizeof(wire));
	return wire;
}

static Vsd__EvSegment expect_segment(struct client *client)
{
	Vsd__EvSegment segment;

	expect(client, VSD__OP__EV_SEGMENT, &segment, sizeof(segment));
	return segment;
}

static Vsd__EvWireGone expect_gone(struct client *client)
{
	Vsd__EvWireGone gone;

	expect(client, VSD__OP__EV_WIRE_GONE, &gone, sizeof(gone));
	return gone;
}

static int release(struct client *client, const Vsd__EvWire *wire)
{
	Vsd__WireReleaseRequest request = VSD__WIRE_RELEASE_REQUEST__INIT;

	request.segment = wire->segment;
	request.wire = wire->wire;
	request.generation = wire->generation;
	return client_call(client, VSD__OP__OP_WIRE_RELEASE, &request.base, NULL, NULL);
}

static void join_qps(Vsd__EvWire *wa, Vsd__EvWire *wb)
{
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	expect_segment(&a);
	expect_segment(&b);
	*wa = expect_wire(&a);
	*wb = expect_wire(&b);
}

START_TEST(one_side_alone_gets_nothing)
{
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	expect_none(&a);
	expect_none(&b);
}
END_TEST

START_TEST(both_sides_get_segment_then_wire)
{
	Vsd__EvSegment sa, sb;
	Vsd__EvWire wa, wb;

	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	sa = expect_segment(&a);
	sb = expect_segment(&b);
	wa = expect_wire(&a);
	wb = expect_wire(&b);
	ck_assert_uint_eq(sa.segment, sb.segment);
	ck_assert_uint_eq(sa.side, !sb.side);
	ck_assert_uint_eq(sa.peer, b.peer);
	ck_assert_uint_eq(sb.peer, a.peer);
	ck_assert_uint_eq(sa.size, VSD_SEGMENT_SIZE);
	ck_assert_uint_eq(sa.engines, VSD__ENGINE_RIGHT__ENGINE_STAGE | VSD__ENGINE_RIGHT__ENGINE_CMA |
					      VSD__ENGINE_RIGHT__ENGINE_MAP);
	ck_assert_uint_eq(wa.segment, sa.segment);
	ck_assert_uint_eq(wa.offset, wb.offset);
	ck_assert_uint_eq(wa.generation, wb.generation);
	ck_assert_uint_eq(wa.local_qpn, a.qpn);
	ck_assert_uint_eq(wa.peer_qpn, b.qpn);
	ck_assert_uint_eq(wb.local_qpn, b.qpn);
	ck_assert_uint_eq(wa.peer_rq_psn, a.qpn + 1000);
	ck_assert_uint_eq(wb.peer_rq_psn, b.qpn + 1000);
	ck_assert_uint_eq(wa.req_slots, 32);
	ck_assert_uint_eq(wa.resp_slots, 16);
	ck_assert_uint_eq(wa.side, sa.side);
	expect_none(&a);
	expect_none(&b);
}
END_TEST

START_TEST(segment_comes_with_its_four_fds)
{
	struct event_got event;
	struct stat st;
	int flags;

	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	event = client_event(&a);
	ck_assert_uint_eq(event.opcode, VSD__OP__EV_SEGMENT);
	ck_assert_uint_eq(event.fds.n, 4);
	ck_assert_int_eq(fstat(event.fds.fds[0], &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, VSD_SEGMENT_SIZE);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(fcntl(event.fds.fds[0], F_GET_SEALS),
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
			(fcntl(event.fds.fds[0], F_GET_SEALS) & 0x20 /* F_SEAL_EXEC */));
	flags = fcntl(event.fds.fds[2], F_GETFL);
	ck_assert_int_eq(flags & O_ACCMODE, O_WRONLY);
	ck_assert_int_ne(flags & O_NONBLOCK, 0);
	flags = fcntl(event.fds.fds[3], F_GETFL);
	ck_assert_int_eq(flags & O_ACCMODE, O_RDONLY);
	ck_assert_int_eq(fstat(event.fds.fds[3], &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, VSD_PAGE_SIZE);
	event_release(&event);
}
END_TEST

/* Things that must not match: nobody is joined, as on a fabric. */
static const struct {
	const char *name;
	unsigned type;
	int dest;
	uint32_t lid;
} mismatches[] = {
	{ "other number", RC, 1, 1 },
	{ "other LID", RC, 0, 2 },
	{ "LID 0 without GID", RC, 0, 0 },
	{ "other type", UC, 0, 1 },
};

START_TEST(mismatch_is_not_joined)
{
	uint32_t qp = (uint32_t)client_qp(&b, mismatches[_i].type, b.qpn + 1);

	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn + 1, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qp, a.qpn + (uint32_t)mismatches[_i].dest,
				 mismatches[_i].lid),
		0);
	expect_none(&a);
	expect_none(&b);
}
END_TEST

START_TEST(gid_must_match_when_given)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;
	uint8_t gid[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 'V', 'S', 'D', 0, 0, 0, 1 };

	gid[15] += (uint8_t)_i;
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	ck_assert_int_eq(client_qp_state(&a, qa, INIT), 0);
	request.context = a.context;
	request.handle = qa;
	request.state = RTR;
	request.has_dest_qpn = 1;
	request.dest_qpn = b.qpn;
	request.has_dgid = 1;
	request.dgid.data = gid;
	request.dgid.len = 16;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_QP_MODIFY, &request.base, NULL, NULL), 0);
	if (_i == 0) {
		expect_segment(&a);
		expect_wire(&a);
	} else {
		expect_none(&a);
	}
}
END_TEST

START_TEST(reset_tells_the_other_end_only)
{
	Vsd__EvWire wa, wb;
	Vsd__EvWireGone gone;

	join_qps(&wa, &wb);
	ck_assert_int_eq(client_qp_state(&a, qa, _i), 0);
	gone = expect_gone(&b);
	ck_assert_uint_eq(gone.segment, wb.segment);
	ck_assert_uint_eq(gone.wire, wb.wire);
	ck_assert_uint_eq(gone.generation, wb.generation);
	ck_assert_uint_eq(gone.reason, VSD__GONE_REASON__GONE_CLOSED);
	ck_assert_uint_eq(gone.local_qpn, b.qpn);
	expect_none(&a);
}
END_TEST

/* A QP that is joined while its process resets it can tell which connection a wire is of. */
START_TEST(wires_say_how_often_their_qp_was_reset)
{
	Vsd__EvWire wa, wb;

	join_qps(&wa, &wb);
	ck_assert(wa.has_resets && wb.has_resets);
	ck_assert_uint_eq(wa.resets + wb.resets, 0);
	for (unsigned i = 1; i < 4; i++) {
		/* One end goes by the error state, and stays there for the daemon's part. */
		ck_assert_int_eq(client_qp_state(&a, qa, 6), 0);
		ck_assert_int_eq(client_qp_state(&a, qa, 0), 0);
		expect_gone(&b);
		ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
		ck_assert_uint_eq(expect_wire(&a).resets, i);
		ck_assert_uint_eq(expect_wire(&b).resets, 0);
	}
}
END_TEST

START_TEST(destroy_tells_the_other_end)
{
	Vsd__EvWire wa, wb;

	join_qps(&wa, &wb);
	ck_assert_int_eq(client_destroy(&a, VSD__OBJECT_TYPE__OBJ_QP, qa), 0);
	ck_assert_uint_eq(expect_gone(&b).reason, VSD__GONE_REASON__GONE_CLOSED);
}
END_TEST

START_TEST(memory_is_used_again_after_both_released)
{
	Vsd__EvWire wa, wb, second;

	join_qps(&wa, &wb);
	ck_assert_int_eq(client_qp_state(&a, qa, RESET), 0);
	expect_gone(&b);
	ck_assert_int_eq(release(&a, &wa), 0);
	ck_assert_int_eq(release(&a, &wa), ENOENT);
	/* b has not released: a new wire lies elsewhere. */
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	second = expect_wire(&a);
	expect_wire(&b);
	ck_assert_uint_ne(second.wire, wa.wire);
	ck_assert_uint_ne(second.offset, wa.offset);
	ck_assert_int_eq(release(&b, &wb), 0);
	ck_assert_int_eq(client_qp_state(&a, qa, RESET), 0);
	expect_gone(&b);
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	second = expect_wire(&a);
	ck_assert_uint_eq(second.wire, wa.wire);
	ck_assert_uint_eq(second.offset, wa.offset);
	ck_assert_uint_gt(second.generation, wa.generation);
	expect_wire(&b);
}
END_TEST

START_TEST(release_of_what_is_not_ours_is_refused)
{
	Vsd__EvWire wa, wb, bad;
	struct client c;

	join_qps(&wa, &wb);
	client_open(&c);
	ck_assert_int_eq(release(&c, &wa), ENOENT);
	client_close(&c);
	bad = wa;
	bad.generation++;
	ck_assert_int_eq(release(&a, &bad), ENOENT);
	bad = wa;
	bad.wire = 0;
	ck_assert_int_eq(release(&a, &bad), ENOENT);
	bad.wire = UINT32_MAX;
	ck_assert_int_eq(release(&a, &bad), ENOENT);
	bad = wa;
	bad.segment = 0;
	ck_assert_int_eq(release(&a, &bad), ENOENT);
}
END_TEST

START_TEST(release_of_a_wire_in_use_closes_it)
{
	Vsd__EvWire wa, wb;

	join_qps(&wa, &wb);
	ck_assert_int_eq(release(&a, &wa), 0);
	expect_gone(&b);
	ck_assert_int_eq(release(&b, &wb), 0);
	ck_assert_uint_eq(fixture_server->n_wires, 0);
}
END_TEST

START_TEST(death_is_told_once_per_segment_and_once_per_wire)
{
	Vsd__EvWire wa, wb;
	Vsd__EvPeerGone gone;
	Vsd__EvWireGone wire_gone;

	join_qps(&wa, &wb);
	client_close(&a);
	expect(&b, VSD__OP__EV_PEER_GONE, &gone, sizeof(gone));
	ck_assert_uint_eq(gone.segment, wb.segment);
	ck_assert_uint_eq(gone.reason, VSD__GONE_REASON__GONE_DEAD);
	wire_gone = expect_gone(&b);
	ck_assert_uint_eq(wire_gone.reason, VSD__GONE_REASON__GONE_DEAD);
	expect_none(&b);
	/* The segment goes with the survivor's last wire. */
	ck_assert_uint_eq(fixture_server->segments.count, 1);
	ck_assert_int_eq(release(&b, &wb), 0);
	ck_assert_uint_eq(fixture_server->segments.count, 0);
}
END_TEST

START_TEST(loopback_wire_is_told_twice_and_released_twice)
{
	uint32_t second = (uint32_t)client_qp(&a, RC, a.qpn + 1);
	Vsd__EvWire one, two;

	ck_assert_int_eq(client_qp_connect(&a, qa, a.qpn + 1, 1), 0);
	ck_assert_int_eq(client_qp_connect(&a, second, a.qpn, 1), 0);
	one = expect_wire(&a);
	two = expect_wire(&a);
	ck_assert_uint_eq(one.segment, 0);
	ck_assert_uint_eq(one.side, 0);
	ck_assert_uint_eq(two.side, 1);
	ck_assert_uint_eq(one.wire, two.wire);
	ck_assert_uint_eq(one.local_qpn, two.peer_qpn);
	ck_assert_uint_eq(one.peer, a.peer);
	ck_assert_int_eq(client_qp_state(&a, qa, ERR), 0);
	ck_assert_uint_eq(expect_gone(&a).local_qpn, a.qpn + 1);
	ck_assert_int_eq(release(&a, &one), 0);
	ck_assert_uint_eq(fixture_server->n_wires, 1);
	ck_assert_int_eq(release(&a, &two), 0);
	ck_assert_uint_eq(fixture_server->n_wires, 0);
	ck_assert_int_eq(release(&a, &two), ENOENT);
}
END_TEST

/* One end is all there is of it, and as long as that is held there is no other wire, whatever the QP is modified to. */
START_TEST(qp_that_names_itself_has_one_wire)
{
	Vsd__EvWire wire;

	ck_assert_int_eq(client_qp_connect(&a, qa, a.qpn, 1), 0);
	wire = expect_wire(&a);
	ck_assert_uint_eq(wire.side, 0);
	ck_assert_uint_eq(wire.local_qpn, wire.peer_qpn);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(client_qp_state(&a, qa, RTS), 0);
	expect_none(&a);
	ck_assert_uint_eq(fixture_server->n_wires, 1);
	ck_assert_int_eq(client_qp_state(&a, qa, RESET), 0);
	expect_none(&a);
	ck_assert_uint_eq(fixture_server->n_wires, 1);
	ck_assert_int_eq(release(&a, &wire), 0);
	ck_assert_uint_eq(fixture_server->n_wires, 0);
	ck_assert_int_eq(release(&a, &wire), ENOENT);
}
END_TEST

START_TEST(qp_that_names_itself_may_let_its_wire_go_first)
{
	Vsd__EvWire wire;

	ck_assert_int_eq(client_qp_connect(&a, qa, a.qpn, 1), 0);
	wire = expect_wire(&a);
	ck_assert_int_eq(release(&a, &wire), 0);
	ck_assert_uint_eq(fixture_server->n_wires, 0);
	ck_assert_int_eq(client_qp_state(&a, qa, RTS), 0);
	ck_assert_uint_gt(expect_wire(&a).generation, wire.generation);
	expect_none(&a);
}
END_TEST

static int resolve(struct client *client, uint32_t qpn, uint32_t lid)
{
	Vsd__PeerResolveRequest request = VSD__PEER_RESOLVE_REQUEST__INIT;

	request.context = client->context;
	request.qpn = qpn;
	request.dlid = lid;
	return client_call(client, VSD__OP__OP_PEER_RESOLVE, &request.base, NULL, NULL);
}

START_TEST(datagrams_get_one_wire_per_pair)
{
	uint32_t ud = (uint32_t)client_qp(&b, UD, b.qpn + 1);

	ck_assert_int_eq(resolve(&a, b.qpn + 1, 1), EHOSTUNREACH);
	ck_assert_int_eq(client_qp_state(&b, ud, INIT), 0);
	ck_assert_int_eq(client_qp_state(&b, ud, RTR), 0);
	ck_assert_int_eq(resolve(&a, b.qpn + 1, 2), EHOSTUNREACH);
	ck_assert_int_eq(resolve(&a, b.qpn, 1), EHOSTUNREACH);
	ck_assert_int_eq(resolve(&a, b.qpn + 1, 1), 0);
	expect_segment(&a);
	expect_segment(&b);
	ck_assert_uint_eq(expect_wire(&a).kind, VSD__WIRE_KIND__WIRE_DGRAM);
	ck_assert_uint_eq(expect_wire(&b).req_slots, 256);
	ck_assert_int_eq(resolve(&a, b.qpn + 1, 1), 0);
	expect_none(&a);
	expect_none(&b);
}
END_TEST

START_TEST(datagrams_inside_one_process_need_no_wire)
{
	uint32_t ud = (uint32_t)client_qp(&a, UD, a.qpn + 1);

	ck_assert_int_eq(client_qp_state(&a, ud, INIT), 0);
	ck_assert_int_eq(client_qp_state(&a, ud, RTR), 0);
	ck_assert_int_eq(resolve(&a, a.qpn + 1, 1), 0);
	expect_none(&a);
}
END_TEST

START_TEST(segment_can_be_asked_for_again)
{
	Vsd__SegmentGetRequest request = VSD__SEGMENT_GET_REQUEST__INIT;
	Vsd__EvWire wa, wb;
	struct client c;

	join_qps(&wa, &wb);
	request.segment = wa.segment;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_SEGMENT_GET, &request.base, NULL, NULL), 0);
	ck_assert_uint_eq(expect_segment(&a).segment, wa.segment);
	client_open(&c);
	ck_assert_int_eq(
		client_call(&c, VSD__OP__OP_SEGMENT_GET, &request.base, NULL, NULL), ENOENT);
	client_close(&c);
	request.segment = 77;
	ck_assert_int_eq(
		client_call(&a, VSD__OP__OP_SEGMENT_GET, &request.base, NULL, NULL), ENOENT);
}
END_TEST

static uint64_t later;

static uint64_t clock_later(void)
{
	return later;
}

START_TEST(memfd_is_not_kept_for_long)
{
	Vsd__SegmentGetRequest request = VSD__SEGMENT_GET_REQUEST__INIT;
	Vsd__EvWire wa, wb;

	join_qps(&wa, &wb);
	ck_assert_uint_eq(fixture_server->n_kept, 1);
	later = loop_now() + SEGMENT_KEEP_MS + 1;
	loop_set_clock(clock_later);
	ck_assert(!segments_expire(fixture_server, loop_now()));
	ck_assert_uint_eq(fixture_server->n_kept, 0);
	request.segment = wa.segment;
	ck_assert_int_eq(
		client_call(&a, VSD__OP__OP_SEGMENT_GET, &request.base, NULL, NULL), ESTALE);
	loop_set_clock(NULL);
}
END_TEST

/* Two slots for each WR that either end may have, within bounds; and half as many responses. */
static const struct {
	uint32_t max_send_wr, req_slots, resp_slots;
} lanes[] = {
	{ 0, 16, 16 }, { 1, 16, 16 }, { 8, 16, 16 }, { 9, 32, 16 }, { 16, 32, 16 }, { 17, 64, 32 }, { 32, 64, 32 }, { 33, 128, 64 },
	{ 64, 128, 64 }, { 65, 128, 64 }, { 16384, 128, 64 },
};

START_TEST(lanes_are_as_long_as_the_qp_wants)
{
	uint32_t wanted = lanes[_i].max_send_wr;
	Vsd__EvWire wa, wb;

	/* The other end sends hardly anything. */
	qa = (uint32_t)client_qp_of(&a, RC, a.qpn + 1, wanted);
	qb = (uint32_t)client_qp_of(&b, RC, b.qpn + 1, wanted ? 1 : 0);
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn + 1, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn + 1, 1), 0);
	expect_segment(&a);
	expect_segment(&b);
	wa = expect_wire(&a);
	wb = expect_wire(&b);
	ck_assert_uint_eq(wa.req_slots, lanes[_i].req_slots);
	ck_assert_uint_eq(wa.resp_slots, lanes[_i].resp_slots);
	ck_assert_uint_eq(wb.req_slots, wa.req_slots);
	ck_assert_uint_eq(wb.resp_slots, wa.resp_slots);
}
END_TEST

START_TEST(the_other_end_may_want_the_longer_lanes)
{
	Vsd__EvWire wa, wb;

	qb = (uint32_t)client_qp_of(&b, RC, ++b.qpn, 64);
	join_qps(&wa, &wb);
	ck_assert_uint_eq(wa.req_slots, 128);
	ck_assert_uint_eq(wb.req_slots, 128);
	ck_assert_uint_eq(wa.resp_slots, 64);
	ck_assert_uint_eq(wb.resp_slots, 64);
}
END_TEST

START_TEST(lane_slots_may_be_forced)
{
	Vsd__EvWire wa, wb;

	fixture_server->config->lane_slots = 2;
	join_qps(&wa, &wb);
	ck_assert_uint_eq(wa.req_slots, 2);
	ck_assert_uint_eq(wa.resp_slots, 2);
}
END_TEST

START_TEST(cma_may_be_forbidden)
{
	fixture_server->config->cma = false;
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	ck_assert_uint_eq(expect_segment(&a).engines,
		VSD__ENGINE_RIGHT__ENGINE_STAGE | VSD__ENGINE_RIGHT__ENGINE_MAP);
}
END_TEST

START_TEST(strangers_run_no_engines_on_each_other)
{
	struct client c;
	uint32_t qc;

	client_open_stranger(&c);
	qc = (uint32_t)client_qp(&c, RC, c.qpn);
	ck_assert_int_eq(client_qp_connect(&a, qa, c.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&c, qc, a.qpn, 1), 0);
	ck_assert_uint_eq(expect_segment(&a).engines, VSD__ENGINE_RIGHT__ENGINE_STAGE);
	ck_assert_uint_eq(expect_segment(&c).engines, VSD__ENGINE_RIGHT__ENGINE_STAGE);
	client_close(&c);
}
END_TEST

START_TEST(quota_of_wires_leaves_the_qp_as_it_was)
{
	fixture_server->config->limit[SLOT_WIRES] = 1;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
	ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), ENOMEM);
	expect_none(&a);
	fixture_server->config->limit[SLOT_WIRES] = 2;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	expect_segment(&a);
}
END_TEST

/* A peer that reads nothing holds up nobody, and is told everything later, in order. */
START_TEST(peer_that_does_not_read_holds_up_nobody)
{
	enum { ROUNDS = 1500 };
	unsigned wires = 0, gone = 0;

	ck_assert_int_eq(client_qp_connect(&b, qb, a.qpn, 1), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(client_qp_connect(&a, qa, b.qpn, 1), 0);
		ck_assert_int_eq(client_qp_state(&a, qa, RESET), 0);
		for (;;) {
			struct event_got event = client_event(&a);

			if (event.opcode == VSD__OP__EV_WIRE)
				ck_assert_int_eq(release(&a, (const Vsd__EvWire *)event.msg), 0);
			if (event.opcode == 0)
				break;
			event_release(&event);
		}
	}
	for (;;) {
		struct event_got event = client_event(&b);

		if (event.opcode == 0)
			break;
		wires += event.opcode == VSD__OP__EV_WIRE;
		gone += event.opcode == VSD__OP__EV_WIRE_GONE;
		event_release(&event);
	}
	ck_assert_uint_eq(wires, gone);
	ck_assert_uint_gt(wires, 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire-pair");
	TCase *tcase = harness_tcase(suite, "wire-pair");
	TCase *slow = harness_tcase(suite, "slow");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_side_alone_gets_nothing);
	tcase_add_test(tcase, both_sides_get_segment_then_wire);
	tcase_add_test(tcase, segment_comes_with_its_four_fds);
	tcase_add_loop_test(tcase, mismatch_is_not_joined, 0,
		(int)(sizeof(mismatches) / sizeof(mismatches[0])));
	tcase_add_loop_test(tcase, gid_must_match_when_given, 0, 2);
	tcase_add_loop_test(tcase, reset_tells_the_other_end_only, RESET, RESET + 1);
	tcase_add_loop_test(tcase, reset_tells_the_other_end_only, ERR, ERR + 1);
	tcase_add_test(tcase, wires_say_how_often_their_qp_was_reset);
	tcase_add_test(tcase, destroy_tells_the_other_end);
	tcase_add_test(tcase, memory_is_used_again_after_both_released);
	tcase_add_test(tcase, release_of_what_is_not_ours_is_refused);
	tcase_add_test(tcase, release_of_a_wire_in_use_closes_it);
	tcase_add_test(tcase, death_is_told_once_per_segment_and_once_per_wire);
	tcase_add_test(tcase, loopback_wire_is_told_twice_and_released_twice);
	tcase_add_test(tcase, qp_that_names_itself_has_one_wire);
	tcase_add_test(tcase, qp_that_names_itself_may_let_its_wire_go_first);
	tcase_add_test(tcase, datagrams_get_one_wire_per_pair);
	tcase_add_test(tcase, datagrams_inside_one_process_need_no_wire);
	tcase_add_test(tcase, segment_can_be_asked_for_again);
	tcase_add_test(tcase, memfd_is_not_kept_for_long);
	tcase_add_loop_test(tcase, lanes_are_as_long_as_the_qp_wants, 0, (int)(sizeof(lanes) / sizeof(lanes[0])));
	tcase_add_test(tcase, the_other_end_may_want_the_longer_lanes);
	tcase_add_test(tcase, lane_slots_may_be_forced);
	tcase_add_test(tcase, cma_may_be_forbidden);
	tcase_add_test(tcase, strangers_run_no_engines_on_each_other);
	tcase_add_test(tcase, quota_of_wires_leaves_the_qp_as_it_was);
	tcase_set_timeout(slow, 60);
	tcase_add_checked_fixture(slow, setup, teardown);
	tcase_add_test(slow, peer_that_does_not_read_holds_up_nobody);
	return harness_run(suite);
}
