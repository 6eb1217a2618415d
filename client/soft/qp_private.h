/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of a QP: what its two state machines keep, and what qp.c, turn.c, wr.c, requester.c, acks.c, responder.c,
 * engines.c and datagram.c call of each other.
 *
 * Locks. The requester and the send side of the wire belong to the sq lock, the responder, the receive queue and the
 * receive side of the wire to the rq lock. State changes hold both, wire pointer included, so either lock is enough to
 * read them. Who finds a lock taken in a turn leaves, and the QP is queued again (rt_run_later). Of a QP whose thread
 * domain stands for its locks, "both locks", and each of them, is: who has the domain.
 */
#ifndef SOFT_QP_PRIVATE_H
#define SOFT_QP_PRIVATE_H

#include "client/soft/buf.h"
#include "client/soft/mr.h"
#include "client/soft/order.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/srq.h"
#include "client/soft/tag.h"
#include "client/soft/td.h"

#define QP_SLICE	(256u << 10) /* bytes that one turn puts into chunks in one direction */
#define QP_COPY_SLICE	(1u << 20)   /* or copies right to where they belong: the fewer calls of the kernel's, the better */
#define QP_CMA_SLICE	(4u << 20)   /* or has the kernel copy, if that is all it does: from here on longer calls gain nothing */
#define QP_TURN_WRS	64	     /* requests, responses or WRs of one turn */
#define QP_MESSAGE_MAX	(1u << 31)   /* max_msg_sz */
#define QP_UD_MTU	4096u
#define QP_GRH		40u
#define QP_FLUSH_NS	1000000ull   /* between two looks at initiators that must leave first */
#define QP_BUSY_NS	10000000000ull /* how long a verb waits for them */
#define QP_LOST_NS	100000000ull /* a UC message whose wire closed is dropped after this; a group asked for again */
#define QP_LINK_NS	1000000000ull /* a wire that both ends wait for is there after this */
#define QP_PARTED_NS	500000000ull /* a request to a peer that closed and then ended fails after this at the latest */

enum swqe_state {
	SWQE_QUEUED,  /* nothing done yet */
	SWQE_PARTIAL, /* some descriptors are in the lane */
	SWQE_ENGINE,  /* some slices were copied by an engine */
	SWQE_SENT,    /* waits for its acknowledgement or response */
	SWQE_DONE,
	SWQE_FAILED,  /* with `status`; the QP fails once everything before it completed */
};

struct swqe {
	uint64_t wr_id;
	uint64_t raddr, compare_add, swap;
	uint64_t off; /* bytes sent, copied or received */
	uint64_t msn;
	uint32_t rkey;
	uint32_t imm; /* network order, or an rkey to invalidate */
	uint32_t length, n_sge;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t state;
	uint8_t flags; /* enum ibv_send_flags */
	uint8_t status; /* enum ibv_wc_status */
	uint8_t internal; /* enum tag_wr */
	bool lane_only; /* an engine failed: the owner's verdict counts */
	bool pulled;	/* it is the peer that fetches it: pull.c */
	bool timed;	/* and that, or not, is a choice whose time counts: way.h */
	union {
		struct {
			struct ibv_ah_attr ah;
			uint32_t qpn, qkey;
		} ud;
		struct mw_bind bind;
		uint32_t srqn; /* XRC */
	};
	struct ibv_sge *sge;
	uint8_t *data; /* of inline WRs */
};

/*
 * As it was just posted; what its operation has besides is filled in behind this. Not all of it is cleared: the compiler does
 * so by `rep stos`, which takes as long as a fifth of a post.
 */
static inline void swqe_begin(struct swqe *w, enum ibv_wr_opcode opcode)
{
	w->off = 0;
	w->length = w->n_sge = 0;
	w->opcode = (uint8_t)opcode;
	w->state = SWQE_QUEUED;
	w->flags = 0;
	w->status = IBV_WC_SUCCESS;
	w->internal = TAG_WR_NO;
	w->lane_only = w->pulled = w->timed = false;
	w->srqn = 0;
}

