/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC. A send QP has a wire to each process whose SRQs it sends to, one of them in use at a time; it changes to another
 * when all before is acknowledged, and says by a descriptor of its own (VSD_REQ_AIM) for which SRQ the next messages
 * are. At the other end a *leg* serves the wire: a QP of the runtime's own, with the number of the receive QP, that no
 * program sees. What a program has of a receive QP is a handle, which moves no data.
 *
 * Legs, handles and SRQs are listed under the progress lock, and legs are served under it.
 */
#ifndef SOFT_XRC_H
#define SOFT_XRC_H

#include "client/soft/qp.h"
#include "client/soft/srq.h"

struct swqe;
struct vsd_req;

/* An open of an XRC domain. */
struct soft_xrcd {
	struct ibv_xrcd xrcd;
	struct soft_context *ctx;
	uint32_t handle;
	uint32_t number; /* the same for all who have it open */
	_Atomic unsigned users;
};

static inline struct soft_xrcd *soft_xrcd_of(struct ibv_xrcd *xrcd)
{
	return soft_container(xrcd, struct soft_xrcd, xrcd);
}

/* --- for the ABI face: no lock held ---------------------------------------------------------------------------------- */
/* An XRC SRQ takes receives for all legs; its CQ takes no part in a thread domain any more. */
void xrc_srq_insert(struct soft_srq *srq);
/* No leg uses it any more; what it completed and was not read is dropped. */
void xrc_srq_remove(struct soft_srq *srq);
/* Handles get the events of their QP. */
void xrc_handle_insert(struct soft_qp *handle);
void xrc_handle_remove(struct soft_qp *handle);
/* A handle is destroyed: if it was the QP's last, nothing comes by that any more. */
void xrc_settle(void);
/* The receive QP is about to leave its connected states: this process serves nothing for it any more. */
void xrc_silence(uint32_t qpn);

/* The last context is closed: no leg is left. */
void xrc_stop(void);

/* --- for the runtime: progress lock held ------------------------------------------------------------------------------ */
/* The leg for a wire of this event. NULL: no memory. */
struct soft_qp *xrc_leg(const Vsd__EvWire *event);
void xrc_leg_changed(struct soft_qp *leg, const Vsd__XrcTarget *target);
/* Frees legs that have no wire any more, where nobody is inside. */
void xrc_reap(void);
void xrc_on_event(const Vsd__EvXrcEvent *event);
void xrc_on_refused(const Vsd__EvXrcRefused *event);
/* What events_xrc_connect() asked, when the QP had been reset so often, is answered, or never will be. */
void xrc_on_answer(uint32_t qpn, uint32_t resets);
/* What the daemon is asked and told without waiting for it (events.c). */
bool events_xrc_connect(const struct soft_qp *qp, uint32_t srqn);
void events_xrc_report(const struct wire *wire, uint32_t event);

/* --- the QP's two halves ------------------------------------------------------------------------------------------------ */
/* A wire for a send QP; one that goes, of a send QP or a leg. As qp_wire_attached() and qp_wire_gone(). */
bool xrc_wire_attached(struct soft_qp *qp, struct wire *wire);
void xrc_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead);
void xrc_sender_wire_gone(struct soft_qp *qp, struct wire *wire);
/* The wires that a send QP has besides the one in use: closed; let go of (both locks). */
void xrc_close_parked(struct soft_qp *qp);
void xrc_drop_parked(struct soft_qp *qp);
/* 1: the wire in use leads to the SRQ of @w, whose turn it is, and the peer knows; 0: later; negative (sq lock). */
int xrc_route(struct soft_qp *qp, const struct swqe *w);
/* A leg: serves VSD_REQ_AIM. 1, or -EPROTO. */
int xrc_aim(struct soft_qp *leg, struct wire *wire, const struct vsd_req *head);
/* A leg: a message begins; finds its SRQ. False: there is none, which is answered. */
bool xrc_find_srq(struct soft_qp *leg);
/* A leg raises an event of its QP; it is closed after it failed. */
void xrc_raise(struct soft_qp *leg, enum ibv_event_type type);
void xrc_closed(struct soft_qp *qp, const struct wire *wire);
/* It goes to the error state: what is reported later is as of now. */
void xrc_failed(struct soft_qp *qp);
static inline bool qp_is_leg(const struct soft_qp *qp)
{
	return qp->xrc && !qp->ctx;
}

#endif
