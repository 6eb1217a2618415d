/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues and completion channels. Whether a completion fires is decided here, under the CQ's lock, when
 * the CQE is queued. channel->fd is a semaphore eventfd that only this process writes, one count per queued event.
 */
#ifndef SOFT_CQ_H
#define SOFT_CQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/soft/in_piece.h"
#include "client/soft/lock.h"
#include "client/soft/objects.h"

struct soft_qp;
struct soft_srq;

#define SOFT_CQ_TIMESTAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

struct soft_cqe {
	struct ibv_wc wc;
	uint64_t timestamp;	/* ns, CLOCK_MONOTONIC_RAW: taken when queued */
	const void *of;		/* for purging: the QP, or the XRC SRQ */
	bool solicited;
	/* Of a send: a place in the SQ is free again when the program has read the CQE (or it was dropped). */
	_Atomic uint64_t *freed;
	union {
		uint64_t freed_to;
		uint64_t tag; /* of a receive that was matched; wc.src_qp is what else its sender said */
	};
};

/* The program has what was completed, and @freed, unless NULL, says so. */
static inline void soft_freed(_Atomic uint64_t *freed, uint64_t freed_to)
{
	if (freed)
		atomic_store_explicit(freed, freed_to, memory_order_release);
}

/* The CQE leaves the ring (CQ lock held). */
static inline void soft_cqe_taken(const struct soft_cqe *cqe)
{
	soft_freed(cqe->freed, cqe->freed_to);
}

struct soft_channel {
	struct ibv_comp_channel channel;
	struct soft_lock lock;
	struct soft_cq *head, **tail; /* CQs with undelivered events */
	struct soft_context *ctx;
	_Atomic unsigned users;
};

struct soft_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	} v;
	struct soft_context *ctx;
	struct soft_channel *channel;
	struct soft_pd *parent_domain;
	uint32_t handle; /* the daemon's */
	_Atomic unsigned users;
	struct soft_lock lock;
	struct soft_cqe *ring;
	uint32_t size, head, tail; /* size: a power of two, cqe and above */
	_Atomic uint32_t count;	   /* CQEs in it; written under the lock, looked at without it */
	_Atomic int armed; /* 0, 1: next, 2: next solicited; with overrun: written under the lock */
	_Atomic bool overrun;
	bool ignore_overrun;
	/*
	 * A thread that makes progress in its poll has what completes meanwhile handed to it, while the ring is empty. These
	 * are that thread's, which is set only inside the poll; @target_cqe, or up to @target_max of @target_wc.
	 */
	_Atomic(void *) target_thread;
	struct ibv_wc *target_wc;
	struct soft_cqe *target_cqe;
	int target_n, target_max;
	_Atomic unsigned events; /* delivered, not yet acknowledged */
	unsigned queued;	 /* waiting in the channel */
	struct soft_cq *event_next, **event_prev;
	uint64_t wc_flags;
	/* of start_poll(): */
	struct soft_lock poll_lock; /* held until end_poll(); outermost */
	bool single;		    /* one thread polls at a time: without that */
	struct soft_cqe current;
};

static inline struct soft_cq *soft_cq_of(struct ibv_cq *cq)
{
	return soft_container(cq, struct soft_cq, v.cq);
}

int soft_cq_init(struct soft_cq *cq, uint32_t cqe, bool single_threaded);
void soft_cq_deinit(struct soft_cq *cq);
int soft_cq_resize(struct soft_cq *cq, uint32_t cqe);
/* Fills the cq_ex poll and read_* pointers for @wc_flags. -EOPNOTSUPP: an unknown flag. */
int soft_cq_fill_ex(struct soft_cq *cq, uint64_t wc_flags);
/*
 * Queues a CQE; on overrun the CQ goes into error: IBV_EVENT_CQ_ERR, later polls find nothing new. False: it is lost, and its
 * QP cannot go on.
 */
bool soft_cq_push(struct soft_cq *cq, const struct soft_cqe *cqe);
/* This thread polls it just now, has room for one more, and nothing is before it. */
static inline bool soft_cq_is_target(const struct soft_cq *cq)
{
	return atomic_load_explicit(&cq->target_thread, memory_order_relaxed) == __builtin_thread_pointer() &&
	       cq->target_n != cq->target_max && !atomic_load_explicit(&cq->count, memory_order_relaxed) &&
	       !atomic_load_explicit(&cq->armed, memory_order_relaxed) &&
	       !atomic_load_explicit(&cq->overrun, memory_order_relaxed);
}

/*
 * soft_cq_push() in two steps, for who completes often: a completion is written where it goes, each field once
 * (soft_wc_fill()). One that is put together somewhere and then copied is read in wider pieces than it was written in, and
 * processors wait for each of those until what was written has left for the cache: three times a message.
 */
