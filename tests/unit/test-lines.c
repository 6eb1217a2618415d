/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which cache lines move between two processes, by where things lie and by what a message changes: no two writers share a
 * line, and a short SEND costs its slots on one side and one line of acknowledgement on the other, whatever came before.
 * Several at once cost one notice on either side, and one acknowledgement.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define SIZE  4096u
#define SLOTS 16u
#define TURNS 100u /* several times around the lane */
#define BATCH 8u

#define LINE(type, member) (offsetof(type, member) / VSD_LINE)

static struct soft_srq *srq;

static void setup(void)
{
	pair_start(SIZE, 128);
	srq = loop_srq(&loop, 64, 1);
}

static void teardown(void)
{
	loop_qp_free(a); /* before their SRQ */
	loop_qp_free(b);
	a = b = NULL;
	loop_srq_free(srq);
	pair_stop();
}

/* --- where things lie -------------------------------------------------------------------------------------------------- */

START_TEST(who_only_looks_shares_no_line_with_who_counts)
{
	/* A peer looks at these with each post, and they hardly ever change. */
	ck_assert_uint_ne(LINE(struct vsd_page, state), LINE(struct vsd_page, counters));
	ck_assert_uint_ne(LINE(struct vsd_page, state), LINE(struct vsd_page, counters) + 1);
	ck_assert_uint_ne(LINE(struct vsd_page, alive), LINE(struct vsd_page, counters));
	ck_assert_uint_ne(LINE(struct vsd_page, mr_changes), LINE(struct vsd_page, counters) + 1);
	ck_assert_uint_ne(LINE(struct vsd_side, ready), LINE(struct vsd_side, summary));
	ck_assert_uint_ne(LINE(struct vsd_side, want_pool), LINE(struct vsd_side, summary));
	ck_assert_uint_ne(LINE(struct vsd_half, state), LINE(struct vsd_half, acked));
	/* What each message changes in the other direction is one line. */
	ck_assert_uint_eq(LINE(struct vsd_half, req_taken), LINE(struct vsd_half, acked));
	ck_assert_uint_eq(LINE(struct vsd_half, resp_taken), LINE(struct vsd_half, acked));
	/* A domain's owner writes with each call, others look at the gate and write mail. */
	ck_assert_uint_ne(LINE(struct soft_td, gate), LINE(struct soft_td, seq));
	ck_assert_uint_eq(LINE(struct soft_td, gate), LINE(struct soft_td, mail));
	ck_assert_uint_ne(LINE(struct soft_td, next), LINE(struct soft_td, gate));
}
END_TEST

START_TEST(halves_lie_on_lines)
{
	const struct wire *wire;

	pair_connect(SLOTS);
	wire = atomic_load(&a->wire);
	ck_assert_uint_eq((uintptr_t)wire->mine % VSD_LINE, 0);
	ck_assert_uint_eq((uintptr_t)wire->theirs % VSD_LINE, 0);
	ck_assert_uint_eq((uintptr_t)wire->req_out.slots % VSD_LINE, 0);
	ck_assert_uint_eq((uintptr_t)wire->resp_out.slots % VSD_LINE, 0);
	ck_assert_uint_eq(VSD_WIRE_SIZE(1, 1) % VSD_LINE, 0);
}
END_TEST

/* --- what a message changes ---------------------------------------------------------------------------------------------- */

struct image {
	uint8_t *bytes;
	size_t lines;
};

/* A half as it is: the line of acknowledgements, that of the state, and both lanes. */
static struct image half_image(const struct vsd_half *half, const struct wire *wire)
{
	struct image image = { .lines = VSD_HALF_SIZE(wire->req_out.n, wire->resp_out.n) / VSD_LINE };

	image.bytes = malloc(image.lines * VSD_LINE);
	ck_assert_ptr_nonnull(image.bytes);
	for (size_t i = 0; i < image.lines * VSD_LINE / sizeof(uint32_t); i++)
		((uint32_t *)(void *)image.bytes)[i] =
			atomic_load((const _Atomic uint32_t *)((const uint8_t *)half + i * sizeof(uint32_t)));
	return image;
}

/* How many lines changed; the first of them. Takes both images. */
static size_t changed(struct image was, struct image is, size_t *first)
{
	size_t n = 0;

	for (size_t i = was.lines; i-- > 0;)
		if (memcmp(was.bytes + i * VSD_LINE, is.bytes + i * VSD_LINE, VSD_LINE) != 0) {
			*first = i;
			n++;
		}
	free(was.bytes);
	free(is.bytes);
	return n;
}

static void receive_post(void)
{
	struct ibv_sge sge = { (uintptr_t)to, SIZE, to_mr->key };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	ck_assert_int_eq(b->srq ? soft_post_srq_recv(&srq->srq, &wr, &bad) : soft_post_recv(&b->v.qp, &wr, &bad), 0);
}

/* @imm: 0 for none. */
static void send_post(uint32_t length, uint32_t imm)
{
	struct ibv_sge sge = { (uintptr_t)from, length, from_mr->key };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .imm_data = imm, .send_flags = IBV_SEND_SIGNALED,
				  .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND }, *bad;

	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
}

static void received(uint32_t length, uint32_t imm)
{
	struct ibv_wc wc = loop_wait(recv_cq);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, 2);
	ck_assert_uint_eq(wc.byte_len, length);
	ck_assert_uint_eq(wc.wc_flags & IBV_WC_WITH_IMM, imm ? IBV_WC_WITH_IMM : 0);
	ck_assert_uint_eq(wc.imm_data, imm);
	ck_assert_mem_eq(to, from, length);
}

