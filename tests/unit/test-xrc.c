/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC in the daemon: who shares a domain, how long a receive QP lives and who is told of it, and which SRQs a send QP
 * gets a wire to. Three clients: one sends, two have SRQs of one XRCD.
 */
#include <errno.h>

#include "tests/lib/harness.h"
#include "tests/unit/xrc_calls.h"

enum { RC = 2 };
enum { RESET = 0, INIT = 1, RTR = 2, RTS = 3, ERR = 6 };
enum { QP_FATAL = 1, QP_REQ_ERR = 2, QP_ACCESS_ERR = 3, COMM_EST = 4 };

#define REMOTE_WRITE  2u
#define RNR_TIMER     (1u << VSD__SHARED_FIELD__FIELD_MIN_RNR_TIMER)
#define ACCESS	      (1u << VSD__SHARED_FIELD__FIELD_ACCESS)
/* Events, more than a socket holds. */
#define HANDLES	      32
#define LIVES	      16
#define SRQ_OF(owner) ((owner)->qpn + 7)

static struct client sender, first, second;
static uint32_t send_qp, target, target_qpn; /* the target as the first one has it */
static uint32_t xrcd_first, xrcd_second, srq_first, srq_second;

/* --- events --------------------------------------------------------------------------------------------------------- */

static void expect_none(struct client *client)
{
	struct event_got event = client_event(client);

	ck_assert_uint_eq(event.opcode, 0);
}

/* The next event that is not of a segment. */
static struct event_got expect(struct client *client, unsigned opcode)
{
	struct event_got event = client_event(client);

	if (event.opcode == VSD__OP__EV_SEGMENT) {
		event_release(&event);
		event = client_event(client);
	}
	ck_assert_uint_eq(event.opcode, opcode);
	return event;
}

static Vsd__EvWire expect_wire(struct client *client, Vsd__XrcTarget *of)
{
	struct event_got event = expect(client, VSD__OP__EV_WIRE);
	Vsd__EvWire wire = *(Vsd__EvWire *)event.msg;

	ck_assert_uint_eq(wire.kind, VSD__WIRE_KIND__WIRE_XRC);
	ck_assert_int_eq(wire.target != NULL, of != NULL);
	if (of)
		*of = *wire.target;
	wire.target = NULL;
	event_release(&event);
	return wire;
}

static void expect_gone(struct client *client, const Vsd__EvWire *wire, unsigned reason)
{
	struct event_got event = expect(client, VSD__OP__EV_WIRE_GONE);
	const Vsd__EvWireGone *gone = (const void *)event.msg;

	ck_assert_uint_eq(gone->wire, wire->wire);
	ck_assert_uint_eq(gone->generation, wire->generation);
	ck_assert_uint_eq(gone->local_qpn, wire->local_qpn);
	ck_assert_uint_eq(gone->reason, reason);
	event_release(&event);
}

static void expect_peer_gone(struct client *client)
{
	struct event_got event = expect(client, VSD__OP__EV_PEER_GONE);

	event_release(&event);
}

static void expect_refused(uint32_t srqn)
{
	struct event_got event = expect(&sender, VSD__OP__EV_XRC_REFUSED);

	ck_assert_uint_eq(((Vsd__EvXrcRefused *)event.msg)->qpn, sender.qpn);
	ck_assert_uint_eq(((Vsd__EvXrcRefused *)event.msg)->srqn, srqn);
	event_release(&event);
}

static void expect_event(struct client *client, uint32_t handle, uint32_t kind)
{
	struct event_got event = expect(client, VSD__OP__EV_XRC_EVENT);

	ck_assert_uint_eq(((Vsd__EvXrcEvent *)event.msg)->context, client->context);
	ck_assert_uint_eq(((Vsd__EvXrcEvent *)event.msg)->handle, handle);
	ck_assert_uint_eq(((Vsd__EvXrcEvent *)event.msg)->event, kind);
	event_release(&event);
}

/* --- the three ------------------------------------------------------------------------------------------------------ */

