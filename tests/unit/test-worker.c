/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker pool: what it was given is done when it ends.
 */
#include "daemon/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "tests/lib/harness.h"

/* A pipe whose other end tells that this one was closed. */
static int told(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1 && pollfd.revents & POLLHUP;
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

int main(void)
{
	Suite *suite = suite_create("worker");
	TCase *tcase = harness_tcase(suite, "worker");

	tcase_add_test(tcase, everything_is_closed_at_the_end);
	tcase_add_test(tcase, without_a_pool_it_is_closed_at_once);
	tcase_add_test(tcase, no_fd_is_no_work);
	return harness_run(suite);
}
