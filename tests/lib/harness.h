/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harness of every unit test: one runner, and the fixture that makes a leaked fd fail the test that leaked it.
 */
#ifndef TESTS_LIB_HARNESS_H
#define TESTS_LIB_HARNESS_H

#include <check.h>

/* An address where nothing lies, and where memory may: ThreadSanitizer has a shadow for few. */
#define HARNESS_BASE 0x200000000000ull
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef HARNESS_BASE
#define HARNESS_BASE 0x7e9000000000ull
#endif
#endif

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
