/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handing out devices, with /dev/null in the place of one.
 */
#include "daemon/native.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/gate.h"
#include "daemon/session.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

/* --- a server with two devices ------------------------------------------------------------------------------------------ */

static char nodes[] = "/tmp/verbsd-nodes-XXXXXX";
static const size_t pattern = sizeof(nodes) - sizeof("XXXXXX");
static struct client a;

static void grant(bool given)
{
	struct device_grant *grant = &fixture_server->config->grants[0];

	config_grants_drop(fixture_server->config);
	grant_default(grant, "test");
	grant->users.any = given;
	fixture_server->config->n_grants = 1;
}

static void setup(void)
{
	struct real_devices *real;

	strcpy(nodes + pattern, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(nodes));
	fixture_setup();
	real = &fixture_server->real;
	snprintf(fixture_server->nodes, sizeof(fixture_server->nodes), "%s", nodes);
	real->list[0] = (struct real_device){ .name = "mlx5_0", .node = "uverbs0", .rdev = makedev(1, 3), .index = 1,
		.driver = RDMA_DRIVER_MLX5, .n_ports = 1 };
	real->list[1] = (struct real_device){ .name = "rxe0", .node = "uverbs1", .rdev = makedev(1, 3), .index = 2,
		.driver = RDMA_DRIVER_RXE, .n_ports = 1 };
	real->n = 2;
	real->rdma_cm = makedev(1, 3);
	grant(true);
	client_join(&a);
}

static void teardown(void)
{
	client_close(&a);
	/* A gate that is just beginning has the client's socket as well, until the kernel has closed it in exec(). */
	while (!list_empty(&fixture_server->natives))
		loop_turn(fixture_loop, true);
	fixture_teardown();
	ck_assert_int_eq(rmdir(nodes), 0);
}