static uint32_t good(int64_t handle)
{
	ck_assert_int_gt(handle, 0);
	return (uint32_t)handle;
}

static void setup(void)
{
	fixture_setup();
	client_open(&sender);
	client_open(&first);
	client_open(&second);
	xrcd_first = good(call_xrcd_open(&first, 7, true, true));
	xrcd_second = good(call_xrcd_open(&second, 7, false, false));
	srq_first = good(call_srq_create(&first, xrcd_first, SRQ_OF(&first)));
	srq_second = good(call_srq_create(&second, xrcd_second, SRQ_OF(&second)));
	target = call_target_create(&first, xrcd_first, &target_qpn);
	send_qp = good(call_send_create(&sender, sender.qpn));
}

static void teardown(void)
{
	client_close(&sender);
	client_close(&first);
	client_close(&second);
	fixture_teardown();
}

static void connect_sender(void)
{
	ck_assert_int_eq(client_qp_connect(&sender, send_qp, target_qpn, 1), 0);
}

static void connect_target(void)
{
	ck_assert_int_eq(client_qp_connect(&first, target, sender.qpn, 1), 0);
}

/* The sender's end, and that of who has the SRQ. */
static void join(struct client *owner, Vsd__EvWire *from, Vsd__EvWire *to)
{
	Vsd__XrcTarget of;

	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(owner)), 0);
	*from = expect_wire(&sender, NULL);
	*to = expect_wire(owner, &of);
}

/* --- domains -------------------------------------------------------------------------------------------------------- */

START_TEST(an_inode_is_one_domain)
{
	ck_assert_int_eq(call_xrcd_open(&sender, 8, false, false), -EAGAIN);
	ck_assert_int_eq(call_xrcd_open(&sender, 7, true, true), -EINVAL);
	good(call_xrcd_open(&sender, 7, true, false));
	ck_assert_uint_eq(fixture_server->xrcd_numbers.count, 1);
	/* Without an inode each is another one. */
	good(call_xrcd_open(&sender, 0, true, false));
	good(call_xrcd_open(&sender, 0, true, true));
	ck_assert_uint_eq(fixture_server->xrcd_numbers.count, 3);
}
END_TEST

START_TEST(another_trust_domain_has_its_own)
{
	struct client stranger;
	uint32_t xrcd;

	client_open_stranger(&stranger);
	ck_assert_int_eq(call_xrcd_open(&stranger, 7, false, false), -EAGAIN);
	xrcd = good(call_xrcd_open(&stranger, 7, true, true));
	ck_assert_uint_eq(fixture_server->xrcd_numbers.count, 2);
	ck_assert_int_eq(call_target_open(&stranger, xrcd, target_qpn), -EINVAL);
	client_close(&stranger);
	ck_assert_uint_eq(fixture_server->xrcd_numbers.count, 1);
}
END_TEST

/* Whoever made it may go: it is everybody's who has it open. */
START_TEST(a_domain_goes_with_its_last_opener)
{
	client_close(&first);
	good(call_xrcd_open(&sender, 7, false, false));
	client_close(&second);
	good(call_xrcd_open(&sender, 7, false, false));
	client_close(&sender);
	ck_assert_uint_eq(fixture_server->xrcd_numbers.count, 0);
	client_open(&sender);
	ck_assert_int_eq(call_xrcd_open(&sender, 7, false, false), -EAGAIN);
}
END_TEST

START_TEST(what_stands_on_a_domain_keeps_it)
{
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_XRCD, xrcd_first), EBUSY);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_QP, target), 0);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_XRCD, xrcd_first), EBUSY);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_CQ, first.cq), EBUSY);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_SRQ, srq_first), 0);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_XRCD, xrcd_first), 0);
}
END_TEST

