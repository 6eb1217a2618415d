/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues.
 */
#ifndef DAEMON_SRQ_H
#define DAEMON_SRQ_H

#include "daemon/object.h"

struct srq_attr {
	uint32_t max_wr, max_sge, type;
};

/* -EINVAL: sizes out of range, no such PD. -EOPNOTSUPP: a type that is not basic. */
int srq_new(struct attachment *attachment, uint32_t pd, const struct srq_attr *attr,
	struct object **srq);

#endif