static int open_node(const char *node, bool rdwr, Vsd__NativeReply **reply)
{
	Vsd__NativeOpenRequest request = VSD__NATIVE_OPEN_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.node = (char *)(uintptr_t)node;
	request.rdwr = rdwr;
	r = client_call(&a, VSD__OP__OP_NATIVE_OPEN, &request.base, &vsd__native_reply__descriptor, &message);
	if (reply)
		*reply = (Vsd__NativeReply *)message;
	else if (message)
		protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static int close_native(uint32_t native)
{
	Vsd__NativeCloseRequest request = VSD__NATIVE_CLOSE_REQUEST__INIT;

	request.native = native;
	return client_call(&a, VSD__OP__OP_NATIVE_CLOSE, &request.base, NULL, NULL);
}

static bool is_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

START_TEST(a_device_is_opened_and_closed)
{
	Vsd__NativeReply *reply;

	ck_assert_int_eq(open_node("uverbs0", false, &reply), 0);
	ck_assert_int_eq(reply->mode, VSD__NATIVE_MODE__NATIVE_RDWR);
	ck_assert_uint_eq(reply->driver, RDMA_DRIVER_MLX5);
	ck_assert_uint_eq(a.fds.n, 1);
	ck_assert(is_device(a.fds.fds[0]));
	ck_assert_uint_eq(native_count(fixture_server, "mlx5_0"), 1);
	ck_assert_int_eq(close_native(reply->native), 0);
	ck_assert_uint_eq(native_count(fixture_server, "mlx5_0"), 0);
	ck_assert_int_eq(close_native(reply->native), EINVAL);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
}
END_TEST

START_TEST(it_goes_with_its_client)
{
	ck_assert_int_eq(open_node("uverbs0", false, NULL), 0);
	ck_assert_int_eq(open_node("uverbs1", true, NULL), 0);
	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
}
END_TEST

START_TEST(what_is_not_granted_is_refused)
{
	grant(false);
	ck_assert_int_eq(open_node("uverbs0", false, NULL), EACCES);
	ck_assert_int_eq(open_node("rdma_cm", false, NULL), EACCES);
	ck_assert_int_eq(open_node("uverbs9", false, NULL), ENOENT);
	ck_assert_int_eq(open_node("../../etc/shadow", false, NULL), ENOENT);
	ck_assert_int_eq(open_node("", false, NULL), ENOENT);
	grant(true);
	ck_assert_int_eq(open_node("rdma_cm", true, NULL), EOPNOTSUPP);
}
END_TEST

START_TEST(a_grant_has_so_many_contexts)
{
	fixture_server->config->grants[0].contexts = 2;
	ck_assert_int_eq(open_node("uverbs0", false, NULL), 0);
	ck_assert_int_eq(open_node("uverbs1", true, NULL), 0);
	ck_assert_int_eq(open_node("uverbs0", false, NULL), ENOMEM);
	ck_assert_uint_eq(native_count(fixture_server, "mlx5_0"), 1);
}
END_TEST

START_TEST(few_nodes_wait_to_be_opened)
{
	struct fdlist kept[17];
	unsigned n = 0;

	/* A socket that is closed would tell the daemon that nothing comes. */
	while (n < 17 && open_node("rdma_cm", false, NULL) == 0) {
		kept[n++] = a.fds;
		a.fds = (struct fdlist)FDLIST_NULL;
	}
	ck_assert_uint_eq(n, 16);
	ck_assert_int_eq(open_node("uverbs0", false, NULL), 0);
	while (n > 0)
		fdlist_deinit(&kept[--n]);
}
END_TEST

static uint64_t time_now;

static uint64_t clock_still(void)
{
	return time_now;
}

/* Opens and drops nodes until one is refused with @error; how many there were. */
static unsigned open_until(int error)
{
	unsigned n = 0;
	int r;

	while ((r = open_node("rdma_cm", false, NULL)) == 0) {
		n++;
		fdlist_deinit(&a.fds);
		a.fds = (struct fdlist)FDLIST_NULL;
		while (!list_empty(&fixture_server->natives))
			loop_turn(fixture_loop, true);
		ck_assert_uint_le(n, 2 * GATE_BURST);
	}
	ck_assert_int_eq(r, error);
	return n;
}

START_TEST(so_many_nodes_at_once_and_then_a_second)
{
	time_now = 1000;
	loop_set_clock(clock_still);
	ck_assert_uint_eq(open_until(EAGAIN), GATE_BURST);
	time_now += 500;
	ck_assert_uint_eq(open_until(EAGAIN), GATE_RATE / 2);
	time_now += 3600000;
	ck_assert_uint_eq(open_until(EAGAIN), GATE_BURST);
	loop_set_clock(NULL);
}
END_TEST

/* The first native of the session, after what was sent has come to it; NULL: none is left. */
static struct native *after_report(void)
{
	for (unsigned i = 0; i < 500; i++) {
		struct native *native = list_empty(&fixture_server->natives)
						? NULL
						: container_of(fixture_server->natives.next, struct native, everyone);

		if (!native || native->reported)
			return native;
		loop_turn(fixture_loop, true);
	}
	return NULL;
}

static void send_one(int socket, int fd)
{
	struct fdlist fds = FDLIST_NULL;

	ck_assert_int_eq(fdlist_consume(&fds, fd), 0);
	ck_assert_int_eq(sock_send(socket, "", 1, &fds, false), 0);
	fdlist_deinit(&fds);
}

static int open_offered(void)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fds.fds[0]);
	return open(path, O_RDWR | O_CLOEXEC);
}

START_TEST(a_node_is_opened_once)
{
	Vsd__NativeReply *reply;
	struct native *native;
	struct stat st;
	int fd;

	ck_assert_int_eq(open_node("uverbs1", false, &reply), 0);
	ck_assert_int_eq(reply->mode, VSD__NATIVE_MODE__NATIVE_PATH);
	ck_assert_uint_eq(a.fds.n, 2);
	ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_uint_eq(st.st_nlink, 0);
	fd = open_offered();
	ck_assert_int_ge(fd, 0);
	send_one(a.fds.fds[1], fd);
	native = after_report();
	ck_assert_ptr_nonnull(native);
	ck_assert(is_device(native->fd));
	ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0);
	ck_assert_uint_eq(st.st_uid, geteuid());
	ck_assert_int_eq(close_native(reply->native), 0);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
}
END_TEST

/* Asks whether the file has come; the answer may be long in coming. */
static void wait_begin(uint32_t native)
{
	Vsd__NativeWaitRequest request = VSD__NATIVE_WAIT_REQUEST__INIT;

	request.native = native;
	client_request(&a, VSD__OP__OP_NATIVE_WAIT, &request.base);
	fixture_turn();
}

