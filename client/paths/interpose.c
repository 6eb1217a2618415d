/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libverbsd-paths: functions of libc by which programs look for RDMA devices in /dev and /sys. `verbsctl run` preloads it.
 * Each does what its namesake does; what is not there is then looked for in the view. No lock and no heap, so that
 * what may be called in a signal handler or between fork and exec still may.
 */
/* The checking wrappers of the headers would stand in the way of the definitions. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 0

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>

#include "client/interpose.h"
#include "client/paths/view.h"

/* What compilers call in place of the plain functions when they know the size of a buffer, and what old headers call. */
ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t size, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int fd, const char *path, struct stat64 *st, int flags);

#define FUNCTIONS(X)                                                                                                  \
	X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2) X(__openat64_2)               \
	X(fopen) X(fopen64) X(stat) X(stat64) X(lstat) X(lstat64) X(fstatat) X(fstatat64) X(statx) X(access)          \
	X(faccessat) X(eaccess) X(euidaccess) X(opendir) X(scandir) X(scandir64) X(readlink) X(readlinkat)            \
	X(__readlink_chk) X(__readlinkat_chk) X(realpath) X(__realpath_chk) X(canonicalize_file_name) X(glob)         \
	X(glob64) X(chdir) X(getxattr) X(lgetxattr)

INTERPOSE_NEXT(FUNCTIONS)

/*
 * The body of a function: @call has the path as `at`. What is not there where the program looks is looked for in the
 * view, the two folders themselves first there.
 */
#define LOOK_UP(type, failure, path, call)                                                                            \
	do {                                                                                                          \
		char view[VIEW_MAX];                                                                                  \
		const char *at = view_folder(path, view) ? view : path;                                               \
		type result = call;                                                                                   \
                                                                                                                      \
		if (result == (failure) && errno == ENOENT && at != view && view_below(path, view)) {                 \
			at = view;                                                                                    \
			result = call;                                                                                \
		}                                                                                                     \
		return result;                                                                                        \
	} while (0)

/* --- open ------------------------------------------------------------------------------------------------------------ */

SHOWN int open(const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	LOOK_UP(int, -1, path, NEXT(open)(at, flags, mode));
}

SHOWN int open64(const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	LOOK_UP(int, -1, path, NEXT(open64)(at, flags, mode));
}

SHOWN int openat(int fd, const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	LOOK_UP(int, -1, path, NEXT(openat)(fd, at, flags, mode));
}

SHOWN int openat64(int fd, const char *path, int flags, ...)
{
	MODE_TAKE(flags)
	LOOK_UP(int, -1, path, NEXT(openat64)(fd, at, flags, mode));
}

SHOWN int __open_2(const char *path, int flags)
{
	LOOK_UP(int, -1, path, NEXT(__open_2)(at, flags));
}

SHOWN int __open64_2(const char *path, int flags)
{
	LOOK_UP(int, -1, path, NEXT(__open64_2)(at, flags));
}

SHOWN int __openat_2(int fd, const char *path, int flags)
{
	LOOK_UP(int, -1, path, NEXT(__openat_2)(fd, at, flags));
}

SHOWN int __openat64_2(int fd, const char *path, int flags)
{
	LOOK_UP(int, -1, path, NEXT(__openat64_2)(fd, at, flags));
}

SHOWN FILE *fopen(const char *path, const char *mode)
{
	LOOK_UP(FILE *, NULL, path, NEXT(fopen)(at, mode));
}

SHOWN FILE *fopen64(const char *path, const char *mode)
{
	LOOK_UP(FILE *, NULL, path, NEXT(fopen64)(at, mode));
}

/* --- stat ------------------------------------------------------------------------------------------------------------ */

SHOWN int stat(const char *path, struct stat *st)
{
	LOOK_UP(int, -1, path, NEXT(stat)(at, st));
}

SHOWN int stat64(const char *path, struct stat64 *st)
{
	LOOK_UP(int, -1, path, NEXT(stat64)(at, st));
}

SHOWN int lstat(const char *path, struct stat *st)
{
	LOOK_UP(int, -1, path, NEXT(lstat)(at, st));
}

SHOWN int lstat64(const char *path, struct stat64 *st)
{
	LOOK_UP(int, -1, path, NEXT(lstat64)(at, st));
}

SHOWN int fstatat(int fd, const char *path, struct stat *st, int flags)
{
	LOOK_UP(int, -1, path, NEXT(fstatat)(fd, at, st, flags));
}

SHOWN int fstatat64(int fd, const char *path, struct stat64 *st, int flags)
{
	LOOK_UP(int, -1, path, NEXT(fstatat64)(fd, at, st, flags));
}

SHOWN int statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
	LOOK_UP(int, -1, path, NEXT(statx)(fd, at, flags, mask, st));
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

