/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events: one count per event, acknowledgements that destroying waits for.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/soft/objects.h"
#include "tests/lib/harness.h"

static struct soft_context ctx;
static int object, other;

static void setup(void)
{
	ctx.id = 9;
	ck_assert_int_eq(soft_async_init(&ctx.async), 0);
}

static void teardown(void)
{
	soft_async_deinit(&ctx.async);
}

static bool readable(void)
{
	struct pollfd p = { .fd = ctx.async.fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

START_TEST(an_event_is_delivered_once)
{
	struct ibv_async_event event;

	ck_assert(!readable());
	soft_async_raise(&ctx.async, IBV_EVENT_QP_FATAL, &object, 0);
	soft_async_raise(&ctx.async, IBV_EVENT_PORT_ERR, NULL, 1);
	ck_assert(readable());
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_int_eq(event.event_type, IBV_EVENT_QP_FATAL);
	ck_assert_ptr_eq(event.element.qp, &object);
	ck_assert(readable());
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_int_eq(event.event_type, IBV_EVENT_PORT_ERR);
	ck_assert_int_eq(event.element.port_num, 1);
	ck_assert(!readable());
}
END_TEST

START_TEST(a_nonblocking_fd_says_eagain)
{
	struct ibv_async_event event;

	ck_assert_int_eq(fcntl(ctx.async.fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(the_daemon_names_a_context)
{
	soft_async_raise_context(8, IBV_EVENT_PORT_ACTIVE, 1);
	ck_assert(!readable());
	soft_async_raise_context(9, IBV_EVENT_PORT_ACTIVE, 1);
	ck_assert(readable());
}
END_TEST

START_TEST(dropping_takes_undelivered_events_and_their_counts)
{
	struct ibv_async_event event;

	soft_async_raise(&ctx.async, IBV_EVENT_QP_FATAL, &object, 0);
	soft_async_raise(&ctx.async, IBV_EVENT_CQ_ERR, &other, 0);
	soft_async_raise(&ctx.async, IBV_EVENT_COMM_EST, &object, 0);
	soft_async_drop(&ctx.async, &object);
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_ptr_eq(event.element.cq, &other);
	ck_assert(!readable());
	soft_async_raise(&ctx.async, IBV_EVENT_CQ_ERR, &other, 0);
	ck_assert(readable());
}
END_TEST

static _Atomic int step;

static void *dropper(void *arg)
{
	atomic_store(&step, 1);
	soft_async_drop(&ctx.async, &object);
	atomic_store(&step, 2);
	return arg;
}

START_TEST(dropping_waits_for_the_acknowledgement)
{
	struct ibv_async_event event, unrelated = { .event_type = IBV_EVENT_QP_FATAL, .element.qp = (void *)&other };
	pthread_t thread;

	soft_async_raise(&ctx.async, IBV_EVENT_QP_FATAL, &object, 0);
	ck_assert_int_eq(soft_async_get(&ctx.async, &event), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, dropper, NULL), 0);
	while (atomic_load(&step) == 0)
		sched_yield();
	for (int i = 0; i < 100; i++) {
		soft_async_ack(&ctx.async, &unrelated);
		sched_yield();
	}
	ck_assert_int_eq(atomic_load(&step), 1);
	soft_async_ack(&ctx.async, &event);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&step), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("async");
	TCase *t = harness_tcase(suite, "async");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_event_is_delivered_once);
	tcase_add_test(t, a_nonblocking_fd_says_eagain);
	tcase_add_test(t, the_daemon_names_a_context);
	tcase_add_test(t, dropping_takes_undelivered_events_and_their_counts);
	tcase_add_test(t, dropping_waits_for_the_acknowledgement);
	return harness_run(suite);
}
