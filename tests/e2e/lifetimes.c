/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Closed fds and repeated opening, as programs that know nothing of verbsd do them. One test a run, named by the
 * first argument; status 0, or a line on stderr that says what was wrong and status 1.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/lib/need.h"

#define SIZE 8192

/* Two QPs connected to each other: everything that a program has, in one process. */
struct objects {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	struct ibv_srq *srq;
	uint8_t *memory;
};

static struct ibv_context *device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0]);

	struct ibv_context *ctx = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	return ctx;
}

static void qp_connect(const struct objects *o, struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	NEED(ibv_query_port(o->ctx, 1, &port) == 0);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = dest;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 1;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.port_num = 1;
	NEED(ibv_query_gid(o->ctx, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	attr.ah_attr.is_global = 1;
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void objects_make(struct objects *o)
{
	o->ctx = device_open();
	NEED(o->ctx);
	o->memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(o->memory != MAP_FAILED);
	NEED(o->pd = ibv_alloc_pd(o->ctx));
	NEED(o->mr = ibv_reg_mr(o->pd, o->memory, SIZE,
		     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	NEED(o->channel = ibv_create_comp_channel(o->ctx));
	NEED(o->cq = ibv_create_cq(o->ctx, 16, NULL, o->channel, 0));

	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.send_cq = o->cq,
		.recv_cq = o->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	NEED(o->srq = ibv_create_srq(o->pd, &srq));
	NEED(o->qp = ibv_create_qp(o->pd, &init));
	NEED(o->peer = ibv_create_qp(o->pd, &init));
	qp_connect(o, o->qp, o->peer->qp_num);
	qp_connect(o, o->peer, o->qp->qp_num);
}

/* Writes the first half of the memory over the second, and looks. */
static void objects_use(struct objects *o, uint8_t byte)
{
	struct ibv_sge sge = { (uintptr_t)o->memory, SIZE / 2, o->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)o->memory + SIZE / 2, o->mr->rkey },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	memset(o->memory, byte, SIZE / 2);
	NEED(ibv_post_send(o->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(o->cq, 1, &wc)) == 0)
		;
	NEED(n == 1 && wc.status == IBV_WC_SUCCESS);
	NEED(memcmp(o->memory, o->memory + SIZE / 2, SIZE / 2) == 0);
}

static void objects_destroy(struct objects *o)
{
	NEED(ibv_destroy_qp(o->qp) == 0);
	NEED(ibv_destroy_qp(o->peer) == 0);
	NEED(ibv_destroy_srq(o->srq) == 0);
	NEED(ibv_destroy_cq(o->cq) == 0);
	NEED(ibv_destroy_comp_channel(o->channel) == 0);
	NEED(ibv_dereg_mr(o->mr) == 0);
	NEED(ibv_dealloc_pd(o->pd) == 0);
	NEED(ibv_close_device(o->ctx) == 0);
	munmap(o->memory, SIZE);
}

static void child_ended(pid_t pid)
{
	int status;

	NEED(pid > 0 && waitpid(pid, &status, 0) == pid);
	NEED(status == 0);
}

/* A child whose parent only looked at the list has everything. */
static void child_of_a_lister_works(void)
{
	struct objects o;
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list);

	pid_t pid = fork();

	if (pid == 0) {
		objects_make(&o);
		objects_use(&o, 5);
		objects_destroy(&o);
		_exit(0);
	}
	child_ended(pid);
	ibv_free_device_list(list);
	objects_make(&o);
	objects_use(&o, 6);
	objects_destroy(&o);
}

/* The session is lost, cleanly: traffic goes on or fails, nothing crashes or hangs, what is there can be destroyed. */
static void closed_fds(void)
{
	struct objects o;

	objects_make(&o);
	objects_use(&o, 9);
	for (int fd = 3; fd < 4096; fd++)
		close(fd);
	NEED(!ibv_alloc_pd(o.ctx) && errno == ENOTCONN);
	NEED(!ibv_create_cq(o.ctx, 4, NULL, NULL, 0));
	objects_use(&o, 10);
	objects_destroy(&o);
}

/* The numbers that programs use are theirs again: nothing of ours is written there. */
static void reused_fds(void)
{
	struct objects o;
	int pipes[2];
	char byte = 1;

	objects_make(&o);
	objects_use(&o, 9); /* the daemon's word of the connection is read before its socket goes */
	for (int fd = 3; fd < 4096; fd++)
		close(fd);
	NEED(pipe(pipes) == 0);
	for (int fd = 5; fd < 512; fd++)
		NEED(dup2(pipes[1], fd) == fd);
	NEED(!ibv_alloc_pd(o.ctx));
	objects_use(&o, 11);
	NEED(ibv_destroy_qp(o.qp) == 0);
	NEED(write(pipes[1], &byte, 1) == 1);

	char got = 0;

	/* Our byte alone is in the pipe: nobody wrote to what was ours once. */
	NEED(fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
	NEED(read(pipes[0], &got, 1) == 1 && got == 1);
	NEED(read(pipes[0], &got, 1) == -1 && errno == EAGAIN);
}

static int fds_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void open_and_close(void)
{
	struct objects o;
	int before = 0;

	for (int i = 0; i < 20; i++) {
		objects_make(&o);
		objects_use(&o, (uint8_t)i);
		objects_destroy(&o);
		if (i == 0)
			before = fds_open();
	}
	NEED(fds_open() == before);
}

/* B1, B3: more memory and deeper queues than could be locked. */
static void beyond_memlock(void)
{
	size_t size = 64 << 20;
	struct ibv_context *ctx = device_open();

	NEED(ctx);

	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4096, NULL, NULL, 0);
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(pd && cq && memory != MAP_FAILED);

	struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4096, .max_recv_wr = 4096, .max_send_sge = 1,
			.max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(mr && qp);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

/* Any memory, and no other. */
static void what_can_be_registered(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	int file = open("/proc/self/exe", O_RDONLY);
	char on_stack[100];

	NEED(pd && file >= 0);

	char *readable = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
	char *closed = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *gone = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(gone, SIZE);
	NEED(ibv_reg_mr(pd, on_stack, sizeof(on_stack), IBV_ACCESS_LOCAL_WRITE));
	NEED(ibv_reg_mr(pd, readable, SIZE, 0));
	NEED(ibv_reg_mr(pd, readable, SIZE, IBV_ACCESS_REMOTE_READ));
	errno = 0;
	NEED(!ibv_reg_mr(pd, gone, SIZE, 0) && errno == EFAULT);
	NEED(!ibv_reg_mr(pd, closed, SIZE, 0) && (errno == EFAULT || errno == EACCES));
	/* A private mapping can be made writable, but is not. */
	NEED(!ibv_reg_mr(pd, readable, SIZE, IBV_ACCESS_LOCAL_WRITE) &&
		(errno == EFAULT || errno == EACCES));
	NEED(!ibv_reg_mr(pd, on_stack, sizeof(on_stack), IBV_ACCESS_REMOTE_WRITE) &&
		errno == EINVAL);
	NEED(!ibv_reg_mr(pd, (void *)-SIZE, 2 * SIZE, 0) && errno == EINVAL);
}

/* F7 and its like: the order of destruction. */
static void busy_objects(void)
{
	struct objects o;

	objects_make(&o);

	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(o.ctx, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = o.pd, .td = td };
	struct ibv_pd *parent = td ? ibv_alloc_parent_domain(o.ctx, &attr) : NULL;

	NEED(td && parent);
	NEED(ibv_dealloc_td(td) == EBUSY);
	NEED(ibv_dealloc_pd(o.pd) == EBUSY);

	struct ibv_mr *mr = ibv_reg_mr(parent, o.memory, SIZE, IBV_ACCESS_LOCAL_WRITE);

	NEED(mr);
	NEED(ibv_dealloc_pd(parent) == EBUSY);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(ibv_destroy_cq(o.cq) == EBUSY);
	NEED(ibv_destroy_comp_channel(o.channel) == EBUSY);
	NEED(ibv_dealloc_pd(parent) == 0);
	NEED(ibv_dealloc_td(td) == 0);
	objects_use(&o, 12);
	objects_destroy(&o);
}

/* Of IBVERBS_1.17, which Debian 12 does not have: a newer program finds them in our library alone. */
static void newer_buffers(void)
{
	void *(*alloc)(struct ibv_pd *, size_t, void **) = dlsym(RTLD_DEFAULT, "ibv_alloc_buf");
	void (*release)(void *) = dlsym(RTLD_DEFAULT, "ibv_free_buf");
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, void *, size_t, int) =
		dlsym(RTLD_DEFAULT, "ibv_reg_buf_mr");
	struct ibv_context *ctx = device_open();
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	void *buffer = NULL;

	NEED(alloc && release && reg && pd);

	char *memory = alloc(pd, SIZE, &buffer);

	NEED(memory && buffer);
	memset(memory, 1, SIZE);

	struct ibv_mr *mr = reg(pd, buffer, memory + 64, SIZE - 64, IBV_ACCESS_LOCAL_WRITE);

	NEED(mr && mr->addr == memory + 64 && mr->length == SIZE - 64);
	NEED(!reg(pd, buffer, memory + 64, SIZE, 0) && errno == EINVAL);
	NEED(!reg(pd, buffer, memory - 1, 8, 0) && errno == EINVAL);
	NEED(!reg(pd, &buffer, memory, 8, 0) && errno == EINVAL);
	NEED(ibv_dereg_mr(mr) == 0);
	release(buffer);
	NEED(!reg(pd, buffer, memory, 8, 0) && errno == EINVAL);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(ctx) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "child-of-a-lister-works", child_of_a_lister_works },
	{ "closed-fds", closed_fds },
	{ "reused-fds", reused_fds },
	{ "open-and-close", open_and_close },
	{ "beyond-memlock", beyond_memlock },
	{ "what-can-be-registered", what_can_be_registered },
	{ "busy-objects", busy_objects },
	{ "newer-buffers", newer_buffers },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (argc == 1)
			puts(tests[i].name);
		if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	}
	return argc != 1;
}
