/* SPDX-License-Identifier: BSD-2-Clause */
/* What the serving side refuses and how, unreliable QPs and datagrams, and descriptors that no library would write. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/qp_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE (4 * VSD_CHUNK)
#define TWO  (VSD_CHUNK + 4000u) /* two descriptors */
#define THREE (2 * VSD_CHUNK + 7000u)

static struct soft_mr *read_only;

static void setup(void)
{
	setenv("VERBSD_ENGINE", "stage", 1);
	pair_start(SIZE, 128);
	read_only = loop_mr(&loop, to, SIZE, IBV_ACCESS_REMOTE_READ);
}

static void teardown(void)
{
	loop_mr_free(read_only);
	pair_stop();
}

enum region { ALL, READ_ONLY, UNKNOWN };

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum region region;
	uint32_t off, length;
	unsigned access; /* of the QP; 0: all */
	enum ibv_wc_status status;
	int event;
} refusals[] = {
	{ "write, unknown key", IBV_WR_RDMA_WRITE, UNKNOWN, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "write, no right", IBV_WR_RDMA_WRITE, READ_ONLY, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "write, behind the end", IBV_WR_RDMA_WRITE, ALL, SIZE - 7, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "write, the QP forbids", IBV_WR_RDMA_WRITE, ALL, 0, 8, IBV_ACCESS_REMOTE_READ,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "write of nothing, the QP forbids", IBV_WR_RDMA_WRITE, ALL, 0, 0, IBV_ACCESS_REMOTE_READ,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "write, unknown key, the QP forbids", IBV_WR_RDMA_WRITE, UNKNOWN, 0, 8, IBV_ACCESS_REMOTE_READ,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "write with immediate, the QP forbids", IBV_WR_RDMA_WRITE_WITH_IMM, ALL, 0, 8, IBV_ACCESS_REMOTE_READ,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "long write, behind the end", IBV_WR_RDMA_WRITE, ALL, SIZE / 2, SIZE / 2 + 1, 0,
		IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "read, unknown key", IBV_WR_RDMA_READ, UNKNOWN, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "read, the QP forbids", IBV_WR_RDMA_READ, ALL, 0, 8, IBV_ACCESS_REMOTE_WRITE,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "read of nothing, the QP forbids", IBV_WR_RDMA_READ, ALL, 0, 0, IBV_ACCESS_REMOTE_WRITE,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "atomic, the QP forbids", IBV_WR_ATOMIC_FETCH_AND_ADD, ALL, 0, 8, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "atomic write, the QP forbids", IBV_WR_ATOMIC_WRITE, ALL, 0, 8, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "atomic, no right", IBV_WR_ATOMIC_FETCH_AND_ADD, READ_ONLY, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "atomic write, no right", IBV_WR_ATOMIC_WRITE, READ_ONLY, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "atomic write, misaligned", IBV_WR_ATOMIC_WRITE, ALL, 4, 8, 0, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
	{ "atomic, misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, ALL, 4, 8, 0, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
};

/* With engines too: the owner's verdict counts, with the states and events of both sides. */
static void refusal(int i)
{
	struct soft_mr unknown = { .key = 0x77777700 };
	struct soft_mr *regions[] = { to_mr, read_only, &unknown };

	options.access = refusals[i].access;
	pair_connect(16);
	loop_recv(b, 20, to_mr, to, 8);
	ck_assert_int_eq(loop_send(a, 1, refusals[i].opcode, from_mr, from, refusals[i].length,
		regions[refusals[i].region], to + refusals[i].off), 0);
	loop_send(a, 2, IBV_WR_RDMA_WRITE, from_mr, from, 8, to_mr, to);
	loop_expect(send_cq, 1, refusals[i].status);
	loop_expect(send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, refusals[i].event);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_ERR);
	for (unsigned k = 0; k < SIZE; k++)
		ck_assert_uint_eq(to[k], 0);
}

START_TEST(a_forbidden_request_fails_both_ends)
{
	refusal(_i);
}
END_TEST

START_TEST(an_engine_leaves_the_verdict_to_the_owner)
{
	setenv("VERBSD_ENGINE", "direct", 1);
	refusal(_i);
}
END_TEST

START_TEST(too_long_for_its_receive)
{
	pair_connect(16);
	loop_recv(b, 20, to_mr, to, 7);
	loop_send(a, 1, IBV_WR_SEND, from_mr, from, 8, NULL, NULL);
	loop_expect(recv_cq, 20, IBV_WC_LOC_LEN_ERR);
	loop_expect(send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_uint_eq(to[0], 0);
}
END_TEST

START_TEST(a_receive_with_a_bad_key)
{
	pair_connect(16);
	loop_recv(b, 20, NULL, to, 100);
	loop_recv(b, 21, to_mr, to, 100);
	loop_send(a, 1, IBV_WR_SEND, from_mr, from, 8, NULL, NULL);
	loop_expect(recv_cq, 20, IBV_WC_LOC_PROT_ERR);
	loop_expect(recv_cq, 21, IBV_WC_WR_FLUSH_ERR);
	loop_expect(send_cq, 1, IBV_WC_REM_OP_ERR);
}
END_TEST

START_TEST(uc_drops_whole_messages)
{
	struct soft_mr unknown = { .key = 0x77777700 };

	options.type = IBV_QPT_UC;
	pair_connect(2);
	loop_send(a, 1, IBV_WR_SEND, from_mr, from, THREE, NULL, NULL); /* no receive */
	loop_send(a, 2, IBV_WR_RDMA_WRITE, from_mr, from, THREE, &unknown, to);
	loop_send(a, 3, IBV_WR_RDMA_WRITE, from_mr, from + 1, TWO, to_mr, to + THREE);
	for (uint64_t i = 1; i <= 3; i++)
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	while (loop_counter(VSD_COUNT_DROPPED) < 2 || to[THREE + TWO - 1] == 0)
		ck_assert(pair_nothing(recv_cq));
	loop_recv(b, 20, to_mr, to, THREE);
	loop_send(a, 4, IBV_WR_SEND, from_mr, from, 8, NULL, NULL);
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	for (unsigned k = 8; k < THREE; k++)
		ck_assert_uint_eq(to[k], 0);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_RTS);
}
END_TEST

START_TEST(an_srq_feeds_several_qps_and_says_when_one_fails)
{
	struct soft_srq *srq = loop_srq(&loop, 8, 2);
	struct ibv_sge sge = { (uintptr_t)to, SIZE, to_mr->key };
	struct ibv_recv_wr *bad, wr = { .wr_id = 20, .sg_list = &sge, .num_sge = 1 };
	struct soft_qp *c, *d;
	struct ibv_wc wc;

	options.srq = srq;
	options.rnr_timer = 31; /* half a second: only the hint can be quicker */
	pair_connect(16);
	c = loop_qp(&loop, &options);
	d = loop_qp(&loop, &options);
	loop_connect(&loop, c, d, 16, &options);
	loop_send(a, 1, IBV_WR_SEND, from_mr, from, 100, NULL, NULL);
	loop_send(c, 1, IBV_WR_SEND, from_mr, from, TWO, NULL, NULL);
	for (int i = 0; i < 100; i++)
		ck_assert(pair_nothing(recv_cq));
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &wr, &bad), 0);
		wc = loop_wait(recv_cq);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	}
	ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &wr, &bad), 0);
	loop_state(b, IBV_QPS_ERR);
	loop_event(&loop, IBV_EVENT_QP_LAST_WQE_REACHED);
	ck_assert(pair_nothing(recv_cq)); /* the SRQ's receives are not this QP's */
	loop_send(c, 2, IBV_WR_SEND, from_mr, from, 100, NULL, NULL);
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	loop_expect(send_cq, 2, IBV_WC_SUCCESS);
	loop_qp_free(a);
	loop_qp_free(b);
	loop_qp_free(c);
	loop_qp_free(d);
	a = b = NULL;
	loop_srq_free(srq);
}
END_TEST

