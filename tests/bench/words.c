/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small operations on ibv_wr_*, between two processes, each on its own processor. Prints "name<tab>value<tab>unit": the
 * median batch.
 *
 *	words send [OPTION...]     8 bytes to and fro: half the time of a round
 *	words write [OPTION...]    the same by RDMA WRITE, both sides look at their memory
 *	words read, words atomic   a READ of 8 bytes, a fetch-and-add: post to completion
 *
 *	--domain       QP and CQ under a thread domain
 *	--srq          receives from a shared receive queue
 *	--extended     an extended CQ: ibv_start_poll() and its like
 *	--list         ibv_post_send(), not ibv_wr_start() and its like
 *	--size N       bytes of a SEND, 8 unless told
 *	--idle N       N connected RC QPs beside, which nobody uses
 *	--ordinary     ordinary memory, else verbsd_alloc_mr()
 *	--seconds N    go on for that long
 */
#include <dlfcn.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/verbsd.h"
#include "tests/bench/bench.h"

enum { DEPTH = 64, BATCH = 200, BATCHES_MAX = 200000, WARM_UP = 20, CHUNK = 128, SIZE_MAX_B = 512 };

struct options {
	bool domain, ordinary, srq, extended, list;
	unsigned idle, size;
	double seconds;
};

struct address {
	uint32_t qpn, lid, rkey;
	uint64_t addr;
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *own; /* own: the PD or the parent domain */
	struct ibv_cq *cq;
	struct ibv_cq_ex *extended; /* the same, if it is polled as one */
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint64_t *words; /* [0] what is sent, [8] what comes, [16] what is read or added; of SENDs what comes is at [64] */
	uint64_t iova;	 /* of words */
	uint32_t size;	 /* of a SEND */
	bool list;
	uint32_t lid;
	struct ibv_qp_ex *qp;
	struct address peer;
	int sock;
	bool first;
} e;

static double samples[BATCHES_MAX];

static void exchange(const void *mine, void *theirs, size_t size)
{
	if (send(e.sock, mine, size, 0) != (ssize_t)size || recv(e.sock, theirs, size, MSG_WAITALL) != (ssize_t)size)
		fail("exchange");
}

/* --- objects ------------------------------------------------------------------------------------------------------- */

static void memory_make(bool ordinary)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *(*alloc)(struct ibv_pd *, const struct verbsd_mr_attr *);

	if (ordinary) {
		e.words = aligned_alloc(4096, 4096);
		if (e.words)
			memset(e.words, 0, 4096);
		e.mr = e.words ? ibv_reg_mr(e.pd, e.words, 4096, access) : NULL;
		e.iova = (uintptr_t)e.words;
	} else {
		struct verbsd_mr_attr attr = { .size = 4096, .access = (unsigned)access, .flags = VERBSD_MR_POPULATE };

		*(void **)&alloc = dlsym(RTLD_DEFAULT, "verbsd_alloc_mr");
		e.mr = alloc ? alloc(e.pd, &attr) : NULL;
		e.words = e.mr ? e.mr->addr : NULL;
		/* Addresses in work requests are the region's, and that is where it is mapped unless something lies there. */
		e.iova = (uintptr_t)e.words;
	}
	if (!e.mr)
		fail("memory");
}

static void domain_make(void)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = e.pd, .td = ibv_alloc_td(e.ctx, &td) };

	e.own = parent.td ? ibv_alloc_parent_domain(e.ctx, &parent) : NULL;
	if (!e.own)
		fail("ibv_alloc_parent_domain");
}

static void srq_make(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };

	e.srq = ibv_create_srq(e.own, &init);
	if (!e.srq)
		fail("ibv_create_srq");
}

