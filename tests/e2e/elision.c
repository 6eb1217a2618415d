/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes, a thread each, that send 8 bytes to and fro, with objects under a thread domain or without one. The
 * program stands before libpthread's functions that lock, so it counts every one that the library calls in this thread.
 * Rounds of 1,000 messages each way (of 100, with a way), until ten rounds took no lock (a round in which this thread
 * lost its processor for longer than a tick may take the domain back from the progress thread), or the limit is
 * reached. Prints "clean N of M", the locks of the last round, and nanoseconds a message.
 *
 *	elision [--domain] [--way NAME] ROUNDS
 *	elision [--domain] [--way NAME] --mark ROUNDS	breakpoints around each post of one side, for barriers.c; few messages
 *	elision						the names of the ways
 *
 * A way is what is posted before each message, and how. Its operation comes before the message, so that the peer, who waits
 * for that, polls meanwhile.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "client/verbsd.h"

enum { DEPTH = 16, ROUND = 1000, SHORT_ROUND = 100, CLEAN = 10, MARKED = 200, PATIENCE = 200 };
enum { SENT, RECEIVED, DONE };

static __thread uint64_t locks;
static bool marks;

#define COUNTED(name)                                                          \
	__attribute__((visibility("default"))) int name(pthread_mutex_t *mutex) \
	{                                                                      \
		static int (*next)(pthread_mutex_t *);                         \
		if (!next)                                                     \
			*(void **)&next = dlsym(RTLD_NEXT, #name);             \
		locks++;                                                       \
		return next(mutex);                                            \
	}
COUNTED(pthread_mutex_lock)
COUNTED(pthread_mutex_trylock)
COUNTED(pthread_mutex_unlock)

#define ACCESS                                                                                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define NOTHING ((enum ibv_wr_opcode)-1)

struct way {
	const char *name;
	enum ibv_wr_opcode op; /* posted before each message, or NOTHING */
	bool ex;     /* by ibv_wr_*, and polled by ibv_start_poll() and its like */
	bool srq;    /* receives are an SRQ's */
	bool shared; /* it reaches a shared region, which peers map */
	bool notify; /* the CQ is armed for each message, and its event taken */
};

static const struct way ways[] = {
	{ "send", NOTHING, .ex = false },
	{ "srq", NOTHING, .srq = true },
	{ "write", IBV_WR_RDMA_WRITE, .ex = false },
	{ "read", IBV_WR_RDMA_READ, .ex = false },
	{ "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, .ex = false },
	{ "compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, .ex = false },
	{ "shared-write", IBV_WR_RDMA_WRITE, .shared = true },
	{ "shared-read", IBV_WR_RDMA_READ, .shared = true },
	{ "shared-fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, .shared = true },
	{ "ex-send", NOTHING, .ex = true },
	{ "ex-srq", NOTHING, .ex = true, .srq = true },
	{ "ex-write", IBV_WR_RDMA_WRITE, .ex = true },
	{ "ex-read", IBV_WR_RDMA_READ, .ex = true },
	{ "ex-fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, .ex = true },
	{ "ex-compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, .ex = true },
	{ "notify", NOTHING, .notify = true },
};

struct address {
	uint32_t qpn, lid, rkey;
	uint64_t addr;
};

static struct {
	const struct way *way;
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint64_t own[4], *words; /* to send, to receive, for the peer to reach, and what comes of it */
	struct address peer;
} e;

#ifdef __x86_64__
#define MARK() __asm__ volatile("int3" ::: "memory")
#else
#define MARK() ((void)0)
#endif

static void fail(const char *what)
{
	fprintf(stderr, "elision: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- set-up ----------------------------------------------------------------------------------------------------------------- */

static void domain_make(void)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = e.pd, .td = ibv_alloc_td(e.ctx, &td) };

	e.parent = parent.td ? ibv_alloc_parent_domain(e.ctx, &parent) : NULL;
	if (!e.parent)
		fail("ibv_alloc_parent_domain");
}

static struct ibv_cq *cq_make(bool domain)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4 * DEPTH,
		.channel = e.channel,
		.comp_mask = domain ? IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD : 0,
		.flags = domain ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
		.parent_domain = e.parent,
	};
	struct ibv_cq_ex *made;

	if (!domain && !e.way->ex)
		return ibv_create_cq(e.ctx, 4 * DEPTH, NULL, e.channel, 0);
	made = ibv_create_cq_ex(e.ctx, &attr);
	return made ? ibv_cq_ex_to_cq(made) : NULL;
}

/* The shared region's address is the same for all, so it is no local one. */
static void memory_make(void)
{
	const struct verbsd_mr_attr attr = { .size = 4096, .access = ACCESS };
	struct ibv_mr *(*alloc)(struct ibv_pd *, const struct verbsd_mr_attr *);

	*(void **)&alloc = dlsym(RTLD_DEFAULT, "verbsd_alloc_mr");
	if (!e.way->shared) {
		e.words = e.own;
		e.mr = ibv_reg_mr(e.pd, e.own, sizeof(e.own), ACCESS);
	} else if (alloc) {
		e.mr = alloc(e.pd, &attr);
		e.words = e.mr ? e.mr->addr : NULL;
	}
	if (!e.words || !e.mr)
		fail("memory");
}

static struct ibv_qp *qp_make(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = e.cq,
		.recv_cq = e.cq,
		.srq = e.srq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = IBV_QPT_RC,
		.send_cq = e.cq,
		.recv_cq = e.cq,
		.srq = e.srq,
		.cap = init.cap,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	};

	return e.way->ex ? ibv_create_qp_ex(e.ctx, &ex) : ibv_create_qp(pd, &init);
}

static struct address open_end(bool domain)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };

	if (!list || !list[0])
		fail("no device");
	e.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	e.pd = e.ctx ? ibv_alloc_pd(e.ctx) : NULL;
	if (!e.pd || ibv_query_port(e.ctx, 1, &port))
		fail("set-up");
	memory_make();
	if (domain)
		domain_make();
	if (e.way->notify)
		e.channel = ibv_create_comp_channel(e.ctx);
	e.cq = cq_make(domain);
	if (e.way->srq)
		e.srq = ibv_create_srq(domain ? e.parent : e.pd, &srq);
	e.qp = e.cq && !e.srq == !e.way->srq ? qp_make(domain ? e.parent : e.pd) : NULL;
	if (!e.qp || ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp");
	return (struct address){ e.qp->qp_num, port.lid, e.mr->rkey, (uintptr_t)&e.words[2] };
}

static void connect_end(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = e.peer.qpn, .min_rnr_timer = 12,
		.max_dest_rd_atomic = 4, .ah_attr = { .dlid = (uint16_t)e.peer.lid, .port_num = 1 },
	};

	if (ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	if (ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

/* --- posting ---------------------------------------------------------------------------------------------------------------- */

static void post_recv(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e.words[1], .length = 8, .lkey = e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECEIVED, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = e.srq ? ibv_post_srq_recv(e.srq, &wr, &bad) : ibv_post_recv(e.qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static int post_old(enum ibv_wr_opcode op, uint64_t *word, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)word, .length = 8, .lkey = e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = e.peer.addr;
		wr.wr.atomic.rkey = e.peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = e.peer.addr;
		wr.wr.rdma.rkey = e.peer.rkey;
	}
	return ibv_post_send(e.qp, &wr, &bad);
}

static int post_ex(enum ibv_wr_opcode op, uint64_t *word, uint64_t id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e.qp);

	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (op == IBV_WR_SEND)
		ibv_wr_send(qp);
	else if (op == IBV_WR_RDMA_WRITE)
		ibv_wr_rdma_write(qp, e.peer.rkey, e.peer.addr);
	else if (op == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(qp, e.peer.rkey, e.peer.addr);
	else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		ibv_wr_atomic_fetch_add(qp, e.peer.rkey, e.peer.addr, 1);
	else
		ibv_wr_atomic_cmp_swp(qp, e.peer.rkey, e.peer.addr, 1, 0);
	ibv_wr_set_sge(qp, e.mr->lkey, (uintptr_t)word, 8);
	return ibv_wr_complete(qp);
}

static void post(enum ibv_wr_opcode op, uint64_t *word, uint64_t id, bool mark)
{
	mark = mark && marks;
	if (mark)
		MARK();
	errno = e.way->ex ? post_ex(op, word, id) : post_old(op, word, id);
	if (mark)
		MARK();
	if (errno)
		fail("post");
}

/* --- polling ---------------------------------------------------------------------------------------------------------------- */

static unsigned done[DONE + 1]; /* completions of each kind that nobody waited for yet */

static unsigned poll_old(void)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(e.cq, 1, &wc);

	if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
		fail("completion");
	if (n)
		done[wc.wr_id]++;
	return (unsigned)n;
}

/* All that there are. */
static unsigned poll_ex(void)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)e.cq;
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	unsigned n = 0;
	int r = ibv_start_poll(cq, &attr);

	if (r == ENOENT)
		return 0;
	for (; r == 0; r = ibv_next_poll(cq), n++) {
		if (cq->status != IBV_WC_SUCCESS)
			fail("completion");
		done[cq->wr_id]++;
	}
	ibv_end_poll(cq);
	if (r != ENOENT)
		fail("ibv_next_poll");
	return n;
}

/* On a machine that is busy the peer may be waiting for the processor that this thread polls on. */
static void empty(unsigned *polls)
{
	if (++*polls % PATIENCE == 0)
		sched_yield();
}

/* The peer's message, and its next one, may come before what is waited for. */
static void reap(unsigned kind)
{
	unsigned polls = 0;

	while (!done[kind])
		if (!(e.way->ex ? poll_ex() : poll_old()))
			empty(&polls);
	done[kind]--;
}

/* What was armed has fired for the completions that were polled just now. */
static void event_take(void)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(e.channel, &cq, &context))
		fail("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

static void messages(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (e.way->notify && ibv_req_notify_cq(e.cq, 0))
			fail("ibv_req_notify_cq");
		if (e.way->op != NOTHING) {
			post(e.way->op, &e.words[3], DONE, true);
			reap(DONE);
		}
		post(IBV_WR_SEND, &e.words[0], SENT, e.way->op == NOTHING);
		reap(SENT);
		reap(RECEIVED);
		post_recv();
		if (e.way->notify)
			event_take();
	}
}