static bool is_answered(void)
{
	struct pollfd pollfd = { .fd = a.fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1;
}

START_TEST(who_waits_is_told_when_it_is_there)
{
	Vsd__NativeReply *reply;
	struct fdlist fds;

	ck_assert_int_eq(open_node("uverbs1", false, &reply), 0);
	/* Those of the answer are closed with the next one. */
	fds = a.fds;
	a.fds = (struct fdlist)FDLIST_NULL;
	wait_begin(reply->native);
	ck_assert(!is_answered());
	a.fds = fds;
	send_one(a.fds.fds[1], open_offered());
	ck_assert_ptr_nonnull(after_report());
	ck_assert(is_answered());
	ck_assert_int_eq(client_answer(&a, NULL, NULL), 0);
	wait_begin(reply->native);
	ck_assert_int_eq(client_answer(&a, NULL, NULL), 0);
	wait_begin(reply->native + 1);
	ck_assert_int_eq(client_answer(&a, NULL, NULL), EINVAL);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
}
END_TEST

START_TEST(who_waits_is_told_when_nothing_comes)
{
	Vsd__NativeReply *reply;

	ck_assert_int_eq(open_node("uverbs1", false, &reply), 0);
	wait_begin(reply->native);
	close(fdlist_steal(&a.fds, 1));
	ck_assert_ptr_null(after_report());
	ck_assert_int_eq(client_answer(&a, NULL, NULL), EINVAL);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
}
END_TEST

START_TEST(who_waits_may_die)
{
	Vsd__NativeReply *reply;

	ck_assert_int_eq(open_node("uverbs1", false, &reply), 0);
	wait_begin(reply->native);
	session_lost(container_of(fixture_server->sessions.next, struct session, link), GONE_DEAD);
	fixture_turn();
	ck_assert(list_empty(&fixture_server->natives));
	protobuf_c_message_free_unpacked(&reply->base, NULL);
}
END_TEST

START_TEST(of_the_connection_manager_nothing_is_kept)
{
	ck_assert_int_eq(open_node("rdma_cm", false, NULL), 0);
	send_one(a.fds.fds[1], open_offered());
	ck_assert_ptr_null(after_report());
}
END_TEST

START_TEST(without_a_process_at_the_gate_nothing_is_opened)
{
	gate_program = "/nonexistent";
	ck_assert_int_eq(open_node("uverbs1", false, NULL), ENOENT);
	ck_assert(list_empty(&fixture_server->natives));
}
END_TEST

static const char *const wrong_files[] = { "/dev/null", "/dev/zero", "/proc/self/exe", "/" };

START_TEST(another_file_loses_the_node)
{
	struct stat st;

	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
	send_one(a.fds.fds[1], open(wrong_files[_i], _i < 2 ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC));
	ck_assert_ptr_null(after_report());
	ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0);
}
END_TEST

START_TEST(a_socket_that_is_closed_loses_the_node)
{
	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
	close(fdlist_steal(&a.fds, 1));
	ck_assert_ptr_null(after_report());
}
END_TEST

/* What a client has of a node, let go in each of the 24 orders, with the file reported and not. */
enum { PATH, GATE, FILE_ITSELF, SESSION, THINGS };

static void let_go(unsigned thing, int fds[3])
{
	if (thing < SESSION)
		close(fds[thing]);
	else
		session_lost(container_of(fixture_server->sessions.next, struct session, link), GONE_DEAD);
	fixture_turn();
}

START_TEST(closed_in_any_order)
{
	unsigned left[THINGS] = { PATH, GATE, FILE_ITSELF, SESSION }, order = (unsigned)_i / 2;
	int fds[3];

	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
	fds[FILE_ITSELF] = open_offered();
	fds[GATE] = fdlist_steal(&a.fds, 1);
	fds[PATH] = fdlist_steal(&a.fds, 0);
	if (_i % 2)
		send_one(fds[GATE], dup(fds[FILE_ITSELF]));
	for (unsigned n = THINGS; n > 0; n--) {
		unsigned i = order % n;

		order /= n;
		let_go(left[i], fds);
		left[i] = left[n - 1];
	}
	while (!list_empty(&fixture_server->natives))
		ck_assert_int_eq(loop_turn(fixture_loop, true), 0);
	ck_assert(list_empty(&fixture_server->sessions));
}
END_TEST

START_TEST(a_withdrawn_grant_takes_back_what_is_out)
{
	char error[256];
	struct stat st;

	ck_assert_int_eq(open_node("uverbs0", false, NULL), 0);
	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
	/* The new configuration has the default grant, of which this process has nothing. */
	struct config *config = config_new();

	config_grants_drop(config);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), 0);
	ck_assert_uint_eq(native_count(fixture_server, "mlx5_0"), 1);
	ck_assert_uint_eq(native_count(fixture_server, "rxe0"), 0);
	ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0);
}
END_TEST

