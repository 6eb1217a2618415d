/* SPDX-License-Identifier: BSD-2-Clause */
#include "duo.h"

#include <fcntl.h>

static struct ibv_qp *qp_new(struct duo *d, enum side side, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = kit_qp_init(d->cq[side], side == B ? d->srq : NULL, type);
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);

	NEED(qp);
	return qp;
}

void duo_open(struct duo *d, enum ibv_qp_type type, bool srq)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };

	memset(d, 0, sizeof(*d));
	d->ctx = kit_open();
	d->pd = ibv_alloc_pd(d->ctx);
	NEED(d->pd);
	d->cq[A] = kit_cq(d->ctx, 64);
	d->cq[B] = kit_cq(d->ctx, 64);
	d->srq = srq ? ibv_create_srq(d->pd, &srq_init) : NULL;
	NEED(!srq || d->srq);
	d->qp[A] = qp_new(d, A, type);
	d->qp[B] = qp_new(d, B, type);
	d->here = kit_address(d->ctx);

	struct ibv_ah_attr av = { .dlid = d->here.lid, .port_num = 1 };

	d->ah = ibv_create_ah(d->pd, &av);
	d->mr = ibv_reg_mr(d->pd, d->memory, sizeof(d->memory), KIT_ACCESS);
	NEED(d->ah && d->mr);
}

void duo_close(struct duo *d)
{
	for (unsigned side = A; side <= B; side++)
		NEED(!d->qp[side] || ibv_destroy_qp(d->qp[side]) == 0);
	NEED(!d->srq || ibv_destroy_srq(d->srq) == 0);
	NEED(ibv_destroy_ah(d->ah) == 0 && ibv_dereg_mr(d->mr) == 0);
	NEED(ibv_destroy_cq(d->cq[A]) == 0 && ibv_destroy_cq(d->cq[B]) == 0);
	NEED(ibv_dealloc_pd(d->pd) == 0 && ibv_close_device(d->ctx) == 0);
}

struct ibv_qp_attr duo_attr(const struct duo *d, enum side side)
{
	return (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_1024,
		.qkey = KIT_QKEY,
		.rq_psn = side == A ? 0xb : 0xa,
		.sq_psn = side == A ? 0xa : 0xb,
		.dest_qp_num = d->qp[!side]->qp_num,
		.qp_access_flags = KIT_ACCESS & ~IBV_ACCESS_MW_BIND,
		.ah_attr = { .dlid = d->here.lid, .port_num = 1, .is_global = 1, .grh.dgid = d->here.gid },
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.port_num = 1,
		.timeout = 1,
		.retry_cnt = 1,
		.rnr_retry = 7,
	};
}

void duo_up(struct duo *d, enum side side, const struct ibv_qp_attr *from, enum ibv_qp_state state)
{
	struct ibv_qp *qp = d->qp[side];
	struct ibv_qp_attr attr = *from;
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	init |= ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (!ud)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (rc) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	attr.qp_state = IBV_QPS_RESET;
	RETURNS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_INIT;
	RETURNS(ibv_modify_qp(qp, &attr, init), 0);
	attr.qp_state = IBV_QPS_RTR;
	RETURNS(ibv_modify_qp(qp, &attr, rtr), 0);
	attr.qp_state = IBV_QPS_RTS;
	if (state == IBV_QPS_RTS)
		RETURNS(ibv_modify_qp(qp, &attr, rts), 0);
}

void duo_connect(struct duo *d)
{
	for (unsigned side = A; side <= B; side++) {
		struct ibv_qp_attr attr = duo_attr(d, side);

		duo_up(d, side, &attr, IBV_QPS_RTS);
	}
}

struct ibv_send_wr duo_wr(struct duo *d, uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint32_t length)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
	uint64_t there = (uintptr_t)d->memory + DUO_HALF;

	*sge = (struct ibv_sge){ (uintptr_t)d->memory, length, d->mr->lkey };
	if (d->qp[A]->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = d->ah;
		wr.wr.ud.remote_qpn = d->qp[B]->qp_num;
		wr.wr.ud.remote_qkey = KIT_QKEY;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = there;
		wr.wr.atomic.rkey = d->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = there;
		wr.wr.rdma.rkey = d->mr->rkey;
	}
	return wr;
}

int duo_post(struct duo *d, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int r = ibv_post_send(d->qp[A], wr, &bad);

	NEED(r == 0 || bad);
	return r;
}

void duo_recv(struct duo *d, uint64_t wr_id, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)d->memory + DUO_HALF, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	RETURNS(d->srq ? ibv_post_srq_recv(d->srq, &wr, &bad) : ibv_post_recv(d->qp[B], &wr, &bad), 0);
}

struct ibv_wc duo_expect(struct duo *d, enum side side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = kit_wait(d->cq[side]);

	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "%s has WR %llu: %s, not WR %llu: %s\n", side == A ? "A" : "B", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
	NEED(wc.wr_id == wr_id && wc.status == status && wc.qp_num == d->qp[side]->qp_num);
	NEED((wc.status == IBV_WC_SUCCESS) == (wc.vendor_err == 0));
	return wc;
}

void duo_nothing(struct duo *d, enum side side)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < 100; i++)
		NEED(ibv_poll_cq(d->cq[side], 1, &wc) == 0);
}

enum ibv_qp_state duo_state(const struct duo *d, enum side side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(ibv_query_qp(d->qp[side], &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

void duo_state_comes(const struct duo *d, enum side side, enum ibv_qp_state state)
{
	struct ibv_wc wc;

	while (duo_state(d, side) != state)
		NEED(ibv_poll_cq(d->cq[side], 0, &wc) == 0);
}

void duo_event(struct duo *d, enum ibv_event_type type, const void *object)
{
	struct ibv_async_event event;

	NEED(ibv_get_async_event(d->ctx, &event) == 0);
	if (event.event_type != type)
		fprintf(stderr, "event %s, not %s\n", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	NEED(event.event_type == type && (const void *)event.element.qp == object);
	ibv_ack_async_event(&event);
}

bool duo_no_event(struct duo *d)
{
	struct ibv_async_event event;
	int flags = fcntl(d->ctx->async_fd, F_GETFL);

	NEED(fcntl(d->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);

	int r = ibv_get_async_event(d->ctx, &event);

	NEED(fcntl(d->ctx->async_fd, F_SETFL, flags) == 0);
	if (r == 0)
		fprintf(stderr, "event %s\n", ibv_event_type_str(event.event_type));
	return r == -1 && errno == EAGAIN;
}
