/* SPDX-License-Identifier: BSD-2-Clause */
/* What the other side finds wrong, or that there is no other side. */
#include "statuses.h"

static void refused(struct duo *d, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_sge sge;
	struct ibv_send_wr behind = duo_wr(d, 2, IBV_WR_SEND, &sge, 8);

	wr->next = &behind;
	RETURNS(duo_post(d, wr), 0);
	duo_expect(d, A, wr->wr_id, status);
	duo_expect(d, A, 2, IBV_WC_WR_FLUSH_ERR);
	duo_nothing(d, A);
	NEED(duo_state(d, A) == IBV_QPS_ERR);
}

/* --- a key, an address, a right -------------------------------------------------------------------------------------------- */

enum access_kind {
	NO_KEY, OTHER_PD, BEFORE, BEHIND, REGION_FORBIDS, ACCESS_KINDS
};

static void access_case(enum ibv_wr_opcode opcode, enum access_kind kind)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);

	struct ibv_pd *pd = kind == OTHER_PD ? ibv_alloc_pd(d.ctx) : d.pd;
	struct ibv_mr *mr = ibv_reg_mr(pd, d.memory + DUO_HALF, DUO_HALF,
		kind == REGION_FORBIDS ? IBV_ACCESS_LOCAL_WRITE : KIT_ACCESS);
	struct ibv_send_wr wr = duo_wr(&d, 1, opcode, &sge, 8);
	uint64_t addr = wr.wr.rdma.remote_addr;
	uint32_t key;

	NEED(mr);
	key = kind == NO_KEY ? mr->rkey + 1 : mr->rkey;
	addr += kind == BEFORE ? -8ull : kind == BEHIND ? DUO_HALF : 0;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.remote_addr = addr;
	} else {
		wr.wr.rdma.rkey = key;
		wr.wr.rdma.remote_addr = addr;
	}
	memset(d.memory, 5, DUO_HALF);
	duo_recv(&d, 9, 64, d.mr->lkey);
	refused(&d, &wr, IBV_WC_REM_ACCESS_ERR);
	duo_event(&d, IBV_EVENT_QP_ACCESS_ERR, d.qp[B]);
	duo_expect(&d, B, 9, IBV_WC_WR_FLUSH_ERR);
	NEED(duo_state(&d, B) == IBV_QPS_ERR);
	NEED(duo_no_event(&d));
	for (unsigned i = 0; i < DUO_HALF; i++)
		NEED(d.memory[i] == 5 && d.memory[DUO_HALF + i] == 0);
	NEED(ibv_dereg_mr(mr) == 0 && (pd == d.pd || ibv_dealloc_pd(pd) == 0));
	duo_close(&d);
}

static void remote_access(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_WRITE };

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		for (int kind = NO_KEY; kind < ACCESS_KINDS; kind++)
			access_case(opcodes[i], (enum access_kind)kind);
}

/* No byte, no key. */
static void nothing_needs_no_key(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);
	for (unsigned read = 0; read < 2; read++) {
		struct ibv_send_wr wr = duo_wr(&d, read, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge, 0);

		wr.wr.rdma.rkey = wr.wr.rdma.remote_addr = 0;
		sge.lkey = 0;
		RETURNS(duo_post(&d, &wr), 0);
		duo_expect(&d, A, read, IBV_WC_SUCCESS);
	}
	duo_close(&d);
}

/* A send that invalidates a key which is not a window's of this QP. */
static void local_access(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);

	struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND_WITH_INV, &sge, 8);

	wr.invalidate_rkey = d.mr->rkey;
	duo_recv(&d, 9, 64, d.mr->lkey);
	duo_recv(&d, 10, 64, d.mr->lkey);
	refused(&d, &wr, IBV_WC_REM_ACCESS_ERR);
	duo_expect(&d, B, 9, IBV_WC_LOC_ACCESS_ERR);
	duo_expect(&d, B, 10, IBV_WC_WR_FLUSH_ERR);
	NEED(duo_state(&d, B) == IBV_QPS_ERR && duo_no_event(&d)); /* the receive says it */
	duo_close(&d);
}

/* --- requests that the other side cannot carry out -------------------------------------------------------------------------- */