/* SRQs and QPs have one space of numbers, out of the leases of their process. */
START_TEST(a_number_is_somebodys_once)
{
	ck_assert_int_lt(call_srq_create(&first, xrcd_first, SRQ_OF(&first)), 0);
	ck_assert_int_lt(call_srq_create(&first, xrcd_first, second.qpn + 1), 0);
	ck_assert_int_lt(client_qp(&first, RC, SRQ_OF(&first)), 0);
	good(client_qp(&first, RC, first.qpn));
	ck_assert_int_lt(call_srq_create(&first, xrcd_first, first.qpn), 0);
	ck_assert_int_lt(call_srq_create(&first, xrcd_first, target_qpn), 0);
	ck_assert_int_eq(client_destroy(&first, VSD__OBJECT_TYPE__OBJ_SRQ, srq_first), 0);
	good(call_srq_create(&first, xrcd_first, SRQ_OF(&first)));
}
END_TEST

/* --- receive QPs ---------------------------------------------------------------------------------------------------- */

START_TEST(all_openers_see_one_qp)
{
	uint32_t again = good(call_target_open(&second, xrcd_second, target_qpn)), mask;

	ck_assert_int_eq(call_target_set(&second, again, INIT, RNR_TIMER, 9), 0);
	ck_assert_int_eq(call_target_state(&first, target, &mask), INIT);
	ck_assert_uint_eq(mask, RNR_TIMER);
	connect_target();
	target_is(&second, again, RTR);
	/* The state that the one left is the one from which the other goes on. */
	ck_assert_int_eq(call_target_set(&second, again, INIT, ACCESS, REMOTE_WRITE), EINVAL);
	ck_assert_int_eq(client_qp_state(&second, again, RESET), 0);
	ck_assert_int_eq(call_target_state(&first, target, &mask), RESET);
	ck_assert_uint_eq(mask, 0);
}
END_TEST

START_TEST(a_receive_qp_goes_with_its_last_opener)
{
	uint32_t again = good(call_target_open(&second, xrcd_second, target_qpn)), qpn;

	client_close(&first);
	target_is(&second, again, RESET);
	ck_assert_int_eq(client_destroy(&second, VSD__OBJECT_TYPE__OBJ_QP, again), 0);
	ck_assert_int_eq(call_target_open(&second, xrcd_second, target_qpn), -EINVAL);
	/* Its number rests. */
	call_target_create(&second, xrcd_second, &qpn);
	ck_assert_uint_ne(qpn, target_qpn);
}
END_TEST

/* Its number, that of a QP, an SRQ, or nobody; and the right one in the wrong domain. */
START_TEST(only_a_receive_qp_of_the_domain_is_opened)
{
	uint32_t other = good(call_xrcd_open(&second, 8, true, true));

	ck_assert_int_eq(call_target_open(&second, other, target_qpn), -EINVAL);
	ck_assert_int_eq(call_target_open(&second, xrcd_second, sender.qpn), -EINVAL);
	ck_assert_int_eq(call_target_open(&second, xrcd_second, SRQ_OF(&first)), -EINVAL);
	ck_assert_int_eq(call_target_open(&second, xrcd_second, 0), -EINVAL);
	ck_assert_int_eq(call_target_open(&second, xrcd_second, UINT32_MAX), -EINVAL);
	ck_assert_int_eq(call_target_open(&second, 0, target_qpn), -EINVAL);
}
END_TEST

/* --- wires ---------------------------------------------------------------------------------------------------------- */

/* A message that is there before the QPs name each other waits, and whoever comes last makes the wire. */
START_TEST(a_wire_comes_when_both_name_each_other)
{
	Vsd__XrcTarget of;
	Vsd__EvWire from, to;

	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), EINVAL);
	if (_i)
		connect_target();
	connect_sender();
	if (_i)
		expect_none(&sender);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), 0);
	if (!_i) {
		expect_none(&sender);
		expect_none(&second);
		ck_assert_int_eq(call_target_set(&first, target, INIT, ACCESS, REMOTE_WRITE), 0);
		connect_target();
	}
	from = expect_wire(&sender, NULL);
	to = expect_wire(&second, &of);
	ck_assert_uint_eq(from.local_qpn, sender.qpn);
	ck_assert_uint_eq(from.peer_qpn, target_qpn);
	ck_assert_uint_eq(from.peer, second.peer);
	ck_assert_uint_eq(to.local_qpn, target_qpn);
	ck_assert_uint_eq(to.peer_qpn, sender.qpn);
	ck_assert_uint_eq(of.access, _i ? 0 : REMOTE_WRITE);
	ck_assert_uint_eq(of.state, RTR);
	expect_none(&first);
}
END_TEST

