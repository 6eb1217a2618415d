/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owned fds on their way in or out of a frame. The list exists so that no path loses one: an fd
 * that was put in is closed by the list or stolen by somebody, on every error path too.
 */
#include "proto/fdlist.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void fdlist_deinit(struct fdlist *list)
{
	int saved = errno;

	for (size_t i = 0; i < list->n; i++) {
		if (list->fds[i] >= 0)
			close(list->fds[i]);
		list->fds[i] = -1;
	}
	list->n = 0;
	errno = saved;
}

int fdlist_consume(struct fdlist *list, int fd)
{
	if (fd < 0)
		return -EBADF;
	if (list->n >= VSD_FDS_MAX) {
		close(fd);
		return -ENOSPC;
	}
	list->fds[list->n++] = fd;
	return 0;
}

int fdlist_dup(struct fdlist *list, int fd)
{
	if (list->n >= VSD_FDS_MAX)
		return -ENOSPC;

	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : fdlist_consume(list, copy);
}

int fdlist_steal(struct fdlist *list, size_t i)
{
	if (i >= list->n)
		return -1;

	int fd = list->fds[i];

	list->fds[i] = -1;
	return fd;
}