static void request_case(struct ibv_send_wr *wr, struct duo *d)
{
	duo_recv(d, 9, 64, d->mr->lkey);
	refused(d, wr, IBV_WC_REM_INV_REQ_ERR);
	duo_event(d, IBV_EVENT_QP_REQ_ERR, d->qp[B]);
	duo_expect(d, B, 9, IBV_WC_WR_FLUSH_ERR);
	NEED(duo_state(d, B) == IBV_QPS_ERR && duo_no_event(d));
}

enum uneven { ADDRESS_AND_PLACE, PLACE, ADDRESS, UNEVEN };

/* No multiple of 8 is a word's address; the place that a region whose addresses start at 0 gives it; or the address alone. */
static void uneven_case(enum ibv_wr_opcode opcode, enum uneven what)
{
	struct duo d;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	duo_open(&d, IBV_QPT_RC, false);
	duo_connect(&d);

	struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_RDMA_WRITE, &sge, 8);
	uint8_t *uneven = (uint8_t *)(((uintptr_t)d.memory + DUO_HALF) & ~(uintptr_t)7) + 4;
	uint64_t addr = what == PLACE ? 8 : what == ADDRESS ? 4 : (uintptr_t)uneven;

	/* What can be done without the owner is, behind the first. */
	for (unsigned i = 0; i < 2; i++) {
		RETURNS(duo_post(&d, &wr), 0);
		duo_expect(&d, A, 1, IBV_WC_SUCCESS);
	}
	mr = ibv_reg_mr(d.pd, uneven, 64, KIT_ACCESS | (what == ADDRESS_AND_PLACE ? 0 : IBV_ACCESS_ZERO_BASED));
	NEED(mr);
	wr = duo_wr(&d, 1, opcode, &sge, 8);
	if (opcode == IBV_WR_ATOMIC_WRITE) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = mr->rkey;
	} else {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 0; /* what is there; swap is not */
		wr.wr.atomic.swap = 3;
	}
	memset(d.memory, 5, 8);
	request_case(&wr, &d);
	for (unsigned i = 0; i < DUO_HALF; i++)
		NEED(d.memory[DUO_HALF + i] == 0);
	for (unsigned i = 0; i < 8; i++)
		NEED(d.memory[i] == 5);
	NEED(ibv_dereg_mr(mr) == 0);
	duo_close(&d);
}

/* The responder has no resources for what is remembered until it is answered: from the start, or no more (in SQD alone). */
static void resources_case(enum ibv_wr_opcode opcode, bool taken)
{
	struct ibv_sge sge;
	struct duo d;

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);
	struct ibv_send_wr wr = duo_wr(&d, 1, opcode, &sge, 8);

	b.max_dest_rd_atomic = taken;
	duo_up(&d, A, &a, IBV_QPS_RTS);
	duo_up(&d, B, &b, IBV_QPS_RTS);
	for (unsigned i = 0; taken && i < 2; i++) { /* the first goes through the lane always */
		RETURNS(duo_post(&d, &wr), 0);
		duo_expect(&d, A, 1, IBV_WC_SUCCESS);
	}
	if (taken) {
		b.qp_state = IBV_QPS_SQD;
		b.max_dest_rd_atomic = 0;
		RETURNS(ibv_modify_qp(d.qp[B], &b, IBV_QP_STATE), 0);
		RETURNS(ibv_modify_qp(d.qp[B], &b, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC), 0);
		b.qp_state = IBV_QPS_RTS;
		RETURNS(ibv_modify_qp(d.qp[B], &b, IBV_QP_STATE), 0);
	}

	uint64_t *here = (uint64_t *)(void *)d.memory, *there = (uint64_t *)(void *)(d.memory + DUO_HALF);

	*here = 7;
	*there = 1; /* what a compare and swap would find */
	request_case(&wr, &d);
	NEED(*here == 7 && *there == 1);
	duo_close(&d);
}

/* All but what the request needs: the key is not looked at, so it is an error of nothing too. */
static void forbidden_case(enum ibv_wr_opcode opcode, unsigned needs, uint32_t length)
{
	struct ibv_sge sge;
	struct duo d;

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);
	struct ibv_send_wr wr = duo_wr(&d, 1, opcode, &sge, length);
	uint64_t *here = (uint64_t *)(void *)d.memory, *there = (uint64_t *)(void *)(d.memory + DUO_HALF);

	b.qp_access_flags &= ~needs;
	duo_up(&d, A, &a, IBV_QPS_RTS);
	duo_up(&d, B, &b, IBV_QPS_RTS);
	*here = 7;
	*there = 1; /* what a compare and swap would find */
	request_case(&wr, &d);
	NEED(*here == 7 && *there == 1);
	duo_close(&d);
}

