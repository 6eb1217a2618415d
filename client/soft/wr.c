/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting. A WR is copied whole into its queue, SGEs and inline bytes included, so the program's list is free when the
 * call returns. The thread that posts also runs the requester, and tells the peer once per call.
 */
#include <errno.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/in_piece.h"
#include "client/soft/post.h"
#include "client/soft/quick.h"

#define BIT(opcode) (1u << (opcode))
#define MESSAGES    (BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM))
#define WRITES	    (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define LOCALS	    (BIT(IBV_WR_LOCAL_INV) | BIT(IBV_WR_BIND_MW))
#define ATOMICS	    (BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))

static inline uint32_t legal_opcodes(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return MESSAGES | WRITES | LOCALS | ATOMICS | BIT(IBV_WR_RDMA_READ) |
		       BIT(IBV_WR_SEND_WITH_INV) | BIT(IBV_WR_ATOMIC_WRITE);
	case IBV_QPT_UC:
		return MESSAGES | WRITES | LOCALS | BIT(IBV_WR_SEND_WITH_INV);
	case IBV_QPT_UD:
		return MESSAGES;
	default:
		return 0;
	}
}

int post_state(const struct soft_qp *qp)
{
	int state = atomic_load_explicit(&qp->state, memory_order_acquire);

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
	       state == IBV_QPS_ERR ? 0 : EINVAL;
}

IN_PIECE int take_slot(struct soft_qp *qp, uint64_t pos, enum ibv_wr_opcode opcode, struct swqe **slot)
{
	struct requester *req = &qp->priv->req;

	if ((unsigned)opcode > 31 || !(legal_opcodes(qp->init.qp_type) & BIT(opcode)))
		return EINVAL;
	if (pos - req->internals - atomic_load_explicit(&req->freed, memory_order_acquire) >= req->max)
		return ENOMEM;

	struct swqe *w = swqe_at(req, pos);
	uint32_t i = pos & req->mask;

	swqe_begin(w, opcode);
	w->lane_only = qp->xrc; /* whose PD counts is the SRQ's owner's to say */
	w->sge = req->sges + (size_t)i * req->max_sge;
	w->data = req->inlines + i * req->inline_stride;
	*slot = w;
	return 0;
}

int post_slot(struct soft_qp *qp, uint64_t pos, enum ibv_wr_opcode opcode, struct swqe **slot)
{
	return take_slot(qp, pos, opcode, slot);
}

IN_PIECE int take_sges(struct soft_qp *qp, struct swqe *w, const struct ibv_sge *sge, size_t n)
{
	uint64_t length = 0;

	if (n > qp->priv->req.max_sge || w->flags & IBV_SEND_INLINE)
		return EINVAL;
	for (size_t i = 0; i < n; i++)
		length += sge[i].length;
	if (length > QP_MESSAGE_MAX)
		return EINVAL;
	w->n_sge = n;
	w->length = length;
	copy_sges(w->sge, sge, n);
	return 0;
}

int post_sges(struct soft_qp *qp, struct swqe *w, const struct ibv_sge *sge, size_t n)
{
	return take_sges(qp, w, sge, n);
}

int post_inline(struct soft_qp *qp, struct swqe *w, const void *data, size_t n)
{
	if (w->opcode == IBV_WR_ATOMIC_WRITE || n > qp->priv->req.max_inline - w->length)
		return EINVAL;
	if (n)
		memcpy(w->data + w->length, data, n);
	w->length += n;
	w->flags |= IBV_SEND_INLINE;
	return 0;
}

void post_word(struct swqe *w, const void *data)
{
	memcpy(&w->swap, data, 8);
	w->length = 8;
	w->flags |= IBV_SEND_INLINE;
}

int post_address(struct swqe *w, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	if (!ah)
		return EINVAL;
	w->ud.ah = soft_ah_of(ah)->attr;
	w->ud.qpn = qpn;
	w->ud.qkey = qkey;
	return 0;
}

IN_PIECE int check(const struct soft_qp *qp, struct swqe *w)
{
	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		if (w->length < 8)
			return EINVAL;
		w->length = 8;
	}
	if (w->opcode == IBV_WR_ATOMIC_WRITE && w->length != 8)
		return EINVAL;
	if (swqe_has_response(w) && (w->flags & IBV_SEND_INLINE))
		return EINVAL;
	if (w->opcode == IBV_WR_BIND_MW && w->bind.context != qp->v.qp.context)
		return EINVAL;
	return 0;
}

int post_check(const struct soft_qp *qp, struct swqe *w)
{
	return check(qp, w);
}

