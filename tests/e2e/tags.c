/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching, as ibv_post_srq_ops(3) and tm_types.h have it: what is matched, in which order, what is unexpected and what
 * follows from that, and messages that the receiver fetches itself. One test a run, named by the first argument; status 0,
 * or a line on stderr and status 1.
 */
#include "kit.h"

#include <endian.h>
#include <stdlib.h>

#include <infiniband/tm_types.h>

#define SIZE   65536u
#define PLAIN  16u   /* receives without a tag */
#define WHOLE  ~0ull /* a mask */
#define TMH    sizeof(struct ibv_tmh)
#define RVH    sizeof(struct ibv_rvh)
#define MATCH  IBV_WC_TM_MATCH
#define VALID  IBV_WC_TM_DATA_VALID

struct world {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq_ex *tag_cq;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *server, *client; /* the server's receives are the SRQ's */
	struct ibv_mr *mr;
	uint8_t *from, *to, *plain; /* SIZE bytes, SIZE bytes, PLAIN * 1 KiB */
	struct ibv_device_attr_ex device;
};

static struct ibv_srq_init_attr_ex srq_init(struct world *w)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = w->pd,
		.cq = ibv_cq_ex_to_cq(w->tag_cq),
		.tm_cap = { .max_num_tags = 8, .max_ops = 16 },
	};
}

static void post_plain(struct world *w, uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)w->plain + i * 1024, 1024, w->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1000 + i, .sg_list = &sge, .num_sge = 1 }, *bad;

	RETURNS(ibv_post_srq_recv(w->srq, &wr, &bad), 0);
}

static void world_make(struct world *w, unsigned plain)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 2048, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	size_t size = 2 * SIZE + PLAIN * 1024;

	w->ctx = kit_open();
	RETURNS(ibv_query_device_ex(w->ctx, NULL, &w->device), 0);
	NEED(w->device.tm_caps.flags == IBV_TM_CAP_RC);
	NEED(w->pd = ibv_alloc_pd(w->ctx));
	NEED(w->tag_cq = ibv_create_cq_ex(w->ctx, &cq));
	w->cq = kit_cq(w->ctx, 64);

	struct ibv_srq_init_attr_ex init = srq_init(w);

	NEED(w->srq = ibv_create_srq_ex(w->ctx, &init));
	w->server = kit_qp(w->pd, w->cq, w->srq);
	w->client = kit_qp(w->pd, w->cq, NULL);
	NEED(w->from = calloc(1, size));
	w->to = w->from + SIZE;
	w->plain = w->to + SIZE;
	NEED(w->mr = ibv_reg_mr(w->pd, w->from, size, KIT_ACCESS & ~IBV_ACCESS_MW_BIND));
	kit_connect(w->client, w->server);
	for (unsigned i = 0; i < plain; i++)
		post_plain(w, i);
}

static void world_end(struct world *w)
{
	RETURNS(ibv_destroy_srq(w->srq), EBUSY);
	RETURNS(ibv_destroy_qp(w->client), 0);
	RETURNS(ibv_destroy_qp(w->server), 0);
	RETURNS(ibv_destroy_cq(ibv_cq_ex_to_cq(w->tag_cq)), EBUSY);
	RETURNS(ibv_destroy_srq(w->srq), 0);
	RETURNS(ibv_dereg_mr(w->mr), 0);
	RETURNS(ibv_destroy_cq(ibv_cq_ex_to_cq(w->tag_cq)), 0);
	RETURNS(ibv_destroy_cq(w->cq), 0);
	RETURNS(ibv_dealloc_pd(w->pd), 0);
	RETURNS(ibv_close_device(w->ctx), 0);
	free(w->from);
}

struct seen {
	uint64_t wr_id, tag;
	uint32_t priv, length;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
};