static void remote_access_of_the_qp(int argc, char **argv)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		unsigned needs;
	} all[] = { { IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE }, { IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC }, { IBV_WR_ATOMIC_WRITE, IBV_ACCESS_REMOTE_WRITE } };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		forbidden_case(all[i].opcode, all[i].needs, 8);
		if (i < 3)
			forbidden_case(all[i].opcode, all[i].needs, 0);
	}
}

static void remote_invalid_request(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_WRITE };

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		resources_case(opcodes[i], false);
		resources_case(opcodes[i], true);
	}
	for (size_t i = 1; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		for (int what = 0; what < UNEVEN; what++)
			uneven_case(opcodes[i], (enum uneven)what);
}

/* The receive is too short: that is the receiver's error, and the sender's request was invalid. */
static void local_length_of_receives(int argc, char **argv)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_RC, srq);
		duo_connect(&d);

		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 65);

		memset(d.memory, 5, DUO_HALF);
		duo_recv(&d, 9, 64, d.mr->lkey);
		refused(&d, &wr, IBV_WC_REM_INV_REQ_ERR);
		duo_expect(&d, B, 9, IBV_WC_LOC_LEN_ERR);
		NEED(duo_state(&d, B) == IBV_QPS_ERR && d.memory[DUO_HALF] == 0);
		/* All receives that it took are completed: the SRQ is free of it. */
		if (srq)
			duo_event(&d, IBV_EVENT_QP_LAST_WQE_REACHED, d.qp[B]);
		NEED(duo_no_event(&d));
		duo_close(&d);
	}
}

/* A receive into memory that may not be written. */
static void remote_operation(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	for (unsigned readable = 0; readable < 2; readable++) {
		duo_open(&d, IBV_QPT_RC, false);
		duo_connect(&d);

		struct ibv_mr *mr = ibv_reg_mr(d.pd, d.memory, sizeof(d.memory), 0);
		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 16);

		NEED(mr);
		duo_recv(&d, 9, 64, readable ? mr->lkey : d.mr->lkey + 1);
		duo_recv(&d, 10, 64, d.mr->lkey);
		refused(&d, &wr, IBV_WC_REM_OP_ERR);
		duo_expect(&d, B, 9, IBV_WC_LOC_PROT_ERR);
		duo_expect(&d, B, 10, IBV_WC_WR_FLUSH_ERR);
		NEED(duo_state(&d, B) == IBV_QPS_ERR && duo_no_event(&d));
		NEED(ibv_dereg_mr(mr) == 0);
		duo_close(&d);
	}
}

/* --- nobody there ------------------------------------------------------------------------------------------------------------ */

enum lost_kind {
	NEVER_UP, ONLY_INIT, WRONG_SEND_PSN, WRONG_RECV_PSN, WRONG_QPN, NAMES_ANOTHER, WRONG_LID, WRONG_GID, IN_ERROR, DESTROYED,
	LOST_KINDS
};

