/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices with a kernel of our own behind the ioctl: their events and limits, and what a dead client leaves.
 */
#include "daemon/observer.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/remains.h"
#include "daemon/uverbs_call.h"
#include "daemon/watch.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

/* --- the kernel ------------------------------------------------------------------------------------------------------- */

#define OBJECTS 3000

static struct {
	int fail_object, fail_method; /* -1: none */
	int events;		      /* the end that events are written to */
	unsigned contexts;
	struct {
		uint16_t type;
		uint32_t on; /* the handle of what it stands on; 0: nothing */
		bool there, stuck;
	} objects[OBJECTS]; /* by handle */
	unsigned n_destroyed;
} kernel;

static struct ib_uverbs_attr *attr_of(struct ib_uverbs_ioctl_hdr *head, unsigned id)
{
	for (unsigned i = 0; i < head->num_attrs; i++) {
		if (head->attrs[i].attr_id == id)
			return &head->attrs[i];
	}
	return NULL;
}

static void *out_of(struct ib_uverbs_ioctl_hdr *head, unsigned id, size_t size)
{
	struct ib_uverbs_attr *attr = attr_of(head, id);

	ck_assert_ptr_nonnull(attr);
	ck_assert_uint_ge(attr->len, size);
	return (void *)(uintptr_t)attr->data;
}

static int invoke(struct ib_uverbs_ioctl_hdr *head)
{
	struct ib_uverbs_query_device_resp *device;
	struct ib_uverbs_query_port_resp *port;

	switch (attr_of(head, UVERBS_ATTR_WRITE_CMD)->data) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		device = out_of(head, UVERBS_ATTR_CORE_OUT, sizeof(*device));
		*device = (struct ib_uverbs_query_device_resp){ .max_qp = 77, .max_mr_size = 1ull << 40, .max_qp_rd_atom = 9 };
		return 0;
	case IB_USER_VERBS_CMD_QUERY_PORT:
		port = out_of(head, UVERBS_ATTR_CORE_OUT, sizeof(*port));
		*port = (struct ib_uverbs_query_port_resp){ .max_mtu = 5, .active_mtu = 3, .max_msg_sz = 1 << 20 };
		return 0;
	default:
		return -EINVAL;
	}
}

static int info(struct ib_uverbs_ioctl_hdr *head)
{
	uint64_t type = attr_of(head, UVERBS_ATTR_INFO_OBJECT_ID)->data;
	uint32_t *n = out_of(head, UVERBS_ATTR_INFO_TOTAL_HANDLES, sizeof(*n));
	struct ib_uverbs_attr *list = attr_of(head, UVERBS_ATTR_INFO_HANDLES_LIST);
	uint32_t *handles = (void *)(uintptr_t)list->data;

	*n = 0;
	for (uint32_t i = 1; i < OBJECTS && *n < list->len / sizeof(*handles); i++) {
		if (kernel.objects[i].there && kernel.objects[i].type == type)
			handles[(*n)++] = i;
	}
	return 0;
}

/* Each kind's method of that name is the second one, or the only one, and its handle the first attribute. */
static int destroy(struct ib_uverbs_ioctl_hdr *head)
{
	uint32_t handle = (uint32_t)head->attrs[0].data;

	if (handle >= OBJECTS || !kernel.objects[handle].there || kernel.objects[handle].type != head->object_id)
		return -ENOENT;
	if (kernel.objects[handle].stuck)
		return -EBUSY;
	for (unsigned i = 1; i < OBJECTS; i++) {
		if (kernel.objects[i].there && kernel.objects[i].on == handle)
			return -EBUSY;
	}
	kernel.objects[handle].there = false;
	kernel.n_destroyed++;
	return 0;
}

static int fake_ioctl(int fd, void *command)
{
	struct ib_uverbs_ioctl_hdr *head = command;
	int pair[2];

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(head->length, sizeof(*head) + head->num_attrs * sizeof(head->attrs[0]));
	ck_assert_uint_eq(head->driver_id, RDMA_DRIVER_RXE);
	if (head->object_id == kernel.fail_object && head->method_id == kernel.fail_method)
		return -EINVAL;
	if (head->object_id == UVERBS_OBJECT_ASYNC_EVENT) {
		ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
		attr_of(head, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)->data_s64 = pair[0];
		kernel.events = pair[1];
		return 0;
	}
	if (head->object_id != UVERBS_OBJECT_DEVICE)
		return destroy(head);
	switch (head->method_id) {
	case UVERBS_METHOD_GET_CONTEXT:
		kernel.contexts++;
		return 0;
	case UVERBS_METHOD_INFO_HANDLES:
		return info(head);
	default:
		return invoke(head);
	}
}

