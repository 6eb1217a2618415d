/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One pool, many processes, restarts. A server keeps a named, persistent region; workers import it, connect to the
 * server and use it over RDMA. The server may be killed: the next one finds the pool as it was, contents and rkey, and
 * registers nothing.
 *
 *	pool server NAME SIZE SOCKET           until its standard input ends; SIZE in MiB
 *	pool worker NAME SOCKET ID WORKERS     writes its share of the pool, reads it back, counts itself
 *	pool check NAME SOCKET ID WORKERS      what that worker wrote is there, read over RDMA
 *
 * Built with: cc pool.c -lverbsd
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <verbsd.h>

#define BLOCK (1u << 20) /* a worker writes and reads so much at a time */
#define HEAD 4096u	 /* the pool starts with this; workers' shares follow */

/* The head of the pool. */
struct head {
	uint64_t magic;	  /* stored last by who filled the pool */
	uint64_t servers; /* that have served it */
	uint64_t workers; /* that are done: an RDMA atomic */
};

#define MAGIC 0x6c6f6f7064736276u

/* What two ends must know of each other. */
struct hello {
	uint32_t qpn, lid, rkey, pad;
	uint64_t base, size;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *pool;
	struct verbsd_mr_info info;
	uint32_t lid;
};

static void fail(const char *format, ...)
{
	int error = errno;
	va_list args;

	va_start(args, format);
	fprintf(stderr, "pool: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", strerror(error));
	va_end(args);
	exit(1);
}

static void end_open(struct end *e)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	if (!list || !list[0])
		fail("no device");
	e->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	e->pd = e->ctx ? ibv_alloc_pd(e->ctx) : NULL;
	e->cq = e->pd ? ibv_create_cq(e->ctx, 64, NULL, NULL, 0) : NULL;
	if (!e->cq || ibv_query_port(e->ctx, 1, &port))
		fail("open");
	e->lid = port.lid;
}

static struct ibv_qp *qp_create(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);

	if (!qp)
		fail("ibv_create_qp");
	return qp;
}

static int qp_connect(struct ibv_qp *qp, const struct hello *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int r = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (r)
		return r;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qpn, .min_rnr_timer = 12,
		.max_dest_rd_atomic = 1, .ah_attr = { .dlid = (uint16_t)peer->lid, .port_num = 1 },
	};
	r = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (r)
		return r;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(un.sun_path)) {
		errno = ENAMETOOLONG;
		fail("%s", path);
	}
	strcpy(un.sun_path, path);
	return un;
}

static int exchange(int sock, const struct hello *mine, struct hello *theirs)
{
	if (send(sock, mine, sizeof(*mine), MSG_NOSIGNAL) != sizeof(*mine))
		return -1;
	return recv(sock, theirs, sizeof(*theirs), 0) == sizeof(*theirs) ? 0 : -1;
}

static struct hello hello_of(const struct end *e, const struct ibv_qp *qp)
{
	return (struct hello){ .qpn = qp->qp_num, .lid = e->lid, .rkey = e->pool->rkey,
			       .base = e->info.base, .size = e->info.size };
}

/* --- server ------------------------------------------------------------------------------------------------------- */

static void pool_attach(struct end *e, const char *name, size_t size)
{
	const struct verbsd_mr_attr attr = {
		.size = size,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
	};
	bool created;

	e->pool = verbsd_attach_mr(e->pd, name, &attr, VERBSD_EXPORT_PERSIST, &created);
	if (!e->pool || verbsd_query_mr(e->pool, &e->info))
		fail("verbsd_attach_mr %s", name);

	struct head *head = e->pool->addr;

	if (__atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != MAGIC) {
		memset((char *)e->pool->addr + HEAD, 0x5a, e->info.size - HEAD);
		__atomic_store_n(&head->magic, MAGIC, __ATOMIC_RELEASE);
	}
	head->servers += 1;
	printf("%s rkey 0x%x servers %llu workers %llu\n", created ? "created" : "found", e->pool->rkey,
	       (unsigned long long)head->servers, (unsigned long long)head->workers);
	fflush(stdout);
}

/* A worker's QP stays until the worker hangs up. The server itself does nothing on the data path. */
static int serve(const char *name, size_t size, const char *path)
{
	enum { CLIENTS = 64 };
	struct sockaddr_un un = address(path);
	struct pollfd fds[2 + CLIENTS] = { { .fd = STDIN_FILENO, .events = POLLIN } };
	struct ibv_qp *qps[2 + CLIENTS] = { NULL };
	struct end e = { 0 };
	nfds_t n = 2;

	end_open(&e);
	fds[1] = (struct pollfd){ .fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), .events = POLLIN };
	unlink(path);
	if (bind(fds[1].fd, (struct sockaddr *)&un, sizeof(un)) || listen(fds[1].fd, CLIENTS))
		fail("%s", path);
	pool_attach(&e, name, size);
	for (;;) {
		if (poll(fds, n, -1) < 0 && errno != EINTR)
			fail("poll");
		if (fds[0].revents) /* end of file */
			break;
		for (nfds_t i = 2; i < n; i++) {
			if (!fds[i].revents)
				continue;
			ibv_destroy_qp(qps[i]);
			close(fds[i].fd);
			fds[i] = fds[--n];
			qps[i--] = qps[n];
		}
		if (fds[1].revents && n < 2 + CLIENTS) {
			int sock = accept(fds[1].fd, NULL, NULL);
			struct ibv_qp *qp = qp_create(&e);
			struct hello mine = hello_of(&e, qp), peer;
			char ready = 0;

			if (sock < 0 || exchange(sock, &mine, &peer) || qp_connect(qp, &peer) ||
			    send(sock, &ready, 1, MSG_NOSIGNAL) != 1) {
				ibv_destroy_qp(qp);
				close(sock);
				continue;
			}
			qps[n] = qp;
			fds[n++] = (struct pollfd){ .fd = sock, .events = POLLIN };
		}
	}
	for (nfds_t i = 2; i < n; i++)
		ibv_destroy_qp(qps[i]);
	unlink(path);
	if (ibv_dereg_mr(e.pool) || ibv_destroy_cq(e.cq) || ibv_dealloc_pd(e.pd) || ibv_close_device(e.ctx))
		fail("tear-down");
	return 0;
}

