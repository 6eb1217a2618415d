/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/soft/order.c: what was acknowledged before a message was posted is completed before it is received, though each came
 * by a QP of its own. The test has the progress lock, and says which wire is served.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/lane.h"
#include "client/soft/qp_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

enum {
	SLOTS = 16,
	MANY = HOT_MAX + 4, /* wires that have no room in a hot set */
	SIZE = 4096,
	WIRE_SPACE = 1 << 14,
	SEGMENT = VSD_SEGMENT_WIRES + 2 * MANY * WIRE_SPACE,
};

_Static_assert(VSD_WIRE_SIZE(SLOTS, SLOTS) <= WIRE_SPACE, "a wire's place");

/* How both ends talk, and how long the message is that answers: what is common is served elsewhere than what is not. */
static const struct {
	const char *name;
	bool segment;
	uint32_t length;
	enum ibv_wr_opcode opcode;
} cases[] = {
	{ "in one process, short", false, 8, IBV_WR_SEND },
	{ "in one process, long", false, 2048, IBV_WR_SEND },
	{ "in one process, a WRITE with immediate", false, 64, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "by a segment, short", true, 8, IBV_WR_SEND },
	{ "by a segment, long", true, 2048, IBV_WR_SEND },
	{ "by a segment, a WRITE with immediate", true, 64, IBV_WR_RDMA_WRITE_WITH_IMM },
};

static struct loop loop;
static struct loop_options here_options, there_options;
static struct soft_cq *here, *there;
static struct soft_qp *near[MANY], *far[MANY];
static unsigned n_pairs;
static uint8_t memory[SIZE];
static struct soft_mr *mr;
static int ends[4], n_ends; /* of pipes, this process's other end of which the library has */
static bool entered;

static void setup(void)
{
	loop_start(&loop);
	here = loop_cq(&loop, 256);
	there = loop_cq(&loop, 256);
	mr = loop_mr(&loop, memory, sizeof(memory), LOOP_ACCESS);
	here_options = there_options = (struct loop_options)LOOP_OPTIONS;
	here_options.send_cq = here_options.recv_cq = here;
	there_options.send_cq = there_options.recv_cq = there;
	n_pairs = 0;
	entered = rt_enter();
}

static void teardown(void)
{
	rt_leave(entered);
	for (unsigned i = 0; i < n_pairs; i++) {
		loop_qp_free(near[i]);
		loop_qp_free(far[i]);
	}
	loop_mr_free(mr);
	loop_cq_free(here);
	loop_cq_free(there);
	loop_stop(&loop);
	while (n_ends)
		close(ends[--n_ends]);
}

/* --- wires ------------------------------------------------------------------------------------------------------------------ */

/* One memfd, whose two sides are two segments of this process. */
static void segments_make(void)
{
	int mem = memfd_create("segment", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(mem, SEGMENT), 0);
	ck_assert_int_eq(pwrite(mem, (uint32_t[]){ VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, 8, 0), 8);
	for (unsigned side = 0; side < 2; side++) {
		Vsd__EvSegment event = VSD__EV_SEGMENT__INIT;
		int page = memfd_create("page", MFD_CLOEXEC), quiet[2], kick[2];

		event.segment = 1 + side;
		event.side = side;
		event.size = SEGMENT;
		event.peer = 7;
		event.engines = VSD__ENGINE_RIGHT__ENGINE_STAGE;
		event.wires = MANY;
		ck_assert_int_eq(ftruncate(page, VSD_PAGE_SIZE), 0);
		ck_assert_int_eq(pwrite(page, (uint32_t[]){ VSD_PAGE_MAGIC, VSD_ABI_VERSION }, 8, 0), 8);
		/* A pipe's end is as good as a pidfd here: epoll takes it, and it is never readable. */
		ck_assert_int_eq(pipe2(quiet, O_CLOEXEC), 0);
		ck_assert_int_eq(pipe2(kick, O_CLOEXEC | O_NONBLOCK), 0);
		ends[n_ends++] = quiet[1];
		ends[n_ends++] = kick[0];
		ck_assert_int_eq(pair_add(&event, dup(mem), quiet[0], kick[1], page), 0);
	}
	close(mem);
}

static void wire_tell(struct soft_qp *qp, const struct soft_qp *peer, bool segment, unsigned side)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;

	event.segment = segment ? 1 + side : 0;
	event.wire = n_pairs;
	event.generation = 1;
	event.offset = VSD_SEGMENT_WIRES + n_pairs * WIRE_SPACE;
	event.kind = VSD__WIRE_KIND__WIRE_RC;
	event.local_qpn = qp->v.qp.qp_num;
	event.peer_qpn = peer->v.qp.qp_num;
	event.req_slots = event.resp_slots = SLOTS;
	event.peer = 7;
	event.side = side;
	ck_assert_int_eq(wire_attach(&event), 0);
	ck_assert_ptr_nonnull(atomic_load(&qp->wire));
}

