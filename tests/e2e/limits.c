/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every limit that a device reports: what is at it can be had, what is one past it is refused, with the errno that verbs
 * users expect. How many objects of a kind there can be is what ibv_query_device() said, whatever the daemon was told.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kit.h"

struct rig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct kit_address here;
	uint8_t *memory;
};

#define MEMORY 65536u

static void rig_open(struct rig *r)
{
	r->ctx = kit_open();
	NEED(ibv_query_device(r->ctx, &r->device) == 0 && ibv_query_port(r->ctx, 1, &r->port) == 0);
	r->here = kit_address(r->ctx);
	r->pd = NULL;
	r->cq = NULL;
	r->memory = aligned_alloc(4096, MEMORY);
	NEED(r->memory);
	memset(r->memory, 0, MEMORY);
}

static void rig_pd(struct rig *r)
{
	rig_open(r);
	r->pd = ibv_alloc_pd(r->ctx);
	NEED(r->pd);
	r->cq = kit_cq(r->ctx, 16);
}

static void rig_close(struct rig *r)
{
	NEED(!r->cq || ibv_destroy_cq(r->cq) == 0);
	NEED(!r->pd || ibv_dealloc_pd(r->pd) == 0);
	NEED(ibv_close_device(r->ctx) == 0);
	free(r->memory);
}

/* --- how many ---------------------------------------------------------------------------------------------------------------- */

static void *pd_make(struct rig *r)
{
	return ibv_alloc_pd(r->ctx);
}

static int pd_end(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *cq_make(struct rig *r)
{
	return ibv_create_cq(r->ctx, 1, NULL, NULL, 0);
}

static int cq_end(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *qp_make(struct rig *r)
{
	struct ibv_qp_init_attr init = { .send_cq = r->cq, .recv_cq = r->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC };

	return ibv_create_qp(r->pd, &init);
}

static int qp_end(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *srq_make(struct rig *r)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(r->pd, &init);
}

static int srq_end(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *mr_make(struct rig *r)
{
	return ibv_reg_mr(r->pd, r->memory, 64, 0);
}

static int mr_end(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *mw_make(struct rig *r)
{
	return ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
}

static int mw_end(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *ah_make(struct rig *r)
{
	struct ibv_ah_attr attr = { .dlid = r->here.lid, .port_num = 1, .is_global = 1, .grh.dgid = r->here.gid };

	return ibv_create_ah(r->pd, &attr);
}

static int ah_end(void *ah)
{
	return ibv_destroy_ah(ah);
}

/* @had: how many of them the rig has itself. */
static void count(struct rig *r, int limit, unsigned had, void *(*make)(struct rig *r), int (*end)(void *object))
{
	void **made = calloc((size_t)limit, sizeof(*made));
	unsigned n = (unsigned)limit - had;

	NEED(limit > 0 && made);
	for (unsigned i = 0; i < n; i++) {
		made[i] = make(r);
		if (!made[i])
			fprintf(stderr, "%u of %u\n", i, n);
		NEED(made[i]);
	}
	REFUSED(make(r), ENOMEM);
	/* For one that goes one can be made. */
	NEED(end(made[n / 2]) == 0);
	made[n / 2] = make(r);
	NEED(made[n / 2]);
	REFUSED(make(r), ENOMEM);
	for (unsigned i = 0; i < n; i++)
		NEED(end(made[i]) == 0);
	free(made);
	printf("%d\n", limit);
}

#define COUNT(name, open, field, had)                                                                                   \
	static void name##_limit(int argc, char **argv)                                                                 \
	{                                                                                                               \
		struct rig r;                                                                                           \
                                                                                                                        \
		open(&r);                                                                                               \
		count(&r, r.device.field, had, name##_make, name##_end);                                                \
		rig_close(&r);                                                                                          \
	}

COUNT(pd, rig_open, max_pd, 0)
COUNT(cq, rig_open, max_cq, 0)
COUNT(qp, rig_pd, max_qp, 0)
COUNT(srq, rig_pd, max_srq, 0)
COUNT(mr, rig_pd, max_mr, 0)
COUNT(mw, rig_pd, max_mw, 0)
COUNT(ah, rig_pd, max_ah, 0)

/* --- how large ------------------------------------------------------------------------------------------------------------------ */

static struct ibv_qp *qp_with(struct rig *r, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .send_cq = r->cq, .recv_cq = r->cq, .cap = cap, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);

	/* What was given is at least what was asked for, and no more than the device has. */
	if (qp)
		NEED(init.cap.max_send_wr >= cap.max_send_wr && init.cap.max_recv_wr >= cap.max_recv_wr &&
			init.cap.max_send_sge >= cap.max_send_sge && init.cap.max_recv_sge >= cap.max_recv_sge &&
			init.cap.max_inline_data >= cap.max_inline_data);
	return qp;
}

#define CAP(...) ((struct ibv_qp_cap){ __VA_ARGS__ })

static void qp_capacities_too_large(int argc, char **argv)
{
	struct rig r;

	rig_pd(&r);

	uint32_t wr = (uint32_t)r.device.max_qp_wr, sge = (uint32_t)r.device.max_sge;

	REFUSED(qp_with(&r, CAP(.max_send_wr = wr + 1, .max_send_sge = 1)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_recv_wr = wr + 1, .max_recv_sge = 1)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_send_wr = 1, .max_send_sge = sge + 1)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_recv_wr = 1, .max_recv_sge = sge + 1)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_send_wr = UINT32_MAX, .max_send_sge = 1)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_send_wr = 1, .max_send_sge = UINT32_MAX)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_send_wr = 1, .max_send_sge = 1, .max_inline_data = 1025)), EINVAL);
	REFUSED(qp_with(&r, CAP(.max_send_wr = 1, .max_send_sge = 1, .max_inline_data = UINT32_MAX)), EINVAL);
	rig_close(&r);
}