static void one_message(uint32_t length, size_t slots, uint32_t imm)
{
	const struct wire *wire = atomic_load(&a->wire);
	struct image there, back;
	size_t first;

	from[0]++;
	there = half_image(wire->mine, wire);
	back = half_image(wire->theirs, wire);
	receive_post();
	send_post(length, imm);
	received(length, imm);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(changed(there, half_image(wire->mine, wire), &first), slots);
	ck_assert_uint_ge(first, sizeof(struct vsd_half) / VSD_LINE);
	ck_assert_uint_eq(changed(back, half_image(wire->theirs, wire), &first), 1);
	ck_assert_uint_eq(first, LINE(struct vsd_half, acked));
}

static void messages(uint32_t length, size_t slots, bool imm)
{
	pair_connect(SLOTS);
	for (unsigned i = 0; i < TURNS; i++)
		one_message(length, slots, imm && i % 3 ? i : 0);
}

START_TEST(a_send_of_8_bytes_moves_two_lines)
{
	messages(8, 1, false);
}
END_TEST

START_TEST(a_send_of_64_bytes_moves_three)
{
	messages(64, 2, false);
}
END_TEST

/* And what was said with the message before is not said with the next one. */
START_TEST(immediate_data_moves_no_more)
{
	messages(8, 1, true);
}
END_TEST

START_TEST(a_shared_receive_moves_no_more)
{
	options.srq = srq;
	messages(8, 1, false);
}
END_TEST

/* --- what several messages change -------------------------------------------------------------------------------------- */

/* The linker puts these before those of wire.c, for all who call them from other files. */
static _Atomic unsigned notices, acks;

#define COUNTED_NOTICE(name)                       \
	void __real_##name(struct wire *wire);     \
	void __wrap_##name(struct wire *wire);     \
	void __wrap_##name(struct wire *wire)      \
	{                                          \
		notices++;                         \
		__real_##name(wire);               \
	}
COUNTED_NOTICE(wire_notify)
COUNTED_NOTICE(wire_notify_post)
COUNTED_NOTICE(wire_notify_ack)

void __real_wire_ack(struct wire *wire, uint64_t acked);
void __wrap_wire_ack(struct wire *wire, uint64_t acked);
void __wrap_wire_ack(struct wire *wire, uint64_t acked)
{
	acks += atomic_load(&wire->mine->acked) != acked;
	__real_wire_ack(wire, acked);
}

/* One descriptor each, several slots, a chunk; and what the common case leaves to the others. */
static const struct {
	const char *name;
	uint32_t length;
	int pieces;
} batches[] = { { "8 bytes", 8, 1 }, { "200 bytes", 200, 1 }, { "a chunk", 2048, 1 }, { "two pieces", 8, 2 } };

static void batch_post(uint32_t length, int pieces)
{
	struct ibv_sge sges[2] = { { (uintptr_t)from, length, from_mr->key }, { (uintptr_t)from + length, length, from_mr->key } };
	struct ibv_send_wr wrs[BATCH], *bad;

	for (unsigned i = 0; i < BATCH; i++)
		wrs[i] = (struct ibv_send_wr){
			.wr_id = 1,
			.next = i + 1 < BATCH ? &wrs[i + 1] : NULL,
			.sg_list = sges,
			.num_sge = pieces,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};
	ck_assert_int_eq(soft_post_send(&a->v.qp, wrs, &bad), 0);
}

static void batch_expect(struct soft_cq *cq)
{
	struct ibv_wc wc[BATCH + 1];

	ck_assert_int_eq(soft_poll_cq(&cq->v.cq, BATCH + 1, wc), BATCH);
	for (unsigned i = 0; i < BATCH; i++)
		ck_assert_int_eq(wc[i].status, IBV_WC_SUCCESS);
}

START_TEST(a_list_of_8_has_one_notice_and_one_acknowledgement)
{
	bool entered;

	pair_connect(64);
	for (unsigned i = 0; i < BATCH; i++)
		receive_post();
	entered = rt_enter(); /* nothing but the test moves them */
	notices = acks = 0;
	batch_post(batches[_i].length, batches[_i].pieces);
	ck_assert_msg(notices == 1 && acks == 0, "%s: %u notices, %u acknowledgements of a post", batches[_i].name, notices, acks);
	ck_assert(qp_service(b, atomic_load(&b->wire)));
	ck_assert_msg(notices == 2 && acks == 1, "%s: %u notices, %u acknowledgements with a turn", batches[_i].name, notices, acks);
	batch_expect(recv_cq);
	ck_assert(qp_service(a, atomic_load(&a->wire)));
	batch_expect(send_cq);
	ck_assert_uint_eq(notices, 2);
	rt_leave(entered);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, halves_lie_on_lines);
	tcase_add_test(tcase, a_send_of_8_bytes_moves_two_lines);
	tcase_add_test(tcase, a_send_of_64_bytes_moves_three);
	tcase_add_test(tcase, immediate_data_moves_no_more);
	tcase_add_test(tcase, a_shared_receive_moves_no_more);
}

int main(void)
{
	Suite *suite = suite_create("lines");
	TCase *layout = harness_tcase(suite, "layout"), *plain = harness_tcase(suite, "lines of a message");
	TCase *domain = harness_tcase(suite, "lines of a message in a thread domain"), *batch = harness_tcase(suite, "batches");

	tcase_add_test(layout, who_only_looks_shares_no_line_with_who_counts);
	add_tests(plain);
	tcase_add_checked_fixture(batch, setup, teardown);
	tcase_add_loop_test(batch, a_list_of_8_has_one_notice_and_one_acknowledgement, 0, (int)(sizeof(batches) / sizeof(batches[0])));
	tcase_add_checked_fixture(domain, loop_with_domain, NULL);
	add_tests(domain);
	return harness_run(suite);
}
