/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: send queue and requester, receive queue and responder. qp.c has life and states, wr.c and wr_ex.c
 * posting, requester.c and responder.c the two state machines, engines.c what an initiator may do itself.
 */
#ifndef SOFT_QP_H
#define SOFT_QP_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/soft/cq.h"
#include "client/soft/lock.h"
#include "client/soft/objects.h"
#include "client/soft/rt.h"
#include "client/soft/wire.h"

struct soft_srq;
struct soft_xrcd;

/* The part of a QP that rt.c, pair.c and the ABI face use; the rest is in qp_private.h. */
struct soft_qp {
	struct verbs_qp_union {
		union {
			struct ibv_qp qp;
			struct ibv_qp_ex qp_ex;
		};
	} v;
	struct soft_context *ctx;
	struct soft_pd *pd;
	struct soft_cq *send_cq, *recv_cq;
	struct soft_srq *srq;
	uint64_t serial; /* of no other QP of this process, ever */
	struct soft_xrcd *xrcd; /* of an XRC receive QP */
	uint32_t handle; /* the daemon's */
	bool reliable, xrc; /* of its type */
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp_attr attr; /* as last modified; qp_state is the truth under both locks */
	_Atomic int state;	 /* enum ibv_qp_state */
	_Atomic uint32_t resets; /* that the daemon was told of */
	_Atomic(struct wire *) wire;
	/* rt.c */
	struct soft_qp *run_next;
	_Atomic bool run_queued;
	_Atomic unsigned refs;
	/* td_round.c */
	struct soft_qp *td_next, *td_run_next;
	bool td_queued;
	/* pool.c: waiting for a chunk of some kinds, in one pair */
	struct soft_qp *pool_next, **pool_prev;
	_Atomic(struct pair *) pool_pair;
	uint8_t pool_kinds;
	struct soft_lock sq_lock, rq_lock;
	struct qp_private *priv;
};

static inline struct soft_qp *soft_qp_of(struct ibv_qp *qp)
{
	return soft_container(qp, struct soft_qp, v.qp);
}

/* The thread domain that stands for its locks, or NULL. */
static inline struct soft_td *qp_td(const struct soft_qp *qp)
{
	return soft_lock_td(&qp->sq_lock);
}

/* --- for the ABI face (which has checked attributes and talked to the daemon) ---------------------------------------- */
/* Rings and locks; qp->v.qp's public fields, ctx, pd, CQs, srq, init are set by the caller; init.cap is rounded up here. */
int soft_qp_init(struct soft_qp *qp);
/* Inserts it into the runtime under qp->v.qp.qp_num. */
int soft_qp_start(struct soft_qp *qp);
/* Applies a checked transition or attribute change. Leaves RTS: flush, gate closed, revocation waited for. */
int soft_qp_apply(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* After a successful QP_MODIFY: work that waited for the wire. */
void soft_qp_kickoff(struct soft_qp *qp);
void soft_qp_query(struct soft_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
/* Gate closed, wire let go, CQEs purged, rings freed. -EBUSY: a stopped initiator (after 10 s), the QP is whole. */
int soft_qp_stop(struct soft_qp *qp);
void soft_qp_deinit(struct soft_qp *qp);
/* Fills the ibv_wr_* function pointers for the send_ops_flags granted. -EOPNOTSUPP: an unknown or impossible one. */
int soft_qp_fill_ex(struct soft_qp *qp, uint64_t send_ops_flags);

int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* --- for rt.c ---------------------------------------------------------------------------------------------------- */
/* enum vsd_can: what may be sent to this process (pull.c). */
uint32_t pull_can(void);
/* Inbound work of a wire: acknowledgements and responses, then requests; bounded. True when something was done. */
bool qp_service(struct soft_qp *qp, struct wire *wire);
/* Outbound work: the requester goes on. False: others have its locks, and it is queued again. */
bool qp_run(struct soft_qp *qp);
/* It has another turn soon: said in a turn of its own, with its locks or its domain. */
void qp_again(struct soft_qp *qp);
/* The daemon made a wire for this QP. Takes it over (wire->qp is set); false: the QP does not want it (any more). */
bool qp_wire_attached(struct soft_qp *qp, struct wire *wire);
/* The peer is gone; dead: drain, then fail (CONTRACT: QP to ERR). Otherwise requests time out. */
void qp_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead);

/* --- datagrams (datagram.c) ---------------------------------------------------------------------------------------- */
bool datagram_service(struct wire *wire);
/* A DGRAM wire to @peer is there (wire->owner is set), or the daemon would not make one, or it is gone. */
void datagram_attached(uint32_t peer, struct wire *wire);
void datagram_refused(uint32_t peer);
void datagram_gone(struct wire *wire);
/* The runtime stops: no QP is left; lets all datagram wires go. */
void datagram_stop(void);
/* Implemented by rt.c: asks the daemon for a datagram wire to the owner of @qpn. Any thread; answered by
 * datagram_attached() or datagram_refused(). */
void rt_resolve(struct soft_context *ctx, uint32_t qpn, uint32_t peer, uint16_t dlid, const union ibv_gid *dgid);

#endif
