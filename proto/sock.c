/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records over SOCK_SEQPACKET. Everything that can go wrong with SCM_RIGHTS is decided here, once:
 * whoever wants no fds cannot be given any (no control buffer), fds that arrive are close-on-exec
 * and in an fdlist or closed, and control data that was cut off is never mistaken for an answer
 * without fds.
 */
#include "proto/sock.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

union sock_control {
	struct cmsghdr align;
	uint8_t bytes[CMSG_SPACE(VSD_FDS_MAX * sizeof(int))];
};

/* Writes the fds as the control data of @msg. */
static int control_fill(struct msghdr *msg, union sock_control *control, const struct fdlist *fds)
{
	if (fds->n > VSD_FDS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < fds->n; i++)
		if (fds->fds[i] < 0)
			return -EBADF;

	memset(control, 0, sizeof(*control));
	msg->msg_control = control->bytes;
	msg->msg_controllen = CMSG_SPACE(fds->n * sizeof(int));

	struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(fds->n * sizeof(int));
	memcpy(CMSG_DATA(cmsg), fds->fds, fds->n * sizeof(int));
	return 0;
}

int sock_send(int fd, const void *buf, size_t length, const struct fdlist *fds, bool wait)
{
	/* An empty record cannot be told from the end of the stream. */
	if (length == 0)
		return -EINVAL;

	union sock_control control;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fds && fds->n) {
		int r = control_fill(&msg, &control, fds);

		if (r < 0)
			return r;
	}

	ssize_t n;

	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == length ? 0 : -EIO;
}

static int control_take(struct msghdr *msg, struct fdlist *fds)
{
	int r = 0;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;

		size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd), sizeof(fd));
			int e = fdlist_consume(fds, fd);

			r = r < 0 ? r : e;
		}
	}
	return r;
}

/* What the flags of a received record mean; @taken is what became of its fds. */
static int record_verdict(const struct msghdr *msg, const struct fdlist *fds, int taken)
{
	if (msg->msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	if (msg->msg_flags & MSG_CTRUNC)
		return fds ? -EMFILE : -EPROTO;
	return taken;
}

int sock_recv(int fd, void *buf, size_t size, bool wait, struct fdlist *fds, size_t *length)
{
	union sock_control control;
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	*length = 0;
	if (fds)
		fdlist_deinit(fds);
	do {
		msg.msg_control = fds ? control.bytes : NULL;
		msg.msg_controllen = fds ? sizeof(control.bytes) : 0;
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;

	int taken = fds ? control_take(&msg, fds) : 0;
	int r = record_verdict(&msg, fds, taken);

	if (fds && (r < 0 || n == 0))
		fdlist_deinit(fds);
	if (r == 0 || r == -EMFILE)
		*length = (size_t)n;
	return r;
}

bool sock_has_fds(int fd)
{
	uint8_t byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = sizeof(byte) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	/* Without room for control data the kernel takes references of its own and drops them: never the last ones. */
	do
		n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n >= 0 && msg.msg_flags & MSG_CTRUNC;
}

static int address_fill(struct sockaddr_un *address, const char *path)
{
	size_t length = strlen(path);

	/* The empty path would bind or reach an abstract name. */
	if (length == 0)
		return -EINVAL;
	if (length >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(address->sun_path, path, length + 1);
	return 0;
}

static int address_connect(const struct sockaddr_un *address, int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -errno;

	int r;

	do
		r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	while (r < 0 && errno == EINTR);
	if (r < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int sock_connect(const char *path)
{
	struct sockaddr_un address;
	int r = address_fill(&address, path);

	return r < 0 ? r : address_connect(&address, 0);
}

/* Removes a socket that nobody listens on from the address. A full backlog is somebody. */
static int address_clear(const struct sockaddr_un *address)
{
	struct stat st;

	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;

	int fd = address_connect(address, SOCK_NONBLOCK);

	if (fd >= 0)
		close(fd);
	if (fd != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(address->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

int sock_listen(const char *path, unsigned mode, int backlog)
{
	struct sockaddr_un address;
	int r = address_fill(&address, path);

	if (r < 0)
		return r;

	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	r = address_clear(&address);
	if (r < 0)
		goto close_fd;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		goto close_fd;
	}
	/* Nobody can connect before listen(), so the mode of the umask is never in force. */
	if (chmod(path, mode) < 0 || listen(fd, backlog) < 0) {
		r = -errno;
		goto remove;
	}
	return fd;

remove:
	unlink(path);
close_fd:
	close(fd);
	return r;
}