/* The next completion of the SRQ's CQ. */
static struct seen next(struct world *w)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc_tm_info info;
	struct seen seen;
	int r;

	while ((r = ibv_start_poll(w->tag_cq, &attr)) == ENOENT)
		;
	NEED(r == 0);
	seen.wr_id = w->tag_cq->wr_id;
	seen.status = w->tag_cq->status;
	seen.opcode = ibv_wc_read_opcode(w->tag_cq);
	seen.flags = ibv_wc_read_wc_flags(w->tag_cq);
	seen.length = ibv_wc_read_byte_len(w->tag_cq);
	ibv_wc_read_tm_info(w->tag_cq, &info);
	seen.tag = info.tag;
	seen.priv = info.priv;
	ibv_end_poll(w->tag_cq);
	return seen;
}

static void expect(struct world *w, uint64_t wr_id, enum ibv_wc_opcode opcode, unsigned flags)
{
	struct seen seen = next(w);

	if (seen.wr_id != wr_id || seen.status || seen.opcode != opcode || seen.flags != flags)
		fprintf(stderr, "WR %llu, status %d, opcode %d, flags 0x%x; not WR %llu, opcode %d, flags 0x%x\n",
			(unsigned long long)seen.wr_id, seen.status, seen.opcode, seen.flags, (unsigned long long)wr_id,
			opcode, flags);
	NEED(seen.wr_id == wr_id && !seen.status && seen.opcode == opcode && seen.flags == flags);
}

static void expect_nothing(struct world *w)
{
	struct ibv_poll_cq_attr attr = { 0 };

	NEED(ibv_start_poll(w->tag_cq, &attr) == ENOENT);
}

/* --- operations ----------------------------------------------------------------------------------------------------------- */

static int add(struct world *w, uint64_t wr_id, uint64_t tag, uint64_t mask, uint32_t length, uint32_t *handle)
{
	struct ibv_sge sge = { (uintptr_t)w->to, length, w->mr->lkey };
	struct ibv_ops_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_TAG_ADD,
		.tm.add = { .recv_wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0, .tag = tag, .mask = mask },
	};
	struct ibv_ops_wr *bad;
	int r = ibv_post_srq_ops(w->srq, &wr, &bad);

	if (handle)
		*handle = wr.tm.handle;
	return r;
}

