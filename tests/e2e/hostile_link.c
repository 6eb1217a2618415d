/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One session with the daemon, with nothing in between that would stop a caller from breaking the protocol.
 */
#include "hostile.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Only a daemon that hangs is silent for so long. */
#define SILENCE_MS 30000

void link_open_at(struct link *link, const char *path)
{
	*link = (struct link){ .fd = sock_connect(path), .events = -1, .fds = FDLIST_NULL };
	if (link->fd < 0) {
		fprintf(stderr, "hostile: connect to %s: %s\n", path, strerror(-link->fd));
		exit(1);
	}
}

void link_open(struct link *link)
{
	link_open_at(link, setting.socket);
}

static void reply_drop(struct link *link)
{
	if (link->reply)
		protobuf_c_message_free_unpacked(link->reply, NULL);
	link->reply = NULL;
	fdlist_deinit(&link->fds);
	link->fds = (struct fdlist)FDLIST_NULL;
}

void link_close(struct link *link)
{
	reply_drop(link);
	if (link->fd >= 0)
		close(link->fd);
	if (link->events >= 0)
		close(link->events);
	link->fd = link->events = -1;
}

size_t frame_make(uint8_t *buf, size_t size, uint16_t opcode, uint32_t serial, const void *body, size_t n)
{
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = opcode,
		.serial = serial,
		.length = (uint32_t)n,
	};

	if (sizeof(header) + n > size)
		abort();
	memcpy(buf, &header, sizeof(header));
	if (n)
		memcpy(buf + sizeof(header), body, n);
	return sizeof(header) + n;
}

bool link_send(struct link *link, const void *bytes, size_t n)
{
	ssize_t r;

	count("frames");
	do
		r = send(link->fd, bytes, n, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r >= 0;
}

int link_answer(struct link *link, const ProtobufCMessageDescriptor *type)
{
	static uint8_t buf[sizeof(struct frame_header) + VSD_ANSWER_MAX];
	struct pollfd poll_fd = { .fd = link->fd, .events = POLLIN };
	size_t n;
	int r;

	reply_drop(link);
	for (;;) {
		if (poll(&poll_fd, 1, SILENCE_MS) == 0)
			return ANSWER_SILENT;
		r = sock_recv(link->fd, buf, sizeof(buf), true, &link->fds, &n);
		if (r < 0 || n == 0)
			return ANSWER_ENDED;
		if (frame_parse(buf, n, &link->header) < 0) {
			complain("the daemon sent what is no frame");
			return ANSWER_ENDED;
		}
		if (link->header.flags == FRAME_REPLY)
			break;
		count("events");
	}
	if (link->header.fds != link->fds.n)
		complain("an answer with %zu fds instead of %u", link->fds.n, link->header.fds);
	if (link->header.status == 0 && type &&
		frame_unpack_heap(type, buf + sizeof(link->header), link->header.length, &link->reply) < 0)
		complain("an answer that is no %s", type->name);
	return link->header.status;
}

int link_call(struct link *link, unsigned op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type)
{
	struct frame_header header = {
		.version = VSD_VERSION_MAX,
		.opcode = (uint16_t)op,
		.serial = ++link->serial,
	};
	uint8_t buf[VSD_REQUEST_MAX];
	int n = frame_pack(buf, sizeof(buf), &header, request);
	int r;

	if (n < 0)
		abort();
	if (!link_send(link, buf, (size_t)n))
		return ANSWER_ENDED;
	r = link_answer(link, type);
	if (r >= 0 && link->header.serial != link->serial)
		complain("an answer with serial %u instead of %u", link->header.serial, link->serial);
	return r;
}

void must_be(int answer, int expected, const char *format, ...)
{
	char what[256];
	va_list args;

	if (answer == expected)
		return;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	complain("%s: %s instead of %s", what,
		answer == ANSWER_SILENT ? "silence" : answer < 0 ? "the session ended" : strerror(answer),
		expected < 0 ? "the end of the session" : strerror(expected));
}

void link_must_end(struct link *link, const char *format, ...)
{
	int r = link_answer(link, NULL);
	char what[256];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	must_be(r, ANSWER_ENDED, "%s", what);
	link_close(link);
	link_ready(link);
}

void link_hello(struct link *link)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;

	request.min_version = 1;
	request.max_version = 1;
	must_be(link_call(link, VSD__OP__OP_HELLO, &request.base, &vsd__hello_reply__descriptor), 0, "HELLO");
}

void link_join(struct link *link)
{
	must_be(link_call(link, VSD__OP__OP_JOIN, NULL, &vsd__join_reply__descriptor), 0, "JOIN");
	link->events = fdlist_steal(&link->fds, 0);
}

void link_context(struct link *link)
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	int fd;

	request.device = (char *)(uintptr_t) "soft0";
	must_be(link_call(link, VSD__OP__OP_CONTEXT_OPEN, &request.base, &vsd__context_reply__descriptor), 0,
		"CONTEXT_OPEN");
	if (!link->reply)
		return;
	link->context = ((Vsd__ContextReply *)link->reply)->context;
	fd = fdlist_steal(&link->fds, 0);
	if (pread(fd, link->nonce, sizeof(link->nonce), 0) != sizeof(link->nonce))
		complain("a capability without a nonce");
	close(fd);
}

void link_ready(struct link *link)
{
	link_open(link);
	link_hello(link);
	link_join(link);
	link_context(link);
}

ProtobufCMessage *link_event(struct link *link, unsigned opcode, const ProtobufCMessageDescriptor *type, int ms)
{
	struct pollfd poll_fd = { .fd = link->events, .events = POLLIN };
	struct fdlist fds = FDLIST_NULL;
	struct frame_header header;
	ProtobufCMessage *event = NULL;
	uint8_t buf[1024];
	size_t n;

	while (!event && poll(&poll_fd, 1, ms) > 0) {
		if (sock_recv(link->events, buf, sizeof(buf), true, &fds, &n) < 0 || n == 0)
			break;
		fdlist_deinit(&fds);
		if (frame_parse(buf, n, &header) < 0 || header.flags != FRAME_EVENT)
			complain("the daemon sent an event that is none");
		else if (header.opcode == opcode)
			frame_unpack_heap(type, buf + sizeof(header), header.length, &event);
	}
	return event;
}
