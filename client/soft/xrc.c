/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiving side of XRC: the SRQs of this process by number, the legs that take from them, the handles that programs
 * have of receive QPs. A leg is made with its first wire, and freed some time after it lost its last.
 */
#include "client/soft/xrc.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "client/soft/in_child.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"

#define BUCKETS	    256u
#define STOP_TRIES  10000u
#define LEG_SGE_MAX 32u /* of a receive: max_sge of the device */

struct leg {
	struct soft_qp qp;
	struct leg *next;
	uint32_t xrcd;	/* of its receive QP */
	uint32_t event; /* that it failed with; 0: none */
	bool retired;	/* it has no wire */
	bool reported;
};

static struct {
	struct soft_srq *srqs[BUCKETS];
	struct leg *legs, *dying;
	struct soft_qp *handles;
} xrc;

void xrc_in_child(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		if (xrc.srqs[i])
			xrc.srqs[i] = NULL;
	xrc.legs = xrc.dying = NULL;
	xrc.handles = NULL;
}

static struct leg *leg_of(struct soft_qp *qp)
{
	return soft_container(qp, struct leg, qp);
}

static struct leg *leg_find(uint32_t qpn)
{
	struct leg *leg = xrc.legs;

	while (leg && leg->qp.v.qp.qp_num != qpn)
		leg = leg->next;
	return leg;
}

/* --- SRQs ---------------------------------------------------------------------------------------------------------------- */

static struct soft_srq *srq_find(uint32_t number)
{
	struct soft_srq *srq = xrc.srqs[number % BUCKETS];

	while (srq && srq->number != number)
		srq = srq->xrc_next;
	return srq;
}

void xrc_srq_insert(struct soft_srq *srq)
{
	bool entered = rt_enter();
	struct soft_srq **at = &xrc.srqs[srq->number % BUCKETS];

	td_share_cq(srq->cq);
	srq->xrc_next = *at;
	*at = srq;
	rt_leave(entered);
}