/* All that can be done is done. */
static void settle(void)
{
	while (progress_round(TD_WORK, false))
		;
}

static void pairs_make(unsigned n, bool segment)
{
	if (segment)
		segments_make();
	for (; n_pairs < n; n_pairs++) {
		struct soft_qp *a = near[n_pairs] = loop_qp(&loop, &here_options), *b = far[n_pairs] = loop_qp(&loop, &there_options);

		loop_rtr(a, b->v.qp.qp_num, &here_options);
		loop_rtr(b, a->v.qp.qp_num, &there_options);
		wire_tell(a, b, segment, 0);
		wire_tell(b, a, segment, 1);
		loop_rts(a, &here_options);
		loop_rts(b, &there_options);
	}
	settle();
}

static void serve(struct soft_qp *qp)
{
	struct soft_td *td = qp_td(qp);

	if (td)
		td_park_wait(td);
	wire_serve(atomic_load(&qp->wire));
}

/* A question that is answered but for the answer: received and acknowledged. */
static void ask(unsigned i)
{
	ck_assert_int_eq(loop_recv(far[i], i, mr, memory, SIZE), 0);
	ck_assert_int_eq(loop_send(near[i], i, IBV_WR_SEND, mr, memory, 8, NULL, NULL), 0);
	serve(far[i]);
	ck_assert_uint_eq(atomic_load(&atomic_load(&near[i]->wire)->theirs->acked), 1);
}

#define ANSWER 1000u

static void answer(unsigned i, int of)
{
	ck_assert_int_eq(loop_recv(near[i], ANSWER, mr, memory, SIZE), 0);
	ck_assert_int_eq(loop_send(far[i], ANSWER, cases[of].opcode, mr, memory, cases[of].length, mr, memory), 0);
}

static void next_is(uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	ck_assert_int_eq(soft_poll_cq(&here->v.cq, 1, &wc), 1);
	ck_assert_msg(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && wc.opcode == opcode,
		"completion of %llu, opcode %d, not of %llu", (unsigned long long)wc.wr_id, wc.opcode, (unsigned long long)wr_id);
}

