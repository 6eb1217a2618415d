/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case of longer SENDs: of three slots and more, and of one chunk. That they are what the state machines make of
 * them, at either end; what a hostile descriptor comes to; and that each chunk comes back, to whoever waits for it.
 */
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/lane.h"
#include "client/soft/quick.h"
#include "tests/unit/soft_kept.h"

#define SIZE  4096u /* the region, which nothing here is about */
#define PLACE 8192u /* where receives of one message begin in memory */
#define SLOTS ((uint32_t)VSD_INLINE_RW)
#define ALL   UINT64_MAX

static uint8_t memory[1u << 20];
static struct ibv_sge sge;
static struct ibv_send_wr wr;

static void setup(void)
{
	mapped_start(SIZE, memory, sizeof(memory));
	mapped_region(MAPPED_BASE, SIZE, LOOP_ACCESS);
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 13 + (i >> 8));
	/* The first message of all is not common. */
	ck_assert_int_eq(loop_recv(b, 1, local, memory + PLACE, 8), 0);
	ck_assert_int_eq(loop_send(a, 1, IBV_WR_SEND, local, memory, 8, NULL, NULL), 0);
	loop_expect(b_recv, 1, IBV_WC_SUCCESS);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
}

static void teardown(void)
{
	mapped_stop();
}

static struct pool_state *pool(const struct soft_qp *qp)
{
	return &wire_of(qp)->pair->priv->pools[POOL_REQ];
}

static uint64_t chunks_free(const struct soft_qp *qp)
{
	return atomic_load(&pool(qp)->free);
}

static void build(enum ibv_wr_opcode opcode, unsigned flags, uint32_t length)
{
	sge = (struct ibv_sge){ (uintptr_t)memory + 3, length, local->key };
	wr = (struct ibv_send_wr){
		.wr_id = 7,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.imm_data = 0x01020304,
	};
}

static void set_plain(struct soft_qp *qp, bool plain)
{
	bool inside = rt_enter();

	soft_lock(&qp->sq_lock);
	soft_lock(&qp->rq_lock);
	qp->priv->plain = plain;
	soft_unlock(&qp->rq_lock);
	soft_unlock(&qp->sq_lock);
	rt_leave(inside);
}

/* Its locks are free; the caller has the progress lock. */
static bool turn(struct soft_qp *qp, bool *did)
{
	bool whole;

	*did = false;
	soft_lock(&qp->sq_lock);
	soft_lock(&qp->rq_lock);
	whole = quick_turn(qp, wire_of(qp), did);
	soft_unlock(&qp->rq_lock);
	soft_unlock(&qp->sq_lock);
	return whole;
}

static bool posted(struct soft_qp *qp)
{
	bool whole;

	soft_lock(&qp->sq_lock);
	whole = quick_post(qp, &wr);
	soft_unlock(&qp->sq_lock);
	return whole;
}

/* --- a post --------------------------------------------------------------------------------------------------------------- */

/* What a post leaves, relative to what was there. */
struct left {
	struct swqe wqe;
	uint64_t head, tx, una, owners, started, msn, slots, payload_at;
	unsigned held;
	bool known, notify, restart;
	struct vsd_req slot;
	int16_t chunks[VSD_SPAN_MAX];
	uint8_t payload[VSD_CHUNK];
};

