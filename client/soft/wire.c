/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lanes of a wire: single producer, single consumer, the valid flag in the slot. Nothing that the peer can write is
 * trusted: positions and sizes are our own copies, a descriptor is copied out before it is checked, and a counter that
 * goes back, or ahead of what was sent, breaks the wire (-EPROTO) and nothing else.
 */
#include "client/soft/wire.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/in_piece.h"
#include "client/soft/lane.h"
#include "client/soft/order.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"

#define RW_BASE LANE_RW_BASE
#define UD_BASE sizeof(((struct vsd_req *)0)->ud.data)
#define MORE LANE_MORE

static int wire_break(struct wire *wire, const char *what)
{
	if (!wire->broken)
		control_debug("wire %u of segment %u is broken: %s", wire->index, wire->pair->segment, what);
	wire->broken = true;
	return -EPROTO;
}

void wire_look(struct wire *wire)
{
	uint64_t state = atomic_load_explicit(&wire->theirs->state, memory_order_acquire);

	if (state == atomic_load_explicit(&wire->seen_state, memory_order_relaxed))
		return;
	atomic_store_explicit(&wire->seen_state, state, memory_order_relaxed);
	if (state >> 2 != wire->gen)
		return;
	/* What it sent before it closed is still to be read. */
	if ((state & 3) == VSD_HALF_CLOSED)
		__atomic_store_n(&wire->peer_closed, true, __ATOMIC_RELAXED);
	if ((state & 3) != VSD_HALF_NONE)
		__atomic_store_n(&wire->peer_open, true, __ATOMIC_RELAXED);
}

void wire_fold(struct wire *wire)
{
	wire->theirs = wire->mine;
	wire->far = wire->pair->side;
	wire->req_in.slots = wire->req_out.slots;
	wire->resp_in.slots = wire->resp_out.slots;
}

/* The peer's half may be looked at. */
static bool peer_half(struct wire *wire)
{
	if (wire_is_open(wire))
		return true;
	wire_look(wire);
	return wire_is_open(wire);
}

/* --- producer ---------------------------------------------------------------------------------------------------- */

static int lane_space(struct wire *wire, struct lane_out *lane, enum pool_kind kind, const _Atomic uint64_t *published)
{
	uint64_t taken;

	if (wire->broken)
		return -EPROTO;
	if (!peer_half(wire))
		return 0;
	/* Plenty left: do not touch the line that the peer writes. */
	if (!lane->held && lane->pos - lane->taken <= lane->n / 2 && lane->n >= 16)
		return (int)(lane->n - (lane->pos - lane->taken));
	taken = atomic_load_explicit(published, memory_order_acquire);
	if (taken < lane->taken || taken > lane->pos)
		return wire_break(wire, "taken slots out of range");
	if (taken != lane->taken) {
		if (lane->held)
			pool_release(wire->pair, kind, lane, taken);
		lane_pos_set(&lane->taken, taken);
	}
	return (int)(lane->n - (lane->pos - taken));
}

static void lane_chunk(struct lane_out *lane, uint64_t pos, int chunk)
{
	lane->chunks[pos & (lane->n - 1)] = (int16_t)chunk;
	if (chunk >= 0)
		lane->held++;
}

int wire_req_space(struct wire *wire)
{
	return lane_space(wire, &wire->req_out, POOL_REQ, &wire->theirs->req_taken);
}

/*
 * Whoever looks takes note of what the peer took, and then nothing is left that would say so to what waits for space: it
 * may have looked a moment before. So it is said here.
 */
int wire_resp_space(struct wire *wire)
{
	uint64_t before = wire->resp_out.taken;
	int space = lane_space(wire, &wire->resp_out, POOL_RESP, &wire->theirs->resp_taken);
	struct soft_qp *qp = atomic_load_explicit(&wire->qp, memory_order_relaxed);

	if (wire->resp_out.taken != before && qp && atomic_load_explicit(&wire->want, memory_order_relaxed) & WIRE_WANT_RESP)
		qp_again(qp);
	return space;
}

static size_t inline_base(const struct vsd_req *head)
{
	return head->op == VSD_REQ_DATAGRAM ? UD_BASE : RW_BASE;
}

static bool has_payload(const struct vsd_req *head)
{
	return head->op == VSD_REQ_SEND || head->op == VSD_REQ_WRITE || head->op == VSD_REQ_DATAGRAM ||
	       head->op == VSD_REQ_ATOMIC_WRITE;
}

