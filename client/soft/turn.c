/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A turn of a QP: what the runtime calls when something may be done for it. Requests are looked at first, then
 * acknowledgements and responses are taken, then the request is served: whatever the peer acknowledged before it sent a
 * message is completed before that message. Work per turn is bounded; a turn that finds a lock taken queues the QP
 * again and leaves.
 */
#include <errno.h>

#include "client/soft/quick.h"
#include "client/soft/rt_private.h"

#define GIVE_BACK 8u /* chunks after which their sender may go on while the rest of the turn is done */

static bool serves(int state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

/* Publishes what was done to both sides of the wire, or to the one whose lock is held, with one notice at most. */
static void publish(struct soft_qp *qp, bool sq, bool rq)
{
	struct requester *req = &qp->priv->req;
	struct responder *resp = &qp->priv->resp;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	bool notify = false, took = false;

	if (!wire)
		return;
	if (rq) {
		if (resp->dirty)
			wire_ack(wire, resp->done);
		took = resp->dirty;
		notify = resp->notify;
		resp->dirty = resp->notify = false;
	}
	if (sq) {
		if (req->resp_dirty)
			wire_resp_ack(wire);
		took |= req->resp_dirty;
		notify |= req->notify;
		req->resp_dirty = req->notify = false;
	}
	if (notify)
		wire_notify(wire);
	else if (took)
		wire_notify_space(wire);
}

void qp_publish_sq(struct soft_qp *qp)
{
	publish(qp, true, false);
}

/* The same of a post that put messages into the lane, and did nothing else. */
static void publish_messages(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;

	if (!req->notify || req->resp_dirty) {
		qp_publish_sq(qp);
		return;
	}
	req->notify = false;
	wire_notify_post(wire);
}

void qp_publish_rq(struct soft_qp *qp)
{
	publish(qp, false, true);
}

void qp_publish(struct soft_qp *qp)
{
	publish(qp, true, true);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

void qp_timer_update(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;
	struct requester *req = &priv->req;
	uint64_t at = earlier(req->rnr_at, req->retry_at);

	at = earlier(at, req->lost_at);
	at = earlier(at, priv->flush_at);
	at = earlier(at, priv->dgram_at);
	if (priv->stopped || at == priv->timer_set)
		return;
	priv->timer_set = at;
	if (qp_td(qp))
		td_deadline(qp_td(qp), at);
	else if (at)
		rt_timer_set(&priv->timer, at);
	else
		rt_timer_clear(&priv->timer);
}

/* Slots and chunks that the peer gave back, for other QPs of the pair that wait for chunks too. */
static void reclaim(struct soft_qp *qp, struct wire *wire)
{
	if ((wire->req_out.pos != wire->req_out.taken && wire_req_space(wire) < 0) ||
		(wire->resp_out.pos != wire->resp_out.taken && wire_resp_space(wire) < 0))
		qp_fail(qp, QP_FAIL_WIRE, IBV_EVENT_QP_FATAL);
}

/* With it a receive is completed. */
static bool is_received(const struct vsd_req *head)
{
	return (head->flags & VSD_F_LAST) && (head->op == VSD_REQ_SEND || head->op == VSD_REQ_PULL || (head->flags & VSD_F_IMM));
}

/* Something to go on with, whatever comes. */
static bool owes(const struct responder *resp)
{
	return resp->stream.active || resp->pulling || resp->stage_owed || resp->rnr_owed || resp->nak_owed;
}

static bool inbound(struct soft_qp *qp, struct wire *wire)
{
	struct vsd_req head;
	bool did = false;
	int rc = 0;

	qp->priv->resp.pull_left = QP_COPY_SLICE;
	for (unsigned n = 0; qp->priv->failure == QP_FINE; n++) {
		int found = serves(qp_state(qp)) ? wire_req_peek(wire, &head) : 0;
		/* Only the message: with a refusal that waited, too, a closed wire would be a peer that is late. */
		bool waits = found > 0 && is_received(&head) && !order_is_kept_cold(wire);

		/* Behind a request that was served: what else there is to do is for the next turn. */
		if (n && !found && !owes(&qp->priv->resp))
			break;
		rc = found < 0 ? found : requester_inbound(qp, wire);
		if (rc < 0)
			break;
		did |= rc > 0;
		if (qp->priv->failure != QP_FINE)
			break;
		rc = responder_resume(qp, wire);
		if (rc <= 0 || !found || waits)
			break;
		if (n == QP_TURN_WRS) {
			qp_again(qp);
			break;
		}
		/* One that is begun is taken, and its sender has to be told soon what became of it. */
		if (head.op == VSD_REQ_PULL && !pull_may_begin(qp)) {
			qp_again(qp);
			break;
		}
		rc = responder_serve(qp, wire, &head);
		did |= rc > 0;
		if (rc <= 0)
			break;
		/* Both: who sees all taken takes what is acknowledged for all there is (wire_untaken()). */
		if (head.flags & VSD_F_CHUNK && n % GIVE_BACK == GIVE_BACK - 1)
			wire_ack(wire, qp->priv->resp.done);
	}
	if (rc < 0)
		qp_fail(qp, QP_FAIL_WIRE, IBV_EVENT_QP_FATAL);
	return did || qp->priv->resp.dirty || qp->priv->resp.notify;
}

/* Starts the clock for what waits for a peer that is not there. */
static void deadlines(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;

	if (req->una != req->head && !req->retry_at && !req->lost_at &&
		qp->init.qp_type != IBV_QPT_UD && !requester_link(qp, wire))
		requester_timers(qp, rt_now());
}

/* In error there is nothing to do but to get an owed NAK out, and completions that were withheld. */
static bool error_turn(struct soft_qp *qp, struct wire *wire)
{
	struct qp_private *priv = qp->priv;

	/* Others of the pair may wait for the chunks that it still holds. */
	if (wire && !wire->broken) {
		wire_req_space(wire);
		wire_resp_space(wire);
	}
	if (wire && priv->resp.nak_owed && !wire->broken) {
		if (responder_resume(qp, wire) < 0)
			priv->resp.nak_owed = false;
		if (!priv->resp.nak_owed) {
			qp_publish_rq(qp);
			qp_close_wire(qp, wire);
		}
	}
	if (!priv->flushing || rt_now() < priv->flush_at)
		return false;
	qp_flush(qp);
	return !priv->flushing;
}

bool qp_turn(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;
	struct requester *req = &priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	bool did = false;

	if (priv->stopped)
		return false;
	if (qp_state(qp) == IBV_QPS_ERR)
		return error_turn(qp, wire);
	if (wire && !wire->broken) {
		wire_look(wire);
		if (wire_is_open(wire)) {
			did |= inbound(qp, wire);
			reclaim(qp, wire);
			responder_hint(qp);
		}
	}
	if (req->rnr_at || req->retry_at || req->lost_at)
		did |= requester_timers(qp, rt_now());
	did |= requester_push(qp);
	deadlines(qp, wire);
	qp_publish(qp); /* what is acknowledged, before the QP closes its half */
	qp_settle(qp, true);
	sq_check_drained(qp);
	qp_timer_update(qp);
	return did;
}

/* False: somebody has a lock of it, and it is to run later. */
static bool try_turn(struct soft_qp *qp, struct wire *wire, bool *did)
{
	*did = false;
	if (!soft_trylock(&qp->sq_lock)) {
		rt_run_later(qp);
		return false;
	}
	if (!soft_trylock(&qp->rq_lock)) {
		soft_unlock(&qp->sq_lock);
		rt_run_later(qp);
		return false;
	}
	if (!wire || atomic_load_explicit(&qp->wire, memory_order_relaxed) == wire) {
		if (!wire || !quick_turn(qp, wire, did))
			*did |= qp_turn(qp);
	}
	soft_unlock(&qp->rq_lock);
	soft_unlock(&qp->sq_lock);
	return true;
}

bool qp_service(struct soft_qp *qp, struct wire *wire)
{
	bool did;

	try_turn(qp, wire, &did);
	return did;
}

/* Datagrams of this process go straight to another QP's receive queue: of their own QP only the sq lock is held. */
static bool datagram_turn(struct soft_qp *qp)
{
	if (!soft_trylock(&qp->sq_lock)) {
		rt_run_later(qp);
		return false;
	}
	if (qp_state(qp) == IBV_QPS_ERR) {
		soft_lock(&qp->rq_lock);
		qp_turn(qp);
		soft_unlock(&qp->rq_lock);
	} else {
		qp_posted(qp);
	}
	soft_unlock(&qp->sq_lock);
	return true;
}

bool qp_run(struct soft_qp *qp)
{
	bool did, something;

	if (qp->init.qp_type == IBV_QPT_UD)
		did = datagram_turn(qp);
	else
		did = try_turn(qp, NULL, &something);
	rt_owes_nothing();
	return did;
}

/* False: not what is flushed at once. */
static __attribute__((noinline)) bool post_later(struct soft_qp *qp)
{
	if (qp_state(qp) != IBV_QPS_RTS)
		return false;
	rt_run_later(qp);
	return true;
}

void qp_posted(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;
	struct requester *req = &priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	int state = qp_state(qp);

	if (rt_owes() && post_later(qp))
		return;
	if (wire && quick_engine(qp, wire))
		return;
	if (wire && quick_push(qp, wire)) {
		publish_messages(qp, wire);
		return;
	}
	if (priv->stopped)
		return;
	if (atomic_load_explicit(&priv->recv_failed, memory_order_relaxed) && atomic_exchange(&priv->recv_failed, false)) {
		qp_fail(qp, QP_FAIL_RECV, -1);
		qp_settle(qp, false);
		state = qp_state(qp);
	}
	if ((state == IBV_QPS_ERR && !priv->flushing) || state == IBV_QPS_SQE) {
		sq_flush(qp);
		return;
	}
	/* An engine may run when what is before is acknowledged: look. */
	if (req->tx != req->head && wire && !wire->broken && wire_is_open(wire) && req->una != req->tx &&
		requester_inbound(qp, wire) < 0)
		qp_fail(qp, QP_FAIL_WIRE, IBV_EVENT_QP_FATAL);
	requester_push(qp);
	deadlines(qp, wire);
	qp_publish_sq(qp);
	qp_settle(qp, false);
	sq_check_drained(qp);
	qp_timer_update(qp);
}