/* --- datagrams ----------------------------------------------------------------------------------------------------------- */

static int datagram(uint64_t wr_id, struct soft_qp *dst, uint32_t qkey, uint32_t length, bool global)
{
	static struct soft_ah ah; /* the AH may go as soon as the post returned */
	struct ibv_sge sge = { (uintptr_t)from, length, from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x55 };

	ah.attr = (struct ibv_ah_attr){ .dlid = 5, .sl = 3, .is_global = global, .port_num = 1 };
	ah.attr.grh.hop_limit = 9;
	ah.attr.grh.dgid = loop_gid;
	wr.wr.ud.ah = &ah.ah;
	wr.wr.ud.remote_qpn = dst->v.qp.qp_num;
	wr.wr.ud.remote_qkey = qkey;
	int err = soft_post_send(&a->v.qp, &wr, &bad);

	memset(&ah, 0, sizeof(ah));
	return err;
}

static void datagram_qps(void)
{
	options.type = IBV_QPT_UD;
	a = loop_qp(&loop, &options);
	b = loop_qp(&loop, &options);
	loop_rtr(a, 0, &options);
	loop_rtr(b, 0, &options);
	loop_rts(a, &options);
	loop_rts(b, &options);
}

START_TEST(a_datagram_says_where_it_comes_from)
{
	struct ibv_wc wc;

	datagram_qps();
	loop_recv(b, 20, to_mr, to, 140);
	ck_assert_int_eq(datagram(1, b, 0x11, 100, _i), 0);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	wc = loop_wait(recv_cq);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 140);
	ck_assert_uint_eq(wc.src_qp, a->v.qp.qp_num);
	ck_assert_uint_eq(wc.slid, 5);
	ck_assert_uint_eq(wc.sl, 3);
	ck_assert_uint_eq(wc.imm_data, 0x55);
	ck_assert_int_eq(wc.wc_flags, IBV_WC_WITH_IMM | (_i ? IBV_WC_GRH : 0));
	ck_assert_mem_eq(to + 40, from, 100);
	if (_i) {
		const struct ibv_grh *grh = (const void *)to;

		ck_assert_uint_eq(grh->hop_limit, 9);
		ck_assert_uint_eq(grh->next_hdr, 0x1b);
	}
}
END_TEST

