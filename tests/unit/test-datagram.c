/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams between processes: both ends are here, but the receiver's QP number is another process's. */

#include "client/soft/datagram_private.h"
#include "client/soft/multicast.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE 8192u
#define QKEY 0x11u
#define LATE_NS 300000000ull /* no less than what once was enough to lose a datagram */

static struct soft_qp *datagram_qp(uint32_t qpn)
{
	options.qpn = qpn;

	struct soft_qp *qp = loop_qp(&loop, &options);

	loop_rtr(qp, 0, &options);
	loop_rts(qp, &options);
	return qp;
}

static void setup(void)
{
	pair_start(SIZE, 256);
	options.type = IBV_QPT_UD;
	options.send_wr = options.recv_wr = 200;
	a = datagram_qp(0);
	b = datagram_qp(LOOP_FOREIGN_QPN);
}

static int datagram_to(uint32_t qpn, uint64_t wr_id, uint32_t length, bool global)
{
	struct soft_ah ah = { .attr = { .dlid = 5, .is_global = global, .port_num = 1, .grh.dgid = loop_gid } };
	struct ibv_sge sge = { (uintptr_t)from + wr_id, length, from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
				 .opcode = IBV_WR_SEND };

	wr.wr.ud.ah = &ah.ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	return soft_post_send(&a->v.qp, &wr, &bad);
}

static int datagram(uint64_t wr_id, uint32_t length, bool global)
{
	return datagram_to(b->v.qp.qp_num, wr_id, length, global);
}

static uint64_t dropped(void)
{
	return vsd_page_counter(rt_page(), VSD_COUNT_DROPPED);
}

static const struct {
	uint32_t length, slots;
	bool global;
} shapes[] = {
	{ 0, 2, false }, { 16, 2, false }, { 17, 2, true }, { 216, 16, true }, { 217, 16, true },
	{ 256, 16, false }, { 257, 16, false }, { 4096, 2, true }, { 4096, 16, false },
};

START_TEST(the_first_waits_for_the_wire_and_all_arrive)
{
	uint32_t length = shapes[_i].length;

	for (uint64_t i = 0; i < 100; i++) {
		loop_recv(b, i, to_mr, to, 40 + length);
		ck_assert_int_eq(datagram(i, length, shapes[_i].global), 0);
	}
	loop_datagram_wire(&loop, shapes[_i].slots);
	for (uint64_t i = 0; i < 100; i++) {
		struct ibv_wc wc = loop_wait(recv_cq);

		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.byte_len, 40 + length);
		ck_assert_uint_eq(wc.src_qp, a->v.qp.qp_num);
		ck_assert_int_eq(wc.wc_flags, shapes[_i].global ? IBV_WC_GRH : 0);
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	}
	ck_assert_mem_eq(to + 40, from + 99, length);
	ck_assert_uint_eq(dropped(), 0);
}
END_TEST

/* The other end never opens its half. It is waited for once, not for each datagram: those behind go at once. */
START_TEST(a_datagram_that_nobody_consumes_is_dropped)
{
	struct ibv_wc wc;

	loop_datagram_end(&loop, 16, 0);
	ck_assert_int_eq(datagram(1, 8, false), 0);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	ck_assert_int_eq(datagram(3, 8, false), 0);
	ck_assert_int_eq(soft_poll_cq(&send_cq->v.cq, 1, &wc), 1);
	ck_assert_uint_eq(wc.wr_id, 3);
	ck_assert_uint_eq(dropped(), 3);

	/* It comes after all: sooner or later one arrives. */
	loop_recv(b, 4, to_mr, to, 100);
	loop_datagram_end(&loop, 16, 1);
	do {
		ck_assert_int_eq(datagram(4, 8, false), 0);
		loop_expect(send_cq, 4, IBV_WC_SUCCESS);
	} while (soft_poll_cq(&recv_cq->v.cq, 1, &wc) == 0);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
}
END_TEST

/* A process that does not run for a while attaches late. */
START_TEST(a_peer_that_is_late_loses_nothing)
{
	struct ibv_wc wc;

	loop_recv(b, 1, to_mr, to, 100);
	loop_datagram_end(&loop, 16, 0);
	ck_assert_int_eq(datagram(1, 8, false), 0);
	for (uint64_t start = rt_now(); rt_now() < start + LATE_NS;)
		ck_assert_int_eq(soft_poll_cq(&send_cq->v.cq, 1, &wc), 0);
	loop_datagram_end(&loop, 16, 1);
	loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 0);
}
END_TEST

