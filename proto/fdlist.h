/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A list of owned fds, as they came with a frame or shall go with one. What is not stolen is closed with the list.
 */
#ifndef PROTO_FDLIST_H
#define PROTO_FDLIST_H

#include <stddef.h>

#include "proto/limits.h"

struct fdlist {
	int fds[VSD_FDS_MAX];
	size_t n;
};

#define FDLIST_NULL { .fds = { -1, -1, -1, -1 }, .n = 0 }

void fdlist_deinit(struct fdlist *list);
/* Takes over @fd, also when it fails (-ENOSPC), in which case @fd is closed. */
int fdlist_consume(struct fdlist *list, int fd);
/* A copy (F_DUPFD_CLOEXEC) of @fd. */
int fdlist_dup(struct fdlist *list, int fd);
/* The caller owns what it gets; -1 when there is none at @i or it was stolen already. */
int fdlist_steal(struct fdlist *list, size_t i);

#endif
