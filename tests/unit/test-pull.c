/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/soft/pull.c: long SENDs that the receiver fetches, as two QPs of one process do it (a copy) and as two processes do
 * (process_vm_readv, here of this process): what each side says and keeps when it cannot, and descriptors that lie.
 */
#include <stdlib.h>
#include <string.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

enum {
	SIZE = 4 << 20, /* of the memory at either end: many slices */
	ONE = 64 << 10, /* of a message: less than a slice */
	SLOTS = 16,
	ROUNDS = 64,
};

static const char *engine;
static uint64_t pulled_before, rnr_before;

static bool is_cma(void)
{
	return strcmp(engine, "cma") == 0;
}

static void start(void)
{
	setenv("VERBSD_ENGINE", engine, 1);
	pair_start(SIZE, 128);
	for (unsigned side = 0; side < 2 && is_cma(); side++)
		rt.loop[side].engines = rt.loop[side].priv->granted = VSD__ENGINE_RIGHT__ENGINE_CMA;
	pulled_before = loop_counter(VSD_COUNT_PULLED);
	rnr_before = loop_counter(VSD_COUNT_RNR);
}

static void setup_copy(void)
{
	engine = "auto";
	start();
}

static void setup_cma(void)
{
	engine = "cma";
	start();
}

static uint64_t pulled(void)
{
	return loop_counter(VSD_COUNT_PULLED) - pulled_before;
}

static struct pair *pair_of(const struct soft_qp *qp)
{
	return atomic_load(&qp->wire)->pair;
}

static void send(uint64_t wr_id, uint32_t length)
{
	ck_assert_int_eq(loop_send(a, wr_id, IBV_WR_SEND, from_mr, from, length, NULL, NULL), 0);
}

static void expect_both(uint64_t sent, uint64_t received)
{
	loop_expect(recv_cq, received, IBV_WC_SUCCESS);
	loop_expect(send_cq, sent, IBV_WC_SUCCESS);
}

static void expect_bytes(uint32_t length)
{
	uint32_t zeros = 0;

	ck_assert(memcmp(to, from, length) == 0);
	while (length + zeros < SIZE && !to[length + zeros])
		zeros++;
	ck_assert_uint_eq(length + zeros, SIZE);
}

/* A descriptor that no library would write, as from a. */
static void put(struct vsd_req head)
{
	struct wire *wire = atomic_load(&a->wire);
	enum soft_held held = soft_hold(&a->sq_lock);

	head.slots = 1;
	wire_req_put(wire, &head, NULL, -1);
	wire_notify(wire);
	soft_release(&a->sq_lock, held);
}

/* --- what is fetched --------------------------------------------------------------------------------------------------- */

static const uint32_t lengths[] = { PULL_MIN, PULL_MIN + 7, ONE, QP_COPY_SLICE, QP_COPY_SLICE + 8,
				    QP_COPY_SLICE + 9, 2 * QP_COPY_SLICE + 3, SIZE };

START_TEST(a_message_is_fetched_whole)
{
	struct ibv_wc wc;

	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	send(1, lengths[_i]);
	wc = loop_wait(recv_cq);
	ck_assert_uint_eq(wc.wr_id, 20);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	ck_assert_uint_eq(wc.byte_len, lengths[_i]);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(pulled(), 1);
	expect_bytes(lengths[_i]);
}
END_TEST

/* Of its own accord nobody fetches so little, except where that is what is wanted. */
START_TEST(a_message_of_a_chunk)
{
	static const uint32_t short_ones[] = { 8, VSD_INLINE_RW, VSD_INLINE_RW + 1, 4096, PULL_MIN - 1 };

	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	send(1, short_ones[_i]);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), is_cma() && short_ones[_i] > VSD_INLINE_RW);
	expect_bytes(short_ones[_i]);
}
END_TEST

