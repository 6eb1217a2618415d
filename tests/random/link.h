/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the coordinator and a worker say to each other over a socket pair. One message of commands, executed in order,
 * is answered by one message: a result for each, and whatever the polls among them found.
 */
#ifndef RANDOM_LINK_H
#define RANDOM_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "tests/random/program.h"

enum {
	LINK_CMDS = 48,
	LINK_WCS = 384,
	LINK_EVENTS = 64,
	LINK_STATES = 96,
	OBJECTS = 4096, /* of a kind */
};

enum cmd_kind {
	CMD_TD,
	CMD_PD,
	CMD_PARENT,
	CMD_CQ,
	CMD_SRQ,
	CMD_MR,
	CMD_MW,
	CMD_QP,
	CMD_FREE,
	CMD_REREG,
	CMD_RESIZE,
	CMD_LIMIT,
	CMD_MODIFY,
	CMD_SEND,
	CMD_RECV,
	CMD_POLL, /* a[0]: the states of the QPs too */
	CMD_ARM,
	CMD_FILL,
	CMD_TAG_SERVER,
	CMD_TAG_CLIENT,
	CMD_TAG_UP, /* a[0]: the client's end, a[1]: the other's QP */
	CMD_TAG_OP,
	CMD_TAG_POLL,
	CMD_TAG_SENT,
	CMD_THREADS,
	CMD_XRCD,
	CMD_GROUP,
	CMD_PAGES,
	CMD_ADVISE,
	CMD_DM,
	CMD_DM_COPY,
	CMD_DM_LOOK, /* copies it to where the coordinator reads it */
};

/* Byte ranges of the arena that are filled once a verb has returned 0. */
struct fill {
	uint64_t seed;
	uint32_t n;
	struct {
		uint32_t off, len;
	} at[4];
};

struct send_cmd {
	uint8_t opcode, is_mw, grh, group;
	uint32_t flags, imm, rkey;
	uint64_t raddr, compare, swap;
	uint32_t ah_pd, qpn, qkey, srqn;
	uint32_t mw, mr; /* of a bind */
};

struct cmd {
	uint16_t kind;
	uint8_t n_sge;
	bool more; /* one call with the next command */
	uint32_t id;
	uint64_t wr_id;
	int64_t a[OP_ARGS - 22];
	struct ibv_sge sge[SGES];
	union {
		struct {
			int mask;
			struct ibv_qp_attr attr;
		} modify;
		struct send_cmd send;
	};
	struct fill fill;
};

/* @next is posted by the same call. */
static inline bool cmd_goes_on(const struct cmd *cmd, const struct cmd *next)
{
	return cmd->more && cmd->kind == next->kind && cmd->id == next->id &&
	       (cmd->kind != CMD_RECV || cmd->a[RECV_IS_SRQ] == next->a[RECV_IS_SRQ]);
}

struct result {
	int error;
	/* A key, a QP number; sizes that were granted, the number of an SRQ; an address; fields of a completion. */
	uint32_t value[8];
};

struct wc_seen {
	uint32_t cmd, cq;
	struct ibv_wc wc;
};

struct event_seen {
	int type; /* enum ibv_event_type, or -1: a completion event */
	uint32_t id;
};

struct state_seen {
	uint32_t qp;
	int state;
};

/* What a process has done by an engine so far, as it publishes it: WRs that it ran, SENDs that it fetched. */
struct by_itself {
	uint64_t run, pulled;
};

struct reply {
	uint32_t n_results, n_wcs, n_events, n_states;
	struct by_itself by_itself;
	struct result results[LINK_CMDS];
	struct wc_seen wcs[LINK_WCS];
	struct event_seen events[LINK_EVENTS];
	struct state_seen states[LINK_STATES];
};

/* What a worker says first. */
struct hello {
	uint64_t arena; /* its address */
	uint32_t lid;
	union ibv_gid gid;
};

enum { SEEN_ID, SEEN_STATUS, SEEN_OPCODE, SEEN_FLAGS, SEEN_LEN, SEEN_TAG, SEEN_PRIV }; /* in a result */
enum { LINK_NOT_TRIED = -1 }; /* the result of a WR behind one that failed in its list */

/* worker.c: the process's main function. @image: a file that the arena is a copy of. */
int worker_main(int sock, int image, unsigned jitter);

#endif