static unsigned slots_of(const struct vsd_req *head, size_t len, uint32_t n)
{
	size_t base = inline_base(head), slots = 1;

	if (len > base)
		slots += (len - base + MORE - 1) / MORE;
	return slots > VSD_SPAN_MAX || slots > n ? 0 : (unsigned)slots;
}

unsigned wire_req_slots(const struct wire *wire, const struct vsd_req *head, size_t len)
{
	return slots_of(head, len, wire->req_out.n);
}

void wire_req_put(struct wire *wire, const struct vsd_req *head, const void *payload, int chunk)
{
	struct lane_out *lane = &wire->req_out;
	struct vsd_req *slot = lane_out_slot(lane, lane->pos), copy = *head;
	size_t base = inline_base(head), rest = 0;
	const uint8_t *from = payload;

	if (payload && head->len) {
		rest = head->len < base ? head->len : base;
		memcpy(head->op == VSD_REQ_DATAGRAM ? copy.ud.data : copy.rw.data, from, rest);
		from += rest;
		rest = head->len - rest;
	}
	for (unsigned i = 1; from && i < head->slots; i++) {
		struct vsd_req_more *more = lane_out_slot(lane, lane->pos + i);
		size_t part = rest < MORE ? rest : MORE;

		memcpy(more->data, from, part);
		from += part;
		rest -= part;
		atomic_store_explicit(&more->tag, lane_tag(lane->pos + i, lane->n), memory_order_relaxed);
		lane_chunk(lane, lane->pos + i, -1);
	}
	memcpy((uint8_t *)slot + sizeof(slot->tag), (uint8_t *)&copy + sizeof(copy.tag),
		VSD_LINE - sizeof(copy.tag));
	lane_chunk(lane, lane->pos, chunk);
	atomic_store_explicit(&slot->tag, lane_tag(lane->pos, lane->n), memory_order_release);
	lane_pos_set(&lane->pos, lane->pos + head->slots);
	wire_want_clear(wire, WIRE_WANT_REQ);
}

void wire_resp_put(struct wire *wire, const struct vsd_resp *resp, int chunk)
{
	struct lane_out *lane = &wire->resp_out;
	struct vsd_resp *slot = lane_out_slot(lane, lane->pos);

	memcpy((uint8_t *)slot + sizeof(slot->tag), (const uint8_t *)resp + sizeof(resp->tag),
		VSD_LINE - sizeof(resp->tag));
	lane_chunk(lane, lane->pos, chunk);
	atomic_store_explicit(&slot->tag, lane_tag(lane->pos, lane->n), memory_order_release);
	lane_pos_set(&lane->pos, lane->pos + 1);
	wire_want_clear(wire, WIRE_WANT_RESP);
}

/* --- consumer ---------------------------------------------------------------------------------------------------- */

/* What a request may be, whatever its meaning. */
static bool req_sane(const struct vsd_req *head, uint32_t n)
{
	if (head->op < VSD_REQ_SEND || head->op > VSD_REQ_PULL || head->slots == 0)
		return false;
	if (head->flags & VSD_F_CHUNK) {
		/* Both kinds have the chunk's number at the same place. */
		return has_payload(head) && head->slots == 1 && head->len <= VSD_CHUNK &&
		       head->rw.chunk < VSD_POOL_CHUNKS;
	}
	if (!has_payload(head))
		return head->slots == 1;
	return slots_of(head, head->len, n) == head->slots;
}

_Static_assert(offsetof(struct vsd_req, rw.chunk) == offsetof(struct vsd_req, ud.chunk), "one place");

int wire_req_peek(struct wire *wire, struct vsd_req *head)
{
	struct lane_in *lane = &wire->req_in;

	if (wire->broken)
		return -EPROTO;
	if (!peer_half(wire) || !lane_in_next(lane))
		return 0;
	memcpy(head, lane_in_slot(lane, lane->pos), sizeof(*head));
	if (!req_sane(head, lane->n))
		return wire_break(wire, "malformed request");
	for (unsigned i = 1; i < head->slots; i++)
		if (!lane_in_valid(lane, lane->pos + i))
			return wire_break(wire, "request with a slot missing");
	return 1;
}