static void objects_make(const struct options *o)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex cq = { .cqe = 4 * DEPTH, .wc_flags = o->extended ? IBV_WC_EX_WITH_BYTE_LEN : 0 };
	struct ibv_port_attr port;

	e.ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!e.ctx)
		fail("no device");
	ibv_free_device_list(list);
	e.own = e.pd = ibv_alloc_pd(e.ctx);
	if (!e.pd || ibv_query_port(e.ctx, 1, &port))
		fail("ibv_alloc_pd");
	e.lid = port.lid;
	e.size = o->size;
	e.list = o->list;
	memory_make(o->ordinary);
	if (o->domain) {
		domain_make();
		cq.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
		cq.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		cq.parent_domain = e.own;
	}

	struct ibv_cq_ex *made = ibv_create_cq_ex(e.ctx, &cq);

	if (!made)
		fail("ibv_create_cq_ex");
	e.cq = ibv_cq_ex_to_cq(made);
	e.extended = o->extended ? made : NULL;
	if (o->srq)
		srq_make();
}

static struct ibv_qp *qp_make(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = e.cq, .recv_cq = e.cq, .srq = e.srq, .qp_type = IBV_QPT_RC, .pd = e.own,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = SIZE_MAX_B },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp *qp = ibv_create_qp_ex(e.ctx, &init);

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp_ex");
	return qp;
}

static void qp_connect(struct ibv_qp *qp, const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qpn, .min_rnr_timer = 12,
		.max_dest_rd_atomic = 16, .ah_attr = { .dlid = (uint16_t)peer->lid, .port_num = 1 },
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 16 };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

static struct ibv_qp *qp_pair(void)
{
	struct ibv_qp *qp = qp_make();
	struct address mine = { qp->qp_num, e.lid, e.mr->rkey, e.iova };

	exchange(&mine, &e.peer, sizeof(mine));
	qp_connect(qp, &e.peer);
	return qp;
}

/* --- operations ---------------------------------------------------------------------------------------------------- */

