/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of the protocol is tested against answers that a daemon never gives, so tests bring their own. */
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/sock.h"

bool fake_reply(int fd, const struct frame_header *header, int status,
	const ProtobufCMessage *message, const struct fdlist *fds)
{
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header reply = {
		.version = VSD_VERSION_MAX,
		.opcode = header->opcode,
		.serial = header->serial,
		.fds = fds ? (uint16_t)fds->n : 0,
		.flags = FRAME_REPLY,
		.status = status,
	};
	int n = frame_pack(buf, sizeof(buf), &reply, message);

	return n > 0 && sock_send(fd, buf, (size_t)n, fds, true) == 0;
}

bool fake_event(int fd, uint16_t op, const ProtobufCMessage *message)
{
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header event = {
		.version = VSD_VERSION_MAX,
		.opcode = op,
		.flags = FRAME_EVENT,
	};
	int n = frame_pack(buf, sizeof(buf), &event, message);

	return n > 0 && sock_send(fd, buf, (size_t)n, NULL, true) == 0;
}

static bool hello(struct fake_daemon *fake, int fd, const struct frame_header *header)
{
	Vsd__HelloReply reply = VSD__HELLO_REPLY__INIT;

	reply.version = VSD_VERSION_MAX;
	reply.daemon_version = (char[]){ "fake" };
	reply.max_frame = VSD_REQUEST_MAX;
	reply.features = fake->features;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static void session_serve(struct fake_daemon *fake, int fd)
{
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header header;
	size_t length;

	while (sock_recv(fd, buf, sizeof(buf), true, NULL, &length) == 0 && length &&
		frame_parse(buf, length, &header) == 0) {
		fake->requests++;

		bool more = header.opcode == VSD__OP__OP_HELLO
				    ? hello(fake, fd, &header)
				    : fake->handle(fake, fd, &header, buf + sizeof(header));

		if (!more)
			break;
	}
}

static void *fake_main(void *arg)
{
	struct fake_daemon *fake = arg;

	for (;;) {
		int fd = accept(fake->listener, NULL, NULL);

		if (fd < 0)
			return NULL;
		fake->sessions++;
		fake->session = fd;
		session_serve(fake, fd);
		fake->session = -1;
		close(fd);
	}
}

void fake_start(struct fake_daemon *fake, bool (*handle)(struct fake_daemon *fake, int fd,
						  const struct frame_header *header, const void *body))
{
	memset(fake, 0, sizeof(*fake));
	fake->handle = handle;
	fake->session = -1;
	snprintf(fake->dir, sizeof(fake->dir), "/tmp/verbsd-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fake->dir));
	snprintf(fake->path, sizeof(fake->path), "%s/sock", fake->dir);
	fake->listener = sock_listen(fake->path, 0600, 8);
	ck_assert_int_ge(fake->listener, 0);
	ck_assert_int_eq(setenv(VSD_SOCKET_ENV, fake->path, 1), 0);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, fake_main, fake), 0);
}

void fake_stop(struct fake_daemon *fake)
{
	int fd = fake->session;

	shutdown(fake->listener, SHUT_RDWR);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	pthread_join(fake->thread, NULL);
	close(fake->listener);
	unlink(fake->path);
	rmdir(fake->dir);
}
