/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One line of a listing, as plain values. Strings are borrowed.
 */
#ifndef DAEMON_ITEM_H
#define DAEMON_ITEM_H

#include <stdint.h>

#include "daemon/object.h"
#include "daemon/rdma_nl.h"
#include "daemon/users.h"

enum item_field {
	ITEM_NUMBER = 1 << 0,
	ITEM_PD = 1 << 1,
	ITEM_PARENT = 1 << 2,
	ITEM_SEND_CQ = 1 << 3,
	ITEM_RECV_CQ = 1 << 4,
	ITEM_SRQ = 1 << 5,
	ITEM_ADDR = 1 << 6,
	ITEM_LENGTH = 1 << 7,
	ITEM_ACCESS = 1 << 8,
	ITEM_DEPTH = 1 << 9,
	ITEM_PEER_PID = 1 << 10,
	ITEM_PEER_NUMBER = 1 << 11,
	ITEM_USERS = 1 << 12,
	ITEM_GID = 1 << 13,
	ITEM_REGION = 1 << 14,
	ITEM_FLAGS = 1 << 15,
	ITEM_HUGE = 1 << 16,
	ITEM_XRCD = 1 << 17,
	ITEM_RESOURCES = 1 << 18,
};

struct item {
	enum object_type type;
	uint32_t has; /* enum item_field */
	uint64_t session;
	uint32_t context, handle, pid, uid, gid;
	const char *device;
	const char *kind, *state, *name; /* NULL: none */
	uint32_t number, pd, parent, send_cq, recv_cq, srq, xrcd;
	uint64_t addr, length;
	uint32_t access, depth, peer_pid, peer_number, users;
	uint32_t region, flags;
	uint64_t huge;
	unsigned resources[RDMA_NL_RESOURCES]; /* of its process, on a real device */
	char in_use_by[USERS_TEXT]; /* "": nothing stands on it */
};

static inline void item_set_ref(
	struct item *item, uint32_t *field, enum item_field bit, const struct object *to)
{
	if (to) {
		*field = to->handle;
		item->has |= bit;
	}
}

#endif
