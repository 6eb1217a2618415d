/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walking over everything that a session may see, in an order that survives what comes and goes between two pages:
 * by session, then its client line, its attachments' objects by handle, its real contexts, its wires by segment and index; at last the
 * regions by number.
 */
#ifndef DAEMON_LIST_WALK_H
#define DAEMON_LIST_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/item.h"

struct domain;
struct object;
struct region;
struct server;
struct session;
struct wire;

enum walk_stage {
	WALK_CLIENT,
	WALK_CONTEXTS,
	WALK_NATIVES,
	WALK_WIRES,
	WALK_REGIONS, /* behind all sessions */
	WALK_GROUPS,  /* of multicast, behind all regions */
};

#define WALK_NO_SESSION UINT64_MAX

/* The place of the item that comes next. */
struct cursor {
	uint64_t session; /* its id, or of the first one above it; WALK_NO_SESSION: behind them */
	enum walk_stage stage;
	uint32_t major; /* attachment, or segment */
	uint32_t minor; /* handle, number of a real context, index in the segment, or number of a region */
};

struct walk {
	const struct session *viewer;
	bool all;              /* every domain */
	enum object_type type; /* 0: every type */
	struct cursor at;
	unsigned budget;               /* places looked at, counted down; the page ends at 0 */
	const struct session *session; /* of the item that was found; NULL: it is a region */
};

/* Whether @viewer may see what belongs to @domain. */
bool walk_may_see(const struct session *viewer, bool all, const struct domain *domain);
/*
 * Finds the item at or after the cursor, and leaves the cursor at it. 1: found; 0: no more; -EAGAIN: the budget is
 * used up.
 */
int walk_next(struct walk *walk, struct item *item);
/* Goes on behind the item that was found. */
void walk_skip(struct walk *walk);

void item_of_client(const struct session *session, struct item *item);
void item_of_region(const struct region *region, struct item *item);
void item_of_object(const struct session *session, uint32_t context, const struct object *object,
	struct item *item);

#endif
