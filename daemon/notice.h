/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process must still be told over its event socket about segments, wires, XRC QPs and ports. A notice sits in what it is
 * about, so what a client leaves unread costs no memory beyond what is charged already.
 */
#ifndef DAEMON_NOTICE_H
#define DAEMON_NOTICE_H

#include <stdbool.h>

#include "daemon/list.h"

enum notice_kind {
	NOTICE_NONE,
	NOTICE_SEGMENT,
	NOTICE_PEER_GONE,
	NOTICE_WIRE,
	NOTICE_WIRE_GONE,
	NOTICE_WIRE_CHANGED,
	NOTICE_XRC_REFUSED, /* those two sit in a QP */
	NOTICE_XRC_EVENT,
	NOTICE_PORT, /* in an attachment: the port is as its device has it when that is sent */
};

enum gone_reason {
	GONE_CLOSED = 1, /* as in verbsd.proto */
	GONE_DEAD = 2,
	GONE_ADMIN = 3,
};

struct notice {
	struct list link;
	enum notice_kind kind;
	enum gone_reason reason;
	unsigned side; /* of the segment or wire that it is in */
};

static inline void notice_init(struct notice *notice, unsigned side)
{
	list_init(&notice->link);
	notice->kind = NOTICE_NONE;
	notice->side = side;
}

static inline void notice_drop(struct notice *notice)
{
	list_remove(&notice->link);
	notice->kind = NOTICE_NONE;
}

#endif
