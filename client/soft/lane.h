/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slots of lanes, for those who look at them all the time: wire.c, the polls and the common case (quick.c).
 */
#ifndef SOFT_LANE_H
#define SOFT_LANE_H

#include "client/soft/in_piece.h"
#include "client/soft/rt_private.h"
#include "client/soft/wire.h"

#define LANE_RW_BASE sizeof(((struct vsd_req *)0)->rw.data)
#define LANE_MORE sizeof(((struct vsd_req_more *)0)->data)

/* @n is a power of two: each poll asks for two tags, and a division takes its time. */
static inline uint32_t lane_tag(uint64_t pos, uint32_t n)
{
	return (uint32_t)(pos >> __builtin_ctz(n)) + 1;
}

/* Positions are written under a lock, and looked at without it by the runtime, to see if a service is worth its locks. */
static inline uint64_t lane_pos(const uint64_t *pos)
{
	return __atomic_load_n(pos, __ATOMIC_RELAXED);
}

static inline void lane_pos_set(uint64_t *pos, uint64_t value)
{
	__atomic_store_n(pos, value, __ATOMIC_RELAXED);
}

static inline void *lane_out_slot(const struct lane_out *lane, uint64_t pos)
{
	return lane->slots + (pos & (lane->n - 1)) * VSD_LINE;
}

static inline const void *lane_in_slot(const struct lane_in *lane, uint64_t pos)
{
	return lane->slots + (pos & (lane->n - 1)) * VSD_LINE;
}

static inline bool lane_in_valid(const struct lane_in *lane, uint64_t pos)
{
	const _Atomic uint32_t *tag = lane_in_slot(lane, pos);

	return atomic_load_explicit(tag, memory_order_acquire) == lane_tag(pos, lane->n);
}

/* The slot at lane->pos: its place and its tag are one word, so that who only looks sees the two that belong together. */
static inline bool lane_in_next(const struct lane_in *lane)
{
	uint64_t next = lane_pos(&lane->next);
	const _Atomic uint32_t *tag = (const void *)(lane->slots + (next >> 32));

	return atomic_load_explicit(tag, memory_order_acquire) == (uint32_t)next;
}

static inline void lane_in_move(struct lane_in *lane, uint64_t pos)
{
	uint64_t offset = (pos & (lane->n - 1)) * VSD_LINE;

	lane_pos_set(&lane->next, offset << 32 | lane_tag(pos, lane->n));
	lane_pos_set(&lane->pos, pos);
}

/* To be written soon, and the peer has it: it comes while other things are done. A hint, whatever stands there. */
static inline void line_own(const void *line)
{
#ifdef __x86_64__
	/* The builtin asks for a copy, unless the compiler may assume a processor younger than the first of them. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* What a peer gave back while somebody waits for it. */
static inline bool wire_space_pending(const struct wire *wire)
{
	const struct vsd_half *theirs = wire->theirs;

	if (!atomic_load_explicit(&wire->want, memory_order_relaxed) &&
	    !atomic_load_explicit(&wire->pair->priv->waiting, memory_order_relaxed))
		return false;
	return atomic_load_explicit(&theirs->req_taken, memory_order_relaxed) != lane_pos(&wire->req_out.taken) ||
	       atomic_load_explicit(&theirs->resp_taken, memory_order_relaxed) != lane_pos(&wire->resp_out.taken);
}

/*
 * The peer has not taken, or not said that it took, all that it was sent. It publishes what it took together with what it
 * acknowledges.
 */
static inline bool wire_untaken(const struct wire *wire)
{
	return lane_pos(&wire->req_out.pos) != atomic_load_explicit(&wire->theirs->req_taken, memory_order_acquire) ||
	       atomic_load_explicit(&wire->theirs->acked, memory_order_relaxed) !=
		       atomic_load_explicit(&wire->seen_acked, memory_order_relaxed);
}

/* True when the peer left something in the wire that was not looked at. */
IN_PIECE bool wire_pending(const struct wire *wire)
{
	const struct vsd_half *theirs = wire->theirs;
	uint64_t changed = (atomic_load_explicit(&theirs->acked, memory_order_relaxed) ^
				   atomic_load_explicit(&wire->seen_acked, memory_order_relaxed)) |
			   (atomic_load_explicit(&theirs->recvs, memory_order_relaxed) ^
				   atomic_load_explicit(&wire->seen_recvs, memory_order_relaxed));

	if (atomic_load_explicit(&theirs->state, memory_order_relaxed) !=
	    atomic_load_explicit(&wire->seen_state, memory_order_relaxed))
		return true;
	if (!wire_is_open(wire))
		return false;
	return changed || lane_in_next(&wire->req_in) || lane_in_next(&wire->resp_in) || wire_space_pending(wire);
}

#endif
