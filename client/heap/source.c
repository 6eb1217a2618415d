/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where segments come from: a session with the daemon of the heap's own, since the library's may be in a call, with locks
 * held, when an allocation needs one. What fails is not asked for again at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "client/heap/heap.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/sock.h"
#include "proto/verbsd.pb-c.h"

#define FD_FLOOR 512 /* low numbers are the program's */
#define PATIENCE 10  /* seconds for an answer */
#define PAUSE	 1   /* seconds after a refusal */

static struct {
	int fd;
	dev_t dev;
	ino_t ino;
	uint32_t serial;
	time_t pause;	   /* nothing is asked for until then, */
	uint64_t too_much; /* but for less than that */
	uint8_t buf[sizeof(struct frame_header) + VSD_ANSWER_MAX];
} source = { .fd = -1 };

static bool is_ours(int fd, dev_t dev, ino_t ino)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static void hang_up(void)
{
	if (is_ours(source.fd, source.dev, source.ino))
		close(source.fd);
	source.fd = -1;
}

void source_forget(void)
{
	hang_up();
	source.pause = 0;
}

static int fd_high(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);

	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* The answer's body is in source.buf behind the header. */
static int call(uint16_t op, const ProtobufCMessage *request, struct frame_header *header, struct fdlist *fds)
{
	size_t length = 0;
	int r;

	*header = (struct frame_header){ .version = VSD_VERSION_MIN, .opcode = op, .serial = ++source.serial };
	r = frame_pack(source.buf, VSD_REQUEST_MAX, header, request);
	if (r >= 0)
		r = sock_send(source.fd, source.buf, (size_t)r, NULL, true);
	if (r >= 0)
		r = sock_recv(source.fd, source.buf, sizeof(source.buf), true, fds, &length);
	if (r >= 0)
		r = length ? frame_parse(source.buf, length, header) : -ENOTCONN;
	if (r >= 0 && (header->flags != FRAME_REPLY || header->serial != source.serial || header->opcode != op))
		r = -EBADMSG;
	if (r < 0) {
		hang_up();
		return r;
	}
	return header->status > 0 ? -header->status : 0;
}

static int hello(void)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	struct fdlist fds = FDLIST_NULL;
	struct frame_header header;

	request.min_version = VSD_VERSION_MIN;
	request.max_version = VSD_VERSION_MAX;
	request.features = VSD_FEATURES;

	int r = call(VSD__OP__OP_HELLO, &request.base, &header, &fds);

	fdlist_deinit(&fds);
	return r;
}

static int connect_to_daemon(void)
{
	const char *path = secure_getenv(VSD_SOCKET_ENV);
	struct timeval limit = { .tv_sec = PATIENCE };
	struct stat st;

	if (is_ours(source.fd, source.dev, source.ino))
		return 0;
	source.fd = sock_connect(path && *path ? path : VSD_SOCKET_PATH);
	if (source.fd < 0)
		return source.fd;
	source.fd = fd_high(source.fd);
	if (fstat(source.fd, &st) < 0)
		return -errno;
	source.dev = st.st_dev;
	source.ino = st.st_ino;
	setsockopt(source.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return hello();
}

static int ask(uint64_t size, struct heap_region *region)
{
	Vsd__HeapCreateRequest request = VSD__HEAP_CREATE_REQUEST__INIT;
	struct fdlist fds = FDLIST_NULL;
	ProtobufCMessage *reply = NULL;
	struct frame_header header;
	int r;

	request.size = size;
	r = call(VSD__OP__OP_HEAP_CREATE, &request.base, &header, &fds);
	if (r == 0)
		r = frame_unpack_heap(&vsd__heap_reply__descriptor, source.buf + sizeof(header), header.length, &reply);
	if (r == 0 && fds.n != 1)
		r = -EPROTO;
	if (r == 0) {
		const Vsd__HeapReply *got = (const Vsd__HeapReply *)reply;

		*region = (struct heap_region){ got->region, got->size, fd_high(fdlist_steal(&fds, 0)) };
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	fdlist_deinit(&fds);
	return r;
}

int source_take(uint64_t size, struct heap_region *region)
{
	time_t now = seconds();
	int r;

	if (now < source.pause && size >= source.too_much)
		return -EAGAIN;
	r = connect_to_daemon();
	source.too_much = r < 0 ? 0 : size;
	if (r == 0)
		r = ask(size, region);
	source.pause = r < 0 ? now + PAUSE : 0;
	return r;
}

void source_give(uint32_t number)
{
	Vsd__HeapDestroyRequest request = VSD__HEAP_DESTROY_REQUEST__INIT;
	struct fdlist fds = FDLIST_NULL;
	struct frame_header header;

	if (!is_ours(source.fd, source.dev, source.ino))
		return;
	request.region = number;
	/* A session that is lost has given everything back. */
	(void)call(VSD__OP__OP_HEAP_DESTROY, &request.base, &header, &fds);
	fdlist_deinit(&fds);
}
