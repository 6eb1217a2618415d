/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls, one row each.
 */
#include "steps.h"

#include <stdlib.h>

#define SIZE 8192

/* --- contexts and domains ------------------------------------------------------------------------------------------------ */

static void *context_make(struct ground *g)
{
	return ibv_open_device(g->list[0]);
}

static void context_use(struct ground *g, void *made)
{
	struct ibv_device_attr attr;

	(void)g;
	RETURNS(ibv_query_device(made, &attr), 0);
}

static int context_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_close_device(made);
}

static void *pd_make(struct ground *g)
{
	return ibv_alloc_pd(g->ctx);
}

static void pd_use(struct ground *g, void *made)
{
	struct ibv_mr *mr = ibv_reg_mr(made, g->memory, SIZE, KIT_ACCESS);

	NEED(mr);
	RETURNS(ibv_dereg_mr(mr), 0);
}

static int pd_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_dealloc_pd(made);
}

static void *td_make(struct ground *g)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };

	return ibv_alloc_td(g->ctx, &attr);
}

static int td_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_dealloc_td(made);
}

static void *parent_make(struct ground *g)
{
	struct ibv_parent_domain_init_attr attr = { .pd = g->pd, .td = g->td };

	return ibv_alloc_parent_domain(g->ctx, &attr);
}

/* --- queues ---------------------------------------------------------------------------------------------------------------- */

static void *channel_make(struct ground *g)
{
	return ibv_create_comp_channel(g->ctx);
}

static int channel_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_destroy_comp_channel(made);
}

static void *cq_make(struct ground *g)
{
	return ibv_create_cq(g->ctx, 16, NULL, g->channel, 0);
}

static void cq_use(struct ground *g, void *made)
{
	struct ibv_wc wc;

	(void)g;
	NEED(ibv_poll_cq(made, 1, &wc) == 0);
	RETURNS(ibv_req_notify_cq(made, 0), 0);
}

static int cq_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_destroy_cq(made);
}

static void *cq_ex_make(struct ground *g)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		.parent_domain = g->parent,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(g->ctx, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void *srq_make(struct ground *g)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 2 } };

	return ibv_create_srq(g->parent, &attr);
}

static void *srq_ex_make(struct ground *g)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
		.pd = g->parent,
	};

	return ibv_create_srq_ex(g->ctx, &attr);
}

static int srq_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_destroy_srq(made);
}

static void *qp_of(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = kit_qp_init(cq, srq, type);

	return ibv_create_qp(pd, &init);
}

static void *qp_make(struct ground *g)
{
	return qp_of(g->parent, g->cq, NULL, IBV_QPT_RC);
}

static void *qp_srq_make(struct ground *g)
{
	return qp_of(g->pd, g->cq, g->srq, IBV_QPT_RC);
}

static void *qp_uc_make(struct ground *g)
{
	return qp_of(g->pd, g->cq, NULL, IBV_QPT_UC);
}

static void *qp_ud_make(struct ground *g)
{
	return qp_of(g->pd, g->cq, NULL, IBV_QPT_UD);
}

static void *qp_ex_make(struct ground *g)
{
	struct ibv_qp_init_attr init = kit_qp_init(g->cq, NULL, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = g->cq,
		.recv_cq = g->cq,
		.cap = init.cap,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = g->parent,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	return ibv_create_qp_ex(g->ctx, &ex);
}

static void qp_use(struct ground *g, void *made)
{
	kit_connect(made, made);
	NEED(kit_run(made, IBV_WR_RDMA_WRITE, g->mr, g->memory, 100, (uintptr_t)g->memory + 4096, g->mr->rkey) ==
		IBV_WC_SUCCESS);
}

static int qp_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_destroy_qp(made);
}

/* --- addresses and memory ----------------------------------------------------------------------------------------------- */

static void *ah_make(struct ground *g)
{
	struct ibv_ah_attr attr = { .dlid = 1, .port_num = 1 };

	return ibv_create_ah(g->parent, &attr);
}

static void *ah_wc_make(struct ground *g)
{
	struct ibv_wc wc = { .slid = 1 };

	return ibv_create_ah_from_wc(g->parent, &wc, NULL, 1);
}

static int ah_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_destroy_ah(made);
}

static void *mw1_make(struct ground *g)
{
	return ibv_alloc_mw(g->parent, IBV_MW_TYPE_1);
}

static void *mw2_make(struct ground *g)
{
	return ibv_alloc_mw(g->parent, IBV_MW_TYPE_2);
}

static void mw2_use(struct ground *g, void *made)
{
	kit_connect(g->qp, g->peer);
	NEED(kit_bind(g->qp, made, g->mr) == IBV_WC_SUCCESS);
}

static int mw_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_dealloc_mw(made);
}

static void *mr_make(struct ground *g)
{
	return ibv_reg_mr(g->parent, g->memory, SIZE, KIT_ACCESS);
}

static void *mr_iova_make(struct ground *g)
{
	return ibv_reg_mr_iova(g->pd, g->memory, SIZE, 0x10000, KIT_ACCESS);
}

static void *mr_null_make(struct ground *g)
{
	return ibv_alloc_null_mr(g->pd);
}

static void mr_use(struct ground *g, void *made)
{
	struct ibv_mr *mr = made;

	kit_connect(g->qp, g->peer);
	NEED(kit_run(g->qp, IBV_WR_RDMA_WRITE, mr, g->memory, 100, (uintptr_t)g->memory + 4096, g->mr->rkey) ==
		IBV_WC_SUCCESS);
}

static int mr_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_dereg_mr(made);
}

/* --- all of it, undone by the program when a part fails ----------------------------------------------------------------- */

