/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions that clients have for their real devices. The daemon registers one on a PD of the client's through its
 * dup of the device's file; or, where only the client's driver can, it keeps the region alive and the client registers
 * its own mapping.
 */
#ifndef DAEMON_NATIVE_REGION_H
#define DAEMON_NATIVE_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/account.h"
#include "daemon/list.h"

struct call;
struct native;
struct region;
struct session;

struct native_region {
	struct list link; /* in the native's, or the session's when there is none */
	struct session *session;
	struct native *native; /* NULL: the client opened the device itself */
	uint32_t id;
	struct region *region; /* referenced */
	bool writable;	       /* by the client */
	uint32_t access;
	bool registers;	 /* the daemon would, */
	bool registered; /* and has: */
	uint32_t handle; /* the kernel's */
	struct native_domain_mr *shared; /* of a domain context: the registration that others have, too */
	struct charge charge, pinned;
};

/* @native may be NULL. 0 or a negative errno. */
int native_region_new(struct session *session, struct native *native, struct region *region, bool writable,
	uint32_t access, struct native_region **made);
/* NULL: the session has none of that number. */
struct native_region *native_region_get(const struct session *session, uint32_t id);
/* It was not registered, or that is over. */
void native_region_free(struct native_region *region);

/* Handlers, from where these have found out what is meant: registers it on that PD, or ends it. */
int native_region_register(struct call *call, struct native_region *region, uint32_t pd);
int native_region_release(struct call *call, struct native_region *region);

/* The native is closed: its regions go, and @fd, its file, after them. */
void native_regions_end(struct native *native, int fd);
/* The session ends: those without a native go. */
void native_regions_drop(struct session *session);

#endif
