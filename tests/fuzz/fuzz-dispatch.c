/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whatever two clients may send to a server with the fake backend. The input is a list of records: which client, an
 * opcode, a length, a body; the header is made for it. Opcode 0xff sends the body as a whole frame, 0xfe makes the
 * backend's next call but (first byte of the body) fail, 0xfd kills the client, 0xfc sends the body on its event socket,
 * 0xfb sends the body behind its first byte, an opcode, with the nonce of a capability that there is in its last 32 bytes.
 * When all clients are gone, nothing may be left but the regions that were asked to stay.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "daemon/backend.h"
#include "daemon/context.h"
#include "daemon/dispatch.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/fdlist.h"
#include "proto/limits.h"
#include "proto/sock.h"

#define CLIENTS 2
#define RECORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_client {
	struct session *session; /* NULL: none */
	uint64_t id;
	int fd, events;
};

static struct loop *loop;
static struct server *server;
static struct listener listener;

static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

static void sink_nothing(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	(void)text;
}

static void set_up(void)
{
	log_set_sink(sink_nothing);
	require(loop_new(&loop) == 0 &&
			server_new(loop, config_new(), &backend_fake, &server) == 0,
		"no server");
	server->private_daemon = true;
	listener = (struct listener){ .server = server, .fd = -1 };
	/* A real device that everybody may have and nobody can open. */
	server->real.list[0] = (struct real_device){ .name = "real0", .node = "uverbs0", .rdev = 1, .n_ports = 1 };
	server->real.n = 1;
	server->config->grants[0].users.any = true;
	strcpy(server->nodes, "/nonexistent");
}

/* Reads what the daemon sent, and keeps the event socket of JOIN's answer. */
static void drain(struct fuzz_client *client)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	struct frame_header header;
	size_t length;

	for (;;) {
		struct fdlist fds = FDLIST_NULL;

		length = 0;
		if (sock_recv(client->fd, frame, sizeof(frame), false, &fds, &length) < 0 ||
			length == 0) {
			fdlist_deinit(&fds);
			break;
		}
		require(frame_parse(frame, length, &header) == 0, "the daemon's frame is none");
		require(header.fds == fds.n, "the daemon counts its fds wrong");
		if (header.opcode == VSD__OP__OP_JOIN && header.status == 0 && client->events < 0)
			client->events = fdlist_steal(&fds, 0);
		fdlist_deinit(&fds);
	}
	while (client->events >= 0) {
		struct fdlist fds = FDLIST_NULL;
		int r;

		length = 0;
		r = sock_recv(client->events, frame, sizeof(frame), false, &fds, &length);
		fdlist_deinit(&fds);
		if (r < 0 || length == 0)
			break;
	}
}

static void client_new(struct fuzz_client *client)
{
	int pair[2];

	require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
	client->fd = pair[1];
	client->events = -1;
	require(server_adopt(server, &listener, pair[0], &client->session) == 0, "adopt");
	client->id = client->session->id;
}

static void client_kill(struct fuzz_client *client)
{
	if (client->session && server_session(server, client->id))
		session_lost(client->session, GONE_DEAD);
	client->session = NULL;
	close(client->fd);
	if (client->events >= 0)
		close(client->events);
	for (unsigned i = 0; i < 4; i++)
		loop_turn(loop, false);
}

static void feed(struct fuzz_client *client, unsigned opcode, const uint8_t *body, size_t length)
{
	uint8_t frame[VSD_REQUEST_MAX];
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = (uint16_t)opcode,
		.serial = 1,
		.length = (uint32_t)length,
	};

	if (opcode == 0xff) {
		if (dispatch(client->session, body, length) < 0)
			session_lost(client->session, GONE_DEAD);
		return;
	}
	memcpy(frame, &header, sizeof(header));
	memcpy(frame + sizeof(header), body, length);
	if (dispatch(client->session, frame, sizeof(header) + length) < 0)
		session_lost(client->session, GONE_DEAD);
}

/* The newest capability of the kind that @opcode takes. */
static const uint8_t *newest_nonce(unsigned opcode)
{
	const struct list *contexts = &server->contexts,
			  *capabilities = &server->regions.capabilities;

	if (opcode == VSD__OP__OP_CONTEXT_ATTACH && !list_empty(contexts))
		return container_of(contexts->prev, struct context, link)->nonce;
	if (opcode == VSD__OP__OP_REGION_IMPORT && !list_empty(capabilities))
		return container_of(capabilities->prev, struct region_capability, link)->nonce;
	return NULL;
}

