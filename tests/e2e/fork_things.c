/* SPDX-License-Identifier: BSD-2-Clause */
/* One of everything, and every entry point that takes one of it. */
#include "tests/e2e/fork.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#undef ibv_reg_mr
#undef ibv_query_port

/* --- everything ---------------------------------------------------------------------------------------------------- */

static void qp_open(struct things *t)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = t->end.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };

	NEED(t->end.cq = ibv_create_cq(t->end.ctx, 64, NULL, NULL, 0));
	init.send_cq = init.recv_cq = t->end.cq;
	NEED(t->end.qp = ibv_create_qp_ex(t->end.ctx, &init));
	NEED(ibv_modify_qp(t->end.qp, &attr,
		     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
}

void things_open(struct things *t)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_cq_init_attr_ex cq = { .cqe = 4 };
	struct ibv_ah_attr ah = { .dlid = 1, .port_num = 1 };
	const struct verbsd_mr_attr region = { .size = PAGE, .access = ALL_ACCESS };
	struct ibv_port_attr port;

	t->end.ctx = end_device();
	NEED(t->end.pd = ibv_alloc_pd(t->end.ctx));
	qp_open(t);
	t->peer.ctx = t->end.ctx;
	t->peer.pd = t->end.pd;
	end_qp(&t->peer);
	end_connect(&t->end, end_here(&t->peer));
	end_connect(&t->peer, end_here(&t->end));
	NEED(t->channel = ibv_create_comp_channel(t->end.ctx));
	NEED(t->cq = ibv_create_cq(t->end.ctx, 4, NULL, t->channel, 0));
	NEED(t->cq_ex = ibv_create_cq_ex(t->end.ctx, &cq));
	NEED(t->srq = ibv_create_srq(t->end.pd, &srq));
	NEED(t->td = ibv_alloc_td(t->end.ctx, &td));
	parent.pd = t->end.pd;
	parent.td = t->td;
	NEED(t->parent = ibv_alloc_parent_domain(t->end.ctx, &parent));
	NEED(ibv_query_port(t->end.ctx, 1, (struct _compat_ibv_port_attr *)&port) == 0);
	ah.dlid = port.lid;
	ah.is_global = 1;
	NEED(ibv_query_gid(t->end.ctx, 1, 0, &ah.grh.dgid) == 0);
	NEED(t->ah = ibv_create_ah(t->end.pd, &ah));
	NEED(t->mw = ibv_alloc_mw(t->end.pd, IBV_MW_TYPE_1));
	t->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(t->memory != MAP_FAILED);
	NEED(t->mr = ibv_reg_mr(t->end.pd, t->memory, MEMORY, ALL_ACCESS));
	NEED(t->region = verbsd_alloc_mr(t->end.pd, &region));
	NEED(ibv_alloc_buf(t->end.pd, PAGE, &t->buffer));
}

void things_use(struct things *t, uint8_t byte)
{
	const struct work work = {
		.opcode = IBV_WR_RDMA_WRITE,
		.addr = (uintptr_t)t->memory,
		.length = MEMORY / 2,
		.lkey = t->mr->lkey,
		.raddr = (uintptr_t)t->memory + MEMORY / 2,
		.rkey = t->mr->rkey,
	};

	memset(t->memory, byte, MEMORY / 2);
	enum ibv_wc_status status = end_work(&t->end, &work);

	if (status)
		fprintf(stderr, "a write ended with: %s\n", ibv_wc_status_str(status));
	NEED(status == IBV_WC_SUCCESS);
	NEED(memcmp(t->memory, t->memory + MEMORY / 2, MEMORY / 2) == 0);
}

void things_close(struct things *t)
{
	ibv_free_buf(t->buffer);
	NEED(ibv_dereg_mr(t->region) == 0);
	NEED(ibv_dereg_mr(t->mr) == 0);
	munmap(t->memory, MEMORY);
	NEED(ibv_dealloc_mw(t->mw) == 0);
	NEED(ibv_destroy_ah(t->ah) == 0);
	NEED(ibv_dealloc_pd(t->parent) == 0);
	NEED(ibv_dealloc_td(t->td) == 0);
	NEED(ibv_destroy_srq(t->srq) == 0);
	NEED(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq_ex)) == 0);
	NEED(ibv_destroy_cq(t->cq) == 0);
	NEED(ibv_destroy_comp_channel(t->channel) == 0);
	end_qp_destroy(&t->peer);
	end_close(&t->end);
}