static int operation(struct world *w, uint64_t wr_id, enum ibv_ops_wr_opcode opcode, int flags, uint32_t number)
{
	struct ibv_ops_wr wr = { .wr_id = wr_id, .opcode = opcode, .flags = flags }, *bad;

	if (opcode == IBV_WR_TAG_DEL)
		wr.tm.handle = number;
	else
		wr.tm.unexpected_cnt = number;
	return ibv_post_srq_ops(w->srq, &wr, &bad);
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

static void header(struct world *w, uint8_t opcode, uint64_t tag)
{
	struct ibv_tmh tmh = { .opcode = opcode, .app_ctx = htobe32(0xabcd), .tag = htobe64(tag) };

	memcpy(w->from, &tmh, TMH);
}

static enum ibv_wc_status send_bytes(struct world *w, uint32_t length)
{
	return kit_run(w->client, IBV_WR_SEND, w->mr, w->from, length, 0, 0);
}

/* A message of @length bytes behind its header, which all say @value. */
static void send_tagged(struct world *w, uint8_t opcode, uint64_t tag, uint32_t length, uint8_t value)
{
	header(w, opcode, tag);
	memset(w->from + TMH, value, length);
	NEED(send_bytes(w, (uint32_t)TMH + length) == IBV_WC_SUCCESS);
}

static void check_bytes(const uint8_t *bytes, size_t n, uint8_t value)
{
	for (size_t i = 0; i < n; i++)
		NEED(bytes[i] == value);
}

/* --- tests ------------------------------------------------------------------------------------------------------------------ */

static void matching(int argc, char **argv)
{
	struct world w;
	struct seen seen;

	(void)argc, (void)argv;
	world_make(&w, 4);
	/* The first that has the tag, in the order of posting. */
	RETURNS(add(&w, 1, 0x1100, 0xff00, 100, NULL), 0);
	RETURNS(add(&w, 2, 0x1122, WHOLE, 200, NULL), 0);
	RETURNS(add(&w, 3, 0, 0, 300, NULL), 0);
	expect_nothing(&w); /* none was signalled */
	send_tagged(&w, IBV_TMH_EAGER, 0x1122, 50, 7);
	seen = next(&w);
	NEED(seen.wr_id == 1 && seen.opcode == IBV_WC_TM_RECV && seen.flags == (MATCH | VALID));
	NEED(seen.tag == 0x1122 && seen.priv == 0xabcd && seen.length == 50);
	check_bytes(w.to, 50, 7);
	NEED(w.to[50] == 0);
	send_tagged(&w, IBV_TMH_EAGER, 0x1122, 60, 8);
	expect(&w, 2, IBV_WC_TM_RECV, MATCH | VALID);
	send_tagged(&w, IBV_TMH_EAGER, 0x99, 0, 0);
	seen = next(&w);
	NEED(seen.wr_id == 3 && seen.length == 0 && seen.tag == 0x99);
	/* Nothing is left that has a tag. */
	send_tagged(&w, IBV_TMH_EAGER, 0x1122, 16, 9);
	seen = next(&w);
	NEED(seen.wr_id == 1000 && seen.opcode == IBV_WC_TM_RECV && !seen.flags && seen.length == 32 && !seen.tag);
	check_bytes(w.plain + TMH, 16, 9);
	NEED(memcmp(w.plain, w.from, TMH) == 0);
	/* Messages without a tag, and those that answer a rendezvous, are not unexpected. */
	send_tagged(&w, IBV_TMH_NO_TAG, 0x1122, 16, 1);
	expect(&w, 1001, IBV_WC_TM_NO_TAG, 0);
	send_tagged(&w, IBV_TMH_FIN, 0x1122, 0, 1);
	expect(&w, 1002, IBV_WC_TM_NO_TAG, 0);
	RETURNS(operation(&w, 20, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 1), 0);
	expect(&w, 20, IBV_WC_TM_SYNC, 0);
	world_end(&w);
}

/* In many descriptors, and into two elements. */
static void long_message(int argc, char **argv)
{
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 1);
	for (uint32_t length = 32768 - 32; length <= 60000; length += 5003) {
		struct ibv_sge sge[2] = { { (uintptr_t)w.to, 5, w.mr->lkey }, { (uintptr_t)w.to + 5, length - 5, w.mr->lkey } };
		struct ibv_ops_wr wr = {
			.opcode = IBV_WR_TAG_ADD, .tm.add = { .recv_wr_id = 5, .sg_list = sge, .num_sge = 2, .tag = 1, .mask = WHOLE }
		};
		struct ibv_ops_wr *bad;

		RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), 0);
		header(&w, IBV_TMH_EAGER, 1);
		for (uint32_t i = 0; i < length; i++)
			w.from[TMH + i] = (uint8_t)(i * 7 + length);
		NEED(send_bytes(&w, (uint32_t)TMH + length) == IBV_WC_SUCCESS);
		expect(&w, 5, IBV_WC_TM_RECV, MATCH | VALID);
		NEED(memcmp(w.to, w.from + TMH, length) == 0);
	}
	world_end(&w);
}

static void deleting(int argc, char **argv)
{
	struct world w;
	struct seen seen;
	uint32_t a, b;

	(void)argc, (void)argv;
	world_make(&w, 1);
	RETURNS(add(&w, 1, 1, WHOLE, 100, &a), 0);
	RETURNS(add(&w, 2, 1, WHOLE, 100, &b), 0);
	NEED(a != b);
	RETURNS(operation(&w, 10, IBV_WR_TAG_DEL, IBV_OPS_SIGNALED, a), 0);
	expect(&w, 10, IBV_WC_TM_DEL, 0);
	send_tagged(&w, IBV_TMH_EAGER, 1, 10, 1);
	expect(&w, 2, IBV_WC_TM_RECV, MATCH | VALID);
	/* One that a message took, one that is gone, one that never was: an error, signalled or not. */
	for (unsigned i = 0; i < 3; i++) {
		RETURNS(operation(&w, 11, IBV_WR_TAG_DEL, i ? IBV_OPS_SIGNALED : 0, i == 0 ? b : i == 1 ? a : 0x7ffff000), 0);
		seen = next(&w);
		NEED(seen.wr_id == 11 && seen.status == IBV_WC_TM_ERR);
	}
	/* Its place is free again, and has another handle. */
	RETURNS(add(&w, 3, 1, WHOLE, 100, &b), 0);
	NEED(a != b);
	world_end(&w);
}

