/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model: what the coordinator knows of all objects of all workers, what ought to become of each work request, and
 * what has become of it.
 *
 * Time is a counter of operations. Between two quiet points (a batch) everything that was posted goes on at once, so a
 * property that changed in a batch has both values for whoever was posted before the change; who was posted after it
 * sees the new one, since a change is waited for before the program goes on. So each answer of the model is a set.
 */
#ifndef RANDOM_MODEL_H
#define RANDOM_MODEL_H

#include "tests/random/model_objects.h"

struct model {
	unsigned workers;
	struct m_worker worker[WORKERS];
	unsigned seq, batch_start, batch;
	uint64_t now_ms;
	unsigned looks; /* at all workers, so far */
	struct m_td tds[OBJECTS];
	struct m_pd pds[OBJECTS];
	struct m_cq cqs[OBJECTS];
	struct m_srq srqs[OBJECTS];
	struct m_mr mrs[OBJECTS];
	struct m_mw mws[OBJECTS];
	struct m_xrcd xrcds[OBJECTS];
	struct m_tags tags[OBJECTS];
	struct m_dm dms[OBJECTS];
	struct m_qp qps[OBJECTS];
	unsigned tops[OP_KINDS]; /* no object of the kind has this number or a higher one */
	struct m_flow *flows;
	struct m_wr **wrs;
	size_t n_wrs, wrs_room;
	struct m_recv **recvs;
	size_t n_recvs, recvs_room;
	struct wc_seen *wcs; /* read, not looked at yet */
	size_t n_wcs, wcs_room;
	struct fill_seen *fills; /* of this batch */
	size_t n_fills, fills_room;
	struct m_access *accesses;
	size_t n_accesses, accesses_room;
	struct m_open torn, blurred, flying;
	bool in_flight; /* something of this batch may still change memory without a sign */
	struct m_wr **atomics; /* of this batch, on words that several QPs changed */
	size_t n_atomics, atomics_room;
	/* the first thing that is wrong */
	bool failed;
	char kind[32], what[512];
	unsigned failed_op;
	/* run-time options */
	unsigned limit_ms, jitter;
	uint64_t until_ms;
	bool verbose;
	unsigned watch_worker;
	uint32_t watch_off;
	size_t executed, skipped;
};

/* Notes that something is wrong; the first time counts. @kind: a word that says which check. Returns false. */
__attribute__((format(printf, 3, 4))) bool wrong(struct model *m, const char *kind, const char *format, ...);

/* --- model.c: objects --- */

