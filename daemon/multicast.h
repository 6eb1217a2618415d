/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups: which QPs are attached to which. A group is (domain, link layer, MGID, MLID), and is there as long as
 * it has members.
 */
#ifndef DAEMON_MULTICAST_H
#define DAEMON_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device.h"
#include "daemon/domain.h"
#include "daemon/list.h"
#include "proto/ring_abi.h"

struct attachment;
struct context;
struct item;
struct process;
struct qp;
struct server;

struct mcast_key {
	const struct domain *domain;
	enum link_layer link_layer;
	uint32_t lid; /* 0 on Ethernet */
	uint8_t gid[GID_SIZE];
};

struct mcast_group {
	struct list link; /* in its bucket */
	struct list all;  /* in the order of their numbers */
	struct mcast_key key;
	uint32_t number, bucket;
	struct list members, shares; /* struct mcast_member, and how many of them each context has */
	struct list seats;	     /* the processes that they are of, by id */
	unsigned n_members;
	char name[46]; /* the MGID in text, for listings */
};

struct mcast {
	struct list buckets[VSD_MAP_MCAST];
	struct list all;
	uint32_t last;
	uint64_t seed[2]; /* nobody outside can make groups meet in one bucket */
};

int mcast_init(struct mcast *mcast);

/* Once more is the same as once. */
int mcast_attach(struct attachment *attachment, uint32_t qp, const uint8_t gid[GID_SIZE], uint32_t lid);
/* -EINVAL: it is not attached. */
int mcast_detach(struct attachment *attachment, uint32_t qp, const uint8_t gid[GID_SIZE], uint32_t lid);
/* Leaves all groups. */
void mcast_leave(struct qp *qp);
/* 0, or -EBUSY and a reason: it is attached to a group. */
int mcast_busy(const struct qp *qp);

struct mcast_answer {
	uint32_t bucket, generation;
	uint32_t *peers; /* room for @max */
	unsigned n, max;
	bool more;
};
/*
 * The other processes with members, those above @after, in the order of their ids. Each gets a datagram wire to @process;
 * one that cannot have one is left out, and after many such in a row so is whoever comes behind them.
 */
int mcast_resolve(struct process *process, const struct context *context, const uint8_t gid[GID_SIZE], uint32_t lid,
	uint32_t after, struct mcast_answer *answer);

void mcast_describe(const struct mcast_group *group, struct item *item);

#endif
