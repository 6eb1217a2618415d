/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs (the segments shared with one peer process, and what we know of that peer) and wires (the queues of one QP
 * pair in them). Everything here is about lanes and lines; what the messages mean is the requester's and responder's.
 *
 * Locking: the req_out/resp_in/ack-in side of a wire belongs to the sq lock of its QP, the req_in/resp_out side to
 * its rq lock. Pools have a lock of their own inside pair.c.
 */
#ifndef SOFT_WIRE_H
#define SOFT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ring_abi.h"

struct hot_set;
struct map_grant;
struct soft_qp;
struct soft_td;

enum pool_kind { POOL_REQ, POOL_RESP };

struct pair {
	uint32_t segment; /* 0: loopback, memory of this process's own */
	uint32_t peer;	  /* peer id */
	unsigned side;
	uint32_t engines; /* EngineRight, as the daemon allows; bits are cleared when an engine failed */
	struct vsd_segment *mem;
	const struct vsd_page *page; /* the peer's, read-only; our own for loopback */
	int pidfd, kick;	     /* the peer's; -1 for loopback */
	pid_t pid;		     /* of the peer as seen here through the pidfd, 0: not visible, no cma */
	_Atomic bool dead;
	_Atomic bool no_pull;	     /* it cannot fetch what we send */
	/* the rest is private to pair.c and rt.c */
	struct pair_private *priv;
};

struct lane_out {
	uint8_t *slots;	 /* in my half */
	uint32_t n;	 /* power of two */
	uint64_t pos;	 /* next slot to write */
	uint64_t taken;	 /* as the peer published it, checked: never ahead of pos, never back */
	int16_t *chunks; /* chunk held by each slot, -1: none; freed when taken passes it */
	unsigned held;	 /* chunks in it */
};

struct lane_in {
	const uint8_t *slots; /* in the peer's half */
	uint32_t n;
	uint64_t pos;  /* next slot to read */
	uint64_t next; /* where that is in slots, and the tag that it will have (lane.h) */
};

/* Bytes of a key of the peer's that are mapped, present, and may be accessed, as long as the hazard lasts in which that was seen. */
struct map_window {
	uint64_t from, length; /* by the key's addresses; length 0: none */
	unsigned access;
	uint8_t *at; /* where the first one is here */
};

/*
 * A key of the peer's that the map engine used last, and what was found right of it: as long as entry and gate have these
 * generations, which never come again, it is.
 */
struct wire_view {
	uint32_t key;
	unsigned access;      /* that both allow */
	uint64_t entry, gate; /* entry 0: none yet */
	uint64_t iova, length;
	_Atomic(struct map_grant *) *place; /* of its grant, which may be another by now */
	uint64_t grant;			    /* the grant that `window` is of, by its number; 0: none yet */
	struct map_window window;	    /* used last */
};

struct wire {
	struct pair *pair;
	uint32_t index, gen;
	uint8_t kind; /* Vsd__WireKind */
	bool peer_open;	  /* the peer's half said OPEN with our generation */
	bool peer_closed; /* it said CLOSED, or the daemon said so: requests are not answered any more */
	_Atomic bool broken; /* the peer wrote nonsense, or is dead */
	uint32_t local_qpn, peer_qpn, peer_rq_psn;
	int64_t resets; /* of the local QP when the daemon made the wire; -1: it does not say */
	struct vsd_half *mine;
	const struct vsd_half *theirs;
	_Atomic(struct wire *) other; /* loopback: the other end */
	unsigned far;	    /* the side whose pools it reads */
	struct lane_out req_out, resp_out;
	struct lane_in req_in, resp_in;
	_Atomic(struct soft_qp *) qp; /* NULL: datagram wire */
	/* private to the runtime */
	_Atomic uint64_t seen_state; /* the peer's half state at the last wire_look() */
	_Atomic uint64_t seen_acked; /* theirs->acked as of the last wire_acked_done() */
	_Atomic uint32_t seen_recvs;
	unsigned idle, tries;
	uint64_t came_then; /* what had come by it when it became hot (hot.c) */
	struct hot_set *set;	      /* the process's, or that of its domain: as @td */
	_Atomic(struct soft_td *) td; /* of its QP; changes with the domain parked, under the progress lock */
	unsigned word;		      /* of the domain, with its bit */
	int hazard; /* the pair's slot that it keeps, -1: none (sq lock) */
	struct wire_view view; /* (sq lock) */
	/*
	 * What was published without a barrier before the look at the peer: acknowledgements (rq lock), posts (sq lock); and as
	 * many of both as a look came after.
	 */
	_Atomic uint32_t acks, posts, looked;
	uint64_t kept_to;	/* messages before it are in order (order.h, rq lock) */
	_Atomic unsigned want;	/* WIRE_WANT_* bits set in mine->want_space */
	_Atomic bool released;
	_Atomic bool hot;	/* in the hot set (loopback: or on its way there) */
	_Atomic bool watched;
	uint64_t watch_pos, watch_since;
	uint64_t tick_req, tick_resp, tick_acked;
	bool tick_pending;
	struct wire *ready_next, *watch_next, *garbage_next;
	void *owner;	    /* of a datagram wire: struct datagram_peer */
	uint32_t src_range; /* of a datagram wire: the last range of sources that was the peer's, plus 1 */
};

