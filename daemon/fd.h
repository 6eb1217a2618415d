/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Making fds that clients get: memfds, reopened files, pipes. All are close-on-exec. None is made when the daemon
 * comes near its own limit (-ENFILE), so that it can always accept, log and clean up.
 */
#ifndef DAEMON_FD_H
#define DAEMON_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fds below the limit that are kept for the daemon itself. */
#define FD_RESERVE 64

/* Reads RLIMIT_NOFILE; raises the soft limit to the hard one. */
void fd_limit_init(void);
unsigned fd_limit(void);
/* How many fds are open now. */
unsigned fd_count(void);
/* Whether @fd (not negative) is below the reserve. */
bool fd_fits(int fd);
/* Passes @fd (or -errno when it is -1) on; closes it and says -ENFILE when it is too high. */
int fd_admit(int fd);

/* A memfd of @size bytes, mode 0600, sealed against shrinking, growing and further seals. */
int memfd_new(const char *name, uint64_t size);
/*
 * The same, but further seals may be put on it. @huge: MFD_HUGETLB with a size of pages, or 0. -ENODEV, -EINVAL or -ENOSYS:
 * there are no such pages.
 */
int memfd_open(const char *name, uint64_t size, unsigned huge);
/* A memfd with these bytes in it that nobody can change, open for reading only. */
int memfd_const(const char *name, const void *bytes, size_t n);
/* A new open file description of the same file. */
int fd_reopen(int fd, int flags);
/* Read end (non-blocking) and write end (non-blocking) of a pipe. */
int pipe_new(int *read_end, int *write_end);

#endif
