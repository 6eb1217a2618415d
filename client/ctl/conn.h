/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsctl's connection to the daemon: one blocking session, one call at a time. Functions return 0 or a negative
 * errno; of a call it is what the daemon answered.
 */
#ifndef CLIENT_CTL_CONN_H
#define CLIENT_CTL_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

struct conn;

/* Connects and says hello. */
int conn_open(const char *path, struct conn **conn);
struct conn *conn_close(struct conn *conn);

/*
 * One request (NULL: empty body) and its answer, of @type; @type NULL: the answer has no body. *@reply is to be freed
 * with conn_reply_free().
 */
int conn_call(struct conn *conn, uint16_t op, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply);

/* Waits for an event, for as long as it takes. Events of other kinds than @op are passed over. -ENOTCONN at the end. */
int conn_event(struct conn *conn, uint16_t op, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **event);

void conn_reply_free(void *reply);

#endif
