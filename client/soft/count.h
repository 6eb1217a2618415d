/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The counts of our semaphore eventfds. By syscall(), since read() and write() are cancellation points: a thread that
 * is cancelled inside a verb would leave our locks held.
 */
#ifndef SOFT_COUNT_H
#define SOFT_COUNT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static inline void count_add(int fd)
{
	uint64_t one = 1;

	while (syscall(SYS_write, fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Takes one without waiting, whatever O_NONBLOCK says; false: there was none. */
static inline bool count_take(int fd)
{
	uint64_t one;
	struct iovec iov = { &one, sizeof(one) };
	long n;

	do {
		n = syscall(SYS_preadv2, fd, &iov, 1ul, -1l, -1l, RWF_NOWAIT);
	} while (n < 0 && errno == EINTR);
	return n == sizeof(one);
}

#endif