/* The event is that of adapters, which have it for a wrong number and a wrong XRCD alike: drivers of qedr and hns. */
static void leg_refuse(struct soft_qp *leg)
{
	responder_nak(leg, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

/*
 * Both locks. What it is in the middle of ends as what begins then: on the wire of InfiniBand each packet of a message says
 * for which SRQ it is, and the next one would find none.
 */
static void leg_lose_srq(struct soft_qp *leg)
{
	struct responder *resp = &leg->priv->resp;
	struct wire *wire = atomic_load(&leg->wire);
	bool busy = resp->open || resp->stream.active;

	resp->has_recv = false;
	resp->aimed = 0;
	if (busy && wire && !wire->broken) {
		leg_refuse(leg);
		if (responder_resume(leg, wire) < 0)
			resp->nak_owed = false;
		qp_publish_rq(leg);
		qp_settle(leg, true);
	}
	leg->srq = NULL;
	leg->pd = NULL;
	leg->recv_cq = NULL;
}

void xrc_srq_remove(struct soft_srq *srq)
{
	bool entered = rt_enter();
	struct soft_srq **at = &xrc.srqs[srq->number % BUCKETS];

	while (*at != srq)
		at = &(*at)->xrc_next;
	*at = srq->xrc_next;
	for (struct leg *leg = xrc.legs; leg; leg = leg->next) {
		enum soft_held held = qp_hold(&leg->qp);

		if (leg->qp.srq == srq) {
			srq_forget(srq, &leg->qp);
			leg_lose_srq(&leg->qp);
		}
		qp_release(&leg->qp, held);
	}
	soft_cq_purge(srq->cq, srq);
	rt_leave(entered);
}

/* --- handles ---------------------------------------------------------------------------------------------------------------- */

void xrc_handle_insert(struct soft_qp *handle)
{
	bool entered = rt_enter();

	handle->run_next = xrc.handles;
	xrc.handles = handle;
	rt_leave(entered);
}

void xrc_handle_remove(struct soft_qp *handle)
{
	bool entered = rt_enter();
	struct soft_qp **at = &xrc.handles;

	while (*at != handle)
		at = &(*at)->run_next;
	*at = handle->run_next;
	rt_leave(entered);
}

/* The daemon says it once for each handle of this process. */
void xrc_on_event(const Vsd__EvXrcEvent *event)
{
	for (struct soft_qp *handle = xrc.handles; handle; handle = handle->run_next)
		if (handle->handle == event->handle && handle->ctx->id == event->context)
			qp_raise(handle, (enum ibv_event_type)event->event);
}

/* --- legs -------------------------------------------------------------------------------------------------------------------- */

static struct leg *leg_new(uint32_t qpn)
{
	struct leg *leg = calloc(1, sizeof(*leg));

	if (!leg)
		return NULL;
	leg->retired = true;
	leg->qp.v.qp.qp_num = qpn;
	leg->qp.init.qp_type = IBV_QPT_XRC_RECV;
	leg->qp.init.cap.max_recv_sge = LEG_SGE_MAX;
	if (soft_qp_init(&leg->qp) < 0) {
		free(leg);
		return NULL;
	}
	if (soft_qp_start(&leg->qp) < 0) {
		soft_qp_deinit(&leg->qp);
		free(leg);
		return NULL;
	}
	leg->next = xrc.legs;
	xrc.legs = leg;
	return leg;
}

/* Both locks. */
static void leg_apply(struct soft_qp *leg, const Vsd__XrcTarget *target)
{
	leg->attr.qp_access_flags = target->access;
	leg->attr.min_rnr_timer = (uint8_t)(target->min_rnr_timer & 31);
	leg->attr.max_dest_rd_atomic = (uint8_t)target->max_dest_rd_atomic;
}

static bool state_serves(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

struct soft_qp *xrc_leg(const Vsd__EvWire *event)
{
	struct leg *leg = leg_find(event->local_qpn);
	enum soft_held held;

	if (!leg)
		leg = leg_new(event->local_qpn);
	if (!leg)
		return NULL;
	held = qp_hold(&leg->qp);
	leg->xrcd = event->target->xrcd;
	leg->event = 0;
	leg->retired = leg->reported = false;
	leg_apply(&leg->qp, event->target);
	leg->qp.attr.dest_qp_num = event->peer_qpn;
	leg->qp.priv->resp.comm_est = false;
	leg->qp.priv->failure = QP_FINE;
	leg->qp.priv->flushing = false;
	atomic_store(&leg->qp.state, state_serves(event->target->state) ? (int)event->target->state : IBV_QPS_RTR);
	qp_release(&leg->qp, held);
	return &leg->qp;
}

void xrc_leg_changed(struct soft_qp *leg, const Vsd__XrcTarget *target)
{
	enum soft_held held = qp_hold(leg);

	leg_apply(leg, target);
	if (state_serves(qp_state(leg)) && state_serves(target->state))
		atomic_store(&leg->state, (int)target->state);
	qp_release(leg, held);
	rt_run_later(leg);
}

/* Both locks. What is returned is to be released. */
static struct wire *leg_retire(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	struct wire *wire = atomic_load(&qp->wire);

	/* A receive that was taken does not go back. */
	if (resp->has_recv)
		responder_cqe(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	if (qp->srq)
		srq_forget(qp->srq, qp);
	if (wire)
		wire_close(wire);
	qp_set_wire(qp, NULL);
	responder_reset(qp);
	resp->aimed = 0;
	qp->srq = NULL;
	qp->pd = NULL;
	qp->recv_cq = NULL;
	atomic_store(&qp->state, IBV_QPS_RESET);
	leg_of(qp)->retired = true;
	return wire;
}

/* What came before is served still; of a process that is dead nothing more comes. */
static void leg_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead)
{
	enum soft_held held = qp_hold(qp);
	struct wire *old = NULL;

	if (atomic_load(&qp->wire) == wire) {
		wire_look(wire);
		__atomic_store_n(&wire->peer_closed, true, __ATOMIC_RELAXED);
		for (uint32_t i = 0; qp_turn(qp) && dead && i < wire->req_in.n;)
			i++;
		old = leg_retire(qp);
	}
	qp_release(qp, held);
	if (old) {
		pair_forget_waiter(qp);
		wire_release(old);
	}
}

void xrc_silence(uint32_t qpn)
{
	bool entered = rt_enter();
	struct leg *leg = leg_find(qpn);
	struct wire *old = NULL;

	if (leg) {
		enum soft_held held = qp_hold(&leg->qp);

		old = leg_retire(&leg->qp);
		qp_release(&leg->qp, held);
	}
	if (old)
		pair_forget_waiter(&leg->qp);
	rt_leave(entered);
	if (old)
		wire_release(old);
}

/* What the daemon says of its wires was in our socket before its answer. */
void xrc_settle(void)
{
	if (control_connected())
		sleep_read_events();
}

/* Who found it in the table before may still be inside: then it is freed another time. */
static void leg_unlist(void)
{
	for (struct leg **at = &xrc.legs; *at;) {
		struct leg *leg = *at;

		if (!leg->retired) {
			at = &leg->next;
			continue;
		}
		*at = leg->next;
		rt_qp_remove(leg->qp.v.qp.qp_num);
		rt_timer_cancel(&leg->qp.priv->timer);
		rt_forget_qp(&leg->qp);
		leg->next = xrc.dying;
		xrc.dying = leg;
	}
}

void xrc_reap(void)
{
	leg_unlist();
	for (struct leg **at = &xrc.dying; *at;) {
		struct leg *leg = *at;

		if (atomic_load(&leg->qp.refs)) {
			at = &leg->next;
			continue;
		}
		*at = leg->next;
		rt_forget_qp(&leg->qp);
		soft_qp_deinit(&leg->qp);
		free(leg);
	}
}

static bool srq_any(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		if (xrc.srqs[i])
			return true;
	return false;
}

void xrc_stop(void)
{
	bool entered = rt_enter();

	for (struct leg *leg = xrc.legs; leg && !srq_any(); leg = leg->next) {
		enum soft_held held = qp_hold(&leg->qp);
		struct wire *wire = leg_retire(&leg->qp);

		qp_release(&leg->qp, held);
		pair_forget_waiter(&leg->qp);
		if (wire)
			wire_release(wire);
	}
	/* Who is inside leaves in a moment. */
	xrc_reap();
	for (unsigned i = 0; xrc.dying && i < STOP_TRIES; i++) {
		sched_yield();
		xrc_reap();
	}
	rt_leave(entered);
}

void xrc_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead)
{
	if (qp_is_leg(qp))
		leg_wire_gone(qp, wire, dead);
	else
		xrc_sender_wire_gone(qp, wire);
}

/* --- what a leg does in its turns ---------------------------------------------------------------------------------------------- */

int xrc_aim(struct soft_qp *leg, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &leg->priv->resp;

	if (!qp_is_leg(leg) || resp->open || head->flags != (VSD_F_FIRST | VSD_F_LAST) || head->rw.raddr >> 24)
		return -EPROTO;
	resp->aim = (uint32_t)head->rw.raddr;
	wire_req_consume(wire, head);
	resp->dirty = true;
	return 1;
}

/* A message that was dropped for want of a receive may have aimed elsewhere: what counts is the aim of this one. */
bool xrc_find_srq(struct soft_qp *leg)
{
	struct responder *resp = &leg->priv->resp;
	struct soft_srq *srq;

	if (resp->aim && resp->aim == resp->aimed)
		return true;
	srq = srq_find(resp->aim);
	if (!resp->aim || !srq || srq->xrcd != leg_of(leg)->xrcd || srq->max_sge > LEG_SGE_MAX) {
		leg_refuse(leg);
		return false;
	}
	if (leg->srq)
		srq_forget(leg->srq, leg);
	leg->srq = srq;
	leg->pd = srq->pd;
	leg->recv_cq = srq->cq;
	resp->aimed = resp->aim;
	return true;
}

/* What ends the QP is told when its half of the wire is closed: a refusal must be in the wire by then. */
void xrc_raise(struct soft_qp *leg, enum ibv_event_type type)
{
	struct wire *wire = atomic_load(&leg->wire);

	if (type == IBV_EVENT_COMM_EST && wire)
		events_xrc_report(wire, type);
}

void xrc_closed(struct soft_qp *qp, const struct wire *wire)
{
	struct leg *leg = leg_of(qp);

	if (!qp_is_leg(qp) || leg->reported)
		return;
	leg->reported = true;
	events_xrc_report(wire, leg->event);
}

void xrc_failed(struct soft_qp *qp)
{
	if (qp_is_leg(qp))
		leg_of(qp)->event = qp->priv->event > 0 ? (uint32_t)qp->priv->event : 0;
}
