/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For files that stand in the way of functions of libc. Such a file begins with
 *
 *	#undef _FORTIFY_SOURCE
 *	#define _FORTIFY_SOURCE 0
 *
 * since the checking wrappers of the headers would stand in the way of the definitions, and names those functions for
 * INTERPOSE_NEXT.
 */
#ifndef CLIENT_INTERPOSE_H
#define CLIENT_INTERPOSE_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

/* What compilers call in place of the plain functions when they know the size of a buffer, and what old headers call. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int fd, const char *path, int flags);
int __openat64_2(int fd, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);

#define INTERPOSE_POINTER(name) __typeof__(&name) name;
#define INTERPOSE_FIND(name) next.name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

/* `next`, the next definition of each function, found before main() where that is possible. */
#define INTERPOSE_NEXT(functions)                                                                                     \
	static struct {                                                                                               \
		functions(INTERPOSE_POINTER)                                                                          \
	} next;                                                                                                       \
                                                                                                                      \
	__attribute__((constructor)) static void next_find(void)                                                      \
	{                                                                                                             \
		functions(INTERPOSE_FIND)                                                                             \
	}

/* The next definition of the function. Before the constructor ran there is one thread, and no signal handler yet. */
#define NEXT(name) (next.name ? next.name : (next_find(), next.name))

/* Sets `mode`, which is there only when a file may be made. */
#define MODE_TAKE(flags)                                                                                              \
	mode_t mode = 0;                                                                                              \
                                                                                                                      \
	if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                \
		va_list args;                                                                                         \
                                                                                                                      \
		va_start(args, flags);                                                                                \
		mode = va_arg(args, mode_t);                                                                          \
		va_end(args);                                                                                         \
	}

#endif