/* After an unexpected message nothing that is added counts until the program has caught up. */
static void phases(int argc, char **argv)
{
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 8);
	RETURNS(add(&w, 1, 1, WHOLE, 100, NULL), 0);
	send_tagged(&w, IBV_TMH_EAGER, 2, 10, 1);
	expect(&w, 1000, IBV_WC_TM_RECV, 0);

	struct ibv_sge sge = { (uintptr_t)w.to, 100, w.mr->lkey };
	struct ibv_ops_wr wr = {
		.wr_id = 30,
		.opcode = IBV_WR_TAG_ADD,
		.flags = IBV_OPS_SIGNALED,
		.tm.add = { .recv_wr_id = 2, .sg_list = &sge, .num_sge = 1, .tag = 2, .mask = WHOLE },
	};
	struct ibv_ops_wr *bad;

	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), 0);
	expect(&w, 30, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	send_tagged(&w, IBV_TMH_EAGER, 2, 10, 1); /* the receive does not count */
	expect(&w, 1001, IBV_WC_TM_RECV, 0);
	send_tagged(&w, IBV_TMH_EAGER, 1, 10, 1); /* the one from before does */
	expect(&w, 1, IBV_WC_TM_RECV, MATCH | VALID);
	RETURNS(operation(&w, 31, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 1), 0); /* one of two */
	expect(&w, 31, IBV_WC_TM_SYNC, IBV_WC_TM_SYNC_REQ);
	send_tagged(&w, IBV_TMH_EAGER, 2, 10, 1);
	expect(&w, 1002, IBV_WC_TM_RECV, 0);
	RETURNS(operation(&w, 32, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 3), 0);
	expect(&w, 32, IBV_WC_TM_SYNC, 0);
	send_tagged(&w, IBV_TMH_EAGER, 2, 10, 1);
	expect(&w, 2, IBV_WC_TM_RECV, MATCH | VALID);
	/* The count may come with an addition. */
	send_tagged(&w, IBV_TMH_EAGER, 3, 10, 1);
	expect(&w, 1003, IBV_WC_TM_RECV, 0);
	wr.flags |= IBV_OPS_TM_SYNC;
	wr.tm.unexpected_cnt = 4;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), 0);
	expect(&w, 30, IBV_WC_TM_ADD, 0);
	send_tagged(&w, IBV_TMH_EAGER, 2, 10, 1);
	expect(&w, 2, IBV_WC_TM_RECV, MATCH | VALID);
	world_end(&w);
}

static uint32_t offer(struct world *w, uint64_t tag, uint32_t offset, uint32_t length, uint32_t rkey)
{
	struct ibv_rvh rvh = {
		.va = htobe64((uintptr_t)w->from + offset), .rkey = htobe32(rkey), .len = htobe32(length)
	};

	header(w, IBV_TMH_RNDV, tag);
	memcpy(w->from + TMH, &rvh, RVH);
	return (uint32_t)(TMH + RVH);
}