START_TEST(a_qp_that_cannot_be_resolved_costs_its_datagrams)
{
	ck_assert_int_eq(datagram(1, 8, false), 0);
	rt_progress();
	datagram_refused(LOOP_PEER);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 1);
}
END_TEST

/* Another of the same process may be there. */
START_TEST(a_qp_that_cannot_be_resolved_costs_no_other_its_datagrams)
{
	ck_assert_int_eq(datagram_to(LOOP_FOREIGN_QPN + 1, 1, 8, false), 0);
	rt_progress();
	datagram_refused(LOOP_PEER);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_recv(b, 2, to_mr, to, 100);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_datagram_wire(&loop, 16);
	loop_expect(recv_cq, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 1);
}
END_TEST

/* The peer asked for the wire while the daemon refused to: the wire is as good. */
START_TEST(a_late_refusal_takes_no_wire_away)
{
	ck_assert_int_eq(datagram(1, 8, false), 0);
	rt_progress();
	loop_recv(b, 1, to_mr, to, 100);
	loop_recv(b, 2, to_mr, to, 100);
	loop_datagram_wire(&loop, 16);
	loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
	datagram_refused(LOOP_PEER);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_expect(recv_cq, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 0);
}
END_TEST

START_TEST(a_qp_may_go_while_it_waits)
{
	ck_assert_int_eq(datagram(1, 8, false), 0);
	loop_state(a, IBV_QPS_RESET);
	loop_datagram_wire(&loop, 16);
	loop_qp_free(a);
	a = datagram_qp(0);
	loop_recv(b, 1, to_mr, to, 100);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

/* --- multicast ---------------------------------------------------------------------------------------------------------- */

static const struct mcast_name group = {
	.link_layer = IBV_LINK_LAYER_INFINIBAND, .lid = 0xc001, .gid = { .raw = { 0xff, 0x0e, [15] = 1 } }
};
static Vsd__Gid own_gid = VSD__GID__INIT;
static Vsd__Gid *gids[] = { &own_gid };
static Vsd__Port port = VSD__PORT__INIT;
static Vsd__Port *ports[] = { &port };
static Vsd__Device device = VSD__DEVICE__INIT;

static int to_group(uint64_t wr_id)
{
	struct soft_ah ah = { .attr = { .dlid = group.lid, .is_global = 1, .port_num = 1, .grh.dgid = group.gid } };
	struct ibv_sge sge = { (uintptr_t)from, 8, from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	wr.wr.ud.ah = &ah.ah;
	wr.wr.ud.remote_qpn = MCAST_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	return soft_post_send(&a->v.qp, &wr, &bad);
}

static void group_setup(void)
{
	port.number = 1;
	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port.n_gids = 1;
	port.gids = gids;
	device.n_ports = 1;
	device.ports = ports;
	loop.ctx.info = &device;
	for (uint64_t i = 0; i < 20; i++)
		loop_recv(b, i, to_mr, to, 100);
	ck_assert_int_eq(soft_mcast_attach(b, &group), 0);
}

static void group_teardown(void)
{
	soft_mcast_detach(b, &group);
	loop.ctx.info = NULL;
}

static void members_are(uint32_t peer)
{
	Vsd__McastResolveReply reply = VSD__MCAST_RESOLVE_REPLY__INIT;

	reply.n_peers = peer != 0;
	reply.peers = &peer;
	mcast_resolved(&group, loop.ctx.id, &reply);
}

/* The wires are there before the daemon's answer. */
static void wire_ready(bool both)
{
	bool ready = false;

	if (both)
		loop_datagram_wire(&loop, 16);
	else
		loop_datagram_end(&loop, 16, 0);
	while (!ready) {
		rt_progress();
		pthread_mutex_lock(&datagram_lock);
		ready = datagram_peer_get(LOOP_PEER)->state == PEER_READY;
		pthread_mutex_unlock(&datagram_lock);
	}
}

/* Both ends are here, so what comes by the wire is the second copy. */
START_TEST(groups_end_at_the_domain)
{
	bool kin = _i;

	wire_ready(true);
	for (unsigned i = 0; i < 2; i++)
		rt.loop[i].priv->granted = kin ? VSD__ENGINE_RIGHT__ENGINE_MAP : VSD__ENGINE_RIGHT__ENGINE_STAGE;
	ck_assert_int_eq(to_group(1), 0);
	members_are(LOOP_PEER);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 0, IBV_WC_SUCCESS);
	if (kin) {
		loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
		ck_assert_uint_eq(dropped(), 0);
	} else {
		while (!dropped())
			rt_progress();
		ck_assert_uint_eq(dropped(), 1);
	}
	group_teardown();
}
END_TEST

/* The first datagram waits for the process that takes nothing; those behind it do not wait. */
START_TEST(who_takes_nothing_is_not_waited_for_again)
{
	wire_ready(false);
	ck_assert_int_eq(to_group(1), 0);
	members_are(LOOP_PEER);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	for (uint64_t i = 2; i < 20; i++) {
		ck_assert_int_eq(to_group(i), 0);
		/* Done when the post returns: nothing was waited for. */
		struct ibv_wc wc;

		ck_assert_int_eq(soft_poll_cq(&send_cq->v.cq, 1, &wc), 1);
		ck_assert_uint_eq(wc.wr_id, i);
	}
	for (uint64_t i = 0; i < 19; i++)
		loop_expect(recv_cq, i, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 19);
	group_teardown();
}
END_TEST

START_TEST(a_group_without_an_answer_costs_its_datagrams)
{
	ck_assert_int_eq(to_group(1), 0);
	mcast_resolved(&group, loop.ctx.id, NULL);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 0, IBV_WC_SUCCESS); /* here it is delivered all the same */
	ck_assert_uint_eq(dropped(), 1);
	group_teardown();
}
END_TEST

