/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/native_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/session.h"
#include "tests/lib/harness.h"

char native_logged[512];

static void sink(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	snprintf(native_logged, sizeof(native_logged), "%s", text);
}

void native_start(struct client *a, struct client *b)
{
	kernel_use();
	fixture_setup();
	native_log();
	client_join(a);
	client_join(b);
}

void native_stop(struct client *a, struct client *b)
{
	client_close(a);
	client_close(b);
	fixture_teardown();
	ck_assert_uint_eq(kernel_registered(), 0);
}

struct session *client_session(const struct client *client)
{
	list_for_each (pos, &fixture_server->sessions) {
		struct session *session = container_of(pos, struct session, link);

		if (session->id == client->session)
			return session;
	}
	ck_abort_msg("no session");
	return NULL;
}

uint32_t native_give(const struct client *client, uint32_t driver)
{
	struct session *session = client_session(client);
	struct native *native = calloc(1, sizeof(*native));

	*native = (struct native){ .session = session,
		.id = ++session->last_native,
		.device = "dev0",
		.driver = driver,
		.mode = NATIVE_RDWR,
		.reported = true,
		.node = NODE_NULL,
		.gate = GATE_NULL,
		.late = TIMER_NULL,
		.fd = open("/dev/null", O_RDWR | O_CLOEXEC) };
	list_init(&native->regions);
	list_append(&session->natives, &native->link);
	list_append(&fixture_server->natives, &native->everyone);
	return native->id;
}

struct native_got native_ask(struct client *client, const Vsd__NativeRegionRequest *request)
{
	ProtobufCMessage *message = NULL;
	const Vsd__NativeRegionReply *reply;
	struct native_got got = { .fd = -1 };

	got.status = client_call(client, VSD__OP__OP_NATIVE_REGION, &request->base, &vsd__native_region_reply__descriptor,
		&message);
	if (got.status)
		return got;
	reply = (const Vsd__NativeRegionReply *)message;
	got = (struct native_got){ .handle = reply->handle,
		.region = reply->region,
		.flags = reply->flags,
		.iova = reply->iova,
		.size = reply->size,
		.created = reply->created,
		.registers = reply->registers,
		.fd = client->fds.fds[0] };
	protobuf_c_message_free_unpacked(message, NULL);
	return got;
}

struct native_got native_make(struct client *client, uint32_t native, const char *name, uint32_t access, int byte)
{
	Vsd__NativeRegionRequest request = VSD__NATIVE_REGION_REQUEST__INIT;
	struct native_got got;

	request.has_native = native != 0;
	request.native = native;
	request.access = access;
	request.name = (char *)(uintptr_t)name;
	request.flags = name ? REGION_CREATE : 0;
	request.has_size = true;
	request.size = NATIVE_SIZE;
	got = native_ask(client, &request);
	if (got.status == 0 && byte >= 0) {
		uint8_t *memory = mmap(NULL, NATIVE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, got.fd, 0);

		ck_assert_ptr_ne(memory, MAP_FAILED);
		memset(memory, byte, NATIVE_SIZE);
		munmap(memory, NATIVE_SIZE);
	}
	return got;
}

struct native_got native_import(struct client *client, uint32_t native, const char *name, uint32_t access)
{
	Vsd__NativeRegionRequest request = VSD__NATIVE_REGION_REQUEST__INIT;

	request.has_native = native != 0;
	request.native = native;
	request.access = access;
	request.name = (char *)(uintptr_t)name;
	return native_ask(client, &request);
}

int client_answer_later(struct client *client, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
	struct pollfd pollfd = { .fd = client->fd, .events = POLLIN };

	do
		loop_turn(fixture_loop, false);
	while (poll(&pollfd, 1, 1) == 0);
	return client_answer(client, type, reply);
}

int native_reg(struct client *client, uint32_t handle, uint32_t pd, uint32_t *rkey)
{
	Vsd__NativeRegRequest request = VSD__NATIVE_REG_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.handle = handle;
	request.pd = pd;
	client_request(client, VSD__OP__OP_NATIVE_REG, &request.base);
	r = client_answer_later(client, &vsd__native_reg_reply__descriptor, &message);
	if (r == 0) {
		if (rkey)
			*rkey = ((const Vsd__NativeRegReply *)message)->rkey;
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return r;
}

int native_release(struct client *client, uint32_t handle)
{
	Vsd__NativeReleaseRequest request = VSD__NATIVE_RELEASE_REQUEST__INIT;

	request.handle = handle;
	client_request(client, VSD__OP__OP_NATIVE_RELEASE, &request.base);
	return client_answer_later(client, NULL, NULL);
}

int native_end(struct client *client, uint32_t native)
{
	Vsd__NativeCloseRequest request = VSD__NATIVE_CLOSE_REQUEST__INIT;

	request.native = native;
	return client_call(client, VSD__OP__OP_NATIVE_CLOSE, &request.base, NULL, NULL);
}

void native_log(void)
{
	log_set_sink(sink);
	native_logged[0] = '\0';
}