/* The receive QP names another one: that one gets nothing, and nobody is told anything. */
START_TEST(a_stranger_to_the_receive_qp_gets_no_wire)
{
	connect_sender();
	ck_assert_int_eq(client_qp_connect(&first, target, sender.qpn + 1, 1), 0);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), 0);
	expect_none(&sender);
	expect_none(&first);
	expect_none(&second);
	target_is(&first, target, RTR);
}
END_TEST

START_TEST(one_wire_for_each_process)
{
	Vsd__EvWire from, to;

	good(call_srq_create(&second, xrcd_second, SRQ_OF(&second) + 1));
	connect_sender();
	connect_target();
	join(&second, &from, &to);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), 0);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second) + 1), 0);
	expect_none(&sender);
	join(&first, &from, &to);
	ck_assert_uint_eq(fixture_server->n_wires, 2);
	/* What was asked for meanwhile is made when the sender has let go. */
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&first)), 0);
	ck_assert_int_eq(call_wire_release(&sender, &from), 0);
	expect_gone(&first, &to, VSD__GONE_REASON__GONE_CLOSED);
	ck_assert_uint_gt(expect_wire(&sender, NULL).generation, from.generation);
}
END_TEST

/* The sender's own process may have the SRQ. */
START_TEST(a_wire_inside_one_process_has_two_ends)
{
	uint32_t xrcd = good(call_xrcd_open(&sender, 7, false, false));
	Vsd__EvWire from, to;
	Vsd__XrcTarget of;

	good(call_srq_create(&sender, xrcd, SRQ_OF(&sender)));
	connect_sender();
	connect_target();
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&sender)), 0);
	from = expect_wire(&sender, NULL);
	to = expect_wire(&sender, &of);
	ck_assert_uint_eq(from.segment, 0);
	ck_assert_uint_eq(to.wire, from.wire);
	ck_assert_uint_ne(to.side, from.side);
	ck_assert_int_eq(call_xrc_report(&sender, &to, QP_FATAL), 0);
	expect_event(&first, target, QP_FATAL);
}
END_TEST

START_TEST(who_serves_it_is_told_of_changes)
{
	Vsd__EvWire from, to;
	struct event_got event;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	ck_assert_int_eq(call_target_set(&first, target, RTS, RNR_TIMER, 12), 0);
	event = expect(&second, VSD__OP__EV_WIRE_CHANGED);
	ck_assert_uint_eq(((Vsd__EvWireChanged *)event.msg)->wire, to.wire);
	ck_assert_uint_eq(((Vsd__EvWireChanged *)event.msg)->local_qpn, target_qpn);
	ck_assert_uint_eq(((Vsd__EvWireChanged *)event.msg)->target->min_rnr_timer, 12);
	ck_assert_uint_eq(((Vsd__EvWireChanged *)event.msg)->target->state, RTS);
	event_release(&event);
	expect_none(&sender);
}
END_TEST

/* --- refusals ------------------------------------------------------------------------------------------------------- */

static uint32_t wrong_srq(int which)
{
	switch (which) {
	case 0: /* of another XRCD */
		good(call_srq_create(&second, good(call_xrcd_open(&second, 8, true, true)), SRQ_OF(&second) + 1));
		return SRQ_OF(&second) + 1;
	case 1: /* gone */
		ck_assert_int_eq(client_destroy(&second, VSD__OBJECT_TYPE__OBJ_SRQ, srq_second), 0);
		return SRQ_OF(&second);
	case 2: /* of a process that is gone */
		client_close(&second);
		return SRQ_OF(&second);
	case 3: /* of a QP */
		return target_qpn;
	case 4:
		return sender.qpn;
	case 5:
		return 0;
	default:
		return UINT32_MAX;
	}
}

