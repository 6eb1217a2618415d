/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs of processes and their segments: memfds that two processes map, made on demand, more when one is full. A
 * segment stays until one of the two dies and the other let go of its wires.
 */
#ifndef DAEMON_PAIR_H
#define DAEMON_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/account.h"
#include "daemon/list.h"
#include "daemon/notice.h"
#include "daemon/segment.h"

struct process;
struct server;
struct wire;

#define HANDLE_SEGMENT 1 /* type in the server's table of segments */

/* How long a segment's memfd is kept for a client that lost it, and how many of them. */
#define SEGMENT_KEEP_MS  10000
#define SEGMENT_KEEP_MAX 256

/* Pairs that processes of other domains may force upon one process by sending it datagrams. */
#define STRANGERS_MAX 512

enum engine_right {
	ENGINE_STAGE = 1, /* as in verbsd.proto */
	ENGINE_CMA = 2,
	ENGINE_MAP = 4,
};

struct pair_side {
	struct list link;        /* in process->pairs */
	struct process *process; /* NULL: dead */
	struct pair *pair;
	unsigned index;
};

struct pair {
	uint32_t ids[2]; /* of the processes, the smaller first */
	struct pair_side sides[2];
	struct list segments;
	uint32_t engines;
	int stranger; /* the side that the other one forced the pair upon; -1: none */
	struct wire *dgram;
	bool busy; /* being broken: not to be freed yet */
};

struct segment {
	uint32_t id;
	struct server *server;
	struct pair *pair;
	struct list link;
	int memfd;        /* -1 when it is not kept any more */
	struct list kept; /* in server->kept */
	uint64_t keep_until;
	struct space space;
	struct notice notices[2];
	bool told[2]; /* had EV_SEGMENT */
	struct charge charges[2];
	bool busy; /* being broken: not to be freed yet */
};

/* The pair of two living processes, made when there is none. @forced: only @a wants it. -EACCES: policy. */
int pair_get(struct server *server, struct process *a, struct process *b, bool forced,
	struct pair **pair);
/* Finds room for @wire, in a new segment when it must be; @payer NULL: both pay for that. */
int pair_place(struct server *server, struct pair *pair, struct process *payer, struct wire *wire);
/* All pairs of @process lose its side. */
void pairs_break(struct process *process, enum gone_reason reason);
/* Called when a notice was put into @process's socket: there is none any more. */
void pair_noticed(struct process *process, struct notice *notice);

/* NULL when there is none with that id that @process is a side of. */
struct segment *segment_get(
	const struct server *server, const struct process *process, uint32_t id);
/* Frees a segment that nobody needs any more, and its pair. */
void segment_check(struct segment *segment);
/* Sends EV_SEGMENT again. -ENOENT: no segment of this process's; -ESTALE: its memfd is gone. */
int segment_send_again(struct server *server, struct process *process, uint32_t id);
/* Closes memfds whose time is over. True while any is left. */
bool segments_expire(struct server *server, uint64_t now);

static inline unsigned segment_side(const struct segment *segment, const struct process *process)
{
	return segment->pair->sides[1].process == process;
}

struct segment *notice_segment(struct notice *notice);

#endif