SHOWN int __lxstat(int version, const char *path, struct stat *st)
{
	return lstat(path, st);
}

SHOWN int __lxstat64(int version, const char *path, struct stat64 *st)
{
	return lstat64(path, st);
}

SHOWN int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags)
{
	return fstatat(fd, path, st, flags);
}

SHOWN int __fxstatat64(int version, int fd, const char *path, struct stat64 *st, int flags)
{
	return fstatat64(fd, path, st, flags);
}

/* --- access ---------------------------------------------------------------------------------------------------------- */

SHOWN int access(const char *path, int mode)
{
	LOOK_UP(int, -1, path, NEXT(access)(at, mode));
}

SHOWN int faccessat(int fd, const char *path, int mode, int flags)
{
	LOOK_UP(int, -1, path, NEXT(faccessat)(fd, at, mode, flags));
}

SHOWN int eaccess(const char *path, int mode)
{
	LOOK_UP(int, -1, path, NEXT(eaccess)(at, mode));
}

SHOWN int euidaccess(const char *path, int mode)
{
	LOOK_UP(int, -1, path, NEXT(euidaccess)(at, mode));
}

/* `ls -l` asks for these of each file that it shows. */
SHOWN ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	LOOK_UP(ssize_t, -1, path, NEXT(getxattr)(at, name, value, size));
}

SHOWN ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	LOOK_UP(ssize_t, -1, path, NEXT(lgetxattr)(at, name, value, size));
}

/* --- folders --------------------------------------------------------------------------------------------------------- */

SHOWN int chdir(const char *path)
{
	LOOK_UP(int, -1, path, NEXT(chdir)(at));
}

SHOWN DIR *opendir(const char *path)
{
	LOOK_UP(DIR *, NULL, path, NEXT(opendir)(at));
}

SHOWN int scandir(const char *path, struct dirent ***entries, int (*want)(const struct dirent *),
	int (*order)(const struct dirent **, const struct dirent **))
{
	LOOK_UP(int, -1, path, NEXT(scandir)(at, entries, want, order));
}

SHOWN int scandir64(const char *path, struct dirent64 ***entries, int (*want)(const struct dirent64 *),
	int (*order)(const struct dirent64 **, const struct dirent64 **))
{
	LOOK_UP(int, -1, path, NEXT(scandir64)(at, entries, want, order));
}

static void folder_close(void *dir)
{
	closedir(dir);
}

/* glob() calls its own functions unless it is given others. */
SHOWN int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *result)
{
	if (view_covers(pattern) && !(flags & GLOB_ALTDIRFUNC)) {
		flags |= GLOB_ALTDIRFUNC;
		result->gl_opendir = (void *(*)(const char *))opendir;
		result->gl_readdir = (struct dirent * (*)(void *)) readdir;
		result->gl_closedir = folder_close;
		result->gl_stat = stat;
		result->gl_lstat = lstat;
	}
	return NEXT(glob)(pattern, flags, failed, result);
}

SHOWN int glob64(const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *result)
{
	if (view_covers(pattern) && !(flags & GLOB_ALTDIRFUNC)) {
		flags |= GLOB_ALTDIRFUNC;
		result->gl_opendir = (void *(*)(const char *))opendir;
		result->gl_readdir = (struct dirent64 * (*)(void *)) readdir64;
		result->gl_closedir = folder_close;
		result->gl_stat = stat64;
		result->gl_lstat = lstat64;
	}
	return NEXT(glob64)(pattern, flags, failed, result);
}

/* --- links ----------------------------------------------------------------------------------------------------------- */

SHOWN ssize_t readlink(const char *path, char *buf, size_t size)
{
	LOOK_UP(ssize_t, -1, path, NEXT(readlink)(at, buf, size));
}

SHOWN ssize_t readlinkat(int fd, const char *path, char *buf, size_t size)
{
	LOOK_UP(ssize_t, -1, path, NEXT(readlinkat)(fd, at, buf, size));
}

SHOWN ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room)
{
	LOOK_UP(ssize_t, -1, path, NEXT(__readlink_chk)(at, buf, size, room));
}

SHOWN ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t size, size_t room)
{
	LOOK_UP(ssize_t, -1, path, NEXT(__readlinkat_chk)(fd, at, buf, size, room));
}

SHOWN char *realpath(const char *path, char *resolved)
{
	LOOK_UP(char *, NULL, path, NEXT(realpath)(at, resolved));
}

SHOWN char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	LOOK_UP(char *, NULL, path, NEXT(__realpath_chk)(at, resolved, room));
}

SHOWN char *canonicalize_file_name(const char *path)
{
	LOOK_UP(char *, NULL, path, NEXT(canonicalize_file_name)(at));
}
