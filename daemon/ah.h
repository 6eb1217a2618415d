/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles.
 */
#ifndef DAEMON_AH_H
#define DAEMON_AH_H

#include "daemon/object.h"

/* @gid may be NULL. -EINVAL: no such PD, no such port, no GID on Ethernet. */
int ah_new(struct attachment *attachment, uint32_t pd, uint32_t port, uint32_t dlid,
	const uint8_t *gid, struct object **ah);

#endif