const void *wire_req_payload(struct wire *wire, const struct vsd_req *head, void *buf)
{
	const struct lane_in *lane = &wire->req_in;
	size_t base = inline_base(head), part = head->len < base ? head->len : base, rest = head->len - part;
	uint8_t *to = buf;

	if (head->flags & VSD_F_CHUNK)
		return wire->pair->mem->pools[wire->far].req.chunks[head->rw.chunk];
	memcpy(to, head->op == VSD_REQ_DATAGRAM ? head->ud.data : head->rw.data, part);
	for (unsigned i = 1; i < head->slots; i++) {
		const struct vsd_req_more *more = lane_in_slot(lane, lane->pos + i);

		to += part;
		part = rest < MORE ? rest : MORE;
		memcpy(to, more->data, part);
		rest -= part;
	}
	return buf;
}

void wire_req_consume(struct wire *wire, const struct vsd_req *head)
{
	lane_in_move(&wire->req_in, wire->req_in.pos + head->slots);
}

int wire_resp_peek(struct wire *wire, struct vsd_resp *resp)
{
	struct lane_in *lane = &wire->resp_in;

	if (wire->broken)
		return -EPROTO;
	if (!peer_half(wire) || !lane_in_next(lane))
		return 0;
	memcpy(resp, lane_in_slot(lane, lane->pos), sizeof(*resp));
	if (resp->op < VSD_RESP_READ || resp->op > VSD_RESP_STAGE)
		return wire_break(wire, "unknown response");
	if (resp->op == VSD_RESP_READ) {
		if (resp->flags & VSD_F_CHUNK ? resp->len > VSD_CHUNK || resp->chunk >= VSD_POOL_CHUNKS :
						resp->len > sizeof(resp->data))
			return wire_break(wire, "malformed response");
	} else if (resp->flags & VSD_F_CHUNK) {
		return wire_break(wire, "malformed response");
	}
	return 1;
}

const void *wire_resp_payload(struct wire *wire, const struct vsd_resp *resp)
{
	if (resp->flags & VSD_F_CHUNK)
		return wire->pair->mem->pools[wire->far].resp.chunks[resp->chunk];
	return resp->data;
}

void wire_resp_consume(struct wire *wire)
{
	lane_in_move(&wire->resp_in, wire->resp_in.pos + 1);
}

/* --- acknowledgements -------------------------------------------------------------------------------------------- */

void wire_ack(struct wire *wire, uint64_t acked)
{
	atomic_store_explicit(&wire->mine->acked, acked, memory_order_release);
	atomic_store_explicit(&wire->mine->req_taken, wire->req_in.pos, memory_order_release);
}

void wire_resp_ack(struct wire *wire)
{
	atomic_store_explicit(&wire->mine->resp_taken, wire->resp_in.pos, memory_order_release);
}

uint64_t wire_acked(struct wire *wire)
{
	if (!peer_half(wire))
		return 0;
	return atomic_load_explicit(&wire->theirs->acked, memory_order_acquire);
}

/* --- space and notice -------------------------------------------------------------------------------------------- */

void wire_want_space(struct wire *wire, unsigned want)
{
	want |= atomic_fetch_or(&wire->want, want);
	atomic_store(&wire->mine->want_space, want);
	atomic_thread_fence(memory_order_seq_cst);
}

void wire_want_clear(struct wire *wire, unsigned want)
{
	unsigned before = atomic_load_explicit(&wire->want, memory_order_relaxed);

	if (!(before & want))
		return;
	before = atomic_fetch_and(&wire->want, ~want);
	atomic_store_explicit(&wire->mine->want_space, before & ~want, memory_order_relaxed);
}

/*
 * A full pipe is a kick that was not read yet. Not write(): that is a cancellation point. The pipe of a process that is
 * gone has no reader: the SIGPIPE is this call's, and never the program's.
 */
static void write_kick(struct pair *pair)
{
	sigset_t sigpipe, old, before;
	char byte = 0;

	rt_count(VSD_COUNT_KICKS, 1);
	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &sigpipe, &old);
	sigpending(&before);
	if (syscall(SYS_write, pair->kick, &byte, sizeof(byte)) < 0 && errno == EPIPE &&
	    !sigismember(&before, SIGPIPE))
		syscall(SYS_rt_sigtimedwait, &sigpipe, NULL, &(struct timespec){ 0 }, (size_t)_NSIG / 8);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Sets the peer's ready bit. The bit is looked at first: while the peer polls this wire directly it stays set. */
