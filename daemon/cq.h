/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues. The queue itself is the client's memory; its bytes are charged here.
 */
#ifndef DAEMON_CQ_H
#define DAEMON_CQ_H

#include <stdbool.h>

#include "daemon/object.h"

/* @parent_domain is 0 for none. -EINVAL: cqe out of range, no such parent domain. */
int cq_new(struct attachment *attachment, uint32_t cqe, bool channel, uint32_t parent_domain,
	struct object **cq);
int cq_resize(struct attachment *attachment, uint32_t handle, uint32_t cqe);

#endif
