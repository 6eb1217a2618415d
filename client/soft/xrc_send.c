/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sending side of XRC. Of the wires that a send QP has, `wire` is in use; the others are parked here, with their
 * places in the sequence of messages. All of this is under the sq lock: the receive side of a send QP has nothing to do.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/xrc.h"

#define LOST_MAX 8u /* wires lost in a row without being of use, after which no more is asked for */

struct xrc_parked {
	struct xrc_parked *next;
	struct wire *wire;
	uint64_t msn, acked;
	uint32_t recvs_seen;
};

/* Programs may name any number, 0 too. */
static uint64_t some(uint32_t srqn)
{
	return 1ull << 32 | srqn;
}

static struct xrc_parked **parked_find(struct requester *req, const struct wire *wire, uint32_t peer)
{
	struct xrc_parked **at = &req->parked;

	while (*at && (wire ? (*at)->wire != wire : (*at)->wire->pair->peer != peer))
		at = &(*at)->next;
	return at;
}

/* --- the wire in use --------------------------------------------------------------------------------------------------------- */

/* All before is acknowledged. */
static int park(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load(&qp->wire);
	struct xrc_parked *parked;

	if (!wire)
		return 0;
	parked = malloc(sizeof(*parked));
	if (!parked)
		return -ENOMEM;
	*parked = (struct xrc_parked){ req->parked, wire, req->msn, req->acked, req->recvs_seen };
	req->parked = parked;
	if (req->resp_dirty || req->notify)
		qp_publish_sq(qp);
	qp_set_wire(qp, NULL);
	return 0;
}

static bool unpark(struct soft_qp *qp, uint32_t peer)
{
	struct requester *req = &qp->priv->req;
	struct xrc_parked **at = parked_find(req, NULL, peer), *parked = *at;

	if (!parked)
		return false;
	*at = parked->next;
	req->msn = parked->msn;
	req->acked = parked->acked;
	req->recvs_seen = parked->recvs_seen;
	req->restart = false;
	req->rnr_at = 0;
	req->aimed = 0;
	qp_set_wire(qp, parked->wire);
	free(parked);
	wire_look(atomic_load(&qp->wire));
	return true;
}

static void ask(struct soft_qp *qp, uint32_t srqn)
{
	struct requester *req = &qp->priv->req;

	if (req->asked == some(srqn) || req->lost >= LOST_MAX)
		return;
	req->asked = some(srqn);
	if (events_xrc_connect(qp, srqn))
		req->unanswered++;
	qp_again(qp); /* starts the clock of what waits for a peer, if the daemon need not say first whether there is one */
}

/* 1: the wire in use leads to @peer. */
static int change(struct soft_qp *qp, uint32_t peer, uint32_t srqn)
{
	struct requester *req = &qp->priv->req;

	if (req->una != req->tx)
		return 0;
	if (park(qp) < 0) {
		qp_again(qp);
		return 0;
	}
	if (!unpark(qp, peer)) {
		ask(qp, srqn);
		return 0;
	}
	qp_again(qp);
	return 1;
}

static int put_aim(struct soft_qp *qp, struct wire *wire, uint32_t srqn)
{
	struct requester *req = &qp->priv->req;
	const struct vsd_req head = {
		.op = VSD_REQ_AIM,
		.flags = VSD_F_FIRST | VSD_F_LAST,
		.slots = 1,
		.msn = (uint32_t)req->msn,
		.rw.raddr = srqn,
	};
	int space = wire_req_space(wire);

	if (space == 0) {
		wire_want_space(wire, WIRE_WANT_REQ);
		space = wire_req_space(wire);
	}
	if (space <= 0)
		return space;
	wire_req_put(wire, &head, NULL, -1);
	req->notify = true;
	req->aimed = some(srqn);
	req->lost = 0;
	return 1;
}

int xrc_route(struct soft_qp *qp, const struct swqe *w)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);

	if (wire && req->aimed == some(w->srqn))
		return 1;

	uint32_t peer = rt_qpn_owner(w->srqn);

	if (!wire || wire->pair->peer != peer) {
		int rc = change(qp, peer, w->srqn);

		if (rc <= 0)
			return rc;
		wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	}
	if (!requester_link(qp, wire) || req->rnr_at)
		return 0;
	return put_aim(qp, wire, w->srqn);
}

/* --- wires that come and go ---------------------------------------------------------------------------------------------------- */

/* What it was sent and did not acknowledge is sent again, by whatever wire leads there then. */
static void lose_current(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	qp_set_wire(qp, NULL);
	requester_back(qp, req->una, 0);
	req->acked = 0;
	req->recvs_seen = 0;
	req->restart = req->resp_dirty = req->notify = false;
	req->rnr_at = 0;
	req->lost++;
	req->asked = 0;
}

