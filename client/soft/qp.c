/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Life of a queue pair: its memory, its place in the runtime, the wire that it gets and loses. After soft_qp_stop() no
 * thread touches it and no initiator touches memory through it.
 */
#include "client/soft/qp.h"

#include <errno.h>
#include <string.h>
#include <stdlib.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/xrc.h"

static uint32_t round_up(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size <<= 1;
	return size;
}

struct layout {
	uint32_t sq, rq, recv_sge;
	size_t send_sge, inline_data, rq_sge;
	size_t size;
};

static size_t inline_stride(const struct ibv_qp_cap *cap)
{
	return (cap->max_inline_data + 15) & ~(size_t)15;
}

static struct layout qp_layout(const struct soft_qp *qp)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	bool tags = qp->srq && qp->srq->tags;
	struct layout l = { .sq = round_up(cap->max_send_wr + (tags ? TAG_WRS : 0)) };

	l.rq = qp->srq ? 0 : round_up(cap->max_recv_wr);
	l.recv_sge = qp->srq ? qp->srq->max_sge : cap->max_recv_sge;
	if (tags && l.recv_sge < TAG_SGES)
		l.recv_sge = TAG_SGES;
	l.send_sge = l.sq * sizeof(struct swqe) + l.rq * sizeof(struct soft_rwqe);
	l.rq_sge = l.send_sge + (size_t)l.sq * cap->max_send_sge * sizeof(struct ibv_sge);
	/* one more receive's worth of SGEs: of the receive that the message in progress took */
	l.inline_data = l.rq_sge + ((size_t)l.rq + 1) * l.recv_sge * sizeof(struct ibv_sge);
	l.size = l.inline_data + l.sq * inline_stride(cap);
	return l;
}

/* Pages of the rings are touched when a WR uses them, not here. */
static void lay_out(struct soft_qp *qp, const struct layout *l)
{
	struct qp_private *priv = qp->priv;
	struct requester *req = &priv->req;
	struct receive_queue *rq = &priv->resp.rq;
	const struct ibv_qp_cap *cap = &qp->init.cap;
	uint8_t *block = priv->block;

	req->ring = priv->block;
	req->mask = l->sq - 1;
	req->max = cap->max_send_wr;
	req->max_sge = cap->max_send_sge;
	req->max_inline = cap->max_inline_data;
	req->sges = (struct ibv_sge *)(void *)(block + l->send_sge);
	req->inlines = block + l->inline_data;
	req->inline_stride = inline_stride(cap);
	rq->ring = (struct soft_rwqe *)(void *)(req->ring + l->sq);
	rq->sges = (struct ibv_sge *)(void *)(block + l->rq_sge);
	rq->mask = l->rq - 1;
	rq->max = qp->srq ? 0 : cap->max_recv_wr;
	rq->max_sge = cap->max_recv_sge;
	priv->resp.recv_sge = rq->sges + (size_t)l->rq * l->recv_sge;
}

static void timer_fired(struct soft_timer *timer)
{
	rt_run_later(soft_container(timer, struct qp_private, timer)->qp);
}