static void happens(unsigned type, unsigned port)
{
	struct ib_uverbs_async_event_desc event = { .element = port, .event_type = type };

	ck_assert_int_eq(write(kernel.events, &event, sizeof(event)), sizeof(event));
	fixture_turn();
}

/* --- a server with one device ------------------------------------------------------------------------------------------- */

static unsigned lines;
static char last[256];

static void sink(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	lines++;
	snprintf(last, sizeof(last), "%s", text);
}

/* The node is anything that opens, for the kernel is ours. */
static char folder[] = "/tmp/verbsd-observer-XXXXXX";
static char node[sizeof(folder) + 8];

static void setup(void)
{
	struct real_devices *real;

	memset(&kernel, 0, sizeof(kernel));
	kernel.fail_object = kernel.fail_method = kernel.events = -1;
	uverbs_call_ioctl = fake_ioctl;
	strcpy(folder + sizeof(folder) - sizeof("XXXXXX"), "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(node, sizeof(node), "%s/1:3", folder);
	ck_assert_int_eq(symlink("/dev/null", node), 0);
	observer_folder = folder;
	fixture_setup();
	real = &fixture_server->real;
	real->list[0] = (struct real_device){
		.name = "rxe0", .node = "uverbs0", .rdev = makedev(1, 3), .index = 4, .driver = RDMA_DRIVER_RXE, .n_ports = 1
	};
	real->n = 1;
	snprintf(fixture_server->nodes, sizeof(fixture_server->nodes), "/nowhere");
	log_set_sink(sink);
	lines = 0;
}

static void teardown(void)
{
	fixture_teardown();
	unlink(node);
	rmdir(folder);
	if (kernel.events >= 0)
		close(kernel.events);
}

static const struct observer *observer(void)
{
	return observer_find(fixture_server, &fixture_server->real.list[0]);
}

/* The device as a listing has it. */
static void listed(Vsd__Device *device, Vsd__Port *port)
{
	struct client client;
	ProtobufCMessage *message;
	const Vsd__DeviceListReply *reply;

	client_connect(&client, true);
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;

	hello.min_version = VSD_VERSION_MIN;
	hello.max_version = VSD_VERSION_MAX;
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_HELLO, &hello.base, NULL, NULL), 0);
	ck_assert_int_eq(
		client_call(&client, VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &message), 0);
	reply = (const Vsd__DeviceListReply *)message;
	ck_assert_uint_eq(reply->n_devices, 2);
	*device = *reply->devices[1];
	if (device->n_ports)
		*port = *device->ports[0];
	protobuf_c_message_free_unpacked(message, NULL);
	client_close(&client);
}

START_TEST(a_device_says_its_limits)
{
	Vsd__Device device;
	Vsd__Port port;

	server_observe(fixture_server);
	ck_assert(observer() && observer()->known);
	ck_assert_uint_eq(kernel.contexts, 1);
	listed(&device, &port);
	ck_assert_uint_eq(device.max_qp, 77);
	ck_assert_uint_eq(device.max_rd_atom, 9);
	ck_assert_uint_eq(device.max_mr_size, 1ull << 40);
}
END_TEST

START_TEST(what_cannot_be_asked_is_not_known)
{
	static const struct {
		int object, method;
	} fails[] = {
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT },
		{ UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE },
	};
	Vsd__Device device;
	Vsd__Port port;

	kernel.fail_object = fails[_i].object;
	kernel.fail_method = fails[_i].method;
	server_observe(fixture_server);
	ck_assert(observer() && !observer()->known);
	ck_assert_int_lt(observer()->fd, 0);
	ck_assert_uint_eq(lines, 1);
	ck_assert_ptr_nonnull(strstr(last, "rxe0"));
	listed(&device, &port);
	ck_assert_uint_eq(device.max_qp, 0);
}
END_TEST

