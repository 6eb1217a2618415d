/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. The daemon knows their bounds and keys for listings and accounting; their pages are the client's, or
 * those of a shared region.
 */
#ifndef DAEMON_MR_H
#define DAEMON_MR_H

#include <stdbool.h>

#include "daemon/object.h"

struct context;
struct region;
struct server;

struct mr_attr {
	uint64_t addr, length, iova;
	uint32_t access;
	uint32_t dm; /* on this device memory, of which addr is an offset; 0: on the client's memory */
	uint32_t heap; /* addr is at offset of this heap region of the process's; 0: it is no part of one */
	uint64_t offset;
};

enum { MR_REF_PD, MR_REF_DM, MR_REFS };

struct mr {
	struct object object;
	struct mr_attr attr;
	uint32_t key;
	struct region *region; /* NULL: an ordinary one. All of it, or a part of a heap (attr.heap) */
	bool writable;         /* its process may write the region */
	bool leased;           /* its key is of the lease */
	bool listed;           /* in the server's tree of those with a key of another's */
	bool imported;         /* on memory of another process's, where attr.addr is */
	/* Of those that their process registers by itself (mr_place.h): */
	struct list link_place; /* of its attachment */
	uint32_t place;         /* one more than its index in the page; 0: it was registered by a request */
	uint64_t gen;           /* what was last seen there; 0: nothing, or nothing whole */
	bool there;             /* and it is registered */
};

/* Bounds and access flags that a device takes: 0 or -EINVAL. */
int mr_check(const struct context *context, const struct mr_attr *attr);

/* -EINVAL: bad PD, key outside the lease, bounds or access flags that no device takes. -EEXIST: key in use. */
int mr_new(struct attachment *attachment, uint32_t pd, uint32_t key, const struct mr_attr *attr,
	struct object **mr);
/*
 * On all of a shared region. It has the region's key, or @spare_key (of the lease) when its process has an MR with that one
 * already. -EACCES: @access needs more than @writable.
 */
int mr_new_on_region(struct attachment *attachment, uint32_t pd, struct region *region,
	bool writable, uint32_t access, uint32_t spare_key, struct object **mr);
/*
 * On the memory that another process's @from is on, which is no region; with the key of that one, or @spare_key as above.
 * -EOPNOTSUPP: nobody but its process can have that memory.
 */
int mr_new_like(struct attachment *attachment, uint32_t pd, const struct mr *from,
	uint32_t spare_key, struct object **mr);
/* The device memory that it is on, or NULL. */
const struct object *mr_dm(const struct mr *mr);
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
