/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/e2e/ends.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* --- cases ---------------------------------------------------------------------------------------------------------- */

int end_main(int argc, char **argv, const struct end_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (argc == 1)
			puts(cases[i].name);
		if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	return argc != 1;
}

void end_skip(const char *why)
{
	puts(why);
	fflush(stdout);
	_exit(77);
}

/* --- processes ------------------------------------------------------------------------------------------------------ */

struct child child_start(void (*run)(int fd, void *arg), void *arg)
{
	struct child child;
	int fds[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	fflush(NULL);
	child.pid = fork();
	NEED(child.pid >= 0);
	if (child.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		run(fds[1], arg);
		exit(0);
	}
	close(fds[1]);
	child.fd = fds[0];
	return child;
}

void child_end(struct child *child)
{
	int status;

	NEED(waitpid(child->pid, &status, 0) == child->pid);
	NEED(WIFEXITED(status));
	NEED(WEXITSTATUS(status) == 0);
	close(child->fd);
}

void child_kill(struct child *child)
{
	NEED(kill(child->pid, SIGKILL) == 0);
	NEED(waitpid(child->pid, NULL, 0) == child->pid);
	close(child->fd);
}

void say(int fd, const void *what, size_t n)
{
	NEED(write(fd, what, n) == (ssize_t)n);
}

void hear(int fd, void *what, size_t n)
{
	NEED(recv(fd, what, n, MSG_WAITALL) == (ssize_t)n);
}

void nod(int fd)
{
	say(fd, "n", 1);
}

void nod_wait(int fd)
{
	char byte;

	hear(fd, &byte, 1);
}

void fd_say(int fd, int sent)
{
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &sent, sizeof(int));
	NEED(sendmsg(fd, &msg, 0) == 1);
}

int fd_hear(int fd)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int received;

	NEED(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) == 1);

	const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	NEED(head && head->cmsg_type == SCM_RIGHTS);
	memcpy(&received, CMSG_DATA(head), sizeof(int));
	return received;
}

/* --- an end --------------------------------------------------------------------------------------------------------- */

struct ibv_context *end_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	NEED(list && list[0]);
	ctx = ibv_open_device(list[0]);
	NEED(ctx);
	ibv_free_device_list(list);
	return ctx;
}

void end_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };

	end->cq = ibv_create_cq(end->ctx, 64, NULL, NULL, 0);
	NEED(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	NEED(end->qp);
	NEED(ibv_modify_qp(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
}

void end_qp_destroy(struct end *end)
{
	NEED(ibv_destroy_qp(end->qp) == 0);
	NEED(ibv_destroy_cq(end->cq) == 0);
}

void end_open(struct end *end)
{
	end->ctx = end_device();
	end->pd = ibv_alloc_pd(end->ctx);
	NEED(end->pd);
	end_qp(end);
}

void end_close(struct end *end)
{
	end_qp_destroy(end);
	NEED(ibv_dealloc_pd(end->pd) == 0);
	NEED(ibv_close_device(end->ctx) == 0);
}

struct end_address end_here(const struct end *end)
{
	struct ibv_port_attr port;

	NEED(ibv_query_port(end->ctx, 1, &port) == 0);
	return (struct end_address){ end->qp->qp_num, port.lid };
}

void end_connect(struct end *end, struct end_address peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer.qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = peer.lid, .port_num = 1 },
	};

	NEED(ibv_modify_qp(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	NEED(ibv_modify_qp(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void end_pair(struct end *a, struct end *b)
{
	end_qp(a);
	end_qp(b);
	end_connect(a, end_here(b));
	end_connect(b, end_here(a));
}

void end_meet(struct end *end, int fd)
{
	struct end_address mine = end_here(end), peer;

	say(fd, &mine, sizeof(mine));
	hear(fd, &peer, sizeof(peer));
	end_connect(end, peer);
	/* Neither begins before the other is there. */
	nod(fd);
	nod_wait(fd);
}

enum ibv_wc_status end_wait(struct end *end)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(end->cq, 1, &wc);
	while (n == 0);
	NEED(n == 1);
	return wc.status;
}

enum ibv_wc_status end_work(struct end *end, const struct work *work)
{
	struct ibv_sge sge = { work->addr, work->length, work->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = work->opcode }, *bad;

	if (work->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || work->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = work->raddr;
		wr.wr.atomic.rkey = work->rkey;
		wr.wr.atomic.compare_add = work->compare_add;
		wr.wr.atomic.swap = work->swap;
	} else {
		wr.wr.rdma.remote_addr = work->raddr;
		wr.wr.rdma.rkey = work->rkey;
	}
	NEED(ibv_post_send(end->qp, &wr, &bad) == 0);
	return end_wait(end);
}

void end_recv(struct end *end, uint64_t addr, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { addr, length, lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	NEED(ibv_post_recv(end->qp, &wr, &bad) == 0);
}
