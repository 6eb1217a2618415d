/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The session of this process: made on first need, never in a constructor. A program may close any fd number, so before
 * each use fstat proves that the number still is our socket; else the session is lost without a word on a socket that may
 * be another's. A child makes a session of its own.
 */
#include "client/control/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/sock.h"

/* Low numbers are the program's: some programs count on getting the lowest, some close all up to a number. */
#define FD_FLOOR 512

struct conn conn = { .lock = PTHREAD_MUTEX_INITIALIZER, .socket = CONN_FD_NULL };

int control_fd_high(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);

	if (high < 0)
		return fd;
	close(fd);
	return high;
}

int conn_fd_note(struct conn_fd *file, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*file = (struct conn_fd){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

bool conn_fd_ours(const struct conn_fd *file)
{
	struct stat st;

	return file->fd >= 0 && fstat(file->fd, &st) == 0 && st.st_dev == file->dev &&
	       st.st_ino == file->ino;
}

void conn_fd_close(struct conn_fd *file)
{
	if (conn_fd_ours(file))
		close(file->fd);
	file->fd = -1;
}

void conn_drop(const char *why)
{
	if (conn.socket.fd >= 0 && why)
		control_debug("session lost: %s", why);
	conn_fd_close(&conn.socket);
	if (conn.joined)
		conn.lost = true;
}

static void conn_reset(void)
{
	conn_fd_close(&conn.socket);
	conn.joined = false;
	conn.lost = false;
}

/* A child of fork has a copy of the fd: closing it says nothing to the daemon, whose session is the parent's. */
static void conn_forget(void)
{
	conn_reset();
	pthread_mutex_init(&conn.lock, NULL); /* it may have been held by a thread that does not exist here */
	events_forget();
}

static const struct process_hooks conn_hooks = { .child = conn_forget, .forget = conn_forget };

static int conn_hello(void)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;

	request.min_version = VSD_VERSION_MIN;
	request.max_version = VSD_VERSION_MAX;
	request.features = VSD_FEATURES;

	int r = control_exchange(
		VSD__OP__OP_HELLO, &request.base, &vsd__hello_reply__descriptor, &reply, NULL);

	if (r < 0)
		return r;
	atomic_store(&conn.features, ((Vsd__HelloReply *)reply)->features);
	control_debug("connected to verbsd %s", ((Vsd__HelloReply *)reply)->daemon_version);
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

const char *control_path(void)
{
	const char *path = secure_getenv(VSD_SOCKET_ENV);

	return path && *path ? path : VSD_SOCKET_PATH;
}

int conn_enter(void)
{
	int r = process_enter();

	if (r < 0)
		return r;
	process_hooks_add(&conn_hooks);
	pthread_mutex_lock(&conn.lock);
	return 0;
}

int conn_need(void)
{
	if (conn.lost)
		return -ENOTCONN;
	if (conn.socket.fd >= 0) {
		if (conn_fd_ours(&conn.socket))
			return 0;
		conn_drop("the program closed our socket");
		if (conn.lost)
			return -ENOTCONN;
	}

	int fd = sock_connect(control_path());

	if (fd < 0) {
		control_debug("no daemon at %s: %s", control_path(), strerror(-fd));
		return fd;
	}
	fd = control_fd_high(fd);

	int r = conn_fd_note(&conn.socket, fd);

	if (r < 0) {
		close(fd);
		return r;
	}
	r = conn_hello();
	if (r < 0)
		conn_drop("hello was refused");
	return r;
}

int control_connect(void)
{
	int r = conn_enter();

	if (r < 0)
		return r;
	r = conn_need();
	pthread_mutex_unlock(&conn.lock);
	return r;
}

bool control_connected(void)
{
	if (conn_enter() < 0)
		return false;

	bool connected = conn.socket.fd >= 0 && !conn.lost;

	pthread_mutex_unlock(&conn.lock);
	return connected;
}

bool control_offers(uint64_t feature)
{
	return !atomic_load(&conn.lost) && (atomic_load(&conn.features) & feature) == feature;
}

void control_lost(void)
{
	conn.lost = true;
}

void control_close(void)
{
	if (conn_enter() < 0)
		return;
	conn_reset();
	events_note(-1);
	pthread_mutex_unlock(&conn.lock);
}
