/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is at the other end of a socket, as the kernel noted it when that connected.
 */
#ifndef DAEMON_PEER_H
#define DAEMON_PEER_H

#include <sys/types.h>

/* The groups of the peer, @gid among them, to be freed; *@n: how many. NULL: no memory, or not known. */
gid_t *peer_groups(int fd, gid_t gid, unsigned *n);

#endif
