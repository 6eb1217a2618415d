/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion statuses between two processes: A sends what must fail after the engine that VERBSD_ENGINE names has carried
 * what did not. Each case is one fault, tried with every opcode that can have it: the status on both sides, the flush behind
 * it, the event, the states that follow, and memory that is as it was.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "tests/e2e/map.h"

#define ROOM   65536u /* of A's memory, and of B's that may be written */
#define SPARE  4096u  /* B's memory begins and ends with so many bytes that are in no region; a shared one has its own */
#define ACCESS (ALL_ACCESS | IBV_ACCESS_MW_BIND)
#define NO_EVENT (-1)

enum fault {
	/* B's access */
	NO_KEY, OTHER_PD, BEFORE, BEHIND, REGION_FORBIDS, QP_FORBIDS, DEREGISTERED, WINDOW_OUTSIDE, WINDOW_GONE,
	/* B's requests and receives */
	NO_RESOURCES, RESOURCES_TAKEN, UNALIGNED, ADDRESS_UNALIGNED, SHORT_RECEIVE, BAD_RECEIVE, BAD_INVALIDATE, NO_RECEIVE,
	/* A's own */
	BAD_LKEY, SOURCE_OUTSIDE, NOT_WRITABLE, NO_CREDIT, INVALIDATES_NOTHING, BINDS_NOTHING,
	/* nobody there */
	IN_ERROR, DESTROYED, KILLED, NEVER_UP, WRONG_PSN, WRONG_QPN,
};

#define WRITES	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM)
#define ATOMICS (1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD)
#define READS	(1u << IBV_WR_RDMA_READ | ATOMICS)
#define STORES	(1u << IBV_WR_ATOMIC_WRITE)
#define SENDS	(1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM)

struct trial {
	const char *name;
	enum fault fault;
	unsigned opcodes;
	enum ibv_wc_status a, b; /* of A's request; of B's receive (SUCCESS: it stays where it is) */
	int event;		 /* of B */
	enum ibv_qp_state b_state;
};

#define REM_ACCESS IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_QPS_ERR
#define REM_REQUEST IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_REQ_ERR, IBV_QPS_ERR
#define UNNOTICED IBV_WC_SUCCESS, NO_EVENT, IBV_QPS_RTS