START_TEST(events_are_counted_and_logged)
{
	server_observe(fixture_server);
	lines = 0;
	happens(10, 1);
	ck_assert_uint_eq(lines, 1);
	ck_assert_str_eq(last, "rxe0 port 1: port-error");
	happens(9, 1);
	ck_assert_str_eq(last, "rxe0 port 1: port-active");
	happens(18, 1);
	happens(8, 0);
	ck_assert_str_eq(last, "rxe0: device-fatal");
	ck_assert_uint_eq(observer_count(observer(), 1, 8), 1);
	ck_assert_uint_eq(observer_count(observer(), 1, 9), 1);
	ck_assert_uint_eq(observer_count(observer(), 1, 10), 1);
	ck_assert_uint_eq(observer_count(observer(), 1, 18), 1);
}
END_TEST

START_TEST(a_bad_cable_does_not_fill_the_log)
{
	server_observe(fixture_server);
	lines = 0;
	for (unsigned i = 0; i < 100; i++)
		happens(10, 1);
	ck_assert_uint_eq(lines, LOG_LIMIT_LINES);
	ck_assert_uint_eq(observer_count(observer(), 1, 10), 100);
}
END_TEST

START_TEST(numbers_that_mean_nothing_are_nothing)
{
	server_observe(fixture_server);
	lines = 0;
	happens(0, 1);
	happens(19, 1);
	happens(20, 1);
	happens(UINT32_MAX, UINT32_MAX);
	ck_assert_uint_eq(lines, 0);
}
END_TEST

/* A watcher on @admin's socket. */
static void watcher_make(struct client *client, bool admin)
{
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;

	client_connect(client, admin);
	hello.min_version = VSD_VERSION_MIN;
	hello.max_version = VSD_VERSION_MAX;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_HELLO, &hello.base, NULL, NULL), 0);
	ck_assert_int_eq(client_call(client, VSD__OP__OP_WATCH, NULL, NULL, NULL), 0);
}

/* The next thing that @client is told; "": nothing. */
static const char *told(struct client *client)
{
	static uint8_t frame[4096];
	static char text[128];
	struct frame_header header;
	struct fdlist fds = FDLIST_NULL;
	ProtobufCMessage *message;
	const Vsd__EvChange *change;
	size_t length = 0;

	fixture_turn();
	for (;;) {
		if (sock_recv(client->fd, frame, sizeof(frame), false, &fds, &length) < 0)
			return "";
		ck_assert_int_eq(frame_parse(frame, length, &header), 0);
		ck_assert_uint_eq(header.opcode, VSD__OP__EV_CHANGE);
		ck_assert_int_eq(
			frame_unpack_heap(&vsd__ev_change__descriptor, frame + sizeof(header), header.length, &message), 0);
		change = (const Vsd__EvChange *)message;
		/* Clients come and go, too. */
		if (change->item->type == VSD__OBJECT_TYPE__OBJ_DEVICE)
			break;
		protobuf_c_message_free_unpacked(message, NULL);
	}
	snprintf(text, sizeof(text), "%c %s %u %s", change->added ? '+' : '-', change->item->device, change->item->number,
		change->item->state);
	protobuf_c_message_free_unpacked(message, NULL);
	return text;
}

START_TEST(who_watches_is_told)
{
	struct client admin, granted;
	struct device_grant *grant = &fixture_server->config->grants[0];

	config_grants_drop(fixture_server->config);
	grant_default(grant, "test");
	fixture_server->config->n_grants = 1;
	watcher_make(&admin, true);
	watcher_make(&granted, false);
	watch_devices(fixture_server);
	ck_assert_str_eq(told(&admin), "+ rxe0 0 added");
	ck_assert_str_eq(told(&granted), "");
	grant->users.any = true;
	server_observe(fixture_server);
	happens(10, 1);
	ck_assert_str_eq(told(&admin), "- rxe0 1 port-error");
	ck_assert_str_eq(told(&granted), "- rxe0 1 port-error");
	/* Another one by the same name. */
	fixture_server->real.list[0].index++;
	watch_devices(fixture_server);
	ck_assert_str_eq(told(&admin), "- rxe0 0 removed");
	ck_assert_str_eq(told(&admin), "+ rxe0 0 added");
	client_close(&admin);
	client_close(&granted);
}
END_TEST

START_TEST(a_device_that_goes_is_let_go)
{
	server_observe(fixture_server);
	ck_assert_int_ge(observer()->fd, 0);
	fixture_server->real.n = 0;
	observers_update(fixture_server);
	ck_assert(list_empty(&fixture_server->observers));
	/* One that comes in its place is another one. */
	close(kernel.events);
	fixture_server->real.list[0].index++;
	fixture_server->real.n = 1;
	observers_update(fixture_server);
	ck_assert_uint_eq(kernel.contexts, 2);
	/* The kernel has closed its events. */
	close(kernel.events);
	kernel.events = -1;
	fixture_turn();
	ck_assert(list_empty(&fixture_server->observers));
}
END_TEST