START_TEST(listings_have_real_contexts)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	const Vsd__ListReply *list;

	ck_assert_int_eq(open_node("uverbs0", false, NULL), 0);
	ck_assert_int_eq(open_node("uverbs1", false, NULL), 0);
	request.has_type = 1;
	request.type = VSD__OBJECT_TYPE__OBJ_CONTEXT;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor, &message), 0);
	list = (const Vsd__ListReply *)message;
	ck_assert_uint_eq(list->n_items, 2);
	ck_assert_str_eq(list->items[0]->device, "mlx5_0");
	ck_assert_str_eq(list->items[0]->kind, "real");
	ck_assert_str_eq(list->items[0]->state, "open");
	ck_assert_str_eq(list->items[1]->device, "rxe0");
	ck_assert_str_eq(list->items[1]->kind, "real-node");
	ck_assert_str_eq(list->items[1]->state, "offered");
	protobuf_c_message_free_unpacked(message, NULL);
}
END_TEST

START_TEST(the_list_of_devices_has_what_is_granted)
{
	ProtobufCMessage *message = NULL;
	const Vsd__DeviceListReply *list;

	strcpy(fixture_server->config->grants[0].devices, "rxe0");
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &message), 0);
	list = (const Vsd__DeviceListReply *)message;
	ck_assert_uint_eq(list->n_devices, 2);
	ck_assert(list->devices[0]->soft);
	ck_assert(!list->devices[1]->soft);
	ck_assert_str_eq(list->devices[1]->name, "rxe0");
	ck_assert_str_eq(list->devices[1]->node, "uverbs1");
	ck_assert_uint_eq(list->devices[1]->rdev, makedev(1, 3));
	ck_assert_uint_eq(list->rdma_cm, makedev(1, 3));
	protobuf_c_message_free_unpacked(message, NULL);
}
END_TEST

/* Whether device nodes can be made, and opened, where these tests do it. */
static bool can_make_nodes(void)
{
	char folder[] = "/tmp/verbsd-nodes-XXXXXX", path[64];
	bool can;
	int fd;

	if (!mkdtemp(folder))
		return false;
	snprintf(path, sizeof(path), "%s/n", folder);
	can = mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0;
	fd = can ? open(path, O_RDWR | O_CLOEXEC) : -1;
	can = fd >= 0;
	if (can)
		close(fd);
	unlink(path);
	rmdir(folder);
	return can;
}

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *t;

	if (argc > 1 && strcmp(argv[1], "--gate") == 0)
		return gate_main(argc - 2, argv + 2);
	suite = suite_create("native");
	/* It takes a right that not every user has. */
	if (!can_make_nodes()) {
		puts("# native: device nodes cannot be made here; tests/vm/native.sh does it where they can");
		return harness_run(suite);
	}
	t = harness_tcase(suite, "server");
	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_device_is_opened_and_closed);
	tcase_add_test(t, it_goes_with_its_client);
	tcase_add_test(t, what_is_not_granted_is_refused);
	tcase_add_test(t, a_grant_has_so_many_contexts);
	tcase_add_test(t, few_nodes_wait_to_be_opened);
	tcase_add_test(t, so_many_nodes_at_once_and_then_a_second);
	tcase_add_test(t, a_node_is_opened_once);
	tcase_add_test(t, who_waits_is_told_when_it_is_there);
	tcase_add_test(t, who_waits_is_told_when_nothing_comes);
	tcase_add_test(t, who_waits_may_die);
	tcase_add_test(t, of_the_connection_manager_nothing_is_kept);
	tcase_add_loop_test(t, another_file_loses_the_node, 0, sizeof(wrong_files) / sizeof(wrong_files[0]));
	tcase_add_test(t, a_socket_that_is_closed_loses_the_node);
	tcase_add_loop_test(t, closed_in_any_order, 0, 2 * 24);
	tcase_add_test(t, a_withdrawn_grant_takes_back_what_is_out);
	tcase_add_test(t, without_a_process_at_the_gate_nothing_is_opened);
	tcase_add_test(t, listings_have_real_contexts);
	tcase_add_test(t, the_list_of_devices_has_what_is_granted);
	return harness_run(suite);
}
