/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File descriptors sent to the daemon, which wants none: it must end the session, and neither keep them nor hang when
 * it lets go of the last reference to something whose end takes long.
 *
 * A kernel with SO_PASSRIGHTS refuses the send where the daemon has switched it off. Each fd is sent twice: when the
 * session is there, and before the daemon has accepted it (the daemon is stopped for that moment).
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/fuse.h>

#define FDS_MAX 253 /* SCM_MAX_FD */

static int send_fds(int fd, const void *bytes, size_t size, const int *fds, unsigned n)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)),
	};
	struct cmsghdr *cmsg;

	memset(&control, 0, sizeof(control));
	cmsg = CMSG_FIRSTHDR(&msg);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(cmsg), fds, n * sizeof(int));
	return sendmsg(fd, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static size_t hello(uint8_t *frame, size_t size)
{
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	uint8_t body[64];

	request.min_version = request.max_version = 1;
	return frame_make(frame, size, VSD__OP__OP_HELLO, 1, body, vsd__hello_request__pack(&request, body));
}

/* The session must end, unless the fds did not even get there. */
static void sent(struct link *link, int r, const char *what)
{
	if (r == 0) {
		count("records with fds");
		must_be(link_answer(link, NULL), ANSWER_ENDED, "%s", what);
	} else {
		count("records refused by the kernel");
		if (r != -EPERM)
			complain("%s: sendmsg: %s", what, strerror(-r));
	}
	link_close(link);
}

static void send_late(const int *fds, unsigned n, const char *what)
{
	uint8_t frame[64];
	struct link link;

	link_ready(&link);
	sent(&link,
		send_fds(link.fd, frame, frame_make(frame, sizeof(frame), VSD__OP__OP_DEVICE_LIST, 1, NULL, 0), fds, n),
		what);
}

static bool daemon_stopped(bool stopped)
{
	char path[64], text[512];
	FILE *file;

	if (kill(setting.daemon, stopped ? SIGSTOP : SIGCONT) < 0)
		return false;
	for (;;) {
		const char *state;

		snprintf(path, sizeof(path), "/proc/%d/stat", (int)setting.daemon);
		file = fopen(path, "r");
		if (!file)
			return false;
		text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
		fclose(file);
		state = strrchr(text, ')');
		if (!state)
			return false;
		if ((state[2] == 'T') == stopped)
			return true;
	}
}

static void send_early(const int *fds, unsigned n, const char *what)
{
	uint8_t frame[64];
	struct link link;
	int r;

	if (!daemon_stopped(true)) {
		complain("cannot stop the daemon: %s", strerror(errno));
		return;
	}
	link_open(&link);
	r = send_fds(link.fd, frame, hello(frame, sizeof(frame)), fds, n);
	daemon_stopped(false);
	sent(&link, r, what);
}

static void fds_plain(void)
{
	int fds[FDS_MAX];
	int pair[2];

	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (unsigned round = 0; round < 5; round++) {
		send_late(fds, 1, "an fd");
		send_late(fds, 4, "4 fds");
		send_late(fds, FDS_MAX, "253 fds");
		send_early(fds, 1, "an fd before it was accepted");
		send_early(fds, FDS_MAX, "253 fds before it was accepted");
	}
	for (unsigned i = 0; i < FDS_MAX; i++)
		close(fds[i]);
	/* A socket with itself on its way in it. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		send_fds(pair[0], "x", 1, pair, 2);
		send_late(pair, 2, "a cycle of sockets");
		send_early(pair, 2, "a cycle of sockets before it was accepted");
		close(pair[0]);
		close(pair[1]);
	}
}

/* ---- a socket whose last close waits for an hour ---- */

static int linger_socket(int *reader)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct linger linger = { .l_onoff = 1, .l_linger = 3600 };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char full[65536] = { 0 };

	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 1) < 0 ||
		getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
		connect(fd, (struct sockaddr *)&address, size) < 0) {
		close(listener);
		close(fd);
		return -1;
	}
	*reader = accept(listener, NULL, NULL);
	close(listener);
	while (send(fd, full, sizeof(full), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	return fd;
}

static void fds_linger(void)
{
	for (unsigned i = 0; i < 4; i++) {
		int reader, fd = linger_socket(&reader);

		if (fd < 0) {
			complain("no TCP over the loopback device");
			return;
		}
		struct link link;
		uint8_t frame[64];
		int r;

		if (i % 2 == 0) {
			link_ready(&link);
		} else {
			daemon_stopped(true);
			link_open(&link);
		}
		r = send_fds(link.fd, frame, hello(frame, sizeof(frame)), &fd, 1);
		if (r == 0) {
			/* Ours is not the last one: this returns at once. */
			close(fd);
			fd = -1;
		}
		if (i % 2)
			daemon_stopped(false);
		sent(&link, r, "a lingering socket");
		close(reader);
		if (fd >= 0)
			close(fd);
	}
}

/* ---- a file of a FUSE server that falls silent ---- */

static void fuse_answer(int fd, uint64_t unique, int error, const void *body, size_t n)
{
	uint8_t buf[256];
	struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + n), .error = error, .unique = unique };

	memcpy(buf, &out, sizeof(out));
	if (n)
		memcpy(buf + sizeof(out), body, n);
	if (write(fd, buf, sizeof(out) + n) < 0)
		return;
}

