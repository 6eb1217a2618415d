/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues and channels, without a runtime: what is pushed comes out, once, and fires when it should.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/cq.h"
#include "tests/lib/harness.h"

static struct soft_context ctx;
static struct soft_channel channel;
static struct soft_cq cq;

static void setup(void)
{
	ck_assert_int_eq(soft_async_init(&ctx.async), 0);
	ck_assert_int_eq(soft_channel_init(&channel), 0);
	cq.ctx = &ctx;
	cq.channel = &channel;
	cq.v.cq.cq_context = &cq;
	ck_assert_int_eq(soft_cq_init(&cq, 5, false), 0);
}

static void teardown(void)
{
	soft_cq_deinit(&cq);
	soft_channel_deinit(&channel);
	soft_async_deinit(&ctx.async);
}

static void push(uint64_t id, bool solicited, enum ibv_wc_status status, struct soft_qp *qp)
{
	struct soft_cqe cqe = { .wc = { .wr_id = id, .status = status }, .solicited = solicited, .of = qp };

	soft_cq_push(&cq, &cqe);
}

static void push_id(uint64_t id)
{
	push(id, false, IBV_WC_SUCCESS, NULL);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

START_TEST(cqes_come_out_in_order)
{
	struct ibv_wc wc[8];

	ck_assert_int_eq(cq.v.cq.cqe, 5);
	for (uint64_t lap = 0; lap < 50; lap += 3) {
		push_id(lap);
		push_id(lap + 1);
		push_id(lap + 2);
		ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 1, wc), 1);
		ck_assert_uint_eq(wc[0].wr_id, lap);
		ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 2);
		ck_assert_uint_eq(wc[1].wr_id, lap + 2);
		ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 0);
	}
}
END_TEST

START_TEST(overrun_puts_the_cq_into_error_once)
{
	struct ibv_async_event event;
	struct ibv_wc wc[8];

	for (uint64_t i = 0; i < 7; i++)
		push_id(i);
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_int_eq(event.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(event.element.cq, &cq.v.cq);
	ck_assert(!readable(ctx.async.fd));
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 5);
	push_id(9);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 0);
}
END_TEST

START_TEST(ignored_overrun_loses_the_oldest)
{
	struct ibv_wc wc[8];

	cq.ignore_overrun = true;
	for (uint64_t i = 0; i < 7; i++)
		push_id(i);
	ck_assert(!readable(ctx.async.fd));
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 5);
	ck_assert_uint_eq(wc[0].wr_id, 2);
	ck_assert_uint_eq(wc[4].wr_id, 6);
}
END_TEST

START_TEST(resize_keeps_what_is_in_it)
{
	struct ibv_wc wc[64];

	push_id(1);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 1);
	for (uint64_t i = 0; i < 5; i++)
		push_id(i);
	ck_assert_int_eq(soft_cq_resize(&cq, 4), -EINVAL);
	ck_assert_int_eq(soft_cq_resize(&cq, 0), -EINVAL);
	ck_assert_int_eq(soft_cq_resize(&cq, 33), 0);
	ck_assert_int_eq(cq.v.cq.cqe, 33);
	for (uint64_t i = 5; i < 33; i++)
		push_id(i);
	ck_assert(!readable(ctx.async.fd));
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 64, wc), 33);
	for (uint64_t i = 0; i < 33; i++)
		ck_assert_uint_eq(wc[i].wr_id, i);
	ck_assert_int_eq(soft_cq_resize(&cq, 1), 0);
	push_id(77);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 64, wc), 1);
}
END_TEST

START_TEST(purge_takes_those_of_one_qp)
{
	struct soft_qp *a = (void *)0x10, *b = (void *)0x20;
	struct ibv_wc wc[8];

	push(1, false, IBV_WC_SUCCESS, a);
	push(2, false, IBV_WC_SUCCESS, b);
	push(3, false, IBV_WC_SUCCESS, a);
	push(4, false, IBV_WC_SUCCESS, b);
	soft_cq_purge(&cq, a);
	push(5, false, IBV_WC_SUCCESS, a);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 8, wc), 3);
	ck_assert_uint_eq(wc[0].wr_id, 2);
	ck_assert_uint_eq(wc[1].wr_id, 4);
	ck_assert_uint_eq(wc[2].wr_id, 5);
}
END_TEST