/* The send QP is told, the receive QP has failed, and so are all told who have it open; its other wires go. */
START_TEST(a_wrong_srq_fails_the_receive_qp)
{
	uint32_t again = good(call_target_open(&first, xrcd_first, target_qpn)), wrong;
	Vsd__EvWire from, to;

	connect_sender();
	connect_target();
	join(&first, &from, &to);
	wrong = wrong_srq(_i);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, wrong), 0);
	expect_refused(wrong);
	expect_gone(&sender, &from, VSD__GONE_REASON__GONE_CLOSED);
	expect_gone(&first, &to, VSD__GONE_REASON__GONE_CLOSED);
	expect_event(&first, target, QP_ACCESS_ERR);
	expect_event(&first, again, QP_ACCESS_ERR);
	target_is(&first, target, ERR);
	/* Nothing more comes by it, and nobody is told once more. */
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&first)), 0);
	expect_none(&sender);
	expect_none(&first);
}
END_TEST

/* --- reports -------------------------------------------------------------------------------------------------------- */

START_TEST(the_first_message_is_told_to_all)
{
	uint32_t again = good(call_target_open(&second, xrcd_second, target_qpn));
	Vsd__EvWire from, to;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	ck_assert_int_eq(call_xrc_report(&second, &to, COMM_EST), 0);
	expect_event(&first, target, COMM_EST);
	expect_event(&second, again, COMM_EST);
	target_is(&first, target, RTR);
}
END_TEST

/* Each process with an SRQ has a wire of its own, and sees a first message. */
START_TEST(the_first_message_is_one_for_all_processes)
{
	Vsd__EvWire from[2], to[2];

	connect_sender();
	connect_target();
	join(&first, &from[0], &to[0]);
	join(&second, &from[1], &to[1]);
	ck_assert_int_eq(call_xrc_report(&first, &to[0], COMM_EST), 0);
	expect_event(&first, target, COMM_EST);
	ck_assert_int_eq(call_xrc_report(&second, &to[1], COMM_EST), 0);
	expect_none(&first);
	target_is(&first, target, RTR);
}
END_TEST

static void another_life(uint32_t handle, Vsd__EvWire *from, Vsd__EvWire *to)
{
	ck_assert_int_eq(client_qp_state(&second, handle, RESET), 0);
	expect_gone(&sender, from, VSD__GONE_REASON__GONE_CLOSED);
	expect_gone(&second, to, VSD__GONE_REASON__GONE_CLOSED);
	ck_assert_int_eq(client_qp_connect(&second, handle, sender.qpn, 1), 0);
	join(&second, from, to);
}

/* Who does not read is told of each kind once, when he does. */
START_TEST(events_wait_for_their_reader)
{
	uint32_t again = good(call_target_open(&second, xrcd_second, target_qpn));
	unsigned comm_est = 0, req_err = 0;
	struct event_got event;
	Vsd__EvWire from, to;

	connect_sender();
	for (unsigned i = 0; i < HANDLES; i++)
		good(call_target_open(&first, xrcd_first, target_qpn));
	connect_target();
	join(&second, &from, &to);
	for (unsigned i = 0; i < LIVES; i++) {
		ck_assert_int_eq(call_xrc_report(&second, &to, COMM_EST), 0);
		expect_event(&second, again, COMM_EST);
		another_life(again, &from, &to);
	}
	ck_assert_int_eq(call_xrc_report(&second, &to, QP_REQ_ERR), 0);
	while ((event = client_event(&first)).opcode) {
		ck_assert_uint_eq(event.opcode, VSD__OP__EV_XRC_EVENT);
		if (((Vsd__EvXrcEvent *)event.msg)->handle != target) {
			; /* they fill the socket */
		} else if (((Vsd__EvXrcEvent *)event.msg)->event == QP_REQ_ERR) {
			req_err++;
			comm_est = 0; /* those that wait come after it */
		} else {
			comm_est++;
		}
		event_release(&event);
	}
	ck_assert_uint_eq(req_err, 1);
	ck_assert_uint_eq(comm_est, 1);
	target_is(&first, target, ERR);
}
END_TEST