static const struct trial trials[] = {
	{ "no-such-key", NO_KEY, WRITES | READS | STORES, REM_ACCESS },
	{ "key-of-another-pd", OTHER_PD, WRITES | READS | STORES, REM_ACCESS },
	{ "before-the-region", BEFORE, WRITES | READS | STORES, REM_ACCESS },
	{ "behind-the-region", BEHIND, WRITES | READS | STORES, REM_ACCESS },
	{ "region-forbids", REGION_FORBIDS, WRITES | READS | STORES, REM_ACCESS },
	{ "qp-forbids", QP_FORBIDS, WRITES | READS | STORES, REM_REQUEST },
	{ "deregistered", DEREGISTERED, WRITES | READS | STORES, REM_ACCESS },
	{ "outside-the-window", WINDOW_OUTSIDE, WRITES | READS | STORES, REM_ACCESS },
	{ "window-is-gone", WINDOW_GONE, WRITES | READS | STORES, REM_ACCESS },
	{ "no-resources", NO_RESOURCES, READS | STORES, REM_REQUEST },
	{ "resources-taken-away", RESOURCES_TAKEN, READS | STORES, REM_REQUEST },
	{ "unaligned-atomics", UNALIGNED, ATOMICS | STORES, REM_REQUEST },
	{ "unaligned-addresses", ADDRESS_UNALIGNED, ATOMICS | STORES, REM_REQUEST },
	{ "short-receive", SHORT_RECEIVE, SENDS, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, NO_EVENT, IBV_QPS_ERR },
	{ "bad-receive", BAD_RECEIVE, SENDS, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, NO_EVENT, IBV_QPS_ERR },
	{ "bad-invalidate", BAD_INVALIDATE, 1u << IBV_WR_SEND_WITH_INV, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, NO_EVENT,
		IBV_QPS_ERR },
	{ "no-receive", NO_RECEIVE, SENDS | 1u << IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RNR_RETRY_EXC_ERR, UNNOTICED },
	{ "bad-lkey", BAD_LKEY, SENDS | WRITES | READS, IBV_WC_LOC_PROT_ERR, UNNOTICED },
	{ "source-outside", SOURCE_OUTSIDE, SENDS | WRITES | READS, IBV_WC_LOC_PROT_ERR, UNNOTICED },
	{ "response-not-writable", NOT_WRITABLE, READS, IBV_WC_LOC_PROT_ERR, UNNOTICED },
	{ "no-credit-for-reads", NO_CREDIT, READS | STORES, IBV_WC_LOC_QP_OP_ERR, UNNOTICED },
	{ "invalidates-nothing", INVALIDATES_NOTHING, 1u << IBV_WR_LOCAL_INV, IBV_WC_LOC_QP_OP_ERR, UNNOTICED },
	{ "binds-nothing", BINDS_NOTHING, 1u << IBV_WR_BIND_MW, IBV_WC_MW_BIND_ERR, UNNOTICED },
	{ "peer-in-error", IN_ERROR, SENDS | WRITES | READS, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, NO_EVENT, IBV_QPS_ERR },
	{ "peer-destroyed", DESTROYED, SENDS | WRITES | READS, IBV_WC_RETRY_EXC_ERR, UNNOTICED },
	{ "peer-killed", KILLED, 1u << IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR, UNNOTICED },
	{ "peer-never-up", NEVER_UP, 1u << IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, NO_EVENT, IBV_QPS_RESET },
	{ "wrong-psn", WRONG_PSN, 1u << IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, UNNOTICED },
	{ "wrong-qp-number", WRONG_QPN, 1u << IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, UNNOTICED },
};

#define TRIALS (sizeof(trials) / sizeof(trials[0]))

static const struct trial *trial; /* that this process is at */

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return 1u << opcode & ATOMICS;
}

static bool has_window(void)
{
	return trial->fault == WINDOW_OUTSIDE || trial->fault == WINDOW_GONE;
}

static bool meets_nobody(void)
{
	return trial->fault == NEVER_UP || trial->fault == WRONG_PSN || trial->fault == WRONG_QPN;
}

static bool by(const char *engine)
{
	const char *forced = getenv("VERBSD_ENGINE");

	return forced && strcmp(forced, engine) == 0;
}

/* --- either side -------------------------------------------------------------------------------------------------------- */

static void qp_new(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC };

	end->cq = init.send_cq = init.recv_cq = ibv_create_cq(end->ctx, 64, NULL, NULL, 0);
	NEED(end->cq);
	end->qp = ibv_create_qp(end->pd, &init);
	NEED(end->qp);
}

