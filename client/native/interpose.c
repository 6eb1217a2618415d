/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of libc by which a program, or a library in it, opens the node of a real device. Each does what its namesake
 * does; only where the kernel refuses one of those few paths is the daemon asked. Any other path costs a failed call one
 * comparison, a successful one nothing; no lock and no heap, so that what may be called in a signal handler still may.
 *
 * In the shared libraries only, not in what unit tests link.
 */
/* The checking wrappers of the headers would stand in the way of the definitions. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 0

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "client/interpose.h"
#include "client/native/native.h"

#define FUNCTIONS(X)                                                                                                  \
	X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2) X(__openat64_2)               \
	X(stat) X(stat64) X(fstatat) X(fstatat64) X(access) X(faccessat) X(eaccess) X(euidaccess) X(write)

INTERPOSE_NEXT(FUNCTIONS)

/* The head of every path that can be meant. */
static bool is_device(const char *path)
{
	return path && strncmp(path, "/dev/", 5) == 0;
}

/* --- open ------------------------------------------------------------------------------------------------------------ */

static int opened(int fd, const char *path, int flags)
{
	char node[32];
	int error = errno;

	if (fd >= 0 || !is_device(path) || !native_node(path, error, node))
		return fd;
	return native_open(node, flags, error);
}

SHOWN int open(const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	return opened(NEXT(open)(path, flags, mode), path, flags);
}

SHOWN int open64(const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	return opened(NEXT(open64)(path, flags, mode), path, flags);
}

SHOWN int openat(int fd, const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	return opened(NEXT(openat)(fd, path, flags, mode), path, flags);
}

SHOWN int openat64(int fd, const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	return opened(NEXT(openat64)(fd, path, flags, mode), path, flags);
}

SHOWN int __open_2(const char *path, int flags)
{
	return opened(NEXT(__open_2)(path, flags), path, flags);
}

SHOWN int __open64_2(const char *path, int flags)
{
	return opened(NEXT(__open64_2)(path, flags), path, flags);
}

SHOWN int __openat_2(int fd, const char *path, int flags)
{
	return opened(NEXT(__openat_2)(fd, path, flags), path, flags);
}

SHOWN int __openat64_2(int fd, const char *path, int flags)
{
	return opened(NEXT(__openat64_2)(fd, path, flags), path, flags);
}

/* --- stat ------------------------------------------------------------------------------------------------------------ */

/* Whether a path that is not there is a node that the daemon has; its number is in *@rdev. */
static bool shown(int r, const char *path, dev_t *rdev)
{
	char node[32];

	return r < 0 && is_device(path) && native_node(path, errno, node) && native_granted(node, rdev);
}

/* What stat() would say of a node of this user's. */
#define STAT_FILL(st, number)                                                                                         \
	do {                                                                                                          \
		memset(st, 0, sizeof(*(st)));                                                                         \
		(st)->st_mode = S_IFCHR | 0600;                                                                       \
		(st)->st_nlink = 1;                                                                                   \
		(st)->st_uid = geteuid();                                                                             \
		(st)->st_gid = getegid();                                                                             \
		(st)->st_rdev = number;                                                                               \
		(st)->st_blksize = 4096;                                                                              \
	} while (0)

#define STAT(call)                                                                                                    \
	do {                                                                                                          \
		int r = call;                                                                                         \
		dev_t rdev;                                                                                           \
                                                                                                                      \
		if (!shown(r, path, &rdev))                                                                           \
			return r;                                                                                     \
		STAT_FILL(st, rdev);                                                                                  \
		return 0;                                                                                             \
	} while (0)

SHOWN int stat(const char *path, struct stat *st)
{
	STAT(NEXT(stat)(path, st));
}

SHOWN int stat64(const char *path, struct stat64 *st)
{
	STAT(NEXT(stat64)(path, st));
}

SHOWN int fstatat(int fd, const char *path, struct stat *st, int flags)
{
	STAT(NEXT(fstatat)(fd, path, st, flags));
}

SHOWN int fstatat64(int fd, const char *path, struct stat64 *st, int flags)
{
	STAT(NEXT(fstatat64)(fd, path, st, flags));
}

/* The functions of before glibc 2.33; the version of the struct has always been the same. */
SHOWN int __xstat(int version, const char *path, struct stat *st)
{
	return stat(path, st);
}

SHOWN int __xstat64(int version, const char *path, struct stat64 *st)
{
	return stat64(path, st);
}

/* --- access ---------------------------------------------------------------------------------------------------------- */

static int accessed(int r, const char *path, int mode)
{
	dev_t rdev;

	return !(mode & X_OK) && shown(r, path, &rdev) ? 0 : r;
}

SHOWN int access(const char *path, int mode)
{
	return accessed(NEXT(access)(path, mode), path, mode);
}

SHOWN int faccessat(int fd, const char *path, int mode, int flags)
{
	return accessed(NEXT(faccessat)(fd, path, mode, flags), path, mode);
}

SHOWN int eaccess(const char *path, int mode)
{
	return accessed(NEXT(eaccess)(path, mode), path, mode);
}

SHOWN int euidaccess(const char *path, int mode)
{
	return accessed(NEXT(euidaccess)(path, mode), path, mode);
}

/* --- write ----------------------------------------------------------------------------------------------------------- */

SHOWN ssize_t write(int fd, const void *bytes, size_t n)
{
	ssize_t r = NEXT(write)(fd, bytes, n);

	if (r < 0 && errno == EACCES && doorbell_wanted)
		return doorbell_write(fd, bytes, n);
	return r;
}
