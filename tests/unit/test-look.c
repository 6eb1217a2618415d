/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drivers that take their time: a sysfs of our own, in which a file that hangs is a FIFO that nobody writes.
 */
#include "daemon/look.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/backend_ibv.h"
#include "daemon/config.h"
#include "daemon/job.h"
#include "daemon/session.h"
#include "daemon/worker.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"
#include "tests/unit/native_calls.h"

static char sysfs[] = "/tmp/verbsd-look-XXXXXX";
static struct client a, b;
static struct worker *worker;

static void path_of(const char *device, const char *file, char path[128])
{
	snprintf(path, 128, "%s/infiniband/%s/ports/1/%s", sysfs, device, file);
}

static void put_port(const char *device, bool hangs)
{
	char path[128];
	FILE *file;

	path_of(device, "state", path);
	for (char *at = path + sizeof(sysfs); (at = strchr(at, '/')); at++) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
	if (hangs) {
		ck_assert_int_eq(mkfifo(path, 0600), 0);
		return;
	}
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fputs("4: ACTIVE\n", file);
	ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
	struct real_devices *real;

	strcpy(sysfs + sizeof(sysfs) - sizeof("XXXXXX"), "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(sysfs));
	fixture_setup();
	native_log();
	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(jobs_new(fixture_loop, worker, &fixture_server->jobs), 0);
	fixture_server->worker = worker;
	real = &fixture_server->real;
	snprintf(real->sysfs, sizeof(real->sysfs), "%s", sysfs);
	real->list[0] = (struct real_device){ .name = "mad", .node = "uverbs0", .rdev = 1, .index = 1, .n_ports = 1 };
	real->list[1] = (struct real_device){ .name = "sane", .node = "uverbs1", .rdev = 2, .index = 2, .n_ports = 1 };
	real->n = 2;
	config_grants_drop(fixture_server->config);
	grant_default(&fixture_server->config->grants[0], "test");
	fixture_server->config->grants[0].users.any = true;
	fixture_server->config->n_grants = 1;
	put_port("sane", false);
	client_join(&a);
	client_join(&b);
}

static void teardown(void)
{
	struct jobs *jobs = fixture_server->jobs;
	char command[64];

	client_close(&a);
	client_close(&b);
	fixture_turn();
	server_free(fixture_server);
	worker_free(worker);
	jobs_free(jobs);
	loop_free(fixture_loop);
	snprintf(command, sizeof(command), "rm -r %s", sysfs);
	ck_assert_int_eq(system(command), 0);
}

/* How many ports a listing has for each device, whose answer a thread may have a part in. */
static void list(struct client *client, unsigned *mad, unsigned *sane)
{
	ProtobufCMessage *message = NULL;
	const Vsd__DeviceListReply *reply;

	ck_assert_int_eq(client_answer_later(client, &vsd__device_list_reply__descriptor, &message), 0);
	reply = (const Vsd__DeviceListReply *)message;
	*mad = *sane = 9;
	for (size_t i = 0; i < reply->n_devices; i++) {
		if (strcmp(reply->devices[i]->name, "mad") == 0)
			*mad = (unsigned)reply->devices[i]->n_ports;
		if (strcmp(reply->devices[i]->name, "sane") == 0)
			*sane = (unsigned)reply->devices[i]->n_ports;
	}
	protobuf_c_message_free_unpacked(message, NULL);
}

/* Writes the port's state, once somebody reads it. */
static void recover(void)
{
	char path[128];
	int fd;

	path_of("mad", "state", path);
	do
		fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	while (fd < 0);
	ck_assert_int_eq(write(fd, "1: DOWN\n", 8), 8);
	close(fd);
}

START_TEST(all_ports_are_told)
{
	unsigned mad, sane;

	put_port("mad", false);
	client_request(&a, VSD__OP__OP_DEVICE_LIST, NULL);
	list(&a, &mad, &sane);
	ck_assert_uint_eq(mad, 1);
	ck_assert_uint_eq(sane, 1);
}
END_TEST

START_TEST(a_driver_that_hangs_holds_up_nobody_for_long)
{
	struct pollfd answer;
	unsigned mad, sane;

	put_port("mad", true);
	client_request(&a, VSD__OP__OP_DEVICE_LIST, NULL);
	fixture_turn();
	/* Others are answered meanwhile, */
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_STATUS, NULL, NULL, NULL), 0);
	/* then whoever asked is, without it, */
	list(&a, &mad, &sane);
	ck_assert_uint_eq(mad, 0);
	ck_assert_uint_eq(sane, 1);
	ck_assert_ptr_nonnull(strstr(native_logged, "mad: its driver takes longer"));
	/* and who asks after that does not wait for it at all: his answer comes with that of the other one's driver. */
	native_logged[0] = '\0';
	client_request(&b, VSD__OP__OP_DEVICE_LIST, NULL);
	list(&b, &mad, &sane);
	ck_assert_uint_eq(mad, 0);
	ck_assert_str_eq(native_logged, "");
	/* Once it answers that is known; he who asks now hangs up another thread with it. */
	recover();
	answer = (struct pollfd){ .fd = a.fd, .events = POLLIN };
	while (!look_port(fixture_server, &fixture_server->real.list[0], 1))
		ck_assert_int_eq(loop_turn(fixture_loop, true), 0);
	ck_assert_int_eq(poll(&answer, 1, 0), 0);
	ck_assert_uint_eq(look_port(fixture_server, &fixture_server->real.list[0], 1)->state, 1);
}
END_TEST

START_TEST(who_asks_may_die)
{
	put_port("mad", true);
	client_request(&a, VSD__OP__OP_DEVICE_LIST, NULL);
	fixture_turn();
	session_lost(client_session(&a), GONE_DEAD);
	fixture_turn();
	recover();
	while (!look_port(fixture_server, &fixture_server->real.list[0], 1))
		ck_assert_int_eq(loop_turn(fixture_loop, true), 0);
}
END_TEST

START_TEST(the_device_may_go)
{
	unsigned mad, sane;

	put_port("mad", true);
	client_request(&a, VSD__OP__OP_DEVICE_LIST, NULL);
	fixture_turn();
	/* Another one of that name. */
	fixture_server->real.list[0].index = 7;
	fixture_server->real.list[0].n_ports = 0;
	client_request(&b, VSD__OP__OP_DEVICE_LIST, NULL);
	fixture_turn();
	recover();
	list(&a, &mad, &sane);
	ck_assert_uint_eq(mad, 0);
	ck_assert_uint_eq(sane, 1);
	list(&b, &mad, &sane);
	ck_assert_ptr_null(look_port(fixture_server, &fixture_server->real.list[0], 1));
}
END_TEST

START_TEST(the_daemon_may_end)
{
	put_port("mad", true);
	client_request(&a, VSD__OP__OP_DEVICE_LIST, NULL);
	fixture_turn();
	server_end(fixture_server);
	recover();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("look");
	TCase *t = harness_tcase(suite, "look");

	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, all_ports_are_told);
	tcase_add_test(t, a_driver_that_hangs_holds_up_nobody_for_long);
	tcase_add_test(t, who_asks_may_die);
	tcase_add_test(t, the_device_may_go);
	tcase_add_test(t, the_daemon_may_end);
	return harness_run(suite);
}