static void look(const struct requester *then, uint64_t pos, struct left *left)
{
	const struct requester *req = &a->priv->req;
	const struct swqe *w = swqe_at(&a->priv->req, then->head);
	struct wire *wire = wire_of(a);
	struct lane_out *lane = &wire->req_out;
	const struct vsd_req *slot = lane_out_slot(lane, pos);

	memset(left, 0, sizeof(*left));
	left->wqe.wr_id = w->wr_id;
	left->wqe.off = w->off;
	left->wqe.msn = w->msn - then->msn;
	left->wqe.imm = w->imm;
	left->wqe.length = w->length;
	left->wqe.n_sge = w->n_sge;
	left->wqe.opcode = w->opcode;
	left->wqe.state = w->state;
	left->wqe.flags = w->flags;
	left->head = req->head - then->head;
	left->tx = req->tx - then->head;
	left->una = req->una - then->una;
	left->owners = req->owners - then->head;
	left->started = req->started - then->head;
	left->msn = req->msn - then->msn;
	left->known = req->known;
	left->notify = req->notify;
	left->restart = req->restart;
	left->held = lane->held;
	left->slots = lane->pos - pos;
	left->slot.op = slot->op;
	left->slot.flags = slot->flags;
	left->slot.slots = slot->slots;
	left->slot.msn = slot->msn - (uint32_t)then->msn;
	left->slot.len = slot->len;
	left->slot.total = slot->total;
	left->slot.imm = slot->flags & VSD_F_IMM ? slot->imm : 0;
	ck_assert_uint_le(left->slots, VSD_SPAN_MAX);
	for (uint64_t i = 0; i < left->slots; i++) {
		const _Atomic uint32_t *tag = lane_out_slot(lane, pos + i);

		ck_assert_uint_eq(*tag, lane_tag(pos + i, lane->n));
		left->chunks[i] = lane->chunks[(pos + i) & (lane->n - 1)] >= 0;
	}
	if (slot->flags & VSD_F_CHUNK) {
		ck_assert_int_eq(lane->chunks[pos & (lane->n - 1)], (int)slot->rw.chunk);
		ck_assert(!(chunks_free(a) >> slot->rw.chunk & 1));
		memcpy(left->payload, pair_chunk(wire->pair, POOL_REQ, (int)slot->rw.chunk),
			slot->len);
	} else {
		size_t have = LANE_RW_BASE;

		memcpy(left->payload, slot->rw.data, have);
		for (uint64_t i = 1; i < left->slots; i++, have += LANE_MORE) {
			const struct vsd_req_more *more = lane_out_slot(lane, pos + i);

			memcpy(left->payload + have, more->data,
				slot->len - have < LANE_MORE ? slot->len - have : LANE_MORE);
		}
	}
}

static void post_and_look(bool quick, struct left *left)
{
	bool inside = rt_enter();
	struct requester then = a->priv->req;
	uint64_t pos = wire_of(a)->req_out.pos;
	struct ibv_send_wr *bad;

	if (quick) {
		ck_assert(posted(a));
	} else {
		set_plain(a, false);
		ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	}
	look(&then, pos, left);
	set_plain(a, true);
	rt_leave(inside);
}

/* A turn gives chunks back behind the completion: under the lock that it has. */
static unsigned held_of(struct soft_qp *qp)
{
	struct soft_td *td = soft_enter(&qp->sq_lock);
	unsigned held = wire_of(qp)->req_out.held;

	soft_leave(&qp->sq_lock, td);
	return held;
}

static void completed(enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_wc wc = loop_wait(b_recv);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, length);
	ck_assert_int_eq(wc.wc_flags, opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0);
	ck_assert_mem_eq(memory + (64u << 10) + 5, memory + 3, length);
	memset(memory + (64u << 10), 0, VSD_CHUNK + 64);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	ck_assert_uint_eq(held_of(a), 0);
	ck_assert_uint_eq(chunks_free(a), ALL);
}

static const uint32_t lengths[] = {
	LANE_RW_BASE + LANE_MORE + 1,
	LANE_RW_BASE + LANE_MORE + 8,
	LANE_RW_BASE + 2 * LANE_MORE,
	LANE_RW_BASE + 2 * LANE_MORE + 3,
	SLOTS - LANE_MORE,
	SLOTS - LANE_MORE + 1,
	SLOTS - 1,
	SLOTS,
	SLOTS + 1,
	4096,
	PULL_MIN - 2,
	PULL_MIN - 1,
};

START_TEST(a_post_leaves_what_the_general_way_does)
{
	static struct left quick, general;
	unsigned flags = (_i & 1 ? IBV_SEND_SOLICITED : 0) | (_i & 2 ? IBV_SEND_INLINE : 0) |
			 IBV_SEND_SIGNALED;
	enum ibv_wr_opcode opcode = _i & 4 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;

	for (int n = 0; n < COUNT_OF(lengths); n++) {
		if ((flags & IBV_SEND_INLINE) && lengths[n] > a->priv->req.max_inline)
			continue;
		build(opcode, flags, lengths[n]);
		for (unsigned i = 0; i < 2; i++) {
			ck_assert_int_eq(
				loop_recv(b, 4, local, memory + (64u << 10) + 5, VSD_CHUNK), 0);
			post_and_look(i == 0, i == 0 ? &quick : &general);
			completed(opcode, lengths[n]);
		}
		ck_assert_uint_eq(quick.held, lengths[n] > SLOTS);
		ck_assert_uint_eq(quick.tx, 1);
		ck_assert_mem_eq(&quick, &general, sizeof(quick));
	}
}
END_TEST

