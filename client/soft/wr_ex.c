/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ibv_wr_* functions. WRs are built in their places in the ring behind its head, which moves only when all of the
 * batch is good. The first error of a batch is kept and returned by ibv_wr_complete(). The SQ is locked from
 * ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort(); one of a thread domain's is entered by the last call alone:
 * nobody else looks behind its head, and the program may take its time in between.
 */
#include <errno.h>

#include "client/soft/post.h"

static struct soft_qp *of(struct ibv_qp_ex *qpx)
{
	return soft_container(qpx, struct soft_qp, v.qp_ex);
}

static void note(struct requester *req, int err)
{
	if (err && !req->ex_error)
		req->ex_error = err;
}

/* What the WR before is still to be checked for. */
static void close_wr(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	if (req->ex)
		note(req, post_check(qp, req->ex));
	req->ex = NULL;
}

static void wr_start(struct ibv_qp_ex *qpx)
{
	struct soft_qp *qp = of(qpx);
	struct requester *req = &qp->priv->req;

	req->ex_locked = !rt_foreign(qp->ctx) && !qp_td(qp); /* a lock of the parent's may be held for ever in a child */
	if (req->ex_locked)
		soft_mutex_lock(&qp->sq_lock.mutex);
	req->ex_start = req->ex_head = req->head;
	req->ex = NULL;
	req->ex_error = rt_foreign(qp->ctx) ? EIO : post_state(qp);
}

static int wr_complete(struct ibv_qp_ex *qpx)
{
	struct soft_qp *qp = of(qpx);
	struct requester *req = &qp->priv->req;
	struct soft_td *td = NULL;
	uint64_t n = 0;
	int err;

	if (rt_foreign(qp->ctx))
		return EIO;
	if (!req->ex_error)
		close_wr(qp);
	if (!req->ex_locked)
		td = soft_enter(&qp->sq_lock);
	if (req->head != req->ex_start)
		note(req, EINVAL); /* reset since */
	err = req->ex_error;
	req->ex = NULL;
	if (!err) {
		n = req->ex_head - req->head;
		req->head = req->ex_head;
		if (n)
			qp_posted(qp);
	}
	qp_count(qp, VSD_COUNT_POSTS, n);
	soft_leave(&qp->sq_lock, td);
	return err;
}

static void wr_abort(struct ibv_qp_ex *qpx)
{
	struct soft_qp *qp = of(qpx);

	qp->priv->req.ex = NULL;
	if (qp->priv->req.ex_locked && !rt_foreign(qp->ctx))
		soft_mutex_unlock(&qp->sq_lock.mutex);
}

/* The next WR of the batch, or NULL after an error. */
static struct swqe *begin(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode)
{
	struct soft_qp *qp = of(qpx);
	struct requester *req = &qp->priv->req;
	struct swqe *w = NULL;

	if (rt_foreign(qp->ctx)) /* forked inside a batch: the ring may be shared memory of the program's */
		note(req, EIO);
	if (!req->ex_error)
		close_wr(qp);
	if (!req->ex_error)
		note(req, post_slot(qp, req->ex_head, opcode, &w));
	if (req->ex_error)
		return NULL;
	w->wr_id = qpx->wr_id;
	w->flags = qpx->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	req->ex_head++;
	req->ex = w;
	return w;
}

/* The WR that is being built, or NULL after an error and in a child. */
static struct swqe *built(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	return req->ex_error || rt_foreign(qp->ctx) ? NULL : req->ex;
}

static void wr_send(struct ibv_qp_ex *qpx)
{
	begin(qpx, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qpx, __be32 imm)
{
	struct swqe *w = begin(qpx, IBV_WR_SEND_WITH_IMM);

	if (w)
		w->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *qpx, uint32_t rkey)
{
	struct swqe *w = begin(qpx, IBV_WR_SEND_WITH_INV);

	if (w)
		w->imm = rkey;
}

static struct swqe *begin_remote(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode, uint32_t rkey,
	uint64_t raddr)
{
	struct swqe *w = begin(qpx, opcode);

	if (w) {
		w->rkey = rkey;
		w->raddr = raddr;
	}
	return w;
}

static void wr_rdma_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr)
{
	begin_remote(qpx, IBV_WR_RDMA_WRITE, rkey, raddr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr, __be32 imm)
{
	struct swqe *w = begin_remote(qpx, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, raddr);

	if (w)
		w->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr)
{
	begin_remote(qpx, IBV_WR_RDMA_READ, rkey, raddr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr, uint64_t compare,
	uint64_t swap)
{
	struct swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, raddr);

	if (w) {
		w->compare_add = compare;
		w->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr, uint64_t add)
{
	struct swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, raddr);

	if (w)
		w->compare_add = add;
}

static void wr_atomic_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr, const void *data)
{
	struct swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_WRITE, rkey, raddr);

	if (w)
		post_word(w, data);
}