/* --- what a child may do with it ----------------------------------------------------------------------------------- */

static void inert_queries(struct things *t)
{
	struct ibv_context *c = t->end.ctx;
	struct ibv_device_attr device;
	struct ibv_device_attr_ex device_ex;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr srq;
	struct ibv_ece ece = { 0 };
	struct ibv_wc wc = { 0 };
	struct ibv_ah_attr ah;
	struct verbsd_mr_info info;
	uint8_t mac[6];
	uint16_t vid;
	__be16 pkey;

	NEED(ibv_query_device(c, &device) == ENOTCONN);
	/* The one that answers: a child may have device memory, and the answer is a copy in its own memory. */
	NEED(ibv_query_device_ex(c, NULL, &device_ex) == 0);
	NEED(ibv_query_rt_values_ex(c, &values) == ENOTCONN);
	NEED(ibv_query_port(c, 1, (struct _compat_ibv_port_attr *)&port) == ENOTCONN);
	NEED(ibv_query_gid(c, 1, 0, &gid) == -1);
	NEED(ibv_query_gid_ex(c, 1, 0, &entry, 0) == ENOTCONN);
	NEED(ibv_query_gid_table(c, &entry, 1, 0) < 0);
	NEED(ibv_query_pkey(c, 1, 0, &pkey) == -1);
	NEED(ibv_get_pkey_index(c, 1, 0) == -1);
	NEED(ibv_query_qp(t->end.qp, &attr, IBV_QP_STATE, &init) == ENOTCONN);
	NEED(ibv_query_srq(t->srq, &srq) == ENOTCONN);
	NEED(ibv_query_ece(t->end.qp, &ece) == ENOTCONN);
	NEED(ibv_set_ece(t->end.qp, &ece) == ENOTCONN);
	NEED(ibv_init_ah_from_wc(c, 1, &wc, NULL, &ah) == -1);
	NEED(ibv_resolve_eth_l2_from_gid(c, &ah, mac, &vid) == ENOTCONN);
	NEED(verbsd_query_mr(t->region, &info) == ENOTCONN);
	NEED(verbsd_list_mr(c, &info, 1) == -1);
}