/* The peer is not ready: it is sent again, from the program's memory, by another chunk. */
START_TEST(a_refused_message_is_sent_again)
{
	uint64_t refused = loop_counter(VSD_COUNT_RNR);
	uint32_t length = _i ? 10000 : 200;

	build(IBV_WR_SEND, 0, length);
	ck_assert(posted(a));
	while (loop_counter(VSD_COUNT_RNR) < refused + 2) {
		struct ibv_wc wc;

		ck_assert_int_eq(soft_poll_cq(&a_send->v.cq, 1, &wc), 0);
	}
	ck_assert_int_eq(loop_recv(b, 4, local, memory + (64u << 10) + 5, VSD_CHUNK), 0);
	completed(IBV_WR_SEND, length);
}
END_TEST

/* More slots than the lane has: it takes a chunk, and the general way. */
START_TEST(a_short_lane_has_chunks)
{
	struct loop_options options = LOOP_OPTIONS;
	struct soft_qp *c, *d;

	options.send_cq = a_send;
	options.recv_cq = b_recv;
	c = loop_qp(&loop, &options);
	d = loop_qp(&loop, &options);
	loop_connect(&loop, c, d, 2, &options);
	for (unsigned i = 0; i < 20; i++) {
		uint32_t length = i % 2 ? 97 : SLOTS;

		memset(memory + PLACE, 0, SLOTS);
		ck_assert_int_eq(loop_recv(d, i, local, memory + PLACE, SLOTS), 0);
		ck_assert_int_eq(
			loop_send(c, 100 + i, IBV_WR_SEND, local, memory + i, length, NULL, NULL),
			0);
		loop_expect(b_recv, i, IBV_WC_SUCCESS);
		loop_expect(a_send, 100 + i, IBV_WC_SUCCESS);
		ck_assert_mem_eq(memory + PLACE, memory + i, length);
	}
	loop_qp_free(c);
	loop_qp_free(d);
}
END_TEST

SPOIL(longer, sge.length = PULL_MIN)
SPOIL(no_such_key, sge.lkey = 0xabcdef00)
SPOIL(over_the_end, sge.addr = (uintptr_t)memory + sizeof(memory) - 4095)
SPOIL(paged, local->access |= IBV_ACCESS_ON_DEMAND)
SPOIL(null, local->null = true)
SPOIL(progress_thread, atomic_store(&rt_progress_self, __builtin_thread_pointer()))
SPOIL(too_much_inline, wr.send_flags |= IBV_SEND_INLINE)
SPOIL(lane_full, wire->req_out.pos = wire->theirs->req_taken + MAPPED_SLOTS)
SPOIL(pool_empty, (void)req; atomic_store(&pool(a)->free, 0))
SPOIL(peer_lies, atomic_store(&pool(a)->free, 0); wire->req_out.held = 1; wire->req_out.taken += 2;
	wire->req_out.pos += 2)

static const struct {
	const char *name;
	void (*spoil)(struct swqe *w);
} post_spoils[] = {
#define ROW(name)                                                                                 \
	{                                                                                         \
#name, name                                                                       \
	}
	ROW(longer),
	ROW(no_such_key),
	ROW(over_the_end),
	ROW(paged),
	ROW(null),
	ROW(progress_thread),
	ROW(too_much_inline),
	ROW(lane_full),
	ROW(pool_empty),
	ROW(peer_lies),
};

START_TEST(a_post_that_is_not_common_takes_no_chunk)
{
	struct requester *req = &a->priv->req;
	struct wire *wire;
	uint64_t head, pos, free;

	build(IBV_WR_SEND, IBV_SEND_SIGNALED, 4096);
	kept_hold();
	wire = wire_of(a);
	kept_save();
	post_spoils[_i].spoil(NULL);
	head = req->head;
	pos = wire->req_out.pos;
	free = chunks_free(a);
	ck_assert_msg(!quick_post(a, &wr), "%s: taken", post_spoils[_i].name);
	ck_assert_uint_eq(req->head, head);
	ck_assert_uint_eq(req->tx, head);
	ck_assert_uint_eq(wire->req_out.pos, pos);
	ck_assert_uint_eq(chunks_free(a), free);
	ck_assert(!atomic_load(&wire->pair->priv->waiting));
	kept_put_right();
	atomic_store(&pool(a)->free, ALL);
	build(IBV_WR_SEND, IBV_SEND_SIGNALED, 4096);
	ck_assert_msg(quick_post(a, &wr), "%s: not even without", post_spoils[_i].name);
	kept_let_go();
	ck_assert_int_eq(loop_recv(b, 4, local, memory + (64u << 10) + 5, VSD_CHUNK), 0);
	completed(IBV_WR_SEND, 4096);
}
END_TEST