int soft_qp_init(struct soft_qp *qp)
{
	static _Atomic uint64_t serials;
	struct ibv_qp_cap *cap = &qp->init.cap;

	if (cap->max_send_wr && !cap->max_send_sge)
		cap->max_send_sge = 1;
	if (qp->srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	else if (cap->max_recv_wr && !cap->max_recv_sge)
		cap->max_recv_sge = 1;

	struct layout l = qp_layout(qp);
	struct qp_private *priv = calloc(1, sizeof(*priv));

	if (!priv)
		return -ENOMEM;
	if (qp->srq && qp->srq->tags)
		priv->req.fetches = calloc(TAG_FETCHES, sizeof(*priv->req.fetches));
	priv->block = buf_alloc(qp->pd, l.size, BUF_QP);
	if (!priv->block || (qp->srq && qp->srq->tags && !priv->req.fetches)) {
		buf_free(qp->pd, priv->block, BUF_QP);
		free(priv->req.fetches);
		free(priv);
		return -ENOMEM;
	}
	qp->serial = atomic_fetch_add(&serials, 1) + 1;
	qp->xrc = qp->init.qp_type == IBV_QPT_XRC_SEND || qp->init.qp_type == IBV_QPT_XRC_RECV;
	qp->reliable = qp->init.qp_type == IBV_QPT_RC || qp->xrc;
	priv->plain = qp->init.qp_type == IBV_QPT_RC;
	priv->qp = qp;
	priv->event = -1;
	priv->timer.fire = timer_fired;
	qp->priv = priv;
	lay_out(qp, &l);
	soft_lock_init(&qp->sq_lock, NULL);
	soft_lock_init(&qp->rq_lock, NULL);
	atomic_init(&qp->state, IBV_QPS_RESET);
	atomic_init(&qp->wire, NULL);
	qp->attr.qp_state = qp->attr.cur_qp_state = IBV_QPS_RESET;
	qp_elide(qp);
	return 0;
}

int soft_qp_start(struct soft_qp *qp)
{
	return rt_qp_insert(qp, qp->v.qp.qp_num);
}

void soft_qp_deinit(struct soft_qp *qp)
{
	if (!qp->priv)
		return;
	if (qp_td(qp))
		rt_forget_qp(qp); /* it may never have been started */
	buf_free(qp->pd, qp->priv->block, BUF_QP);
	free(qp->priv->req.fetches);
	free(qp->priv);
	qp->priv = NULL;
}

/* Nobody may find the QP any more; then whoever found it before has to leave. */
static void leave_runtime(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;

	rt_qp_remove(qp->v.qp.qp_num);
	datagram_forget(qp);
	if (qp->srq)
		srq_forget(qp->srq, qp);
	pair_forget_waiter(qp);
	rt_timer_cancel(&priv->timer);
	rt_forget_qp(qp);
}

enum soft_held qp_hold(struct soft_qp *qp)
{
	enum soft_held held = soft_hold(&qp->sq_lock);

	if (held == HELD_MUTEX)
		soft_mutex_lock(&qp->rq_lock.mutex);
	return held;
}

void qp_release(struct soft_qp *qp, enum soft_held held)
{
	if (held == HELD_MUTEX)
		soft_mutex_unlock(&qp->rq_lock.mutex);
	soft_release(&qp->sq_lock, held);
}

/* Both locks. The wire that it had leaves the domain; the caller lets it go. */
void qp_set_wire(struct soft_qp *qp, struct wire *wire)
{
	struct wire *old = atomic_load(&qp->wire);

	if (old)
		td_wire_remove(old);
	if (wire && qp_td(qp))
		td_wire_add(qp_td(qp), wire);
	atomic_store(&qp->priv->wire_id, wire ? wire_id(wire) : 0);
	atomic_store(&qp->wire, wire);
}

int soft_qp_stop(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;
	enum soft_held held = qp_hold(qp);
	int err;

	int state = qp_state(qp);
	struct wire *wire = atomic_load(&qp->wire);

	atomic_store(&qp->state, IBV_QPS_RESET);
	qp_gate_close(qp->v.qp.qp_num);
	qp_release(qp, held);
	err = qp_wait_initiators(qp);

	held = qp_hold(qp);
	if (err < 0) {
		atomic_store(&qp->state, state);
		qp_open_gate(qp);
	} else {
		priv->stopped = true;
		wire = atomic_load(&qp->wire);
		if (wire)
			wire_close(wire);
		qp_set_wire(qp, NULL);
		if (qp->xrc)
			xrc_drop_parked(qp);
	}
	qp_release(qp, held);
	if (err < 0)
		return err;
	if (wire)
		wire_release(wire); /* no round that starts from here on serves it */
	leave_runtime(qp);
	if (qp->send_cq)
		soft_cq_purge(qp->send_cq, qp);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		soft_cq_purge(qp->recv_cq, qp);
	if (qp->srq && qp->srq->tags)
		soft_cq_purge(qp->srq->tags->cq, qp);
	return 0;
}

void soft_qp_query(struct soft_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	enum soft_held held = qp_hold(qp);

	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp_state(qp);
	attr->cap = qp->init.cap;
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->priv->req.una < qp->priv->req.started;
	qp_release(qp, held);
	if (!init)
		return;
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->v.qp.qp_context,
		.send_cq = qp->v.qp.send_cq,
		.recv_cq = qp->v.qp.recv_cq,
		.srq = qp->v.qp.srq,
		.cap = qp->init.cap,
		.qp_type = qp->init.qp_type,
		.sq_sig_all = qp->init.sq_sig_all,
	};
}

