/* SPDX-License-Identifier: BSD-2-Clause */
/* Order, fences, outstanding reads, and a shared receive queue that several threads fill. */
#include "duo.h"

#include <pthread.h>
#include <stdlib.h>

#define WORDS 256u

/* A fenced send takes what the read before it brought, whoever copies. */
static void fence(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge[2];

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);

	uint64_t *here = (uint64_t *)(void *)d.memory, *there = (uint64_t *)(void *)(d.memory + DUO_HALF);

	for (uint64_t round = 1; round <= 200; round++) {
		struct ibv_send_wr read = duo_wr(&d, 1, IBV_WR_RDMA_READ, &sge[0], WORDS * 8),
				   send = duo_wr(&d, 2, IBV_WR_SEND, &sge[1], WORDS * 8);
		struct ibv_sge into = { (uintptr_t)(there + WORDS), WORDS * 8, d.mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &into, .num_sge = 1 }, *bad;

		for (unsigned i = 0; i < WORDS; i++) {
			there[i] = round << 32 | i;
			here[i] = there[WORDS + i] = 0;
		}
		RETURNS(ibv_post_recv(d.qp[B], &recv, &bad), 0);
		send.send_flags |= IBV_SEND_FENCE;
		read.next = &send;
		RETURNS(duo_post(&d, &read), 0);
		duo_expect(&d, A, 1, IBV_WC_SUCCESS);
		duo_expect(&d, A, 2, IBV_WC_SUCCESS);
		duo_expect(&d, B, 9, IBV_WC_SUCCESS);
		for (unsigned i = 0; i < WORDS; i++)
			NEED(there[WORDS + i] == (round << 32 | i));
	}
	duo_close(&d);
}

/* Writes of every size, then a send: when the receive completes, all of them are there; completions come in order. */
static void sends_push_writes(int argc, char **argv)
{
	static const uint32_t sizes[] = { 1, 64, 300, 4096, 1000, 8 };
	struct duo d;
	struct ibv_sge sge[7];
	struct ibv_send_wr wr[7];

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);
	for (unsigned round = 1; round <= 100; round++) {
		memset(d.memory, (int)round, DUO_HALF);
		duo_recv(&d, 9, 1, d.mr->lkey);
		for (unsigned i = 0; i < 7; i++) {
			wr[i] = duo_wr(&d, i, i < 6 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, &sge[i], i < 6 ? sizes[i] : 1);
			wr[i].wr.rdma.remote_addr += 1;
			wr[i].next = i < 6 ? &wr[i + 1] : NULL;
		}
		RETURNS(duo_post(&d, wr), 0);
		duo_expect(&d, B, 9, IBV_WC_SUCCESS);
		for (unsigned i = 1; i <= 4096; i++)
			NEED(d.memory[DUO_HALF + i] == (uint8_t)round);
		for (unsigned i = 0; i < 7; i++)
			duo_expect(&d, A, i, IBV_WC_SUCCESS);
	}
	duo_close(&d);
}

static void reads_in_turn(uint8_t sender, uint8_t responder)
{
	struct duo d;
	struct ibv_sge sge[16];
	struct ibv_send_wr wr[16];

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);

	a.max_rd_atomic = sender;
	b.max_dest_rd_atomic = responder;
	duo_up(&d, A, &a, IBV_QPS_RTS);
	duo_up(&d, B, &b, IBV_QPS_RTS);

	uint64_t *here = (uint64_t *)(void *)d.memory, *there = (uint64_t *)(void *)(d.memory + DUO_HALF);

	for (unsigned i = 0; i < 16; i++) {
		wr[i] = duo_wr(&d, i, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, &sge[i], 8);
		sge[i].addr += i * 8;
		wr[i].next = i < 15 ? &wr[i + 1] : NULL;
	}
	RETURNS(duo_post(&d, wr), 0);
	for (unsigned i = 0; i < 16; i++)
		duo_expect(&d, A, i, IBV_WC_SUCCESS);
	NEED(*there == 8);
	for (unsigned i = 0; i < 16; i++)
		NEED(here[i] == (i + 1) / 2);
	NEED(duo_state(&d, B) == IBV_QPS_RTS && duo_no_event(&d));
	duo_close(&d);
}

/* More reads and atomics than may be outstanding: they wait for each other, and each is carried out once. */
static void more_than_max_rd_atomic(int argc, char **argv)
{
	for (uint8_t limit = 1; limit <= 4; limit++)
		reads_in_turn(limit, limit);
}

/* More than the responder has said: it answers each before it looks at the next, and so never has too many. */
static void more_than_max_dest_rd_atomic(int argc, char **argv)
{
	for (uint8_t limit = 1; limit <= 4; limit++)
		reads_in_turn(16, limit);
}

/* --- a shared receive queue between threads --------------------------------------------------------------------------------------- */

#define FILLERS	 4u
#define MESSAGES 2000u

struct filler {
	struct duo *d;
	_Atomic unsigned *posted;
	pthread_t thread;
};

/* Each posts while there is room and something to come. */
static void *fill(void *arg)
{
	struct filler *f = arg;
	struct ibv_sge sge = { (uintptr_t)f->d->memory + DUO_HALF, 64, f->d->mr->lkey };

	for (unsigned i; (i = (*f->posted)++) < MESSAGES;) {
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		int r;

		do
			r = ibv_post_srq_recv(f->d->srq, &wr, &bad);
		while (r == ENOMEM);
		NEED(r == 0);
	}
	return NULL;
}

/* Emptied and refilled all the time: every receive is used once, every message arrives once. */
static void shared_receive_queue_across_threads(int argc, char **argv)
{
	static uint8_t seen[MESSAGES];
	struct filler fillers[FILLERS];
	_Atomic unsigned posted = 0;
	unsigned sent = 0, done = 0, received = 0;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct duo d;

	duo_open(&d, IBV_QPT_RC, true);
	duo_connect(&d);
	for (unsigned i = 0; i < FILLERS; i++) {
		fillers[i] = (struct filler){ .d = &d, .posted = &posted };
		NEED(pthread_create(&fillers[i].thread, NULL, fill, &fillers[i]) == 0);
	}
	while (received < MESSAGES || done < MESSAGES) {
		for (; sent < MESSAGES && sent - done < 16; sent++) {
			struct ibv_send_wr wr = duo_wr(&d, sent, IBV_WR_SEND, &sge, 8);

			RETURNS(duo_post(&d, &wr), 0);
		}
		for (; ibv_poll_cq(d.cq[A], 1, &wc) == 1; done++)
			NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == done);
		for (; ibv_poll_cq(d.cq[B], 1, &wc) == 1; received++)
			NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id < MESSAGES && !seen[wc.wr_id]++);
	}
	for (unsigned i = 0; i < FILLERS; i++)
		NEED(pthread_join(fillers[i].thread, NULL) == 0);
	duo_nothing(&d, B);
	NEED(duo_no_event(&d));
	duo_close(&d);
}

extern const struct kit_test semantics_order[];

const struct kit_test semantics_order[] = {
	{ "fence", fence },
	{ "sends-push-writes", sends_push_writes },
	{ "more-than-max-rd-atomic", more_than_max_rd_atomic },
	{ "more-than-max-dest-rd-atomic", more_than_max_dest_rd_atomic },
	{ "shared-receive-queue-across-threads", shared_receive_queue_across_threads },
	{ NULL, NULL },
};