static void lost_up(struct duo *d, int kind)
{
	struct ibv_qp_attr a = duo_attr(d, A), b = duo_attr(d, B);

	if (kind == WRONG_SEND_PSN)
		a.sq_psn ^= 1;
	if (kind == WRONG_RECV_PSN)
		b.rq_psn ^= 0x800000;
	if (kind == WRONG_QPN)
		a.dest_qp_num ^= 0x800000;
	if (kind == NAMES_ANOTHER)
		b.dest_qp_num ^= 0x800000;
	if (kind == WRONG_LID)
		a.ah_attr.dlid ^= 0x4000;
	if (kind == WRONG_GID)
		a.ah_attr.grh.dgid.raw[15] ^= 0x40;
	duo_up(d, A, &a, IBV_QPS_RTS);
	if (kind == ONLY_INIT) {
		b.qp_state = IBV_QPS_INIT;
		RETURNS(ibv_modify_qp(d->qp[B], &b,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	} else if (kind != NEVER_UP) {
		duo_up(d, B, &b, IBV_QPS_RTS);
	}
}

/* All at once, since each waits as long as its timeout says. */
static void retry_exceeded(int argc, char **argv)
{
	static struct duo d[LOST_KINDS];
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge sge;

	for (int kind = 0; kind < LOST_KINDS; kind++) {
		duo_open(&d[kind], IBV_QPT_RC, false);
		lost_up(&d[kind], kind);
		if (kind == IN_ERROR)
			RETURNS(ibv_modify_qp(d[kind].qp[B], &error, IBV_QP_STATE), 0);
		if (kind == DESTROYED) {
			RETURNS(ibv_destroy_qp(d[kind].qp[B]), 0);
			d[kind].qp[B] = NULL;
		} else if (kind != NEVER_UP && kind != IN_ERROR) {
			duo_recv(&d[kind], 9, 64, d[kind].mr->lkey);
		}
	}
	for (int kind = 0; kind < LOST_KINDS; kind++) {
		struct ibv_send_wr wr[2] = { { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
			{ .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND } };

		/* Not signalled: an error completes all the same. */
		sge = (struct ibv_sge){ (uintptr_t)d[kind].memory, 8, d[kind].mr->lkey };
		wr[0].next = &wr[1];
		RETURNS(duo_post(&d[kind], wr), 0);
	}
	for (int kind = 0; kind < LOST_KINDS; kind++) {
		duo_expect(&d[kind], A, 1, IBV_WC_RETRY_EXC_ERR);
		duo_expect(&d[kind], A, 2, IBV_WC_WR_FLUSH_ERR);
		NEED(duo_state(&d[kind], A) == IBV_QPS_ERR && duo_no_event(&d[kind]));
		duo_nothing(&d[kind], B);
		duo_close(&d[kind]);
	}
}

/* --- no receive -------------------------------------------------------------------------------------------------------------- */

static void rnr_case(enum ibv_wr_opcode opcode, uint8_t retries, bool srq)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_RC, srq);

	struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);

	a.rnr_retry = retries;
	duo_up(&d, A, &a, IBV_QPS_RTS);
	duo_up(&d, B, &b, IBV_QPS_RTS);

	struct ibv_send_wr wr = duo_wr(&d, 1, opcode, &sge, 8);

	refused(&d, &wr, IBV_WC_RNR_RETRY_EXC_ERR);
	/* To the receiver nothing has happened. */
	NEED(duo_state(&d, B) == IBV_QPS_RTS && duo_no_event(&d));
	duo_nothing(&d, B);
	duo_close(&d);
}

static void rnr_retry_exceeded(int argc, char **argv)
{
	for (uint8_t retries = 0; retries < 3; retries++) {
		rnr_case(IBV_WR_SEND, retries, false);
		rnr_case(IBV_WR_SEND_WITH_IMM, retries, true);
		rnr_case(IBV_WR_RDMA_WRITE_WITH_IMM, retries, retries & 1);
	}
}

/* Seven retries are for ever: the receive comes when the sender has long been refused. */
static void rnr_waits_for_ever(int argc, char **argv)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_RC, srq);
		duo_connect(&d);
		for (uint64_t i = 1; i <= 3; i++) {
			struct ibv_send_wr wr = duo_wr(&d, i, IBV_WR_SEND, &sge, 8);

			RETURNS(duo_post(&d, &wr), 0);
		}
		/* Its timer is 10 µs: it has been refused more often than any count would allow. */
		for (unsigned i = 0; i < 20; i++) {
			duo_nothing(&d, A);
			duo_nothing(&d, B);
		}
		for (uint64_t i = 1; i <= 3; i++) {
			duo_recv(&d, 10 + i, 8, d.mr->lkey);
			duo_expect(&d, A, i, IBV_WC_SUCCESS);
			duo_expect(&d, B, 10 + i, IBV_WC_SUCCESS);
		}
		duo_close(&d);
	}
}

const struct kit_test statuses_remote[] = {
	{ "remote-access", remote_access },
	{ "nothing-needs-no-key", nothing_needs_no_key },
	{ "local-access", local_access },
	{ "remote-invalid-request", remote_invalid_request },
	{ "remote-access-of-the-qp", remote_access_of_the_qp },
	{ "local-length-of-receives", local_length_of_receives },
	{ "remote-operation", remote_operation },
	{ "retry-exceeded", retry_exceeded },
	{ "rnr-retry-exceeded", rnr_retry_exceeded },
	{ "rnr-waits-for-ever", rnr_waits_for_ever },
	{ NULL, NULL },
};