START_TEST(datagrams_that_nobody_takes_are_dropped)
{
	datagram_qps();
	datagram(1, b, 0x11, 8, false); /* no receive */
	loop_recv(b, 20, to_mr, to, 100);
	datagram(2, b, 0x12, 8, false); /* wrong Q_Key */
	loop_state(b, IBV_QPS_RESET);
	datagram(3, b, 0x11, 8, false); /* does not listen */
	for (uint64_t i = 1; i <= 3; i++)
		loop_expect(send_cq, i, IBV_WC_SUCCESS);
	ck_assert_uint_eq(loop_counter(VSD_COUNT_DROPPED), 3);
	ck_assert(pair_nothing(recv_cq));
}
END_TEST

START_TEST(datagram_lengths)
{
	datagram_qps();
	loop_recv(b, 20, to_mr, to, SIZE);
	datagram(1, b, 0x11, 4096, false);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 20, IBV_WC_SUCCESS);
	datagram(2, b, 0x11, 4097, false);
	loop_expect(send_cq, 2, IBV_WC_LOC_LEN_ERR);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_SQE);
	loop_rts(a, &options);
	loop_recv(b, 21, to_mr, to, 47);
	datagram(3, b, 0x11, 8, false);
	loop_expect(send_cq, 3, IBV_WC_SUCCESS);
	loop_expect(recv_cq, 21, IBV_WC_LOC_LEN_ERR);
	while (atomic_load(&b->state) != IBV_QPS_ERR)
		rt_progress();
}
END_TEST