struct requester {
	struct swqe *ring;
	uint32_t mask, max, max_sge, max_inline;
	struct ibv_sge *sges; /* max_sge of each WR */
	uint8_t *inlines;     /* inline_stride bytes of each WR */
	size_t inline_stride;
	/* positions: freed <= una <= tx <= head */
	uint64_t head;	/* next to be posted */
	uint64_t tx;	/* next to be transmitted, or in the middle of that */
	uint64_t una;	/* oldest that is not completed */
	_Atomic uint64_t freed; /* oldest that still takes its place in the SQ: moves when a CQE is read */
	uint64_t owners;  /* behind the last one in the lane that no engine is for */
	uint64_t started; /* behind the last one that transmission ever began of: SQD lets those end, RNR or not */
	uint64_t ackpos, rsp; /* looked at for acknowledgements; for responses */
	uint64_t msn, acked; /* next message number of the wire; messages acknowledged */
	unsigned rd_out;     /* READs and atomics that wait for their response */
	bool restart;	     /* the next descriptor carries VSD_F_RESTART */
	bool no_pull;	     /* the peer cannot fetch what comes by this wire */
	struct way_run run;  /* of long SENDs */
	bool known;	     /* the peer was there on this wire, or was waited for long enough */
	bool resp_dirty;     /* responses consumed since the last wire_resp_ack() */
	bool notify;	     /* descriptors put since the last wire_notify() */
	unsigned rnr_left;
	uint32_t recvs_seen;
	uint64_t rnr_at, retry_at, lost_at; /* deadlines, 0: none */
	bool drained; /* SQD: the event was raised */
	/* xrc_send.c */
	struct xrc_parked *parked;
	uint64_t aimed; /* 1 << 32 | number of the SRQ that the peer was told of; 0: none */
	uint64_t asked; /* the same of the SRQ that a wire was asked for to */
	unsigned unanswered; /* the daemon has not said yet what became of it: nobody is late */
	unsigned lost;	/* wires */
	/* tag.c: WRs that are not the program's, put into the ring and completed; what they use */
	uint64_t internals, internals_done;
	struct tag_fetch *fetches;
	/* wr_ex.c: the batch being built */
	uint64_t ex_start, ex_head;
	int ex_error;
	bool ex_locked;
	struct swqe *ex;
};

struct read_stream {
	bool active;
	uint64_t raddr;
	uint32_t rkey, total, off;
};

struct receive_queue {
	struct soft_rwqe *ring;
	struct ibv_sge *sges;
	uint32_t mask, max, max_sge;
	uint64_t head, tail;
};

struct responder {
	struct receive_queue rq;
	uint64_t msn;  /* of the message in progress, or the one expected */
	uint64_t done; /* published as acknowledged */
	bool dirty;    /* descriptors consumed since the last wire_ack() */
	bool notify;   /* messages completed or responses put since the last wire_notify() */
	/* the message in progress */
	bool open, skip;
	struct vsd_req head; /* its first descriptor */
	uint32_t got;
	/* the receive it took; kept for the next message when an unreliable one was dropped half way */
	bool has_recv;
	struct soft_rwqe recv;
	struct ibv_sge *recv_sge;
	struct tag_match tag;
	struct read_stream stream;
	/* pull.c: the message in progress is being fetched; bytes that this turn may still copy */
	bool pulling;
	uint32_t pull_left;
	bool stage_owed; /* the answer that it cannot be, with `stage`; then as in RNR */
	uint8_t stage;
	/* RNR: everything is dropped until VSD_F_RESTART with `msn` */
	bool rnr, rnr_owed;
	bool hinted; /* the requester was told that there is a receive now */
	bool starving; /* in its SRQ's list */
	struct soft_qp *starving_next;
	/* a NAK that found the response lane full; the wire is closed when it is out */
	bool nak_owed;
	uint8_t nak_status;
	bool comm_est;
	uint32_t aim, aimed; /* xrc.c: the SRQ that the next message is for; that of the last one */
};

