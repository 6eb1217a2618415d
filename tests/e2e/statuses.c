/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each completion status that can be provoked, on the side where it belongs, with the state that both QPs are in
 * afterwards and the event, if there is one. Here: what is wrong on the side of who sends.
 */
#include "statuses.h"

/* The first of three fails with @status; what is behind it is flushed, in order, signalled or not. */
static void fails_with(struct duo *d, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr second = duo_wr(d, 2, IBV_WR_SEND, &sge[0], 8), third = duo_wr(d, 3, IBV_WR_SEND, &sge[1], 8);

	second.send_flags = 0;
	wr->next = &second;
	second.next = &third;
	RETURNS(duo_post(d, wr), 0);
	duo_expect(d, A, wr->wr_id, status);
	duo_expect(d, A, 2, IBV_WC_WR_FLUSH_ERR);
	duo_expect(d, A, 3, IBV_WC_WR_FLUSH_ERR);
	duo_nothing(d, A);
}

/* A reliable connection is at its end, another QP's send queue is in error; the other side notices nothing. */
static void sender_failed(struct duo *d)
{
	NEED(duo_state(d, A) == (d->qp[A]->qp_type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE));
	NEED(duo_state(d, B) == IBV_QPS_RTS);
	NEED(duo_no_event(d));
	duo_nothing(d, B);
}

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

#define TYPES (sizeof(types) / sizeof(types[0]))

/* Keys that name nothing, regions of another PD, bytes outside: nothing of the message is sent. */
static void local_protection_of_sends(int argc, char **argv)
{
	for (size_t t = 0; t < TYPES; t++)
		for (unsigned kind = 0; kind < 4; kind++) {
			struct duo d;
			struct ibv_sge sge;

			duo_open(&d, types[t], false);
			duo_connect(&d);
			duo_recv(&d, 9, 4096, d.mr->lkey);

			struct ibv_pd *pd = ibv_alloc_pd(d.ctx);
			struct ibv_mr *other = ibv_reg_mr(pd, d.memory, DUO_HALF, 0);
			struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 2000);

			NEED(pd && other);
			if (kind == 0)
				sge.lkey++;
			else if (kind == 1)
				sge.lkey = other->lkey;
			else if (kind == 2)
				sge.addr += sizeof(d.memory) - 1999;
			else
				sge.addr--;
			fails_with(&d, &wr, IBV_WC_LOC_PROT_ERR);
			sender_failed(&d);
			NEED(ibv_dereg_mr(other) == 0 && ibv_dealloc_pd(pd) == 0);
			duo_close(&d);
		}
}

/* A response that may not be stored: the region is not for local writing. */
static void local_protection_of_responses(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_RC, false);
		duo_connect(&d);

		struct ibv_mr *readable = ibv_reg_mr(d.pd, d.memory, DUO_HALF, 0);
		struct ibv_send_wr wr = duo_wr(&d, 1, opcodes[i], &sge, 8);

		NEED(readable);
		sge.lkey = readable->lkey;
		fails_with(&d, &wr, IBV_WC_LOC_PROT_ERR);
		NEED(d.memory[0] == 0);
		sender_failed(&d);
		NEED(ibv_dereg_mr(readable) == 0);
		duo_close(&d);
	}
}

/* Longer than a datagram may be; the others have a limit that no post gets past. */
static void local_length_of_datagrams(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;
	struct ibv_port_attr port;

	duo_open(&d, IBV_QPT_UD, false);
	duo_connect(&d);
	NEED(ibv_query_port(d.ctx, 1, &port) == 0);

	uint32_t mtu = 128u << port.active_mtu;
	struct ibv_send_wr wr = duo_wr(&d, 5, IBV_WR_SEND, &sge, mtu);

	NEED(mtu + 40 <= DUO_HALF);
	duo_recv(&d, 9, mtu + 40, d.mr->lkey);
	RETURNS(duo_post(&d, &wr), 0);
	duo_expect(&d, A, 5, IBV_WC_SUCCESS);
	NEED(duo_expect(&d, B, 9, IBV_WC_SUCCESS).byte_len == mtu + 40);
	duo_recv(&d, 9, mtu + 40, d.mr->lkey);
	wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, mtu + 1);
	fails_with(&d, &wr, IBV_WC_LOC_LEN_ERR);
	sender_failed(&d);
	duo_close(&d);
}