static void mark_ready(struct pair *pair, uint32_t index)
{
	struct vsd_side *side = &pair->mem->sides[!pair->side];
	_Atomic uint64_t *word = &side->ready[index / 64];
	uint64_t bit = 1ull << (index % 64);

	if (atomic_load_explicit(word, memory_order_relaxed) & bit)
		return;
	atomic_fetch_or(word, bit);
	atomic_fetch_or(&side->summary, 1ull << (index / 64));
}

static void kick_if_asleep(struct pair *pair)
{
	uint64_t state = atomic_load_explicit(&pair->page->state, memory_order_relaxed);

	if (!(state & 1) || atomic_load_explicit(&pair->priv->kicked, memory_order_relaxed) == state)
		return;
	/* Written first, then remembered: another thread that posts relies on what is remembered. */
	write_kick(pair);
	atomic_store(&pair->priv->kicked, state);
}

/*
 * The usual case of notify(): the other process is awake and polls this wire, as this one does, and somebody looks at what
 * stays untaken.
 */
static inline bool is_told(const struct wire *wire)
{
	const struct pair *pair = wire->pair;
	uint64_t bit = 1ull << (wire->index % 64);

	return pair->segment && wire->mine != wire->theirs && atomic_load_explicit(&wire->hot, memory_order_relaxed) &&
	       (atomic_load_explicit(&pair->mem->sides[!pair->side].ready[wire->index / 64], memory_order_relaxed) & bit) &&
	       !(atomic_load_explicit(&pair->page->state, memory_order_relaxed) & 1) &&
	       (atomic_load_explicit(&wire->watched, memory_order_relaxed) ||
		       lane_pos(&wire->req_out.pos) == lane_pos(&wire->req_out.taken));
}

static void notify(struct wire *wire)
{
	struct pair *pair = wire->pair;

	if (wire_is_folded(wire)) {
		qp_again(wire->qp);
		return;
	}
	if (!pair->segment) {
		loop_mark(wire);
		if (!atomic_load_explicit(&wire->hot, memory_order_relaxed))
			order_await(wire);
		return;
	}
	mark_ready(pair, wire->index);
	kick_if_asleep(pair);
	if (!atomic_load_explicit(&wire->hot, memory_order_relaxed))
		order_await(wire);
	if (!atomic_load_explicit(&wire->watched, memory_order_relaxed) &&
	    lane_pos(&wire->req_out.pos) != lane_pos(&wire->req_out.taken))
		watch_add(wire);
}

void wire_notify(struct wire *wire)
{
	uint32_t published = wire_published(wire);

	/* What was published stands before the looks at the ready bit and at the peer's state (datapath: sleeping). */
	atomic_thread_fence(memory_order_seq_cst);
	if (!is_told(wire))
		notify(wire);
	/* Of two that look at the same time the slower one may say less than was looked at, and then somebody looks again. */
	if (published != atomic_load_explicit(&wire->looked, memory_order_relaxed))
		atomic_store_explicit(&wire->looked, published, memory_order_relaxed);
}

/*
 * The barrier would wait until the peer gives the line up, and so would whoever polled. Without it a peer that falls asleep just
 * now may seem awake: that is found by the look that comes later, with the tick at the latest. Where none comes it is now.
 */
IN_PIECE void notify_soon(struct wire *wire, _Atomic uint32_t *count)
{
	if (!atomic_load_explicit(&rt.polling, memory_order_relaxed) || !is_told(wire)) {
		wire_notify(wire);
		return;
	}
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_release);
	/* Another thread may have armed meanwhile, and found nothing owed. */
	if (__builtin_expect(!atomic_load_explicit(&rt.polling, memory_order_relaxed), 0))
		wire_notify(wire);
}

void wire_notify_ack(struct wire *wire)
{
	notify_soon(wire, &wire->acks);
}

/* For a domain's wire the tick would have to take the domain, if its owner did not poll. */
void wire_notify_post(struct wire *wire)
{
	if (atomic_load_explicit(&wire->td, memory_order_relaxed))
		wire_notify(wire);
	else
		notify_soon(wire, &wire->posts);
}

void wire_notify_space(struct wire *wire)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&wire->theirs->want_space, memory_order_relaxed) ||
	    atomic_load_explicit(&wire->pair->mem->sides[!wire->pair->side].want_pool, memory_order_relaxed))
		notify(wire);
}

void wire_kick(struct wire *wire)
{
	if (wire->pair->segment)
		write_kick(wire->pair);
	else
		sleep_wake();
}