/* As many as the device says can be posted and are carried out, in both queues. */
static void qp_depth(int argc, char **argv)
{
	struct rig r;

	rig_pd(&r);

	uint32_t n = (uint32_t)r.device.max_qp_wr;
	struct ibv_qp *qp = qp_with(&r, CAP(n, n, 1, 1, 0));
	struct ibv_mr *mr = ibv_reg_mr(r.pd, r.memory, MEMORY, KIT_ACCESS);
	struct ibv_sge sge = { (uintptr_t)r.memory, 1, mr ? mr->lkey : 0 };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	NEED(qp && mr);
	NEED(ibv_resize_cq(r.cq, (int)n + 1) == 0);
	kit_connect(qp, qp);
	for (uint32_t i = 0; i < n; i++) {
		recv.wr_id = i;
		RETURNS(ibv_post_recv(qp, &recv, &bad_recv), 0);
	}
	RETURNS(ibv_post_recv(qp, &recv, &bad_recv), ENOMEM);
	for (uint32_t i = 0; i < n; i++) {
		send.wr_id = n;
		send.send_flags = i == n - 1 ? IBV_SEND_SIGNALED : 0;
		RETURNS(ibv_post_send(qp, &send, &bad), 0);
	}
	RETURNS(ibv_post_send(qp, &send, &bad), ENOMEM);

	uint32_t received = 0;

	for (uint32_t i = 0; i <= n; i++) {
		struct ibv_wc wc = kit_wait(r.cq);

		NEED(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id != n)
			NEED(wc.wr_id == received++);
	}
	NEED(received == n);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

/* Pieces of 3 bytes, gathered into others of 3, and read back the same way. */
static void scatter_lists(int argc, char **argv)
{
	struct rig r;

	rig_pd(&r);

	uint32_t n = (uint32_t)r.device.max_sge;
	struct ibv_qp *qp = qp_with(&r, CAP(4, 4, n, n, 0));
	struct ibv_mr *mr = ibv_reg_mr(r.pd, r.memory, MEMORY, KIT_ACCESS);
	struct ibv_sge from[256], to[256];
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = to, .num_sge = (int)n }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = from, .num_sge = (int)n, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;

	NEED(qp && mr && n < 255 && r.device.max_sge_rd >= r.device.max_sge);
	kit_connect(qp, qp);
	for (uint32_t i = 0; i <= n; i++) {
		from[i] = (struct ibv_sge){ (uintptr_t)r.memory + (n - i) * 7, 3, mr->lkey };
		to[i] = (struct ibv_sge){ (uintptr_t)r.memory + 8192 + (n - i) * 5, 3, mr->lkey };
		memset(r.memory + (n - i) * 7, (int)i + 1, 3);
	}
	RETURNS(ibv_post_recv(qp, &recv, &bad_recv), 0);
	RETURNS(ibv_post_send(qp, &send, &bad), 0);
	for (unsigned i = 0; i < 2; i++)
		NEED(kit_wait(r.cq).status == IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < n; i++)
		NEED(r.memory[8192 + (n - i) * 5] == i + 1 && r.memory[8192 + (n - i) * 5 + 2] == i + 1);
	/* A read into as many. */
	for (uint32_t i = 0; i < 3 * n; i++)
		r.memory[32768 + i] = (uint8_t)i;
	send.sg_list = to;
	send.opcode = IBV_WR_RDMA_READ;
	send.wr.rdma.remote_addr = (uintptr_t)r.memory + 32768;
	send.wr.rdma.rkey = mr->rkey;
	RETURNS(ibv_post_send(qp, &send, &bad), 0);
	NEED(kit_wait(r.cq).status == IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < n; i++)
		NEED(r.memory[8192 + (n - i) * 5] == (uint8_t)(3 * i));
	send.num_sge = recv.num_sge = (int)n + 1;
	RETURNS(ibv_post_send(qp, &send, &bad), EINVAL);
	RETURNS(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

static void inline_data(int argc, char **argv)
{
	struct rig r;

	rig_pd(&r);

	struct ibv_qp *qp = qp_with(&r, CAP(4, 4, 1, 1, 1024));
	struct ibv_mr *mr = ibv_reg_mr(r.pd, r.memory, MEMORY, KIT_ACCESS);
	/* No key: inline data is read where it is, when it is posted. */
	struct ibv_sge sge = { (uintptr_t)r.memory, 1024, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

	NEED(qp && mr);
	kit_connect(qp, qp);
	memset(r.memory, 7, 1024);
	wr.wr.rdma.remote_addr = (uintptr_t)r.memory + 8192;
	wr.wr.rdma.rkey = mr->rkey;
	RETURNS(ibv_post_send(qp, &wr, &bad), 0);
	memset(r.memory, 8, 1024);
	NEED(kit_wait(r.cq).status == IBV_WC_SUCCESS);
	NEED(r.memory[8192] == 7 && r.memory[8192 + 1023] == 7 && r.memory[8192 + 1024] == 0);
	sge.length = 1025;
	RETURNS(ibv_post_send(qp, &wr, &bad), EINVAL);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

static struct ibv_srq *srq_with(struct rig *r, uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = wr, .max_sge = sge } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);

	if (srq)
		NEED(init.attr.max_wr >= wr && init.attr.max_sge >= sge);
	return srq;
}

static void srq_size(int argc, char **argv)
{
	struct rig r;
	struct ibv_sge sge[256] = { { 0 } };
	struct ibv_recv_wr recv = { .sg_list = sge }, *bad;
	struct ibv_srq_attr attr;

	rig_pd(&r);

	uint32_t wr = (uint32_t)r.device.max_srq_wr, sges = (uint32_t)r.device.max_srq_sge;

	REFUSED(srq_with(&r, wr + 1, 1), EINVAL);
	REFUSED(srq_with(&r, 1, sges + 1), EINVAL);
	REFUSED(srq_with(&r, UINT32_MAX, UINT32_MAX), EINVAL);

	struct ibv_srq *srq = srq_with(&r, wr, sges);

	NEED(srq);
	recv.num_sge = (int)sges;
	for (uint32_t i = 0; i < wr; i++)
		RETURNS(ibv_post_srq_recv(srq, &recv, &bad), 0);
	RETURNS(ibv_post_srq_recv(srq, &recv, &bad), ENOMEM);
	recv.num_sge = (int)sges + 1;
	RETURNS(ibv_post_srq_recv(srq, &recv, &bad), EINVAL);
	attr = (struct ibv_srq_attr){ .max_wr = wr + 1, .srq_limit = wr };
	RETURNS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	RETURNS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	attr.srq_limit = wr + 1;
	RETURNS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	RETURNS(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	/* Fewer than are posted; but it can be made smaller, as the device says. */
	NEED(r.device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	attr.max_wr = wr - 1;
	RETURNS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	NEED(ibv_query_srq(srq, &attr) == 0 && attr.max_wr == wr && attr.max_sge == sges && attr.srq_limit == wr);
	NEED(ibv_destroy_srq(srq) == 0);
	srq = srq_with(&r, 8, 1);
	attr.max_wr = wr;
	NEED(srq);
	RETURNS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	NEED(ibv_query_srq(srq, &attr) == 0 && attr.max_wr == wr && ibv_destroy_srq(srq) == 0);
	rig_close(&r);
}

static void cq_size(int argc, char **argv)
{
	struct rig r;
	struct ibv_cq *cq;

	rig_open(&r);
	cq = ibv_create_cq(r.ctx, r.device.max_cqe, NULL, NULL, 0);
	NEED(cq && cq->cqe >= r.device.max_cqe);
	RETURNS(ibv_resize_cq(cq, r.device.max_cqe + 1), EINVAL);
	RETURNS(ibv_resize_cq(cq, 0), EINVAL);
	RETURNS(ibv_resize_cq(cq, -1), EINVAL);
	RETURNS(ibv_resize_cq(cq, 1), 0);
	RETURNS(ibv_resize_cq(cq, r.device.max_cqe), 0);
	NEED(cq->cqe >= r.device.max_cqe && ibv_destroy_cq(cq) == 0);
	REFUSED(ibv_create_cq(r.ctx, r.device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(r.ctx, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(r.ctx, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(r.ctx, 1, NULL, NULL, r.ctx->num_comp_vectors), EINVAL);
	REFUSED(ibv_create_cq(r.ctx, 1, NULL, NULL, -1), EINVAL);
	cq = ibv_create_cq(r.ctx, 1, NULL, NULL, r.ctx->num_comp_vectors - 1);
	NEED(r.ctx->num_comp_vectors >= 1 && cq && ibv_destroy_cq(cq) == 0);
	rig_close(&r);
}

/* As large as this process can make one; the device's own limit is the whole of an address space. */
static void mr_size(int argc, char **argv)
{
	struct rig r;
	size_t size = (size_t)1 << 40;

	rig_pd(&r);
	NEED(r.device.max_mr_size >= size);

	void *much = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (much == MAP_FAILED) {
		size >>= 6;
		much = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	NEED(much != MAP_FAILED);

	struct ibv_mr *mr = ibv_reg_mr(r.pd, much, size, IBV_ACCESS_REMOTE_READ);

	NEED(mr && mr->length == size && ibv_dereg_mr(mr) == 0);
	REFUSED(ibv_reg_mr(r.pd, much, r.device.max_mr_size + 1, IBV_ACCESS_REMOTE_READ), EINVAL);
	REFUSED(ibv_reg_mr(r.pd, much, SIZE_MAX, IBV_ACCESS_REMOTE_READ), EINVAL);
	NEED(munmap(much, size) == 0);
	rig_close(&r);
}

static void tables(int argc, char **argv)
{
	struct rig r;
	struct ibv_gid_entry entry, *entries;
	union ibv_gid gid;
	__be16 pkey;

	rig_open(&r);
	NEED(r.device.max_pkeys == r.port.pkey_tbl_len && r.port.pkey_tbl_len >= 1);
	NEED(ibv_query_pkey(r.ctx, 1, r.port.pkey_tbl_len - 1, &pkey) == 0);
	NEED(ibv_get_pkey_index(r.ctx, 1, pkey) == r.port.pkey_tbl_len - 1);
	NEED(ibv_query_pkey(r.ctx, 1, r.port.pkey_tbl_len, &pkey) == -1 && ibv_query_pkey(r.ctx, 1, -1, &pkey) == -1);
	NEED(ibv_query_pkey(r.ctx, 0, 0, &pkey) == -1 && ibv_query_pkey(r.ctx, 2, 0, &pkey) == -1);
	NEED(ibv_get_pkey_index(r.ctx, 1, (__be16)~pkey) == -1);
	NEED(ibv_query_gid(r.ctx, 1, r.port.gid_tbl_len - 1, &gid) == 0);
	NEED(ibv_query_gid(r.ctx, 1, r.port.gid_tbl_len, &gid) == -1 && ibv_query_gid(r.ctx, 1, -1, &gid) == -1);
	NEED(ibv_query_gid(r.ctx, 2, 0, &gid) == -1);
	RETURNS(ibv_query_gid_ex(r.ctx, 1, (uint32_t)r.port.gid_tbl_len, &entry, 0), EINVAL);
	RETURNS(ibv_query_gid_ex(r.ctx, 2, 0, &entry, 0), EINVAL);
	RETURNS(ibv_query_gid_ex(r.ctx, 1, 0, &entry, 1), EOPNOTSUPP);
	RETURNS(ibv_query_gid_ex(r.ctx, 1, 0, &entry, 0), 0);
	NEED(ibv_query_gid(r.ctx, 1, 0, &gid) == 0 && memcmp(&gid, &entry.gid, sizeof(gid)) == 0);
	NEED(entry.gid_index == 0 && entry.port_num == 1);
	entries = calloc((size_t)r.port.gid_tbl_len, sizeof(*entries));
	NEED(entries);

	ssize_t n = ibv_query_gid_table(r.ctx, entries, (size_t)r.port.gid_tbl_len, 0);

	/* The same by each way to ask. */
	NEED(n >= 1 && n <= r.port.gid_tbl_len);
	for (ssize_t i = 0; i < n; i++) {
		RETURNS(ibv_query_gid_ex(r.ctx, 1, entries[i].gid_index, &entry, 0), 0);
		NEED(memcmp(&entry, &entries[i], sizeof(entry)) == 0);
		NEED(ibv_query_gid(r.ctx, 1, (int)entries[i].gid_index, &gid) == 0 && memcmp(&gid, &entry.gid, sizeof(gid)) == 0);
	}
	NEED(ibv_query_gid_table(r.ctx, entries, 0, 0) == -EINVAL);
	NEED(ibv_query_gid_table(r.ctx, entries, 1, 1) == -EOPNOTSUPP);
	free(entries);
	for (unsigned number = 0; number < 256; number++)
		RETURNS(ibv_query_port(r.ctx, (uint8_t)number, &r.port),
			number >= 1 && number <= r.device.phys_port_cnt ? 0 : EINVAL);
	rig_close(&r);
}

/* The longest message there is, out of one region and into the same. */
static void longest_message(int argc, char **argv)
{
	const size_t piece = 64 << 20;
	struct rig r;
	struct ibv_sge from[33], to[33];

	rig_pd(&r);

	uint32_t n = r.port.max_msg_sz / (uint32_t)piece;
	uint8_t *memory = mmap(NULL, 2 * piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_qp *qp = qp_with(&r, CAP(4, 4, n, n, 0));
	struct ibv_mr *mr = memory == MAP_FAILED ? NULL : ibv_reg_mr(r.pd, memory, 2 * piece, KIT_ACCESS);
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = to, .num_sge = (int)n }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = from, .num_sge = (int)n, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;

	NEED(qp && mr && n <= 32 && n * piece == r.port.max_msg_sz);
	kit_connect(qp, qp);
	for (uint32_t i = 0; i < n; i++) {
		from[i] = (struct ibv_sge){ (uintptr_t)memory, (uint32_t)piece, mr->lkey };
		to[i] = (struct ibv_sge){ (uintptr_t)memory + piece, (uint32_t)piece, mr->lkey };
	}
	memset(memory, 9, piece);
	RETURNS(ibv_post_recv(qp, &recv, &bad_recv), 0);
	RETURNS(ibv_post_send(qp, &send, &bad), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_wc wc = kit_wait(r.cq);

		NEED(wc.status == IBV_WC_SUCCESS && (wc.wr_id != 1 || wc.byte_len == r.port.max_msg_sz));
	}
	NEED(memcmp(memory, memory + piece, piece) == 0);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && munmap(memory, 2 * piece) == 0);
	rig_close(&r);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "pd-limit", pd_limit },
		{ "cq-limit", cq_limit },
		{ "qp-limit", qp_limit },
		{ "srq-limit", srq_limit },
		{ "mr-limit", mr_limit },
		{ "mw-limit", mw_limit },
		{ "ah-limit", ah_limit },
		{ "qp-capacities-too-large", qp_capacities_too_large },
		{ "qp-depth", qp_depth },
		{ "scatter-lists", scatter_lists },
		{ "inline-data", inline_data },
		{ "srq-size", srq_size },
		{ "cq-size", cq_size },
		{ "mr-size", mr_size },
		{ "tables", tables },
		{ "longest-message", longest_message },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
