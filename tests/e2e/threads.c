/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many threads on one QP and one CQ, in two processes (or in one, with both QPs): each thread posts sends, takes
 * completions and posts receives again. Every message must arrive exactly once. A plain verbs program; the tsan tier
 * runs it with library and program under ThreadSanitizer.
 *
 *	threads [--one] [--events] [--domains] THREADS MESSAGES
 *
 * With --domains each thread has a thread domain with a QP and a CQ of its own, and MESSAGES are those of each thread.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/lib/cancel.h"

enum { DEPTH = 128, SIZE = 512, RECV = 1 << 30, THREADS = 64 };

struct address {
	uint32_t qpn, lid;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_pd *parent; /* with the thread domain */
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint32_t (*slots)[SIZE / 4]; /* DEPTH to send from, DEPTH to receive into */
	_Atomic unsigned char busy[DEPTH];
	_Atomic unsigned char *seen; /* by message number */
	_Atomic unsigned next, sent, received;
	unsigned messages;
	uint32_t lid;
};

static void fail(const char *what)
{
	fprintf(stderr, "threads: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void post_recv(struct end *e, unsigned slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->slots[DEPTH + slot], .length = SIZE, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV | slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(e->qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

/* A parent domain with a thread domain, and a CQ of that. */
static struct ibv_cq *domain_open(struct end *e)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = e->pd };
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 4 * DEPTH,
		.channel = e->channel,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};

	e->td = ibv_alloc_td(e->ctx, &td);
	parent.td = e->td;
	e->parent = e->td ? ibv_alloc_parent_domain(e->ctx, &parent) : NULL;
	if (!e->parent)
		fail("ibv_alloc_parent_domain");
	cq.parent_domain = e->parent;

	struct ibv_cq_ex *made = ibv_create_cq_ex(e->ctx, &cq);

	return made ? ibv_cq_ex_to_cq(made) : NULL;
}

static void end_open(struct end *e, unsigned messages, bool events, bool domain)
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
	e->messages = messages;
	e->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	e->pd = e->ctx ? ibv_alloc_pd(e->ctx) : NULL;
	e->slots = calloc(2 * DEPTH, SIZE);
	e->seen = calloc(messages, 1);
	if (events && e->pd && !(e->channel = ibv_create_comp_channel(e->ctx)))
		fail("ibv_create_comp_channel");
	if (!e->pd)
		fail("ibv_alloc_pd");
	e->cq = domain ? domain_open(e) : ibv_create_cq(e->ctx, 4 * DEPTH, NULL, e->channel, 0);
	e->mr = e->cq ? ibv_reg_mr(e->pd, e->slots, (size_t)2 * DEPTH * SIZE, IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!e->mr || ibv_query_port(e->ctx, 1, &port))
		fail("set-up");
	e->lid = port.lid;
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(domain ? e->parent : e->pd, &init);
	if (!e->qp || ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp");
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(e, i);
}

static void end_connect(struct end *e, struct address peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn, .min_rnr_timer = 1,
		.ah_attr = { .dlid = (uint16_t)peer.lid, .port_num = 1 },
	};

	if (ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	if (ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
	if (e->channel && ibv_req_notify_cq(e->cq, 0))
		fail("ibv_req_notify_cq");
}

static bool try_send(struct end *e)
{
	for (unsigned i = 0; i < DEPTH; i++) {
		unsigned char free_slot = 0;

		if (!atomic_compare_exchange_strong(&e->busy[i], &free_slot, 1))
			continue;
		unsigned n = atomic_fetch_add(&e->next, 1);
		if (n >= e->messages) {
			atomic_store(&e->busy[i], 0);
			return false;
		}
		/* Every size from one slot to several, a few staged. */
		uint32_t length = 4 + (n * 28) % (SIZE - 4);
		memset(e->slots[i], (int)(n & 0xff), SIZE);
		e->slots[i][0] = n;
		struct ibv_sge sge = { .addr = (uintptr_t)e->slots[i], .length = length, .lkey = e->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		errno = ibv_post_send(e->qp, &wr, &bad);
		if (errno)
			fail("ibv_post_send");
		return true;
	}
	return false;
}

static void take_message(struct end *e, unsigned slot, uint32_t length)
{
	uint32_t *m = e->slots[DEPTH + slot], n = m[0];
	const unsigned char *bytes = (const unsigned char *)m;

	if (n >= e->messages || atomic_fetch_add(&e->seen[n], 1)) {
		fprintf(stderr, "threads: message %u came twice, or was never sent\n", n);
		exit(1);
	}
	for (uint32_t i = 4; i < length; i++)
		if (bytes[i] != (n & 0xff)) {
			fprintf(stderr, "threads: message %u is damaged at byte %u\n", n, i);
			exit(1);
		}
	post_recv(e, slot);
	atomic_fetch_add(&e->received, 1);
}

static bool reap(struct end *e)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(e->cq, 4, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "threads: completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		if (wc[i].wr_id & RECV) {
			take_message(e, wc[i].wr_id & (DEPTH - 1), wc[i].byte_len);
		} else {
			atomic_store(&e->busy[wc[i].wr_id], 0);
			atomic_fetch_add(&e->sent, 1);
		}
	}
	if (n < 0)
		fail("ibv_poll_cq");
	return n > 0;
}