/* Why a QP goes to the error state. */
enum qp_failure {
	QP_FINE,
	QP_FAIL_SEND, /* the WR at una failed: RC to ERR, UC and UD to SQE */
	QP_FAIL_RECV, /* the responder found an error; `event` says which */
	QP_FAIL_WIRE, /* nonsense in the wire, or the peer's process is dead */
	QP_FAIL_CQ,   /* a completion is lost: its CQ is in error */
};

struct xrc_parked;

struct qp_private {
	struct soft_qp *qp;
	struct requester req;
	struct responder resp;
	bool plain;		 /* RC, and nothing else: what quick.c knows */
	enum qp_failure failure; /* noted under one lock, carried out by qp_settle() */
	int event;		 /* enum ibv_event_type to be raised with it, -1: none */
	bool stopped;		 /* destroyed: turns do nothing */
	bool flushing;		 /* in ERR, initiators are not out yet: completions are withheld */
	bool last_wqe;		 /* IBV_EVENT_QP_LAST_WQE_REACHED was raised */
	uint64_t flush_at;
	_Atomic unsigned direct; /* threads of this process that run engines on this QP's memory now */
	_Atomic unsigned access; /* qp_access_flags, for them */
	_Atomic uint64_t wire_id; /* which wire it has, for them; 0: none */
	struct soft_timer timer;
	uint64_t timer_set;
	/* datagram.c: it waits for a peer's wire, or for the members of a group */
	bool dgram_waits;
	unsigned groups; /* multicast.c: that it is attached to */
	struct soft_qp *dgram_next, **dgram_prev;
	uint64_t dgram_taken, dgram_at; /* what the peer had taken when the wait began; when the datagram is dropped */
	_Atomic bool recv_failed; /* a receive of a datagram failed: noted under the rq lock alone */
	void *block; /* rings, SGEs, inline data */
};

static inline struct swqe *swqe_at(struct requester *req, uint64_t pos)
{
	return &req->ring[pos & req->mask];
}

/* The peer closed its half in good order. */
static inline bool wire_has_parted(const struct wire *wire)
{
	return atomic_load(&wire->theirs->state) == ((uint64_t)wire->gen << 2 | VSD_HALF_CLOSED);
}

static inline uint64_t wire_id(const struct wire *wire)
{
	return (uint64_t)wire->gen << 32 | wire->index;
}

/* Both locks, as a caller that may wait has them: all of the QP, with the progress lock if it is a thread domain's. */
enum soft_held qp_hold(struct soft_qp *qp);
void qp_release(struct soft_qp *qp, enum soft_held held);
void qp_set_wire(struct soft_qp *qp, struct wire *wire);

/* Counts in the process's page, or in the QP's domain. */
static inline void qp_count(const struct soft_qp *qp, enum vsd_counter counter, uint64_t n)
{
	struct soft_td *td = qp_td(qp);

	if (td)
		td_count(td, counter, n);
	else
		rt_count(counter, n);
}

static inline int qp_state(const struct soft_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_acquire);
}

/* RC or XRC. */
static inline bool qp_is_rc(const struct soft_qp *qp)
{
	return qp->reliable;
}

/* The wire is there, open at both ends, and the peer expects our PSN. */
static inline bool requester_link(const struct soft_qp *qp, const struct wire *wire)
{
	return wire && !wire->broken && wire_is_open(wire) && !wire_is_closed(wire) &&
	       !((wire->peer_rq_psn ^ qp->attr.sq_psn) & 0xffffff);
}