static const struct {
	const char *name;
	int arm; /* -1: not, 0: any, 1: solicited only */
	bool solicited;
	enum ibv_wc_status status;
	bool fires;
} firing[] = {
	{ "not armed", -1, true, IBV_WC_SUCCESS, false },
	{ "armed", 0, false, IBV_WC_SUCCESS, true },
	{ "armed for solicited, plain", 1, false, IBV_WC_SUCCESS, false },
	{ "armed for solicited, solicited", 1, true, IBV_WC_SUCCESS, true },
	{ "armed for solicited, error", 1, false, IBV_WC_WR_FLUSH_ERR, true },
};

START_TEST(a_completion_fires_when_it_was_asked_for)
{
	struct ibv_cq *got;
	void *context;

	if (firing[_i].arm >= 0)
		ck_assert_int_eq(soft_req_notify_cq(&cq.v.cq, firing[_i].arm), 0);
	push(1, firing[_i].solicited, firing[_i].status, NULL);
	ck_assert_msg(readable(channel.channel.fd) == firing[_i].fires, "%s", firing[_i].name);
	if (!firing[_i].fires)
		return;
	push(2, true, IBV_WC_SUCCESS, NULL); /* armed once, fires once */
	ck_assert_int_eq(soft_channel_get(&channel, &got, &context), 0);
	ck_assert_ptr_eq(got, &cq.v.cq);
	ck_assert_ptr_eq(context, &cq);
	ck_assert(!readable(channel.channel.fd));
	soft_cq_ack(&cq, 1);
}
END_TEST

START_TEST(solicited_does_not_weaken_an_armed_cq)
{
	ck_assert_int_eq(soft_req_notify_cq(&cq.v.cq, 0), 0);
	ck_assert_int_eq(soft_req_notify_cq(&cq.v.cq, 1), 0);
	push_id(1);
	ck_assert(readable(channel.channel.fd));
	soft_cq_drain_events(&cq);
}
END_TEST

START_TEST(an_event_does_not_wait_for_its_completion_to_be_polled)
{
	struct ibv_cq *got;
	void *context;

	for (int i = 0; i < 3; i++) {
		soft_req_notify_cq(&cq.v.cq, 0);
		push_id(1);
	}
	for (int i = 0; i < 3; i++) {
		ck_assert(readable(channel.channel.fd));
		ck_assert_int_eq(soft_channel_get(&channel, &got, &context), 0);
	}
	ck_assert(!readable(channel.channel.fd));
	soft_cq_ack(&cq, 3);
	soft_cq_drain_events(&cq);
}
END_TEST

START_TEST(events_of_two_cqs_come_in_turn)
{
	struct soft_cq second = { .ctx = &ctx, .channel = &channel };
	struct soft_cqe cqe = { .wc = { .wr_id = 1 } };
	struct ibv_cq *got;
	void *context;

	ck_assert_int_eq(soft_cq_init(&second, 4, false), 0);
	soft_req_notify_cq(&second.v.cq, 0);
	soft_req_notify_cq(&cq.v.cq, 0);
	soft_cq_push(&second, &cqe);
	push_id(2);
	ck_assert_int_eq(soft_channel_get(&channel, &got, &context), 0);
	ck_assert_ptr_eq(got, &second.v.cq);
	soft_cq_ack(&second, 1);
	ck_assert_int_eq(soft_channel_get(&channel, &got, &context), 0);
	ck_assert_ptr_eq(got, &cq.v.cq);
	soft_cq_ack(&cq, 1);
	soft_cq_deinit(&second);
}
END_TEST

