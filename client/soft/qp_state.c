/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States of a queue pair. A transition out of RTR, RTS, SQD or SQE closes the QP's gate first, then waits for the
 * initiators inside, and only then completes or drops anything: after that no byte moves through this QP. Failures are
 * noted by the state machines, which hold one lock, and carried out here, under both.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/soft/qp_private.h"
#include "client/soft/xrc.h"

#define PSN_MASK 0xffffffu

#define FIELD(flag, field) { flag, offsetof(struct ibv_qp_attr, field), \
	sizeof(((struct ibv_qp_attr *)0)->field) }

static const struct {
	int flag;
	size_t offset, size;
} attr_fields[] = {
	FIELD(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify),
	FIELD(IBV_QP_ACCESS_FLAGS, qp_access_flags),
	FIELD(IBV_QP_PKEY_INDEX, pkey_index),
	FIELD(IBV_QP_PORT, port_num),
	FIELD(IBV_QP_QKEY, qkey),
	FIELD(IBV_QP_AV, ah_attr),
	FIELD(IBV_QP_PATH_MTU, path_mtu),
	FIELD(IBV_QP_TIMEOUT, timeout),
	FIELD(IBV_QP_RETRY_CNT, retry_cnt),
	FIELD(IBV_QP_RNR_RETRY, rnr_retry),
	FIELD(IBV_QP_RQ_PSN, rq_psn),
	FIELD(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic),
	FIELD(IBV_QP_ALT_PATH, alt_ah_attr),
	FIELD(IBV_QP_ALT_PATH, alt_pkey_index),
	FIELD(IBV_QP_ALT_PATH, alt_port_num),
	FIELD(IBV_QP_ALT_PATH, alt_timeout),
	FIELD(IBV_QP_MIN_RNR_TIMER, min_rnr_timer),
	FIELD(IBV_QP_SQ_PSN, sq_psn),
	FIELD(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic),
	FIELD(IBV_QP_PATH_MIG_STATE, path_mig_state),
	FIELD(IBV_QP_DEST_QPN, dest_qp_num),
	FIELD(IBV_QP_RATE_LIMIT, rate_limit),
};

static void take_attributes(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	for (size_t i = 0; i < sizeof(attr_fields) / sizeof(attr_fields[0]); i++) {
		if (mask & attr_fields[i].flag)
			memcpy((char *)&qp->attr + attr_fields[i].offset,
				(const char *)attr + attr_fields[i].offset, attr_fields[i].size);
	}
	qp->attr.rq_psn &= PSN_MASK;
	qp->attr.sq_psn &= PSN_MASK;
	/* The event is asked for with each draining. */
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_SQD && qp_state(qp) == IBV_QPS_RTS &&
		!(mask & IBV_QP_EN_SQD_ASYNC_NOTIFY))
		qp->attr.en_sqd_async_notify = 0;
	unsigned access = qp->attr.qp_access_flags;

	if (!qp->attr.max_dest_rd_atomic)
		access &= ~(unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	atomic_store(&qp->priv->access, access);
}

