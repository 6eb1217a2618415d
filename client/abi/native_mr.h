/* SPDX-License-Identifier: BSD-2-Clause */
/* MRs on shared regions whose PD is a real device's: the daemon registers them, or the device's own driver does. */
#ifndef CLIENT_ABI_NATIVE_MR_H
#define CLIENT_ABI_NATIVE_MR_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/control/control.h"
#include "client/soft/region.h"

/* What the daemon is asked for, and how the region's memory is made ready when that made it. */
struct native_mr_call {
	Vsd__NativeRegionRequest request;
	int (*prepare)(const struct soft_region *region, const void *arg);
	const void *arg;
};

/* How a request names such an MR. */
struct native_mr_name {
	uint32_t handle;
	uint32_t rkey;
	unsigned access;
	bool writable;
};

/* A new one; NULL with errno. @created may be NULL. */
struct ibv_mr *native_mr_new(struct ibv_pd *pd, struct native_mr_call *call, bool *created);
/* -EINVAL: @mr is none; -ENOTCONN: it is a parent's, or the daemon that knew it is gone. */
int native_mr_name(const struct ibv_mr *mr, struct native_mr_name *name);
/* False: @mr is none of them. Otherwise *@r is what ibv_dereg_mr() returns. */
bool native_mr_dereg(struct ibv_mr *mr, int *r);
/* Whether @mr is one. */
bool native_mr_is(const struct ibv_mr *mr);

#endif
