/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parent domains: a PD together with a TD.
 */
#ifndef DAEMON_PARENT_DOMAIN_H
#define DAEMON_PARENT_DOMAIN_H

#include "daemon/object.h"

/* @td is 0 for none. -EINVAL when @pd is no PD (a parent domain is none) or @td no TD. */
int parent_domain_new(
	struct attachment *attachment, uint32_t pd, uint32_t td, struct object **parent_domain);

#endif
