/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a poll looks at does not grow with the number of wires: those that were used last, and of them soon only those that are in
 * use. Wires are counted, not time.
 */
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

enum { PAIRS = 500, MESSAGES = 200, ENOUGH = 2048 /* rounds in which what was not used retires */ };

static struct loop loop;
static struct loop_options options;
static struct soft_cq *cq;
static struct soft_mr *mr;
static struct soft_qp *qps[PAIRS][2];
static uint64_t words[2];
static bool entered;

/* The linker puts it before the one of progress.c, for all who call it from other files. */
static unsigned served, strangers;
static bool counting; /* while this thread has the progress lock */
bool __real_wire_serve(struct wire *wire);
bool __wrap_wire_serve(struct wire *wire);
bool __wrap_wire_serve(struct wire *wire)
{
	if (counting) {
		served++;
		strangers += wire != atomic_load(&qps[0][0]->wire) && wire != atomic_load(&qps[0][1]->wire);
	}
	return __real_wire_serve(wire);
}

static void setup(void)
{
	loop_start(&loop);
	options = (struct loop_options)LOOP_OPTIONS;
	options.send_wr = options.recv_wr = 4;
	options.send_cq = options.recv_cq = cq = loop_cq(&loop, 64);
	mr = loop_mr(&loop, words, sizeof(words), LOOP_ACCESS);
	for (unsigned i = 0; i < PAIRS; i++) {
		qps[i][0] = loop_qp(&loop, &options);
		qps[i][1] = loop_qp(&loop, &options);
		loop_connect(&loop, qps[i][0], qps[i][1], 16, &options);
	}
	entered = rt_enter();
}

static void teardown(void)
{
	rt_leave(entered);
	for (unsigned i = 0; i < PAIRS; i++) {
		loop_qp_free(qps[i][0]);
		loop_qp_free(qps[i][1]);
	}
	loop_mr_free(mr);
	loop_cq_free(cq);
	loop_stop(&loop);
}

/* Sent, received, acknowledged and completed; and a poll more. */
static void message(void)
{
	struct ibv_wc wc[3];

	ck_assert_int_eq(loop_recv(qps[0][1], 2, mr, &words[1], 8), 0);
	ck_assert_int_eq(loop_send(qps[0][0], 1, IBV_WR_SEND, mr, &words[0], 8, NULL, NULL), 0);
	while (progress_poll())
		;
	ck_assert_int_eq(soft_poll_cq(&cq->v.cq, 3, wc), 2);
}

static void settle(void)
{
	for (unsigned i = 0; i < ENOUGH; i++)
		progress_round(TD_POLL, false);
}

START_TEST(a_poll_looks_at_few_of_1000_wires)
{
	/* However many were used lately, so many are looked at. */
	ck_assert_uint_le(rt.hot.n, HOT_MAX);
	/* What was opened and not used leaves, whatever else is there; what was used stays. */
	settle();
	ck_assert_uint_eq(rt.hot.n, 0);
	ck_assert(!atomic_load(&rt.loop_any) && !atomic_load(&rt.run_any));
	message();
	settle();
	ck_assert_uint_eq(rt.hot.n, 2);
	counting = true;
	for (unsigned i = 0; i < MESSAGES; i++)
		message();
	counting = false;
	ck_assert_uint_ge(served, 2 * MESSAGES); /* either end; else nothing is counted */
	ck_assert_uint_le(served, 8 * MESSAGES);
	ck_assert_uint_eq(strangers, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hot");
	TCase *t = harness_tcase(suite, "hot");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_poll_looks_at_few_of_1000_wires);
	return harness_run(suite);
}
