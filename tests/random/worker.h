/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of a worker: its objects by number. */
#ifndef RANDOM_WORKER_H
#define RANDOM_WORKER_H

#include <pthread.h>

#include "tests/random/link.h"

struct domain {
	struct ibv_pd *pd;
	struct ibv_ah *ah[2]; /* without and with a GRH, made at the first datagram */
	struct ibv_ah *groups[GROUPS];
	unsigned allocated;   /* buffers of its allocator that are in use */
	bool use_default;
};

struct device_memory {
	struct ibv_dm *dm;
	size_t len;
};

struct tag_world;

struct queue_pair {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
};

struct worker {
	int sock;
	struct hello hello;
	uint8_t *arena;
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_td *tds[OBJECTS];
	struct domain pds[OBJECTS];
	struct ibv_cq *cqs[OBJECTS];
	struct ibv_cq_ex *cqs_ex[OBJECTS];
	struct ibv_xrcd *xrcds[OBJECTS];
	struct ibv_srq *srqs[OBJECTS];
	struct ibv_mr *mrs[OBJECTS];
	struct ibv_mw *mws[OBJECTS];
	struct tag_world *tag_servers[OBJECTS], *tag_clients[OBJECTS];
	struct device_memory dms[OBJECTS];
	struct queue_pair qps[OBJECTS];
	uint32_t qps_top; /* no QP has this number or a higher one */
	uint32_t cqs_top;
	unsigned threads; /* that post at once, with one more that polls; 0 or 1: everything is done by one */
	/* the thread domain that an object is of, 1 more than its number: that is one thread's at a time */
	uint32_t pd_td[OBJECTS], qp_td[OBJECTS], srq_td[OBJECTS], cq_td[OBJECTS];
	pthread_mutex_t ah_lock;
	unsigned jitter; /* of pauses here and there; 0: none */
	struct cmd cmds[LINK_CMDS];
	struct reply reply;
};

/* worker_post.c: of a multicast group, by number. */
union ibv_gid group_gid(int64_t number);
uint16_t group_lid(int64_t number);
/* worker_post.c: how many commands from @i on are one call. */
unsigned worker_chain(const struct worker *w, unsigned i, unsigned n);
/* worker_post.c: executes the commands from @i on that make one call; returns how many there are. */
unsigned worker_send(struct worker *w, unsigned i, unsigned n);
unsigned worker_recv(struct worker *w, unsigned i, unsigned n);
/* worker_poll.c */
void worker_poll(struct worker *w, unsigned i);
/* The CQs that are of no thread domain, and nothing else. */
void worker_poll_shared(struct worker *w, unsigned i);
/* worker_threads.c: commands from @i on that are done by several threads; returns how many. 0: there are none. */
unsigned worker_parallel(struct worker *w, unsigned i, unsigned n);
/* worker.c */
/* A pause, now and then, if there are to be any: what comes next sees what happened meanwhile. */
void worker_pause(struct worker *w);
void worker_fill(struct worker *w, const struct fill *fill);

/* worker_tags.c */
int worker_tag_server(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_tag_client(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_tag_up(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_tag_op(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_tag_poll(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_tag_sent(struct worker *w, const struct cmd *cmd, struct result *result);
/* worker_races.c: what lies there is for no sanitizer. */
void worker_races_in(const void *memory, size_t size);
/* worker_xrc.c */
int worker_xrcd(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_xrc_srq(struct worker *w, const struct cmd *cmd, struct result *result);
/* worker_memory.c */
void worker_dm_fill(struct worker *w, uint64_t seed, size_t at, size_t len);
int worker_dm(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_dm_copy(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_dm_look(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_pages(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_advise(struct worker *w, const struct cmd *cmd, struct result *result);
int worker_dm_free(struct worker *w, uint32_t id);

#endif