struct setup {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static int setup_unmake(struct ground *g, void *made)
{
	struct setup *s = made;

	(void)g;
	if (s->qp)
		RETURNS(ibv_destroy_qp(s->qp), 0);
	if (s->cq)
		RETURNS(ibv_destroy_cq(s->cq), 0);
	if (s->mr)
		RETURNS(ibv_dereg_mr(s->mr), 0);
	if (s->pd)
		RETURNS(ibv_dealloc_pd(s->pd), 0);
	if (s->ctx)
		RETURNS(ibv_close_device(s->ctx), 0);
	free(s);
	return 0;
}

static bool setup_all(struct ground *g, struct setup *s)
{
	static uint8_t memory[SIZE];

	return (s->ctx = ibv_open_device(g->list[0])) && (s->pd = ibv_alloc_pd(s->ctx)) &&
	       (s->mr = ibv_reg_mr(s->pd, memory, SIZE, KIT_ACCESS)) &&
	       (s->cq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0)) &&
	       (s->qp = qp_of(s->pd, s->cq, NULL, IBV_QPT_RC));
}

/* The first region and QP of a context need numbers, which are leased. */
static void *setup_make(struct ground *g)
{
	struct setup *s = calloc(1, sizeof(*s));
	int error;

	NEED(s);
	if (setup_all(g, s))
		return s;
	error = errno;
	setup_unmake(g, s);
	errno = error;
	return NULL;
}

static void setup_use(struct ground *g, void *made)
{
	struct setup *s = made;

	(void)g;
	kit_connect(s->qp, s->qp);
	NEED(kit_run(s->qp, IBV_WR_RDMA_WRITE, s->mr, s->mr->addr, 100, (uintptr_t)s->mr->addr + 4096, s->mr->rkey) ==
		IBV_WC_SUCCESS);
}

const struct path paths_objects[] = {
	{ "alloc_pd", pd_make, pd_use, pd_unmake, false, 1 },
	{ "alloc_td", td_make, NULL, td_unmake, false, 1 },
	{ "alloc_parent_domain", parent_make, pd_use, pd_unmake, false, 1 },
	{ "create_comp_channel", channel_make, NULL, channel_unmake, false, 0 },
	{ "create_cq", cq_make, cq_use, cq_unmake, false, 1 },
	{ "create_cq_ex", cq_ex_make, cq_use, cq_unmake, false, 1 },
	{ "create_srq", srq_make, NULL, srq_unmake, false, 1 },
	{ "create_srq_ex", srq_ex_make, NULL, srq_unmake, false, 1 },
	{ "create_qp", qp_make, qp_use, qp_unmake, false, 1 },
	{ "create_qp with an SRQ", qp_srq_make, qp_use, qp_unmake, false, 1 },
	{ "create_qp of UC", qp_uc_make, NULL, qp_unmake, false, 1 },
	{ "create_qp of UD", qp_ud_make, NULL, qp_unmake, false, 1 },
	{ "create_qp_ex", qp_ex_make, qp_use, qp_unmake, false, 1 },
	{ "create_ah", ah_make, NULL, ah_unmake, false, 1 },
	{ "create_ah_from_wc", ah_wc_make, NULL, ah_unmake, false, 1 },
	{ "alloc_mw of type 1", mw1_make, NULL, mw_unmake, false, 1 },
	{ "alloc_mw of type 2", mw2_make, mw2_use, mw_unmake, false, 1 },
	/* These need no call, where there is a place for them (steps.sh) */
	{ "reg_mr", mr_make, mr_use, mr_unmake, false, 0 },
	{ "reg_mr_iova", mr_iova_make, NULL, mr_unmake, false, 0 },
	{ "alloc_null_mr", mr_null_make, NULL, mr_unmake, false, 1 },
	{ "a whole set-up", setup_make, setup_use, setup_unmake, true, 8 },
	{ "open_device", context_make, context_use, context_unmake, true, 2 },
	{ NULL, NULL, NULL, NULL, false, 0 },
};

/* --- changes: what they change is made for them, and must be whole when they fail ----------------------------------------- */

static void *on_error(int r, void *made)
{
	if (r == 0)
		return made;
	errno = r;
	return NULL;
}

static void *resize_make(struct ground *g)
{
	return on_error(ibv_resize_cq(g->cq, g->cq->cqe == 64 ? 200 : 64), g->cq);
}

static void *shrink_srq_make(struct ground *g)
{
	struct ibv_srq_attr attr = { .max_wr = 16 + ++g->step % 50 };

	return on_error(ibv_modify_srq(g->srq, &attr, IBV_SRQ_MAX_WR), g->srq);
}

static void ground_use(struct ground *g, void *made)
{
	(void)made;
	kit_connect(g->qp, g->peer);
	kit_message(g->qp, g->peer, g->mr, g->memory, g->memory + 4096, 100);
}

int nothing_to_undo(struct ground *g, void *made)
{
	(void)g, (void)made;
	return 0;
}

static void *connect_make(struct ground *g)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int r = ibv_modify_qp(g->qp, &attr, IBV_QP_STATE);

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	if (r == 0)
		r = ibv_modify_qp(g->qp, &attr,
			IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	return on_error(r, g->qp);
}

const struct path paths_changes[] = {
	{ "resize_cq", resize_make, ground_use, nothing_to_undo, false, 1 },
	{ "modify_srq", shrink_srq_make, ground_use, nothing_to_undo, false, 0 },
	{ "modify_qp", connect_make, ground_use, nothing_to_undo, false, 2 },
	{ NULL, NULL, NULL, NULL, false, 0 },
};
