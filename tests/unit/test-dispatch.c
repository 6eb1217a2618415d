/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The method table: complete, and obeyed.
 */
#include "daemon/dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/session.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

static const Vsd__Empty empty = VSD__EMPTY__INIT;

static const ProtobufCEnumValue *op_value(int i)
{
	return &vsd__op__descriptor.values[i];
}

static bool is_request(int i)
{
	return strncmp(op_value(i)->name, "OP_", 3) == 0;
}

START_TEST(every_request_has_a_row_and_no_event_has_one)
{
	const struct method *method = method_get((unsigned)op_value(_i)->value);

	if (!is_request(_i)) {
		ck_assert_msg(!method, "%s has a row", op_value(_i)->name);
		return;
	}
	ck_assert_msg(method != NULL, "%s has no row", op_value(_i)->name);
	ck_assert_ptr_nonnull(method->fn);
	ck_assert_ptr_nonnull(method->request);
	ck_assert_uint_ne(method->states, 0);
	ck_assert_uint_eq(method->states & ~(SESSION_NEW | SESSION_READY | SESSION_JOINED), 0);
	ck_assert_uint_le(method->fds, VSD_FDS_MAX);
	/* The log calls it what the protocol calls it. */
	ck_assert_int_eq(
		strncasecmp(method->name, op_value(_i)->name + 3, strlen(method->name) + 1), 0);
}
END_TEST

START_TEST(unknown_opcodes_have_no_row)
{
	ck_assert_ptr_null(method_get(0));
	ck_assert_ptr_null(method_get(15));
	ck_assert_ptr_null(method_get(98));
	ck_assert_ptr_null(method_get(UINT16_MAX));
}
END_TEST

START_TEST(hello_comes_first)
{

	struct frame_header header = {
		.magic = FRAME_MAGIC, .version = 1, .opcode = (uint16_t)op_value(_i)->value
	};
	struct client client;

	if (!is_request(_i) || op_value(_i)->value == VSD__OP__OP_HELLO)
		return;
	client_connect(&client, false);
	client_send(&client, &header, sizeof(header));
	ck_assert(client_is_gone(&client));
	client_close(&client);
}
END_TEST

START_TEST(second_hello_ends_the_session)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	struct client client;

	client_join(&client);
	request.min_version = 1;
	request.max_version = 1;
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_HELLO, &request.base, NULL, NULL), -1);
	client_close(&client);
}
END_TEST

static int hello(struct client *client, uint32_t min, uint32_t max)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;

	request.min_version = min;
	request.max_version = max;
	request.features = UINT64_MAX;
	return client_call(client, VSD__OP__OP_HELLO, &request.base, NULL, NULL);
}

START_TEST(other_versions_are_told_and_ended)
{
	struct client client;

	client_connect(&client, false);
	ck_assert_int_eq(
		hello(&client, VSD_VERSION_MAX + 1, VSD_VERSION_MAX + 5), EPROTONOSUPPORT);
	ck_assert(client_is_gone(&client));
	client_close(&client);
}
END_TEST

START_TEST(newer_client_gets_our_version)
{
	struct client client;

	client_connect(&client, false);
	ck_assert_int_eq(hello(&client, VSD_VERSION_MIN, 1000), 0);
	client_close(&client);
}
END_TEST

START_TEST(join_comes_before_contexts)
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	struct client client;
	char name[] = "soft0";

	request.device = name;
	client_connect(&client, false);
	ck_assert_int_eq(hello(&client, 1, 1), 0);
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_CONTEXT_OPEN, &request.base, NULL, NULL),
		ENOTCONN);
	client_close(&client);
}
END_TEST

START_TEST(join_twice_is_refused)
{
	struct client client;

	client_join(&client);
	ck_assert_int_eq(
		client_call(&client, VSD__OP__OP_JOIN, &empty.base, NULL, NULL), EALREADY);
	client_close(&client);
}
END_TEST

START_TEST(admin_methods_need_the_admin_socket)
{
	Vsd__DisconnectRequest request = VSD__DISCONNECT_REQUEST__INIT;
	struct client client;

	client_join(&client);
	request.session = client.session;
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_RELOAD, &empty.base, NULL, NULL), EPERM);
	ck_assert_int_eq(
		client_call(&client, VSD__OP__OP_DISCONNECT, &request.base, NULL, NULL), EPERM);
	client_close(&client);
}
END_TEST

START_TEST(admin_socket_is_for_nothing_else)
{
	struct client client;

	client_connect(&client, true);
	ck_assert_int_eq(hello(&client, 1, 1), 0);
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_JOIN, &empty.base, NULL, NULL), EPERM);
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
	client_close(&client);
}
END_TEST

START_TEST(admin_disconnects_a_client)
{
	Vsd__DisconnectRequest request = VSD__DISCONNECT_REQUEST__INIT;
	struct client client, admin;

	client_open(&client);
	client_connect(&admin, true);
	ck_assert_int_eq(hello(&admin, 1, 1), 0);
	request.session = client.session + 1000;
	ck_assert_int_eq(
		client_call(&admin, VSD__OP__OP_DISCONNECT, &request.base, NULL, NULL), ENOENT);
	request.session = client.session;
	ck_assert_int_eq(
		client_call(&admin, VSD__OP__OP_DISCONNECT, &request.base, NULL, NULL), 0);
	ck_assert(client_is_gone(&client));
	client_close(&client);
	client_close(&admin);
}
END_TEST

