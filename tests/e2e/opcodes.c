/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every opcode by each way to post it: ibv_post_send() and the builders of ibv_wr_*, with lists of memory and inline. What
 * both sides complete, and what is in memory afterwards.
 */
#include "duo.h"

#include <arpa/inet.h>

#define LENGTH 24u
#define IMM    0x1234abcdu

enum way { POST, SGE, SGE_LIST, INLINE, INLINE_LIST, WAYS };

/* The opcodes of builders, and what they complete with. */
static const struct op {
	enum ibv_wr_opcode opcode;
	enum ibv_wc_opcode done;
	int received; /* what the receiver completes; -1: nothing */
	unsigned flags; /* of that */
} ops[] = {
	{ IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, 0 },
	{ IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, IBV_WC_WITH_IMM },
	{ IBV_WR_SEND_WITH_INV, IBV_WC_SEND, IBV_WC_RECV, IBV_WC_WITH_INV },
	{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, -1, 0 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM },
	{ IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, -1, 0 },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, -1, 0 },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, -1, 0 },
	{ IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE, -1, 0 },
	{ IBV_WR_BIND_MW, IBV_WC_BIND_MW, -1, 0 },
	{ IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, -1, 0 },
};

#define OPS (sizeof(ops) / sizeof(ops[0]))

static const uint64_t connected_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
static const uint64_t answered_ops = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;
static const uint64_t datagram_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

/* A pair whose first QP has every builder of its type. */
static struct ibv_qp_ex *pair_open(struct duo *d, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = type == IBV_QPT_UD ? datagram_ops : connected_ops,
	};

	if (type == IBV_QPT_RC)
		init.send_ops_flags |= answered_ops;
	duo_open(d, type, false);
	NEED(ibv_destroy_qp(d->qp[A]) == 0);
	init.pd = d->pd;
	init.send_cq = init.recv_cq = d->cq[A];
	d->qp[A] = ibv_create_qp_ex(d->ctx, &init);
	NEED(d->qp[A]);
	duo_connect(d);
	return ibv_qp_to_qp_ex(d->qp[A]);
}

struct call {
	enum ibv_wr_opcode opcode;
	enum way way;
	uint64_t remote;
	uint32_t rkey, invalidate;
	struct ibv_mw *mw;
	struct ibv_mw_bind_info bind;
};

static struct ibv_mw_bind_info bind_info(struct duo *d, unsigned access)
{
	return (struct ibv_mw_bind_info){ .mr = d->mr, .addr = (uintptr_t)d->memory, .length = sizeof(d->memory),
		.mw_access_flags = access };
}

/* A window bound through B's QP, so that a send of A's can invalidate it. */
static uint32_t window_of_b(struct duo *d, struct ibv_mw *mw)
{
	NEED(kit_bind(d->qp[B], mw, d->mr) == IBV_WC_SUCCESS);
	return mw->rkey;
}

static void build(struct ibv_qp_ex *qp, const struct call *c, const void *word)
{
	switch ((int)c->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, htonl(IMM));
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qp, c->invalidate);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, c->rkey, c->remote);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, c->rkey, c->remote, htonl(IMM));
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, c->rkey, c->remote);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, c->rkey, c->remote, 40, 50);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, c->rkey, c->remote, 2);
		break;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(qp, c->rkey, c->remote, word);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(qp, c->mw, c->rkey, &c->bind);
		break;
	default:
		ibv_wr_local_inv(qp, c->invalidate);
	}
}

static bool has_payload(enum ibv_wr_opcode opcode)
{
	return opcode != IBV_WR_BIND_MW && opcode != IBV_WR_LOCAL_INV && opcode != IBV_WR_ATOMIC_WRITE;
}

