/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * F5 of the field reports, for XRC: an SRQ that was made for one thread, under a parent domain, goes in every legal order with
 * what it stands on and what uses it.
 */
#include "parents.h"

#include <fcntl.h>
#include <stdlib.h>

enum thing { TD, PD, PARENT, XRCD, CQ, SRQ, RECV_QP, SEND_QP, THINGS };

struct xrc {
	struct ibv_td *td;
	struct ibv_pd *pd, *parent;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *recv, *send;
	bool gone[THINGS];
};

static void srq_make(struct xrc *x, struct ibv_context *ctx)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = x->parent,
		.xrcd = x->xrcd,
		.cq = x->cq,
	};

	NEED(x->srq = ibv_create_srq_ex(ctx, &attr));
}

static void qps_make(struct xrc *x, struct ibv_context *ctx)
{
	struct ibv_qp_init_attr_ex recv = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = x->xrcd,
	};
	struct ibv_qp_init_attr_ex send = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = x->cq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = x->parent,
	};

	NEED(x->recv = ibv_create_qp_ex(ctx, &recv));
	NEED(x->send = ibv_create_qp_ex(ctx, &send));
}

static void xrc_make(struct xrc *x, struct ibv_context *ctx)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 16,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};

	*x = (struct xrc){ .td = td_make(ctx) };
	NEED(x->pd = ibv_alloc_pd(ctx));
	NEED(x->parent = cq.parent_domain = parent_make(x->pd, x->td, NULL));
	NEED(x->xrcd = ibv_open_xrcd(ctx, &xrcd));
	NEED(x->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &cq)));
	srq_make(x, ctx);
	qps_make(x, ctx);
}

static int destroy(const struct xrc *x, enum thing thing)
{
	switch (thing) {
	case TD:
		return ibv_dealloc_td(x->td);
	case PD:
		return ibv_dealloc_pd(x->pd);
	case PARENT:
		return ibv_dealloc_pd(x->parent);
	case XRCD:
		return ibv_close_xrcd(x->xrcd);
	case CQ:
		return ibv_destroy_cq(x->cq);
	case SRQ:
		return ibv_destroy_srq(x->srq);
	case RECV_QP:
		return ibv_destroy_qp(x->recv);
	case SEND_QP:
		return ibv_destroy_qp(x->send);
	case THINGS:
		break;
	}
	return EINVAL;
}

static bool busy(const struct xrc *x, enum thing thing)
{
	switch (thing) {
	case TD:
	case PD:
		return !x->gone[PARENT];
	case PARENT:
		return !x->gone[CQ] || !x->gone[SRQ] || !x->gone[SEND_QP];
	case XRCD:
		return !x->gone[SRQ] || !x->gone[RECV_QP];
	case CQ:
		return !x->gone[SRQ] || !x->gone[SEND_QP];
	default:
		return false;
	}
}

void test_xrc_orders(int argc, char **argv)
{
	unsigned rounds = argc > 0 ? (unsigned)atoi(argv[0]) : 300, seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	struct ibv_context *ctx = kit_open();
	struct xrc x;

	for (unsigned i = 0; i < rounds; i++) {
		xrc_make(&x, ctx);
		for (unsigned left = THINGS; left;) {
			enum thing thing = (enum thing)(rand_r(&seed) % THINGS);

			if (x.gone[thing])
				continue;
			if (busy(&x, thing)) {
				RETURNS(destroy(&x, thing), EBUSY);
				continue;
			}
			RETURNS(destroy(&x, thing), 0);
			x.gone[thing] = true;
			left--;
		}
	}
	RETURNS(ibv_close_device(ctx), 0);
}
