/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server with the fake backend, and clients of it, all in one process and one thread: a call sends a frame over a
 * socketpair and turns the loop until the answer is there.
 */
#ifndef TESTS_UNIT_DAEMON_FIXTURE_H
#define TESTS_UNIT_DAEMON_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/server.h"
#include "proto/fdlist.h"
#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

struct client {
	int fd, events, page;
	uint64_t session;
	uint32_t serial, peer;
	uint32_t context, pd, cq, qpn, key;
	struct fdlist fds; /* of the last answer */
	bool gone;
};
#define CLIENT_NULL { .fd = -1, .events = -1, .page = -1, .fds = FDLIST_NULL }

/* An event as it came on the event socket. */
struct event_got {
	unsigned opcode; /* 0: none */
	ProtobufCMessage *msg;
	struct fdlist fds;
};

extern struct loop *fixture_loop;
extern struct server *fixture_server;

/* Checked fixture. Teardown, after the clients were closed, asserts that no session, and nothing of any, is left. */
void fixture_setup(void);
void fixture_teardown(void);
/* Ends the server, whatever it has; the backend has nothing then. */
void fixture_stop(void);
/* A few turns of the loop. */
void fixture_turn(void);

/* Connected only; @admin: on the admin socket. */
void client_connect(struct client *client, bool admin);
/* HELLO, JOIN. */
void client_join(struct client *client);
/* Joined, with a context on soft0, a PD, a CQ and leases. */
void client_open(struct client *client);
/* The same in another domain: on another socket. */
void client_open_stranger(struct client *client);
void client_close(struct client *client);

void client_send(struct client *client, const void *bytes, size_t length);
/* A frame with this opcode and body; the serial is the next one. */
void client_request(struct client *client, unsigned opcode, const ProtobufCMessage *request);
/* Waits for an answer: its status, or -1 when the session is gone. @reply may be NULL; free it. */
int client_answer(
	struct client *client, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply);
int client_call(struct client *client, unsigned opcode, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply);
/* True when the daemon has closed its end. */
bool client_is_gone(struct client *client);
/* The next event, opcode 0 when there is none. */
struct event_got client_event(struct client *client);
void event_release(struct event_got *event);

/* Creates an object: its handle, or -errno. */
int64_t client_object(struct client *client, unsigned opcode, const ProtobufCMessage *request);
int client_destroy(struct client *client, unsigned type, uint32_t handle);
int64_t client_qp(struct client *client, unsigned type, uint32_t qpn);
/* The same with room for so many WRs to send. */
int64_t client_qp_of(struct client *client, unsigned type, uint32_t qpn, uint32_t max_send_wr);
int client_qp_state(struct client *client, uint32_t qp, unsigned state);
/* INIT and RTR, naming @dest at LID @lid. */
int client_qp_connect(struct client *client, uint32_t qp, uint32_t dest, uint32_t lid);

#endif