START_TEST(immediate_data_and_pieces)
{
	struct ibv_sge pieces[] = { { (uintptr_t)to, 3, to_mr->key }, { (uintptr_t)to + 3, 0, 0 },
		{ (uintptr_t)to + 3, QP_COPY_SLICE, to_mr->key }, { (uintptr_t)to + 3 + QP_COPY_SLICE, SIZE / 2, to_mr->key } };
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = 20, .sg_list = pieces, .num_sge = 4 };
	struct ibv_sge sge = { (uintptr_t)from, 2 * QP_COPY_SLICE, from_mr->key };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 77 };
	struct ibv_wc wc;

	pair_connect(SLOTS);
	ck_assert_int_eq(soft_post_recv(&b->v.qp, &recv, &bad_recv), 0);
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	wc = loop_wait(recv_cq);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.imm_data, 77);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 2 * QP_COPY_SLICE);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(pulled(), 1);
	expect_bytes(2 * QP_COPY_SLICE);
}
END_TEST

/* What may be done to the region from afar has no say: the sender says itself that it is to be read. */
START_TEST(memory_that_nobody_else_may_use)
{
	struct soft_mr *mr = loop_mr(&loop, from, SIZE, 0);

	options.no_access = true;
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	loop_send(a, 1, IBV_WR_SEND, mr, from, ONE, NULL, NULL);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 1);
	expect_bytes(ONE);
	loop_mr_free(mr);
}
END_TEST

START_TEST(messages_come_in_order)
{
	static const uint32_t mixed[] = { 8, ONE, 300, SIZE / 8, 20000, 0, ONE, 1 };
	uint32_t at = 0;

	pair_connect(SLOTS);
	for (unsigned i = 0; i < 8; i++) {
		loop_recv(b, 20 + i, to_mr, to + at, mixed[i]);
		loop_send(a, i, IBV_WR_SEND, from_mr, from + at, mixed[i], NULL, NULL);
		at += mixed[i];
	}
	for (unsigned i = 0; i < 8; i++)
		expect_both(i, 20 + i);
	expect_bytes(at);
}
END_TEST

START_TEST(a_receive_that_comes_late)
{
	options.rnr_timer = 31; /* half a second: only the hint can be quicker */
	pair_connect(SLOTS);
	send(1, 3 * QP_COPY_SLICE);
	send(2, ONE);
	for (int i = 0; i < 20; i++)
		ck_assert(pair_nothing(send_cq));
	ck_assert_uint_gt(loop_counter(VSD_COUNT_RNR), rnr_before);
	for (uint64_t i = 1; i <= 2; i++) {
		loop_recv(b, 20 + i, to_mr, to, SIZE);
		expect_both(i, 20 + i);
	}
	ck_assert_uint_eq(pulled(), 2);
	expect_bytes(3 * QP_COPY_SLICE);
}
END_TEST

START_TEST(an_srqs_receives)
{
	struct soft_srq *srq = options.srq = loop_srq(&loop, 4, 1);
	struct ibv_sge sge = { (uintptr_t)to, SIZE, to_mr->key };
	struct ibv_recv_wr *bad, wr = { .wr_id = 20, .sg_list = &sge, .num_sge = 1 };

	pair_connect(SLOTS);
	ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &wr, &bad), 0);
	send(1, ONE);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 1);
	expect_bytes(ONE);
	loop_qp_free(a);
	loop_qp_free(b);
	a = b = NULL;
	loop_srq_free(srq);
}
END_TEST

/* --- what is not -------------------------------------------------------------------------------------------------------- */

START_TEST(an_older_library_is_sent_all_of_it)
{
	pair_connect(SLOTS);
	rt.page->can = 0;
	loop_recv(b, 20, to_mr, to, SIZE);
	send(1, ONE);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(ONE);
}
END_TEST

START_TEST(several_pieces_take_the_lane)
{
	struct ibv_sge pieces[] = { { (uintptr_t)from, ONE, from_mr->key }, { (uintptr_t)from + ONE, 8, from_mr->key } };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = pieces, .num_sge = 2, .opcode = IBV_WR_SEND };

	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(ONE + 8);
}
END_TEST

/* Unreliable QPs complete when the source may be used again. */
START_TEST(unreliable_ones_take_the_lane)
{
	options.type = IBV_QPT_UC;
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	send(1, ONE);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 0);
}
END_TEST