static void post_recv(void)
{
	struct ibv_sge sge = { .addr = e.iova + SIZE_MAX_B, .length = e.size, .lkey = e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = e.srq ? ibv_post_srq_recv(e.srq, &wr, &bad) : ibv_post_recv(&e.qp->qp_base, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static int poll_extended(struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int err = ibv_start_poll(e.extended, &attr);

	if (err)
		return err == ENOENT ? 0 : -1;
	wc->status = e.extended->status;
	wc->wr_id = e.extended->wr_id;
	wc->opcode = ibv_wc_read_opcode(e.extended);
	wc->byte_len = ibv_wc_read_byte_len(e.extended);
	ibv_end_poll(e.extended);
	return 1;
}

/* Until what @want names (1: a send, 2: a receive) has completed; what came beside it is kept for the next call. */
static void reap(unsigned want)
{
	static unsigned seen;
	struct ibv_wc wc;

	while ((seen & want) != want) {
		int n = e.extended ? poll_extended(&wc) : ibv_poll_cq(e.cq, 1, &wc);

		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "words: completion: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		if (n)
			seen |= (unsigned)wc.wr_id;
	}
	seen &= ~want;
}

static void wr_begin(void)
{
	ibv_wr_start(e.qp);
	e.qp->wr_id = 1;
	e.qp->wr_flags = IBV_SEND_SIGNALED;
}

static void wr_end(void)
{
	errno = ibv_wr_complete(e.qp);
	if (errno)
		fail("ibv_wr_complete");
}

static void send_list(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e.words, .length = e.size };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

	errno = ibv_post_send(&e.qp->qp_base, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

static void send_one(void)
{
	if (e.list) {
		send_list();
		return;
	}
	wr_begin();
	ibv_wr_send(e.qp);
	ibv_wr_set_inline_data(e.qp, e.words, e.size);
	wr_end();
}

static void round_send(void)
{
	if (e.first)
		send_one();
	reap(e.first ? 3 : 2);
	post_recv();
	if (!e.first) {
		send_one();
		reap(1);
	}
}

static void write_one(void)
{
	wr_begin();
	ibv_wr_rdma_write(e.qp, e.peer.rkey, e.peer.addr + 64);
	ibv_wr_set_inline_data(e.qp, e.words, 8);
	wr_end();
}

static void round_write(void)
{
	const volatile uint64_t *come = e.words + 8;

	e.words[0]++;
	if (e.first)
		write_one();
	while (*come != e.words[0])
		;
	if (!e.first)
		write_one();
	reap(1);
}

static void round_read(void)
{
	wr_begin();
	ibv_wr_rdma_read(e.qp, e.peer.rkey, e.peer.addr + 128);
	ibv_wr_set_sge(e.qp, e.mr->lkey, e.iova + 64, 8);
	wr_end();
	reap(1);
}

static void round_atomic(void)
{
	wr_begin();
	ibv_wr_atomic_fetch_add(e.qp, e.peer.rkey, e.peer.addr + 128, 1);
	ibv_wr_set_sge(e.qp, e.mr->lkey, e.iova + 64, 8);
	wr_end();
	reap(1);
}

static const struct piece {
	const char *name;
	void (*round)(void);
	bool two_sided;
} pieces[] = {
	{ "send", round_send, true },
	{ "write", round_write, true },
	{ "read", round_read, false },
	{ "atomic", round_atomic, false },
};

/* --- a run --------------------------------------------------------------------------------------------------------- */

static int order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Both go on until the first side has had enough; it looks at its clock once in a chunk of batches. */
static unsigned batches(const struct piece *piece, double seconds)
{
	uint64_t begin = now();
	unsigned n = 0;
	char more = 1, echo;

	while (more) {
		for (unsigned i = 0; i < CHUNK && (e.first || piece->two_sided); i++) {
			uint64_t start = now();

			for (unsigned k = 0; k < BATCH; k++)
				piece->round();
			if (n < BATCHES_MAX)
				samples[n++] = (double)(now() - start) / BATCH;
		}
		more = e.first ? (double)(now() - begin) < seconds * 1e9 : 1;
		exchange(&more, &echo, 1);
		more = e.first ? more : echo;
	}
	return n;
}

static void side(int sock, bool first, const struct piece *piece, const struct options *o)
{
	unsigned n;

	pin(first ? 0 : 1);
	e.sock = sock;
	e.first = first;
	objects_make(o);
	for (unsigned i = 0; i < o->idle; i++)
		qp_pair();
	e.qp = ibv_qp_to_qp_ex(qp_pair());
	for (unsigned i = 0; i < DEPTH / 2; i++)
		post_recv();
	exchange("", &(char){ 0 }, 1);
	n = batches(piece, o->seconds);
	if (!first)
		return;
	n -= WARM_UP;
	memmove(samples, samples + WARM_UP, n * sizeof(samples[0]));
	qsort(samples, n, sizeof(samples[0]), order);
	printf("%s\t%.1f\tns\n", piece->name, samples[n / 2] / (piece->two_sided ? 2 : 1));
}

static const struct piece *arguments(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "domain", no_argument, NULL, 'd' }, { "idle", required_argument, NULL, 'i' },
		{ "ordinary", no_argument, NULL, 'o' }, { "seconds", required_argument, NULL, 's' },
		{ "srq", no_argument, NULL, 'r' }, { "extended", no_argument, NULL, 'e' }, { "list", no_argument, NULL, 'l' },
		{ "size", required_argument, NULL, 'b' }, { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'd')
			o->domain = true;
		else if (c == 'o')
			o->ordinary = true;
		else if (c == 'r')
			o->srq = true;
		else if (c == 'e')
			o->extended = true;
		else if (c == 'l')
			o->list = true;
		else if (c == 'b')
			o->size = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'i')
			o->idle = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 's')
			o->seconds = strtod(optarg, NULL);
		else
			return NULL;
	}
	if (o->size > SIZE_MAX_B)
		return NULL;
	for (size_t i = 0; optind + 1 == argc && i < sizeof(pieces) / sizeof(pieces[0]); i++)
		if (strcmp(argv[optind], pieces[i].name) == 0)
			return &pieces[i];
	return NULL;
}

int main(int argc, char **argv)
{
	struct options o = { .seconds = 0.3, .size = 8 };
	const struct piece *piece = arguments(argc, argv, &o);
	int sockets[2], status;

	if (!piece) {
		fprintf(stderr, "usage: words send|write|read|atomic [--domain] [--srq] [--extended] [--list] [--size N] [--ordinary] "
				"[--idle N] [--seconds S]\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		fail("socketpair");

	pid_t child = fork();

	if (child == 0) {
		side(sockets[1], false, piece, &o);
		exit(0);
	}
	side(sockets[0], true, piece, &o);
	if (waitpid(child, &status, 0) != child || status)
		fail("the other side");
	return 0;
}