struct soft_cq_place {
	struct ibv_wc *wc;
	struct soft_cqe *cqe; /* it is the wc of this one; NULL: the program's array of struct ibv_wc */
	bool queued;	      /* in the ring, and the CQ is locked; else this thread polls it just now */
};

/* A place in the ring, and the CQ is locked; NULL: overrun, and it is not. */
struct soft_cqe *soft_cq_queue(struct soft_cq *cq);
/* It is filled in, and the CQ is unlocked. */
void soft_cq_queued(struct soft_cq *cq, struct soft_cqe *cqe);
/* What a CQE has that was not known before: when it came. */
void soft_cqe_stamp(struct soft_cqe *cqe);

/* False: it is lost. True: all of the place is to be filled in, but @cqe's timestamp; then comes soft_cq_end(). */
IN_PIECE bool soft_cq_begin(struct soft_cq *cq, struct soft_cq_place *at)
{
	at->queued = !soft_cq_is_target(cq);
	at->cqe = at->queued ? soft_cq_queue(cq) : cq->target_cqe;
	if (at->cqe)
		at->wc = &at->cqe->wc;
	else
		at->wc = at->queued ? NULL : &cq->target_wc[cq->target_n];
	return at->wc;
}

/* @freed, unless NULL: see struct soft_cqe. */
IN_PIECE void soft_cq_end(struct soft_cq *cq, const struct soft_cq_place *at, const void *of, bool solicited,
			  _Atomic uint64_t *freed, uint64_t freed_to)
{
	if (at->cqe) {
		at->cqe->of = of;
		at->cqe->solicited = solicited;
		at->cqe->freed = freed;
		at->cqe->freed_to = freed_to;
	}
	if (at->queued) {
		soft_cq_queued(cq, at->cqe);
		return;
	}
	if (at->cqe && cq->wc_flags & SOFT_CQ_TIMESTAMPS)
		soft_cqe_stamp(at->cqe);
	cq->target_n++;
	soft_freed(freed, freed_to);
}

/* As it was written: see above. */
static inline void soft_wc_copy(struct ibv_wc *to, const struct ibv_wc *from)
{
	to->wr_id = __atomic_load_n(&from->wr_id, __ATOMIC_RELAXED);
	to->status = __atomic_load_n(&from->status, __ATOMIC_RELAXED);
	to->opcode = __atomic_load_n(&from->opcode, __ATOMIC_RELAXED);
	to->vendor_err = __atomic_load_n(&from->vendor_err, __ATOMIC_RELAXED);
	to->byte_len = __atomic_load_n(&from->byte_len, __ATOMIC_RELAXED);
	to->imm_data = __atomic_load_n(&from->imm_data, __ATOMIC_RELAXED);
	to->qp_num = __atomic_load_n(&from->qp_num, __ATOMIC_RELAXED);
	to->src_qp = __atomic_load_n(&from->src_qp, __ATOMIC_RELAXED);
	to->wc_flags = __atomic_load_n(&from->wc_flags, __ATOMIC_RELAXED);
	to->pkey_index = __atomic_load_n(&from->pkey_index, __ATOMIC_RELAXED);
	to->slid = __atomic_load_n(&from->slid, __ATOMIC_RELAXED);
	to->sl = __atomic_load_n(&from->sl, __ATOMIC_RELAXED);
	to->dlid_path_bits = __atomic_load_n(&from->dlid_path_bits, __ATOMIC_RELAXED);
}

/* All of a completion, but of a datagram. */
IN_PIECE void soft_wc_fill(struct ibv_wc *wc, uint64_t wr_id, enum ibv_wc_status status, enum ibv_wc_opcode opcode,
			   uint32_t byte_len, uint32_t qp_num)
{
	wc->wr_id = wr_id;
	wc->status = status;
	wc->opcode = opcode;
	wc->vendor_err = status;
	wc->byte_len = byte_len;
	wc->imm_data = 0;
	wc->qp_num = qp_num;
	wc->src_qp = 0;
	wc->wc_flags = 0;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
}

/* Drops the unread CQEs of a QP (RESET, destroy), or of an XRC SRQ. */
void soft_cq_purge(struct soft_cq *cq, const void *of);

int soft_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);

int soft_channel_init(struct soft_channel *channel);
void soft_channel_deinit(struct soft_channel *channel);
/* ibv_get_cq_event() for our channels; ibv_ack_cq_events(); destroying a CQ waits for acknowledgements. */
int soft_channel_get(struct soft_channel *channel, struct ibv_cq **cq, void **cq_context);
void soft_cq_ack(struct soft_cq *cq, unsigned n);
void soft_cq_drain_events(struct soft_cq *cq);

#endif