START_TEST(a_nonblocking_channel_says_eagain)
{
	struct ibv_cq *got;
	void *context;

	ck_assert_int_eq(fcntl(channel.channel.fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(soft_channel_get(&channel, &got, &context), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

static _Atomic int step;

static void *drainer(void *arg)
{
	atomic_store(&step, 1);
	soft_cq_drain_events(&cq);
	atomic_store(&step, 2);
	return arg;
}

START_TEST(draining_waits_for_acknowledgements_and_drops_the_rest)
{
	struct ibv_cq *got;
	void *context;
	pthread_t thread;

	for (int i = 0; i < 3; i++) {
		soft_req_notify_cq(&cq.v.cq, 0);
		push_id(1);
	}
	ck_assert_int_eq(soft_channel_get(&channel, &got, &context), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, drainer, NULL), 0);
	while (atomic_load(&step) == 0 || readable(channel.channel.fd))
		sched_yield();
	ck_assert_int_eq(atomic_load(&step), 1);
	soft_cq_ack(&cq, 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&step), 2);
}
END_TEST

static void *blocker(void *arg)
{
	struct ibv_cq *got = NULL;
	void *context;

	return soft_channel_get(arg, &got, &context) == 0 ? got : NULL;
}

START_TEST(a_blocked_thread_is_woken)
{
	pthread_t thread;
	void *got;

	soft_req_notify_cq(&cq.v.cq, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, blocker, &channel), 0);
	push_id(1);
	pthread_join(thread, &got);
	ck_assert_ptr_eq(got, &cq.v.cq);
	soft_cq_ack(&cq, 1);
}
END_TEST

START_TEST(a_blocked_thread_can_be_cancelled)
{
	pthread_t thread;
	void *got;

	ck_assert_int_eq(pthread_create(&thread, NULL, blocker, &channel), 0);
	ck_assert_int_eq(pthread_cancel(thread), 0);
	pthread_join(thread, &got);
	ck_assert_ptr_eq(got, PTHREAD_CANCELED);
	/* It holds nothing. */
	soft_req_notify_cq(&cq.v.cq, 0);
	push_id(1);
	ck_assert_ptr_eq(blocker(&channel), &cq.v.cq);
	soft_cq_ack(&cq, 1);
}
END_TEST

START_TEST(extended_polling_reads_what_was_granted)
{
	struct ibv_cq_ex *ex = &cq.v.cq_ex;
	struct ibv_poll_cq_attr attr = { 0 };
	struct soft_cqe cqe = { .wc = { .wr_id = 11, .opcode = IBV_WC_RECV, .byte_len = 12, .imm_data = 13, .qp_num = 14,
					.src_qp = 15, .wc_flags = IBV_WC_WITH_IMM, .slid = 16, .sl = 3,
					.dlid_path_bits = 4, .vendor_err = 17 } };

	ck_assert_int_eq(soft_cq_fill_ex(&cq, IBV_WC_EX_WITH_CVLAN), -EOPNOTSUPP);
	ck_assert_int_eq(soft_cq_fill_ex(&cq, 1ull << 40), -EOPNOTSUPP);
	ck_assert_int_eq(soft_cq_fill_ex(&cq, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK), 0);
	ck_assert_int_eq(ibv_start_poll(ex, &attr), ENOENT);
	soft_cq_push(&cq, &cqe);
	cqe.wc.wr_id = 21;
	cqe.wc.status = IBV_WC_LOC_LEN_ERR;
	soft_cq_push(&cq, &cqe);
	ck_assert_int_eq(ibv_start_poll(ex, &attr), 0);
	ck_assert_uint_eq(ex->wr_id, 11);
	ck_assert_int_eq(ex->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_wc_read_opcode(ex), IBV_WC_RECV);
	ck_assert_uint_eq(ibv_wc_read_byte_len(ex), 12);
	ck_assert_uint_eq(ibv_wc_read_imm_data(ex), 13);
	ck_assert_uint_eq(ibv_wc_read_qp_num(ex), 14);
	ck_assert_uint_eq(ibv_wc_read_src_qp(ex), 15);
	ck_assert_uint_eq(ibv_wc_read_wc_flags(ex), IBV_WC_WITH_IMM);
	ck_assert_uint_eq(ibv_wc_read_slid(ex), 16);
	ck_assert_uint_eq(ibv_wc_read_sl(ex), 3);
	ck_assert_uint_eq(ibv_wc_read_dlid_path_bits(ex), 4);
	ck_assert_uint_eq(ibv_wc_read_vendor_err(ex), 17);
	ck_assert_uint_ne(ibv_wc_read_completion_ts(ex), 0);
	ck_assert_uint_ne(ibv_wc_read_completion_wallclock_ns(ex), 0);
	push_id(31); /* a post between start and end may complete at once */
	ck_assert_int_eq(ibv_next_poll(ex), 0);
	ck_assert_uint_eq(ex->wr_id, 21);
	ck_assert_int_eq(ex->status, IBV_WC_LOC_LEN_ERR);
	ck_assert_int_eq(ibv_next_poll(ex), 0);
	ck_assert_int_eq(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	ck_assert_int_eq(ibv_start_poll(ex, &attr), ENOENT);
	attr.comp_mask = 1;
	ck_assert_int_eq(ibv_start_poll(ex, &attr), EINVAL);
}
END_TEST

/* --- where a completion goes while this thread polls ----------------------------------------------------------------------- */

static struct ibv_wc handed[3];

static void polls(void)
{
	cq.target_wc = handed;
	cq.target_cqe = NULL;
	cq.target_n = 0;
	cq.target_max = 3;
	atomic_store(&cq.target_thread, __builtin_thread_pointer());
}

static void nobody_polls(void)
{
	atomic_store(&cq.target_thread, NULL);
}

static void another_polls(void)
{
	atomic_store(&cq.target_thread, &handed);
}

static void array_full(void)
{
	cq.target_n = cq.target_max;
}

static void one_waits(void)
{
	atomic_store(&cq.target_thread, NULL);
	push_id(1);
	atomic_store(&cq.target_thread, __builtin_thread_pointer());
}

static void armed(void)
{
	atomic_store(&cq.armed, 1);
}

static void armed_for_solicited(void)
{
	atomic_store(&cq.armed, 2);
}

static const struct {
	const char *name;
	void (*spoil)(void);
} target_spoils[] = {
	{ "nobody polls", nobody_polls },
	{ "another polls", another_polls },
	{ "array full", array_full },
	{ "one waits", one_waits },
	{ "armed", armed },
	{ "armed for solicited", armed_for_solicited },
};

static _Atomic uint64_t freed;

/* One of @id's, in two steps; false: it is lost. */
static bool written(uint64_t id, struct soft_cq_place *at)
{
	if (!soft_cq_begin(&cq, at))
		return false;
	memset(at->wc, 0xff, sizeof(*at->wc));
	soft_wc_fill(at->wc, id, IBV_WC_GENERAL_ERR, IBV_WC_FETCH_ADD, 17, 18);
	soft_cq_end(&cq, at, &ctx, true, &freed, id);
	return true;
}

static void check_written(const struct ibv_wc *wc, uint64_t id)
{
	ck_assert_uint_eq(wc->wr_id, id);
	ck_assert_int_eq(wc->status, IBV_WC_GENERAL_ERR);
	ck_assert_uint_eq(wc->vendor_err, IBV_WC_GENERAL_ERR);
	ck_assert_int_eq(wc->opcode, IBV_WC_FETCH_ADD);
	ck_assert_uint_eq(wc->byte_len, 17);
	ck_assert_uint_eq(wc->qp_num, 18);
	ck_assert(!wc->imm_data && !wc->src_qp && !wc->wc_flags && !wc->pkey_index && !wc->slid && !wc->sl && !wc->dlid_path_bits);
}

START_TEST(a_completion_is_written_where_the_poll_wants_it)
{
	struct soft_cq_place at;

	polls();
	for (uint64_t i = 0; i < 3; i++) {
		ck_assert(written(i + 1, &at));
		ck_assert_ptr_eq(at.wc, &handed[i]);
		ck_assert_ptr_null(at.cqe);
		check_written(&handed[i], i + 1);
		ck_assert_int_eq(cq.target_n, i + 1);
		ck_assert_uint_eq(freed, i + 1);
	}
	/* What is pushed goes on behind it. */
	cq.target_n = 1;
	push_id(5);
	ck_assert_uint_eq(handed[1].wr_id, 5);
	ck_assert(written(6, &at));
	ck_assert_ptr_eq(at.wc, &handed[2]);
	push_id(6);
	nobody_polls();
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 3, handed), 1);
	ck_assert_uint_eq(handed[0].wr_id, 6);
}
END_TEST

