/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See the header. Nothing here waits: what is not there after a few turns of the loop does not come.
 */
#include "tests/unit/daemon_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "daemon/backend.h"
#include "daemon/log.h"
#include "daemon/session.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"

#define TURNS 50

struct loop *fixture_loop;
struct server *fixture_server;
enum { ORDINARY, ADMIN, OTHER, LISTENERS };
static struct listener listeners[LISTENERS];

static void sink_nothing(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	(void)text;
}

void fixture_setup(void)
{
	log_set_sink(sink_nothing);
	ck_assert_int_eq(loop_new(&fixture_loop), 0);
	ck_assert_int_eq(
		server_new(fixture_loop, config_new(), &backend_fake, &fixture_server), 0);
	fixture_server->private_daemon = true;
	for (unsigned i = 0; i < LISTENERS; i++)
		listeners[i] = (struct listener){
			.server = fixture_server, .fd = -1, .admin = i == ADMIN
		};
}

/* Nothing of any client is left, of whatever kind. */
static void expect_empty(void)
{
	struct server *server = fixture_server;

	ck_assert_uint_eq(server->n_sessions, 0);
	ck_assert_uint_eq(server->n_contexts, 0);
	ck_assert_uint_eq(server->n_objects, 0);
	ck_assert_uint_eq(server->n_wires, 0);
	ck_assert_uint_eq(server->segments.count, 0);
	ck_assert_uint_eq(server->regions.count, 0);
	ck_assert_uint_eq(server->regions.bytes, 0);
	ck_assert_ptr_null(server->regions.heaps);
	ck_assert_ptr_null(server->regions.mrs);
	ck_assert_uint_eq(server->xrcd_numbers.count, 0);
	ck_assert_ptr_null(server->xrc_domains);
	ck_assert(list_empty(&server->domains.domains));
	ck_assert(list_empty(&server->domains.users));
}

void fixture_stop(void)
{
	server_free(fixture_server);
	loop_free(fixture_loop);
	ck_assert_uint_eq(backend_fake_objects(), 0);
}

void fixture_teardown(void)
{
	expect_empty();
	fixture_stop();
}

void fixture_turn(void)
{
	for (unsigned i = 0; i < TURNS; i++)
		loop_turn(fixture_loop, false);
}

static void connect_at(struct client *client, struct listener *listener)
{
	struct session *session;
	int pair[2];

	*client = (struct client)CLIENT_NULL;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	client->fd = pair[1];
	ck_assert_int_eq(server_adopt(fixture_server, listener, pair[0], &session), 0);
	client->session = session->id;
}

void client_connect(struct client *client, bool admin)
{
	connect_at(client, &listeners[admin ? ADMIN : ORDINARY]);
}

void client_close(struct client *client)
{
	fdlist_deinit(&client->fds);
	if (client->fd >= 0)
		close(client->fd);
	if (client->events >= 0)
		close(client->events);
	if (client->page >= 0)
		close(client->page);
	client->fd = -1;
	client->events = -1;
	client->page = -1;
	fixture_turn();
}

void client_send(struct client *client, const void *bytes, size_t length)
{
	int r = sock_send(client->fd, bytes, length, NULL, false);

	client->gone = r == -EPIPE || r == -ECONNRESET;
	ck_assert(r == 0 || client->gone);
}

void client_request(struct client *client, unsigned opcode, const ProtobufCMessage *request)
{
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = (uint16_t)opcode,
		.serial = ++client->serial,
	};
	uint8_t frame[VSD_REQUEST_MAX];
	int n = frame_pack(frame, sizeof(frame), &header, request);

	ck_assert_int_gt(n, 0);
	client_send(client, frame, (size_t)n);
}