START_TEST(a_failure_ends_all_wires)
{
	Vsd__EvWire from[2], to[2];

	connect_sender();
	connect_target();
	join(&first, &from[0], &to[0]);
	join(&second, &from[1], &to[1]);
	ck_assert_int_eq(call_xrc_report(&second, &to[1], _i ? QP_FATAL : 0), 0);
	expect_gone(&sender, &from[0], VSD__GONE_REASON__GONE_CLOSED);
	expect_gone(&sender, &from[1], VSD__GONE_REASON__GONE_CLOSED);
	expect_gone(&first, &to[0], VSD__GONE_REASON__GONE_CLOSED);
	if (_i)
		expect_event(&first, target, QP_FATAL);
	expect_none(&first);
	target_is(&first, target, ERR);
	ck_assert_int_eq(call_xrc_report(&second, &to[1], QP_FATAL), ENOENT);
	/* The sender is not told by the daemon what became of its QP: that is in the wire. */
	expect_none(&sender);
}
END_TEST

START_TEST(only_who_serves_a_wire_reports)
{
	struct client third;
	Vsd__EvWire from, to, wrong;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	client_open(&third);
	ck_assert_int_eq(call_xrc_report(&sender, &from, QP_FATAL), ENOENT);
	ck_assert_int_eq(call_xrc_report(&first, &to, QP_FATAL), ENOENT);
	ck_assert_int_eq(call_xrc_report(&third, &to, QP_FATAL), ENOENT);
	wrong = to;
	wrong.generation++;
	ck_assert_int_eq(call_xrc_report(&second, &wrong, QP_FATAL), ENOENT);
	ck_assert_int_eq(call_xrc_report(&second, &to, 5), EINVAL);
	ck_assert_int_eq(call_xrc_report(&second, &to, UINT32_MAX), EINVAL);
	target_is(&first, target, RTR);
	client_close(&third);
}
END_TEST

/* --- ends ----------------------------------------------------------------------------------------------------------- */

/* The target's end of a wire whose send QP has left, in one of three ways. */
static void leave_after_join(int way, Vsd__EvWire *to)
{
	Vsd__EvWire from;

	connect_sender();
	connect_target();
	join(&second, &from, to);
	if (way == 0)
		ck_assert_int_eq(client_qp_state(&sender, send_qp, RESET), 0);
	else if (way == 1)
		ck_assert_int_eq(client_destroy(&sender, VSD__OBJECT_TYPE__OBJ_QP, send_qp), 0);
	else
		client_close(&sender);
	if (way == 2)
		expect_peer_gone(&second);
	expect_gone(&second, to, way == 2 ? VSD__GONE_REASON__GONE_DEAD : VSD__GONE_REASON__GONE_CLOSED);
}

/* One way after the other for the send QP to leave. */
START_TEST(a_sender_that_leaves_is_told_of)
{
	Vsd__EvWire to;

	leave_after_join(_i, &to);
	ck_assert_int_eq(call_wire_release(&second, &to), 0);
	target_is(&first, target, RTR);
}
END_TEST

/* What it had sent failed there: the receive QP is in error, whether or not the sender is still what it was then. */
START_TEST(a_failure_is_told_when_the_sender_has_left)
{
	Vsd__EvWire to;

	leave_after_join(_i, &to);
	ck_assert_int_eq(call_xrc_report(&second, &to, QP_FATAL), 0);
	expect_event(&first, target, QP_FATAL);
	target_is(&first, target, ERR);
	ck_assert_int_eq(call_wire_release(&second, &to), 0);
}
END_TEST