static void qp_up(struct end *end, struct end_address peer, bool is_a)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ALL_ACCESS,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer.qpn,
		.rq_psn = is_a ? 7 : 5,
		.sq_psn = is_a ? 5 : 7,
		.max_dest_rd_atomic = trial->fault == NO_RESOURCES && !is_a ? 0 : 4,
		.max_rd_atomic = trial->fault == NO_CREDIT && is_a ? 0 : 4,
		.min_rnr_timer = 1,
		.timeout = trial->fault == KILLED ? 0 : 1, /* the death alone ends it, not a timer that is as fast */
		.retry_cnt = 1,
		.rnr_retry = trial->fault == KILLED ? 7 : 1,
		.ah_attr = { .dlid = peer.lid, .port_num = 1 } };

	if (is_a && trial->fault == WRONG_PSN)
		attr.sq_psn++;
	if (is_a && trial->fault == WRONG_QPN)
		attr.dest_qp_num ^= 0x800000;
	NEED(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	NEED(ibv_modify_qp(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	NEED(ibv_modify_qp(end->qp, &attr,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static enum ibv_qp_state qp_state(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

static void qp_error(const struct end *end)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	NEED(ibv_modify_qp(end->qp, &error, IBV_QP_STATE) == 0);
}

static void expect(const struct end *end, const char *who, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(end->cq, 1, &wc);
	while (n == 0);
	if (n == 1 && (wc.wr_id != wr_id || wc.status != status))
		fprintf(stderr, "%s has WR %llu: %s, not WR %llu: %s\n", who, (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
	NEED(n == 1 && wc.wr_id == wr_id && wc.status == status && wc.qp_num == end->qp->qp_num);
}

static void expect_nothing(const struct end *end)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < 100; i++)
		NEED(ibv_poll_cq(end->cq, 1, &wc) == 0);
}

/* NO_EVENT: there is none. */
static void expect_event(const struct end *end, int type)
{
	struct ibv_async_event event;
	int flags = fcntl(end->ctx->async_fd, F_GETFL);

	if (type == NO_EVENT) {
		NEED(fcntl(end->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);
		NEED(ibv_get_async_event(end->ctx, &event) == -1 && errno == EAGAIN);
		NEED(fcntl(end->ctx->async_fd, F_SETFL, flags) == 0);
	} else {
		NEED(ibv_get_async_event(end->ctx, &event) == 0);
		NEED((int)event.event_type == type && event.element.qp == end->qp);
		ibv_ack_async_event(&event);
	}
}

/* --- B ------------------------------------------------------------------------------------------------------------------- */

struct owner {
	struct end end;
	struct ibv_pd *other_pd;
	struct ibv_mr *mr, *bad; /* what is written rightly; what is not */
	struct ibv_mw *mw;
	struct target to;
	uint8_t *memory; /* of the region */
	bool shared;
};

static struct ibv_mr *region(struct owner *b, struct ibv_pd *pd, unsigned access)
{
	struct verbsd_mr_attr attr = { .size = ROOM, .access = access };
	struct ibv_mr *mr = b->shared ? verbsd_alloc_mr(pd, &attr) : ibv_reg_mr(pd, b->memory, ROOM, access);

	NEED(mr);
	return mr;
}

static struct target key_of(const struct owner *b, struct ibv_mr *mr)
{
	return b->shared ? target_of(mr) : (struct target){ (uintptr_t)mr->addr, mr->rkey };
}

static void owner_region(struct owner *b)
{
	b->mr = region(b, b->end.pd, ACCESS);
	if (b->shared)
		b->memory = b->mr->addr;
	b->to = key_of(b, b->mr);
	memset(b->memory, 0, ROOM);
}

/* A window over the second half, bound by B's own QP. */
static struct target window(struct owner *b)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED, .wr_id = 3 }, *bad;

	b->mw = ibv_alloc_mw(b->end.pd, IBV_MW_TYPE_2);
	NEED(b->mw);
	wr.bind_mw.mw = b->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(b->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ b->mr, b->to.base + ROOM / 2, ROOM / 2, ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE };
	NEED(ibv_post_send(b->end.qp, &wr, &bad) == 0);
	expect(&b->end, "B", 3, IBV_WC_SUCCESS);
	return (struct target){ b->to.base + ROOM / 2, b->mw->rkey };
}

static void window_ends(struct owner *b)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .wr_id = 4,
		.invalidate_rkey = b->mw->rkey }, *bad;

	NEED(ibv_post_send(b->end.qp, &wr, &bad) == 0);
	expect(&b->end, "B", 4, IBV_WC_SUCCESS);
}

/* What A uses rightly first. */
static struct target good_target(struct owner *b)
{
	if (has_window())
		return window(b);
	if (trial->fault == DEREGISTERED) {
		b->bad = region(b, b->end.pd, ACCESS);
		return key_of(b, b->bad);
	}
	if (trial->fault == ADDRESS_UNALIGNED) {
		/* The word is aligned where it is, and not in the addresses of its region. */
		b->bad = ibv_reg_mr(b->end.pd, b->memory + 4, ROOM - 4, ACCESS | IBV_ACCESS_ZERO_BASED);
		NEED(b->bad);
		return (struct target){ 4, b->bad->rkey };
	}
	return b->to;
}

/* An attribute that can be changed only while the send queue is drained. */
static void take_resources(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC) == 0);
	attr.qp_state = IBV_QPS_RTS;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

/* Makes the fault, as far as it is B's; what A is to use then. */
static struct target spoil(struct owner *b, struct target good)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE };
	struct target to = good;

	switch (trial->fault) {
	case NO_KEY:
		to.rkey ^= 0x5500;
		break;
	case OTHER_PD:
	case REGION_FORBIDS:
		b->bad = trial->fault == OTHER_PD ? region(b, b->other_pd, ACCESS) : region(b, b->end.pd, IBV_ACCESS_LOCAL_WRITE);
		to = key_of(b, b->bad);
		break;
	case BEFORE:
	case WINDOW_OUTSIDE:
		to.base -= 8;
		break;
	case BEHIND:
		to.base += ROOM;
		break;
	case QP_FORBIDS:
		NEED(ibv_modify_qp(b->end.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS) == 0);
		break;
	case RESOURCES_TAKEN:
		take_resources(b->end.qp);
		break;
	case DEREGISTERED:
		NEED(ibv_dereg_mr(b->bad) == 0);
		b->bad = NULL;
		break;
	case WINDOW_GONE:
		window_ends(b);
		break;
	case UNALIGNED:
		to.base += 4;
		break;
	case IN_ERROR:
		qp_error(&b->end);
		break;
	case DESTROYED:
		NEED(ibv_destroy_qp(b->end.qp) == 0);
		b->end.qp = NULL;
		break;
	default:
		break;
	}
	return to;
}

