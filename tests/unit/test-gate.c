/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the gate lets through.
 */
#include "daemon/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/job.h"
#include "daemon/refuse.h"
#include "daemon/worker.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/held_spawn.h"

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

#define NOTHING 1 /* nobody has said anything */
static int answered = NOTHING, begun = NOTHING;

static void note(void *data, int fd)
{
	(void)data;
	answered = fd;
}

static void note_start(void *data, int r)
{
	(void)data;
	begun = r;
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

static struct gate_owner owner = { .started = note_start, .done = note };

static void turn_until(const int *said)
{
	while (*said == NOTHING)
		ck_assert_int_eq(loop_turn(owner.loop, true), 0);
}

/* No process is left to itself. */
static void expect_nobody(void)
{
	while (gate_hung() > 0)
		ck_assert_int_eq(loop_turn(owner.loop, false), 0);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

static void send_one(int client, int fd)
{
	struct fdlist fds = FDLIST_NULL;

	ck_assert_int_eq(fdlist_consume(&fds, fd), 0);
	ck_assert_int_eq(sock_send(client, "", 1, &fds, false), 0);
	fdlist_deinit(&fds);
}

static struct worker *worker;

static void setup(void)
{
	owner.uid = getuid();
	ck_assert_int_eq(loop_new(&owner.loop), 0);
	ck_assert_int_eq(worker_new(&worker), 0);
	ck_assert_int_eq(jobs_new(owner.loop, worker, &owner.jobs), 0);
	held_spawn_use();
}

static void end_threads(void)
{
	held_spawn_go();
	worker = worker_free(worker);
	owner.jobs = jobs_free(owner.jobs);
}

static void teardown(void)
{
	end_threads();
	expect_nobody();
	loop_free(owner.loop);
}

static int start(struct gate *gate)
{
	struct gate_want want = want_of("/dev/null");
	int client, r = gate_start(gate, &owner, &want, &client);

	return r < 0 ? r : client;
}

static void stop(struct gate *gate, int client)
{
	gate_end(gate);
	close(client);
}

/* Starts one that finds a file which hangs whoever closes it: from before it is begun on, for then it has the last one. */
static int start_hanging(struct gate *gate, int *peer)
{
	int client = start(gate);

	ck_assert_int_ge(client, 0);
	send_one(client, lingering(peer));
	held_spawn_go();
	return client;
}

/* It is refused, and whoever is at the gate hangs with it, until it is killed. */
START_TEST(what_hangs_who_closes_it_hangs_nobody_else)
{
	struct gate gate;
	int peer, client = start_hanging(&gate, &peer);

	turn_until(&answered);
	ck_assert_int_eq(answered, -EACCES);
	expect_nobody();
	close(peer);
	close(client);
}
END_TEST

/* As it is when the daemon dies: nobody kills it. */
START_TEST(one_that_hangs_ends_with_the_daemons_end_of_its_socket)
{
	struct gate gate;
	struct pollfd pollfd;
	siginfo_t info;
	int peer, client = start_hanging(&gate, &peer);

	pollfd = (struct pollfd){ .fd = gate.fd, .events = POLLIN };
	ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
	/* Its verdict is there. It hangs now, or will in a moment. */
	watch_deinit(&gate.watch);
	turn_until(&begun);
	close(gate.fd);
	ck_assert_int_eq(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(info.si_code, CLD_KILLED);
	ck_assert_int_eq(info.si_status, SIGIO);
	gate.fd = dup(client);
	gate_end(&gate);
	close(peer);
	close(client);
}
END_TEST

START_TEST(the_loop_turns_while_it_is_begun)
{
	struct gate gate;
	int client = start(&gate);

	ck_assert_int_ge(client, 0);
	held_spawn_wait(1);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_int_eq(loop_turn(owner.loop, false), 0);
	ck_assert(gate.starting);
	ck_assert_int_eq(begun, NOTHING);
	held_spawn_go();
	turn_until(&begun);
	ck_assert_int_eq(begun, 0);
	ck_assert(!gate.starting);
	send_one(client, open("/dev/null", O_RDWR | O_CLOEXEC));
	turn_until(&answered);
	ck_assert_int_ge(answered, 0);
	close(answered);
	close(client);
}
END_TEST

START_TEST(one_that_cannot_be_begun_is_over)
{
	struct gate gate;
	char byte;
	int client;

	gate_program = "/nonexistent";
	client = start(&gate);
	ck_assert_int_ge(client, 0);
	held_spawn_go();
	turn_until(&begun);
	ck_assert_int_eq(begun, -ENOENT);
	ck_assert_int_eq(gate.fd, -1);
	ck_assert_int_eq(recv(client, &byte, 1, MSG_DONTWAIT), 0);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_int_eq(loop_turn(owner.loop, false), 0);
	ck_assert_int_eq(answered, NOTHING);
	stop(&gate, client);
}
END_TEST

/* It counts as one that is on its way out, is ended when it is there, and is waited for. */
START_TEST(one_may_be_ended_while_it_is_begun)
{
	struct gate gate;
	int client = start(&gate);

	ck_assert_int_ge(client, 0);
	held_spawn_wait(1);
	stop(&gate, client);
	ck_assert_uint_eq(gate_hung(), 1);
	held_spawn_go();
	expect_nobody();
	ck_assert_uint_eq(held_spawn_made(), 1);
	ck_assert_int_eq(begun, NOTHING);
	ck_assert_int_eq(answered, NOTHING);
}
END_TEST

/* Eight of a user's are begun at a time; the others have not come to that. */
START_TEST(the_daemon_may_end_while_some_are_begun)
{
	struct gate gates[JOBS_USER_MAX + 2];
	int clients[JOBS_USER_MAX + 2];

	for (unsigned i = 0; i < JOBS_USER_MAX + 2; i++) {
		clients[i] = start(&gates[i]);
		ck_assert_int_ge(clients[i], 0);
	}
	held_spawn_wait(JOBS_USER_MAX);
	for (unsigned i = 0; i < JOBS_USER_MAX + 2; i++)
		stop(&gates[i], clients[i]);
	ck_assert_uint_eq(gate_hung(), JOBS_USER_MAX + 2);
	end_threads();
	ck_assert_uint_eq(held_spawn_made(), JOBS_USER_MAX);
	ck_assert_int_eq(begun, NOTHING);
}
END_TEST

/* It has done what it does at first, and waits for its client. */
static bool waits(pid_t pid)
{
	char path[64], text[64] = "", state = '?';
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	close(fd);
	return sscanf(text, "%*d (verbsd-gate) %c", &state) == 1 && state == 'S';
}

START_TEST(one_outlives_its_thread)
{
	struct gate gate;
	char thread[64];
	int client = start(&gate);

	ck_assert_int_ge(client, 0);
	held_spawn_go();
	turn_until(&begun);
	while (!waits(held_spawn_pid()))
		;
	end_threads();
	snprintf(thread, sizeof(thread), "/proc/self/task/%d", (int)held_spawn_thread());
	while (access(thread, F_OK) == 0)
		;
	send_one(client, open("/dev/null", O_RDWR | O_CLOEXEC));
	turn_until(&answered);
	ck_assert_int_ge(answered, 0);
	close(answered);
	close(client);
}
END_TEST

static uint64_t time_now = 1000;

static uint64_t clock_still(void)
{
	return time_now;
}

START_TEST(those_that_are_begun_count)
{
	struct gate gate;
	int client;

	loop_set_clock(clock_still);
	for (unsigned i = 0; i < GATE_ENDING; i++) {
		client = start(&gate);
		ck_assert_int_ge(client, 0);
		stop(&gate, client);
	}
	ck_assert_int_eq(start(&gate), -EAGAIN);
	ck_assert_ptr_nonnull(strstr(refuse_reason(), "not gone yet"));
	time_now += 1000;
	ck_assert_int_eq(start(&gate), -EBUSY);
	held_spawn_go();
	expect_nobody();
	client = start(&gate);
	ck_assert_int_ge(client, 0);
	stop(&gate, client);
	loop_set_clock(NULL);
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
	t = harness_tcase(suite, "process");
	tcase_set_timeout(t, 20);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_hangs_who_closes_it_hangs_nobody_else);
	tcase_add_test(t, one_that_hangs_ends_with_the_daemons_end_of_its_socket);
	tcase_add_test(t, the_loop_turns_while_it_is_begun);
	tcase_add_test(t, one_that_cannot_be_begun_is_over);
	tcase_add_test(t, one_may_be_ended_while_it_is_begun);
	tcase_add_test(t, the_daemon_may_end_while_some_are_begun);
	tcase_add_test(t, one_outlives_its_thread);
	tcase_add_test(t, those_that_are_begun_count);
	return harness_run(suite);
}