/* It is in the ring then, once; what frees a place of the send queue waits until it is read. */
START_TEST(a_completion_is_queued_where_no_poll_wants_it)
{
	struct soft_cq_place at;
	uint32_t waiting;
	int n;

	polls();
	target_spoils[_i].spoil();
	n = cq.target_n;
	waiting = atomic_load(&cq.count);
	freed = 0;
	ck_assert_msg(written(7, &at), "%s", target_spoils[_i].name);
	ck_assert(at.queued && at.wc == &at.cqe->wc && at.cqe->of == &ctx && at.cqe->solicited);
	ck_assert_int_eq(cq.target_n, n);
	ck_assert_uint_eq(freed, 0);
	ck_assert_uint_eq(atomic_load(&cq.count), waiting + 1);
	ck_assert_int_eq(atomic_load(&cq.armed), 0); /* it fired */
	nobody_polls();
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 3, handed), waiting + 1);
	check_written(&handed[waiting], 7);
	ck_assert_uint_eq(freed, 7);
}
END_TEST

START_TEST(a_completion_is_written_where_an_extended_poll_wants_it)
{
	struct soft_cq_place at;

	ck_assert_int_eq(soft_cq_fill_ex(&cq, IBV_WC_STANDARD_FLAGS | (_i ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0)), 0);
	polls();
	cq.target_wc = NULL;
	cq.target_cqe = &cq.current;
	cq.target_max = 1;
	cq.current.timestamp = 0;
	ck_assert(written(8, &at));
	ck_assert_ptr_eq(at.cqe, &cq.current);
	check_written(&cq.current.wc, 8);
	ck_assert_int_eq(cq.current.timestamp != 0, _i);
	ck_assert_int_eq(cq.target_n, 1);
	ck_assert_uint_eq(freed, 8);
	ck_assert(written(9, &at) && at.queued);
	nobody_polls();
}
END_TEST

