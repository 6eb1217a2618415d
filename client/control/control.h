/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's one connection to verbsd: hello, calls, leases, and the event socket. One per process, made on first
 * need, thread-safe. Errors are negative errnos: what the daemon answered, or -ENOTCONN when there is no daemon or the
 * session was lost (it is not made again by itself in this process once JOIN succeeded and was lost).
 */
#ifndef CLIENT_CONTROL_H
#define CLIENT_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/fdlist.h"
#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

/* Connects and says hello unless that is done. 0, or why not; one debug line (VERBSD_DEBUG) says the reason. */
int control_connect(void);
bool control_connected(void);
/* The session that was joined is there, as far as is known without asking, and its daemon offers @feature (VSD_FEATURE_*). */
bool control_offers(uint64_t feature);
/* Called when the event socket hung up: later calls fail with -ENOTCONN at once. */
void control_lost(void);
/* Called once the last context is closed, and at exit. */
void control_close(void);

/*
 * One request and its answer. @type NULL: the answer's body is empty. *@reply is the caller's, to be freed with
 * protobuf_c_message_free_unpacked(reply, NULL). @fds NULL: an answer with fds has them closed. -EMFILE with a reply:
 * the daemon did it, but the answer's fds were lost on this side; without one the daemon refused.
 */
int control_call(uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
		 ProtobufCMessage **reply, struct fdlist *fds);

/* control_call() for who holds the session's lock (conn.c). */
int control_exchange(uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
		     ProtobufCMessage **reply, struct fdlist *fds);
/* Where the daemon is looked for. */
const char *control_path(void);
/* Moves @fd to a number that no program counts on (512 and above, where the limit allows), close-on-exec. */
int control_fd_high(int fd);

/* JOIN. The caller owns the fds. */
struct control_process {
	int events, page, kick, map;
	uint32_t peer;
};
int control_join(struct control_process *process);

/* Calls with one handle as their answer, and destroy; all through control_call(). */
int control_create(uint16_t op, const ProtobufCMessage *request, uint32_t *handle);
/* Without a daemon this succeeds: the daemon's side of the object is gone already. */
int control_destroy(uint32_t context, Vsd__ObjectType type, uint32_t handle);
/* What stands on an object, in the daemon's words, to be freed; it logs them. NULL: it does not say. */
char *control_in_use(uint32_t context, Vsd__ObjectType type, uint32_t handle);

/*
 * Numbers leased from the daemon (QPN, or key index), reused first in, first out. lease_take() asks for more when the
 * lease is empty.
 */
struct lease;
struct lease *lease_new(uint32_t context, Vsd__LeaseKind kind);
struct lease *lease_free(struct lease *lease);
int lease_take(struct lease *lease, uint32_t *number);
void lease_put(struct lease *lease, uint32_t number);

/*
 * The event socket, used by the progress thread only. Requests that need no waiting (WIRE_RELEASE, PEER_RESOLVE,
 * SEGMENT_GET, REGION_GRANT, XRC_*) are sent on it too; their answers come back as events of kind CONTROL_ANSWER.
 */
enum control_event_kind {
	CONTROL_SEGMENT = VSD__OP__EV_SEGMENT,
	CONTROL_WIRE = VSD__OP__EV_WIRE,
	CONTROL_WIRE_GONE = VSD__OP__EV_WIRE_GONE,
	CONTROL_PEER_GONE = VSD__OP__EV_PEER_GONE,
	CONTROL_ASYNC = VSD__OP__EV_ASYNC,
	CONTROL_WIRE_CHANGED = VSD__OP__EV_WIRE_CHANGED,
	CONTROL_XRC_REFUSED = VSD__OP__EV_XRC_REFUSED,
	CONTROL_XRC_EVENT = VSD__OP__EV_XRC_EVENT,
	CONTROL_ANSWER = 0,
};

struct control_event {
	int kind; /* enum control_event_kind, or an EV_* this library does not know: ignore it */
	uint16_t op;	 /* of an answer */
	uint32_t serial; /* of an answer */
	int status;	 /* of an answer: 0 or a positive errno */
	ProtobufCMessage *message; /* of the event's or answer's type; NULL for an empty or unknown one */
	struct fdlist fds;	   /* -EMFILE below: some are missing */
	bool fds_lost;
};

/* Reads one event without waiting: 1 and *@event (free it with control_event_deinit()), 0 when there is none,
 * -ENOTCONN at the end. */
int control_event_read(int events, struct control_event *event);
void control_event_deinit(struct control_event *event);
/* Sends a request on the event socket without waiting. *@serial is the answer's. -EAGAIN: try again later. */
int control_event_send(int events, uint16_t op, const ProtobufCMessage *request, uint32_t *serial);

/* VERBSD_DEBUG: prints "verbsd: ..." on stderr when asked to; never otherwise. */
__attribute__((format(printf, 1, 2))) void control_debug(const char *format, ...);
/* The same unasked, once in the life of a process: why there is no device at all. */
__attribute__((format(printf, 1, 2))) void control_tell(const char *format, ...);

#endif
