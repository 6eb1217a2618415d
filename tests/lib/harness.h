/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harness of every unit test: one runner, and the fixture that makes a leaked fd fail the test that leaked it.
 */
#ifndef TESTS_LIB_HARNESS_H
#define TESTS_LIB_HARNESS_H

#include <check.h>

/* Runs the suite as the environment says (TAP under make check) and frees it. For main: `return harness_run(...)`. */
int harness_run(Suite *suite);

/* A TCase of the suite with the fd fixture below and a time limit of two seconds. */
TCase *harness_tcase(Suite *suite, const char *name);

/* Checked fixture: setup notes the number of open fds, teardown asserts it. */
void harness_fds_setup(void);
void harness_fds_teardown(void);

/* Number of open fds of this process. */
int harness_fds_open(void);

#endif