int client_answer(
	struct client *client, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	struct frame_header header;
	size_t length = 0;
	int r = -EAGAIN;

	fdlist_deinit(&client->fds);
	client->fds = (struct fdlist)FDLIST_NULL;
	for (unsigned i = 0; i < TURNS && r == -EAGAIN; i++) {
		loop_turn(fixture_loop, false);
		r = sock_recv(client->fd, frame, sizeof(frame), false, &client->fds, &length);
	}
	if (r == -ECONNRESET || (r == 0 && length == 0)) {
		client->gone = true;
		return -1;
	}
	ck_assert_msg(r == 0, "no answer: %s", strerror(-r));
	ck_assert_int_eq(frame_parse(frame, length, &header), 0);
	ck_assert_uint_eq(header.serial, client->serial);
	ck_assert_uint_eq(header.flags, FRAME_REPLY);
	ck_assert_uint_eq(header.fds, client->fds.n);
	if (header.status == 0 && type)
		ck_assert_int_eq(
			frame_unpack_heap(type, frame + sizeof(header), header.length, reply), 0);
	return header.status;
}

int client_call(struct client *client, unsigned opcode, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
	client_request(client, opcode, request);
	return client->gone ? -1 : client_answer(client, type, reply);
}

bool client_is_gone(struct client *client)
{
	char byte;

	fixture_turn();
	return recv(client->fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

static const ProtobufCMessageDescriptor *event_type(unsigned opcode)
{
	switch (opcode) {
	case VSD__OP__EV_SEGMENT:
		return &vsd__ev_segment__descriptor;
	case VSD__OP__EV_WIRE:
		return &vsd__ev_wire__descriptor;
	case VSD__OP__EV_WIRE_GONE:
		return &vsd__ev_wire_gone__descriptor;
	case VSD__OP__EV_PEER_GONE:
		return &vsd__ev_peer_gone__descriptor;
	case VSD__OP__EV_ASYNC:
		return &vsd__ev_async__descriptor;
	case VSD__OP__EV_WIRE_CHANGED:
		return &vsd__ev_wire_changed__descriptor;
	case VSD__OP__EV_XRC_REFUSED:
		return &vsd__ev_xrc_refused__descriptor;
	case VSD__OP__EV_XRC_EVENT:
		return &vsd__ev_xrc_event__descriptor;
	default:
		ck_abort_msg("event %u", opcode);
	}
}

struct event_got client_event(struct client *client)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	struct event_got event = { .fds = FDLIST_NULL };
	struct frame_header header;
	size_t length = 0;

	fixture_turn();
	if (sock_recv(client->events, frame, sizeof(frame), false, &event.fds, &length) < 0 ||
		length == 0)
		return event;
	ck_assert_int_eq(frame_parse(frame, length, &header), 0);
	ck_assert_uint_eq(header.flags, FRAME_EVENT);
	ck_assert_uint_eq(header.fds, event.fds.n);
	event.opcode = header.opcode;
	ck_assert_int_eq(frame_unpack_heap(event_type(header.opcode), frame + sizeof(header),
				 header.length, &event.msg),
		0);
	return event;
}

void event_release(struct event_got *event)
{
	fdlist_deinit(&event->fds);
	if (event->msg)
		protobuf_c_message_free_unpacked(event->msg, NULL);
	*event = (struct event_got){ .fds = FDLIST_NULL };
}

static void hello(struct client *client)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;

	request.min_version = VSD_VERSION_MIN;
	request.max_version = VSD_VERSION_MAX;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_HELLO, &request.base, NULL, NULL), 0);
}

static void join_at(struct client *client, struct listener *listener)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;
	ProtobufCMessage *reply;

	connect_at(client, listener);
	hello(client);
	ck_assert_int_eq(client_call(client, VSD__OP__OP_JOIN, &empty.base,
				 &vsd__join_reply__descriptor, &reply),
		0);
	client->peer = ((Vsd__JoinReply *)reply)->peer;
	protobuf_c_message_free_unpacked(reply, NULL);
	ck_assert_uint_eq(client->fds.n, 4);
	client->events = fdlist_steal(&client->fds, 0);
	client->page = fdlist_steal(&client->fds, 1);
}

void client_join(struct client *client)
{
	join_at(client, &listeners[ORDINARY]);
}