/* It says so once, and the receive that it took is for the same message. */
START_TEST(a_process_that_cannot)
{
	pair_connect(SLOTS);
	pair_of(b)->pid = 0;
	loop_recv(b, 20, to_mr, to, SIZE);
	loop_recv(b, 21, to_mr, to, SIZE);
	send(1, 2 * QP_COPY_SLICE);
	send(2, ONE);
	expect_both(1, 20);
	expect_both(2, 21);
	ck_assert_uint_eq(pulled(), 0);
	ck_assert(atomic_load(&pair_of(a)->no_pull));
	ck_assert_uint_eq(loop_counter(VSD_COUNT_RNR), rnr_before);
	expect_bytes(2 * QP_COPY_SLICE);
}
END_TEST

/* The kernel finds nobody by that number: it is found out with a receive taken. */
START_TEST(a_peer_that_is_not_to_be_seen)
{
	pair_connect(SLOTS);
	pair_of(b)->pid = 0x7fffffff;
	loop_recv(b, 20, to_mr, to, SIZE);
	loop_recv(b, 21, to_mr, to, SIZE);
	send(1, ONE);
	send(2, ONE);
	expect_both(1, 20);
	expect_both(2, 21);
	ck_assert_uint_eq(pulled(), 0);
	ck_assert(atomic_load(&pair_of(a)->no_pull));
	ck_assert(!(pair_of(b)->engines & VSD__ENGINE_RIGHT__ENGINE_CMA));
	expect_bytes(ONE);
}
END_TEST

/* Its memory is gone, although it is registered: the sender reads it itself, if it can, and nothing else by this wire is asked for. */
START_TEST(memory_that_cannot_be_read)
{
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	loop_recv(b, 21, to_mr, to, SIZE);

	/* An entry that says another address than the tables do. */
	struct vsd_key *entry = &rt.page->keys[(from_mr->key >> 8) % VSD_PAGE_KEYS];

	atomic_store(&entry->addr, 0);
	send(1, ONE);
	send(2, ONE);
	expect_both(1, 20);
	expect_both(2, 21);
	ck_assert_uint_eq(pulled(), 0);
	ck_assert(a->priv->req.no_pull);
	ck_assert(!atomic_load(&pair_of(a)->no_pull));
	expect_bytes(ONE);
}
END_TEST

START_TEST(a_receive_that_is_too_short)
{
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, ONE - 1);
	send(1, ONE);
	loop_expect(recv_cq, 20, IBV_WC_LOC_LEN_ERR);
	loop_expect(send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(0);
}
END_TEST

START_TEST(a_receive_with_a_bad_key)
{
	pair_connect(SLOTS);
	loop_recv(b, 20, NULL, to, ONE);
	send(1, ONE);
	loop_expect(recv_cq, 20, IBV_WC_LOC_PROT_ERR);
	loop_expect(send_cq, 1, IBV_WC_REM_OP_ERR);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(0);
}
END_TEST

/* --- taken back ------------------------------------------------------------------------------------------------------------ */