/* --- worker ------------------------------------------------------------------------------------------------------- */

struct worker {
	struct end e;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer; /* BLOCK bytes, this process's own */
	struct hello server;
	uint64_t start, length; /* its share of the pool */
	unsigned id;
	int sock;
};

static void rdma(struct worker *w, struct ibv_send_wr wr, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)w->buffer, .length = length, .lkey = w->mr->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = w->server.base + offset;
		wr.wr.atomic.rkey = w->server.rkey;
	} else {
		wr.wr.rdma.remote_addr = w->server.base + offset;
		wr.wr.rdma.rkey = w->server.rkey;
	}
	errno = ibv_post_send(w->qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
	while ((n = ibv_poll_cq(w->e.cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "pool: opcode %d at %llu: %s\n", wr.opcode, (unsigned long long)offset,
			n < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void worker_open(struct worker *w, const char *name, const char *path, unsigned id, unsigned workers)
{
	struct sockaddr_un un = address(path);
	char ready;

	end_open(&w->e);
	w->e.pool = verbsd_import_mr(w->e.pd, name, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);
	if (!w->e.pool || verbsd_query_mr(w->e.pool, &w->e.info))
		fail("verbsd_import_mr %s", name);
	w->buffer = malloc(BLOCK);
	w->mr = w->buffer ? ibv_reg_mr(w->e.pd, w->buffer, BLOCK, IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!w->mr)
		fail("ibv_reg_mr");
	w->qp = qp_create(&w->e);

	struct hello mine = hello_of(&w->e, w->qp);

	w->sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (connect(w->sock, (struct sockaddr *)&un, sizeof(un)) || exchange(w->sock, &mine, &w->server))
		fail("%s", path);
	errno = qp_connect(w->qp, &w->server);
	if (errno || recv(w->sock, &ready, 1, 0) != 1)
		fail("connect");
	w->id = id;
	w->length = (w->server.size - HEAD) / workers;
	w->start = HEAD + id * w->length;
}

static void pattern(const struct worker *w, uint64_t offset, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		w->buffer[i] = (uint8_t)((offset + i) * 31 + ((offset + i) >> 12) + w->id);
}

static void differs(const struct worker *w, uint64_t offset, const char *how)
{
	fprintf(stderr, "pool: worker %u: wrong bytes at %llu, %s\n", w->id, (unsigned long long)offset, how);
	exit(1);
}

/* Everything by RDMA into the pool; then seen here, in this process's own mapping of it. */
static void share_write(struct worker *w)
{
	const uint8_t *here = w->e.pool->addr;

	for (uint64_t at = 0; at < w->length; at += BLOCK) {
		uint32_t n = (uint32_t)(w->length - at < BLOCK ? w->length - at : BLOCK);

		pattern(w, w->start + at, n);
		rdma(w, (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE }, w->start + at, n);
		if (memcmp(here + w->start + at, w->buffer, n) != 0)
			differs(w, w->start + at, "written by RDMA, read in the mapping");
	}
}

static void share_check(struct worker *w)
{
	uint8_t *got = malloc(BLOCK);

	if (!got)
		fail("malloc");
	for (uint64_t at = 0; at < w->length; at += BLOCK) {
		uint32_t n = (uint32_t)(w->length - at < BLOCK ? w->length - at : BLOCK);

		rdma(w, (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_READ }, w->start + at, n);
		memcpy(got, w->buffer, n);
		pattern(w, w->start + at, n);
		if (memcmp(got, w->buffer, n) != 0)
			differs(w, w->start + at, "read by RDMA");
	}
	free(got);
}

static int work(int argc, char **argv, bool write)
{
	struct worker w = { 0 };
	unsigned workers = (unsigned)atoi(argv[5]);

	(void)argc;
	worker_open(&w, argv[2], argv[3], (unsigned)atoi(argv[4]), workers ? workers : 1);
	if (write)
		share_write(&w);
	share_check(&w);
	if (write)
		rdma(&w, (struct ibv_send_wr){ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic.compare_add = 1 },
		     offsetof(struct head, workers), 8);
	printf("worker %u: %llu bytes right\n", w.id, (unsigned long long)w.length);
	if (ibv_destroy_qp(w.qp) || ibv_dereg_mr(w.mr) || ibv_dereg_mr(w.e.pool) || ibv_destroy_cq(w.e.cq) ||
	    ibv_dealloc_pd(w.e.pd) || ibv_close_device(w.e.ctx))
		fail("tear-down");
	free(w.buffer);
	close(w.sock);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "server") == 0)
		return serve(argv[2], (size_t)strtoull(argv[3], NULL, 0) << 20, argv[4]);
	if (argc == 6 && strcmp(argv[1], "worker") == 0)
		return work(argc, argv, true);
	if (argc == 6 && strcmp(argv[1], "check") == 0)
		return work(argc, argv, false);
	fprintf(stderr, "usage: pool server NAME MIB SOCKET | pool worker|check NAME SOCKET ID WORKERS\n");
	return 2;
}