/* Nor does it leave the CQ locked; and none is handed to a poll from then on. */
START_TEST(a_completion_is_lost_when_there_is_no_room)
{
	struct soft_cq_place at;

	for (uint64_t i = 1; i <= 5; i++)
		ck_assert(written(i, &at));
	for (int i = 0; i < 2; i++)
		ck_assert(!written(9, &at) && !at.wc);
	ck_assert(soft_trylock(&cq.lock));
	soft_unlock(&cq.lock);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 3, handed), 3);
	ck_assert_uint_eq(freed, 3);
	ck_assert_int_eq(soft_poll_cq(&cq.v.cq, 3, handed), 2);
	ck_assert_uint_eq(freed, 5);
	polls();
	ck_assert(!written(9, &at));
	ck_assert_int_eq(cq.target_n, 0);
	nobody_polls();
}
END_TEST

static unsigned allocs, frees;
static size_t alloc_size;

static void *counting_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	allocs++;
	alloc_size = size;
	ck_assert_ptr_eq(context, &allocs);
	return context == &allocs ? aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment) : NULL;
}

static void counting_free(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
	frees++;
	free(ptr);
}

static void *default_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	allocs++;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void *no_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	return NULL;
}

START_TEST(the_ring_comes_from_the_parent_domain)
{
	struct soft_pd domain = { .alloc = counting_alloc, .free = counting_free, .pd_context = &allocs };
	struct soft_cq own = { .ctx = &ctx, .parent_domain = &domain };

	ck_assert_int_eq(soft_cq_init(&own, 8, true), 0);
	ck_assert_uint_eq(alloc_size, 8 * sizeof(struct soft_cqe));
	ck_assert_int_eq(soft_cq_resize(&own, 16), 0);
	ck_assert_uint_eq(allocs, 2);
	ck_assert_uint_eq(frees, 1);
	soft_cq_deinit(&own);
	ck_assert_uint_eq(frees, 2);

	domain.alloc = default_alloc;
	ck_assert_int_eq(soft_cq_init(&own, 8, true), 0);
	soft_cq_deinit(&own);
	ck_assert_uint_eq(allocs, 3);
	ck_assert_uint_eq(frees, 2);

	domain.alloc = no_alloc;
	ck_assert_int_eq(soft_cq_init(&own, 8, true), -ENOMEM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cq");
	TCase *t = harness_tcase(suite, "cq");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, cqes_come_out_in_order);
	tcase_add_test(t, overrun_puts_the_cq_into_error_once);
	tcase_add_test(t, ignored_overrun_loses_the_oldest);
	tcase_add_test(t, resize_keeps_what_is_in_it);
	tcase_add_test(t, purge_takes_those_of_one_qp);
	tcase_add_test(t, extended_polling_reads_what_was_granted);
	tcase_add_test(t, the_ring_comes_from_the_parent_domain);
	tcase_add_test(t, a_completion_is_written_where_the_poll_wants_it);
	tcase_add_loop_test(t, a_completion_is_queued_where_no_poll_wants_it, 0, sizeof(target_spoils) / sizeof(target_spoils[0]));
	tcase_add_loop_test(t, a_completion_is_written_where_an_extended_poll_wants_it, 0, 2);
	tcase_add_test(t, a_completion_is_lost_when_there_is_no_room);
	t = harness_tcase(suite, "channel");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_completion_fires_when_it_was_asked_for, 0, sizeof(firing) / sizeof(firing[0]));
	tcase_add_test(t, solicited_does_not_weaken_an_armed_cq);
	tcase_add_test(t, an_event_does_not_wait_for_its_completion_to_be_polled);
	tcase_add_test(t, events_of_two_cqs_come_in_turn);
	tcase_add_test(t, a_nonblocking_channel_says_eagain);
	tcase_add_test(t, draining_waits_for_acknowledgements_and_drops_the_rest);
	tcase_add_test(t, a_blocked_thread_is_woken);
#ifdef VERBSD_SANITIZED
	/* AddressSanitizer looks at the stack that a cancelled thread left behind, and finds it poisoned. */
	fprintf(stderr, "skipped: a_blocked_thread_can_be_cancelled, sanitizers do not know cancellation\n");
	(void)a_blocked_thread_can_be_cancelled;
#else
	tcase_add_test(t, a_blocked_thread_can_be_cancelled);
#endif
	return harness_run(suite);
}
