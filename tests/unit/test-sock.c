/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records and fds over a socket pair, both ends in one process. The fd fixture is the point: whatever a
 * peer sends, no fd of it stays open here.
 */
#include "proto/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/harness.h"

static int ends[2];
static uint8_t record[256];

static void pair_setup(void)
{
	harness_fds_setup();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void pair_teardown(void)
{
	close(ends[0]);
	close(ends[1]);
	harness_fds_teardown();
}

/* Sends @n copies of one fd with a record of one byte, by hand: more than sock_send() would. */
static void fds_send(int n)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(253 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = record, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(cmsg) + (size_t)i * sizeof(int), &ends[0], sizeof(int));
	ck_assert_int_eq(sendmsg(ends[0], &msg, 0), 1);
}

START_TEST(fds_where_none_may_be_are_not_received)
{
	static const int counts[] = { 1, 4, 253 };
	int before = harness_fds_open();
	size_t length = 9;

	fds_send(counts[_i]);
	ck_assert_int_eq(
		sock_recv(ends[1], record, sizeof(record), false, NULL, &length), -EPROTO);
	ck_assert_uint_eq(length, 0);
	ck_assert_int_eq(harness_fds_open(), before);
}
END_TEST

START_TEST(more_fds_than_asked_for_are_all_closed)
{
	static const int counts[] = { VSD_FDS_MAX + 1, 253 };
	struct fdlist fds = FDLIST_NULL;
	size_t length = 0;

	fds_send(counts[_i]);
	ck_assert_int_eq(
		sock_recv(ends[1], record, sizeof(record), false, &fds, &length), -EMFILE);
	ck_assert_uint_eq(length, 1);
	ck_assert_uint_eq(fds.n, 0);
}
END_TEST

START_TEST(fds_lost_at_the_limit_are_told_and_the_record_is_kept)
{
	struct fdlist fds = FDLIST_NULL;
	struct rlimit old, low;
	size_t length = 0;

	/* Room for _i of three. */
	fds_send(3);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;

	int next = dup(0);

	close(next);
	low.rlim_cur = (rlim_t)(next + _i);
	setrlimit(RLIMIT_NOFILE, &low);

	int r = sock_recv(ends[1], record, sizeof(record), false, &fds, &length);

	setrlimit(RLIMIT_NOFILE, &old);
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_uint_eq(length, 1);
	ck_assert_uint_eq(fds.n, 0);
}
END_TEST

START_TEST(fds_arrive_close_on_exec_and_in_order)
{
	struct fdlist out = FDLIST_NULL, in = FDLIST_NULL;
	struct stat want, got;
	size_t length;

	fdlist_consume(&out, open("/dev/null", O_RDONLY));
	fdlist_consume(&out, open("/dev/zero", O_RDONLY));
	fdlist_consume(&out, open("/dev/full", O_RDONLY));
	fdlist_consume(&out, open("/dev/random", O_RDONLY));
	ck_assert_int_eq(sock_send(ends[0], "x", 1, &out, false), 0);
	ck_assert_uint_eq(out.n, 4);
	ck_assert_int_eq(sock_recv(ends[1], record, sizeof(record), false, &in, &length), 0);
	ck_assert_uint_eq(in.n, 4);
	for (size_t i = 0; i < 4; i++) {
		fstat(out.fds[i], &want);
		fstat(in.fds[i], &got);
		ck_assert_uint_eq(got.st_rdev, want.st_rdev);
		ck_assert_int_eq(fcntl(in.fds[i], F_GETFD), FD_CLOEXEC);
	}
	fdlist_deinit(&in);
	fdlist_deinit(&out);
}
END_TEST

START_TEST(list_in_use_is_emptied_by_receiving)
{
	struct fdlist fds = FDLIST_NULL;
	size_t length;

	fdlist_dup(&fds, 0);
	sock_send(ends[0], "x", 1, NULL, false);
	ck_assert_int_eq(sock_recv(ends[1], record, sizeof(record), false, &fds, &length), 0);
	ck_assert_uint_eq(fds.n, 0);
}
END_TEST

