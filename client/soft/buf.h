/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue buffers, from the parent domain's allocator where the object has one (ibv_alloc_parent_domain(3)).
 */
#ifndef SOFT_BUF_H
#define SOFT_BUF_H

#include <stddef.h>
#include <stdint.h>

struct soft_pd;

/* The lower half of resource_type, one a kind of buffer; programs know these numbers (verbsd-parent-domain(7)). */
enum buf_resource {
	BUF_CQ = 1,  /* completions */
	BUF_QP = 2,  /* sends and receives, with their scatter lists and inline data */
	BUF_SRQ = 3, /* receives, with their scatter lists */
};

/* The upper half: the number that stands for verbsd where others have one of enum rdma_driver_id. */
#define BUF_DRIVER 0x7653ull
#define BUF_ALIGN 64u

/*
 * NULL: no memory. @pd may be NULL or a plain PD. What one allocator gave, buf_free() gives back to the same. The bytes
 * may be anything: the program's allocator is to zero them, and nobody relies on it. Programs' functions are called, so
 * no lock is held here.
 */
void *buf_alloc(struct soft_pd *pd, size_t size, enum buf_resource resource);
void buf_free(struct soft_pd *pd, void *buf, enum buf_resource resource);

#endif
