/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: a memfd of the daemon's that clients map. It is the context's, as a PD is, so that whoever has the context
 * can import it.
 */
#ifndef DAEMON_DM_H
#define DAEMON_DM_H

#include "daemon/object.h"

struct session;

/* -EINVAL: a size that no device has; -ENOMEM: the context has no more of it. */
int dm_new(struct attachment *attachment, uint64_t length, struct object **dm);
struct object *dm_get(const struct attachment *attachment, uint32_t handle);
/* Bytes that clients asked for, and bytes of its file. */
uint64_t dm_length(const struct object *dm);
uint64_t dm_size(const struct object *dm);
/* An fd of it for a client. */
int dm_fd(const struct object *dm);

#endif
