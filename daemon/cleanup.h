/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cleanup attributes: what a function owns until it gives it away.
 */
#ifndef DAEMON_CLEANUP_H
#define DAEMON_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close)))
#define CLEANUP_FREE  __attribute__((cleanup(cleanup_free)))

static inline int fd_steal(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#define PTR_STEAL(p)                                                                              \
	({                                                                                        \
		__typeof__(p) stolen_ = (p);                                                      \
		(p) = NULL;                                                                       \
		stolen_;                                                                          \
	})

#endif