static inline bool swqe_has_response(const struct swqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* What `max_rd_atomic` and `max_dest_rd_atomic` are about. An atomic write is acknowledged as a READ of nothing is. */
static inline bool swqe_takes_resources(const struct swqe *w)
{
	return swqe_has_response(w) || w->opcode == IBV_WR_ATOMIC_WRITE;
}

static inline bool swqe_is_atomic(const struct swqe *w)
{
	return swqe_has_response(w) && w->opcode != IBV_WR_RDMA_READ;
}

/* The word of an atomic, by its address and by where that is here: if either is not aligned, it is the owner who says so. */
static inline bool swqe_is_aligned(const struct swqe *w, const void *place)
{
	return !(((uintptr_t)place | w->raddr) & 7);
}

/* The right to the peer's memory that a WRITE, a READ or an atomic needs. */
static inline unsigned swqe_access(const struct swqe *w)
{
	if (w->opcode == IBV_WR_RDMA_WRITE)
		return IBV_ACCESS_REMOTE_WRITE;
	return w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
}

/* --- order.c ------------------------------------------------------------------------------------------------------ */
/*
 * What was acknowledged before the message that @wire has was posted is completed. False: not now, a turn comes (both locks).
 * The wire is hot; or it may be one that is not.
 */
static inline bool order_is_kept(struct wire *wire)
{
	return __builtin_expect(atomic_load_explicit(&wire->set->crowd, memory_order_relaxed) <= 1, 1) ||
	       wire->req_in.pos < wire->kept_to || order_keep(wire);
}

static inline bool order_is_kept_cold(struct wire *wire)
{
	if (atomic_load_explicit(&wire->hot, memory_order_relaxed) && wire->pair->segment)
		return order_is_kept(wire);
	return wire->req_in.pos < wire->kept_to || order_keep(wire);
}

/* --- turn.c ------------------------------------------------------------------------------------------------------- */
/* Publishes what was done to the send side (sq lock) or to the receive side (rq lock), one notice each at most. */
void qp_publish_sq(struct soft_qp *qp);
void qp_publish_rq(struct soft_qp *qp);
/* Both (both locks), with one notice. */
void qp_publish(struct soft_qp *qp);
/* Sets the QP's one timer to the earliest of its deadlines (sq lock). */
void qp_timer_update(struct soft_qp *qp);
/* One turn; both locks held. */
bool qp_turn(struct soft_qp *qp);
/* The post call's end: the requester goes on, failures are carried out (sq lock held). */
void qp_posted(struct soft_qp *qp);

/* --- qp_state.c ------------------------------------------------------------------------------------------------------ */
/* Carries a noted failure out. @rq_held: whether the caller has the rq lock as well as the sq lock. */
void qp_settle(struct soft_qp *qp, bool rq_held);
/* Opens the gate of a QP that has one, to what comes by the wire that it has now (both locks). */
void qp_open_gate(struct soft_qp *qp);
/* Closes its half of the wire, and says so to whom it concerns. */
void qp_close_wire(struct soft_qp *qp, struct wire *wire);
/* Notes a failure; the first one counts. */
void qp_fail(struct soft_qp *qp, enum qp_failure failure, int event);
/* Completes everything outstanding in error, or withholds it until no initiator is inside (both locks). */
void qp_flush(struct soft_qp *qp);
/* One queue of a QP in error that is not withheld (its lock). */
void sq_flush(struct soft_qp *qp);
void rq_flush(struct soft_qp *qp);
/* SQD: raises the event when nothing is outstanding any more (sq lock). */
void sq_check_drained(struct soft_qp *qp);
void qp_raise(struct soft_qp *qp, enum ibv_event_type type);
/* Waits until no initiator touches memory through this QP; no lock held. -EBUSY after 10 s. */
int qp_wait_initiators(struct soft_qp *qp);

/* --- requester.c, acks.c (sq lock) ----------------------------------------------------------------------------------- */
/* Transmits what may be transmitted. True when something was done. */
bool requester_push(struct soft_qp *qp);
/* Acknowledgements and responses of the wire. 1: something was done; 0; -EPROTO. */
int requester_inbound(struct soft_qp *qp, struct wire *wire);
/* Acknowledgements alone. */
int requester_acks(struct soft_qp *qp, struct wire *wire);
/* The same ahead of a message of another wire (order.c). */
void requester_acks_first(struct soft_qp *qp, struct wire *wire);
/* Completes WRs in order. */
void requester_complete(struct soft_qp *qp);
/* Queues the completion of the WR at una, which frees its place and those before it once it is read. */
void requester_cqe(struct soft_qp *qp, const struct swqe *w, enum ibv_wc_status status);
/* The same of one that is the program's, by what it says. */
void requester_done(struct soft_qp *qp, uint64_t wr_id, unsigned opcode, uint32_t length, enum ibv_wc_status status);
/* The WR ends in error once everything before it is completed. */
void requester_fail(struct soft_qp *qp, struct swqe *w, enum ibv_wc_status status);
/* Everything from @pos on, which has message number @msn, is transmitted again. */
void requester_back(struct soft_qp *qp, uint64_t pos, uint64_t msn);
/* Deadlines: true when one was due. */
bool requester_timers(struct soft_qp *qp, uint64_t now);
void requester_reset(struct soft_qp *qp);

/* --- responder.c, read_stream.c (rq lock) ------------------------------------------------------------------------------- */
/* Serves the peeked request. 1: consumed or something done; 0: suspended; -EPROTO. */
int responder_serve(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head);
/* Goes on with a READ, an owed RNR or NAK: 1: requests may be served; 0: suspended or out of budget. */
int responder_resume(struct soft_qp *qp, struct wire *wire);
void responder_message_done(struct soft_qp *qp);
/* A request that the responder cannot do: NAK, @event, QP to the error state. */
void responder_nak(struct soft_qp *qp, enum ibv_wc_status status, int event);
void responder_cqe(struct soft_qp *qp, enum ibv_wc_status status, struct soft_cqe *cqe);
int read_stream_run(struct soft_qp *qp, struct wire *wire);
int atomic_serve(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head);
/* The 8-byte operation itself, for owner and direct. */
uint64_t atomic_apply(void *ptr, uint8_t op, uint64_t compare_add, uint64_t swap);
void responder_reset(struct soft_qp *qp);
/* Takes a receive into resp.recv: false when there is none. */
bool responder_take(struct soft_qp *qp);
uint64_t responder_room(const struct soft_rwqe *recv);
/* While in RNR: tells the requester, once, that there is a receive now. */
void responder_hint(struct soft_qp *qp);
/* A free response slot; else asks to be told. 1, 0, or -EPROTO. */
int responder_slot(struct soft_qp *qp, struct wire *wire);

void responder_finish(struct soft_qp *qp);

/* --- pull.c ------------------------------------------------------------------------------------------------------------ */
#define PULL_MIN ((16u << 10) + 1) /* shorter SENDs are not fetched, unless VERBSD_ENGINE says so */
/* Begins to time the WR, if it may go as a descriptor that names its memory, or in chunks, as ways_next() says (sq lock). */
void pull_choose(struct soft_qp *qp, const struct wire *wire, struct swqe *w);
/* The WR goes as such a descriptor (sq lock). */
bool pull_is_for(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w);
/* VERBSD_ENGINE wants it whatever the length, as far as a descriptor has no room for the message. */
bool pull_is_forced(void);
/* The receiver's: whether it fetches at all what comes by @wire; else why not goes back (rq lock). */
bool pull_begin(struct soft_qp *qp, struct wire *wire);
/* Whether this turn begins with another one. */
bool pull_may_begin(const struct soft_qp *qp);
/* Goes on with it (both locks). 1: requests may be served; 0: out of budget; -EPROTO. */
int pull_run(struct soft_qp *qp, struct wire *wire);

/* --- sge.c ------------------------------------------------------------------------------------------------------------ */
/* Copy @n bytes from byte @off of a message on to or from @buf. 0 or what mr_ref() and the copy said. */
int sge_gather(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off, void *buf, size_t n);
int sge_scatter(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off, const void *buf,
		size_t n);
/* To the receive that was taken. */
int sge_receive(struct soft_qp *qp, uint64_t off, const void *buf, size_t n);
/* The same to program memory, with its rules. */
int sge_gather_across(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off, void *program,
		      size_t n);
/* Whether all of it may be used with @access. */
int sge_check(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, unsigned access);
/* Payload of a WR, inline or not. */
int swqe_gather(struct soft_qp *qp, const struct swqe *w, uint64_t off, void *buf, size_t n);

/* --- engines.c (sq lock) ------------------------------------------------------------------------------------------------ */
enum engine_result {
	ENGINE_NO,	/* not for this WR, or it failed: the lane */
	ENGINE_DONE,	/* all of it is done */
	ENGINE_MORE,	/* one slice more is done; go on with the next turn */
	ENGINE_FAILED,	/* of this side's own fault, and noted */
	ENGINE_PASS,	/* among engines: not for this one, ask the next */
};
/* @budget: bytes that may still be copied in this turn. */
enum engine_result engine_run(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget);
/* How a receiver fetches what was sent by @pair. @mine: this end; else the other one, as far as is known here. */
enum engine_pull { PULL_NONE, PULL_COPY, PULL_CMA };
enum engine_pull engine_pull(const struct pair *pair, bool mine);
/* VERBSD_ENGINE lets some pair do it; it names one engine. */
bool engine_pulls(void);
bool engine_is_forced(void);
/* What became of a copy: some errors are for good. */
void engine_cma_over(struct pair *pair, int err);
/* What an initiator may be able to run. */
bool engine_is_for(const struct swqe *w);
/* Which one is the first to be asked for a WR, of those that quick_engine.c knows. */
enum engine_kind { ENGINE_OTHER, ENGINE_MAP, ENGINE_CMA };
enum engine_kind engine_of(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w);
/* All of @w by cma, between @mine and the peer's memory, both held by a hazard. False: the lane. */
bool engine_cma(struct wire *wire, const struct swqe *w, void *mine, uint64_t remote);
/* The WR would be run here if it were its turn, and what is before it took the lane only for want of a grant. */
bool engine_awaits_turn(struct soft_qp *qp, struct wire *wire, const struct swqe *w);

/* --- datagram.c, datagram_recv.c ------------------------------------------------------------------------------------------ */
/* Sends a WR of a UD QP. 1: it is done; 0: suspended; negative: a local error, as of mr_ref(). */
int datagram_send(struct soft_qp *qp, struct swqe *w);
/* No longer waits for any datagram wire. */
void datagram_forget(struct soft_qp *qp);
/* Puts a datagram into a receive of @dst (no rq lock held), or drops it. @payload: after a GRH where VSD_F_GRH says so. */
void datagram_deliver(struct soft_qp *dst, const struct vsd_req *head, const uint8_t *payload);
/* Space in the wire: those who wait for it go on. */
void datagram_wake(struct wire *wire);

/* --- td_share.c ------------------------------------------------------------------------------------------------------------- */
/*
 * A new QP: its thread domain stands for its locks, if it does for those of all that it uses. If not, what it uses
 * loses its elision, and all that hangs together with it.
 */
void qp_elide(struct soft_qp *qp);
/* The CQ of an XRC SRQ: legs complete there, which are of no domain. */
void td_share_cq(struct soft_cq *cq);

/* --- srq.c ------------------------------------------------------------------------------------------------------------------ */
/* The QP answered RNR: it is told when a receive comes. False: there is one now. */
bool srq_starve(struct soft_srq *srq, struct soft_qp *qp);
void srq_forget(struct soft_srq *srq, struct soft_qp *qp);

#endif