static void rendezvous(int argc, char **argv)
{
	struct world w;
	struct ibv_tmh fin;
	struct ibv_wc wc;
	struct seen seen;

	(void)argc, (void)argv;
	world_make(&w, 2);
	for (uint32_t length = 0; length <= 40000; length = length * 3 + 1) {
		kit_post_recv(w.client, w.mr, w.plain + 8192, 1024);
		RETURNS(add(&w, 5, 77, WHOLE, 50000, NULL), 0);
		memset(w.from + 4096, (int)(length + 1), length);

		uint32_t n = offer(&w, 77, 4096, length, w.mr->rkey);

		NEED(send_bytes(&w, n) == IBV_WC_SUCCESS);
		seen = next(&w);
		NEED(seen.wr_id == 5 && seen.opcode == IBV_WC_TM_RECV && seen.flags == MATCH && seen.tag == 77);
		NEED(seen.length == length && seen.priv == 0xabcd);
		seen = next(&w);
		NEED(seen.wr_id == 5 && seen.opcode == IBV_WC_TM_RECV && seen.flags == VALID && seen.length == length);
		check_bytes(w.to, length, (uint8_t)(length + 1));
		wc = kit_wait(w.cq);
		NEED(wc.opcode == IBV_WC_RECV && wc.byte_len == TMH && wc.status == IBV_WC_SUCCESS);
		memcpy(&fin, w.plain + 8192, TMH);
		NEED(fin.opcode == IBV_TMH_FIN && be64toh(fin.tag) == 77 && be32toh(fin.app_ctx) == 0xabcd);
	}
	/* Unexpected, and longer than what the device looks at: the program's to deal with, whole. */
	NEED(send_bytes(&w, offer(&w, 78, 4096, 100, w.mr->rkey)) == IBV_WC_SUCCESS);
	seen = next(&w);
	NEED(seen.wr_id == 1000 && seen.length == TMH + RVH && !seen.flags);
	RETURNS(operation(&w, 9, IBV_WR_TAG_SYNC, 0, 1), 0);
	RETURNS(add(&w, 5, 77, WHOLE, 50000, NULL), 0);
	offer(&w, 77, 4096, 100, w.mr->rkey);
	NEED(send_bytes(&w, w.device.tm_caps.max_rndv_hdr_size + 1) == IBV_WC_SUCCESS);
	expect(&w, 1001, IBV_WC_TM_RECV, 0);
	RETURNS(operation(&w, 9, IBV_WR_TAG_SYNC, 0, 2), 0);
	/* Of the allowed length it is matched; too little room: the program fetches it. */
	offer(&w, 77, 4096, 50001, w.mr->rkey);
	NEED(send_bytes(&w, w.device.tm_caps.max_rndv_hdr_size) == IBV_WC_SUCCESS);
	seen = next(&w);
	NEED(seen.wr_id == 5 && seen.status == IBV_WC_TM_RNDV_INCOMPLETE);
	expect_nothing(&w);
	world_end(&w);
}

struct under_way {
	unsigned posted, sent, answers, matched, valid;
};

/* Reads completions until no more than @n of those posted are under way. */
static void catch_up(struct world *w, struct under_way *u, unsigned n)
{
	while (u->sent + n < u->posted || u->answers + n < u->posted) {
		struct ibv_wc wc = kit_wait(w->cq);

		NEED(wc.status == IBV_WC_SUCCESS);
		u->sent += wc.wr_id == 3;
		u->answers += wc.wr_id == 1;
	}
	while (u->matched + n < u->posted || u->valid + n < u->posted) {
		struct seen seen = next(w);

		NEED(seen.status == IBV_WC_SUCCESS);
		u->matched += seen.flags == MATCH;
		u->valid += seen.flags == VALID;
	}
}

/* Several at a time, more than a QP has room for over its life. */
static void many_rendezvous(int argc, char **argv)
{
	struct under_way u = { 0 };
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 1);
	for (; u.posted < 200; u.posted++) {
		struct ibv_sge sge = { (uintptr_t)w.from, offer(&w, 1, 4096, 3000, w.mr->rkey), w.mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED
		};
		struct ibv_send_wr *bad;

		catch_up(&w, &u, 7);
		kit_post_recv(w.client, w.mr, w.plain + 8192, 1024);
		RETURNS(add(&w, u.posted, 1, WHOLE, 4000, NULL), 0);
		RETURNS(ibv_post_send(w.client, &wr, &bad), 0);
	}
	catch_up(&w, &u, 0);
	world_end(&w);
}