static bool gate_is_open(int state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

void qp_open_gate(struct soft_qp *qp)
{
	/* XRC has none: whose protection domain counts is known with each request only, so nobody runs engines. */
	if (!qp->xrc && gate_is_open(qp_state(qp)))
		qp_gate_open(qp->v.qp.qp_num, qp->priv->access, qp->pd->base->number, qp->attr.dest_qp_num,
			atomic_load(&qp->wire));
}

void qp_raise(struct soft_qp *qp, enum ibv_event_type type)
{
	if (qp_is_leg(qp))
		xrc_raise(qp, type);
	else
		soft_async_raise(&qp->ctx->async, type, &qp->v.qp, 0);
}

void qp_fail(struct soft_qp *qp, enum qp_failure failure, int event)
{
	struct qp_private *priv = qp->priv;

	if (priv->failure != QP_FINE)
		return;
	priv->failure = failure;
	priv->event = event;
}

static bool initiators_inside(struct soft_qp *qp)
{
	return !qp->xrc && (atomic_load(&qp->priv->direct) || !pair_hazards_clear(0, qp->v.qp.qp_num));
}

int qp_wait_initiators(struct soft_qp *qp)
{
	uint64_t deadline = 0;
	bool said = false;

	while (initiators_inside(qp)) {
		uint64_t now = rt_now();

		if (!deadline)
			deadline = now + QP_BUSY_NS;
		if (now >= deadline)
			return -EBUSY;
		if (!said && deadline - now < QP_BUSY_NS - 1000000000u) {
			control_debug("qp 0x%x is still in use after 1 s: is the peer stopped?", qp->v.qp.qp_num);
			said = true;
		}
		/* nanosleep() is a cancellation point, and the gate is closed. */
		syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
	return 0;
}

void sq_flush(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;
	bool first = true;

	/* Whatever else is wrong with those behind the one that failed, they are flushed. */
	for (; req->una != req->head; req->una++, first = false) {
		const struct swqe *w = swqe_at(req, req->una);

		requester_cqe(qp, w, first && w->state == SWQE_FAILED ? w->status : IBV_WC_WR_FLUSH_ERR);
	}
	req->tx = req->started = req->ackpos = req->rsp = req->head;
	req->rd_out = 0;
	req->rnr_at = req->retry_at = req->lost_at = 0;
	qp->priv->dgram_at = 0;
}

void rq_flush(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;

	do {
		if (resp->has_recv)
			responder_cqe(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	} while (!qp->srq && responder_take(qp));
	resp->open = false;
	resp->stream.active = resp->pulling = false;
	if (qp->srq && !qp->xrc && !qp->priv->last_wqe) {
		qp->priv->last_wqe = true;
		qp_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

void qp_flush(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;

	priv->flushing = initiators_inside(qp);
	priv->flush_at = priv->flushing ? rt_now() + QP_FLUSH_NS : 0;
	if (!priv->flushing) {
		sq_flush(qp);
		rq_flush(qp);
	}
	qp_timer_update(qp);
}

/* A wire whose NAK is not out yet is closed by the turn that puts it. */
static void shut(struct soft_qp *qp)
{
	struct wire *wire = atomic_load(&qp->wire);

	if (qp->xrc)
		xrc_close_parked(qp);
	else
		qp_gate_close(qp->v.qp.qp_num);
	if (wire && !qp->priv->resp.nak_owed)
		qp_close_wire(qp, wire);
}

void qp_close_wire(struct soft_qp *qp, struct wire *wire)
{
	wire_close(wire);
	if (qp->xrc)
		xrc_closed(qp, wire);
}

static const char *const failure_names[] = {
	[QP_FINE] = "asked for",
	[QP_FAIL_SEND] = "a send failed",
	[QP_FAIL_RECV] = "a request or a receive failed",
	[QP_FAIL_WIRE] = "its wire is broken or its peer dead",
	[QP_FAIL_CQ] = "its completion queue is full",
};

static void enter_sqe(struct soft_qp *qp)
{
	atomic_store(&qp->state, IBV_QPS_SQE);
	sq_flush(qp);
}

static void enter_error(struct soft_qp *qp)
{
	atomic_store(&qp->state, IBV_QPS_ERR);
	qp_count(qp, VSD_COUNT_ERRORS, 1);
	control_debug("qp 0x%x is in error: %s", qp->v.qp.qp_num, failure_names[qp->priv->failure]);
	if (qp->xrc)
		xrc_failed(qp);
	shut(qp);
	qp_flush(qp);
}

void qp_settle(struct soft_qp *qp, bool rq_held)
{
	struct qp_private *priv = qp->priv;

	if (priv->failure == QP_FINE)
		return;
	if (!rq_held)
		soft_lock(&qp->rq_lock);
	int state = qp_state(qp);

	if (gate_is_open(state) || state == IBV_QPS_INIT) {
		struct wire *wire = atomic_load(&qp->wire);

		if (priv->failure == QP_FAIL_WIRE && wire)
			wire->broken = true;
		if (priv->failure == QP_FAIL_SEND && !qp_is_rc(qp))
			enter_sqe(qp);
		else
			enter_error(qp);
		if (priv->event >= 0)
			qp_raise(qp, priv->event);
	}
	priv->failure = QP_FINE;
	priv->event = -1;
	if (!rq_held)
		soft_unlock(&qp->rq_lock);
}

void sq_check_drained(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	if (qp_state(qp) != IBV_QPS_SQD || req->drained || req->una < req->started)
		return;
	req->drained = true;
	if (qp->attr.en_sqd_async_notify)
		qp_raise(qp, IBV_EVENT_SQ_DRAINED);
}

/* --- transitions, as asked for by ibv_modify_qp() ------------------------------------------------------------------ */

/* Both locks are held; what is returned is to be released without them. */
static struct wire *detach(struct soft_qp *qp)
{
	struct wire *wire = atomic_load(&qp->wire);

	if (wire)
		wire_close(wire);
	qp_set_wire(qp, NULL);
	if (qp->xrc)
		xrc_drop_parked(qp);
	return wire;
}

static int to_error(struct soft_qp *qp, enum soft_held *held)
{
	int err;

	if (qp_state(qp) == IBV_QPS_ERR)
		return 0;
	atomic_store(&qp->state, IBV_QPS_ERR);
	qp->priv->flushing = true;
	shut(qp);
	qp_release(qp, *held);
	err = qp_wait_initiators(qp);
	*held = qp_hold(qp);
	if (qp_state(qp) == IBV_QPS_ERR && qp->priv->flushing)
		qp_flush(qp);
	return err;
}

static void purge(struct soft_qp *qp)
{
	if (qp->send_cq)
		soft_cq_purge(qp->send_cq, qp);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		soft_cq_purge(qp->recv_cq, qp);
	if (qp->srq && qp->srq->tags)
		soft_cq_purge(qp->srq->tags->cq, qp);
}

static int to_reset(struct soft_qp *qp, enum soft_held *held)
{
	struct qp_private *priv = qp->priv;
	struct wire *wire = detach(qp);
	int err;

	atomic_store(&qp->state, IBV_QPS_RESET);
	shut(qp);
	qp_release(qp, *held);
	err = qp_wait_initiators(qp);
	if (wire) {
		pair_forget_waiter(qp);
		wire_release(wire);
	}
	datagram_forget(qp);
	if (qp->srq)
		srq_forget(qp->srq, qp);
	*held = qp_hold(qp);
	purge(qp);
	requester_reset(qp);
	responder_reset(qp);
	priv->resp.rq.head = priv->resp.rq.tail = 0;
	priv->resp.has_recv = false;
	priv->failure = QP_FINE;
	priv->flushing = priv->last_wqe = false;
	priv->dgram_at = 0;
	atomic_store(&priv->recv_failed, false);
	priv->flush_at = 0;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp_timer_update(qp);
	return err;
}

static struct wire *to_rtr(struct soft_qp *qp)
{
	struct wire *wire = atomic_load(&qp->wire), *wrong = NULL;

	if (wire && wire->peer_qpn != qp->attr.dest_qp_num)
		wrong = detach(qp);
	qp->priv->resp.comm_est = false;
	atomic_store(&qp->state, IBV_QPS_RTR);
	return wrong;
}

static void to_rts(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	if (qp_state(qp) == IBV_QPS_RTR || qp_state(qp) == IBV_QPS_SQE)
		req->rnr_left = qp->attr.rnr_retry;
	req->drained = false;
	atomic_store(&qp->state, IBV_QPS_RTS);
}

/* A QP may have failed since the caller looked at its state: only what leads out of that is left. */
static bool failed_meanwhile(struct soft_qp *qp, int to)
{
	int now = qp_state(qp);

	if (to == now || to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return false;
	return now == IBV_QPS_ERR || (now == IBV_QPS_SQE && to != IBV_QPS_RTS);
}

int soft_qp_apply(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum soft_held held = qp_hold(qp);
	struct wire *wrong = NULL;
	int err = 0;

	int state = mask & IBV_QP_STATE ? (int)attr->qp_state : qp_state(qp);

	if (failed_meanwhile(qp, state)) {
		qp_release(qp, held);
		return -EINVAL;
	}
	if (state != IBV_QPS_RESET)
		take_attributes(qp, attr, mask);
	if (mask & IBV_QP_STATE) {
		if (state == IBV_QPS_RESET)
			err = to_reset(qp, &held);
		else if (state == IBV_QPS_ERR)
			err = to_error(qp, &held);
		else if (state == IBV_QPS_RTR)
			wrong = to_rtr(qp);
		else if (state == IBV_QPS_RTS)
			to_rts(qp);
		else
			atomic_store(&qp->state, state);
	}
	if (mask & (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS))
		qp_open_gate(qp);
	if (state == IBV_QPS_SQD)
		sq_check_drained(qp);
	qp_release(qp, held);
	if (wrong)
		wire_release(wrong);
	return err;
}