void soft_qp_kickoff(struct soft_qp *qp)
{
	if (!qp_td(qp)) {
		qp_run(qp);
		return;
	}

	enum soft_held held = qp_hold(qp);

	qp_turn(qp);
	qp_release(qp, held);
}

/*
 * A wire that the daemon made before this QP was reset is of its last connection, though its peer may be the same: what
 * is sent there does not reach the peer's QP as it is now.
 */
static bool wants_wire(const struct soft_qp *qp, int state, const struct wire *wire)
{
	if (wire->resets >= 0 && wire->resets != atomic_load(&qp->resets))
		return false;
	switch (state) {
	case IBV_QPS_INIT: /* the daemon was told of RTR, this side applies it in a moment */
		return true;
	case IBV_QPS_RTR:
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
		return wire->peer_qpn == qp->attr.dest_qp_num;
	default:
		return false;
	}
}

/* What the peer sent, and acknowledged, before it went: a lane full of it at most. */
static void drain(struct soft_qp *qp, const struct wire *wire)
{
	for (uint32_t i = 0; qp_turn(qp) && i < wire->req_in.n + wire->resp_in.n;)
		i++;
}

/* Message numbers start again, and what the old wire did not acknowledge is sent again. */
static void take_wire(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;

	requester_back(qp, req->una, 0);
	req->acked = 0;
	req->recvs_seen = 0;
	req->restart = req->resp_dirty = req->notify = req->known = false;
	req->rnr_at = 0;
	responder_reset(qp);
	wire->qp = qp;
	qp_set_wire(qp, wire);
	qp_open_gate(qp);
}

/*
 * A wire that is there already is an old one: the peer was reset and came back. What came by it is served before it goes.
 * But one end does for both of a QP that is connected to itself, and what is in that wire is not lost for another.
 */
bool qp_wire_attached(struct soft_qp *qp, struct wire *wire)
{
	if (qp->xrc && !qp_is_leg(qp))
		return xrc_wire_attached(qp, wire);

	enum soft_held held = qp_hold(qp);
	struct wire *old = atomic_load(&qp->wire);
	bool wanted = !qp->priv->stopped && wants_wire(qp, qp_state(qp), wire);

	if (wanted && old && wire_is_folded(old)) {
		wanted = false;
	} else if (wanted && old) {
		drain(qp, old);
		wanted = wants_wire(qp, qp_state(qp), wire);
	}
	if (wanted && wire->local_qpn == wire->peer_qpn)
		wire_fold(wire);
	if (wanted && qp_td(qp))
		wanted = td_wire_room(qp_td(qp), wire);
	if (wanted) {
		if (old)
			wire_close(old);
		take_wire(qp, wire);
	}
	qp_release(qp, held);
	if (!wanted)
		return false;
	if (old)
		wire_release(old);
	rt_run_later(qp);
	return true;
}

/*
 * The peer's QP was closed before its process ended, as programs do that have finished: then the death is no news. On a
 * fabric this QP would not notice, and its posted receives would not be flushed into the hands of a program that still
 * counts its last completions. What waits, waits for its timeout.
 */
static void peer_died(struct soft_qp *qp, const struct wire *wire)
{
	struct requester *req = &qp->priv->req;

	if (qp_state(qp) == IBV_QPS_ERR || wire_has_parted(wire))
		return;
	qp_fail(qp, QP_FAIL_WIRE, IBV_EVENT_QP_FATAL);
	if (req->una != req->head)
		requester_fail(qp, swqe_at(req, req->una), IBV_WC_RETRY_EXC_ERR);
	qp_settle(qp, true);
}

/*
 * What the peer sent before it went is still served. Of a dead process nothing more comes, so the lanes are emptied
 * here and now: there is at most a lane and a pool full of it.
 */
void qp_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead)
{
	if (qp->xrc) {
		xrc_wire_gone(qp, wire, dead);
		return;
	}

	enum soft_held held = qp_hold(qp);

	if (atomic_load(&qp->wire) == wire && !qp->priv->stopped) {
		wire_look(wire);
		__atomic_store_n(&wire->peer_closed, true, __ATOMIC_RELAXED);
		if (dead) {
			drain(qp, wire);
			peer_died(qp, wire);
		} else {
			qp_turn(qp);
		}
	}
	qp_release(qp, held);
}