/* The descriptor is in the lane, and nobody has looked at it. */
START_TEST(a_region_that_goes_before)
{
	struct soft_mr *mr = loop_mr(&loop, from, SIZE, 0);

	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	soft_lock(&b->rq_lock);
	loop_send(a, 1, IBV_WR_SEND, mr, from, ONE, NULL, NULL);
	loop_mr_free(mr);
	soft_unlock(&b->rq_lock);
	loop_expect(send_cq, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert(pair_nothing(recv_cq));
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(0);
}
END_TEST

/* A message on its way, of which some slices are there. Progress lock held. */
static uint32_t halfway(struct soft_mr *mr)
{
	const struct responder *resp;

	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	ck_assert(rt_enter());
	loop_send(a, 1, IBV_WR_SEND, mr, from, SIZE, NULL, NULL);
	resp = &b->priv->resp;
	for (unsigned i = 0; i < ROUNDS && !resp->got; i++)
		progress_round(TD_POLL, false);
	ck_assert(resp->pulling);
	ck_assert_uint_lt(resp->got, SIZE);
	return resp->got;
}

START_TEST(a_region_that_goes_in_the_middle)
{
	struct soft_mr *mr = loop_mr(&loop, from, SIZE, 0);
	uint32_t got = halfway(mr);

	loop_mr_free(mr);
	rt_leave(true);
	loop_expect(send_cq, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert(pair_nothing(recv_cq));
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(got);
}
END_TEST

START_TEST(a_sender_that_fails_in_the_middle)
{
	uint32_t got = halfway(from_mr);

	loop_state(a, IBV_QPS_ERR);
	rt_leave(true);
	loop_expect(send_cq, 1, IBV_WC_WR_FLUSH_ERR);
	loop_state(b, IBV_QPS_ERR);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(got);
}
END_TEST

START_TEST(a_receiver_that_fails_in_the_middle)
{
	uint32_t got = halfway(from_mr);

	loop_state(b, IBV_QPS_ERR);
	rt_leave(true);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(got);
}
END_TEST

/* Draining: what was begun ends. */
START_TEST(a_sender_that_drains)
{
	halfway(from_mr);
	loop_state(a, IBV_QPS_SQD);
	rt_leave(true);
	expect_both(1, 20);
	ck_assert_uint_eq(pulled(), 1);
	expect_bytes(SIZE);
}
END_TEST

/* --- lies ----------------------------------------------------------------------------------------------------------------- */

/* Of an honest descriptor for all of from_mr. */
static const struct {
	const char *what;
	int64_t addr;	/* off by */
	uint32_t key, total;
} lies[] = {
	{ "an address before the region", .addr = -1, .total = ONE },
	{ "an address behind it", .addr = SIZE, .total = ONE },
	{ "more than there is", .addr = SIZE - ONE + 1, .total = ONE },
	{ "an address that wraps", .addr = INT64_MIN, .total = ONE },
	{ "another key", .key = 0x700, .total = ONE },
	{ "another tag of it", .key = 1, .total = ONE },
};

/* It is told to send it otherwise, which it cannot be told: it sent nothing. Its own connection is all that breaks. */
START_TEST(a_descriptor_that_lies)
{
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	put((struct vsd_req){ .op = VSD_REQ_PULL, .flags = VSD_F_FIRST | VSD_F_LAST, .total = lies[_i].total,
		.rw = { .raddr = (uintptr_t)from + (uint64_t)lies[_i].addr, .rkey = from_mr->key + lies[_i].key } });
	loop_event(&loop, IBV_EVENT_QP_FATAL);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_ERR);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_RTS);
	ck_assert(pair_nothing(recv_cq));
	ck_assert_uint_eq(pulled(), 0);
	expect_bytes(0);
}
END_TEST

/* It comes in pieces, has bytes of its own or none at all, or is of an operation that has no such thing. */
static const struct vsd_req nonsense[] = {
	{ .flags = VSD_F_FIRST },
	{ .flags = VSD_F_LAST },
	{ .flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_INV },
	{ .flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_CHUNK },
	{ .flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_GRH },
	{ .flags = VSD_F_FIRST | VSD_F_LAST, .len = 8 },
	{ .flags = VSD_F_FIRST | VSD_F_LAST, .msn = 1 },
};

START_TEST(a_descriptor_that_cannot_be)
{
	struct vsd_req head = nonsense[_i];

	head.op = VSD_REQ_PULL;
	head.total = ONE;
	head.rw.raddr = (uintptr_t)from;
	head.rw.rkey = from_mr->key;
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	put(head);
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
	ck_assert_int_eq(atomic_load(&b->state), IBV_QPS_ERR);
	expect_bytes(0);
}
END_TEST