static void feed_nonce(struct fuzz_client *client, const uint8_t *body, size_t length)
{
	const uint8_t *nonce = length > VSD_NONCE_SIZE ? newest_nonce(body[0]) : NULL;
	uint8_t filled[VSD_REQUEST_MAX];

	if (!nonce)
		return;
	memcpy(filled, body, length - VSD_NONCE_SIZE);
	memcpy(filled + length - VSD_NONCE_SIZE, nonce, VSD_NONCE_SIZE);
	feed(client, filled[0], filled + 1, length - 1);
}

/* The first byte is the opcode. */
static void feed_events(struct fuzz_client *client, const uint8_t *body, size_t length)
{
	uint8_t frame[VSD_REQUEST_MAX];
	struct frame_header header = {
		.magic = FRAME_MAGIC, .version = VSD_VERSION_MAX, .serial = 1
	};

	if (client->events < 0 || length == 0)
		return;
	header.opcode = body[0];
	header.length = (uint32_t)length - 1;
	memcpy(frame, &header, sizeof(header));
	memcpy(frame + sizeof(header), body + 1, length - 1);
	(void)sock_send(client->events, frame, sizeof(header) + length - 1, NULL, false);
	loop_turn(loop, false);
}

static void record(struct fuzz_client *client, unsigned opcode, const uint8_t *body, size_t length)
{
	if (!client->session)
		client_new(client);
	if (opcode == 0xfe) {
		backend_fake_fail(length ? body[0] : 0, ENXIO);
		return;
	}
	if (opcode == 0xfd) {
		client_kill(client);
		return;
	}
	if (opcode == 0xfc)
		feed_events(client, body, length);
	else if (opcode == 0xfb)
		feed_nonce(client, body, length);
	else
		feed(client, opcode, body, length);
	drain(client);
	loop_turn(loop, false);
	if (!server_session(server, client->id))
		client_kill(client);
}

static void pool_renew(struct lease_pool *pool)
{
	memset(pool->freed, 0, pool->fresh * sizeof(*pool->freed));
	pool->fresh = 1;
	pool->stamp = 0;
}

/* As just started: each input meets the same numbers. A server for each would take most of the time. */
static void renew(void)
{
	regions_deinit(&server->regions);
	pool_renew(&server->qpns);
	pool_renew(&server->keys);
	regions_init(&server->regions, &server->keys);
	handle_table_deinit(&server->pd_numbers);
	handle_table_deinit(&server->processes);
	handle_table_deinit(&server->segments);
	server->last_session = 0;
	server->refused = 0;
}

/* Those that are there are to be, and nobody has them. */
static void check_regions(void)
{
	list_for_each (pos, &server->regions.all) {
		const struct region *region = container_of(pos, struct region, link);

		require(region->persistent && region->users == 0 && region->name[0],
			"regions are left");
	}
	require(!server->regions.mrs, "MRs on regions are left");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_client clients[CLIENTS] = { { .session = NULL } };
	size_t at = 0;

	if (!server)
		set_up();
	for (unsigned i = 0; i < RECORDS && at + 4 <= size; i++) {
		struct fuzz_client *client = &clients[data[at] % CLIENTS];
		unsigned opcode = data[at + 1];
		size_t length = data[at + 2] | (size_t)(data[at + 3] & 7) << 8;

		at += 4;
		if (length > size - at)
			length = size - at;
		record(client, opcode, data + at, length);
		at += length;
	}
	backend_fake_fail(0, 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		if (clients[i].session)
			client_kill(&clients[i]);
	}
	/* What was open goes in slices. */
	for (unsigned i = 0; i < 8; i++)
		loop_turn(loop, false);
	require(server->n_sessions == 0 && server->n_contexts == 0,
		"sessions or contexts are left");
	require(server->n_objects == 0 && backend_fake_objects() == 0, "objects are left");
	require(server->n_wires == 0 && server->segments.count == 0 && !server->pairs,
		"wires are left");
	require(server->processes.count == 0, "processes are left");
	check_regions();
	renew();
	require(list_empty(&server->domains.domains), "charges are left");
	return 0;
}
