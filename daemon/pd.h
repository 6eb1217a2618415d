/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains. They are the context's: any process attached to it may use and destroy them.
 */
#ifndef DAEMON_PD_H
#define DAEMON_PD_H

#include "daemon/object.h"

struct pd {
	struct object object;
	uint32_t number; /* no other PD's */
};

int pd_new(struct attachment *attachment, struct object **pd);
/* The PD that a PD or parent domain is. */
const struct object *pd_base(const struct object *pd);
/* A PD, or a parent domain in its place. NULL: neither. */
struct object *pd_get(const struct attachment *attachment, uint32_t handle);

#endif