START_TEST(nothing_to_fetch)
{
	pair_connect(SLOTS);
	loop_recv(b, 20, to_mr, to, SIZE);
	put((struct vsd_req){ .op = VSD_REQ_PULL, .flags = VSD_F_FIRST | VSD_F_LAST });
	loop_expect(recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

/* What was not sent so is not asked for again. */
START_TEST(an_answer_that_lies)
{
	struct wire *wire;

	pair_connect(SLOTS);
	soft_lock(&b->rq_lock);
	send(1, 8);
	wire = atomic_load(&b->wire);
	wire_resp_put(wire, &(struct vsd_resp){ .op = VSD_RESP_STAGE }, -1);
	wire_notify(wire);
	loop_expect(send_cq, 1, IBV_WC_WR_FLUSH_ERR);
	soft_unlock(&b->rq_lock);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

/* Nor is what stands in the queue where something stood that was. */
START_TEST(an_answer_that_lies_of_a_place_used_before)
{
	struct ibv_sge sge = { (uintptr_t)from, 8, from_mr->key };
	struct ibv_send_wr *bad, wrs[] = {
		{ .wr_id = 100, .next = &wrs[1], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .wr_id = 101, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = to_mr->key } },
	};
	uint32_t depth;

	pair_connect(SLOTS);
	depth = a->priv->req.mask + 1;
	for (uint32_t i = 0; i < depth; i++) {
		loop_recv(b, 20, to_mr, to, SIZE);
		send(i, ONE);
		expect_both(i, 20);
	}
	ck_assert_uint_eq(pulled(), depth);
	soft_lock(&b->rq_lock);
	ck_assert_int_eq(soft_post_send(&a->v.qp, wrs, &bad), 0);
	wire_resp_put(atomic_load(&b->wire),
		&(struct vsd_resp){ .op = VSD_RESP_STAGE, .msn = depth + (uint32_t)_i }, -1);
	wire_notify(atomic_load(&b->wire));
	loop_expect(send_cq, 100, IBV_WC_WR_FLUSH_ERR);
	loop_expect(send_cq, 101, IBV_WC_WR_FLUSH_ERR);
	soft_unlock(&b->rq_lock);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
}
END_TEST

#define N(table) (sizeof(table) / sizeof((table)[0]))

/* What needs no hold on a lock of a QP's. */
static void add_any(TCase *t)
{
	tcase_add_loop_test(t, a_message_is_fetched_whole, 0, N(lengths));
	tcase_add_loop_test(t, a_message_of_a_chunk, 0, 5);
	tcase_add_test(t, immediate_data_and_pieces);
	tcase_add_test(t, memory_that_nobody_else_may_use);
	tcase_add_test(t, messages_come_in_order);
	tcase_add_test(t, a_receive_that_comes_late);
	tcase_add_test(t, an_srqs_receives);
	tcase_add_test(t, an_older_library_is_sent_all_of_it);
	tcase_add_test(t, several_pieces_take_the_lane);
	tcase_add_test(t, unreliable_ones_take_the_lane);
	tcase_add_test(t, a_receive_that_is_too_short);
	tcase_add_test(t, a_receive_with_a_bad_key);
}

static void add_both(TCase *t)
{
	add_any(t);
	tcase_add_test(t, a_region_that_goes_before);
	tcase_add_test(t, a_region_that_goes_in_the_middle);
	tcase_add_test(t, a_sender_that_fails_in_the_middle);
	tcase_add_test(t, a_receiver_that_fails_in_the_middle);
	tcase_add_test(t, a_sender_that_drains);
	tcase_add_loop_test(t, a_descriptor_that_lies, 0, N(lies));
	tcase_add_loop_test(t, a_descriptor_that_cannot_be, 0, N(nonsense));
	tcase_add_test(t, nothing_to_fetch);
	tcase_add_test(t, an_answer_that_lies);
	tcase_add_loop_test(t, an_answer_that_lies_of_a_place_used_before, 0, 2);
}

int main(void)
{
	Suite *suite = suite_create("pull");
	TCase *t = harness_tcase(suite, "copy");

	tcase_add_checked_fixture(t, setup_copy, pair_stop);
	add_both(t);
	t = harness_tcase(suite, "cma");
	tcase_add_checked_fixture(t, setup_cma, pair_stop);
	add_both(t);
	tcase_add_test(t, a_process_that_cannot);
	tcase_add_test(t, a_peer_that_is_not_to_be_seen);
	tcase_add_test(t, memory_that_cannot_be_read);
	t = harness_tcase(suite, "domain, copy");
	tcase_add_checked_fixture(t, loop_with_domain, NULL);
	tcase_add_checked_fixture(t, setup_copy, pair_stop);
	add_any(t);
	t = harness_tcase(suite, "domain, cma");
	tcase_add_checked_fixture(t, loop_with_domain, NULL);
	tcase_add_checked_fixture(t, setup_cma, pair_stop);
	add_any(t);
	return harness_run(suite);
}