static void inert_creation(struct things *t)
{
	struct ibv_context *c = t->end.ctx;
	struct ibv_pd *pd = t->end.pd;
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = pd };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = { .max_wr = 4, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_PD,
					       .pd = pd };
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 4 };
	struct ibv_qp_init_attr qp = { .send_cq = t->cq, .recv_cq = t->cq, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr_ex qp_ex = { .send_cq = t->cq, .recv_cq = t->cq, .qp_type = IBV_QPT_RC,
					     .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_ah_attr ah = { .dlid = 1, .port_num = 1 };
	struct ibv_wc wc = { 0 };
	const struct verbsd_mr_attr region = { .size = PAGE, .access = ALL_ACCESS };
	void *buffer;
	bool created;

	REFUSED(ibv_alloc_pd(c), ENOTCONN);
	REFUSED(ibv_alloc_td(c, &td), ENOTCONN);
	REFUSED(ibv_alloc_parent_domain(c, &parent), ENOTCONN);
	REFUSED(ibv_create_comp_channel(c), ENOTCONN);
	REFUSED(ibv_create_cq(c, 4, NULL, NULL, 0), ENOTCONN);
	REFUSED(ibv_create_cq_ex(c, &cq_ex), ENOTCONN);
	REFUSED(ibv_create_srq(pd, &srq), ENOTCONN);
	REFUSED(ibv_create_srq_ex(c, &srq_ex), ENOTCONN);
	REFUSED(ibv_create_qp(pd, &qp), ENOTCONN);
	REFUSED(ibv_create_qp_ex(c, &qp_ex), ENOTCONN);
	REFUSED(ibv_create_ah(pd, &ah), ENOTCONN);
	REFUSED(ibv_create_ah_from_wc(pd, &wc, NULL, 1), ENOTCONN);
	REFUSED(ibv_alloc_mw(pd, IBV_MW_TYPE_1), ENOTCONN);
	REFUSED(ibv_reg_mr(pd, &wc, sizeof(wc), 0), ENOTCONN);
	REFUSED(ibv_reg_mr_iova(pd, &wc, sizeof(wc), (uintptr_t)&wc, 0), ENOTCONN);
	REFUSED(ibv_reg_mr_iova2(pd, &wc, sizeof(wc), (uintptr_t)&wc, 0), ENOTCONN);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, 0, 0), ENOTCONN);
	REFUSED(ibv_reg_buf_mr(pd, t->buffer, t->memory, 8, 0), ENOTCONN);
	REFUSED(ibv_alloc_null_mr(pd), ENOTCONN);
	REFUSED(ibv_alloc_buf(pd, PAGE, &buffer), ENOTCONN);
	REFUSED(ibv_import_pd(c, pd->handle), ENOTCONN);
	REFUSED(ibv_import_mr(pd, t->mr->handle), ENOTCONN);
	REFUSED(ibv_import_dm(c, 1), ENOTCONN);
	REFUSED(verbsd_alloc_mr(pd, &region), ENOTCONN);
	REFUSED(verbsd_import_mr(pd, "x", 0), ENOTCONN);
	REFUSED(verbsd_import_mr_fd(pd, 0, 0), ENOTCONN);
	REFUSED(verbsd_attach_mr(pd, "x", &region, 0, &created), ENOTCONN);
}

static void inert_changes(struct things *t)
{
	struct ibv_qp_attr qp = { .qp_state = IBV_QPS_ERR };
	struct ibv_srq_attr srq = { .max_wr = 2 };
	struct ibv_modify_cq_attr cq = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	union ibv_gid gid = { .raw = { 0xff } };

	NEED(ibv_modify_qp(t->end.qp, &qp, IBV_QP_STATE) == ENOTCONN);
	NEED(ibv_modify_srq(t->srq, &srq, IBV_SRQ_MAX_WR) == ENOTCONN);
	NEED(ibv_modify_cq(t->cq, &cq) == ENOTCONN);
	NEED(ibv_resize_cq(t->cq, 8) == ENOTCONN);
	NEED(ibv_rereg_mr(t->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0);
	NEED(ibv_attach_mcast(t->end.qp, &gid, 0) == ENOTCONN);
	NEED(ibv_detach_mcast(t->end.qp, &gid, 0) == ENOTCONN);
	NEED(verbsd_export_mr(t->region, "x", 0) == ENOTCONN);
	NEED(verbsd_export_mr_fd(t->region, 0) == -1);
	NEED(verbsd_persist_mr(t->region, true) == ENOTCONN);
	NEED(verbsd_release_mr(t->end.ctx, "x") == ENOTCONN);
}

static void inert_end(struct things *t)
{
	NEED(ibv_destroy_qp(t->end.qp) == ENOTCONN);
	NEED(ibv_destroy_srq(t->srq) == ENOTCONN);
	NEED(ibv_destroy_cq(t->cq) == ENOTCONN);
	NEED(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq_ex)) == ENOTCONN);
	NEED(ibv_destroy_comp_channel(t->channel) == ENOTCONN);
	NEED(ibv_destroy_ah(t->ah) == ENOTCONN);
	NEED(ibv_dealloc_mw(t->mw) == ENOTCONN);
	NEED(ibv_dereg_mr(t->mr) == ENOTCONN);
	NEED(ibv_dereg_mr(t->region) == ENOTCONN);
	ibv_unimport_mr(t->mr);
	ibv_unimport_pd(t->end.pd);
	NEED(ibv_dealloc_pd(t->parent) == ENOTCONN);
	NEED(ibv_dealloc_td(t->td) == ENOTCONN);
	NEED(ibv_dealloc_pd(t->end.pd) == ENOTCONN);
	NEED(ibv_close_device(t->end.ctx) == -1);
}