static void fuse_attr(struct fuse_attr *attr, uint64_t node)
{
	attr->ino = node;
	attr->mode = node == 1 ? S_IFDIR | 0777 : S_IFREG | 0666;
	attr->nlink = 1;
	attr->uid = getuid();
	attr->gid = getgid();
}

/* Serves until the one file is open, then never answers again. */
static void fuse_serve(int fd)
{
	static _Alignas(8) uint8_t buf[FUSE_MIN_READ_BUFFER + 65536];
	const struct fuse_in_header *in = (const void *)buf;

	while (read(fd, buf, sizeof(buf)) > 0) {
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = 2, .attr_valid = 3600, .entry_valid = 3600 };
		struct fuse_attr_out attr = { .attr_valid = 3600 };
		struct fuse_open_out file = { .fh = 1, .open_flags = FOPEN_DIRECT_IO };

		fuse_attr(&entry.attr, 2);
		fuse_attr(&attr.attr, in->nodeid);
		if (in->opcode == FUSE_INIT)
			fuse_answer(fd, in->unique, 0, &init, sizeof(init));
		else if (in->opcode == FUSE_LOOKUP)
			fuse_answer(fd, in->unique, 0, &entry, sizeof(entry));
		else if (in->opcode == FUSE_GETATTR)
			fuse_answer(fd, in->unique, 0, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN)
			fuse_answer(fd, in->unique, 0, &file, sizeof(file));
		/* FLUSH, RELEASE and everything else: silence. */
	}
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		(void)0;
	if (fd >= 0)
		close(fd);
}

/* Mounts at @dir, in a user namespace if need be. NULL, or what was not possible. */
static const char *fuse_mount(const char *dir, int *fd)
{
	char text[128];
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) < 0)
		return "unshare";
	if (uid) {
		snprintf(text, sizeof(text), "0 %u 1", uid);
		write_file("/proc/self/uid_map", text);
		write_file("/proc/self/setgroups", "deny");
		snprintf(text, sizeof(text), "0 %u 1", gid);
		write_file("/proc/self/gid_map", text);
	}
	/* The namespace that opens it must be the one that mounts. */
	*fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return "/dev/fuse";
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "a private mount";
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", *fd, getuid(), getgid());
	if (mount("fuse", dir, "fuse", MS_NOSUID | MS_NODEV, text) < 0)
		return "mount";
	return NULL;
}

static void fds_fuse(void)
{
	char dir[] = "/tmp/verbsd-hostile.XXXXXX", path[64];
	const char *missing;
	int fuse, file;
	pid_t server;

	if (!mkdtemp(dir))
		return;
	missing = fuse_mount(dir, &fuse);
	if (missing) {
		printf("skip: no FUSE here: %s: %s\n", missing, strerror(errno));
		rmdir(dir);
		return;
	}
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fuse_serve(fuse);
		_exit(0);
	}
	close(fuse);
	snprintf(path, sizeof(path), "%s/file", dir);
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0) {
		complain("%s: %s", path, strerror(errno));
	} else {
		send_late(&file, 1, "a FUSE file");
		send_early(&file, 1, "a FUSE file before it was accepted");
	}
	/* Without its server the mount is dead, and our own close returns. */
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	if (file >= 0)
		close(file);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
}

const struct attack attacks_fds[] = {
	{ "fds_plain", fds_plain },
	{ "fds_linger", fds_linger },
	{ "fds_fuse", fds_fuse },
	{ NULL, NULL },
};