static uint32_t lease(struct client *client, unsigned kind)
{
	Vsd__LeaseRequest request = VSD__LEASE_REQUEST__INIT;
	ProtobufCMessage *reply;
	uint32_t first;

	request.context = client->context;
	request.kind = (Vsd__LeaseKind)kind;
	request.count = 1;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_LEASE, &request.base,
				 &vsd__lease_reply__descriptor, &reply),
		0);
	first = ((Vsd__LeaseReply *)reply)->first;
	protobuf_c_message_free_unpacked(reply, NULL);
	return first;
}

int64_t client_object(struct client *client, unsigned opcode, const ProtobufCMessage *request)
{
	ProtobufCMessage *reply;
	int status = client_call(client, opcode, request, &vsd__object_reply__descriptor, &reply);
	int64_t handle;

	if (status != 0)
		return -status;
	handle = ((Vsd__ObjectReply *)reply)->handle;
	protobuf_c_message_free_unpacked(reply, NULL);
	return handle;
}

static void open_at(struct client *client, struct listener *listener)
{
	Vsd__ContextOpenRequest open = VSD__CONTEXT_OPEN_REQUEST__INIT;
	Vsd__PdAllocRequest pd = VSD__PD_ALLOC_REQUEST__INIT;
	Vsd__CqCreateRequest cq = VSD__CQ_CREATE_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	char name[] = "soft0";

	join_at(client, listener);
	open.device = name;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_CONTEXT_OPEN, &open.base,
				 &vsd__context_reply__descriptor, &reply),
		0);
	client->context = ((Vsd__ContextReply *)reply)->context;
	protobuf_c_message_free_unpacked(reply, NULL);
	pd.context = client->context;
	client->pd = (uint32_t)client_object(client, VSD__OP__OP_PD_ALLOC, &pd.base);
	cq.context = client->context;
	cq.cqe = 64;
	client->cq = (uint32_t)client_object(client, VSD__OP__OP_CQ_CREATE, &cq.base);
	client->qpn = lease(client, VSD__LEASE_KIND__LEASE_QPN);
	client->key = lease(client, VSD__LEASE_KIND__LEASE_KEY) << 8;
}

void client_open(struct client *client)
{
	open_at(client, &listeners[ORDINARY]);
}

void client_open_stranger(struct client *client)
{
	open_at(client, &listeners[OTHER]);
}

int client_destroy(struct client *client, unsigned type, uint32_t handle)
{
	Vsd__DestroyRequest request = VSD__DESTROY_REQUEST__INIT;

	request.context = client->context;
	request.type = (Vsd__ObjectType)type;
	request.handle = handle;
	return client_call(client, VSD__OP__OP_DESTROY, &request.base, NULL, NULL);
}

int64_t client_qp(struct client *client, unsigned type, uint32_t qpn)
{
	return client_qp_of(client, type, qpn, 16);
}

int64_t client_qp_of(struct client *client, unsigned type, uint32_t qpn, uint32_t max_send_wr)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.type = type;
	request.qpn = qpn;
	request.has_send_cq = 1;
	request.send_cq = client->cq;
	request.has_recv_cq = 1;
	request.recv_cq = client->cq;
	request.max_send_wr = max_send_wr;
	request.max_recv_wr = 16;
	return client_object(client, VSD__OP__OP_QP_CREATE, &request.base);
}

int client_qp_state(struct client *client, uint32_t qp, unsigned state)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;

	request.context = client->context;
	request.handle = qp;
	request.state = state;
	return client_call(client, VSD__OP__OP_QP_MODIFY, &request.base, NULL, NULL);
}

int client_qp_connect(struct client *client, uint32_t qp, uint32_t dest, uint32_t lid)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;
	int status = client_qp_state(client, qp, 1);

	if (status != 0)
		return status;
	request.context = client->context;
	request.handle = qp;
	request.state = 2;
	request.has_port = 1;
	request.port = 1;
	request.has_dest_qpn = 1;
	request.dest_qpn = dest;
	request.has_dlid = 1;
	request.dlid = lid;
	request.has_rq_psn = 1;
	request.rq_psn = dest + 1000;
	return client_call(client, VSD__OP__OP_QP_MODIFY, &request.base, NULL, NULL);
}
