/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/srq.h"
#include "tests/lib/harness.h"

static struct soft_context ctx;
static struct soft_pd pd;

static void start(struct soft_srq *srq, uint32_t max_wr, uint32_t max_sge)
{
	memset(srq, 0, sizeof(*srq));
	ck_assert_int_eq(soft_async_init(&ctx.async), 0);
	pd.base = &pd;
	srq->ctx = &ctx;
	srq->pd = &pd;
	ck_assert_int_eq(soft_srq_init(srq, max_wr, max_sge, false), 0);
}

static void stop(struct soft_srq *srq)
{
	soft_srq_deinit(srq);
	soft_async_deinit(&ctx.async);
}

static int post(struct soft_srq *srq, uint64_t wr_id, int n_sge)
{
	struct ibv_sge sge[4] = { { 0x1000 + wr_id, 10, 1 }, { 0x2000 + wr_id, 20, 2 } };
	struct ibv_recv_wr *bad = NULL, wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = n_sge };
	int err = soft_post_srq_recv(&srq->srq, &wr, &bad);

	ck_assert_ptr_eq(bad, err ? &wr : NULL);
	return err;
}

static uint64_t take(struct soft_srq *srq)
{
	struct soft_rwqe wqe;
	struct ibv_sge sge[4];

	return soft_srq_take(srq, &wqe, sge) ? wqe.wr_id : UINT64_MAX;
}

START_TEST(receives_come_out_oldest_first_with_their_sges)
{
	struct soft_srq srq;
	struct soft_rwqe wqe;
	struct ibv_sge sge[4];

	start(&srq, 3, 2);
	for (uint64_t round = 0; round < 5; round++) {
		ck_assert_int_eq(post(&srq, round * 2, 2), 0);
		ck_assert_int_eq(post(&srq, round * 2 + 1, 1), 0);
		ck_assert(soft_srq_take(&srq, &wqe, sge));
		ck_assert_uint_eq(wqe.wr_id, round * 2);
		ck_assert_uint_eq(wqe.n_sge, 2);
		ck_assert_uint_eq(sge[1].addr, 0x2000 + round * 2);
		ck_assert_uint_eq(take(&srq), round * 2 + 1);
	}
	ck_assert_uint_eq(take(&srq), UINT64_MAX);
	stop(&srq);
}
END_TEST

START_TEST(full_and_too_many_sges_are_refused)
{
	struct soft_srq srq;

	start(&srq, 3, 2);
	ck_assert_int_eq(post(&srq, 0, 3), EINVAL);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(post(&srq, i, 1), 0);
	ck_assert_int_eq(post(&srq, 3, 1), ENOMEM);
	ck_assert_uint_eq(take(&srq), 0);
	ck_assert_int_eq(post(&srq, 3, 1), 0);
	stop(&srq);
}
END_TEST

static bool event_waits(enum ibv_event_type type)
{
	struct ibv_async_event event;

	/* a semaphore eventfd: readable means that soft_async_get() does not block */
	if (ctx.async.head == NULL)
		return false;
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_int_eq(event.event_type, type);
	soft_async_ack(&ctx.async, &event);
	return true;
}

START_TEST(limit_event_comes_once_per_arming)
{
	struct soft_srq srq;

	start(&srq, 8, 1);
	for (uint64_t i = 0; i < 4; i++)
		post(&srq, i, 1);
	ck_assert_int_eq(soft_srq_modify(&srq, &(struct ibv_srq_attr){ .srq_limit = 3 }, IBV_SRQ_LIMIT), 0);
	take(&srq);
	ck_assert(!event_waits(IBV_EVENT_SRQ_LIMIT_REACHED)); /* 3 are left: not fewer than the limit */
	take(&srq);
	ck_assert(event_waits(IBV_EVENT_SRQ_LIMIT_REACHED));
	take(&srq);
	ck_assert(!event_waits(IBV_EVENT_SRQ_LIMIT_REACHED));
	/* Armed again below the limit: at once. */
	ck_assert_int_eq(soft_srq_modify(&srq, &(struct ibv_srq_attr){ .srq_limit = 2 }, IBV_SRQ_LIMIT), 0);
	ck_assert(event_waits(IBV_EVENT_SRQ_LIMIT_REACHED));
	ck_assert_int_eq(soft_srq_modify(&srq, &(struct ibv_srq_attr){ .srq_limit = 9 }, IBV_SRQ_LIMIT), -EINVAL);
	stop(&srq);
}
END_TEST

START_TEST(resize_keeps_what_is_posted)
{
	struct soft_srq srq;

	start(&srq, 4, 2);
	for (uint64_t i = 0; i < 3; i++)
		post(&srq, i, 2);
	take(&srq);
	post(&srq, 3, 2);
	post(&srq, 4, 2);
	ck_assert_int_eq(soft_srq_modify(&srq, &(struct ibv_srq_attr){ .max_wr = 3 }, IBV_SRQ_MAX_WR), -EINVAL);
	ck_assert_int_eq(soft_srq_modify(&srq, &(struct ibv_srq_attr){ .max_wr = 9 }, IBV_SRQ_MAX_WR), 0);
	for (uint64_t i = 5; i < 10; i++)
		ck_assert_int_eq(post(&srq, i, 2), 0);
	ck_assert_int_eq(post(&srq, 10, 2), ENOMEM);
	for (uint64_t i = 1; i < 10; i++)
		ck_assert_uint_eq(take(&srq), i);
	stop(&srq);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("srq");
	TCase *tcase = harness_tcase(suite, "srq");

	tcase_add_test(tcase, receives_come_out_oldest_first_with_their_sges);
	tcase_add_test(tcase, full_and_too_many_sges_are_refused);
	tcase_add_test(tcase, limit_event_comes_once_per_arming);
	tcase_add_test(tcase, resize_keeps_what_is_posted);
	return harness_run(suite);
}
