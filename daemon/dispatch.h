/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From bytes to methods: one table of opcodes, and the generic code around the handlers.
 */
#ifndef DAEMON_DISPATCH_H
#define DAEMON_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/fdlist.h"
#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

struct attachment;
struct later;
struct method;
struct object;
struct server;
struct session;

/* One request while it is handled. */
struct call {
	struct server *server;
	struct session *session;
	const struct frame_header *header;
	const struct method *method;
	const ProtobufCMessage *request; /* of the method's type */
	const ProtobufCMessage *reply;   /* NULL: an empty body */
	struct fdlist fds;               /* of the answer */
	bool end;                        /* end the session after the answer */
	bool on_events;                  /* it came on the event socket and is answered there */
};

/* 0 and the answer in @call; a negative errno (with refuse() saying why); or what call_later() of later.h returned. */
typedef int op_fn(struct call *call);

enum {
	METHOD_ADMIN = 1, /* only on the admin socket */
	METHOD_BOTH = 2,  /* on both sockets; without either: only on the other one */
	METHOD_EVENTS =
		4, /* on the event socket as well: what the client's progress thread asks */
	METHOD_FEWER_FDS = 8, /* an answer may have fewer fds than the table says */
};

struct method {
	const char *name;
	const ProtobufCMessageDescriptor *request;
	unsigned states; /* of the session, ORed */
	unsigned where;
	unsigned fds; /* how many its answer has */
	op_fn *fn;
};

/* NULL: no such request. */
const struct method *method_get(unsigned opcode);

/* Handles a frame. 0, or a negative errno: the session must end. */
int dispatch(struct session *session, const void *frame, size_t length);
/* The same for a frame that came on the event socket of the session's process. */
int dispatch_on_events(struct session *session, const void *frame, size_t length);
/* What was asked for before is over: @later's finish() is its handler. @skipped: it never began. */
void dispatch_later(struct session *session, struct later *later, bool skipped);
/* Logs a malformed frame and counts it. Returns -EBADMSG. */
int dispatch_refuse(struct session *session, const char *why);

/* ---- for handlers ---- */

/* The attachment that a request names. NULL: refused already. */
struct attachment *call_attachment(const struct call *call, uint32_t context);
/* Memory for the answer, zeroed. NULL: none left. */
void *call_alloc(const struct call *call, size_t size);
/* Answers with an object's handle, or passes @r on. By address: the call that makes *@object is often @r's argument. */
int call_object(struct call *call, int r, struct object *const *object);

#endif