static bool has_answer(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static uint32_t length_of(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH;
}

static void payload(struct duo *d, struct ibv_qp_ex *qp, const struct call *c)
{
	uint32_t n = length_of(c->opcode);
	struct ibv_sge sge[2] = { { (uintptr_t)d->memory, n / 2, d->mr->lkey },
		{ (uintptr_t)d->memory + n / 2, n / 2, d->mr->lkey } };
	struct ibv_data_buf bufs[2] = { { d->memory, n / 2 }, { d->memory + n / 2, n / 2 } };

	if (c->way == SGE)
		ibv_wr_set_sge(qp, d->mr->lkey, (uintptr_t)d->memory, n);
	else if (c->way == SGE_LIST)
		ibv_wr_set_sge_list(qp, 2, sge);
	else if (c->way == INLINE)
		ibv_wr_set_inline_data(qp, d->memory, n);
	else
		ibv_wr_set_inline_data_list(qp, 2, bufs);
}

static void post_built(struct duo *d, struct ibv_qp_ex *qp, const struct call *c)
{
	uint64_t word;

	memcpy(&word, d->memory, sizeof(word));
	ibv_wr_start(qp);
	qp->wr_id = 3;
	qp->wr_flags = IBV_SEND_SIGNALED;
	build(qp, c, &word);
	if (qp->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(qp, d->ah, d->qp[B]->qp_num, KIT_QKEY);
	if (has_payload(c->opcode))
		payload(d, qp, c);
	RETURNS(ibv_wr_complete(qp), 0);
}

static void post_plain(struct duo *d, const struct call *c)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = duo_wr(d, 3, c->opcode, &sge, c->opcode == IBV_WR_ATOMIC_WRITE ? 8 : length_of(c->opcode));

	if (c->opcode == IBV_WR_SEND_WITH_IMM || c->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr.imm_data = htonl(IMM);
	if (c->opcode == IBV_WR_SEND_WITH_INV || c->opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = c->invalidate;
	if (c->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.compare_add = 40;
		wr.wr.atomic.swap = 50;
	}
	if (c->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 2;
	if (c->opcode == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = c->mw;
		wr.bind_mw.rkey = c->rkey;
		wr.bind_mw.bind_info = c->bind;
	}
	if (!has_payload(c->opcode) && c->opcode != IBV_WR_ATOMIC_WRITE)
		wr.num_sge = 0;
	RETURNS(duo_post(d, &wr), 0);
}

static void check_memory(struct duo *d, enum ibv_wr_opcode opcode, uint32_t offset)
{
	const uint8_t *there = d->memory + DUO_HALF + offset;
	uint64_t here, word;

	memcpy(&here, d->memory, sizeof(here));
	memcpy(&word, there, sizeof(word));
	switch ((int)opcode) {
	case IBV_WR_RDMA_READ:
		NEED(memcmp(d->memory, there, LENGTH) == 0 && d->memory[0] == 40);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		NEED(here == 40 && word == 50);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		NEED(here == 40 && word == 42);
		break;
	case IBV_WR_ATOMIC_WRITE:
		NEED(word == here && there[8] == 0);
		break;
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		NEED(word == 40);
		break;
	default:
		NEED(memcmp(d->memory, there, LENGTH) == 0 && there[LENGTH] == 0);
	}
}

/* What the receiver completes. */
static void check_receive(struct duo *d, const struct op *op, uint32_t invalidated)
{
	uint32_t header = d->qp[A]->qp_type == IBV_QPT_UD ? 40 : 0;

	if (op->received < 0) {
		duo_nothing(d, B);
		return;
	}

	struct ibv_wc wc = duo_expect(d, B, 9, IBV_WC_SUCCESS);

	NEED((int)wc.opcode == op->received && wc.byte_len == header + LENGTH);
	NEED((wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == op->flags);
	NEED(!(op->flags & IBV_WC_WITH_IMM) || wc.imm_data == htonl(IMM));
	NEED(!(op->flags & IBV_WC_WITH_INV) || wc.invalidated_rkey == invalidated);
}

static void run(enum ibv_qp_type type, const struct op *op, enum way way)
{
	struct duo d;
	struct ibv_qp_ex *qp = pair_open(&d, type);
	struct ibv_mw *mw = type == IBV_QPT_UD ? NULL : ibv_alloc_mw(d.pd, IBV_MW_TYPE_2);
	struct call c = { .opcode = op->opcode, .way = way, .remote = (uintptr_t)d.memory + DUO_HALF, .rkey = d.mr->rkey };

	if (op->opcode == IBV_WR_SEND_WITH_INV)
		c.invalidate = window_of_b(&d, mw);
	if (op->opcode == IBV_WR_LOCAL_INV) {
		NEED(kit_bind(d.qp[A], mw, d.mr) == IBV_WC_SUCCESS);
		c.invalidate = mw->rkey;
	}
	if (op->opcode == IBV_WR_BIND_MW) {
		c.mw = mw;
		c.rkey = ibv_inc_rkey(mw->rkey);
		c.bind = bind_info(&d, IBV_ACCESS_REMOTE_READ);
	}
	memset(d.memory, 0x5a, LENGTH);
	d.memory[DUO_HALF] = 40;
	if (op->received >= 0)
		duo_recv(&d, 9, 4096, d.mr->lkey);
	if (way == POST)
		post_plain(&d, &c);
	else
		post_built(&d, qp, &c);
	NEED(duo_expect(&d, A, 3, IBV_WC_SUCCESS).opcode == op->done);
	check_receive(&d, op, c.invalidate);
	/* Of an unreliable write the sender knows no more than that it was sent; its last bytes come last. */
	while (type == IBV_QPT_UC && op->opcode == IBV_WR_RDMA_WRITE && __atomic_load_n(&d.memory[DUO_HALF + LENGTH - 1], __ATOMIC_ACQUIRE) == 0)
		duo_nothing(&d, B);
	check_memory(&d, op->opcode, type == IBV_QPT_UD ? 40 : 0);
	/* An invalidated window cannot be invalidated again. */
	if (op->opcode == IBV_WR_LOCAL_INV) {
		post_plain(&d, &c);
		duo_expect(&d, A, 3, IBV_WC_LOC_QP_OP_ERR);
	}
	NEED(!mw || ibv_dealloc_mw(mw) == 0);
	duo_close(&d);
}

static bool type_has(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	if (type == IBV_QPT_UD)
		return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
	return type == IBV_QPT_RC || (!has_answer(opcode) && opcode != IBV_WR_ATOMIC_WRITE);
}

static void every_opcode(enum ibv_qp_type type)
{
	for (size_t i = 0; i < OPS; i++)
		for (int way = POST; way < WAYS; way++) {
			if (!type_has(type, ops[i].opcode))
				continue;
			/* No choice of payload, or one that must not be inline. */
			if (!has_payload(ops[i].opcode) && way > SGE)
				continue;
			if (has_answer(ops[i].opcode) && way >= INLINE)
				continue;
			/* An answer of 8 bytes is not cut in two. */
			if (length_of(ops[i].opcode) == 8 && way == SGE_LIST)
				continue;
			run(type, &ops[i], (enum way)way);
		}
}

static void every_opcode_of_rc(int argc, char **argv)
{
	every_opcode(IBV_QPT_RC);
}

static void every_opcode_of_uc(int argc, char **argv)
{
	every_opcode(IBV_QPT_UC);
}

static void every_opcode_of_ud(int argc, char **argv)
{
	every_opcode(IBV_QPT_UD);
}

/* What a type does not have is refused by each post, and by the QP that asks for its builder. */
static void opcodes_that_a_type_does_not_have(int argc, char **argv)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	static const enum ibv_wr_opcode nobodys[] = { IBV_WR_TSO, IBV_WR_DRIVER1 };

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, types[t], false);
		duo_connect(&d);
		for (size_t i = 0; i < OPS + 2; i++) {
			enum ibv_wr_opcode opcode = i < OPS ? ops[i].opcode : nobodys[i - OPS];
			struct ibv_send_wr wr = duo_wr(&d, 1, opcode, &sge, 8);

			if (i >= OPS || !type_has(types[t], opcode))
				RETURNS(duo_post(&d, &wr), EINVAL);
		}
		duo_nothing(&d, A);
		duo_close(&d);
	}

	struct duo d;

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_qp_init_attr_ex init = {
		.send_cq = d.cq[A],
		.recv_cq = d.cq[A],
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d.pd,
		.qp_type = IBV_QPT_RC,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
	};

	REFUSED(ibv_create_qp_ex(d.ctx, &init), EOPNOTSUPP);
	init.qp_type = IBV_QPT_UC;
	init.send_ops_flags = answered_ops;
	REFUSED(ibv_create_qp_ex(d.ctx, &init), EOPNOTSUPP);
	init.qp_type = IBV_QPT_UD;
	init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	REFUSED(ibv_create_qp_ex(d.ctx, &init), EOPNOTSUPP);
	duo_close(&d);
}

/* A batch is posted whole or not at all. */
static void batches(int argc, char **argv)
{
	struct duo d;
	struct ibv_qp_ex *qp = pair_open(&d, IBV_QPT_RC);
	char text[65] = "eight by";

	for (unsigned bad = 0; bad < 3; bad++) {
		ibv_wr_start(qp);
		for (unsigned i = 0; i < 4; i++) {
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(qp, d.mr->rkey, (uintptr_t)d.memory + DUO_HALF + i * 8);
			ibv_wr_set_inline_data(qp, text, bad == 1 && i == 2 ? 65 : 8);
		}
		if (bad == 2)
			ibv_wr_abort(qp);
		else
			RETURNS(ibv_wr_complete(qp), bad ? EINVAL : 0);
		for (unsigned i = 0; i < 4 && !bad; i++)
			duo_expect(&d, A, i, IBV_WC_SUCCESS);
		duo_nothing(&d, A);
		NEED((memcmp(d.memory + DUO_HALF + 24, "eight by", 8) == 0) == !bad);
		memset(d.memory, 0, sizeof(d.memory));
	}
	duo_close(&d);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "every-opcode-of-rc", every_opcode_of_rc },
		{ "every-opcode-of-uc", every_opcode_of_uc },
		{ "every-opcode-of-ud", every_opcode_of_ud },
		{ "opcodes-that-a-type-does-not-have", opcodes_that_a_type_does_not_have },
		{ "batches", batches },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
