/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues. Receives are matched by the responders of this process's QPs under the SRQ's lock, oldest
 * first. The limit event is raised once per arming, when fewer receives than the limit are left.
 */
#include "client/soft/srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/qp_private.h"

static uint32_t round_up(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size <<= 1;
	return size;
}

static size_t ring_bytes(uint32_t size, uint32_t n_sge)
{
	return size * (sizeof(struct soft_rwqe) + n_sge * sizeof(struct ibv_sge));
}

int soft_srq_init(struct soft_srq *srq, uint32_t max_wr, uint32_t max_sge, bool single_threaded)
{
	uint32_t size = round_up(max_wr ? max_wr : 1);
	uint32_t n_sge = max_sge ? max_sge : 1;

	srq->ring = buf_alloc(srq->pd, ring_bytes(size, n_sge), BUF_SRQ);
	if (!srq->ring)
		return -ENOMEM;
	srq->sges = (struct ibv_sge *)(void *)(srq->ring + size);
	srq->size = size;
	srq->max_wr = max_wr;
	srq->max_sge = n_sge;
	srq->head = srq->tail = 0;
	srq->limit = 0;
	srq->limit_armed = false;
	srq->starving = NULL;
	soft_lock_init(&srq->lock, single_threaded ? srq->pd->td : NULL);
	return 0;
}

void soft_srq_deinit(struct soft_srq *srq)
{
	buf_free(srq->pd, srq->ring, BUF_SRQ);
	srq->ring = NULL;
}

static void limit_check(struct soft_srq *srq)
{
	if (!srq->limit_armed || srq->head - srq->tail >= srq->limit)
		return;
	srq->limit_armed = false;
	soft_async_raise(&srq->ctx->async, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->srq, 0);
}

/* Moves the receives that are posted to *@ring, of another size, and leaves the old one there. Lock held. */
static int srq_move(struct soft_srq *srq, uint32_t max_wr, struct soft_rwqe **ring)
{
	uint32_t size = round_up(max_wr), used = srq->head - srq->tail;
	struct soft_rwqe *to = *ring;
	struct ibv_sge *sges = (struct ibv_sge *)(void *)(to + size);
	size_t n_sge = srq->max_sge;

	if (used > max_wr)
		return -EINVAL;
	for (uint32_t i = 0; i < used; i++) {
		to[i] = srq->ring[(srq->tail + i) & (srq->size - 1)];
		memcpy(sges + i * n_sge, to[i].sge, to[i].n_sge * sizeof(*sges));
		to[i].sge = sges + i * n_sge;
	}
	*ring = srq->ring;
	srq->ring = to;
	srq->sges = sges;
	srq->size = size;
	srq->max_wr = max_wr;
	srq->tail = 0;
	srq->head = used;
	return 0;
}

static int srq_apply(struct soft_srq *srq, const struct ibv_srq_attr *attr, int mask, struct soft_rwqe **ring)
{
	uint32_t max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->max_wr;

	if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > max_wr)
		return -EINVAL;
	if (*ring && srq_move(srq, max_wr, ring) < 0)
		return -EINVAL;
	if (mask & IBV_SRQ_LIMIT) {
		srq->limit = attr->srq_limit;
		srq->limit_armed = attr->srq_limit != 0;
		limit_check(srq);
	}
	return 0;
}

int soft_srq_modify(struct soft_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	struct soft_rwqe *ring = NULL;
	int err;

	if (mask & IBV_SRQ_MAX_WR) {
		if (!attr->max_wr)
			return -EINVAL;
		ring = buf_alloc(srq->pd, ring_bytes(round_up(attr->max_wr), srq->max_sge), BUF_SRQ);
		if (!ring)
			return -ENOMEM;
	}
	enum soft_held held = soft_hold(&srq->lock);

	err = srq_apply(srq, attr, mask, &ring);
	soft_release(&srq->lock, held);
	buf_free(srq->pd, ring, BUF_SRQ);
	return err;
}

/* All QPs that answered RNR look again: whoever comes first gets the receive. */
static void srq_feed(struct soft_srq *srq)
{
	while (srq->starving) {
		struct soft_qp *qp = srq->starving;

		srq->starving = qp->priv->resp.starving_next;
		qp->priv->resp.starving = false;
		qp_again(qp);
	}
}

static int srq_post_one(struct soft_srq *srq, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge)
		return EINVAL;
	if (srq->head - srq->tail >= srq->max_wr)
		return ENOMEM;
	uint32_t i = srq->head & (srq->size - 1);
	struct soft_rwqe *wqe = &srq->ring[i];

	wqe->wr_id = wr->wr_id;
	wqe->n_sge = wr->num_sge;
	wqe->sge = srq->sges + (size_t)i * srq->max_sge;
	copy_sges(wqe->sge, wr->sg_list, wqe->n_sge);
	srq->head++;
	return 0;
}

int soft_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_srq *srq = soft_srq_of(ibsrq);
	struct soft_td *td;
	unsigned n = 0;
	int err = 0;

	if (rt_foreign(srq->ctx)) {
		*bad = wr;
		return EIO;
	}
	td = soft_enter(&srq->lock);
	for (; wr; wr = wr->next, n++) {
		err = srq_post_one(srq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (n && srq->starving)
		srq_feed(srq);
	if (td)
		td_count(td, VSD_COUNT_RECVS, n);
	else
		rt_count(VSD_COUNT_RECVS, n);
	soft_leave(&srq->lock, td);
	return err;
}

bool soft_srq_take(struct soft_srq *srq, struct soft_rwqe *wqe, struct ibv_sge *sge)
{
	bool found;

	soft_lock(&srq->lock);
	found = srq->head != srq->tail;
	if (found) {
		const struct soft_rwqe *from = &srq->ring[srq->tail & (srq->size - 1)];

		*wqe = *from;
		wqe->sge = sge;
		copy_sges(sge, from->sge, from->n_sge);
		srq->tail++;
		limit_check(srq);
	}
	soft_unlock(&srq->lock);
	return found;
}

bool srq_starve(struct soft_srq *srq, struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	bool empty;

	soft_lock(&srq->lock);
	empty = srq->head == srq->tail;
	if (empty && !resp->starving) {
		resp->starving = true;
		resp->starving_next = srq->starving;
		srq->starving = qp;
	}
	soft_unlock(&srq->lock);
	return empty;
}

void srq_forget(struct soft_srq *srq, struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	enum soft_held held = soft_hold(&srq->lock);

	if (resp->starving) {
		struct soft_qp **at = &srq->starving;

		while (*at != qp)
			at = &(*at)->priv->resp.starving_next;
		*at = resp->starving_next;
		resp->starving = false;
	}
	soft_release(&srq->lock, held);
}