START_TEST(stolen_fd_is_not_sent)
{
	struct fdlist fds = FDLIST_NULL;

	fdlist_dup(&fds, 0);
	close(fdlist_steal(&fds, 0));
	ck_assert_int_eq(sock_send(ends[0], "x", 1, &fds, false), -EBADF);
}
END_TEST

START_TEST(record_longer_than_the_buffer_is_refused_with_its_fds)
{
	struct fdlist out = FDLIST_NULL, in = FDLIST_NULL;
	size_t length = 7;

	fdlist_dup(&out, 0);
	sock_send(ends[0], record, sizeof(record), &out, false);
	fdlist_deinit(&out);
	ck_assert_int_eq(
		sock_recv(ends[1], record, sizeof(record) - 1, false, &in, &length), -EMSGSIZE);
	ck_assert_uint_eq(length, 0);
	ck_assert_uint_eq(in.n, 0);
}
END_TEST

START_TEST(records_keep_their_bounds)
{
	size_t length;

	sock_send(ends[0], "abc", 3, NULL, false);
	sock_send(ends[0], "d", 1, NULL, false);
	ck_assert_int_eq(sock_recv(ends[1], record, sizeof(record), false, NULL, &length), 0);
	ck_assert_uint_eq(length, 3);
	ck_assert_mem_eq(record, "abc", 3);
	ck_assert_int_eq(sock_recv(ends[1], record, sizeof(record), false, NULL, &length), 0);
	ck_assert_uint_eq(length, 1);
}
END_TEST

START_TEST(end_of_stream_is_length_0)
{
	size_t length = 5;

	shutdown(ends[0], SHUT_WR);
	ck_assert_int_eq(sock_recv(ends[1], record, sizeof(record), true, NULL, &length), 0);
	ck_assert_uint_eq(length, 0);
}
END_TEST

START_TEST(nothing_there_is_again)
{
	struct fdlist fds = FDLIST_NULL;
	size_t length = 5;

	ck_assert_int_eq(
		sock_recv(ends[1], record, sizeof(record), false, NULL, &length), -EAGAIN);
	ck_assert_int_eq(
		sock_recv(ends[1], record, sizeof(record), false, &fds, &length), -EAGAIN);
	ck_assert_uint_eq(length, 0);
}
END_TEST

START_TEST(empty_record_is_not_sent)
{
	ck_assert_int_eq(sock_send(ends[0], "", 0, NULL, false), -EINVAL);
}
END_TEST

START_TEST(full_socket_is_again)
{
	int r;

	do
		r = sock_send(ends[0], record, sizeof(record), NULL, false);
	while (r == 0);
	ck_assert_int_eq(r, -EAGAIN);
}
END_TEST

/* Without MSG_NOSIGNAL the test dies of SIGPIPE. */
START_TEST(peer_gone_is_an_error_and_no_signal)
{
	close(ends[1]);
	ck_assert_int_eq(sock_send(ends[0], "x", 1, NULL, true), -EPIPE);
	ends[1] = dup(0);
}
END_TEST

static char dir[64], path[96];

static void dir_setup(void)
{
	harness_fds_setup();
	strcpy(dir, "/tmp/test-sock.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
}

static void dir_teardown(void)
{
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
	harness_fds_teardown();
}

START_TEST(listen_sets_the_mode_whatever_the_umask)
{
	struct stat st;

	umask(0777);

	int fd = sock_listen(path, 0640, 4);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0640);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}
END_TEST

START_TEST(connect_reaches_the_listener)
{
	int fd = sock_listen(path, 0600, 4), client = sock_connect(path),
	    server = accept(fd, NULL, NULL);
	size_t length;

	ck_assert_int_ge(client, 0);
	ck_assert_int_eq(fcntl(client, F_GETFD), FD_CLOEXEC);
	sock_send(client, "hi", 2, NULL, true);
	ck_assert_int_eq(sock_recv(server, record, sizeof(record), true, NULL, &length), 0);
	ck_assert_uint_eq(length, 2);
	close(client);
	close(server);
	close(fd);
}
END_TEST

START_TEST(socket_in_use_is_not_taken)
{
	int fd = sock_listen(path, 0600, 4);

	ck_assert_int_eq(sock_listen(path, 0600, 4), -EADDRINUSE);
	close(fd);
}
END_TEST

