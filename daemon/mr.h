/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. The daemon knows their bounds and keys for listings and accounting; their pages are the client's.
 */
#ifndef DAEMON_MR_H
#define DAEMON_MR_H

#include "daemon/object.h"

struct mr_attr {
	uint64_t addr, length, iova;
	uint32_t access;
};

/* -EINVAL: bad PD, key outside the lease, bounds or access flags that no device takes. -EEXIST: key in use. */
int mr_new(struct attachment *attachment, uint32_t pd, uint32_t key, const struct mr_attr *attr,
	struct object **mr);
/* Fields with a NULL pointer stay. On failure the region is unchanged. */
struct mr_change {
	const uint32_t *pd, *access;
	const uint64_t *addr, *length, *iova;
};
int mr_change(struct attachment *attachment, uint32_t handle, const struct mr_change *change);

#endif