static void wr_local_inv(struct ibv_qp_ex *qpx, uint32_t rkey)
{
	struct swqe *w = begin(qpx, IBV_WR_LOCAL_INV);

	if (w)
		w->imm = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qpx, struct ibv_mw *mw, uint32_t rkey,
	const struct ibv_mw_bind_info *info)
{
	struct swqe *w = begin(qpx, IBV_WR_BIND_MW);

	if (w) {
		w->rkey = rkey;
		w->bind = mw_bind_of(mw, info);
	}
}

static void wr_set_ud_addr(struct ibv_qp_ex *qpx, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct soft_qp *qp = of(qpx);
	struct swqe *w = built(qp);

	if (w)
		note(&qp->priv->req, post_address(w, ah, qpn, qkey));
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qpx, uint32_t srqn)
{
	struct soft_qp *qp = of(qpx);
	struct swqe *w = built(qp);

	if (qp->init.qp_type != IBV_QPT_XRC_SEND)
		note(&qp->priv->req, EINVAL);
	else if (w)
		w->srqn = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *qpx, size_t n, const struct ibv_sge *list)
{
	struct soft_qp *qp = of(qpx);
	struct swqe *w = built(qp);

	if (w)
		note(&qp->priv->req, post_sges(qp, w, list, n));
}

static void wr_set_sge(struct ibv_qp_ex *qpx, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(qpx, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qpx, size_t n, const struct ibv_data_buf *list)
{
	struct soft_qp *qp = of(qpx);
	struct swqe *w = built(qp);

	if (!w)
		return;
	w->flags |= IBV_SEND_INLINE;
	for (size_t i = 0; i < n; i++)
		note(&qp->priv->req, post_inline(qp, w, list[i].addr, list[i].length));
}

static void wr_set_inline_data(struct ibv_qp_ex *qpx, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(qpx, 1, &buf);
}

#define RC_OPS                                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                       \
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |       \
		IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV | \
		IBV_QP_EX_WITH_ATOMIC_WRITE)
#define UC_OPS                                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |                       \
		IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)
#define UD_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

static uint64_t possible_ops(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return RC_OPS;
	case IBV_QPT_UC:
		return UC_OPS;
	case IBV_QPT_UD:
		return UD_OPS;
	default:
		return 0;
	}
}

/* All slots are filled: a WR that the QP was not created for is an error of its batch, not a jump to nowhere. */
int soft_qp_fill_ex(struct soft_qp *qp, uint64_t send_ops_flags)
{
	struct ibv_qp_ex *qpx = &qp->v.qp_ex;

	if (send_ops_flags & ~possible_ops(qp->init.qp_type))
		return -EOPNOTSUPP;
	qpx->wr_start = wr_start;
	qpx->wr_complete = wr_complete;
	qpx->wr_abort = wr_abort;
	qpx->wr_send = wr_send;
	qpx->wr_send_imm = wr_send_imm;
	qpx->wr_send_inv = wr_send_inv;
	qpx->wr_rdma_write = wr_rdma_write;
	qpx->wr_rdma_write_imm = wr_rdma_write_imm;
	qpx->wr_rdma_read = wr_rdma_read;
	qpx->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qpx->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qpx->wr_atomic_write = wr_atomic_write;
	qpx->wr_local_inv = wr_local_inv;
	qpx->wr_bind_mw = wr_bind_mw;
	qpx->wr_set_ud_addr = wr_set_ud_addr;
	qpx->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qpx->wr_set_sge = wr_set_sge;
	qpx->wr_set_sge_list = wr_set_sge_list;
	qpx->wr_set_inline_data = wr_set_inline_data;
	qpx->wr_set_inline_data_list = wr_set_inline_data_list;
	return 0;
}