/* Of a life before it tells nobody anything, nor does who has let go of the wire. */
START_TEST(a_failure_of_a_life_before_is_none)
{
	Vsd__EvWire from, to;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	ck_assert_int_eq(client_qp_state(&sender, send_qp, RESET), 0);
	expect_gone(&second, &to, VSD__GONE_REASON__GONE_CLOSED);
	if (_i == 0) {
		ck_assert_int_eq(client_qp_state(&first, target, RESET), 0);
		connect_target();
	} else {
		ck_assert_int_eq(call_wire_release(&second, &to), 0);
	}
	ck_assert_int_eq(call_xrc_report(&second, &to, QP_FATAL), ENOENT);
	expect_none(&first);
	target_is(&first, target, RTR);
}
END_TEST

/* Its messages are asked for anew: what the SRQ was in is gone, and that is a wrong SRQ. */
START_TEST(a_process_that_dies_takes_its_srq_along)
{
	Vsd__EvWire from, to;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	client_close(&second);
	expect_peer_gone(&sender);
	expect_gone(&sender, &from, VSD__GONE_REASON__GONE_DEAD);
	target_is(&first, target, RTR);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), 0);
	expect_refused(SRQ_OF(&second));
	expect_event(&first, target, QP_ACCESS_ERR);
}
END_TEST

/* A receive QP that is connected anew has new wires, and the sender's old ones are no more. */
START_TEST(a_receive_qp_is_connected_anew)
{
	Vsd__EvWire from, to;

	connect_sender();
	connect_target();
	join(&second, &from, &to);
	ck_assert_int_eq(client_qp_state(&first, target, _i ? ERR : RESET), 0);
	expect_gone(&sender, &from, VSD__GONE_REASON__GONE_CLOSED);
	expect_gone(&second, &to, VSD__GONE_REASON__GONE_CLOSED);
	ck_assert_int_eq(call_xrc_connect(&sender, send_qp, SRQ_OF(&second)), 0);
	expect_none(&sender);
	ck_assert_int_eq(client_qp_state(&first, target, RESET), 0);
	connect_target();
	ck_assert_uint_ne(expect_wire(&sender, NULL).wire, from.wire);
}
END_TEST

static void add_wires(TCase *tcase)
{
	tcase_add_loop_test(tcase, a_wire_comes_when_both_name_each_other, 0, 2);
	tcase_add_test(tcase, a_stranger_to_the_receive_qp_gets_no_wire);
	tcase_add_test(tcase, one_wire_for_each_process);
	tcase_add_test(tcase, a_wire_inside_one_process_has_two_ends);
	tcase_add_test(tcase, who_serves_it_is_told_of_changes);
	tcase_add_loop_test(tcase, a_wrong_srq_fails_the_receive_qp, 0, 7);
	tcase_add_test(tcase, the_first_message_is_told_to_all);
	tcase_add_test(tcase, the_first_message_is_one_for_all_processes);
	tcase_add_test(tcase, events_wait_for_their_reader);
	tcase_add_loop_test(tcase, a_failure_ends_all_wires, 0, 2);
	tcase_add_test(tcase, only_who_serves_a_wire_reports);
	tcase_add_loop_test(tcase, a_sender_that_leaves_is_told_of, 0, 3);
	tcase_add_loop_test(tcase, a_failure_is_told_when_the_sender_has_left, 0, 3);
	tcase_add_loop_test(tcase, a_failure_of_a_life_before_is_none, 0, 2);
	tcase_add_test(tcase, a_process_that_dies_takes_its_srq_along);
	tcase_add_loop_test(tcase, a_receive_qp_is_connected_anew, 0, 2);
}

int main(void)
{
	Suite *suite = suite_create("xrc");
	TCase *tcase = harness_tcase(suite, "xrc");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_inode_is_one_domain);
	tcase_add_test(tcase, another_trust_domain_has_its_own);
	tcase_add_test(tcase, a_domain_goes_with_its_last_opener);
	tcase_add_test(tcase, what_stands_on_a_domain_keeps_it);
	tcase_add_test(tcase, a_number_is_somebodys_once);
	tcase_add_test(tcase, all_openers_see_one_qp);
	tcase_add_test(tcase, a_receive_qp_goes_with_its_last_opener);
	tcase_add_test(tcase, only_a_receive_qp_of_the_domain_is_opened);
	add_wires(tcase);
	return harness_run(suite);
}
