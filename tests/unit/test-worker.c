/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker pool: what it was given is done when it ends.
 */
#include "daemon/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/inlet.h"

#include "tests/lib/harness.h"

/* A pipe whose other end tells that this one was closed. */
static int told_within(int fd, int ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, ms) == 1 && pollfd.revents & POLLHUP;
}

static int told(int fd)
{
	return told_within(fd, 0);
}

START_TEST(everything_is_closed_at_the_end)
{
	struct worker *worker;
	int ends[300];

	ck_assert_int_eq(worker_new(&worker), 0);
	for (unsigned i = 0; i < 300; i++) {
		int fds[2];

		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
		ends[i] = fds[0];
		worker_close(worker, fds[1]);
	}
	worker_free(worker);
	for (unsigned i = 0; i < 300; i++) {
		ck_assert(told(ends[i]));
		close(ends[i]);
	}
}
END_TEST

START_TEST(without_a_pool_it_is_closed_at_once)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	worker_close(NULL, fds[1]);
	ck_assert(told(fds[0]));
	close(fds[0]);
}
END_TEST

START_TEST(no_fd_is_no_work)
{
	struct worker *worker;

	ck_assert_int_eq(worker_new(&worker), 0);
	worker_close(worker, -1);
	worker_close(NULL, -1);
	worker_free(worker);
	worker_free(NULL);
}
END_TEST

/* A socket whose last close waits, since its peer does not read. */
static int lingering(int *reader)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct linger linger = { .l_onoff = 1, .l_linger = 3600 };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char full[65536] = { 0 };

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, size), 0);
	*reader = accept(listener, NULL, NULL);
	close(listener);
	while (send(fd, full, sizeof(full), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

START_TEST(what_hangs_holds_up_nobody)
{
	enum { HANG = 5 };
	struct worker *worker;
	int readers[HANG], fds[2];

	ck_assert_int_eq(worker_new(&worker), 0);
	for (unsigned i = 0; i < HANG; i++)
		worker_close(worker, lingering(&readers[i]));
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	worker_close(worker, fds[1]);
	while (!told_within(fds[0], 20)) {
		int more[2];

		/* Each that comes may bring another thread. */
		ck_assert_int_eq(pipe2(more, O_CLOEXEC), 0);
		worker_close(worker, more[1]);
		close(more[0]);
	}
	/* With a reset each close returns. */
	for (unsigned i = 0; i < HANG; i++)
		close(readers[i]);
	worker_free(worker);
	close(fds[0]);
}
END_TEST

START_TEST(a_socket_with_fds_in_it_is_closed_elsewhere)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (char[]){ "x" }, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
	};
	struct worker *worker;
	int reader, fd = lingering(&reader), pair[2];
	uint8_t buf[16];
	size_t n;

	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(send(pair[0], "a", 1, 0), 1);
	CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(pair[0], &msg, 0), 1);
	close(fd);
	inlet_careful(true);
	ck_assert_int_eq(inlet_recv(pair[1], buf, sizeof(buf), &n), 0);
	ck_assert_uint_eq(n, 1);
	/* It stays there: to take it would be to close it. */
	ck_assert_int_eq(inlet_recv(pair[1], buf, sizeof(buf), &n), -EPROTO);
	ck_assert_int_eq(inlet_recv(pair[1], buf, sizeof(buf), &n), -EPROTO);
	inlet_close(worker, pair[1]);
	inlet_careful(false);
	close(pair[0]);
	close(reader);
	worker_free(worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("worker");
	TCase *tcase = harness_tcase(suite, "worker");

	tcase_add_test(tcase, everything_is_closed_at_the_end);
	tcase_add_test(tcase, what_hangs_holds_up_nobody);
	tcase_add_test(tcase, a_socket_with_fds_in_it_is_closed_elsewhere);
	tcase_add_test(tcase, without_a_pool_it_is_closed_at_once);
	tcase_add_test(tcase, no_fd_is_no_work);
	return harness_run(suite);
}
