/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the gate lets through.
 */
#include "daemon/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/sock.h"
#include "tests/lib/harness.h"

static struct gate_want want_of(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return (struct gate_want){ .dev = st.st_dev, .ino = st.st_ino, .rdev = st.st_rdev };
}

static const struct {
	const char *path;
	int flags, want;
} files[] = {
	{ "/dev/null", O_RDWR, 0 },
	{ "/dev/null", O_RDWR | O_NONBLOCK, 0 },
	{ "/dev/null", O_RDONLY, -EBADF },
	{ "/dev/null", O_WRONLY, -EBADF },
	{ "/dev/null", O_PATH, -EBADF },
	{ "/dev/zero", O_RDWR, -EACCES },
	{ "/proc/self/exe", O_RDONLY, -EBADF },
	{ "/tmp", O_RDONLY | O_DIRECTORY, -EBADF },
	{ "/tmp", O_RDWR | O_TMPFILE, -EACCES },
};

START_TEST(only_the_file_of_that_node_passes)
{
	struct gate_want want = want_of("/dev/null");
	int fd = open(files[_i].path, files[_i].flags | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gate_check(fd, &want), files[_i].want);
	close(fd);
}
END_TEST

START_TEST(another_node_of_that_number_does_not_pass)
{
	struct gate_want want = want_of("/dev/null");
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	want.ino++;
	ck_assert_int_eq(gate_check(fd, &want), -EACCES);
	want.ino--;
	want.dev++;
	ck_assert_int_eq(gate_check(fd, &want), -EACCES);
	close(fd);
	ck_assert_int_eq(gate_check(fd, &want), -EBADF);
}
END_TEST

/* What the daemon hears when the client sends @n fds, or nothing when @n is negative. */
static int32_t serve(const char *path, int n, unsigned *passed)
{
	struct gate_want want = want_of("/dev/null");
	struct fdlist fds = FDLIST_NULL;
	int client[2], daemon[2];
	int32_t verdict = 1;
	size_t length;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, client), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, daemon), 0);
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(fdlist_consume(&fds, open(path, O_RDWR | O_CLOEXEC)), 0);
	if (n >= 0)
		ck_assert_int_eq(sock_send(client[0], "", 1, &fds, false), 0);
	fdlist_deinit(&fds);
	close(client[0]);
	gate_serve(client[1], daemon[1], &want);
	ck_assert_int_eq(sock_recv(daemon[0], &verdict, sizeof(verdict), false, &fds, &length), 0);
	*passed = (unsigned)fds.n;
	fdlist_deinit(&fds);
	close(client[1]);
	close(daemon[0]);
	close(daemon[1]);
	return verdict;
}

START_TEST(one_good_file_is_passed_on)
{
	unsigned passed;

	ck_assert_int_eq(serve("/dev/null", 1, &passed), 0);
	ck_assert_uint_eq(passed, 1);
}
END_TEST

START_TEST(anything_else_is_not)
{
	unsigned passed;

	ck_assert_int_eq(serve("/dev/null", -1, &passed), -ECONNRESET);
	ck_assert_int_eq(serve("/dev/null", 0, &passed), -EPROTO);
	ck_assert_int_eq(serve("/dev/null", 2, &passed), -EPROTO);
	ck_assert_int_eq(serve("/dev/zero", 1, &passed), -EACCES);
	ck_assert_uint_eq(passed, 0);
}
END_TEST

/* --- the process ------------------------------------------------------------------------------------------------------ */

static int answered = 1;

static void note(void *data, int fd)
{
	(void)data;
	answered = fd;
}

/* A connection whose close() lingers for minutes, for nobody reads what it has sent. */
static int lingering(int *peer)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger linger = { 1, 300 };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char bytes[65536];

	ck_assert_int_eq(bind(listener, (void *)&address, size), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (void *)&address, &size), 0);
	ck_assert_int_eq(connect(fd, (void *)&address, size), 0);
	*peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*peer, 0);
	close(listener);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	return fd;
}

/* It is refused, and whoever is at the gate hangs with it, until it is killed. */
START_TEST(what_hangs_who_closes_it_hangs_nobody_else)
{
	struct gate_want want = want_of("/dev/null");
	struct fdlist fds = FDLIST_NULL;
	struct loop *loop;
	struct gate gate;
	int client, peer;

	ck_assert_int_eq(loop_new(&loop), 0);
	ck_assert_int_eq(gate_start(&gate, loop, getuid(), &want, note, NULL, &client), 0);
	ck_assert_int_eq(fdlist_consume(&fds, lingering(&peer)), 0);
	ck_assert_int_eq(sock_send(client, "", 1, &fds, false), 0);
	/* What is on its way is the last one from here on. */
	fdlist_deinit(&fds);
	while (answered == 1)
		ck_assert_int_eq(loop_turn(loop, true), 0);
	ck_assert_int_eq(answered, -EACCES);
	while (gate_hung() > 0)
		;
	close(peer);
	close(client);
	loop_free(loop);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *t;

	if (argc > 1 && strcmp(argv[1], "--gate") == 0)
		return gate_main(argc - 2, argv + 2);
	suite = suite_create("gate");
	t = harness_tcase(suite, "gate");
	tcase_add_loop_test(t, only_the_file_of_that_node_passes, 0, sizeof(files) / sizeof(files[0]));
	tcase_add_test(t, another_node_of_that_number_does_not_pass);
	tcase_add_test(t, one_good_file_is_passed_on);
	tcase_add_test(t, anything_else_is_not);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, what_hangs_who_closes_it_hangs_nobody_else);
	return harness_run(suite);
}