/* --- a turn --------------------------------------------------------------------------------------------------------------- */

/* What the peer writes is in its slots: behind its back here. */
#define LIE(name, statement)                                                                      \
	static void name(struct vsd_req *slot, uint64_t pos)                                      \
	{                                                                                         \
		(void)pos;                                                                        \
		statement;                                                                        \
	}

LIE(truth, (void)slot)
LIE(no_such_chunk, slot->rw.chunk = VSD_POOL_CHUNKS)
LIE(far_chunk, slot->rw.chunk = UINT32_MAX)
LIE(longer_than_a_chunk, slot->len = slot->total = VSD_CHUNK + 1)
LIE(longest, slot->len = slot->total = UINT32_MAX)
LIE(chunk_of_nothing, slot->len = slot->total = 0)
LIE(chunk_and_slots, slot->slots = 2)
LIE(no_slots, slot->slots = 0)
LIE(not_the_first, slot->flags &= (uint8_t)~VSD_F_FIRST)
LIE(not_the_last, slot->flags &= (uint8_t)~VSD_F_LAST)
LIE(part_of_more, slot->total++)
LIE(again, slot->flags |= VSD_F_RESTART)
LIE(that_invalidates, slot->flags |= VSD_F_INV)
LIE(with_a_header, slot->flags |= VSD_F_GRH)
LIE(another_message, slot->msn++)
LIE(a_write, slot->op = VSD_REQ_WRITE)
LIE(more_slots, slot->slots++)
LIE(fewer_slots, slot->slots--)
LIE(longer_than_slots, slot->len = slot->total = SLOTS + 1)
LIE(slots_and_a_chunk, slot->flags |= VSD_F_CHUNK)
LIE(last_slot_missing,
	((struct vsd_req_more *)lane_out_slot(&wire_of(a)->req_out, pos + slot->slots - 1u))
		->tag ^= 1)

static const struct {
	const char *name;
	uint32_t length; /* of what is sent */
	void (*lie)(struct vsd_req *slot, uint64_t pos);
} lies[] = {
#define LONG(name)                                                                                \
	{                                                                                         \
#name, 5000, name                                                                 \
	}
#define SHORT(name)                                                                               \
	{                                                                                         \
#name, 200, name                                                                  \
	}
	LONG(truth),
	LONG(no_such_chunk),
	LONG(far_chunk),
	LONG(longer_than_a_chunk),
	LONG(longest),
	LONG(chunk_of_nothing),
	LONG(chunk_and_slots),
	LONG(no_slots),
	LONG(not_the_first),
	LONG(not_the_last),
	LONG(part_of_more),
	LONG(again),
	LONG(that_invalidates),
	LONG(with_a_header),
	LONG(another_message),
	LONG(a_write),
	SHORT(truth),
	SHORT(more_slots),
	SHORT(fewer_slots),
	SHORT(no_slots),
	SHORT(longest),
	SHORT(longer_than_slots),
	SHORT(slots_and_a_chunk),
	SHORT(last_slot_missing),
	SHORT(part_of_more),
};

START_TEST(a_turn_leaves_what_is_not_whole)
{
	const struct responder *resp = &b->priv->resp;
	struct vsd_req saved[VSD_SPAN_MAX], *slots;
	bool inside = rt_enter(), did, whole;
	uint64_t pos, msn;
	bool lie = lies[_i].lie != truth;

	memset(memory + PLACE, 0, VSD_CHUNK);
	ck_assert_int_eq(loop_recv(b, 4, local, memory + PLACE, VSD_CHUNK), 0);
	build(IBV_WR_SEND, 0, lies[_i].length);
	pos = wire_of(a)->req_out.pos;
	ck_assert_uint_le((pos & (MAPPED_SLOTS - 1)) + VSD_SPAN_MAX, MAPPED_SLOTS);
	slots = lane_out_slot(&wire_of(a)->req_out, pos);
	ck_assert(posted(a));
	memcpy(saved, slots, sizeof(saved));
	msn = resp->msn;
	lies[_i].lie(slots, pos);
	whole = turn(b, &did);
	ck_assert_msg(whole != lie, "%s: %s", lies[_i].name, lie ? "taken" : "left");
	ck_assert(did != lie);
	ck_assert_uint_eq(resp->msn - msn, !lie);
	ck_assert_uint_eq(wire_of(b)->req_in.pos == pos, lie);
	ck_assert_uint_eq(resp->rq.head - resp->rq.tail, lie);
	ck_assert(!lie || (!memory[PLACE] && !memcmp(memory + PLACE, memory + PLACE + 1, VSD_CHUNK - 1)));
	memcpy(slots, saved, sizeof(saved));
	rt_leave(inside);
	loop_expect(b_recv, 4, IBV_WC_SUCCESS);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	ck_assert_mem_eq(memory + PLACE, memory + 3, lies[_i].length);
	ck_assert_uint_eq(chunks_free(a), ALL);
}
END_TEST