/* Whether the peer is of this process's domain. */
bool pair_is_kin(const struct pair *pair);
/* Whatever its pid gave until now was the peer's: its liveness word is marked before its memory goes. */
bool pair_is_alive(const struct pair *pair);
/* Both ends are one QP, connected to itself: the wire reads what it wrote. Before its first use. */
void wire_fold(struct wire *wire);
static inline bool wire_is_folded(const struct wire *wire)
{
	return wire->mine == wire->theirs;
}

/* What is noted, and looked at, without the QP's locks. */
static inline bool wire_is_open(const struct wire *wire)
{
	return __atomic_load_n(&wire->peer_open, __ATOMIC_RELAXED);
}

static inline bool wire_is_closed(const struct wire *wire)
{
	return __atomic_load_n(&wire->peer_closed, __ATOMIC_RELAXED);
}

/* The peer's half state: updates peer_open and peer_closed. */
void wire_look(struct wire *wire);

/* --- producer, requests (sq lock) ------------------------------------------------------------------------------- */
/* Free slots of the lane, after a look at what the peer took; frees the chunks of what was taken. -EPROTO: nonsense. */
int wire_req_space(struct wire *wire);
/* Stores @head (tag is filled in here) with @head->slots slots; inline payload is gathered from @payload by the caller
 * into one buffer of @head->len bytes (NULL with VSD_F_CHUNK). The head's tag is stored last. @chunk -1: none. */
void wire_req_put(struct wire *wire, const struct vsd_req *head, const void *payload, int chunk);
/* Slots that an inline payload of @len takes, given where inline data starts in this kind of head; 0: does not fit. */
unsigned wire_req_slots(const struct wire *wire, const struct vsd_req *head, size_t len);

/* --- consumer, requests (rq lock) -------------------------------------------------------------------------------- */
/* 1: *@head is a validated copy (slots within the lane, len fits slots or chunk, chunk in range); 0: nothing there;
 * -EPROTO: nonsense. Does not consume. */
int wire_req_peek(struct wire *wire, struct vsd_req *head);
/* Copies the inline payload of the peeked request out (at most VSD_INLINE_RW bytes), or returns the chunk's address. */
const void *wire_req_payload(struct wire *wire, const struct vsd_req *head, void *buf);
void wire_req_consume(struct wire *wire, const struct vsd_req *head);

/* --- producer, responses (rq lock) ------------------------------------------------------------------------------- */
int wire_resp_space(struct wire *wire);
void wire_resp_put(struct wire *wire, const struct vsd_resp *resp, int chunk);

/* --- consumer, responses (sq lock) --------------------------------------------------------------------------------- */
int wire_resp_peek(struct wire *wire, struct vsd_resp *resp);
const void *wire_resp_payload(struct wire *wire, const struct vsd_resp *resp);
void wire_resp_consume(struct wire *wire);

/* --- acknowledgements -------------------------------------------------------------------------------------------- */
/* Publishes req_in.pos and the count of the peer's completed messages (rq lock). */
void wire_ack(struct wire *wire, uint64_t acked);
/* Publishes resp_in.pos (sq lock). */
void wire_resp_ack(struct wire *wire);
/* What the peer has acknowledged (sq lock). The caller checks it against what it sent. */
uint64_t wire_acked(struct wire *wire);
/* All that is completed up to there: nobody needs to look again. */
static inline void wire_acked_done(struct wire *wire, uint64_t acked)
{
	atomic_store_explicit(&wire->seen_acked, acked, memory_order_release);
}

