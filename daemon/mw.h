/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows. Binding is the client's; the daemon counts them and keeps their keys apart.
 */
#ifndef DAEMON_MW_H
#define DAEMON_MW_H

#include "daemon/object.h"

/* @type is enum ibv_mw_type. */
int mw_new(struct attachment *attachment, uint32_t pd, uint32_t type, uint32_t key,
	struct object **mw);

#endif