static void post_receive(struct owner *b)
{
	uint32_t length = trial->fault == SHORT_RECEIVE ? 7 : 64, lkey = b->mr->lkey;

	if (trial->fault == NO_RECEIVE || trial->fault == KILLED || meets_nobody())
		return;
	end_recv(&b->end, b->to.base, length, trial->fault == BAD_RECEIVE ? lkey ^ 0x5500 : lkey);
}

static void owner_end(struct owner *b)
{
	if (b->end.qp)
		NEED(ibv_destroy_qp(b->end.qp) == 0);
	if (b->mw)
		NEED(ibv_dealloc_mw(b->mw) == 0);
	if (b->bad)
		NEED(ibv_dereg_mr(b->bad) == 0);
	NEED(ibv_dereg_mr(b->mr) == 0 && ibv_destroy_cq(b->end.cq) == 0);
	b->end.qp = NULL;
	b->mw = NULL;
	b->bad = NULL;
}

static void owner_judge(struct owner *b)
{
	if (trial->fault != DESTROYED) {
		if (trial->b != IBV_WC_SUCCESS)
			expect(&b->end, "B", 0, trial->b);
		NEED(qp_state(&b->end) == trial->b_state);
	}
	expect_nothing(&b->end);
	expect_event(&b->end, trial->event);
	/* The engine wrote ones at both ends, if anybody did; nothing else came. */
	for (uint32_t i = trial->fault == ADDRESS_UNALIGNED ? 16 : 8; i < ROOM - 8; i++)
		NEED(b->memory[i] == 0 || (has_window() && i >= ROOM / 2 && i < ROOM / 2 + 8));
}

