/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue buffers: zeroed, from the parent domain's allocator where the object has one (ibv_alloc_parent_domain(3)).
 */
#ifndef SOFT_BUF_H
#define SOFT_BUF_H

#include <stddef.h>
#include <stdint.h>

struct soft_pd;

/* The lower half of resource_type; the upper half is the driver's number. */
enum buf_resource { BUF_CQ = 1, BUF_QP = 2, BUF_SRQ = 3 };

#define BUF_DRIVER 0x7653ull

/* NULL: no memory. @pd may be NULL or a plain PD. What one allocator gave, buf_free() gives back to the same. */
void *buf_alloc(struct soft_pd *pd, size_t size, enum buf_resource resource);
void buf_free(struct soft_pd *pd, void *buf, enum buf_resource resource);

#endif