START_TEST(socket_with_a_full_backlog_is_not_taken)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = sock_listen(path, 0600, 0), clients[8], n = 0;

	strcpy(address.sun_path, path);
	for (; n < 8; n++) {
		clients[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		if (connect(clients[n], (struct sockaddr *)&address, sizeof(address)) < 0)
			break;
	}
	ck_assert_int_lt(n, 8);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(sock_listen(path, 0600, 4), -EADDRINUSE);
	for (int i = 0; i <= n; i++)
		close(clients[i]);
	close(fd);
}
END_TEST

START_TEST(abandoned_socket_is_replaced)
{
	close(sock_listen(path, 0600, 4));
	ck_assert_int_eq(access(path, F_OK), 0);

	int fd = sock_listen(path, 0600, 4), client = sock_connect(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(client, 0);
	close(client);
	close(fd);
}
END_TEST

START_TEST(file_that_is_no_socket_is_not_removed)
{
	close(open(path, O_CREAT | O_WRONLY, 0600));
	ck_assert_int_eq(sock_listen(path, 0600, 4), -EADDRINUSE);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(socket_of_another_type_is_not_taken)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	ck_assert_int_eq(sock_listen(path, 0600, 4), -EADDRINUSE);
	ck_assert_int_eq(sock_connect(path), -EPROTOTYPE);
	close(fd);
}
END_TEST

START_TEST(bad_paths_are_refused)
{
	char longest[200];

	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	ck_assert_int_eq(sock_connect(longest), -ENAMETOOLONG);
	ck_assert_int_eq(sock_listen(longest, 0600, 1), -ENAMETOOLONG);
	longest[sizeof(((struct sockaddr_un *)0)->sun_path)] = 0;
	ck_assert_int_eq(sock_connect(longest), -ENAMETOOLONG);
	ck_assert_int_eq(sock_connect(""), -EINVAL);
	ck_assert_int_eq(sock_listen("", 0600, 1), -EINVAL);
	ck_assert_int_eq(sock_connect(path), -ENOENT);
	ck_assert_int_eq(sock_listen("/nonexistent/s", 0600, 1), -ENOENT);
}
END_TEST

static void paths_add(Suite *suite)
{
	TCase *paths = tcase_create("paths");

	tcase_add_checked_fixture(paths, dir_setup, dir_teardown);
	suite_add_tcase(suite, paths);
	tcase_add_test(paths, listen_sets_the_mode_whatever_the_umask);
	tcase_add_test(paths, connect_reaches_the_listener);
	tcase_add_test(paths, socket_in_use_is_not_taken);
	tcase_add_test(paths, socket_with_a_full_backlog_is_not_taken);
	tcase_add_test(paths, abandoned_socket_is_replaced);
	tcase_add_test(paths, file_that_is_no_socket_is_not_removed);
	tcase_add_test(paths, socket_of_another_type_is_not_taken);
	tcase_add_test(paths, bad_paths_are_refused);
}

int main(void)
{
	Suite *suite = suite_create("sock");
	TCase *pair = tcase_create("pair");

	tcase_add_checked_fixture(pair, pair_setup, pair_teardown);
	suite_add_tcase(suite, pair);
	tcase_add_loop_test(pair, fds_where_none_may_be_are_not_received, 0, 3);
	tcase_add_loop_test(pair, more_fds_than_asked_for_are_all_closed, 0, 2);
	tcase_add_loop_test(pair, fds_lost_at_the_limit_are_told_and_the_record_is_kept, 0, 3);
	tcase_add_test(pair, fds_arrive_close_on_exec_and_in_order);
	tcase_add_test(pair, list_in_use_is_emptied_by_receiving);
	tcase_add_test(pair, stolen_fd_is_not_sent);
	tcase_add_test(pair, record_longer_than_the_buffer_is_refused_with_its_fds);
	tcase_add_test(pair, records_keep_their_bounds);
	tcase_add_test(pair, end_of_stream_is_length_0);
	tcase_add_test(pair, nothing_there_is_again);
	tcase_add_test(pair, empty_record_is_not_sent);
	tcase_add_test(pair, full_socket_is_again);
	tcase_add_test(pair, peer_gone_is_an_error_and_no_signal);
	paths_add(suite);
	return harness_run(suite);
}