struct model *model_new(unsigned workers);
void model_free(struct model *m);
struct m_wr *wr_new(struct model *m, struct m_flow *flow);
struct m_recv *recv_new(struct model *m, struct m_queue *queue);
struct m_flow *flow_new(struct model *m, int qp);
void *grown(void *array, size_t n, size_t *room, size_t size);
struct m_qp *qp_numbered(struct model *m, unsigned worker, uint32_t number);
static inline struct m_qp *flow_qp(struct model *m, const struct m_flow *flow)
{
	return &m->qps[flow->qp];
}
/* What is posted there and not resolved. */
size_t queue_waiting(const struct m_queue *queue);
struct m_queue *qp_queue(struct model *m, struct m_qp *qp);
static inline bool takes_receive(const struct m_wr *wr)
{
	if (wr->group)
		return false;
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM ||
	       wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static inline bool is_atomic(const struct m_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
/* Eight bytes at a place that is a multiple of eight, at once. */
static inline bool is_word(const struct m_wr *wr)
{
	return is_atomic(wr) || wr->opcode == IBV_WR_ATOMIC_WRITE;
}
static inline bool is_response(const struct m_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr);
}
/* A responder with `max_dest_rd_atomic` 0 has none, and a requester with `max_rd_atomic` 0 may not ask. */
static inline bool takes_resources(const struct m_wr *wr)
{
	return is_response(wr) || wr->opcode == IBV_WR_ATOMIC_WRITE;
}
static inline bool is_local(const struct m_wr *wr)
{
	return wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW;
}
static inline bool is_write(const struct m_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_ATOMIC_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* --- keys.c: may a key be used --- */

struct use {
	unsigned worker, seq, access;
	int pd;
	uint32_t key;
	uint64_t addr, len;
	int qp; /* remote use: through which QP; -1: local */
	bool bind; /* a window is to be bound: nothing is touched yet */
};
/* Whether the memory is there, for a use of that time. */
enum tri pages_there(const struct model *m, unsigned worker, int64_t off, uint64_t len, unsigned seq);
/* Whether it may not have been: then a part of it may be done. */
bool pages_matter(const struct m_wr *wr);
enum tri key_allows(struct model *m, const struct use *use);
/* The region behind a key of @worker, alive or gone, or NULL. */
struct m_mr *key_mr(struct model *m, unsigned worker, uint32_t key);
struct m_mw *key_mw(struct model *m, unsigned worker, uint32_t key);
/* The window that a WR binds or invalidates, or NULL. */
struct m_mw *window_of(struct model *m, const struct m_wr *wr);
/* Another WR of this batch may change it too. */
bool window_is_shared(struct model *m, const struct m_mw *mw, const struct m_wr *but);
/* All SGEs that @len bytes fill behind the first @skip. */
enum tri sges_allow(struct model *m, unsigned worker, int pd, const struct m_sge *sge, unsigned n, uint64_t skip,
	uint64_t len, unsigned access, unsigned seq);
static inline enum tri tri_and(enum tri a, enum tri b)
{
	return a < b ? a : b;
}

/* --- verdict.c: what may become of a WR --- */

struct verdict {
	unsigned mask; /* of statuses */
	bool blocked;  /* it may wait for ever: for a receive, or a peer */
	unsigned recv; /* statuses of a receive that it takes */
};
struct verdict wr_verdict(struct model *m, struct m_wr *wr);
/* Whether the two ends are connected, for a WR of that time. */
enum tri flow_linked(struct model *m, const struct m_flow *flow, unsigned seq);
/* Unreliable messages that may still take a receive from there. */
/* Messages that may still take a receive from it. */
size_t queue_demand(struct model *m, const struct m_queue *queue);
bool unreliable_demand(struct model *m, const struct m_queue *queue);
/* A message in front of an unreliable WR may yet put the other end into error. */
bool one_before_may_fail_peer(struct model *m, const struct m_wr *wr);
/* Whether an unreliable message finds a QP and a receive. */
enum tri message_arrives(struct model *m, struct m_wr *wr);
/* The receive was posted before the message was. */
bool surely_there(struct model *m, const struct m_wr *wr, const struct m_recv *recv);
/* Whether a datagram finds a QP that listens. */
enum tri datagram_heard(struct model *m, const struct m_wr *wr);
/* The receive that a message of a flow into an RQ takes, if it is known; the next ones are behind it. */
struct m_recv *wr_receive(struct model *m, struct m_wr *wr);

/* --- ingest.c: completions and events --- */

/* Takes what one poll found. */
void ingest_wc(struct model *m, const struct wc_seen *seen);
/* Events and states, which are taken when the last command was done. */
void ingest_reply(struct model *m, unsigned worker, const struct reply *reply);
/* Looks at all completions that were read. False: something is wrong. */
bool ingest_completions(struct model *m);
/* The QP's life ends: what is outstanding is gone. */
void flow_close(struct model *m, struct m_qp *qp);

/* --- events.c --- */

/* Which asynchronous and completion events this batch brings at least and at most. */
/* Receives that were posted by now, with those that were taken since the last quiet point. */
size_t srq_there(const struct model *m, const struct m_srq *srq);
void events_expect(struct model *m);
/* Null, or the number of a QP, CQ or SRQ whose event is still to come. */
bool events_complete(struct model *m, char *why, size_t size);
bool events_check(struct model *m);
void events_next_batch(struct model *m);
/* A message of an earlier batch may still be the first one that the QP gets. */
bool may_be_established_late(const struct m_qp *qp);

/* --- settled.c --- */

/* Nothing more will come of its own. @why: what is still awaited. */
bool model_settled(struct model *m, char *why, size_t size);
/* At a quiet point: causes and consequences of what was seen. */
bool model_check(struct model *m);
/* The next batch begins. */
void model_next_batch(struct model *m);

/* --- memory.c, effect.c, conflict.c, apply.c, atomics.c --- */

/* A file with what every arena holds at first: mapped by the workers, each for itself, it costs nobody anything. */
int memory_image(void);
void memory_init(struct memory *memory);
void memory_deinit(struct memory *memory);
/* Everything that was done in this batch to memory, in the model. */
void memory_apply(struct model *m);
/* Compares with the workers' memory; what is not known is taken from there. */
bool memory_compare(struct model *m, bool everything);
void memory_forget(struct model *m);
enum effect wr_effect(struct model *m, struct m_wr *wr);
/* To memory, in this batch: what it may have done before, it may not do now. */
enum effect wr_effect_now(struct model *m, struct m_wr *wr);
/* Whether it did or may have done something in this batch. */
bool wr_active(const struct model *m, const struct m_wr *wr);
bool worker_read(struct model *m, unsigned worker, uint32_t off, uint32_t len, uint8_t *to);
/* All accesses of this batch, in m->accesses. */
void accesses_collect(struct model *m);
/* Which of two accesses came first: -1 the first, 1 the second, 0: nothing orders them. */
int access_order(const struct m_access *a, const struct m_access *b);
/* The access was made before the bytes were filled, whenever it was posted. */
bool access_before_fill(const struct m_access *access, const struct fill_seen *fill);
bool access_after_fill(const struct m_access *access, const struct fill_seen *fill);
/* Where conflicts leave the result open: m->torn (memory) and m->blurred (what was read). */
void conflicts_find(struct model *m);
bool ranges_touch(const struct m_open *open, unsigned worker, uint32_t lo, uint32_t hi);
void ranges_mark(const struct m_open *open, unsigned worker, uint32_t lo, uint32_t hi, uint8_t *unknown);
/* Atomics of several QPs on one word: some order explains what they returned. */
void atomic_add(struct model *m, struct m_wr *wr);
bool atomic_is_shared(struct model *m, const struct m_wr *wr);
bool atomics_explain(struct model *m);

/* --- workers.c: processes and commands --- */

/* The engine that is forced, or NULL. */
bool workers_start(struct model *m, const char *engine);
void workers_stop(struct model *m);
/* The next command of a worker, zeroed but for its kind and object. */
struct cmd *cmd_add(struct model *m, unsigned worker, enum cmd_kind kind, uint32_t id);
/* What the next command added is about. */
void cmd_is_send(struct model *m, unsigned worker, struct m_wr *wr);
void cmd_is_recv(struct model *m, unsigned worker, struct m_recv *recv);
/* Sends what waits for a worker, and waits for the answer: the result of its last command, NULL: it died. */
const struct result *worker_do(struct model *m, unsigned worker);
/* All answers are there, and all completions that were read are looked at. */
bool workers_sync(struct model *m);

/* --- posted.c: what a post returned --- */

/* Results of the commands from @i on that were one call; how many they are. */
unsigned posted_sends(struct model *m, struct m_worker *w, unsigned i, unsigned n);
/* Whether QPs of that type have the operation. */
bool opcode_is_legal(const struct m_wr *wr);
unsigned posted_recvs(struct model *m, struct m_worker *w, unsigned i, unsigned n);

/* --- issue.c, issue_post.c, issue_state.c: operations --- */

/* Executes one operation. False: it could not be, since what it names is not there. */
bool issue(struct model *m, const struct op *op);
bool issue_send(struct model *m, const struct op *op);
bool issue_recv(struct model *m, const struct op *op);
bool issue_connect(struct model *m, const struct op *op);
bool issue_datagram(struct model *m, const struct op *op);
bool issue_state(struct model *m, const struct op *op);
/* The next command of a worker, with the operation's arguments. */
struct cmd *issue_command(struct model *m, const struct op *op, enum cmd_kind kind, unsigned worker);
/* A window that the model lost track of may be bound to any region of its worker. */
bool windows_are_unsure(const struct model *m, unsigned worker);
/* A region becomes something else now. */
void mr_change(struct model *m, struct m_mr *mr);
/* xrc.c: whose memory and receives a WR is about at the other end. */
unsigned wr_worker(const struct model *m, const struct m_wr *wr);
int wr_pd(const struct model *m, const struct m_wr *wr);
int wr_srq(const struct model *m, const struct m_wr *wr);
struct m_queue *wr_queue(struct model *m, const struct m_wr *wr);
/* Whether what an XRC WR names is an SRQ of the receive QP's domain. */
enum tri wr_srq_is(const struct model *m, const struct m_wr *wr);
/* The SRQ went after the WR was posted. */
bool wr_srq_went(const struct model *m, const struct m_wr *wr);
/* The receive QP of that number, of whatever process. */
struct m_qp *xrc_numbered(struct model *m, uint32_t number);
bool issue_xrcd(struct model *m, const struct op *op);
bool xrc_parts_are(const struct model *m, const struct op *op);
bool xrc_srq_parts_are(const struct model *m, const struct op *op);
/* overrun.c: the CQ may have to hold more than it can. */
void cq_filled(struct model *m, int cq);
/* A QP that begins a life on such a CQ. */
bool qp_is_wrecked(const struct model *m, const struct m_qp *qp);
/* What a WR of a wrecked flow may end with. */
unsigned wreck_statuses(void);
/* issue_multicast.c: a copy for each QP that may get it. */
void multicast_copy(struct model *m, struct m_wr *wr);
/* Whether the QP of a copy is in its group. */
enum tri multicast_reaches(struct model *m, const struct m_wr *wr);
bool issue_group(struct model *m, const struct op *op);
/* issue_free.c */
bool issue_free(struct model *m, const struct op *op);
/* issue_tags.c */
bool issue_tags(struct model *m, const struct op *op);
bool issue_tag(struct model *m, const struct op *op);
/* issue_memory.c */
bool issue_dm(struct model *m, const struct op *op);
bool issue_pages(struct model *m, const struct op *op);
bool issue_advise(struct model *m, const struct op *op);
bool issue_dm_copy(struct model *m, const struct op *op);
bool issue_dm_mr(struct model *m, const struct op *op, bool legal);
/* Where it lies in the model. */
int64_t dm_place(const struct model *m, int64_t id);
/* The workers' copies of device memory are as it is now. */
bool memory_look(struct model *m);
/* issue_post.c: SGEs of an operation. False: one names a region that never was. */
bool sges_make(const struct model *m, const int64_t *a, int64_t n, unsigned worker, struct m_sge *sge);
void sges_copy(struct cmd *cmd, const struct m_sge *sge, unsigned n);
/* A control verb: sends it, and checks that its errno is one of @errors (a set of at most four, 0 ends it). */
int issue_call(struct model *m, unsigned worker, const char *verb, int expected, int or_this);
void fill_note(struct model *m, const struct fill *fill, unsigned worker, bool waited_for, int mr, struct m_flow *life);

/* --- dump.c --- */

void model_dump(struct model *m, FILE *to);
void model_dump_wrs(struct model *m, FILE *to);
void model_watch(struct model *m, FILE *to);

/* --- run.c --- */

uint64_t clock_ms(void);
/* Runs a program. True: all was as it ought to be. */
bool program_run(struct model *m, const struct program *program);

#endif