static void the_answer_is_next(int of)
{
	next_is(ANSWER, cases[of].opcode == IBV_WR_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
}

/* --- the order -------------------------------------------------------------------------------------------------------------- */

START_TEST(an_answer_by_another_qp)
{
	pairs_make(3, cases[_i].segment);
	ask(0);
	ask(2);
	answer(1, _i);
	serve(near[1]);
	next_is(0, IBV_WC_SEND);
	next_is(2, IBV_WC_SEND);
	the_answer_is_next(_i);
}
END_TEST

/* A look serves for all that are there, and for none that comes later. */
START_TEST(answers_that_follow_each_other)
{
	pairs_make(3, cases[_i].segment);
	ask(0);
	answer(1, _i);
	answer(1, _i);
	serve(near[1]);
	next_is(0, IBV_WC_SEND);
	the_answer_is_next(_i);
	the_answer_is_next(_i);
	ask(2);
	answer(1, _i);
	serve(near[1]);
	next_is(2, IBV_WC_SEND);
	the_answer_is_next(_i);
}
END_TEST

/* Most of them are in no hot set: some when they were asked by, some since then. */
START_TEST(an_answer_to_more_than_are_hot)
{
	pairs_make(MANY, true);
	for (unsigned i = 1; i < MANY; i++)
		ask(i);
	answer(0, _i);
	serve(near[0]);

	uint64_t seen = 0;

	for (unsigned i = 1; i < MANY; i++) {
		struct ibv_wc wc;

		ck_assert_int_eq(soft_poll_cq(&here->v.cq, 1, &wc), 1);
		ck_assert_int_eq(wc.opcode, IBV_WC_SEND);
		seen |= 1ull << wc.wr_id;
	}
	ck_assert_uint_eq(seen, (1ull << MANY) - 2);
	the_answer_is_next(_i);
}
END_TEST

/* A thread that has the other QP may have seen the acknowledgement, and not completed it yet. */
START_TEST(another_thread_has_the_qp)
{
	pairs_make(2, cases[_i].segment);
	ask(0);
	answer(1, _i);
	soft_mutex_lock(&near[0]->sq_lock.mutex);
	serve(near[1]);
	ck_assert_uint_eq(atomic_load(&here->count), 0);
	soft_mutex_unlock(&near[0]->sq_lock.mutex);
	ck_assert(atomic_load(&rt.run_any)); /* nobody has to come by for it */
	settle();
	next_is(0, IBV_WC_SEND);
	the_answer_is_next(_i);
}
END_TEST

/* What a wire waits for is over: it costs no look any more. */
/* The message waits, and nothing else of its QP's: not what came back for what it sent itself. */
START_TEST(its_own_acknowledgement_does_not_wait)
{
	struct vsd_half *theirs;

	pairs_make(2, cases[_i].segment);
	ask(0);
	answer(1, _i);
	ck_assert_int_eq(loop_recv(far[1], 1, mr, memory, SIZE), 0);
	ck_assert_int_eq(loop_send(near[1], 1, IBV_WR_SEND, mr, memory, 8, NULL, NULL), 0);
	near[1]->priv->plain = false; /* the state machines, which refusals are for */
	theirs = (struct vsd_half *)(uintptr_t)atomic_load(&near[1]->wire)->theirs;
	atomic_store(&theirs->acked, 1); /* as its peer will, which would take the other one's by the way */
	soft_mutex_lock(&near[0]->sq_lock.mutex);
	serve(near[1]);
	ck_assert_uint_eq(atomic_load(&here->count), 1);
	soft_mutex_unlock(&near[0]->sq_lock.mutex);
	next_is(1, IBV_WC_SEND);
	settle();
	next_is(0, IBV_WC_SEND);
	the_answer_is_next(_i);
}
END_TEST

START_TEST(nothing_is_awaited_for_ever)
{
	pairs_make(MANY, true);
	for (unsigned i = 0; i < MANY; i++)
		ask(i);
	for (unsigned i = 0; i < MANY; i++)
		serve(near[i]);
	for (unsigned i = 0; i < MANY; i++) {
		answer(i, _i);
		serve(near[i]);
	}
	for (unsigned i = 0; i < MANY; i++) {
		struct pair *pair = atomic_load(&near[i]->wire)->pair;

		ck_assert_uint_eq(atomic_load(&pair->priv->n_awaited), 0);
	}
	ck_assert_uint_eq(atomic_load(&rt.hot.crowd) % HOT_AWAITED, HOT_MAX);
}
END_TEST

/* --- the sender's part ------------------------------------------------------------------------------------------------------ */

static void *post_answer(void *of)
{
	ck_assert_int_eq(loop_send(far[1], ANSWER, IBV_WR_SEND, mr, memory, cases[*(int *)of].length, NULL, NULL), 0);
	return NULL;
}

/* This thread has completed a receive, and is not through with its turn; another one has seen it, and answers. */
START_TEST(an_answer_before_the_acknowledgement)
{
	struct soft_cqe cqe = { .wc.opcode = IBV_WC_RECV };
	pthread_t thread;

	pairs_make(2, cases[_i].segment);
	ck_assert_int_eq(loop_recv(near[1], ANSWER, mr, memory, SIZE), 0);
	soft_lock(&far[0]->sq_lock);
	soft_lock(&far[0]->rq_lock);
	responder_cqe(far[0], IBV_WC_SUCCESS, &cqe);
	ck_assert_int_eq(pthread_create(&thread, NULL, post_answer, &_i), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(!lane_in_next(&atomic_load(&near[1]->wire)->req_in));
	qp_publish(far[0]);
	soft_unlock(&far[0]->rq_lock);
	soft_unlock(&far[0]->sq_lock);
	rt_owes_nothing();
	settle();
	next_is(ANSWER, IBV_WC_RECV);
}
END_TEST

/* Once it has published it, others post as ever. */
START_TEST(an_answer_after_the_acknowledgement)
{
	pthread_t thread;

	pairs_make(2, cases[_i].segment);
	ask(0);
	ck_assert_uint_eq(atomic_load(&there->count), 1);
	ck_assert_int_eq(loop_recv(near[1], ANSWER, mr, memory, SIZE), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, post_answer, &_i), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(lane_in_next(&atomic_load(&near[1]->wire)->req_in));
}
END_TEST

#define CASES ((int)(sizeof(cases) / sizeof(cases[0])))

static void add_order(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, an_answer_by_another_qp, 0, CASES);
	tcase_add_loop_test(t, answers_that_follow_each_other, 0, CASES);
	tcase_add_loop_test(t, an_answer_to_more_than_are_hot, 0, CASES);
}

int main(void)
{
	Suite *suite = suite_create("order");
	TCase *t = harness_tcase(suite, "locks"), *domain = harness_tcase(suite, "thread domain");

	add_order(t);
	tcase_add_loop_test(t, another_thread_has_the_qp, 0, CASES);
	tcase_add_loop_test(t, its_own_acknowledgement_does_not_wait, 0, CASES);
	tcase_add_loop_test(t, nothing_is_awaited_for_ever, 0, CASES);
	tcase_add_loop_test(t, an_answer_before_the_acknowledgement, 0, 2);
	tcase_add_loop_test(t, an_answer_before_the_acknowledgement, 3, 5);
	tcase_add_loop_test(t, an_answer_after_the_acknowledgement, 0, 2);
	tcase_add_loop_test(t, an_answer_after_the_acknowledgement, 3, 5);
	tcase_add_unchecked_fixture(domain, loop_with_domain, NULL);
	add_order(domain);
	return harness_run(suite);
}
