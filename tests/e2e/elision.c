/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes, a thread each, that send 8 bytes to and fro, with objects under a thread domain or without one. The
 * program stands before libpthread's functions that lock, so it counts every one that the library calls in this thread.
 * Rounds of 1,000 messages each way, until ten rounds took no lock (a round in which this thread lost its processor for
 * longer than a tick may take the domain back from the progress thread), or the limit is reached. Prints "clean N of M",
 * the locks of the last round, and nanoseconds a message.
 *
 *	elision [--domain] ROUNDS
 *	elision [--domain] --mark ROUNDS	breakpoints around each post of one side, for barriers.c; few messages
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

enum { DEPTH = 16, ROUND = 1000, WARM_UP = 2000, CLEAN = 10, MARKED = 200 };

static __thread uint64_t locks;
static bool marks;

#ifndef ELISION_NO_COUNT
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
#endif

struct address {
	uint32_t qpn, lid;
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint64_t words[2];
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

static void domain_make(void)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = e.pd, .td = ibv_alloc_td(e.ctx, &td) };
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 4 * DEPTH,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};

	e.parent = parent.td ? ibv_alloc_parent_domain(e.ctx, &parent) : NULL;
	if (!e.parent)
		fail("ibv_alloc_parent_domain");
	cq.parent_domain = e.parent;

	struct ibv_cq_ex *made = ibv_create_cq_ex(e.ctx, &cq);

	e.cq = made ? ibv_cq_ex_to_cq(made) : NULL;
}

static struct address open_end(bool domain)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (!list || !list[0])
		fail("no device");
	e.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	e.pd = e.ctx ? ibv_alloc_pd(e.ctx) : NULL;
	e.mr = e.pd ? ibv_reg_mr(e.pd, e.words, sizeof(e.words), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!e.mr || ibv_query_port(e.ctx, 1, &port))
		fail("set-up");
	if (domain)
		domain_make();
	else
		e.cq = ibv_create_cq(e.ctx, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e.cq;
	e.qp = e.cq ? ibv_create_qp(domain ? e.parent : e.pd, &init) : NULL;
	if (!e.qp || ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp");
	return (struct address){ e.qp->qp_num, port.lid };
}

static void connect_end(struct address peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn, .min_rnr_timer = 12,
		.ah_attr = { .dlid = (uint16_t)peer.lid, .port_num = 1 },
	};

	if (ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	if (ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

static void post_recv(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e.words[1], .length = 8, .lkey = e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(e.qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static void post_send(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e.words[0], .length = 8, .lkey = e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (marks)
		MARK();
	errno = ibv_post_send(e.qp, &wr, &bad);
	if (marks)
		MARK();
	if (errno)
		fail("ibv_post_send");
}

/* One of each: the send's completion and the receive's. */
static void reap(void)
{
	struct ibv_wc wc;

	for (unsigned seen = 0; seen != 3;) {
		int n = ibv_poll_cq(e.cq, 1, &wc);

		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
			fail("completion");
		if (n)
			seen |= (unsigned)wc.wr_id;
	}
	post_recv();
}

static void messages(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		post_send();
		reap();
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
#ifdef ELISION_NO_COUNT /* a benchmark: each side has a processor */
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(*name - 'a', &set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		sched_setaffinity(0, sizeof(set), &set);
#endif
	struct address mine = open_end(domain), peer = { 0 };
	unsigned clean = 0, n = 0;
	uint64_t best = UINT64_MAX, last;

	if (send(sock, &mine, sizeof(mine), 0) != sizeof(mine) || recv(sock, &peer, sizeof(peer), 0) != sizeof(peer))
		fail("exchange");
	connect_end(peer);
	for (unsigned i = 0; i < DEPTH / 2; i++)
		post_recv();
	agree(sock, false);
	messages(WARM_UP);
	if (mark) {
		marks = *name == 'a';
		messages(MARKED);
		return 0;
	}
	do {
		uint64_t start = now(), took;

		locks = 0;
		messages(ROUND);
		last = locks;
		took = now() - start;
		best = took < best ? took : best;
		clean += last == 0;
		n++;
#ifdef ELISION_NO_COUNT
		clean = n == rounds ? CLEAN : 0;
#endif
	} while (agree(sock, clean < CLEAN && n < rounds));
	printf("%s\tclean %u of %u\tlocks %llu\t%.1f ns\n", name, clean, n, (unsigned long long)last,
	       (double)best / ROUND);
	return clean < CLEAN;
}

int main(int argc, char **argv)
{
	bool domain = argc > 1 && strcmp(argv[1], "--domain") == 0;
	bool mark = argc > 1 + domain && strcmp(argv[1 + domain], "--mark") == 0;
	int sockets[2], status;

	if (argc != 2 + domain + mark)
		return 2;

	unsigned rounds = (unsigned)atoi(argv[argc - 1]);

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