static void messages_above_the_maximum(int argc, char **argv)
{
	for (size_t t = 0; t < TYPES; t++) {
		struct duo d;
		struct ibv_sge sge[2];
		struct ibv_port_attr port;

		duo_open(&d, types[t], false);
		duo_connect(&d);
		NEED(ibv_query_port(d.ctx, 1, &port) == 0);

		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, sge, port.max_msg_sz);

		sge[1] = (struct ibv_sge){ (uintptr_t)d.memory, 1, d.mr->lkey };
		wr.num_sge = 2;
		RETURNS(duo_post(&d, &wr), EINVAL);
		duo_nothing(&d, A);
		NEED(duo_state(&d, A) == IBV_QPS_RTS);
		duo_close(&d);
	}
}

/* A READ or an atomic of a QP that has no resources for it; a key that cannot be invalidated. */
static void local_operation(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_WRITE };
	struct ibv_sge sge;
	struct duo d;

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		duo_open(&d, IBV_QPT_RC, false);

		struct ibv_qp_attr attr = duo_attr(&d, A);

		attr.max_rd_atomic = 0;
		duo_up(&d, A, &attr, IBV_QPS_RTS);
		attr = duo_attr(&d, B);
		duo_up(&d, B, &attr, IBV_QPS_RTS);

		struct ibv_send_wr wr = duo_wr(&d, 1, opcodes[i], &sge, 8);

		fails_with(&d, &wr, IBV_WC_LOC_QP_OP_ERR);
		sender_failed(&d);
		duo_close(&d);
	}
	for (unsigned t = 0; t < 2; t++) {
		duo_open(&d, types[t], false);
		duo_connect(&d);

		struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
			.invalidate_rkey = d.mr->rkey };

		fails_with(&d, &wr, IBV_WC_LOC_QP_OP_ERR);
		sender_failed(&d);
		duo_close(&d);
	}
}

/* A window on a region that has not been made for windows, or for less; that belongs to another PD; that is bound. */
static void memory_window_bind(int argc, char **argv)
{
	enum { NOT_FOR_WINDOWS, NOT_TO_WRITE, OUTSIDE, WRONG_KEY, BOUND, KINDS };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct duo d;

		duo_open(&d, IBV_QPT_RC, false);
		duo_connect(&d);

		unsigned access = kind == NOT_FOR_WINDOWS ? IBV_ACCESS_LOCAL_WRITE : kind == NOT_TO_WRITE ? IBV_ACCESS_MW_BIND :
							   KIT_ACCESS;
		struct ibv_mr *mr = ibv_reg_mr(d.pd, d.memory, DUO_HALF, access);
		struct ibv_mw *mw = ibv_alloc_mw(d.pd, IBV_MW_TYPE_2);

		NEED(mr && mw);
		if (kind == BOUND)
			NEED(kit_bind(d.qp[A], mw, mr) == IBV_WC_SUCCESS);

		struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
			.bind_mw = { .mw = mw,
				.rkey = ibv_inc_rkey(mw->rkey),
				.bind_info = { .mr = mr, .addr = (uintptr_t)d.memory, .length = DUO_HALF,
					.mw_access_flags = IBV_ACCESS_REMOTE_WRITE } } };

		if (kind == OUTSIDE)
			wr.bind_mw.bind_info.length++;
		if (kind == WRONG_KEY)
			wr.bind_mw.rkey += 0x100;
		fails_with(&d, &wr, IBV_WC_MW_BIND_ERR);
		sender_failed(&d);
		NEED(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
		duo_close(&d);
	}
}