static void owner_try(struct owner *b, int fd)
{
	struct end_address here, there;
	struct target to;

	qp_new(&b->end);
	owner_region(b);
	here = end_here(&b->end);
	say(fd, &here, sizeof(here));
	hear(fd, &there, sizeof(there));
	if (trial->fault != NEVER_UP)
		qp_up(&b->end, there, false);
	to = good_target(b);
	say(fd, &to, sizeof(to));
	nod_wait(fd);
	to = spoil(b, to);
	if (trial->fault != DESTROYED && trial->fault != IN_ERROR)
		post_receive(b);
	say(fd, &to, sizeof(to));
	nod_wait(fd);
	if (trial->fault == IN_ERROR)
		post_receive(b); /* it is flushed at once */
	owner_judge(b);
	owner_end(b);
	nod(fd);
}

static void owner(int fd, void *arg)
{
	struct owner b = { .shared = by("map") };
	uint8_t *memory = aligned_alloc(4096, ROOM + 2 * SPARE);

	trial = arg;
	NEED(memory);
	memset(memory, 0, ROOM + 2 * SPARE);
	b.memory = memory + SPARE;
	b.end.ctx = end_device();
	b.end.pd = ibv_alloc_pd(b.end.ctx);
	b.other_pd = ibv_alloc_pd(b.end.ctx);
	NEED(b.end.pd && b.other_pd);
	for (unsigned opcode = 0; opcode < 32; opcode++)
		if (1u << opcode & trial->opcodes)
			owner_try(&b, fd);
	NEED(ibv_dealloc_pd(b.other_pd) == 0 && ibv_dealloc_pd(b.end.pd) == 0);
	NEED(ibv_close_device(b.end.ctx) == 0);
	free(memory);
}

/* --- A ------------------------------------------------------------------------------------------------------------------- */

struct sender {
	struct end end;
	struct ibv_mr *mr, *readable;
	struct ibv_mw *mw;
	uint64_t *memory;
};

static void post(struct sender *a, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	NEED(ibv_post_send(a->end.qp, wr, &bad) == 0);
}

static struct ibv_send_wr request(struct sender *a, enum ibv_wr_opcode opcode, struct target to, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };

	*sge = (struct ibv_sge){ (uintptr_t)a->memory, 8, a->mr->lkey };
	if (is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = to.base;
		wr.wr.atomic.rkey = to.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = to.base;
		wr.wr.rdma.rkey = to.rkey;
	}
	return wr;
}

/*
 * So many that the engine has to have run, if it is one that A runs itself; the key is known to it then. A window's is
 * its owner's affair always, and so is another key of a region where that is mapped.
 */
static void warm_up(struct sender *a, struct target to)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	bool reads = trial->fault != NO_RESOURCES && trial->fault != NO_CREDIT && trial->fault != ADDRESS_UNALIGNED;
	bool own = !by("stage") && !has_window() && !(by("map") && trial->fault == ADDRESS_UNALIGNED);
	uint64_t before = runs();
	struct ibv_sge sge;

	*a->memory = UINT64_MAX;
	do {
		for (unsigned i = 0; i < (reads ? 3 : 1); i++) {
			struct ibv_send_wr wr = request(a, opcodes[i], to, &sge);

			wr.wr_id = 8;
			if (is_atomic(wr.opcode))
				wr.wr.atomic.compare_add = 0;
			post(a, &wr);
			expect(&a->end, "A", 8, IBV_WC_SUCCESS);
		}
	} while (own && runs() == before);
	NEED(own || runs() == before);
}

/* A's own faults, in what was right. */
static void spoil_request(struct sender *a, struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = wr->sg_list;

	switch (trial->fault) {
	case BAD_LKEY:
		sge->lkey ^= 0x5500;
		break;
	case SOURCE_OUTSIDE:
		sge->addr += ROOM - 4;
		break;
	case NOT_WRITABLE:
		sge->lkey = a->readable->lkey;
		break;
	case BAD_INVALIDATE:
		wr->invalidate_rkey = wr->wr.rdma.rkey;
		break;
	case INVALIDATES_NOTHING:
		wr->invalidate_rkey = a->mr->rkey;
		break;
	case BINDS_NOTHING:
		wr->bind_mw.mw = a->mw;
		wr->bind_mw.rkey = ibv_inc_rkey(a->mw->rkey);
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ a->readable, (uintptr_t)a->memory, 8, IBV_ACCESS_REMOTE_READ };
		break;
	default:
		break;
	}
}

