/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event socket: what the daemon says unasked, and the few requests that are made without waiting. Its number is
 * proven to be ours before each use, as that of the session's socket is.
 */
#include "client/control/conn.h"

#include <errno.h>
#include <string.h>

#include "proto/sock.h"

static struct {
	pthread_mutex_t lock;
	struct conn_fd socket;
	uint32_t serial;
	uint8_t buf[sizeof(struct frame_header) + VSD_ANSWER_MAX];
} events = { .lock = PTHREAD_MUTEX_INITIALIZER, .socket = CONN_FD_NULL };

void events_note(int fd)
{
	pthread_mutex_lock(&events.lock);
	if (fd < 0 || conn_fd_note(&events.socket, fd) < 0)
		events.socket.fd = -1;
	pthread_mutex_unlock(&events.lock);
}

void events_forget(void)
{
	pthread_mutex_init(&events.lock, NULL);
	events.socket.fd = -1;
}

static bool events_ours(int fd)
{
	return fd == events.socket.fd && conn_fd_ours(&events.socket);
}

static const struct {
	uint16_t op;
	bool answer;
	const ProtobufCMessageDescriptor *type;
} types[] = {
	{ VSD__OP__EV_SEGMENT, false, &vsd__ev_segment__descriptor },
	{ VSD__OP__EV_WIRE, false, &vsd__ev_wire__descriptor },
	{ VSD__OP__EV_WIRE_GONE, false, &vsd__ev_wire_gone__descriptor },
	{ VSD__OP__EV_PEER_GONE, false, &vsd__ev_peer_gone__descriptor },
	{ VSD__OP__EV_ASYNC, false, &vsd__ev_async__descriptor },
	{ VSD__OP__EV_WIRE_CHANGED, false, &vsd__ev_wire_changed__descriptor },
	{ VSD__OP__EV_XRC_REFUSED, false, &vsd__ev_xrc_refused__descriptor },
	{ VSD__OP__EV_XRC_EVENT, false, &vsd__ev_xrc_event__descriptor },
	{ VSD__OP__OP_PEER_RESOLVE, true, &vsd__peer_resolve_reply__descriptor },
	{ VSD__OP__OP_MCAST_RESOLVE, true, &vsd__mcast_resolve_reply__descriptor },
	{ VSD__OP__OP_REGION_GRANT, true, &vsd__region_grant_reply__descriptor },
};

static const ProtobufCMessageDescriptor *type_of(const struct frame_header *header)
{
	bool is_answer = header->flags & FRAME_REPLY;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].op == header->opcode && types[i].answer == is_answer)
			return types[i].type;
	return NULL;
}

static int event_parse(const uint8_t *buf, size_t length, struct control_event *event)
{
	struct frame_header header;

	if (frame_parse(buf, length, &header) < 0 || !(header.flags & (FRAME_REPLY | FRAME_EVENT)))
		return -ENOTCONN;
	event->kind = header.flags & FRAME_REPLY ? CONTROL_ANSWER : header.opcode;
	event->op = header.opcode;
	event->serial = header.serial;
	event->status = header.flags & FRAME_REPLY ? header.status : 0;

	const ProtobufCMessageDescriptor *type = type_of(&header);

	if (type && event->status == 0 &&
		frame_unpack_heap(type, buf + sizeof(header), header.length, &event->message) < 0)
		return -ENOTCONN;
	return 1;
}

int control_event_read(int fd, struct control_event *event)
{
	struct control_event in = { .fds = FDLIST_NULL };
	size_t length;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&events.lock);

	int r = events_ours(fd) ? 0 : -ENOTCONN;

	if (r == 0)
		r = sock_recv(fd, events.buf, sizeof(events.buf), false, &in.fds, &length);
	if (r == -EMFILE) {
		in.fds_lost = true;
		r = 0;
	}
	if (r == 0)
		r = length == 0 ? -ENOTCONN : event_parse(events.buf, length, &in);
	pthread_mutex_unlock(&events.lock);
	pthread_setcancelstate(cancel, NULL);
	if (r == 1) {
		*event = in;
		return 1;
	}
	fdlist_deinit(&in.fds);
	return r == -EAGAIN ? 0 : -ENOTCONN;
}

void control_event_deinit(struct control_event *event)
{
	if (event->message)
		protobuf_c_message_free_unpacked(event->message, NULL);
	event->message = NULL;
	fdlist_deinit(&event->fds);
}

int control_event_send(int fd, uint16_t op, const ProtobufCMessage *request, uint32_t *serial)
{
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header header = { .version = VSD_VERSION_MAX, .opcode = op };
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&events.lock);
	header.serial = events.serial + 1;

	int r = frame_pack(buf, sizeof(buf), &header, request);

	if (r > 0)
		r = events_ours(fd) ? sock_send(fd, buf, (size_t)r, NULL, false) : -ENOTCONN;
	if (r == 0) {
		events.serial++;
		if (serial)
			*serial = header.serial;
	}
	pthread_mutex_unlock(&events.lock);
	pthread_setcancelstate(cancel, NULL);
	return r == 0 || r == -EAGAIN || r == -EMSGSIZE ? r : -ENOTCONN;
}