/* What makes no sense in any state is refused at once, and what was posted before it in the list is taken. */
static void posts_that_are_refused(int argc, char **argv)
{
	enum { TOO_MANY_SGES, BAD_OPCODE, TOO_MUCH_INLINE, NO_ADDRESS, READ_ON_UC, KINDS };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		enum ibv_qp_type type = kind == NO_ADDRESS ? IBV_QPT_UD : kind == READ_ON_UC ? IBV_QPT_UC : IBV_QPT_RC;
		struct ibv_sge sge, many[3];
		struct ibv_send_wr *bad = NULL;
		struct duo d;

		duo_open(&d, type, false);
		duo_connect(&d);

		struct ibv_send_wr good = duo_wr(&d, 1, IBV_WR_SEND, &sge, 8), wr = duo_wr(&d, 2, IBV_WR_SEND, many, 8);

		many[1] = many[2] = many[0];
		if (kind == TOO_MANY_SGES)
			wr.num_sge = 3;
		if (kind == BAD_OPCODE)
			wr.opcode = (enum ibv_wr_opcode)33;
		if (kind == TOO_MUCH_INLINE) {
			wr.send_flags |= IBV_SEND_INLINE;
			many[0].length = 65;
		}
		if (kind == NO_ADDRESS)
			wr.wr.ud.ah = NULL;
		if (kind == READ_ON_UC)
			wr = duo_wr(&d, 2, IBV_WR_RDMA_READ, many, 8);
		good.next = &wr;
		duo_recv(&d, 9, 4096, d.mr->lkey);
		RETURNS(ibv_post_send(d.qp[A], &good, &bad), EINVAL);
		NEED(bad == &wr);
		duo_expect(&d, A, 1, IBV_WC_SUCCESS);
		duo_expect(&d, B, 9, IBV_WC_SUCCESS);
		NEED(duo_state(&d, A) == IBV_QPS_RTS);
		duo_close(&d);
	}
}

/* A place in the queue is free once a completion behind it was read; until then: ENOMEM, and nothing was taken. */
static void send_queue_full(int argc, char **argv)
{
	for (unsigned signalled = 0; signalled < 2; signalled++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_RC, false);
		duo_connect(&d);
		for (unsigned round = 0; round < 3; round++) {
			for (unsigned i = 0; i < 16; i++) {
				struct ibv_send_wr wr = duo_wr(&d, i, IBV_WR_RDMA_WRITE, &sge, 8);

				wr.send_flags = signalled || i == 15 ? IBV_SEND_SIGNALED : 0;
				RETURNS(duo_post(&d, &wr), 0);
			}

			struct ibv_send_wr wr = duo_wr(&d, 16, IBV_WR_RDMA_WRITE, &sge, 8);

			RETURNS(duo_post(&d, &wr), ENOMEM);
			for (unsigned i = signalled ? 0 : 15; i < 16; i++)
				duo_expect(&d, A, i, IBV_WC_SUCCESS);
			duo_nothing(&d, A);
		}
		duo_close(&d);
	}
}

static void receive_queue_full(int argc, char **argv)
{
	struct ibv_recv_wr *bad;
	struct duo d;

	for (unsigned srq = 0; srq < 2; srq++) {
		duo_open(&d, IBV_QPT_RC, srq);
		duo_connect(&d);
		for (unsigned i = 0; i < (srq ? 8 : 16); i++)
			duo_recv(&d, i, 8, d.mr->lkey);

		struct ibv_sge sge = { (uintptr_t)d.memory, 8, d.mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

		RETURNS(srq ? ibv_post_srq_recv(d.srq, &wr, &bad) : ibv_post_recv(d.qp[B], &wr, &bad), ENOMEM);
		NEED(bad == &wr);
		wr.num_sge = 3;
		RETURNS(srq ? ibv_post_srq_recv(d.srq, &wr, &bad) : ibv_post_recv(d.qp[B], &wr, &bad), EINVAL);
		/* What is an SRQ's is not posted to the QP. */
		wr.num_sge = 1;
		if (srq)
			RETURNS(ibv_post_recv(d.qp[B], &wr, &bad), EINVAL);
		duo_close(&d);
	}
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "local-protection-of-sends", local_protection_of_sends },
		{ "local-protection-of-responses", local_protection_of_responses },
		{ "local-length-of-datagrams", local_length_of_datagrams },
		{ "messages-above-the-maximum", messages_above_the_maximum },
		{ "local-operation", local_operation },
		{ "memory-window-bind", memory_window_bind },
		{ "posts-that-are-refused", posts_that_are_refused },
		{ "send-queue-full", send_queue_full },
		{ "receive-queue-full", receive_queue_full },
		{ NULL, NULL },
	};

	if (argc < 2)
		kit_main(statuses_remote, argc, argv);
	for (const struct kit_test *t = statuses_remote; argc > 1 && t->name; t++)
		if (strcmp(t->name, argv[1]) == 0)
			return kit_main(statuses_remote, argc, argv);
	return kit_main(tests, argc, argv);
}