START_TEST(it_can_be_switched_off)
{
	fixture_server->config->device_events = false;
	server_observe(fixture_server);
	ck_assert(list_empty(&fixture_server->observers));
	ck_assert_uint_eq(kernel.contexts, 0);
}
END_TEST

/* --- what a dead client leaves -------------------------------------------------------------------------------------------- */

static uint32_t put(unsigned type, uint32_t on)
{
	static uint32_t handle;

	if (kernel.n_destroyed == 0 && !kernel.objects[1].there)
		handle = 0;
	handle++;
	kernel.objects[handle].type = (uint16_t)type;
	kernel.objects[handle].on = on;
	kernel.objects[handle].there = true;
	return handle;
}

START_TEST(all_of_it_is_destroyed_in_order)
{
	uint32_t pd = put(UVERBS_OBJECT_PD, 0), cq = put(UVERBS_OBJECT_CQ, 0);
	uint32_t xrcd = put(UVERBS_OBJECT_XRCD, 0), srq = put(UVERBS_OBJECT_SRQ, xrcd);
	uint32_t mr = put(UVERBS_OBJECT_MR, pd);
	unsigned n;

	put(UVERBS_OBJECT_MW, mr);
	put(UVERBS_OBJECT_QP, cq);
	put(UVERBS_OBJECT_FLOW, put(UVERBS_OBJECT_QP, srq));
	put(UVERBS_OBJECT_AH, pd);
	put(UVERBS_OBJECT_RWQ_IND_TBL, put(UVERBS_OBJECT_WQ, cq));
	put(UVERBS_OBJECT_DM, 0);
	n = put(UVERBS_OBJECT_COUNTERS, 0);
	ck_assert_uint_eq(remains_destroy(0, RDMA_DRIVER_RXE), 0);
	ck_assert_uint_eq(kernel.n_destroyed, n);
}
END_TEST

START_TEST(so_are_many)
{
	uint32_t pd = put(UVERBS_OBJECT_PD, 0);

	for (unsigned i = 0; i < OBJECTS - 2; i++)
		put(UVERBS_OBJECT_MR, pd);
	ck_assert_uint_eq(remains_destroy(0, RDMA_DRIVER_RXE), 0);
	ck_assert_uint_eq(kernel.n_destroyed, OBJECTS - 1);
}
END_TEST

START_TEST(what_cannot_go_keeps_nothing_else)
{
	uint32_t cq = put(UVERBS_OBJECT_CQ, 0), qp = put(UVERBS_OBJECT_QP, cq);

	for (unsigned i = 0; i < 1500; i++)
		put(UVERBS_OBJECT_MR, 0);
	kernel.objects[qp].stuck = true;
	ck_assert_uint_eq(remains_destroy(0, RDMA_DRIVER_RXE), 2);
	ck_assert_uint_eq(kernel.n_destroyed, 1500);
}
END_TEST

START_TEST(a_kernel_that_knows_no_such_calls_is_left_alone)
{
	put(UVERBS_OBJECT_QP, 0);
	kernel.fail_object = UVERBS_OBJECT_DEVICE;
	kernel.fail_method = UVERBS_METHOD_INFO_HANDLES;
	ck_assert_uint_eq(remains_destroy(0, RDMA_DRIVER_RXE), 0);
	ck_assert_uint_eq(kernel.n_destroyed, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("observer");
	TCase *t = harness_tcase(suite, "observer");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_device_says_its_limits);
	tcase_add_loop_test(t, what_cannot_be_asked_is_not_known, 0, 3);
	tcase_add_test(t, events_are_counted_and_logged);
	tcase_add_test(t, a_bad_cable_does_not_fill_the_log);
	tcase_add_test(t, numbers_that_mean_nothing_are_nothing);
	tcase_add_test(t, who_watches_is_told);
	tcase_add_test(t, a_device_that_goes_is_let_go);
	tcase_add_test(t, it_can_be_switched_off);
	t = harness_tcase(suite, "remains");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, all_of_it_is_destroyed_in_order);
	tcase_add_test(t, so_are_many);
	tcase_add_test(t, what_cannot_go_keeps_nothing_else);
	tcase_add_test(t, a_kernel_that_knows_no_such_calls_is_left_alone);
	return harness_run(suite);
}