/* More groups than are kept: those that nobody waits for are forgotten, and asked for again. */
START_TEST(thousands_of_groups_cost_no_more_than_a_thousand)
{
	for (unsigned i = 0; i < 3000; i++) {
		struct mcast_name name = group;

		name.gid.raw[13] = (uint8_t)(i >> 8);
		name.gid.raw[14] = (uint8_t)i;

		struct soft_ah ah = { .attr = { .dlid = name.lid, .is_global = 1, .port_num = 1, .grh.dgid = name.gid } };
		struct ibv_send_wr *bad, wr = { .wr_id = i, .opcode = IBV_WR_SEND };
		Vsd__McastResolveReply reply = VSD__MCAST_RESOLVE_REPLY__INIT;

		wr.wr.ud.ah = &ah.ah;
		wr.wr.ud.remote_qpn = MCAST_QPN;
		wr.wr.ud.remote_qkey = QKEY;
		ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
		mcast_resolved(&name, loop.ctx.id, &reply);
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	}
	group_teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("datagram");
	TCase *tcase = harness_tcase(suite, "datagram");

	tcase_add_checked_fixture(tcase, setup, pair_stop);
	tcase_set_timeout(tcase, 10);
	tcase_add_loop_test(tcase, the_first_waits_for_the_wire_and_all_arrive, 0,
		sizeof(shapes) / sizeof(shapes[0]));
	tcase_add_test(tcase, a_datagram_that_nobody_consumes_is_dropped);
	tcase_add_test(tcase, a_peer_that_is_late_loses_nothing);
	tcase_add_test(tcase, a_qp_that_cannot_be_resolved_costs_its_datagrams);
	tcase_add_test(tcase, a_qp_that_cannot_be_resolved_costs_no_other_its_datagrams);
	tcase_add_test(tcase, a_late_refusal_takes_no_wire_away);
	tcase_add_test(tcase, a_qp_may_go_while_it_waits);

	TCase *multicast = harness_tcase(suite, "multicast");

	tcase_add_checked_fixture(multicast, setup, pair_stop);
	tcase_add_checked_fixture(multicast, group_setup, NULL);
	tcase_set_timeout(multicast, 10);
	tcase_add_loop_test(multicast, groups_end_at_the_domain, 0, 2);
	tcase_add_test(multicast, who_takes_nothing_is_not_waited_for_again);
	tcase_add_test(multicast, a_group_without_an_answer_costs_its_datagrams);
	tcase_add_test(multicast, thousands_of_groups_cost_no_more_than_a_thousand);
	return harness_run(suite);
}
