/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two-way traffic of every kind between two processes, for tests that kill something meanwhile. A plain verbs program:
 * it knows nothing of verbsd.
 *
 *	traffic listen|connect PATH [--events] [--until FILE] [--count N] [--create-after] [--fork]
 *
 * The two ends exchange addresses over the UNIX socket PATH, then both send, write, read and add, and check what they
 * can. "running" on stdout says that both have connected, with --until that their messages pass as well (so that whoever
 * ends the daemon then does not end it before they have their wire). It ends in one of three ways, each a line on stdout
 * and status 0: "done N" (--count reached, or FILE exists), or "failed STATUS EVENT": a completion in error came, every
 * outstanding work request was then completed, and EVENT is the asynchronous event that came (or none). Whatever
 * else happens is a message on stderr and status 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum {
	DEPTH = 32,
	BLOCK = 64 << 10,
	RECV = 1ull << 32, /* in a wr_id */
};

struct address {
	uint32_t qpn, psn, lid, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

struct traffic {
	int sock;
	bool events;
	const char *until;
	uint64_t count, done, looks;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* what I send; what the peer writes; what I read; receives: BLOCK each; then a counter */
	struct address peer;
	unsigned sends, recvs; /* outstanding */
	unsigned unacked;
	enum ibv_wc_status failed;
};

static void fail(const char *what)
{
	fprintf(stderr, "traffic: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int meet(const char *path, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (!listening) {
		if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
			fail("connect");
		return fd;
	}
	/* The name is there once somebody listens: the other end comes as soon as it sees it. */
	char name[sizeof(address.sun_path)];

	memcpy(name, address.sun_path, sizeof(name));
	snprintf(address.sun_path, sizeof(address.sun_path), "%.*s.new", (int)sizeof(address.sun_path) - 5, path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1) || rename(address.sun_path, name))
		fail("listen");
	int peer = accept(fd, NULL, NULL);
	if (peer < 0)
		fail("accept");
	close(fd);
	return peer;
}

static void exchange(int sock, const void *mine, void *theirs, size_t size)
{
	if (write(sock, mine, size) != (ssize_t)size)
		fail("write to the other end");
	if (recv(sock, theirs, size, MSG_WAITALL) != (ssize_t)size)
		fail("read from the other end");
}

static void set_up(struct traffic *t)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		fail("no device");
	t->ctx = ibv_open_device(list[0]);
	if (!t->ctx)
		fail("ibv_open_device");
	ibv_free_device_list(list);
	t->pd = ibv_alloc_pd(t->ctx);
	t->memory = aligned_alloc(4096, 5 * BLOCK);
	if (!t->pd || !t->memory)
		fail("ibv_alloc_pd");
	memset(t->memory, 0, 5 * BLOCK);
	t->mr = ibv_reg_mr(t->pd, t->memory, 5 * BLOCK, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!t->mr)
		fail("ibv_reg_mr");
	if (t->events) {
		t->channel = ibv_create_comp_channel(t->ctx);
		if (!t->channel)
			fail("ibv_create_comp_channel");
	}
	t->cq = ibv_create_cq(t->ctx, 4 * DEPTH, NULL, t->channel, 0);
	if (!t->cq)
		fail("ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	t->qp = ibv_create_qp(t->pd, &init);
	if (!t->qp)
		fail("ibv_create_qp");
}

