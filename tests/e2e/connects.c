/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes with many connections: what they cost in fds, here, and in requests, which connects.sh counts.
 *
 *	connects N		and destroys them
 *	connects N leave	ends with them
 */
#include <stdlib.h>

#include "tests/e2e/counted.h"
#include "tests/e2e/ends.h"

#define MOST 1000

static unsigned n;
static bool leaves;
static struct end ends[MOST];
static uint64_t words[2]; /* to send, to receive */

static struct ibv_mr *mr;
static uint16_t lid;

/* What they share; @end has no QP yet. */
static void first_open(struct end *end)
{
	struct ibv_port_attr port;

	end->ctx = end_device();
	NEED(ibv_query_port(end->ctx, 1, &port) == 0);
	lid = port.lid;
	NEED(end->pd = ibv_alloc_pd(end->ctx));
	NEED(end->cq = ibv_create_cq(end->ctx, 64, NULL, NULL, 0));
	NEED(mr = ibv_reg_mr(end->pd, words, sizeof(words), ALL_ACCESS));
}

static void qp_make(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };

	NEED(end->qp = ibv_create_qp(end->pd, &init));
	NEED(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	end_recv(end, (uintptr_t)&words[1], 8, mr->lkey);
}

/* As end_meet(), which asks for the port each time. */
static void meet(struct end *end, int fd)
{
	struct end_address mine = { end->qp->qp_num, lid }, peer;

	say(fd, &mine, sizeof(mine));
	hear(fd, &peer, sizeof(peer));
	end_connect(end, peer);
	nod(fd);
	nod_wait(fd);
}

/* One message each way, so that both have the wire. */
static void talk(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)&words[0], 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	NEED(ibv_post_send(end->qp, &wr, &bad) == 0);
	NEED(end_wait(end) == IBV_WC_SUCCESS && end_wait(end) == IBV_WC_SUCCESS);
}

static void connection(struct end *end, int fd)
{
	qp_make(end);
	meet(end, fd);
	talk(end);
}

static void side(int fd, void *arg)
{
	unsigned fds;

	first_open(&ends[0]);
	/* With the first come the fds of all: those of the pair of processes. */
	connection(&ends[0], fd);
	fds = open_fds();
	for (unsigned i = 1; i < n; i++) {
		ends[i] = ends[0];
		connection(&ends[i], fd);
	}
	NEED(open_fds() == fds);
	if (leaves) {
		nod(fd);
		nod_wait(fd);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		NEED(ibv_destroy_qp(ends[i].qp) == 0);
	NEED(ibv_destroy_cq(ends[0].cq) == 0 && ibv_dereg_mr(mr) == 0);
	NEED(ibv_dealloc_pd(ends[0].pd) == 0 && ibv_close_device(ends[0].ctx) == 0);
	(void)arg;
}

int main(int argc, char **argv)
{
	struct child other;

	leaves = argc == 3 && strcmp(argv[2], "leave") == 0;
	n = argc == 2 || leaves ? (unsigned)atoi(argv[1]) : 0;
	if (n < 1 || n > MOST)
		return 2;
	other = child_start(side, NULL);
	side(other.fd, NULL);
	child_end(&other);
	return 0;
}