IN_PIECE int take_payload(struct soft_qp *qp, struct swqe *w, const struct ibv_send_wr *wr)
{
	int err = 0;

	if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW)
		return 0;
	if (wr->num_sge < 0)
		return EINVAL;
	if (!(wr->send_flags & IBV_SEND_INLINE) || wr->opcode == IBV_WR_RDMA_READ ||
		(BIT(wr->opcode) & ATOMICS))
		return take_sges(qp, w, wr->sg_list, wr->num_sge);
	if (wr->opcode == IBV_WR_ATOMIC_WRITE) {
		if (wr->num_sge != 1 || wr->sg_list[0].length != 8)
			return EINVAL;
		post_word(w, (const void *)(uintptr_t)wr->sg_list[0].addr);
		return 0;
	}
	w->flags |= IBV_SEND_INLINE;
	for (int i = 0; i < wr->num_sge && !err; i++)
		err = post_inline(qp, w, (const void *)(uintptr_t)wr->sg_list[i].addr,
			wr->sg_list[i].length);
	return err;
}

IN_PIECE int take_target(struct soft_qp *qp, struct swqe *w, const struct ibv_send_wr *wr)
{
	w->imm = wr->imm_data; /* or invalidate_rkey */
	if (qp->init.qp_type == IBV_QPT_UD)
		return post_address(w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	if (BIT(wr->opcode) & ATOMICS) {
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		w->rkey = wr->bind_mw.rkey;
		w->bind = mw_bind_of(wr->bind_mw.mw, &wr->bind_mw.bind_info);
	} else {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	if (qp->xrc && wr->opcode != IBV_WR_BIND_MW)
		w->srqn = wr->qp_type.xrc.remote_srqn;
	return 0;
}

IN_PIECE int enqueue(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct requester *req = &qp->priv->req;
	struct swqe *w = NULL;
	int err = take_slot(qp, req->head, wr->opcode, &w);

	if (err)
		return err;
	w->wr_id = wr->wr_id;
	err = take_payload(qp, w, wr);
	if (!err)
		err = take_target(qp, w, wr);
	w->flags |= wr->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	if (!err)
		err = check(qp, w);
	if (!err)
		req->head++;
	return err;
}

int soft_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct soft_qp *qp = soft_qp_of(ibqp);
	struct soft_td *td;
	unsigned n = 0, ran;
	int err;

	if (rt_foreign(qp->ctx)) {
		*bad = wr;
		return EIO;
	}
	td = soft_enter(&qp->sq_lock);
	if (quick_post(qp, wr)) {
		qp_count(qp, VSD_COUNT_POSTS, 1);
		soft_leave(&qp->sq_lock, td);
		return 0;
	}
	ran = quick_list(qp, &wr);
	err = ran ? 0 : post_state(qp);
	for (; wr && !err; wr = wr->next) {
		err = enqueue(qp, wr);
		if (err)
			break;
		n++;
	}
	if (err)
		*bad = wr;
	if (n || (ran && qp->priv->failure != QP_FINE))
		qp_posted(qp);
	n += ran;
	qp_count(qp, VSD_COUNT_POSTS, n);
	soft_leave(&qp->sq_lock, td);
	return err;
}

static int enqueue_recv(struct soft_qp *qp, const struct ibv_recv_wr *wr)
{
	struct receive_queue *rq = &qp->priv->resp.rq;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->head - rq->tail >= rq->max)
		return ENOMEM;

	uint32_t i = rq->head & rq->mask;
	struct soft_rwqe *wqe = &rq->ring[i];

	wqe->wr_id = wr->wr_id;
	wqe->n_sge = wr->num_sge;
	wqe->sge = rq->sges + (size_t)i * rq->max_sge;
	copy_sges(wqe->sge, wr->sg_list, wqe->n_sge);
	rq->head++;
	return 0;
}

int soft_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_qp *qp = soft_qp_of(ibqp);
	struct soft_td *td;
	unsigned n = 0;
	int err = 0;

	if (rt_foreign(qp->ctx)) {
		*bad = wr;
		return EIO;
	}
	td = soft_enter(&qp->rq_lock);
	if (qp->srq || qp_state(qp) == IBV_QPS_RESET)
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = enqueue_recv(qp, wr);
		if (err)
			break;
		n++;
	}
	if (err)
		*bad = wr;
	if (n && qp_state(qp) == IBV_QPS_ERR && !qp->priv->flushing)
		rq_flush(qp);
	else if (n)
		responder_hint(qp);
	qp_count(qp, VSD_COUNT_RECVS, n);
	soft_leave(&qp->rq_lock, td);
	return err;
}

/* Windows of type 1: a bind is a WR with a new key, which the window has from the post on. */
int soft_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	};
	struct ibv_send_wr *bad;
	int err;

	if (mw->type != IBV_MW_TYPE_1)
		return EINVAL;
	err = soft_post_send(ibqp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}
