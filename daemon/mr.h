/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. The daemon knows their bounds and keys for listings and accounting; their pages are the client's, or
 * those of a shared region.
 */
#ifndef DAEMON_MR_H
#define DAEMON_MR_H

#include <stdbool.h>

#include "daemon/object.h"

struct region;
struct server;

struct mr_attr {
	uint64_t addr, length, iova;
	uint32_t access;
	uint32_t dm; /* on this device memory, of which addr is an offset; 0: on the client's memory */
};

struct mr {
	struct object object;
	struct mr_attr attr;
	uint32_t key;
	struct region *region; /* NULL: an ordinary one */
	bool writable;         /* its process may write the region */
};

/* -EINVAL: bad PD, key outside the lease, bounds or access flags that no device takes. -EEXIST: key in use. */
int mr_new(struct attachment *attachment, uint32_t pd, uint32_t key, const struct mr_attr *attr,
	struct object **mr);
/*
 * On all of a shared region. It has the region's key, or @spare_key (of the lease) when its process has an MR with that one
 * already. -EACCES: @access needs more than @writable.
 */
int mr_new_on_region(struct attachment *attachment, uint32_t pd, struct region *region,
	bool writable, uint32_t access, uint32_t spare_key, struct object **mr);
/* A PD or a parent domain. */
const struct object *mr_pd(const struct mr *mr);
/* The MR of @session's process with this key, if it is on a region. */
const struct mr *mr_on_region(const struct server *server, uint64_t session, uint32_t key);

/* Fields with a NULL pointer stay. On failure the region is unchanged. */
struct mr_change {
	const uint32_t *pd, *access;
	const uint64_t *addr, *length, *iova;
};
int mr_change(struct attachment *attachment, uint32_t handle, const struct mr_change *change);

#endif
