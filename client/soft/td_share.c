/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which objects a thread domain stands for. A QP's progress is made by whoever polls its CQs, so either all of them
 * belong to one domain, the QP with its CQs and its SRQ, or none: who polls a CQ without a domain may be any thread, and
 * comes to its QPs with their locks. A CQ or SRQ that gets a QP from outside takes its QPs, and what those use, with it.
 */
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

/* Datagrams come by wires of the whole process's: their QPs are served by whoever serves those. */
static bool kind_fits(const struct soft_qp *qp)
{
	return qp->init.qp_type == IBV_QPT_RC || qp->init.qp_type == IBV_QPT_UC;
}

static bool fits(const struct soft_qp *qp, const struct soft_td *td)
{
	return td && kind_fits(qp) && qp->send_cq && qp->recv_cq && soft_lock_td(&qp->send_cq->lock) == td &&
	       soft_lock_td(&qp->recv_cq->lock) == td && (!qp->srq || soft_lock_td(&qp->srq->lock) == td);
}

/* --- what hangs together: under the progress lock --------------------------------------------------------------------------- */

static bool mark(struct soft_lock *lock)
{
	bool is_new = soft_lock_td(lock) && !lock->shared;

	lock->shared |= is_new;
	return is_new;
}

/* True when something was marked that was not before. */
static bool mark_all(struct soft_qp *qp)
{
	bool more = qp->send_cq && mark(&qp->send_cq->lock);

	more |= qp->recv_cq && mark(&qp->recv_cq->lock);
	more |= qp->srq && mark(&qp->srq->lock);
	return more;
}

static bool touches_marked(const struct soft_qp *qp)
{
	return qp->send_cq->lock.shared || qp->recv_cq->lock.shared || (qp->srq && qp->srq->lock.shared);
}

static void spread(struct soft_td *td)
{
	bool more;

	do {
		more = false;
		for (struct soft_qp *qp = td->qps; qp; qp = qp->td_next)
			if (touches_marked(qp))
				more |= mark_all(qp);
	} while (more);
}

/* --- losing it: the domain is parked ---------------------------------------------------------------------------------------- */

static void expose(struct soft_lock *lock)
{
	if (!lock->shared)
		return;
	soft_mutex_lock(&lock->mutex);
	atomic_store(&lock->td, NULL);
	soft_mutex_unlock(&lock->mutex);
	lock->shared = false;
}

/* Its locks are its own from here on, and so are its wire and its timer the process's. */
static void expose_qp(struct soft_td *td, struct soft_qp *qp)
{
	struct wire *wire;

	soft_mutex_lock(&qp->sq_lock.mutex);
	soft_mutex_lock(&qp->rq_lock.mutex);
	td_forget_qp(td, qp);
	wire = atomic_load(&qp->wire);
	if (wire)
		td_wire_remove(wire);
	atomic_store(&qp->rq_lock.td, NULL);
	atomic_store(&qp->sq_lock.td, NULL);
	qp->priv->timer_set = 0;
	qp_timer_update(qp);
	soft_mutex_unlock(&qp->rq_lock.mutex);
	soft_mutex_unlock(&qp->sq_lock.mutex);
	if (wire)
		progress_adopt(wire);
	rt_run_later(qp);
}

/* The CQs first: nobody comes to a QP by a CQ that still is the domain's. */
static void expose_marked(struct soft_td *td)
{
	struct soft_qp *out = NULL;

	for (struct soft_qp **at = &td->qps; *at;) {
		struct soft_qp *qp = *at;

		if (!touches_marked(qp)) {
			at = &qp->td_next;
			continue;
		}
		*at = qp->td_next;
		qp->td_next = out;
		out = qp;
	}
	for (struct soft_qp *qp = out; qp; qp = qp->td_next) {
		expose(&qp->send_cq->lock);
		expose(&qp->recv_cq->lock);
		if (qp->srq)
			expose(&qp->srq->lock);
	}
	while (out) {
		struct soft_qp *next = out->td_next;

		expose_qp(td, out);
		out = next;
	}
}

static void share(struct soft_lock *lock)
{
	struct soft_td *td = soft_lock_td(lock);

	if (!td)
		return;
	td_park_wait(td);
	mark(lock);
	spread(td);
	expose_marked(td);
	expose(lock);
}

void qp_elide(struct soft_qp *qp)
{
	bool entered = rt_enter();
	struct soft_td *td = qp->pd ? qp->pd->td : NULL;

	if (fits(qp, td)) {
		td_park_wait(td);
		qp->td_next = td->qps;
		td->qps = qp;
		atomic_store(&qp->sq_lock.td, td);
		atomic_store(&qp->rq_lock.td, td);
	} else {
		if (qp->send_cq)
			share(&qp->send_cq->lock);
		if (qp->recv_cq)
			share(&qp->recv_cq->lock);
		if (qp->srq)
			share(&qp->srq->lock);
	}
	rt_leave(entered);
}

void td_share_cq(struct soft_cq *cq)
{
	bool entered = rt_enter();

	share(&cq->lock);
	rt_leave(entered);
}