static bool done(const struct end *e)
{
	return e->sent >= e->messages && e->received >= e->messages;
}

static void *work(void *arg)
{
	struct end *e = arg;

	while (!done(e)) {
		bool did = try_send(e);
		if (!reap(e) && !did)
			sched_yield();
	}
	return NULL;
}

/* With --events one thread more, which sleeps in the channel until the end. */
static void *sleeper(void *arg)
{
	struct end *e = arg;

	while (!done(e)) {
		struct ibv_cq *cq;
		void *context;

		if (ibv_get_cq_event(e->channel, &cq, &context))
			fail("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			fail("ibv_req_notify_cq");
		while (reap(e))
			;
	}
	return NULL;
}

static void end_run(struct end *ends, unsigned n, unsigned threads)
{
	pthread_t ids[THREADS], sleepers[THREADS];

	for (unsigned i = 0; i < n; i++)
		if (ends[i].channel && pthread_create(&sleepers[i], NULL, sleeper, &ends[i]))
			fail("pthread_create");
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, work, &ends[i % n]))
			fail("pthread_create");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < n; i++)
		if (ends[i].channel) {
			/* It may sleep for ever now: cancellation must be possible there. */
			pthread_cancel(sleepers[i]);
			pthread_join(sleepers[i], NULL);
		}
}

static void end_close(struct end *e)
{
	if (ibv_destroy_qp(e->qp) || ibv_dereg_mr(e->mr))
		fail("tear-down");
	/* A cancelled sleeper may have left an event unacknowledged; the process ends with its CQ. */
	if (!e->channel && (ibv_destroy_cq(e->cq) || (e->td && (ibv_dealloc_pd(e->parent) || ibv_dealloc_td(e->td))) ||
			    ibv_dealloc_pd(e->pd) || ibv_close_device(e->ctx)))
		fail("tear-down");
	free(e->slots);
	free((void *)e->seen);
}

static int one(unsigned threads, unsigned messages, bool events, bool domains)
{
	static struct end ends[THREADS];
	unsigned n = domains ? threads & ~1u : 2;

	for (unsigned i = 0; i < n; i++)
		end_open(&ends[i], messages, events, domains);
	for (unsigned i = 0; i < n; i++)
		end_connect(&ends[i], (struct address){ ends[i ^ 1].qp->qp_num, ends[i ^ 1].lid });
	end_run(ends, n, domains ? n : threads);
	for (unsigned i = 0; i < n; i++)
		end_close(&ends[i]);
	return 0;
}

static int side(int sock, unsigned threads, unsigned messages, bool events, bool domains)
{
	static struct end ends[THREADS];
	unsigned n = domains ? threads : 1;
	char byte = 0;

	for (unsigned i = 0; i < n; i++) {
		struct address mine, peer = { 0 };

		end_open(&ends[i], messages, events, domains);
		mine = (struct address){ ends[i].qp->qp_num, ends[i].lid };
		if (send(sock, &mine, sizeof(mine), 0) != sizeof(mine) ||
		    recv(sock, &peer, sizeof(peer), 0) != sizeof(peer))
			fail("exchange");
		end_connect(&ends[i], peer);
	}
	/* Nobody waits for a peer that is not there for longer than its timeout says: both begin when both are. */
	if (send(sock, &byte, 1, 0) != 1 || recv(sock, &byte, 1, 0) != 1)
		fail("exchange");
	end_run(ends, n, threads);
	if (send(sock, &byte, 1, 0) != 1 || recv(sock, &byte, 1, 0) != 1)
		fail("exchange");
	for (unsigned i = 0; i < n; i++)
		end_close(&ends[i]);
	return 0;
}

int main(int argc, char **argv)
{
	bool single = false, events = false, domains = false;
	int i = 1, sockets[2], status;

	/* A sanitizer starts its symbolizer with our environment, and that program cannot load an instrumented library. */
	unsetenv("LD_PRELOAD");
	for (; i < argc && argv[i][0] == '-'; i++) {
		single |= strcmp(argv[i], "--one") == 0;
		events |= strcmp(argv[i], "--events") == 0;
		domains |= strcmp(argv[i], "--domains") == 0;
	}
	if (argc - i != 2)
		return 2;
	unsigned threads = (unsigned)atoi(argv[i]), messages = (unsigned)atoi(argv[i + 1]);

	if (threads > THREADS)
		return 2;
	if (single)
		return one(threads, messages, events, domains);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
		fail("socketpair");
	pid_t child = fork();
	if (child == 0)
		exit(side(sockets[1], threads, messages, events, domains));
	int mine = side(sockets[0], threads, messages, events, domains);
	if (waitpid(child, &status, 0) != child)
		fail("waitpid");
	return mine || status;
}
