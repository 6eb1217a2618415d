/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: rights depend on groups, and the socket keeps them, so that nobody else has to. Guarantees: what a process
 * became after it connected does not count.
 */
#include "daemon/peer.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>

#define GROUPS_MAX 65536

gid_t *peer_groups(int fd, gid_t gid, unsigned *n)
{
	socklen_t size = 0;
	gid_t *groups;

	/* cppcheck-suppress nullPointer ; asks for the size */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0 &&
		(errno != ERANGE || size > GROUPS_MAX * sizeof(gid_t)))
		size = 0;
	groups = malloc(size + sizeof(gid_t));
	if (!groups)
		return NULL;
	if (size > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		size = 0;
	*n = size / sizeof(gid_t);
	groups[(*n)++] = gid;
	return groups;
}