/* --- space and notice -------------------------------------------------------------------------------------------- */
/* "Tell me when there is space": sets my want flag with a full barrier; the caller must look at the space again. */
enum { WIRE_WANT_REQ = 1, WIRE_WANT_RESP = 2 };
void wire_want_space(struct wire *wire, unsigned want);
/* Nobody waits for that any more. */
void wire_want_clear(struct wire *wire, unsigned want);
/* The full barrier of a post, then ready bit and kick where they are due. Call once after a batch; no lock needed,
 * may be called under sq or rq lock. Loopback: puts the other end's wire into the hot set. */
void wire_notify(struct wire *wire);
/*
 * The same where threads of this process poll, for an acknowledgement (rq lock), for messages (sq lock): a peer that seems awake
 * is looked at again, behind a barrier, with the next notice of this wire that has one, the next poll, or the tick.
 */
void wire_notify_ack(struct wire *wire);
void wire_notify_post(struct wire *wire);
static inline uint32_t wire_published(const struct wire *wire)
{
	return atomic_load_explicit(&wire->acks, memory_order_acquire) + atomic_load_explicit(&wire->posts, memory_order_acquire);
}

static inline bool wire_owes_look(const struct wire *wire)
{
	return wire_published(wire) != atomic_load_explicit(&wire->looked, memory_order_relaxed);
}

static inline void wire_look_owed(struct wire *wire)
{
	if (wire_owes_look(wire))
		wire_notify(wire);
}

/* Like wire_notify(), only if the peer said that it waits for space (lane or pool). */
void wire_notify_space(struct wire *wire);
/* Kicks the peer's progress thread whether asleep or not: a descriptor stayed untaken for 50 µs. */
void wire_kick(struct wire *wire);

/* --- pools ------------------------------------------------------------------------------------------------------- */
/* A chunk of my pool, or -1: none; then the QP is remembered and rt_run_later()ed when one comes back. */
int pair_chunk_get(struct pair *pair, enum pool_kind kind, struct soft_qp *waiter);
void pair_chunk_put(struct pair *pair, enum pool_kind kind, int chunk);
/* Once a message is sent: the one after it may take a chunk for @n bytes, which is not taken yet. */
void pair_chunk_ahead(struct pair *pair, enum pool_kind kind, size_t n);
void *pair_chunk(struct pair *pair, enum pool_kind kind, int chunk);
void pair_forget_waiter(struct soft_qp *qp);

/* --- hazards: initiator-run engines (datapath.md 4) ---------------------------------------------------------------- */
/* Takes a slot and stores (key, peer qpn) with a full barrier; NULL when all are taken: use the lane. */
struct vsd_hazard *pair_hazard_enter(struct pair *pair, uint32_t key, uint32_t peer_qpn);
void pair_hazard_leave(struct pair *pair, struct vsd_hazard *hazard);
/*
 * The same for who runs an engine on a wire: its thread domain keeps a slot, if there are enough, and needs no other barrier.
 * @local: a slot of this process's table of keys, whose region is then held as well; NULL: none.
 */
struct vsd_hazard *wire_hazard_enter(struct wire *wire, uint32_t key, const void *local);
void wire_hazard_leave(struct wire *wire, struct vsd_hazard *hazard);
/* A slot that a domain kept; -1: none. */
void pair_hazard_give_back(struct pair *pair, int slot);
/* The owner's side: true when no live peer's slot names this key (key != 0) or QP (qpn != 0). */
bool pair_hazards_clear(uint32_t key, uint32_t qpn);
/* A thread of ours holds the region of that slot; after it was taken out with a full barrier. */
bool pair_local_named(const void *local);

/* Wire life, called by rt.c when the daemon says so; and by the QP when it lets go. */
void wire_close(struct wire *wire);   /* stores CLOSED in my half, tells the peer; sq and rq lock held */
void wire_release(struct wire *wire); /* the QP is done with it: frees it, WIRE_RELEASE to the daemon */

#endif