/* --- hostile descriptors ------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	struct vsd_req head;
} nonsense[] = {
	{ "second message first", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST, .msn = 1 } },
	{ "middle of nothing", { .op = VSD_REQ_SEND, .flags = VSD_F_LAST } },
	{ "longer than it says", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST, .len = 8,
		.total = 4 } },
	{ "shorter than it says", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST, .len = 8,
		.total = 9 } },
	{ "last and not last", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST, .len = 8, .total = 8 } },
	{ "READ in the middle", { .op = VSD_REQ_READ, .flags = VSD_F_FIRST, .total = 8 } },
	{ "READ with an immediate", { .op = VSD_REQ_READ,
		.flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_IMM, .total = 8 } },
	{ "datagram", { .op = VSD_REQ_DATAGRAM, .flags = VSD_F_FIRST | VSD_F_LAST } },
	{ "unknown flag", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_GRH } },
	{ "immediate and key", { .op = VSD_REQ_SEND,
		.flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_IMM | VSD_F_INV } },
	{ "empty piece", { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST, .total = 8 } },
};

START_TEST(nonsense_breaks_the_connection_and_nothing_else)
{
	struct vsd_req head = nonsense[_i].head;
	uint8_t payload[64] = { 0 };

	pair_connect(16);
	loop_recv(b, 20, to_mr, to, 100);
	enum soft_held held = soft_hold(&a->sq_lock);

	head.slots = 1;
	wire_req_put(atomic_load(&a->wire), &head, payload, -1);
	wire_notify(atomic_load(&a->wire));
	soft_release(&a->sq_lock, held);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_ERR);
}
END_TEST

START_TEST(false_acknowledgements_break_the_connection)
{
	struct wire *wire;

	pair_connect(16);
	wire = atomic_load(&b->wire);

	enum soft_held held = soft_hold(&b->rq_lock);

	atomic_store(&wire->mine->acked, 5);
	wire_notify(wire);
	soft_release(&b->rq_lock, held);
	loop_recv(a, 20, to_mr, to, 100);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

static const struct {
	const char *name;
	struct vsd_resp resp;
} false_responses[] = {
	{ "READ that nobody asked for", { .op = VSD_RESP_READ, .flags = VSD_F_LAST } },
	{ "atomic that nobody asked for", { .op = VSD_RESP_ATOMIC } },
	{ "RNR of nothing", { .op = VSD_RESP_RNR } },
	{ "NAK of nothing", { .op = VSD_RESP_NAK, .status = IBV_WC_REM_OP_ERR } },
	{ "DONE of nothing", { .op = VSD_RESP_DONE } },
};

START_TEST(false_responses_break_the_connection)
{
	struct wire *wire;

	pair_connect(16);
	wire = atomic_load(&b->wire);

	enum soft_held held = soft_hold(&b->rq_lock);

	wire_resp_put(wire, &false_responses[_i].resp, -1);
	wire_notify(wire);
	soft_release(&b->rq_lock, held);
	loop_recv(a, 20, to_mr, to, 100);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

#define N(array) ((int)(sizeof(array) / sizeof((array)[0])))

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 10);
	tcase_add_loop_test(tcase, a_forbidden_request_fails_both_ends, 0, N(refusals));
	tcase_add_loop_test(tcase, an_engine_leaves_the_verdict_to_the_owner, 0, N(refusals));
	tcase_add_test(tcase, too_long_for_its_receive);
	tcase_add_test(tcase, a_receive_with_a_bad_key);
	tcase_add_test(tcase, uc_drops_whole_messages);
	tcase_add_test(tcase, an_srq_feeds_several_qps_and_says_when_one_fails);
	tcase_add_loop_test(tcase, a_datagram_says_where_it_comes_from, 0, 2);
	tcase_add_test(tcase, datagrams_that_nobody_takes_are_dropped);
	tcase_add_test(tcase, datagram_lengths);
	tcase_add_loop_test(tcase, nonsense_breaks_the_connection_and_nothing_else, 0, N(nonsense));
	tcase_add_test(tcase, false_acknowledgements_break_the_connection);
	tcase_add_loop_test(tcase, false_responses_break_the_connection, 0, N(false_responses));
}

int main(void)
{
	Suite *suite = suite_create("responder");
	TCase *domain = harness_tcase(suite, "responder in a thread domain");

	add_tests(harness_tcase(suite, "responder"));
	tcase_add_checked_fixture(domain, loop_with_domain, NULL);
	add_tests(domain);
	return harness_run(suite);
}
