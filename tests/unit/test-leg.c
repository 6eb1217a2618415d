/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/soft/xrc.c: a leg whose SRQ is not there, or goes in the middle of a message. The peer's requests are those of an
 * RC QP, with an aim put before them; who holds the progress lock decides how far the leg comes with them.
 */
#include "client/soft/xrc.h"

#include <stdlib.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

enum {
	SIZE = 4 << 20, /* of a message: more than a round moves */
	SLOTS = 16,
	ROUNDS = 8,
	RECV_QPN = 0x180, SRQN = 0x181,
	XRCD = 3,
};

static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

#define OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))

static struct soft_srq srq;
static struct soft_qp *leg;
static bool there; /* the SRQ */

static void srq_make(void)
{
	srq = (struct soft_srq){ .ctx = &loop.ctx, .pd = &loop.pd, .cq = recv_cq, .number = SRQN, .xrcd = XRCD };
	srq.srq.context = &loop.ctx.v.context;
	ck_assert_int_eq(soft_srq_init(&srq, 16, 2, false), 0);
	xrc_srq_insert(&srq);
	there = true;
}

static void srq_goes(void)
{
	xrc_srq_remove(&srq);
	there = false;
}

static void leg_wire(void)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;
	Vsd__XrcTarget target = VSD__XRC_TARGET__INIT;

	target.xrcd = XRCD;
	target.access = LOOP_ACCESS;
	target.max_dest_rd_atomic = 4;
	target.state = IBV_QPS_RTS;
	event.wire = loop.wires++;
	event.generation = 1;
	event.kind = VSD__WIRE_KIND__WIRE_XRC;
	event.local_qpn = RECV_QPN;
	event.peer_qpn = a->v.qp.qp_num;
	event.req_slots = event.resp_slots = SLOTS;
	event.side = 1;
	event.peer = 7;
	event.target = &target;
	ck_assert(fake_event(loop.events, VSD__OP__EV_WIRE, &event.base));
}

static void setup(void)
{
	setenv("VERBSD_ENGINE", "stage", 1); /* an XRC QP sends nothing otherwise */
	struct soft_qp far = { .v.qp.qp_num = RECV_QPN };

	pair_start(SIZE, 128);
	srq_make();
	a = loop_qp(&loop, &options);
	loop_rtr(a, RECV_QPN, &options);
	loop_wire_end(&loop, a, &far, SLOTS, 0);
	leg_wire();
	while (!(leg = rt_qp_get(RECV_QPN)) || !atomic_load(&leg->wire) || !atomic_load(&a->wire)) {
		if (leg)
			rt_qp_put(leg);
		sched_yield();
	}
	rt_qp_put(leg);
	loop_rts(a, &options);
}

static void teardown(void)
{
	if (there)
		srq_goes();
	xrc_silence(RECV_QPN);
	xrc_stop();
	soft_srq_deinit(&srq);
	pair_stop();
}

/* Progress lock. */
static void aim(uint32_t srqn)
{
	const struct vsd_req head = { .op = VSD_REQ_AIM, .flags = VSD_F_FIRST | VSD_F_LAST, .slots = 1, .rw.raddr = srqn };

	soft_lock(&a->sq_lock);
	ck_assert_int_gt(wire_req_space(a->wire), 0);
	wire_req_put(a->wire, &head, NULL, -1);
	soft_unlock(&a->sq_lock);
}

/* The daemon is told that the receive QP failed, and of what. */
static uint32_t reported(void)
{
	struct frame_header header;
	uint8_t buf[VSD_REQUEST_MAX];
	size_t length;

	do {
		ck_assert_int_eq(sock_recv(loop.events, buf, sizeof(buf), true, NULL, &length), 0);
		ck_assert_int_eq(frame_parse(buf, length, &header), 0);
	} while (header.opcode != VSD__OP__OP_XRC_REPORT);

	ProtobufCMessage *message;

	ck_assert_int_eq(frame_unpack_heap(&vsd__xrc_report_request__descriptor, buf + sizeof(header), header.length, &message), 0);

	uint32_t event = ((Vsd__XrcReportRequest *)message)->event;

	protobuf_c_message_free_unpacked(message, NULL);
	if (event != IBV_EVENT_COMM_EST)
		return event;
	return reported();
}

static void receive_post(void)
{
	struct ibv_sge sge = { (uintptr_t)to, SIZE, to_mr->key };
	struct ibv_recv_wr wr = { .wr_id = 10, .sg_list = &sge, .num_sge = 1 }, *bad;

	ck_assert_int_eq(soft_post_srq_recv(&srq.srq, &wr, &bad), 0);
}

/* What both ends have to say of it. */
static void refused(void)
{
	loop_expect(send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_ERR);
	ck_assert_uint_eq(reported(), IBV_EVENT_QP_ACCESS_ERR);
	ck_assert(pair_nothing(recv_cq));
}

START_TEST(an_srq_that_is_not_there)
{
	ck_assert(rt_enter());
	receive_post();
	aim(SRQN + 1);
	ck_assert_int_eq(loop_send(a, 1, opcodes[_i], from_mr, from, 64, to_mr, to), 0);
	rt_leave(true);
	refused();
}
END_TEST

START_TEST(an_srq_that_goes_in_the_middle)
{
	struct responder *resp = &leg->priv->resp;

	ck_assert(rt_enter());
	receive_post();
	aim(SRQN);
	ck_assert_int_eq(loop_send(a, 1, opcodes[_i], from_mr, from, SIZE, to_mr, to), 0);
	for (unsigned i = 0; i < ROUNDS && !resp->open && !resp->stream.active; i++)
		progress_round(TD_POLL, false);
	ck_assert(resp->open || resp->stream.active);
	srq_goes();
	rt_leave(true);
	refused();
}
END_TEST

/* It was idle: nothing fails, until something is for the SRQ again. */
START_TEST(an_srq_that_goes_in_between)
{
	receive_post();
	ck_assert(rt_enter());
	aim(SRQN);
	ck_assert_int_eq(loop_send(a, 2, opcodes[_i], from_mr, from, 64, to_mr, to), 0);
	rt_leave(true);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	srq_goes();
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_SEND, from_mr, from, 64, NULL, NULL), 0);
	refused();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leg");
	TCase *t = harness_tcase(suite, "leg");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, an_srq_that_is_not_there, 0, OPCODES);
	tcase_add_loop_test(t, an_srq_that_goes_in_the_middle, 0, OPCODES);
	tcase_add_loop_test(t, an_srq_that_goes_in_between, 0, OPCODES);
	return harness_run(suite);
}
