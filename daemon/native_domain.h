/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domain contexts: one file of a real device that members of one trust domain have in common, with a PD in it and regions
 * that are registered there once. Whoever has the file can do anything to what is in it, so it is for those who trust each
 * other, and for providers that can import what others made.
 */
#ifndef DAEMON_NATIVE_DOMAIN_H
#define DAEMON_NATIVE_DOMAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/list.h"

struct domain;
struct native;
struct region;
struct server;

/* A region that is registered on its PD, for all who have it with these rights. */
struct native_domain_mr {
	struct list link;
	const struct region *region;
	uint32_t access;
	uint32_t handle, lkey, rkey;
	unsigned users;
};

struct native_domain {
	struct list link; /* in the server's */
	const struct domain *domain;
	char device[64];
	uint32_t pd; /* the kernel's handle */
	int fd;
	unsigned members; /* natives; it goes with the last */
	struct list mrs;
};

/* NULL: there is none. */
struct native_domain *native_domain_find(
	const struct server *server, const struct domain *domain, const char *device);
/* @native's file and that PD of it become its domain's; it is the first member. 0 or a negative errno. */
int native_domain_offer(struct native *native, uint32_t pd);
/* A member more, or less. */
void native_domain_join(struct native_domain *shared, struct native *native);
void native_domain_leave(struct native *native);

/* The registration of @region with these rights, with a user more. NULL: there is none. */
struct native_domain_mr *native_domain_mr_get(
	struct native_domain *shared, const struct region *region, uint32_t access);
/* A new one, with one user. NULL: no memory. */
struct native_domain_mr *native_domain_mr_new(struct native_domain *shared, const struct native_domain_mr *like);
/* A user less. True: that was the last one, and it is gone; the kernel's is to be undone. */
bool native_domain_mr_put(struct native_domain_mr *mr);

#endif