/* The program's part of the send queue is what it was given, whatever the device has in it. */
static void send_queue(int argc, char **argv)
{
	struct ibv_send_wr wr = { .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 1);
	RETURNS(ibv_query_qp(w.server, &attr, IBV_QP_CAP, &init), 0);
	for (unsigned round = 0; round < 3; round++) {
		kit_post_recv(w.client, w.mr, w.plain + 8192, 1024);
		RETURNS(add(&w, 5, 77, WHOLE, 100, NULL), 0);
		NEED(send_bytes(&w, offer(&w, 77, 4096, 100, w.mr->rkey)) == IBV_WC_SUCCESS);
		expect(&w, 5, IBV_WC_TM_RECV, MATCH);
		expect(&w, 5, IBV_WC_TM_RECV, VALID);
		NEED(kit_wait(w.cq).wr_id == 1);
		for (unsigned i = 0; i < init.cap.max_send_wr; i++)
			RETURNS(ibv_post_send(w.server, &wr, &bad), 0);
		RETURNS(ibv_post_send(w.server, &wr, &bad), ENOMEM);
		for (unsigned i = 0; i < init.cap.max_send_wr; i++)
			NEED(kit_wait(w.cq).status == IBV_WC_SUCCESS);
	}
	world_end(&w);
}

/* Whatever is wrong, the QPs fail and the SRQ goes on with others. */
static void failures(int argc, char **argv)
{
	struct world w;
	struct seen seen;

	(void)argc, (void)argv;
	world_make(&w, 4);
	RETURNS(add(&w, 1, 1, WHOLE, 100, NULL), 0);
	header(&w, IBV_TMH_EAGER, 1);
	NEED(send_bytes(&w, (uint32_t)TMH + 101) == IBV_WC_REM_INV_REQ_ERR);
	seen = next(&w);
	NEED(seen.wr_id == 1 && seen.status == IBV_WC_LOC_LEN_ERR);
	kit_connect(w.client, w.server);
	NEED(send_bytes(&w, (uint32_t)TMH - 1) == IBV_WC_REM_INV_REQ_ERR); /* no header */
	kit_connect(w.client, w.server);
	header(&w, IBV_TMH_RNDV, 1);
	NEED(send_bytes(&w, (uint32_t)(TMH + RVH) - 1) == IBV_WC_REM_INV_REQ_ERR); /* half of one */
	kit_connect(w.client, w.server);
	expect_nothing(&w);
	/* Memory that is not to be read. */
	RETURNS(add(&w, 2, 1, WHOLE, 100, NULL), 0);
	kit_post_recv(w.client, w.mr, w.plain + 8192, 1024);
	NEED(send_bytes(&w, offer(&w, 1, 4096, 100, w.mr->rkey + 0x10000)) == IBV_WC_SUCCESS);
	expect(&w, 2, IBV_WC_TM_RECV, MATCH);
	seen = next(&w);
	NEED(seen.wr_id == 2 && seen.status == IBV_WC_REM_ACCESS_ERR);
	NEED(kit_wait(w.cq).status == IBV_WC_WR_FLUSH_ERR);
	/* A receive whose memory is not ours. */
	kit_connect(w.client, w.server);

	struct ibv_sge sge = { (uintptr_t)w.to, 100, w.mr->lkey + 0x10000 };
	struct ibv_ops_wr wr = {
		.opcode = IBV_WR_TAG_ADD, .tm.add = { .recv_wr_id = 7, .sg_list = &sge, .num_sge = 1, .tag = 1, .mask = WHOLE }
	};
	struct ibv_ops_wr *bad;

	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), 0);
	header(&w, IBV_TMH_EAGER, 1);
	NEED(send_bytes(&w, (uint32_t)TMH + 10) == IBV_WC_REM_OP_ERR);
	seen = next(&w);
	NEED(seen.wr_id == 7 && seen.status == IBV_WC_LOC_PROT_ERR);
	/* And all is well. */
	kit_connect(w.client, w.server);
	RETURNS(add(&w, 8, 1, WHOLE, 100, NULL), 0);
	send_tagged(&w, IBV_TMH_EAGER, 1, 10, 1);
	expect(&w, 8, IBV_WC_TM_RECV, MATCH | VALID);
	/* Reset drops what was not read, of that QP alone. */
	RETURNS(add(&w, 9, 1, WHOLE, 100, NULL), 0);
	RETURNS(operation(&w, 40, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), 0);
	send_tagged(&w, IBV_TMH_EAGER, 1, 10, 1);

	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	RETURNS(ibv_modify_qp(w.server, &reset, IBV_QP_STATE), 0);
	expect(&w, 40, IBV_WC_TM_SYNC, 0);
	expect_nothing(&w);
	world_end(&w);
}

