/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and their answers, one at a time for the whole process. Whatever the daemon sends that is not the answer
 * to what was asked ends the session; a refused request does not.
 */
#include "client/control/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/sock.h"

static uint8_t answer[sizeof(struct frame_header) + VSD_ANSWER_MAX]; /* under conn.lock */

static int request_send(uint16_t op, const ProtobufCMessage *request)
{
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header header = {
		.version = VSD_VERSION_MAX,
		.opcode = op,
		.serial = ++conn.serial,
	};
	int length = frame_pack(buf, sizeof(buf), &header, request);

	return length < 0 ? length : sock_send(conn.socket.fd, buf, (size_t)length, NULL, true);
}

/* The answer to the last request; events on this socket (a watch) are not for us. */
static int answer_receive(uint16_t op, struct frame_header *header, struct fdlist *fds)
{
	for (;;) {
		size_t length;
		int r = sock_recv(conn.socket.fd, answer, sizeof(answer), true, fds, &length);

		if (r < 0 && r != -EMFILE)
			return r;
		if (length == 0)
			return -ENOTCONN;
		if (frame_parse(answer, length, header) < 0)
			return -EPROTO;
		if (header->flags & FRAME_EVENT)
			continue;
		if (!(header->flags & FRAME_REPLY) || header->serial != conn.serial ||
			header->opcode != op || header->status < 0)
			return -EPROTO;
		return r;
	}
}

/*
 * The daemon has done what it answers: to have no memory for its answer would be the end of the session. So some is
 * set aside before the request is sent, more than a message takes, and given back when it is needed. Under conn.lock.
 */
#define RESERVE 16384

static void *reserve;

static int reserve_make(void)
{
	if (!reserve)
		reserve = malloc(RESERVE);
	return reserve ? 0 : -ENOMEM;
}

static int answer_unpack(const ProtobufCMessageDescriptor *type, const struct frame_header *header,
	ProtobufCMessage **reply)
{
	const uint8_t *body = answer + sizeof(*header);
	int r = frame_unpack_heap(type, body, header->length, reply);

	if (r == 0)
		return 0;
	free(reserve);
	reserve = NULL;
	return frame_unpack_heap(type, body, header->length, reply);
}

static int exchange(uint16_t op, const ProtobufCMessage *request, struct frame_header *header,
	struct fdlist *fds)
{
	int r = request_send(op, request);

	if (r == -EMSGSIZE)
		return r;
	if (r < 0) {
		conn_drop(strerror(-r));
		return -ENOTCONN;
	}
	r = answer_receive(op, header, fds);
	if (r < 0 && r != -EMFILE) {
		conn_drop(strerror(-r));
		return -ENOTCONN;
	}
	return r;
}

int control_exchange(uint16_t op, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct fdlist *fds)
{
	struct fdlist own = FDLIST_NULL, *list = fds ? fds : &own;
	struct frame_header header = { .status = 0 };
	int r = 0;

	if (type) {
		*reply = NULL;
		r = reserve_make();
	}
	if (r == 0)
		r = exchange(op, request, &header, list);
	if (r < 0 && r != -EMFILE)
		return r;
	if (list == &own)
		fdlist_deinit(list);
	/* With -EMFILE the daemon has done it, but fds are lost: the message tells the caller what to undo. */
	if (r == -EMFILE && !fds)
		r = 0;
	if (header.status || !type)
		return header.status ? -header.status : r;
	if (answer_unpack(type, &header, reply) < 0) {
		fdlist_deinit(list);
		conn_drop("an answer that is none");
		return -ENOTCONN;
	}
	return r;
}

int control_call(uint16_t op, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct fdlist *fds)
{
	int cancel;

	/* A thread that is cancelled in here would leave the lock held and an answer unread. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);

	int r = conn_enter();

	if (r == 0) {
		r = conn_need();
		if (r == 0)
			r = control_exchange(op, request, type, reply, fds);
		pthread_mutex_unlock(&conn.lock);
	}
	pthread_setcancelstate(cancel, NULL);
	return r;
}

int control_create(uint16_t op, const ProtobufCMessage *request, uint32_t *handle)
{
	ProtobufCMessage *reply = NULL;
	int r = control_call(op, request, &vsd__object_reply__descriptor, &reply, NULL);

	if (r < 0 || !reply)
		return r < 0 ? r : -EPROTO;
	*handle = ((Vsd__ObjectReply *)reply)->handle;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int control_destroy(uint32_t context, Vsd__ObjectType type, uint32_t handle)
{
	Vsd__DestroyRequest request = VSD__DESTROY_REQUEST__INIT;

	request.context = context;
	request.type = type;
	request.handle = handle;

	int r = control_call(VSD__OP__OP_DESTROY, &request.base, NULL, NULL, NULL);

	return r == -ENOTCONN ? 0 : r;
}

char *control_in_use(uint32_t context, Vsd__ObjectType type, uint32_t handle)
{
	Vsd__InUseRequest request = VSD__IN_USE_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	char *by = NULL;

	request.context = context;
	request.type = type;
	request.handle = handle;
	if (control_call(VSD__OP__OP_IN_USE, &request.base, &vsd__in_use_reply__descriptor, &reply,
		    NULL) == 0 && reply)
		by = strdup(((Vsd__InUseReply *)reply)->by);
	protobuf_c_message_free_unpacked(reply, NULL);
	return by;
}

int control_join(struct control_process *process)
{
	struct fdlist fds = FDLIST_NULL;
	ProtobufCMessage *reply = NULL;
	int r = control_call(
		VSD__OP__OP_JOIN, NULL, &vsd__join_reply__descriptor, &reply, &fds);

	if (r >= 0 && (!reply || fds.n != 4))
		r = -EPROTO;
	if (r < 0) {
		/* There is a reply when fds were lost on this side, none when the daemon had none to give. */
		protobuf_c_message_free_unpacked(reply, NULL);
		goto drop;
	}
	process->peer = ((Vsd__JoinReply *)reply)->peer;
	protobuf_c_message_free_unpacked(reply, NULL);
	process->events = control_fd_high(fdlist_steal(&fds, 0));
	process->page = control_fd_high(fdlist_steal(&fds, 1));
	process->kick = control_fd_high(fdlist_steal(&fds, 2));
	process->map = control_fd_high(fdlist_steal(&fds, 3));
	pthread_mutex_lock(&conn.lock);
	conn.joined = true;
	events_note(process->events);
	pthread_mutex_unlock(&conn.lock);
	return 0;

drop:
	/* Half a JOIN is of no use, and there is only one per session: the next try starts with a new one. */
	fdlist_deinit(&fds);
	pthread_mutex_lock(&conn.lock);
	conn_drop(r == -ENOTCONN ? NULL : "join failed");
	pthread_mutex_unlock(&conn.lock);
	return r;
}