/* Of three in a list the first fails and the others are flushed, signalled or not. */
static void fail(struct sender *a, struct child *b, enum ibv_wr_opcode opcode, struct target to)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr[3] = { request(a, opcode, to, &sge[0]), request(a, IBV_WR_SEND, to, &sge[1]),
		request(a, IBV_WR_RDMA_WRITE, to, &sge[2]) };

	spoil_request(a, &wr[0]);
	*a->memory = 0x0505050505050505;
	for (unsigned i = 0; i < 3; i++) {
		wr[i].wr_id = i;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
		wr[i].send_flags = i == 1 ? IBV_SEND_SIGNALED : 0;
	}
	post(a, wr);
	if (trial->fault == KILLED)
		child_kill(b); /* while the first waits for its receive */
	expect(&a->end, "A", 0, trial->a);
	expect(&a->end, "A", 1, IBV_WC_WR_FLUSH_ERR);
	expect(&a->end, "A", 2, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(&a->end);
	NEED(qp_state(&a->end) == IBV_QPS_ERR);
	NEED(*a->memory == 0x0505050505050505);
	expect_event(&a->end, trial->fault == KILLED ? IBV_EVENT_QP_FATAL : NO_EVENT);
}

static void sender_try(struct sender *a, struct child *b, enum ibv_wr_opcode opcode)
{
	struct end_address here, there;
	struct target to;

	qp_new(&a->end);
	here = end_here(&a->end);
	say(b->fd, &here, sizeof(here));
	hear(b->fd, &there, sizeof(there));
	qp_up(&a->end, there, true);
	hear(b->fd, &to, sizeof(to));
	if (!meets_nobody())
		warm_up(a, to);
	nod(b->fd);
	hear(b->fd, &to, sizeof(to));
	fail(a, b, opcode, to);
	if (trial->fault != KILLED) {
		nod(b->fd);
		nod_wait(b->fd);
	}
	NEED(ibv_destroy_qp(a->end.qp) == 0 && ibv_destroy_cq(a->end.cq) == 0);
}

static void sender(void)
{
	struct child b = child_start(owner, (void *)(uintptr_t)trial);
	struct sender a = { .memory = aligned_alloc(4096, ROOM) };

	NEED(a.memory);
	a.end.ctx = end_device();
	a.end.pd = ibv_alloc_pd(a.end.ctx);
	a.mr = ibv_reg_mr(a.end.pd, a.memory, ROOM, ALL_ACCESS);
	a.readable = ibv_reg_mr(a.end.pd, a.memory, ROOM, 0);
	a.mw = ibv_alloc_mw(a.end.pd, IBV_MW_TYPE_2);
	NEED(a.mr && a.readable && a.mw);
	for (unsigned opcode = 0; opcode < 32; opcode++)
		if (1u << opcode & trial->opcodes)
			sender_try(&a, &b, (enum ibv_wr_opcode)opcode);
	if (trial->fault != KILLED)
		child_end(&b);
	NEED(ibv_dealloc_mw(a.mw) == 0 && ibv_dereg_mr(a.readable) == 0 && ibv_dereg_mr(a.mr) == 0);
	NEED(ibv_dealloc_pd(a.end.pd) == 0 && ibv_close_device(a.end.ctx) == 0);
	free(a.memory);
}

int main(int argc, char **argv)
{
	struct end_case cases[TRIALS];

	for (size_t i = 0; i < TRIALS; i++) {
		cases[i] = (struct end_case){ trials[i].name, sender };
		if (argc == 2 && strcmp(argv[1], trials[i].name) == 0)
			trial = &trials[i];
	}
	return end_main(argc, argv, cases, TRIALS);
}
