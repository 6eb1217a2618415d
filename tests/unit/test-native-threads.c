/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that take long, with a kernel of our own that waits until it is told to go on.
 */
#include "daemon/native_region.h"

#include <errno.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <unistd.h>

#include "daemon/job.h"
#include "daemon/session.h"
#include "daemon/worker.h"
#include "tests/lib/harness.h"
#include "tests/unit/native_calls.h"

static struct client a, b;

static void setup(void)
{
	native_start(&a, &b);
}

static struct worker *worker;

static void setup_threads(void)
{
	setup();
	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(jobs_new(fixture_loop, worker, &fixture_server->jobs), 0);
	fixture_server->worker = worker;
}

static void teardown_threads(void)
{
	struct jobs *jobs = fixture_server->jobs;

	client_close(&a);
	client_close(&b);
	fixture_turn();
	server_free(fixture_server);
	worker_free(worker);
	jobs_free(jobs);
	loop_free(fixture_loop);
}

/* Sends it, and waits until the kernel has it in hand. */
static void reg_begin(struct client *client, uint32_t handle)
{
	Vsd__NativeRegRequest request = VSD__NATIVE_REG_REQUEST__INIT;

	kernel.hold = true;
	request.handle = handle;
	request.pd = KERNEL_PD;
	client_request(client, VSD__OP__OP_NATIVE_REG, &request.base);
	fixture_turn();
	kernel_wait_held();
}

/* Turns the loop until the kernel had @made registrations and has @left; the test's time is over if it never does. */
static void until(uint32_t made, unsigned left)
{
	while (kernel_made() != made || kernel_registered() != left) {
		ck_assert_uint_le(kernel_made(), made);
		loop_turn(fixture_loop, false);
		poll(NULL, 0, 1);
	}
}

START_TEST(one_that_takes_long_holds_up_nobody)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE), other = native_give(&b, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1), more;
	Vsd__ListRequest list = VSD__LIST_REQUEST__INIT;
	Vsd__NativeOpenRequest open = VSD__NATIVE_OPEN_REQUEST__INIT;

	reg_begin(&a, got.handle);
	/* Another one registers, and deregisters, */
	more = native_make(&b, other, NULL, LOCAL_WRITE, 1);
	ck_assert_int_eq(more.status, 0);
	ck_assert_int_eq(native_reg(&b, more.handle, KERNEL_PD + 1, NULL), EINVAL);
	ck_assert_int_eq(native_reg(&b, more.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_release(&b, more.handle), 0);
	/* lists, */
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_DEVICE_LIST, NULL, NULL, NULL), 0);
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_LIST, &list.base, NULL, NULL), 0);
	/* and opens, of what there is. */
	open.node = (char *)(uintptr_t) "uverbs0";
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_NATIVE_OPEN, &open.base, NULL, NULL), ENOENT);
	ck_assert_int_eq(native_end(&b, other), 0);
	ck_assert(kernel_is_held());
	kernel_go_on();
	ck_assert_int_eq(client_answer_later(&a, NULL, NULL), 0);
	ck_assert_uint_eq(kernel_registered(), 1);
	ck_assert_int_eq(native_release(&a, got.handle), 0);
}
END_TEST

START_TEST(a_client_that_dies_meanwhile_leaves_nothing)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	reg_begin(&a, got.handle);
	session_lost(client_session(&a), GONE_DEAD);
	fixture_turn();
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	kernel_go_on();
	until(1, 0);
}
END_TEST

START_TEST(the_daemon_may_end_meanwhile)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);
	struct jobs *jobs = fixture_server->jobs;

	reg_begin(&a, got.handle);
	server_free(fixture_server);
	kernel_go_on();
	worker_free(worker);
	jobs_free(jobs);
	/* What is left the kernel undoes, with the last of the fds that teardown looks for. */
	fdlist_deinit(&a.fds);
	fdlist_deinit(&b.fds);
	close(a.fd);
	close(a.events);
	close(b.fd);
	close(b.events);
	close(a.page);
	close(b.page);
	loop_free(fixture_loop);
}
END_TEST

START_TEST(death_and_release_race)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);
	Vsd__NativeReleaseRequest request = VSD__NATIVE_RELEASE_REQUEST__INIT;

	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	request.handle = got.handle;
	client_request(&a, VSD__OP__OP_NATIVE_RELEASE, &request.base);
	loop_turn(fixture_loop, false);
	session_lost(client_session(&a), GONE_DEAD);
	until(1, 0);
	fixture_turn();
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("native-threads");
	TCase *t = harness_tcase(suite, "threads");

	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup_threads, teardown_threads);
	tcase_add_test(t, one_that_takes_long_holds_up_nobody);
	tcase_add_test(t, a_client_that_dies_meanwhile_leaves_nothing);
	tcase_add_test(t, death_and_release_race);
	t = harness_tcase(suite, "end");
	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup_threads, NULL);
	tcase_add_test(t, the_daemon_may_end_meanwhile);
	return harness_run(suite);
}
