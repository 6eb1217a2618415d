/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order, and what comes to an end: cases of map.c.
 */
#include <sched.h>

#include "tests/e2e/map.h"

#define PIECE 100000u

/* --- order -------------------------------------------------------------------------------------------------------- */

/* A SEND that finds no receive, and a WRITE behind it that the engine could run. */
static void sender(int fd, void *arg)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2] = { { .next = &wr[1], .sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE } }, *bad;
	struct initiator self;
	uint64_t before;

	initiator_open(&self, fd);
	initiator_warm_up(&self, IBV_WR_RDMA_READ);
	before = runs();
	fill(self.memory, PIECE, 5);
	sge[0] = (struct ibv_sge){ (uintptr_t)self.memory, 8, self.mr->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)self.memory, PIECE, self.mr->lkey };
	wr[1].wr.rdma.remote_addr = self.to.base;
	wr[1].wr.rdma.rkey = self.to.rkey;
	NEED(ibv_post_send(self.end.qp, &wr[0], &bad) == 0);
	while (counted(VSD_COUNT_RNR) < 3)
		NEED(ibv_poll_cq(self.end.cq, 1, &(struct ibv_wc){ 0 }) == 0);
	NEED(runs() == before);
	nod(fd);
	for (unsigned i = 0; i < 2; i++) {
		enum ibv_wc_status status = end_wait(&self.end);

		NEED((status == IBV_WC_SUCCESS) == *(bool *)arg);
	}
	nod(fd);
	nod_wait(fd);
	initiator_close(&self);
}

static void send_then_write(bool comes)
{
	struct child child = child_start(sender, &comes);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_mr *mr;
	struct end end;
	uint8_t *memory;

	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	memory = mr->addr;
	invite(&end, child.fd, mr);
	nod_wait(child.fd);
	for (size_t i = 0; i < PIECE; i++)
		NEED(memory[i] == 0);
	if (comes)
		end_recv(&end, target_of(mr).base + REGION_SIZE / 2, 8, mr->lkey);
	else
		NEED(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE) == 0);
	nod_wait(child.fd);
	for (size_t i = 0; i < PIECE && !comes; i++)
		NEED(memory[i] == 0);
	NEED(!comes || (filled(memory, PIECE, 5) && end_wait(&end) == IBV_WC_SUCCESS));
	nod(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

void a_write_waits_behind_a_send(void)
{
	send_then_write(true);
}

void nothing_behind_a_failed_send(void)
{
	send_then_write(false);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

static void regions_gone(void)
{
	alarm(20);
	while (regions_mapped(NULL))
		sched_yield();
	alarm(0);
}

static void lingerer(int fd, void *arg)
{
	struct initiator self;

	(void)arg;
	initiator_open(&self, fd);
	initiator_warm_up(&self, IBV_WR_RDMA_WRITE);
	nod(fd);
	/* The owner changes its key's rights and back: another generation, and another question. */
	nod_wait(fd);
	initiator_warm_up(&self, IBV_WR_RDMA_WRITE);
	nod(fd);
	nod_wait(fd);
	regions_gone();
	nod(fd);
	nod_wait(fd);
	initiator_close(&self);
}

/* The memory of a region whose last MR is gone is not kept by those who had it granted. */
void what_is_closed_is_unmapped(void)
{
	struct child child = child_start(lingerer, NULL);
	struct ibv_mr *mr;
	struct end end;

	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	invite(&end, child.fd, mr);
	nod_wait(child.fd);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == 0);
	nod(child.fd);
	nod_wait(child.fd);
	NEED(ibv_dereg_mr(mr) == 0);
	nod(child.fd);
	nod_wait(child.fd);
	nod(child.fd);
	child_end(&child);
	end_close(&end);
}

static void endless(int fd, void *arg)
{
	struct initiator self;

	(void)arg;
	initiator_open(&self, fd);
	initiator_warm_up(&self, IBV_WR_RDMA_WRITE);
	nod(fd);
	for (;;)
		initiator_run(&self, IBV_WR_RDMA_WRITE, 0, REGION_SIZE / 2, 0);
}

#define KILLS 10

/* Killed in the middle of a copy, most likely: nobody waits for it. */
void an_initiator_is_killed(void)
{
	struct child children[KILLS];

	/* A child of a process that has had a device open has no part in it, and none of its own. */
	for (unsigned i = 0; i < KILLS; i++)
		children[i] = child_start(endless, NULL);
	for (unsigned i = 0; i < KILLS; i++) {
		struct ibv_mr *mr;
		struct end end;

		end_open(&end);
		mr = region_alloc(end.pd, ALL_ACCESS);
		invite(&end, children[i].fd, mr);
		nod_wait(children[i].fd);
		child_kill(&children[i]);
		alarm(5); /* less than what a stopped initiator is waited for */
		NEED(ibv_dereg_mr(mr) == 0);
		alarm(0);
		end_close(&end);
	}
}

static void doomed(int fd, void *arg)
{
	struct ibv_mr *mr;
	struct end end;

	(void)arg;
	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	invite(&end, fd, mr);
	nod_wait(fd);
}

void an_owner_is_killed(void)
{
	struct child child = child_start(doomed, NULL);
	struct initiator self;
	enum ibv_wc_status status;

	initiator_open(&self, child.fd);
	initiator_warm_up(&self, IBV_WR_RDMA_WRITE);
	NEED(regions_mapped(NULL) == 1);
	child_kill(&child);
	do
		status = initiator_try(&self, IBV_WR_RDMA_WRITE, 0, REGION_SIZE / 2, 0);
	while (status == IBV_WC_SUCCESS);
	NEED(status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR);
	regions_gone();
	initiator_close(&self);
}
