/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harness exists so that a test program's main is one line and each test answers for its own fds: fixtures run in
 * the forked child of their test, so the number of open fds belongs to that test alone.
 */
#include "tests/lib/harness.h"

#include <dirent.h>
#include <stdlib.h>

static int fds_at_setup;

/*
 * The limits of test cases are what they take on a machine that is idle, many times over. They are for what hangs, so that a
 * busy machine, a sanitizer and an emulated processor together reach none of them.
 */
__attribute__((constructor)) static void be_patient(void)
{
	(void)setenv("CK_TIMEOUT_MULTIPLIER", "20", 0);
}

int harness_fds_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* the folder itself */
}

void harness_fds_setup(void)
{
	fds_at_setup = harness_fds_open();
}

void harness_fds_teardown(void)
{
	ck_assert_msg(harness_fds_open() == fds_at_setup, "%d fds open before the test, %d after",
		fds_at_setup, harness_fds_open());
}

TCase *harness_tcase(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, harness_fds_setup, harness_fds_teardown);
	tcase_set_timeout(tcase, 2);
	suite_add_tcase(suite, tcase);
	return tcase;
}

int harness_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
