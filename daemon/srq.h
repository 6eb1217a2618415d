/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues.
 */
#ifndef DAEMON_SRQ_H
#define DAEMON_SRQ_H

#include "daemon/object.h"

struct process;
struct server;
struct xrc_domain;

struct srq_attr {
	uint32_t max_wr, max_sge, type;
	uint32_t cq, xrcd, number; /* of an XRC SRQ, 0: not given */
	uint32_t max_tags; /* 0: it has no tags */
};

/* -EINVAL: sizes out of range, no such PD, CQ or XRCD. -EOPNOTSUPP: a type that is neither basic nor XRC. */
int srq_new(struct attachment *attachment, uint32_t pd, const struct srq_attr *attr,
	struct object **srq);
bool srq_is_xrc(const struct object *srq);
/* The living process that has the XRC SRQ with this number, if that is in @domain; NULL otherwise. */
struct process *srq_process(
	const struct server *server, uint32_t number, const struct xrc_domain *domain);

/* Its queue has another size, and if @max_tags is not 0 a list of so many tags. On failure it is charged as it was. */
int srq_modify(struct attachment *attachment, uint32_t handle, uint32_t max_wr, uint32_t max_tags);

#endif
