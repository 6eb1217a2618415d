/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a client may send fds although nobody wants any, and to drop one is to close it. Guarantees: where the kernel
 * cannot refuse them, a record is looked at before it is taken, one with fds is never taken, and the socket that holds
 * it is closed by a thread that may hang.
 */
#include "daemon/inlet.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/worker.h"
#include "proto/sock.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static bool careful_now;

void inlet_protect(int fd)
{
	int off = 0;

	if (setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) < 0)
		careful_now = true;
}

void inlet_careful(bool careful)
{
	careful_now = careful;
}

int inlet_recv(int fd, void *buf, size_t size, size_t *length)
{
	*length = 0;
	if (careful_now && sock_has_fds(fd))
		return -EPROTO;
	return sock_recv(fd, buf, size, false, NULL, length);
}

void inlet_close(struct worker *worker, int fd)
{
	if (careful_now)
		worker_close(worker, fd);
	else if (fd >= 0)
		close(fd);
}
