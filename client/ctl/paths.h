/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a program that looks for RDMA devices in /dev and /sys by itself finds the soft ones.
 */
#ifndef CLIENT_CTL_PATHS_H
#define CLIENT_CTL_PATHS_H

enum paths {
	PATHS_AUTO,	 /* PATHS_INTERPOSE; when that cannot be had, one line says why, and the program runs */
	PATHS_INTERPOSE, /* functions of libc are preloaded that look into a folder of ours too */
	PATHS_NAMESPACE, /* in a mount namespace */
	PATHS_NONE,
};

/* 0, or -EINVAL for an unknown name. */
int paths_parse(const char *name, enum paths *paths);

/*
 * For the devices of the daemon at @socket; without a daemon there is nothing to show. @folder is where files may be put
 * that the caller removes; NULL: they are kept for the next run. 0, or an exit code: said why.
 */
int paths_set(enum paths paths, const char *socket, const char *folder);

#endif