static void limits(int argc, char **argv)
{
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 1);

	const struct ibv_tm_caps *caps = &w.device.tm_caps;
	struct ibv_srq_init_attr_ex init = srq_init(&w);
	struct ibv_sge sge[64] = { { (uintptr_t)w.to, 1, w.mr->lkey } };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD, .tm.add.sg_list = sge }, *bad;

	/* This one has 8 tags and 16 operations. */
	for (unsigned i = 0; i < 8; i++)
		RETURNS(add(&w, i, i, WHOLE, 1, NULL), 0);
	RETURNS(add(&w, 8, 8, WHOLE, 1, NULL), ENOMEM);
	for (unsigned i = 0; i < 16; i++)
		RETURNS(operation(&w, i, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), 0);
	RETURNS(operation(&w, 16, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), ENOMEM);
	expect(&w, 0, IBV_WC_TM_SYNC, 0);
	RETURNS(operation(&w, 16, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), 0);
	for (unsigned i = 1; i <= 16; i++)
		expect(&w, i, IBV_WC_TM_SYNC, 0);
	/* One past each number of the device. */
	init.tm_cap.max_num_tags = caps->max_num_tags + 1;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.tm_cap.max_num_tags = 0;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.tm_cap.max_num_tags = caps->max_num_tags;
	init.tm_cap.max_ops = caps->max_ops + 1;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.tm_cap.max_ops = 0;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.tm_cap.max_ops = caps->max_ops;
	init.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_TM;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
	init.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), EINVAL);
	init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;

	struct ibv_srq *other = w.srq;

	NEED(w.srq = ibv_create_srq_ex(w.ctx, &init));
	for (unsigned i = 0; i < caps->max_num_tags; i++)
		RETURNS(add(&w, i, i, WHOLE, 1, NULL), 0);
	RETURNS(add(&w, 0, 0, WHOLE, 1, NULL), ENOMEM);
	RETURNS(ibv_destroy_srq(w.srq), 0);
	NEED(w.srq = ibv_create_srq_ex(w.ctx, &init));
	wr.tm.add.num_sge = (int)caps->max_sge;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), 0);
	wr.tm.add.num_sge++;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), EINVAL);
	NEED(bad == &wr);
	wr.tm.add.num_sge = -1;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), EINVAL);
	wr.tm.add.num_sge = 0;
	wr.flags = 1 << 5;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), EINVAL);
	wr.flags = 0;
	wr.opcode = (enum ibv_ops_wr_opcode)3;
	RETURNS(ibv_post_srq_ops(w.srq, &wr, &bad), EINVAL);
	/* Completions that nobody read go with it. */
	RETURNS(operation(&w, 0, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), 0);
	RETURNS(ibv_destroy_srq(w.srq), 0);
	expect_nothing(&w);

	/* Only RC, of its PD; only an SRQ of this kind takes operations. */
	struct ibv_pd *pd = ibv_alloc_pd(w.ctx);
	struct ibv_qp_init_attr qp = kit_qp_init(w.cq, other, IBV_QPT_UD);
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 1, .max_sge = 1 } };

	REFUSED(ibv_create_qp(w.pd, &qp), EINVAL);
	qp.qp_type = IBV_QPT_RC;
	REFUSED(ibv_create_qp(pd, &qp), EINVAL);
	NEED(w.srq = ibv_create_srq(w.pd, &basic));
	RETURNS(add(&w, 1, 1, WHOLE, 1, NULL), EINVAL);
	RETURNS(ibv_destroy_srq(w.srq), 0);
	RETURNS(ibv_dealloc_pd(pd), 0);
	w.srq = other;
	world_end(&w);
}

