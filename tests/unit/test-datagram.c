/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams between processes: both ends are here, but the receiver's QP number is another process's. */
#include <stdlib.h>
#include <string.h>

#include "client/soft/qp_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

#define SIZE 8192u
#define QKEY 0x11u

static struct loop loop;
static struct loop_options options;
static struct soft_cq *send_cq, *recv_cq;
static struct soft_qp *a, *b;
static uint8_t *from, *to;
static struct soft_mr *from_mr, *to_mr;

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
	options = (struct loop_options)LOOP_OPTIONS;
	options.type = IBV_QPT_UD;
	options.send_wr = options.recv_wr = 200;
	loop_start(&loop);
	send_cq = options.send_cq = loop_cq(&loop, 256);
	recv_cq = options.recv_cq = loop_cq(&loop, 256);
	from = calloc(1, SIZE);
	to = calloc(1, SIZE);
	from_mr = loop_mr(&loop, from, SIZE, LOOP_ACCESS);
	to_mr = loop_mr(&loop, to, SIZE, LOOP_ACCESS);
	for (unsigned i = 0; i < SIZE; i++)
		from[i] = (uint8_t)(i + 1);
	a = datagram_qp(0);
	b = datagram_qp(LOOP_FOREIGN_QPN);
}

static void teardown(void)
{
	loop_qp_free(a);
	loop_qp_free(b);
	loop_mr_free(from_mr);
	loop_mr_free(to_mr);
	loop_cq_free(send_cq);
	loop_cq_free(recv_cq);
	free(from);
	free(to);
	loop_stop(&loop);
}

static int datagram(uint64_t wr_id, uint32_t length, bool global)
{
	struct soft_ah ah = { .attr = { .dlid = 5, .is_global = global, .port_num = 1 } };
	struct ibv_sge sge = { (uintptr_t)from + wr_id, length, from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
				 .opcode = IBV_WR_SEND };

	wr.wr.ud.ah = &ah.ah;
	wr.wr.ud.remote_qpn = b->v.qp.qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	return soft_post_send(&a->v.qp, &wr, &bad);
}

static uint64_t dropped(void)
{
	return rt_page()->counters[VSD_COUNT_DROPPED];
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
	loop_datagram_wire(&loop, shapes[_i].slots, true);
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

/* The other end never opens its half: nothing is consumed. */
START_TEST(a_datagram_that_nobody_consumes_is_dropped)
{
	loop_datagram_wire(&loop, 16, false);
	ck_assert_int_eq(datagram(1, 8, false), 0);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 2);
}
END_TEST

START_TEST(a_process_that_cannot_be_resolved_costs_its_datagrams)
{
	ck_assert_int_eq(datagram(1, 8, false), 0);
	rt_progress();
	datagram_attached(LOOP_PEER, NULL);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(dropped(), 1);
}
END_TEST

START_TEST(a_qp_may_go_while_it_waits)
{
	ck_assert_int_eq(datagram(1, 8, false), 0);
	loop_state(a, IBV_QPS_RESET);
	loop_datagram_wire(&loop, 16, true);
	loop_qp_free(a);
	a = datagram_qp(0);
	loop_recv(b, 1, to_mr, to, 100);
	ck_assert_int_eq(datagram(2, 8, false), 0);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 1, IBV_WC_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("datagram");
	TCase *tcase = harness_tcase(suite, "datagram");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 10);
	tcase_add_loop_test(tcase, the_first_waits_for_the_wire_and_all_arrive, 0,
		sizeof(shapes) / sizeof(shapes[0]));
	tcase_add_test(tcase, a_datagram_that_nobody_consumes_is_dropped);
	tcase_add_test(tcase, a_process_that_cannot_be_resolved_costs_its_datagrams);
	tcase_add_test(tcase, a_qp_may_go_while_it_waits);
	return harness_run(suite);
}
