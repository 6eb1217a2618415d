/* SPDX-License-Identifier: BSD-2-Clause */
/* fd lists: nothing that was put in stays open, whatever fails. The fixture counts. */
#include "proto/fdlist.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/harness.h"

static int fd_new(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(full_list_closes_what_it_refuses)
{
	struct fdlist list = FDLIST_NULL;
	int fd;

	for (int i = 0; i < VSD_FDS_MAX; i++)
		ck_assert_int_eq(fdlist_consume(&list, fd_new()), 0);
	fd = fd_new();
	ck_assert_int_eq(fdlist_consume(&list, fd), -ENOSPC);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_uint_eq(list.n, VSD_FDS_MAX);
	fdlist_deinit(&list);
	ck_assert_uint_eq(list.n, 0);
}
END_TEST

START_TEST(bad_fd_is_refused)
{
	struct fdlist list = FDLIST_NULL;

	ck_assert_int_eq(fdlist_consume(&list, -1), -EBADF);
	ck_assert_int_eq(fdlist_dup(&list, -1), -EBADF);
	ck_assert_uint_eq(list.n, 0);
}
END_TEST

START_TEST(steal_gives_each_fd_once)
{
	struct fdlist list = FDLIST_NULL;
	int fd = fd_new();

	ck_assert_int_eq(fdlist_steal(&list, 0), -1);
	fdlist_consume(&list, fd);
	ck_assert_int_eq(fdlist_steal(&list, 1), -1);
	ck_assert_int_eq(fdlist_steal(&list, SIZE_MAX), -1);
	ck_assert_int_eq(fdlist_steal(&list, 0), fd);
	ck_assert_int_eq(fdlist_steal(&list, 0), -1);
	fdlist_deinit(&list);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(fd);
}
END_TEST

START_TEST(dup_leaves_the_original_alone)
{
	struct fdlist list = FDLIST_NULL;
	int fd = fd_new();

	ck_assert_int_eq(fdlist_dup(&list, fd), 0);
	ck_assert_int_ne(list.fds[0], fd);
	ck_assert_int_eq(fcntl(list.fds[0], F_GETFD), FD_CLOEXEC);
	fdlist_deinit(&list);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(fd);
}
END_TEST

START_TEST(dup_into_a_full_list_makes_no_copy)
{
	struct fdlist list = FDLIST_NULL;
	int fd = fd_new();

	for (int i = 0; i < VSD_FDS_MAX; i++)
		ck_assert_int_eq(fdlist_dup(&list, fd), 0);
	ck_assert_int_eq(fdlist_dup(&list, fd), -ENOSPC);
	fdlist_deinit(&list);
	close(fd);
}
END_TEST

START_TEST(dup_at_the_limit_says_so)
{
	struct fdlist list = FDLIST_NULL;
	struct rlimit old, none = { 0, 0 };
	int fd = fd_new();

	getrlimit(RLIMIT_NOFILE, &old);
	none.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);

	int r = fdlist_dup(&list, fd);

	setrlimit(RLIMIT_NOFILE, &old);
	/* F_DUPFD says EINVAL when even its lowest number is above the limit. */
	ck_assert_msg(r == -EMFILE || r == -EINVAL, "%d", r);
	ck_assert_uint_eq(list.n, 0);
	close(fd);
}
END_TEST

START_TEST(deinit_keeps_errno_and_may_be_repeated)
{
	struct fdlist list = FDLIST_NULL;

	fdlist_consume(&list, fd_new());
	errno = EXDEV;
	fdlist_deinit(&list);
	fdlist_deinit(&list);
	ck_assert_int_eq(errno, EXDEV);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fdlist");
	TCase *tcase = harness_tcase(suite, "fdlist");

	tcase_add_test(tcase, full_list_closes_what_it_refuses);
	tcase_add_test(tcase, bad_fd_is_refused);
	tcase_add_test(tcase, steal_gives_each_fd_once);
	tcase_add_test(tcase, dup_leaves_the_original_alone);
	tcase_add_test(tcase, dup_into_a_full_list_makes_no_copy);
	tcase_add_test(tcase, dup_at_the_limit_says_so);
	tcase_add_test(tcase, deinit_keeps_errno_and_may_be_repeated);
	return harness_run(suite);
}