/* Closed and let go of. */
static void drop(struct wire *wire)
{
	wire_close(wire);
	wire_release(wire);
}

static bool takes_wires(struct soft_qp *qp, const struct wire *wire)
{
	int state = qp_state(qp);

	if (qp->priv->stopped || (wire->resets >= 0 && wire->resets != atomic_load(&qp->resets)))
		return false;
	return state == IBV_QPS_INIT || ((state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) &&
						wire->peer_qpn == qp->attr.dest_qp_num);
}

bool xrc_wire_attached(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	struct xrc_parked *parked = calloc(1, sizeof(*parked)), **at;
	enum soft_held held = qp_hold(qp);
	struct wire *current = atomic_load(&qp->wire);
	bool wanted = parked && takes_wires(qp, wire);

	if (wanted) {
		at = parked_find(req, NULL, wire->pair->peer);
		if (*at) { /* an old one, of before the receive QP was reset */
			struct xrc_parked *old = *at;

			*at = old->next;
			drop(old->wire);
			free(old);
		}
		if (current && current->pair->peer == wire->pair->peer) {
			lose_current(qp);
			drop(current);
		}
		parked->wire = wire;
		parked->next = req->parked;
		req->parked = parked;
		req->asked = 0;
		wire->qp = qp;
	}
	qp_release(qp, held);
	if (!wanted) {
		free(parked);
		return false;
	}
	rt_run_later(qp);
	return true;
}

/*
 * The SRQ's process is gone, or the receive QP left its connected states. What was refused or acknowledged before is taken;
 * the rest asks anew, and the daemon knows.
 */
void xrc_sender_wire_gone(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	enum soft_held held = qp_hold(qp);
	struct xrc_parked **at = parked_find(req, wire, 0), *parked = *at;

	if (parked) {
		*at = parked->next;
		free(parked);
		drop(wire);
	} else if (atomic_load(&qp->wire) == wire && !qp->priv->stopped) {
		wire_look(wire);
		for (uint32_t i = 0; qp_turn(qp) && i < wire->resp_in.n;)
			i++;
		if (atomic_load(&qp->wire) == wire && qp_state(qp) != IBV_QPS_ERR) {
			__atomic_store_n(&wire->peer_closed, true, __ATOMIC_RELAXED);
			lose_current(qp);
			drop(wire);
		}
	}
	qp_release(qp, held);
	pair_forget_waiter(qp);
	rt_run_later(qp);
}

void xrc_close_parked(struct soft_qp *qp)
{
	for (struct xrc_parked *parked = qp->priv->req.parked; parked; parked = parked->next)
		wire_close(parked->wire);
}

void xrc_drop_parked(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	while (req->parked) {
		struct xrc_parked *parked = req->parked;

		req->parked = parked->next;
		drop(parked->wire);
		free(parked);
	}
}

/*
 * If there was somebody to send to, the wire came before the answer. With many QPs, or little time for the daemon and for
 * the thread that talks to it, that takes longer than a timeout.
 */
void xrc_on_answer(uint32_t qpn, uint32_t resets)
{
	struct soft_qp *qp = rt_qp_get(qpn);
	struct requester *req;
	enum soft_held held;

	if (!qp)
		return;
	req = &qp->priv->req;
	held = qp_hold(qp);
	if (req->unanswered && resets == atomic_load(&qp->resets))
		req->unanswered--;
	qp_release(qp, held);
	rt_run_later(qp);
	rt_qp_put(qp);
}

/* The receive QP's domain has no such SRQ: the request that is for it fails, if it is its turn. */
void xrc_on_refused(const Vsd__EvXrcRefused *event)
{
	struct soft_qp *qp = rt_qp_get(event->qpn);
	struct requester *req;
	enum soft_held held;

	if (!qp)
		return;
	req = &qp->priv->req;
	held = qp_hold(qp);
	if (qp->xrc && qp->ctx && req->asked == some(event->srqn) && !qp->priv->stopped) {
		struct swqe *w = swqe_at(req, req->tx);

		req->asked = 0;
		if (req->tx != req->head && req->una == req->tx && w->state == SWQE_QUEUED && w->srqn == event->srqn &&
			qp_state(qp) != IBV_QPS_ERR) {
			requester_fail(qp, w, IBV_WC_REM_INV_REQ_ERR);
			qp_settle(qp, true);
			qp_timer_update(qp);
		}
	}
	qp_release(qp, held);
	rt_qp_put(qp);
}
