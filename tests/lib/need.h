/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For programs that are a test: what has to be so. Otherwise a line on stderr says where and what, and the process ends with
 * status 1, without a word to those who share its fds.
 */
#ifndef TESTS_LIB_NEED_H
#define TESTS_LIB_NEED_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline _Noreturn void need_failed(const char *function, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not so: %s (errno %s)\n", function, line, what, strerror(errno));
	_exit(1);
}

#define NEED(condition)                                             \
	do {                                                        \
		if (!(condition))                                   \
			need_failed(__func__, __LINE__, #condition); \
	} while (0)

/* The call returns nothing (NULL, 0, false) and errno says why. */
#define REFUSED(call, error)           \
	do {                              \
		errno = 0;                \
		NEED(!(call));            \
		NEED(errno == (error));   \
	} while (0)

#endif