static void post_recv(struct traffic *t)
{
	struct ibv_sge sge = { .addr = (uintptr_t)(t->memory + 3 * BLOCK), .length = BLOCK, .lkey = t->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(t->qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
	t->recvs++;
}

static void connect_qp(struct traffic *t)
{
	struct ibv_port_attr port;
	struct address mine = {
		.qpn = t->qp->qp_num,
		.psn = (uint32_t)getpid() & 0xffffff,
		.rkey = t->mr->rkey,
		.addr = (uintptr_t)t->memory,
	};

	if (ibv_query_port(t->ctx, 1, &port) || ibv_query_gid(t->ctx, 1, 0, &mine.gid))
		fail("ibv_query_port");
	mine.lid = port.lid;
	exchange(t->sock, &mine, &t->peer, sizeof(mine));

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	if (ibv_modify_qp(t->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("to INIT");
	for (int i = 0; i < DEPTH; i++)
		post_recv(t);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = t->peer.qpn, .rq_psn = t->peer.psn,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .dlid = (uint16_t)t->peer.lid, .port_num = 1, .is_global = 1,
			     .grh = { .dgid = t->peer.gid, .hop_limit = 1 } },
	};
	if (ibv_modify_qp(t->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .sq_psn = mine.psn, .max_rd_atomic = 4 };
	if (ibv_modify_qp(t->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

/* Kinds and sizes in turn: small and large, inline descriptors and staged payload. */
static void post_send(struct traffic *t, uint64_t n)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_IMM,
						    IBV_WR_RDMA_WRITE_WITH_IMM };
	static const uint32_t sizes[] = { 8, 200, 3000, BLOCK };
	enum ibv_wr_opcode kind = kinds[n % 6];
	uint32_t size = kind == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : sizes[n / 6 % 4];
	bool read = kind == IBV_WR_RDMA_READ || kind == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = { .addr = (uintptr_t)(t->memory + (read ? 2 * BLOCK : 0)), .length = size,
			       .lkey = t->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = kind,
				  .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl((uint32_t)n) }, *bad;

	if (kind == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = t->peer.addr + 4 * BLOCK;
		wr.wr.atomic.rkey = t->peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = t->peer.addr + BLOCK;
		wr.wr.rdma.rkey = t->peer.rkey;
	}
	errno = ibv_post_send(t->qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
	t->sends++;
}

static void wait_event(struct traffic *t)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(t->channel, &cq, &context))
		fail("ibv_get_cq_event");
	t->unacked++;
	if (ibv_req_notify_cq(t->cq, 0))
		fail("ibv_req_notify_cq");
}

/* Takes what is there; true when something was. */
static bool reap(struct traffic *t)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(t->cq, 16, wc);

	if (n < 0)
		fail("ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id == RECV)
			t->recvs--;
		else
			t->sends--;
		if (wc[i].status != IBV_WC_SUCCESS) {
			if (t->failed == IBV_WC_SUCCESS || t->failed == IBV_WC_WR_FLUSH_ERR)
				t->failed = wc[i].status;
			continue;
		}
		if (wc[i].wr_id == RECV && !t->failed)
			post_recv(t);
		else if (wc[i].wr_id != RECV)
			t->done++;
	}
	return n > 0;
}

static bool finished(struct traffic *t)
{
	if (t->count && t->done >= t->count)
		return true;
	return t->until && t->looks++ % 64 == 0 && access(t->until, F_OK) == 0;
}

static void say_running(void)
{
	printf("running\n");
	fflush(stdout);
}

static void run(struct traffic *t)
{
	uint64_t n = 0;
	bool stop = false, said = !t->until;

	if (t->events && ibv_req_notify_cq(t->cq, 0))
		fail("ibv_req_notify_cq");
	while (!t->failed && !(stop && !t->sends)) {
		stop = stop || finished(t);
		while (!stop && t->sends < DEPTH && !t->failed)
			post_send(t, n++);
		if (!reap(t) && t->events)
			wait_event(t);
		if (!said && t->done) {
			say_running();
			said = true;
		}
	}
	while (t->failed && (t->sends || t->recvs))
		if (!reap(t) && t->events)
			wait_event(t);
}

/* The other end may still need my receives: serves it until it is done as well. */
static void part(struct traffic *t)
{
	struct pollfd fds[] = { { .fd = t->sock, .events = POLLIN },
				{ .fd = t->events ? t->channel->fd : -1, .events = POLLIN } };
	char byte = 'd';

	if (write(t->sock, &byte, 1) != 1)
		fail("write to the other end");
	while (!t->failed) {
		if (reap(t))
			continue;
		if (poll(fds, 2, t->events ? -1 : 0) < 0)
			fail("poll");
		if (fds[1].revents)
			wait_event(t);
		else if (fds[0].revents)
			break;
	}
	if (t->failed) {
		fprintf(stderr, "traffic: while parting: %s, %u sends and %u receives left\n", ibv_wc_status_str(t->failed),
			t->sends, t->recvs);
		exit(1);
	}
	if (read(t->sock, &byte, 1) != 1)
		fail("the other end left");
}

/* The event that comes with completions in error, a moment after them. */
static const char *async_event(struct traffic *t)
{
	struct pollfd fd = { .fd = t->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	const char *name;

	/* The limit is for one that never comes. */
	if (poll(&fd, 1, 30000) != 1 || ibv_get_async_event(t->ctx, &event))
		return "none";
	name = ibv_event_type_str(event.event_type);
	ibv_ack_async_event(&event);
	return name;
}

static void tear_down(struct traffic *t)
{
	if (t->unacked)
		ibv_ack_cq_events(t->cq, t->unacked);
	if ((errno = ibv_destroy_qp(t->qp)))
		fail("ibv_destroy_qp");
	if ((errno = ibv_destroy_cq(t->cq)))
		fail("ibv_destroy_cq");
	if (t->channel && (errno = ibv_destroy_comp_channel(t->channel)))
		fail("ibv_destroy_comp_channel");
	if ((errno = ibv_dereg_mr(t->mr)))
		fail("ibv_dereg_mr");
	if ((errno = ibv_dealloc_pd(t->pd)))
		fail("ibv_dealloc_pd");
	if (ibv_close_device(t->ctx))
		fail("ibv_close_device");
	free(t->memory);
}

/* With the daemon gone a creating verb must fail, with an errno. */
static void create_after(struct traffic *t)
{
	errno = 0;
	if (ibv_alloc_pd(t->ctx) || ibv_create_cq(t->ctx, 16, NULL, NULL, 0)) {
		fprintf(stderr, "traffic: a creating verb succeeded without a daemon\n");
		exit(1);
	}
	if (!errno) {
		fprintf(stderr, "traffic: a creating verb failed without errno\n");
		exit(1);
	}
	printf("create: %s\n", strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "events", no_argument, NULL, 'e' }, { "until", required_argument, NULL, 'u' },
		{ "count", required_argument, NULL, 'c' }, { "create-after", no_argument, NULL, 'a' },
		{ "fork", no_argument, NULL, 'f' }, { NULL, 0, NULL, 0 },
	};
	struct traffic t = { 0 };
	bool after = false, forked = false;
	pid_t child = 0;
	char byte = 'd';

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (o == 'e')
			t.events = true;
		else if (o == 'u')
			t.until = optarg;
		else if (o == 'c')
			t.count = strtoull(optarg, NULL, 10);
		else if (o == 'a')
			after = true;
		else if (o == 'f')
			forked = true;
		else
			return 2;
	}
	if (argc - optind != 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	t.sock = meet(argv[optind + 1], strcmp(argv[optind], "listen") == 0);
	set_up(&t);
	if (forked) {
		/* A child that keeps every fd of its parent, the session's socket among them. */
		child = fork();
		if (child == 0) {
			pause();
			_exit(0);
		}
		printf("child %d\n", (int)child);
	}
	connect_qp(&t);
	exchange(t.sock, &byte, &byte, 1);
	if (!t.until)
		say_running();
	run(&t);
	if (t.failed)
		printf("failed %s, %s\n", ibv_wc_status_str(t.failed), async_event(&t));
	else
		part(&t);
	if (after)
		create_after(&t);
	tear_down(&t);
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	if (!t.failed)
		printf("done %llu\n", (unsigned long long)t.done);
	return 0;
}