/* Frames that are none. Each ends its session, while another one goes on. */
static const struct {
	const char *name;
	struct frame_header header;
	size_t body;
} malformed[] = {
	{ "wrong magic", { .magic = 1, .version = 1, .opcode = VSD__OP__OP_STATUS }, 0 },
	{ "wrong version", { .magic = FRAME_MAGIC, .version = 9, .opcode = VSD__OP__OP_STATUS },
		0 },
	{ "version 0", { .magic = FRAME_MAGIC, .opcode = VSD__OP__OP_STATUS }, 0 },
	{ "unknown opcode", { .magic = FRAME_MAGIC, .version = 1, .opcode = 63 }, 0 },
	{ "event opcode", { .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__EV_WIRE }, 0 },
	{ "reply",
		{ .magic = FRAME_MAGIC,
			.version = 1,
			.opcode = VSD__OP__OP_STATUS,
			.flags = FRAME_REPLY },
		0 },
	{ "fds said",
		{ .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS, .fds = 1 },
		0 },
	{ "status said",
		{ .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS, .status = 1 },
		0 },
	{ "length too small", { .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS },
		4 },
	{ "length too large",
		{ .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS, .length = 9 },
		4 },
	{ "body of another type",
		{ .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS, .length = 4 },
		4 },
	{ "missing fields", { .magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_LEASE },
		0 },
	{ "length of 4 GiB",
		{ .magic = FRAME_MAGIC,
			.version = 1,
			.opcode = VSD__OP__OP_STATUS,
			.length = UINT32_MAX },
		0 },
};

START_TEST(malformed_frame_ends_its_session_only)
{
	uint8_t frame[64] = { 0 };
	struct client client, other;

	client_join(&client);
	client_join(&other);
	memcpy(frame, &malformed[_i].header, sizeof(struct frame_header));
	client_send(&client, frame, sizeof(struct frame_header) + malformed[_i].body);
	ck_assert_msg(client_is_gone(&client), "%s", malformed[_i].name);
	ck_assert_int_eq(client_call(&other, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
	ck_assert_uint_eq(fixture_server->refused, 1);
	client_close(&client);
	client_close(&other);
}
END_TEST

START_TEST(frame_too_short_or_too_long_ends_the_session)
{
	static uint8_t frame[VSD_REQUEST_MAX + 1];
	struct client client;

	client_join(&client);
	client_send(&client, frame, _i ? sizeof(frame) : 7);
	ck_assert(client_is_gone(&client));
	client_close(&client);
}
END_TEST

START_TEST(fds_end_the_session)
{
	struct frame_header header = {
		.magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS
	};
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = &header, .iov_len = sizeof(header) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	struct client client;
	int fd = 0, before;
	ssize_t n;

	client_join(&client);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	before = harness_fds_open();
	n = sendmsg(client.fd, &msg, MSG_NOSIGNAL);
	/* Where the kernel has SO_PASSRIGHTS the sender itself is refused. */
	ck_assert(n > 0 || errno == EPERM);
	if (n > 0)
		ck_assert(client_is_gone(&client));
	ck_assert_int_le(harness_fds_open(), before);
	client_close(&client);
}
END_TEST

START_TEST(device_list_names_soft0)
{
	ProtobufCMessage *reply;
	const Vsd__DeviceListReply *list;
	struct client client;

	client_join(&client);
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_DEVICE_LIST, &empty.base,
				 &vsd__device_list_reply__descriptor, &reply),
		0);
	list = (const Vsd__DeviceListReply *)reply;
	ck_assert_uint_eq(list->n_devices, 1);
	ck_assert_str_eq(list->devices[0]->name, "soft0");
	ck_assert_uint_eq(list->devices[0]->ports[0]->lid, 1);
	ck_assert_uint_eq(list->devices[0]->ports[0]->state, 4);
	ck_assert_uint_eq(list->devices[0]->ports[0]->active_mtu, 5);
	ck_assert_uint_eq(list->devices[0]->ports[0]->gids[0]->raw.data[0], 0xfe);
	ck_assert_uint_eq(list->devices[0]->ports[0]->pkeys[0], 0xffff);
	protobuf_c_message_free_unpacked(reply, NULL);
	client_close(&client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dispatch");
	TCase *table = harness_tcase(suite, "table");
	TCase *tcase = harness_tcase(suite, "dispatch");

	tcase_add_loop_test(table, every_request_has_a_row_and_no_event_has_one, 0,
		(int)vsd__op__descriptor.n_values);
	tcase_add_test(table, unknown_opcodes_have_no_row);
	tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
	tcase_add_loop_test(tcase, hello_comes_first, 0, (int)vsd__op__descriptor.n_values);
	tcase_add_test(tcase, second_hello_ends_the_session);
	tcase_add_test(tcase, other_versions_are_told_and_ended);
	tcase_add_test(tcase, newer_client_gets_our_version);
	tcase_add_test(tcase, join_comes_before_contexts);
	tcase_add_test(tcase, join_twice_is_refused);
	tcase_add_test(tcase, admin_methods_need_the_admin_socket);
	tcase_add_test(tcase, admin_socket_is_for_nothing_else);
	tcase_add_test(tcase, admin_disconnects_a_client);
	tcase_add_loop_test(tcase, malformed_frame_ends_its_session_only, 0,
		(int)(sizeof(malformed) / sizeof(malformed[0])));
	tcase_add_loop_test(tcase, frame_too_short_or_too_long_ends_the_session, 0, 2);
	tcase_add_test(tcase, fds_end_the_session);
	tcase_add_test(tcase, device_list_names_soft0);
	return harness_run(suite);
}
