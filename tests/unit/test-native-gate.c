/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes whose process at the gate takes its time, with /dev/null in the place of a device.
 */
#include "daemon/native.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/job.h"
#include "daemon/session.h"
#include "daemon/worker.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"
#include "tests/unit/held_spawn.h"
#include "tests/unit/native_calls.h"

static char nodes[] = "/tmp/verbsd-gate-XXXXXX";
static struct client a, b;
static struct worker *worker;

static void setup(void)
{
	struct real_devices *real;

	strcpy(nodes + sizeof(nodes) - sizeof("XXXXXX"), "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(nodes));
	fixture_setup();
	native_log();
	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(jobs_new(fixture_loop, worker, &fixture_server->jobs), 0);
	fixture_server->worker = worker;
	snprintf(fixture_server->nodes, sizeof(fixture_server->nodes), "%s", nodes);
	real = &fixture_server->real;
	real->list[0] = (struct real_device){
		.name = "rxe0", .node = "uverbs0", .rdev = makedev(1, 3), .index = 1, .driver = RDMA_DRIVER_RXE, .n_ports = 1
	};
	real->n = 1;
	config_grants_drop(fixture_server->config);
	grant_default(&fixture_server->config->grants[0], "test");
	fixture_server->config->grants[0].users.any = true;
	fixture_server->config->n_grants = 1;
	client_join(&a);
	client_join(&b);
	held_spawn_use();
}

static void end_threads(void)
{
	held_spawn_go();
	worker = worker_free(worker);
	jobs_free(fixture_server->jobs);
	fixture_server->worker = NULL;
	fixture_server->jobs = NULL;
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	while (worker && !list_empty(&fixture_server->natives))
		ck_assert_int_eq(loop_turn(fixture_loop, true), 0);
	if (worker)
		end_threads();
	fixture_stop();
	/* No process is left to itself. */
	while (gate_hung() > 0)
		;
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert_int_eq(rmdir(nodes), 0);
}

static void ask(struct client *client, bool rdwr)
{
	Vsd__NativeOpenRequest request = VSD__NATIVE_OPEN_REQUEST__INIT;
	char node[] = "uverbs0";

	request.node = node;
	request.rdwr = rdwr;
	client_request(client, VSD__OP__OP_NATIVE_OPEN, &request.base);
}

static bool is_answered(const struct client *client)
{
	struct pollfd pollfd = { .fd = client->fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1;
}

/* Asks, and comes back when a thread is at it. */
static void ask_held(void)
{
	ask(&a, false);
	fixture_turn();
	held_spawn_wait(1);
}

START_TEST(others_are_answered_while_one_is_begun)
{
	struct fdlist shown = FDLIST_NULL;
	char path[32];

	ask_held();
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_STATUS, NULL, NULL, NULL), 0);
	ask(&b, true);
	ck_assert_int_eq(client_answer_later(&b, NULL, NULL), 0);
	ck_assert_uint_eq(b.fds.n, 1);
	ck_assert(!is_answered(&a));
	held_spawn_go();
	ck_assert_int_eq(client_answer_later(&a, NULL, NULL), 0);
	ck_assert_uint_eq(a.fds.n, 2);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fds.fds[0]);
	ck_assert_int_eq(fdlist_consume(&shown, open(path, O_RDWR | O_CLOEXEC)), 0);
	ck_assert_int_eq(sock_send(a.fds.fds[1], "", 1, &shown, false), 0);
	fdlist_deinit(&shown);
	while (!container_of(client_session(&a)->natives.next, struct native, link)->reported)
		ck_assert_int_eq(loop_turn(fixture_loop, true), 0);
}
END_TEST

START_TEST(who_asked_is_told_that_there_is_none)
{
	gate_program = "/nonexistent";
	ask_held();
	held_spawn_go();
	ck_assert_int_eq(client_answer_later(&a, NULL, NULL), ENOENT);
	ck_assert_uint_eq(a.fds.n, 0);
	ck_assert_ptr_nonnull(strstr(native_logged, "native_open: No such file or directory: no process for its gate"));
	ck_assert(list_empty(&fixture_server->natives));
}
END_TEST

START_TEST(who_asked_may_die)
{
	ask_held();
	session_lost(client_session(&a), GONE_DEAD);
	fixture_turn();
	ck_assert(list_empty(&fixture_server->natives));
	ck_assert_uint_eq(gate_hung(), 1);
	held_spawn_go();
	while (gate_hung() > 0)
		ck_assert_int_eq(loop_turn(fixture_loop, false), 0);
	ck_assert_uint_eq(held_spawn_made(), 1);
}
END_TEST

START_TEST(its_grant_may_be_withdrawn)
{
	struct config *config = config_new();
	char error[256];

	ask_held();
	config_grants_drop(config);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), 0);
	ck_assert_int_eq(client_answer_later(&a, NULL, NULL), EACCES);
	ck_assert_uint_eq(a.fds.n, 0);
	ck_assert(list_empty(&fixture_server->natives));
	held_spawn_go();
	while (gate_hung() > 0)
		ck_assert_int_eq(loop_turn(fixture_loop, false), 0);
}
END_TEST

/* In the order of daemon/main.c. */
START_TEST(the_daemon_may_end)
{
	ask_held();
	server_end(fixture_server);
	end_threads();
	ck_assert_uint_eq(held_spawn_made(), 1);
}
END_TEST

static bool can_make_nodes(void)
{
	char folder[] = "/tmp/verbsd-gate-XXXXXX", path[64];
	int fd = -1;

	if (!mkdtemp(folder))
		return false;
	snprintf(path, sizeof(path), "%s/n", folder);
	if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0)
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	unlink(path);
	rmdir(folder);
	return fd >= 0;
}

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *t;

	if (argc > 1 && strcmp(argv[1], "--gate") == 0)
		return gate_main(argc - 2, argv + 2);
	suite = suite_create("native-gate");
	if (!can_make_nodes()) {
		puts("# native-gate: device nodes cannot be made here");
		return harness_run(suite);
	}
	t = harness_tcase(suite, "gate");
	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, others_are_answered_while_one_is_begun);
	tcase_add_test(t, who_asked_is_told_that_there_is_none);
	tcase_add_test(t, who_asked_may_die);
	tcase_add_test(t, its_grant_may_be_withdrawn);
	tcase_add_test(t, the_daemon_may_end);
	return harness_run(suite);
}
