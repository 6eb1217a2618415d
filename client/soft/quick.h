/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case, whole: an RC QP in RTS on an open wire, whose messages are SENDs of one descriptor, its payload in slots or
 * in a chunk, with one piece of memory at each end. Whatever is not that is left as it is, for the state machines.
 */
#ifndef SOFT_QUICK_H
#define SOFT_QUICK_H

#include "client/soft/qp_private.h"

/* A turn for what came by @wire (both locks). False: qp_turn() is to go on, whatever was done here. */
bool quick_turn(struct soft_qp *qp, struct wire *wire, bool *did);
/* A post of one WR, whole (sq lock): it is in the queue, transmitted, and the peer was told. False: nothing was done. */
bool quick_post(struct soft_qp *qp, const struct ibv_send_wr *wr);
/* Transmits what can be at once (sq lock). False: qp_posted() is to go on. */
bool quick_push(struct soft_qp *qp, struct wire *wire);
/* The same of what the map or the cma engine does at once, quick_engine.c: nothing is left to publish. */
bool quick_engine(struct soft_qp *qp, struct wire *wire);
/*
 * Posts and runs what that engine can of @list, from its first WR on, straight from the program's memory (sq lock): how many;
 * @list is what is left of it.
 */
unsigned quick_list(struct soft_qp *qp, struct ibv_send_wr **list);

/* Nothing is due, and the wire is as it should be for what comes by it. */
static inline bool quick_is_calm(const struct soft_qp *qp, const struct wire *wire)
{
	const struct qp_private *priv = qp->priv;
	const struct requester *req = &priv->req;

	return priv->plain && priv->failure == QP_FINE && !priv->stopped &&
	       !(req->rnr_at | req->retry_at | req->lost_at | priv->timer_set) && !wire->broken && wire_is_open(wire) &&
	       !wire_is_closed(wire);
}

/* And for what is sent. */
static inline bool quick_is_smooth(const struct soft_qp *qp, const struct wire *wire)
{
	return qp_state(qp) == IBV_QPS_RTS && quick_is_calm(qp, wire) && requester_link(qp, wire);
}

#endif
