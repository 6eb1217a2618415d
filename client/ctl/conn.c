/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The session that verbsctl has. It is no verbs client (no JOIN, no context), takes no fds, and trusts the daemon no
 * further than to be slow or wrong: an answer that does not come within CONN_PATIENCE, or is malformed, is an error.
 */
#include "client/ctl/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "proto/sock.h"

#define CONN_PATIENCE 30 /* seconds */

struct conn {
	int fd;
	uint16_t version;
	uint32_t serial;
	uint8_t buf[sizeof(struct frame_header) + VSD_ANSWER_MAX];
};

static int conn_recv(struct conn *conn, struct frame_header *header)
{
	struct fdlist fds = FDLIST_NULL;
	size_t length;
	int r = sock_recv(conn->fd, conn->buf, sizeof(conn->buf), true, &fds, &length);

	fdlist_deinit(&fds);
	if (r == -EAGAIN)
		return -ETIMEDOUT;
	if (r < 0 && r != -EMFILE)
		return r;
	if (length == 0)
		return -ENOTCONN;
	return frame_parse(conn->buf, length, header);
}

static int conn_unpack(struct conn *conn, const struct frame_header *header,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **msg)
{
	if (!type)
		return 0;
	return frame_unpack_heap(type, conn->buf + sizeof(*header), header->length, msg);
}

int conn_call(struct conn *conn, uint16_t op, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
	struct frame_header header = {
		.version = conn->version, .opcode = op, .serial = ++conn->serial
	};
	int r = frame_pack(conn->buf, VSD_REQUEST_MAX, &header, request);

	if (r < 0)
		return r;
	r = sock_send(conn->fd, conn->buf, (size_t)r, NULL, true);
	if (r < 0)
		return r == -EPIPE ? -ENOTCONN : r;
	do
		r = conn_recv(conn, &header);
	while (r == 0 && header.flags & FRAME_EVENT);
	if (r < 0)
		return r;
	if (!(header.flags & FRAME_REPLY) || header.serial != conn->serial ||
		header.opcode != op || header.status < 0)
		return -EBADMSG;
	if (header.status)
		return -header.status;
	return conn_unpack(conn, &header, type, reply);
}

static void conn_patience(struct conn *conn, time_t seconds)
{
	struct timeval limit = { .tv_sec = seconds };

	setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(conn->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int conn_event(struct conn *conn, uint16_t op, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **event)
{
	struct frame_header header;
	int r;

	conn_patience(conn, 0);
	do
		r = conn_recv(conn, &header);
	while (r == 0 && (!(header.flags & FRAME_EVENT) || header.opcode != op));
	return r < 0 ? r : conn_unpack(conn, &header, type, event);
}

static int conn_hello(struct conn *conn)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;

	request.min_version = VSD_VERSION_MIN;
	request.max_version = VSD_VERSION_MAX;
	request.features = VSD_FEATURES;

	int r = conn_call(
		conn, VSD__OP__OP_HELLO, &request.base, &vsd__hello_reply__descriptor, &reply);

	if (r < 0 || !reply)
		return r < 0 ? r : -EBADMSG;

	uint32_t version = ((Vsd__HelloReply *)reply)->version;

	conn_reply_free(reply);
	if (version < VSD_VERSION_MIN || version > VSD_VERSION_MAX)
		return -EPROTONOSUPPORT;
	conn->version = (uint16_t)version;
	return 0;
}

int conn_open(const char *path, struct conn **conn)
{
	struct conn *new = calloc(1, sizeof(*new));

	if (!new)
		return -ENOMEM;
	new->version = VSD_VERSION_MIN;
	new->fd = sock_connect(path);

	int r = new->fd;

	if (r >= 0) {
		conn_patience(new, CONN_PATIENCE);
		r = conn_hello(new);
	}
	if (r < 0) {
		conn_close(new);
		return r;
	}
	*conn = new;
	return 0;
}

struct conn *conn_close(struct conn *conn)
{
	if (conn && conn->fd >= 0)
		close(conn->fd);
	free(conn);
	return NULL;
}

void conn_reply_free(void *reply)
{
	if (reply)
		protobuf_c_message_free_unpacked(reply, NULL);
}