/* Both go on until both have had enough. */
static bool agree(int sock, bool more)
{
	char mine = more, theirs;

	if (send(sock, &mine, 1, 0) != 1 || recv(sock, &theirs, 1, 0) != 1)
		fail("exchange");
	return mine || theirs;
}

static int side(int sock, bool domain, bool mark, unsigned rounds, const char *name)
{
	struct address mine = open_end(domain);
	unsigned clean = 0, n = 0, round = e.way == ways ? ROUND : SHORT_ROUND;
	uint64_t best = UINT64_MAX, least = UINT64_MAX, last;

	if (send(sock, &mine, sizeof(mine), 0) != sizeof(mine) || recv(sock, &e.peer, sizeof(e.peer), 0) != sizeof(e.peer))
		fail("exchange");
	connect_end();
	for (unsigned i = 0; i < DEPTH / 2; i++)
		post_recv();
	agree(sock, false);
	messages(2 * round);
	if (mark) {
		marks = *name == 'a';
		messages(MARKED);
		agree(sock, false);
		return 0;
	}
	do {
		uint64_t start = now(), took;

		locks = 0;
		messages(round);
		last = locks;
		took = now() - start;
		best = took < best ? took : best;
		least = last < least ? last : least;
		clean += last == 0;
		n++;
	} while (agree(sock, clean < CLEAN && n < rounds));
	printf("%s\tclean %u of %u\tlocks %llu, at least %llu\t%.1f ns\n", name, clean, n, (unsigned long long)last,
		(unsigned long long)least, (double)best / round);
	return clean < CLEAN;
}

static bool option(int *argc, char ***argv, const char *name)
{
	if (*argc < 2 || strcmp((*argv)[1], name) != 0)
		return false;
	++*argv;
	--*argc;
	return true;
}

static const struct way *way_find(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(ways[i].name, name) == 0)
			return &ways[i];
	return NULL;
}

static int names(void)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		puts(ways[i].name);
	return 0;
}

int main(int argc, char **argv)
{
	bool domain = option(&argc, &argv, "--domain"), way = option(&argc, &argv, "--way"), mark;
	int sockets[2], status;

	if (argc == 1 && !domain && !way)
		return names();
	e.way = &ways[0];
	if (way && argc > 1) {
		e.way = way_find(argv[1]);
		argv++;
		argc--;
	}
	mark = option(&argc, &argv, "--mark");
	if (argc != 2 || !e.way)
		return 2;

	unsigned rounds = (unsigned)atoi(argv[1]);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
		fail("socketpair");

	pid_t child = fork();

	if (child == 0)
		exit(side(sockets[1], domain, mark, rounds, "b"));

	int mine = side(sockets[0], domain, mark, rounds, "a");

	if (waitpid(child, &status, 0) != child)
		fail("waitpid");
	return mine || status ? 3 : 0;
}