/* What the receive is at fault for, the state machines say. */
static const struct {
	uint32_t room, key;
	enum ibv_wc_status received, sent;
} faults[] = {
	{ 4095, 0, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR },
	{ VSD_CHUNK, 0x100, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR },
};

START_TEST(a_receive_is_at_fault)
{
	struct ibv_sge at = { (uintptr_t)memory + PLACE, faults[_i].room,
		local->key ^ faults[_i].key };
	struct ibv_recv_wr *bad, recv = { .wr_id = 4, .sg_list = &at, .num_sge = 1 };

	ck_assert_int_eq(soft_post_recv(&b->v.qp, &recv, &bad), 0);
	ck_assert_int_eq(loop_send(a, 7, IBV_WR_SEND, local, memory, 4096, NULL, NULL), 0);
	loop_expect(b_recv, 4, faults[_i].received);
	loop_expect(a_send, 7, faults[_i].sent);
}
END_TEST

/* --- chunks ---------------------------------------------------------------------------------------------------------------- */

/* Another pair, c to d, on the same queues and the same pool. */
static struct soft_qp *c, *d;

static void other_pair(uint32_t slots, struct soft_srq *srq, bool signal_all)
{
	struct loop_options options = LOOP_OPTIONS;

	options.send_cq = a_send;
	options.recv_cq = b_recv;
	options.signal_all = signal_all;
	c = loop_qp(&loop, &options);
	options.srq = srq;
	d = loop_qp(&loop, &options);
	loop_connect(&loop, c, d, slots, &options);
	ck_assert_ptr_eq(wire_of(c)->pair, wire_of(a)->pair);
}

static void other_free(void)
{
	loop_qp_free(c);
	loop_qp_free(d);
}

static void receive_at(struct soft_qp *qp, uint64_t wr_id)
{
	ck_assert_int_eq(loop_recv(qp, wr_id, local, memory + PLACE, VSD_CHUNK), 0);
}

static void send_to(struct soft_qp *qp, uint64_t wr_id, uint32_t length)
{
	ck_assert_int_eq(loop_send(qp, wr_id, IBV_WR_SEND, local, memory, length, NULL, NULL), 0);
}

