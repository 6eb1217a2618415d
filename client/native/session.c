/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The session through which this process has its real devices. The daemon keeps a dup of each as long as this session is
 * open: so it is not the soft devices' session, which ends with the last soft context. It comes into being when the kernel
 * refuses a device, and lasts as long as the process.
 */
#include "client/native/native.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "client/control/conn.h"
#include "proto/sock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct conn_fd session = CONN_FD_NULL; /* under the lock, as is what follows */
static uint32_t serial;
static uint8_t answer[sizeof(struct frame_header) + VSD_ANSWER_MAX];
static _Atomic uint64_t generation;

uint64_t native_session(void)
{
	return generation;
}

static void forget(void)
{
	conn_fd_close(&session);
	generation++;
	pthread_mutex_init(&lock, NULL);
}

static const struct process_hooks hooks = { .child = forget, .forget = forget };

static void drop(const char *why)
{
	control_debug("session for real devices lost: %s", why);
	conn_fd_close(&session);
	generation++;
}

/* The answer to a request, its status in @header. 0, -EMFILE, or -ENOTCONN. */
static int exchange(uint16_t op, const ProtobufCMessage *request, struct frame_header *header, struct fdlist *fds)
{
	uint8_t frame[VSD_REQUEST_MAX];
	struct frame_header head = { .version = VSD_VERSION_MAX, .opcode = op, .serial = ++serial };
	int n = frame_pack(frame, sizeof(frame), &head, request), r;
	size_t length = 0;

	if (n < 0)
		return n;
	r = sock_send(session.fd, frame, (size_t)n, NULL, true);
	if (r == 0)
		r = sock_recv(session.fd, answer, sizeof(answer), true, fds, &length);
	if ((r < 0 && r != -EMFILE) || length == 0 || frame_parse(answer, length, header) < 0 ||
		!(header->flags & FRAME_REPLY) || header->serial != serial || header->opcode != op ||
		header->status < 0) {
		drop(r < 0 ? strerror(-r) : "an answer that is none");
		return -ENOTCONN;
	}
	return r;
}

static int hello(void)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	struct fdlist fds = FDLIST_NULL;
	struct frame_header header;
	int r;

	request.min_version = VSD_VERSION_MIN;
	request.max_version = VSD_VERSION_MAX;
	request.features = VSD_FEATURES;
	r = exchange(VSD__OP__OP_HELLO, &request.base, &header, &fds);
	fdlist_deinit(&fds);
	if (r == 0 && header.status)
		r = -header.status;
	if (r < 0)
		drop("hello was refused");
	return r;
}

static int need(void)
{
	int fd, r;

	if (session.fd >= 0) {
		if (conn_fd_ours(&session))
			return 0;
		drop("the program closed our socket");
	}
	fd = sock_connect(control_path());
	if (fd < 0) {
		control_debug("no daemon at %s: %s", control_path(), strerror(-fd));
		return -ENOTCONN;
	}
	fd = control_fd_high(fd);
	r = conn_fd_note(&session, fd);
	if (r < 0) {
		close(fd);
		return r;
	}
	return hello();
}

static int call(uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **reply, struct fdlist *fds)
{
	struct frame_header header = { .status = 0 };
	int r = need();

	if (r == 0)
		r = exchange(op, request, &header, fds);
	if (r < 0 && r != -EMFILE)
		return r;
	if (header.status || !type)
		return header.status ? -header.status : r;
	if (frame_unpack_heap(type, answer + sizeof(header), header.length, reply) < 0) {
		drop("an answer that is none");
		return -ENOTCONN;
	}
	return r;
}

int native_call(uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **reply, struct fdlist *fds)
{
	struct fdlist own = FDLIST_NULL;
	int r = process_enter(), cancel;

	if (reply)
		*reply = NULL;
	if (r < 0)
		return r;
	process_hooks_add(&hooks);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&lock);
	r = call(op, request, type, reply, fds ? fds : &own);
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
	fdlist_deinit(&own);
	return r;
}
