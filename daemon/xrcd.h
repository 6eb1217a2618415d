/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains. Each open is an object of its process's; those that name one inode stand on one struct xrc_domain, which
 * lives until the last of them is closed, and has what no process has for itself: the numbers of XRC receive QPs.
 */
#ifndef DAEMON_XRCD_H
#define DAEMON_XRCD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/list.h"
#include "daemon/object.h"

struct device;
struct domain;
struct server;

/* An inode, as the clients of a trust domain see it; there is one or there is none. */
struct xrcd_file {
	bool has;
	uint64_t device, inode;
};

struct xrc_domain {
	struct server *server;
	struct device *device;
	struct domain *domain;
	struct xrcd_file file;
	unsigned refs;
	uint32_t number;
	struct list leases; /* of numbers of receive QPs */
	uint32_t last;      /* the last one that was given */
};

struct xrcd_how {
	struct xrcd_file file;
	bool create, exclusive;
};

/* -EAGAIN: it is not there, and not to be created; -EINVAL: it is, and was to be new. */
int xrcd_open(struct attachment *attachment, const struct xrcd_how *how, struct object **xrcd);
struct xrc_domain *xrcd_domain(const struct object *xrcd);
/* A number of the domain's for a receive QP, and back. */
int xrc_number_take(struct xrc_domain *domain, uint32_t *number);
void xrc_number_give(struct xrc_domain *domain, uint32_t number);
struct xrc_domain *xrc_domain_ref(struct xrc_domain *domain);
struct xrc_domain *xrc_domain_unref(struct xrc_domain *domain);

#endif