/* By themselves, whatever the order between two QPs is. */
static void all_arrive(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(loop_wait(b_recv).status, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(loop_wait(a_send).status, IBV_WC_SUCCESS);
}

START_TEST(who_finds_no_chunk_waits_for_one)
{
	const struct requester *req = &a->priv->req;
	bool inside = rt_enter(), did;

	receive_at(b, 100);
	atomic_store(&pool(a)->free, 0);
	send_to(a, 10, 4096);
	ck_assert_uint_eq(req->head - req->tx, 1);
	ck_assert(atomic_load(&wire_of(a)->pair->priv->waiting));
	ck_assert(turn(a, &did)); /* nothing to do until it is told */
	ck_assert(!did);
	ck_assert_uint_eq(req->head - req->tx, 1);
	ck_assert(!atomic_load(&a->run_queued));
	pair_chunk_put(wire_of(a)->pair, POOL_REQ, 5);
	ck_assert(atomic_load(&a->run_queued));
	ck_assert(!atomic_load(&wire_of(a)->pair->priv->waiting));
	ck_assert(turn(a, &did));
	ck_assert_uint_eq(req->head, req->tx);
	ck_assert_uint_eq(chunks_free(a), 0);
	atomic_store(&pool(a)->free, ~(1ull << 5));
	rt_leave(inside);
	all_arrive(1);
	ck_assert_uint_eq(chunks_free(a), ALL);
}
END_TEST

/* The peer has taken what was sent before, and it is not its turn yet. */
START_TEST(who_posts_takes_its_own_chunks_back)
{
	bool inside = rt_enter(), did;

	receive_at(b, 100);
	receive_at(b, 101);
	atomic_store(&pool(a)->free, 1ull << 9);
	build(IBV_WR_SEND, 0, 4096);
	ck_assert(posted(a));
	ck_assert(!posted(a));
	ck_assert(turn(b, &did));
	ck_assert(posted(a));
	ck_assert_uint_eq(held_of(a), 1);
	ck_assert_uint_eq(chunks_free(a), 0);
	atomic_store(&pool(a)->free, ~(1ull << 9));
	rt_leave(inside);
	all_arrive(2);
	ck_assert_uint_eq(chunks_free(a), ALL);
}
END_TEST

/* The lines of the next one are on their way while the peer reads this one: so it is another one, and they take turns. */
START_TEST(the_next_chunk_is_another_one)
{
	for (unsigned i = 0; i < 6; i++) {
		bool inside = rt_enter();
		int chunk;

		receive_at(b, 100);
		build(IBV_WR_SEND, 0, 4096);
		ck_assert(posted(a));
		chunk = __builtin_ctzll(~chunks_free(a));
		ck_assert_int_eq(chunk, (int)(i & 1));
		ck_assert_int_eq(atomic_load(&pool(a)->next), !chunk);
		rt_leave(inside);
		all_arrive(1);
	}
}
END_TEST

/* Of those of another QP, too, whose peer says that it took the slot with the acknowledgement, or a moment after it. */
START_TEST(who_waits_is_woken_by_another)
{
	struct vsd_half *theirs = (struct vsd_half *)(uintptr_t)wire_of(a)->theirs;
	uint64_t taken;
	bool inside, did;

	other_pair(MAPPED_SLOTS, NULL, true);
	inside = rt_enter();
	receive_at(b, 100);
	receive_at(d, 101);
	atomic_store(&pool(a)->free, 1ull << 9);
	build(IBV_WR_SEND, 0, 4096);
	ck_assert(posted(a));
	send_to(c, 11, 4096);
	ck_assert_uint_eq(c->priv->req.head - c->priv->req.tx, 1);
	ck_assert(!atomic_load(&c->run_queued));
	ck_assert(turn(b, &did));
	ck_assert(did);
	ck_assert(wire_space_pending(wire_of(a)));
	if (_i) {
		taken = atomic_load(&theirs->req_taken);
		atomic_store(&theirs->req_taken, wire_of(a)->req_out.taken);
		ck_assert(turn(a, &did));
		ck_assert(did);
		ck_assert_uint_eq(held_of(a), 1);
		ck_assert(!atomic_load(&c->run_queued));
		atomic_store(&theirs->req_taken, taken);
		ck_assert(wire_space_pending(wire_of(a)));
	}
	ck_assert(turn(a, &did));
	ck_assert(did != _i);
	ck_assert_uint_eq(held_of(a), 0);
	ck_assert(atomic_load(&c->run_queued));
	rt_leave(inside);
	all_arrive(2);
	ck_assert_uint_eq(chunks_free(a), 1ull << 9);
	atomic_store(&pool(a)->free, ALL);
	other_free();
}
END_TEST

/* Whoever it is that goes on with what was posted: nobody copies without end. */
START_TEST(a_push_copies_a_slice)
{
	static struct ibv_send_wr wrs[40];
	const struct requester *req;
	struct ibv_send_wr *bad;
	bool inside;

	other_pair(256, NULL, true);
	req = &c->priv->req;
	inside = rt_enter();
	for (unsigned i = 0; i < COUNT_OF(wrs); i++) {
		receive_at(d, i);
		build(IBV_WR_SEND, 0, PULL_MIN - 1);
		wrs[i] = wr;
		wrs[i].next = i + 1 < COUNT_OF(wrs) ? &wrs[i + 1] : NULL;
	}
	ck_assert_int_eq(soft_post_send(&c->v.qp, wrs, &bad), 0);
	ck_assert_uint_eq(req->tx, QP_SLICE / (PULL_MIN - 1));
	ck_assert(atomic_load(&c->run_queued));
	rt_leave(inside);
	all_arrive(COUNT_OF(wrs));
	ck_assert_uint_eq(chunks_free(a), ALL);
	other_free();
}
END_TEST

enum { SENDER_GOES, RECEIVER_GOES, RECEIVER_FAILS, PEER_DIES, FAREWELLS };

START_TEST(chunks_in_flight_come_back)
{
	bool inside;

	other_pair(MAPPED_SLOTS, NULL, true);
	inside = rt_enter();
	for (unsigned i = 0; i < 3; i++)
		send_to(c, 10 + i, 4096);
	ck_assert_uint_eq(held_of(c), 3);
	ck_assert_int_eq(__builtin_popcountll(chunks_free(a)), VSD_POOL_CHUNKS - 3);
	rt_leave(inside);
	switch (_i) {
	case SENDER_GOES:
		loop_qp_free(c);
		c = NULL;
		break;
	case RECEIVER_GOES:
		loop_qp_free(d);
		d = NULL;
		break;
	case RECEIVER_FAILS:
		loop_state(d, IBV_QPS_ERR);
		break;
	default:
		qp_wire_gone(c, wire_of(c), true);
	}
	for (unsigned i = 0; c && i < 3; i++)
		loop_expect(a_send, 10 + i, i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
	if (c)
		loop_qp_free(c);
	if (d)
		loop_qp_free(d);
	while (rt_progress())
		;
	inside = rt_enter();
	pool_wake(wire_of(a)->pair);
	ck_assert_uint_eq(chunks_free(a), ALL);
	rt_leave(inside);
}
END_TEST

/* --- streams ---------------------------------------------------------------------------------------------------------------- */

#define BATCHES 40u
#define BATCH   12u         /* WRs at most */
#define ROOM    (36u << 10) /* where one message is received */

static struct outcome {
	struct ibv_wc sent_wc[BATCHES * BATCH], received_wc[BATCHES * BATCH];
	unsigned n_sent, n_received;
	uint64_t counts[6];
} outcome[4];

/* One of all runs, which see the same numbers. */
static unsigned seed;
static struct soft_srq *srq;
static uint8_t *const area = memory + (256u << 10);

static struct batch {
	struct ibv_send_wr wrs[BATCH];
	struct ibv_sge sges[BATCH];
	uint32_t at[BATCH];
	unsigned n, signalled;
} batch;

static unsigned number(unsigned below)
{
	return (unsigned)rand_r(&seed) % below;
}

static void count(struct outcome *o)
{
	static const enum vsd_counter counters[] = { VSD_COUNT_POSTS, VSD_COUNT_RECVS,
		VSD_COUNT_COMPLETIONS, VSD_COUNT_BYTES_SENT, VSD_COUNT_BYTES_RECEIVED,
		VSD_COUNT_RNR };
	bool inside = rt_enter(); /* turns end with it */

	for (int i = 0; i < COUNT_OF(counters); i++)
		o->counts[i] = loop_counter(counters[i]) - o->counts[i];
	rt_leave(inside);
}

static void receive(unsigned i, uint32_t length)
{
	uint32_t off = number(64);
	uint8_t *at = area + (size_t)i * ROOM + off;
	uint32_t first = length && number(6) == 0 ? number(length) : length + number(64);
	struct ibv_sge pieces[] = { { (uintptr_t)at, first, local->key },
		{ (uintptr_t)at + first, length, local->key } };
	struct ibv_recv_wr *bad,
		recv = { .wr_id = 1000 + i, .sg_list = pieces, .num_sge = first < length ? 2 : 1 };

	batch.at[i] = i * ROOM + off;
	if (srq)
		ck_assert_int_eq(soft_post_srq_recv(&srq->srq, &recv, &bad), 0);
	else
		ck_assert_int_eq(soft_post_recv(&d->v.qp, &recv, &bad), 0);
}

static void make_batch(void)
{
	static const uint32_t bounds[] = { 100, SLOTS + 2, 5000, PULL_MIN, VSD_CHUNK + 500 };

	batch.n = 1 + number(number(3) ? 4 : BATCH);
	batch.signalled = 0;
	for (unsigned i = 0; i < batch.n; i++) {
		uint32_t length = number(bounds[number(5)]);
		unsigned flags =
			(length <= c->priv->req.max_inline && number(3) == 0 ? IBV_SEND_INLINE
									     : 0) |
			(number(4) == 0 ? IBV_SEND_SOLICITED : 0) |
			(i + 1 == batch.n || number(2) ? IBV_SEND_SIGNALED : 0);

		batch.sges[i] = (struct ibv_sge){ (uintptr_t)memory + number(128u << 10), length,
			local->key };
		batch.wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.sg_list = &batch.sges[i],
			.num_sge = 1,
			.opcode = number(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM,
			.send_flags = flags,
			.imm_data = number(1000),
			.next = i + 1 < batch.n ? &batch.wrs[i + 1] : NULL,
		};
		batch.signalled += (flags & IBV_SEND_SIGNALED) != 0;
		receive(i, length);
	}
}

static void post_batch(void)
{
	struct ibv_send_wr *bad;

	if (number(2)) {
		ck_assert_int_eq(soft_post_send(&c->v.qp, batch.wrs, &bad), 0);
		return;
	}
	for (unsigned i = 0; i < batch.n; i++) {
		batch.wrs[i].next = NULL;
		ck_assert_int_eq(soft_post_send(&c->v.qp, &batch.wrs[i], &bad), 0);
	}
}

static void polled(struct soft_cq *cq, struct ibv_wc *wc, unsigned *have, unsigned n)
{
	int got;

	if (*have == n)
		return;
	got = soft_poll_cq(&cq->v.cq, (int)(n - *have), wc + *have);
	ck_assert_int_ge(got, 0);
	*have += (unsigned)got;
	if (!got)
		sched_yield();
}

static void run_batch(struct outcome *o)
{
	unsigned sent_then, received_then;

	memset(area, 0, BATCH * ROOM);
	make_batch();
	sent_then = o->n_sent + batch.signalled;
	received_then = o->n_received + batch.n;
	post_batch();
	while (o->n_sent < sent_then || o->n_received < received_then) {
		polled(b_recv, o->received_wc, &o->n_received, received_then);
		polled(a_send, o->sent_wc, &o->n_sent, sent_then);
	}
	for (unsigned i = 0; i < batch.n; i++) {
		const struct ibv_sge *from = &batch.sges[i];
		const uint8_t *at = area + batch.at[i];

		ck_assert_msg(!memcmp(at, (const void *)(uintptr_t)from->addr, from->length),
			"%u bytes", from->length);
		ck_assert_uint_eq(at[from->length], 0);
		ck_assert(!memcmp(at + from->length, at + from->length + 1, ROOM - batch.at[i] % ROOM - from->length - 1));
	}
}

static void run_all(unsigned first, bool quick_sender, bool quick_receiver, struct outcome *o)
{
	memset(o, 0, sizeof(*o));
	seed = first;
	set_plain(c, quick_sender);
	set_plain(d, quick_receiver);
	count(o);
	for (unsigned i = 0; i < BATCHES; i++)
		run_batch(o);
	count(o);
}

static void same_wc(const struct ibv_wc *one, const struct ibv_wc *two, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_mem_eq(&one[i], &two[i],
			offsetof(struct ibv_wc, dlid_path_bits) + sizeof(one->dlid_path_bits));
}

START_TEST(both_ways_understand_each_other)
{
	srq = _i & 1 ? loop_srq(&loop, 64, 2) : NULL;
	other_pair(_i & 2 ? 64 : MAPPED_SLOTS, srq, false);
	for (unsigned i = 0; i < 4; i++)
		run_all((unsigned)_i, i & 1, i & 2, &outcome[i]);
	for (unsigned i = 1; i < 4; i++) {
		ck_assert_uint_eq(outcome[0].n_sent, outcome[i].n_sent);
		ck_assert_uint_eq(outcome[0].n_received, outcome[i].n_received);
		same_wc(outcome[0].sent_wc, outcome[i].sent_wc, outcome[0].n_sent);
		same_wc(outcome[0].received_wc, outcome[i].received_wc, outcome[0].n_received);
		ck_assert_mem_eq(outcome[0].counts, outcome[i].counts, sizeof(outcome[0].counts));
	}
	ck_assert_uint_eq(chunks_free(a), ALL);
	other_free();
	if (srq)
		loop_srq_free(srq);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quick-chunk");
	TCase *t = harness_tcase(suite, "posts");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_post_leaves_what_the_general_way_does, 0, 8);
	tcase_add_loop_test(t, a_refused_message_is_sent_again, 0, 2);
	tcase_add_test(t, a_short_lane_has_chunks);
	tcase_add_loop_test(t, a_post_that_is_not_common_takes_no_chunk, 0, COUNT_OF(post_spoils));
	t = harness_tcase(suite, "turns");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_turn_leaves_what_is_not_whole, 0, COUNT_OF(lies));
	tcase_add_loop_test(t, a_receive_is_at_fault, 0, COUNT_OF(faults));
	t = harness_tcase(suite, "chunks");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, who_finds_no_chunk_waits_for_one);
	tcase_add_test(t, who_posts_takes_its_own_chunks_back);
	tcase_add_test(t, the_next_chunk_is_another_one);
	tcase_add_loop_test(t, who_waits_is_woken_by_another, 0, 2);
	tcase_add_test(t, a_push_copies_a_slice);
	tcase_add_loop_test(t, chunks_in_flight_come_back, 0, FAREWELLS);
	t = harness_tcase(suite, "streams");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, both_ways_understand_each_other, 0, 8);
	return harness_run(suite);
}