static void inert_events(struct things *t)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_CQ_ERR, .element.cq = t->cq };
	struct ibv_cq *cq;
	void *context;

	NEED(ibv_get_cq_event(t->channel, &cq, &context) == -1);
	ibv_ack_cq_events(t->cq, 1);
	NEED(ibv_get_async_event(t->end.ctx, &event) == -1);
	event.event_type = IBV_EVENT_CQ_ERR;
	event.element.cq = t->cq;
	ibv_ack_async_event(&event);
}

static void inert_batch(struct things *t)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(t->end.qp);

	ibv_wr_start(qpx);
	ibv_wr_rdma_write(qpx, t->mr->rkey, (uintptr_t)t->memory);
	ibv_wr_set_sge(qpx, t->mr->lkey, (uintptr_t)t->memory, 8);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data(qpx, t, 1);
	NEED(ibv_wr_complete(qpx) != 0);
	ibv_wr_start(qpx);
	ibv_wr_abort(qpx);
}

static void inert_data(struct things *t)
{
	struct ibv_sge sge = { (uintptr_t)t->memory, 8, t->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	struct ibv_mw_bind bind = { .bind_info = { .mr = t->mr, .addr = (uintptr_t)t->memory, .length = 8 } };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_wc wc;

	NEED(ibv_post_send(t->end.qp, &wr, &bad) != 0 && bad == &wr);
	NEED(ibv_post_recv(t->end.qp, &recv, &bad_recv) != 0 && bad_recv == &recv);
	bad_recv = NULL;
	NEED(ibv_post_srq_recv(t->srq, &recv, &bad_recv) != 0 && bad_recv == &recv);
	NEED(ibv_bind_mw(t->end.qp, t->mw, &bind) != 0);
	NEED(ibv_poll_cq(t->cq, 1, &wc) < 0);
	NEED(ibv_req_notify_cq(t->cq, 0) != 0);
	NEED(ibv_start_poll(t->cq_ex, &poll) != 0);
	NEED(ibv_next_poll(t->cq_ex) != 0);
	ibv_end_poll(t->cq_ex);
	inert_batch(t);
}

void things_inert_control(struct things *t)
{
	inert_queries(t);
	inert_creation(t);
	inert_changes(t);
	inert_events(t);
	inert_end(t);
}

void things_inert(struct things *t)
{
	inert_data(t);
	things_inert_control(t);
	inert_data(t);
}

/* --- processes and pages ------------------------------------------------------------------------------------------- */

bool page_out(const void *at)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	bool inside = false, out = false;
	uintptr_t from, to;
	char line[1024];

	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			inside = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			out = strstr(line, " dc ");
	}
	fclose(file);
	return out;
}

unsigned mappings(const uint8_t *base, size_t size)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t from, to;
	char line[1024];
	unsigned n = 0;

	NEED(file);
	while (fgets(line, sizeof(line), file))
		n += sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 && from < (uintptr_t)base + size &&
		     to > (uintptr_t)base;
	fclose(file);
	return n;
}

void child_limit(void)
{
	alarm(60);
}

void child_ends(pid_t pid)
{
	int status;

	NEED(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "a child ended with status 0x%x\n", (unsigned)status);
	NEED(status == 0);
}

/* --- memory of a case ---------------------------------------------------------------------------------------------- */

struct ibv_pd *case_pd;

struct ibv_mr *reg(void *addr, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(case_pd, addr, length, IBV_ACCESS_LOCAL_WRITE);

	NEED(mr);
	return mr;
}

void dereg(struct ibv_mr *mr)
{
	NEED(ibv_dereg_mr(mr) == 0);
}

uint8_t *pages(unsigned n)
{
	uint8_t *mem = mmap(NULL, (size_t)n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(mem != MAP_FAILED);
	memset(mem, 1, (size_t)n * PAGE);
	return mem;
}

bool readable(const void *at)
{
	return madvise((void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), PAGE, MADV_POPULATE_READ) == 0;
}