/* No receive without a tag: the sender waits until there is one. */
static void receives_run_out(int argc, char **argv)
{
	struct world w;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED
	};
	struct ibv_send_wr *bad;

	(void)argc, (void)argv;
	world_make(&w, 0);
	header(&w, IBV_TMH_EAGER, 9);
	sge = (struct ibv_sge){ (uintptr_t)w.from, TMH + 8, w.mr->lkey };
	RETURNS(ibv_post_send(w.client, &wr, &bad), 0);
	expect_nothing(&w);
	/* It was not counted meanwhile. */
	RETURNS(operation(&w, 1, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 0), 0);
	expect(&w, 1, IBV_WC_TM_SYNC, 0);
	post_plain(&w, 3);
	expect(&w, 1003, IBV_WC_TM_RECV, 0);
	NEED(kit_wait(w.cq).status == IBV_WC_SUCCESS);
	RETURNS(operation(&w, 2, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, 1), 0);
	expect(&w, 2, IBV_WC_TM_SYNC, 0);
	world_end(&w);
}

/* The daemon allows 512 KiB of queues: a larger SRQ is charged before it is there, and a refused one is as it was. */
static void charges(int argc, char **argv)
{
	struct ibv_srq_attr attr = { .max_wr = 20000 };
	struct world w;

	(void)argc, (void)argv;
	world_make(&w, 0);
	RETURNS(ibv_modify_srq(w.srq, &attr, IBV_SRQ_MAX_WR), ENOMEM);
	RETURNS(ibv_query_srq(w.srq, &attr), 0);
	NEED(attr.max_wr == 64);
	for (unsigned i = 0; i < 3; i++) {
		attr.max_wr = 3000;
		RETURNS(ibv_modify_srq(w.srq, &attr, IBV_SRQ_MAX_WR), 0);
		attr.max_wr = 16;
		RETURNS(ibv_modify_srq(w.srq, &attr, IBV_SRQ_MAX_WR), 0);
	}
	RETURNS(ibv_query_srq(w.srq, &attr), 0);
	NEED(attr.max_wr == 16);
	/* Tags are charged too: with few there is room for this many receives, with many there is not. */
	struct ibv_srq_init_attr_ex init = srq_init(&w);
	struct ibv_srq *few;

	init.attr.max_wr = 6000;
	NEED(few = ibv_create_srq_ex(w.ctx, &init));
	RETURNS(ibv_destroy_srq(few), 0);
	init.tm_cap.max_num_tags = w.device.tm_caps.max_num_tags;
	REFUSED(ibv_create_srq_ex(w.ctx, &init), ENOMEM);
	world_end(&w);
}

static const struct kit_test tests[] = {
	{ "matching", matching },
	{ "long-message", long_message },
	{ "deleting", deleting },
	{ "phases", phases },
	{ "rendezvous", rendezvous },
	{ "many-rendezvous", many_rendezvous },
	{ "send-queue", send_queue },
	{ "failures", failures },
	{ "limits", limits },
	{ "receives-run-out", receives_run_out },
	{ NULL, NULL },
};

static const struct kit_test others[] = {
	{ "charges", charges },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], others[0].name) == 0)
		return kit_main(others, argc, argv);
	return kit_main(tests, argc, argv);
}
