/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a wire in one process: over a memfd mapped twice, as two processes have it, and over the heap, as two
 * QPs of one process have it. What a hostile peer may write breaks the wire and nothing else.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/soft/qp.h"
#include "client/soft/lane.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_two.h"

static const struct {
	const char *name;
	bool loop;
	uint32_t req, resp;
} shapes[] = {
	{ "segment, lanes of two", false, 2, 2 },
	{ "segment, lanes of 64", false, 64, 32 },
	{ "heap, lanes of two", true, 2, 2 },
	{ "heap, lanes of 128", true, 128, 64 },
};

static void fill(uint8_t *buf, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (uint8_t)(i * 7 + seed);
}

static void make_shape(int i)
{
	two_make(shapes[i].loop, shapes[i].req, shapes[i].resp);
}

static struct vsd_req send_head(const struct wire *wire, uint32_t len)
{
	struct vsd_req head = { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST, .len = len, .total = len };

	head.slots = (uint8_t)wire_req_slots(wire, &head, len);
	return head;
}

START_TEST(inline_payload_arrives_in_every_size)
{
	make_shape(_i);
	for (uint32_t len = 0; len <= VSD_INLINE_RW; len++) {
		uint8_t out[VSD_INLINE_RW], in[VSD_INLINE_RW];
		struct vsd_req head = send_head(two.end[0], len), got;

		if (!head.slots) {
			ck_assert_uint_lt(shapes[_i].req, VSD_SPAN_MAX);
			continue;
		}
		fill(out, len, len);
		head.msn = len;
		ck_assert_int_ge(wire_req_space(two.end[0]), head.slots);
		wire_req_put(two.end[0], &head, out, -1);
		ck_assert_int_eq(wire_req_peek(two.end[1], &got), 1);
		ck_assert_uint_eq(got.len, len);
		ck_assert_uint_eq(got.msn, len);
		ck_assert_ptr_eq(wire_req_payload(two.end[1], &got, in), in);
		ck_assert_mem_eq(in, out, len);
		wire_req_consume(two.end[1], &got);
		wire_ack(two.end[1], len + 1);
		ck_assert_int_eq(wire_req_peek(two.end[1], &got), 0);
		ck_assert_uint_eq(wire_acked(two.end[0]), len + 1);
	}
}
END_TEST

START_TEST(a_datagram_starts_later_in_its_slot)
{
	uint8_t out[VSD_INLINE_UD], in[VSD_INLINE_UD];
	struct vsd_req head = { .op = VSD_REQ_DATAGRAM, .flags = VSD_F_FIRST | VSD_F_LAST, .len = VSD_INLINE_UD }, got;

	two_make(false, 16, 16);
	head.slots = (uint8_t)wire_req_slots(two.end[0], &head, head.len);
	head.ud.qkey = 0x1234;
	ck_assert_uint_eq(head.slots, VSD_SPAN_MAX);
	ck_assert_uint_eq(wire_req_slots(two.end[0], &head, VSD_INLINE_UD + 1), 0);
	fill(out, sizeof(out), 3);
	ck_assert_int_ge(wire_req_space(two.end[0]), head.slots);
	wire_req_put(two.end[0], &head, out, -1);
	ck_assert_int_eq(wire_req_peek(two.end[1], &got), 1);
	wire_req_payload(two.end[1], &got, in);
	ck_assert_mem_eq(in, out, sizeof(out));
	ck_assert_uint_eq(got.ud.qkey, 0x1234);
}
END_TEST

START_TEST(lanes_fill_and_drain_over_many_laps)
{
	uint64_t sent = 0, received = 0;

	make_shape(_i);
	for (unsigned lap = 0; lap < 20; lap++) {
		while (wire_req_space(two.end[0]) > 0) {
			struct vsd_req head = send_head(two.end[0], 4);
			uint32_t n = (uint32_t)sent++;

			wire_req_put(two.end[0], &head, &n, -1);
		}
		ck_assert_uint_eq(sent - received, shapes[_i].req);

		struct vsd_req got;

		while (wire_req_peek(two.end[1], &got) == 1) {
			uint32_t n;

			wire_req_payload(two.end[1], &got, &n);
			ck_assert_uint_eq(n, received++);
			wire_req_consume(two.end[1], &got);
		}
		wire_ack(two.end[1], received);
		ck_assert_uint_eq(sent, received);
	}
}
END_TEST

START_TEST(responses_cross_the_other_way)
{
	uint64_t sent = 0, received = 0;

	make_shape(_i);
	for (unsigned lap = 0; lap < 10; lap++) {
		struct vsd_resp got;

		while (wire_resp_space(two.end[1]) > 0) {
			struct vsd_resp resp = { .op = VSD_RESP_READ, .len = 36, .msn = (uint32_t)sent++ };

			memset(resp.data, (int)sent, sizeof(resp.data));
			wire_resp_put(two.end[1], &resp, -1);
		}
		while (wire_resp_peek(two.end[0], &got) == 1) {
			ck_assert_uint_eq(got.msn, received++);
			ck_assert_uint_eq(((const uint8_t *)wire_resp_payload(two.end[0], &got))[35], (uint8_t)received);
			wire_resp_consume(two.end[0]);
		}
		wire_resp_ack(two.end[0]);
		ck_assert_uint_eq(sent, received);
	}
	ck_assert_uint_eq(sent, 10 * shapes[_i].resp);
}
END_TEST

static void send_chunk(int chunk)
{
	struct vsd_req head = { .op = VSD_REQ_SEND, .flags = VSD_F_FIRST | VSD_F_LAST | VSD_F_CHUNK, .slots = 1,
				.len = VSD_CHUNK };

	head.rw.chunk = (uint32_t)chunk;
	wire_req_put(two.end[0], &head, NULL, chunk);
}

START_TEST(a_chunk_is_free_again_when_its_slot_was_taken)
{
	struct soft_qp waiter = { .run_queued = false };
	struct vsd_req got;
	int chunk[VSD_POOL_CHUNKS];

	make_shape(_i);
	for (unsigned i = 0; i < VSD_POOL_CHUNKS; i++) {
		chunk[i] = pair_chunk_get(two.pair[0], POOL_REQ, NULL);
		ck_assert_int_ge(chunk[i], 0);
	}
	memset(pair_chunk(two.pair[0], POOL_REQ, chunk[0]), 0x5a, VSD_CHUNK);
	ck_assert_int_gt(wire_req_space(two.end[0]), 0);
	send_chunk(chunk[0]);
	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &waiter), -1);
	ck_assert_int_ge(pair_chunk_get(two.pair[0], POOL_RESP, NULL), 0);
	ck_assert_uint_eq(two.pair[1]->mem->sides[0].want_pool, 1);

	ck_assert_int_eq(wire_req_peek(two.end[1], &got), 1);
	ck_assert_uint_eq(((const uint8_t *)wire_req_payload(two.end[1], &got, NULL))[VSD_CHUNK - 1], 0x5a);
	ck_assert(!atomic_load(&waiter.run_queued));
	wire_req_consume(two.end[1], &got);
	wire_ack(two.end[1], 1);
	ck_assert_int_ge(wire_req_space(two.end[0]), 1);
	ck_assert(atomic_load(&waiter.run_queued));
	rt_forget_qp(&waiter);
	ck_assert_uint_eq(two.pair[1]->mem->sides[0].want_pool, 0);
	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, NULL), chunk[0]);
}
END_TEST

START_TEST(a_waiter_that_is_forgotten_is_not_run)
{
	struct soft_qp waiter = { .run_queued = false };
	int chunk = -1, next;

	two_make(false, 16, 16);
	while ((next = pair_chunk_get(two.pair[0], POOL_REQ, &waiter)) >= 0)
		chunk = next;
	pair_forget_waiter(&waiter);
	pair_chunk_put(two.pair[0], POOL_REQ, chunk);
	ck_assert(!atomic_load(&waiter.run_queued));
}
END_TEST

static int take_all_chunks(unsigned side, enum pool_kind kind)
{
	int chunk = -1, next;

	while ((next = pair_chunk_get(two.pair[side], kind, NULL)) >= 0)
		chunk = next;
	return chunk;
}

START_TEST(a_chunk_wakes_one_that_waits_for_its_kind)
{
	struct soft_qp first = { .run_queued = false }, second = { .run_queued = false };

	two_make(false, 16, 16);

	int req = take_all_chunks(0, POOL_REQ), resp = take_all_chunks(0, POOL_RESP);

	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &first), -1);
	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_RESP, &second), -1);
	pair_chunk_put(two.pair[0], POOL_RESP, resp);
	ck_assert(!atomic_load(&first.run_queued));
	ck_assert(atomic_load(&second.run_queued));
	pair_chunk_put(two.pair[0], POOL_REQ, req);
	ck_assert(atomic_load(&first.run_queued));
	rt_forget_qp(&first);
	rt_forget_qp(&second);
}
END_TEST

/* A QP that was woken and had no use for the chunk does not keep the next one waiting. */
START_TEST(a_chunk_that_was_not_used_wakes_the_next)
{
	struct soft_qp first = { .run_queued = false }, second = { .run_queued = false };

	two_make(false, 16, 16);

	int chunk = take_all_chunks(0, POOL_REQ);

	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &first), -1);
	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &second), -1);
	ck_assert(!pool_wake(two.pair[0]));
	pair_chunk_put(two.pair[0], POOL_REQ, chunk);
	ck_assert(atomic_load(&first.run_queued));
	ck_assert(!atomic_load(&second.run_queued));
	ck_assert(pool_wake(two.pair[0]));
	ck_assert(atomic_load(&second.run_queued));
	ck_assert(!pool_wake(two.pair[0]));
	rt_forget_qp(&first);
	rt_forget_qp(&second);
}
END_TEST

START_TEST(a_waiter_waits_in_one_pair)
{
	struct soft_qp waiter = { .run_queued = false };

	two_make(false, 16, 16);

	int here = take_all_chunks(0, POOL_REQ), there = take_all_chunks(1, POOL_REQ);

	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &waiter), -1);
	ck_assert_int_eq(pair_chunk_get(two.pair[1], POOL_REQ, &waiter), -1);
	ck_assert_ptr_null(two.pair[0]->priv->waiters);
	pair_chunk_put(two.pair[0], POOL_REQ, here);
	ck_assert(!atomic_load(&waiter.run_queued));
	pair_chunk_put(two.pair[1], POOL_REQ, there);
	ck_assert(atomic_load(&waiter.run_queued));
	rt_forget_qp(&waiter);
}
END_TEST

START_TEST(nobody_waits_in_a_pair_that_goes)
{
	struct soft_qp waiter = { .run_queued = false };

	two_make(false, 16, 16);
	take_all_chunks(0, POOL_REQ);
	ck_assert_int_eq(pair_chunk_get(two.pair[0], POOL_REQ, &waiter), -1);
	pool_abandon(two.pair[0]);
	ck_assert_ptr_null(waiter.pool_prev);
	ck_assert(atomic_load(&waiter.run_queued));
	rt_forget_qp(&waiter);
}
END_TEST

START_TEST(a_released_wire_keeps_its_chunk_while_the_peer_may_read)
{
	int chunk;

	two_make(false, 16, 16);
	chunk = pair_chunk_get(two.pair[0], POOL_REQ, NULL);
	ck_assert_int_gt(wire_req_space(two.end[0]), 0);
	send_chunk(chunk);
	wire_close(two.end[0]);
	wire_release(two.end[0]);
	wire_collect();
	two.end[0] = NULL;
	ck_assert(!(atomic_load(&two.pair[0]->priv->pools[POOL_REQ].free) >> chunk & 1));
	wire_close(two.end[1]);
	while (pair_chunk_get(two.pair[0], POOL_REQ, NULL) >= 0)
		;
	ck_assert_ptr_null(two.pair[0]->priv->strays);
}
END_TEST

START_TEST(nothing_is_seen_before_the_peer_opened_its_half)
{
	Vsd__EvWire event = two_wire_event(0, 16, 16);
	struct vsd_req head = { .op = VSD_REQ_SEND, .slots = 1 }, got;
	struct vsd_half *theirs;

	two_segment_pair();
	event.segment = 1;
	event.offset = VSD_SEGMENT_WIRES;
	ck_assert_int_eq(wire_make(two.pair[0], &event, &two.end[0]), 0);
	/* What another generation left in the peer's half. */
	theirs = (void *)((uint8_t *)two.pair[1]->mem + event.offset + VSD_HALF_SIZE(16, 16));
	head.tag = 1;
	memcpy((uint8_t *)theirs + sizeof(*theirs), &head, sizeof(head));
	theirs->req_taken = 99;
	theirs->state = 4 << 2 | VSD_HALF_OPEN;
	ck_assert_int_eq(wire_req_peek(two.end[0], &got), 0);
	ck_assert_int_eq(wire_req_space(two.end[0]), 0);
	ck_assert_uint_eq(wire_acked(two.end[0]), 0);
	ck_assert(!two.end[0]->broken);
	theirs->req_taken = 0;
	theirs->state = 5 << 2 | VSD_HALF_OPEN;
	ck_assert_int_eq(wire_req_peek(two.end[0], &got), 1);
}
END_TEST

START_TEST(a_closed_half_is_read_to_its_end)
{
	struct vsd_req head, got;

	two_make(false, 16, 16);
	ck_assert_int_gt(wire_req_space(two.end[0]), 0);
	head = send_head(two.end[0], 0);
	wire_req_put(two.end[0], &head, NULL, -1);
	wire_close(two.end[0]);
	wire_look(two.end[1]);
	ck_assert(two.end[1]->peer_closed);
	ck_assert_int_eq(wire_req_peek(two.end[1], &got), 1);
}
END_TEST

/* Writes a request into the lane as a hostile peer may. */
static void forge(const struct vsd_req *head)
{
	struct vsd_req *slot = (void *)two.end[0]->req_out.slots;

	memcpy((uint8_t *)slot + 4, (const uint8_t *)head + 4, VSD_LINE - 4);
	atomic_store(&slot->tag, 1);
}

static const struct {
	const char *name;
	struct vsd_req head;
} bad_requests[] = {
	{ "operation 0", { .op = 0, .slots = 1 } },
	{ "unknown operation", { .op = 200, .slots = 1 } },
	{ "no slots", { .op = VSD_REQ_SEND, .slots = 0 } },
	{ "more slots than a request spans", { .op = VSD_REQ_SEND, .slots = 200, .len = 200 } },
	{ "longer than its slots", { .op = VSD_REQ_SEND, .slots = 1, .len = 100 } },
	{ "endless", { .op = VSD_REQ_WRITE, .slots = 5, .len = UINT32_MAX } },
	{ "chunk out of range", { .op = VSD_REQ_SEND, .slots = 1, .flags = VSD_F_CHUNK, .len = 1, .rw.chunk = 64 } },
	{ "chunk too long", { .op = VSD_REQ_SEND, .slots = 1, .flags = VSD_F_CHUNK, .len = VSD_CHUNK + 1 } },
	{ "a READ with payload", { .op = VSD_REQ_READ, .slots = 1, .flags = VSD_F_CHUNK, .len = 1 } },
	{ "a READ of two slots", { .op = VSD_REQ_READ, .slots = 2 } },
	{ "its second slot missing", { .op = VSD_REQ_SEND, .slots = 2, .len = 80 } },
};

START_TEST(a_malformed_request_breaks_the_wire)
{
	struct vsd_req got;

	two_make(false, 16, 16);
	forge(&bad_requests[_i].head);
	ck_assert_msg(wire_req_peek(two.end[1], &got) == -EPROTO, "%s", bad_requests[_i].name);
	ck_assert(two.end[1]->broken);
	ck_assert_int_eq(wire_req_peek(two.end[1], &got), -EPROTO);
	ck_assert_int_eq(wire_req_space(two.end[1]), -EPROTO);
}
END_TEST

static const struct {
	const char *name;
	struct vsd_resp resp;
} bad_responses[] = {
	{ "operation 0", { .op = 0 } },
	{ "unknown operation", { .op = 77 } },
	{ "READ longer than a slot", { .op = VSD_RESP_READ, .len = 37 } },
	{ "chunk out of range", { .op = VSD_RESP_READ, .flags = VSD_F_CHUNK, .chunk = 1u << 31 } },
	{ "chunk too long", { .op = VSD_RESP_READ, .flags = VSD_F_CHUNK, .len = VSD_CHUNK + 1 } },
	{ "an RNR with payload", { .op = VSD_RESP_RNR, .flags = VSD_F_CHUNK } },
};

START_TEST(a_malformed_response_breaks_the_wire)
{
	struct vsd_resp *slot, got;

	two_make(false, 16, 16);
	slot = (void *)two.end[1]->resp_out.slots;
	memcpy((uint8_t *)slot + 4, (const uint8_t *)&bad_responses[_i].resp + 4, VSD_LINE - 4);
	atomic_store(&slot->tag, 1);
	ck_assert_msg(wire_resp_peek(two.end[0], &got) == -EPROTO, "%s", bad_responses[_i].name);
	ck_assert(two.end[0]->broken);
}
END_TEST

START_TEST(a_counter_ahead_of_what_was_sent_breaks_the_wire)
{
	two_make(false, 16, 16);
	for (unsigned i = 0; i < 10; i++) {
		struct vsd_req head = send_head(two.end[0], 0);

		ck_assert_int_gt(wire_req_space(two.end[0]), 0);
		wire_req_put(two.end[0], &head, NULL, -1);
	}
	two.end[1]->mine->req_taken = 11;
	ck_assert_int_eq(wire_req_space(two.end[0]), -EPROTO);
}
END_TEST

START_TEST(a_counter_that_goes_back_breaks_the_wire)
{
	two_make(false, 2, 2);
	for (unsigned i = 0; i < 2; i++) {
		struct vsd_req head = send_head(two.end[0], 0);

		ck_assert_int_gt(wire_req_space(two.end[0]), 0);
		wire_req_put(two.end[0], &head, NULL, -1);
	}
	two.end[1]->mine->req_taken = 2;
	ck_assert_int_eq(wire_req_space(two.end[0]), 2);
	two.end[1]->mine->req_taken = 1;
	ck_assert_int_eq(wire_req_space(two.end[0]), -EPROTO);
}
END_TEST

START_TEST(a_wish_for_space_ends_with_the_next_request)
{
	struct vsd_req head;

	two_make(false, 2, 2);
	ck_assert_int_eq(wire_req_space(two.end[0]), 2);
	wire_want_space(two.end[0], WIRE_WANT_REQ);
	wire_want_space(two.end[0], WIRE_WANT_RESP);
	head = send_head(two.end[0], 0);
	wire_req_put(two.end[0], &head, NULL, -1);
	/* The response lane still wants it. */
	ck_assert_uint_ne(two.end[0]->mine->want_space, 0);
	struct vsd_resp resp = { .op = VSD_RESP_DONE };

	wire_resp_put(two.end[0], &resp, -1);
	ck_assert_uint_eq(two.end[0]->mine->want_space, 0);
	/* Who sends and answers nothing does not go on wanting for the answers that it might. */
	wire_want_space(two.end[0], WIRE_WANT_REQ);
	wire_want_clear(two.end[0], WIRE_WANT_REQ);
	ck_assert_uint_eq(two.end[0]->mine->want_space, 0);
}
END_TEST

START_TEST(pending_tells_what_was_not_looked_at)
{
	struct vsd_req head, got;

	two_make(false, 16, 16);
	wire_look(two.end[0]);
	wire_look(two.end[1]);
	ck_assert(!wire_pending(two.end[1]));
	head = send_head(two.end[0], 0);
	ck_assert_int_gt(wire_req_space(two.end[0]), 0);
	wire_req_put(two.end[0], &head, NULL, -1);
	ck_assert(wire_pending(two.end[1]));
	ck_assert_int_eq(wire_req_peek(two.end[1], &got), 1);
	wire_req_consume(two.end[1], &got);
	ck_assert(!wire_pending(two.end[1]));
	ck_assert(!wire_pending(two.end[0]));
	wire_ack(two.end[1], 1);
	ck_assert(wire_pending(two.end[0]));
	ck_assert_uint_eq(wire_acked(two.end[0]), 1);
	ck_assert(wire_pending(two.end[0]));
	wire_acked_done(two.end[0], 1);
	ck_assert(!wire_pending(two.end[0]));
	wire_close(two.end[1]);
	ck_assert(wire_pending(two.end[0]));
}
END_TEST

START_TEST(hazards_name_key_and_queue_pair)
{
	struct vsd_hazard *mine, *all[VSD_HAZARDS];

	two_make(false, 16, 16);
	mine = pair_hazard_enter(two.pair[0], 0x500, 0x101);
	ck_assert_ptr_nonnull(mine);
	ck_assert(!pair_hazards_clear(0x500, 0));
	ck_assert(!pair_hazards_clear(0, 0x101));
	ck_assert(pair_hazards_clear(0x600, 0x102));
	pair_hazard_leave(two.pair[0], mine);
	ck_assert(pair_hazards_clear(0x500, 0x101));
	for (unsigned i = 0; i < VSD_HAZARDS; i++)
		ck_assert_ptr_nonnull(all[i] = pair_hazard_enter(two.pair[0], 1, 1));
	ck_assert_ptr_null(pair_hazard_enter(two.pair[0], 1, 1));
	pair_hazard_leave(two.pair[0], all[7]);
	ck_assert_ptr_eq(pair_hazard_enter(two.pair[0], 2, 2), all[7]);
}
END_TEST

START_TEST(a_wire_keeps_its_hazard_slot)
{
	struct vsd_hazard *first;

	two_make(false, 16, 16);
	first = wire_hazard_enter(two.end[0], 0x500, NULL);
	ck_assert_ptr_nonnull(first);
	ck_assert(!pair_hazards_clear(0x500, 0));
	wire_hazard_leave(two.end[0], first);
	ck_assert(pair_hazards_clear(0x500, 0));
	ck_assert_uint_eq(atomic_load(&two.pair[0]->priv->hazards), 1u << two.end[0]->hazard);
	ck_assert_ptr_eq(wire_hazard_enter(two.end[0], 0x600, NULL), first);
	wire_hazard_leave(two.end[0], first);
	wire_release(two.end[0]);
	two.end[0] = NULL;
	progress_sweep();
	ck_assert_uint_eq(atomic_load(&two.pair[0]->priv->hazards), 0);
}
END_TEST

START_TEST(hazards_of_the_dead_and_of_strangers_do_not_count)
{
	two_make(false, 16, 16);
	ck_assert_ptr_nonnull(pair_hazard_enter(two.pair[0], 0x500, 0x101));
	two.pair[1]->priv->granted = VSD__ENGINE_RIGHT__ENGINE_STAGE;
	ck_assert(pair_hazards_clear(0x500, 0x101));
	two.pair[1]->priv->granted = VSD__ENGINE_RIGHT__ENGINE_CMA;
	ck_assert(!pair_hazards_clear(0x500, 0x101));
	atomic_store(&two.pair[1]->dead, true);
	ck_assert(pair_hazards_clear(0x500, 0x101));
}
END_TEST

static const struct {
	const char *name;
	uint32_t wire, gen, req, resp, kind;
	uint64_t offset;
} bad_events[] = {
	{ "index out of range", 16, 5, 16, 16, 1, VSD_SEGMENT_WIRES },
	{ "generation 0", 3, 0, 16, 16, 1, VSD_SEGMENT_WIRES },
	{ "no power of two", 3, 5, 12, 16, 1, VSD_SEGMENT_WIRES },
	{ "no slots", 3, 5, 0, 16, 1, VSD_SEGMENT_WIRES },
	{ "too many slots", 3, 5, 16, 1u << 31, 1, VSD_SEGMENT_WIRES },
	{ "in the pools", 3, 5, 16, 16, 1, 4096 },
	{ "not on a line", 3, 5, 16, 16, 1, VSD_SEGMENT_WIRES + 32 },
	{ "beyond the end", 3, 5, 16, 16, 1, VSD_SEGMENT_WIRES + (1u << 20) - 64 },
	{ "far beyond the end", 3, 5, 16, 16, 1, UINT64_MAX - 63 },
	{ "unknown kind", 3, 5, 16, 16, 9, VSD_SEGMENT_WIRES },
};

START_TEST(a_wire_that_does_not_fit_is_refused)
{
	Vsd__EvWire event = two_wire_event(0, bad_events[_i].req, bad_events[_i].resp);
	struct wire *wire;

	two_segment_pair();
	event.wire = bad_events[_i].wire;
	event.generation = bad_events[_i].gen;
	event.kind = (Vsd__WireKind)bad_events[_i].kind;
	event.offset = bad_events[_i].offset;
	ck_assert_msg(wire_make(two.pair[0], &event, &wire) == -EPROTO, "%s", bad_events[_i].name);
}
END_TEST

static const struct {
	const char *name;
	uint32_t mem[2], page[2];
	int want;
} layouts[] = {
	{ "ours", { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, { VSD_PAGE_MAGIC, VSD_ABI_VERSION }, 0 },
	{ "an older daemon", { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION - 1 }, { VSD_PAGE_MAGIC, VSD_ABI_VERSION }, -EPROTO },
	{ "an older peer", { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, { VSD_PAGE_MAGIC, VSD_ABI_VERSION - 1 }, -EPROTO },
	{ "a newer peer", { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, { VSD_PAGE_MAGIC, VSD_ABI_VERSION + 1 }, -EPROTO },
	{ "no segment", { VSD_PAGE_MAGIC, VSD_ABI_VERSION }, { VSD_PAGE_MAGIC, VSD_ABI_VERSION }, -EPROTO },
	{ "no page", { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, { 0, VSD_ABI_VERSION }, -EPROTO },
};

/* Each end finds its chunks where the other one looks for them, or they do not meet. */
START_TEST(both_ends_have_one_layout)
{
	ck_assert_msg(two_try(layouts[_i].mem, layouts[_i].page) == layouts[_i].want, "%s", layouts[_i].name);
	ck_assert(!pair_find(1, 0) == !!layouts[_i].want);
}
END_TEST

START_TEST(a_wire_is_not_made_twice)
{
	Vsd__EvWire event = two_wire_event(0, 16, 16);
	struct wire *again;

	two_make(false, 16, 16);
	event.offset = VSD_SEGMENT_WIRES;
	ck_assert_int_eq(wire_make(two.pair[0], &event, &again), -EEXIST);
}
END_TEST

START_TEST(loopback_ends_know_each_other_while_both_live)
{
	two_make(true, 16, 16);
	ck_assert_ptr_eq(two.end[0]->other, two.end[1]);
	ck_assert_ptr_eq(two.end[1]->other, two.end[0]);
	wire_release(two.end[0]);
	wire_collect();
	two.end[0] = NULL;
	ck_assert_ptr_null(two.end[1]->other);
	wire_notify(two.end[1]);
}
END_TEST

#define N(table) (int)(sizeof(table) / sizeof((table)[0]))

static TCase *tcase(Suite *suite, const char *name)
{
	TCase *t = harness_tcase(suite, name);

	tcase_add_checked_fixture(t, two_setup, two_teardown);
	return t;
}

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *t = tcase(suite, "lanes");

	tcase_add_loop_test(t, inline_payload_arrives_in_every_size, 0, N(shapes));
	tcase_add_test(t, a_datagram_starts_later_in_its_slot);
	tcase_add_loop_test(t, lanes_fill_and_drain_over_many_laps, 0, N(shapes));
	tcase_add_loop_test(t, responses_cross_the_other_way, 0, N(shapes));
	tcase_add_test(t, nothing_is_seen_before_the_peer_opened_its_half);
	tcase_add_test(t, a_closed_half_is_read_to_its_end);
	tcase_add_test(t, pending_tells_what_was_not_looked_at);
	t = tcase(suite, "pools");
	tcase_add_loop_test(t, a_chunk_is_free_again_when_its_slot_was_taken, 0, N(shapes));
	tcase_add_test(t, a_waiter_that_is_forgotten_is_not_run);
	tcase_add_test(t, a_chunk_wakes_one_that_waits_for_its_kind);
	tcase_add_test(t, a_chunk_that_was_not_used_wakes_the_next);
	tcase_add_test(t, a_waiter_waits_in_one_pair);
	tcase_add_test(t, nobody_waits_in_a_pair_that_goes);
	tcase_add_test(t, a_released_wire_keeps_its_chunk_while_the_peer_may_read);
	t = tcase(suite, "hostile");
	tcase_add_loop_test(t, a_malformed_request_breaks_the_wire, 0, N(bad_requests));
	tcase_add_loop_test(t, a_malformed_response_breaks_the_wire, 0, N(bad_responses));
	tcase_add_test(t, a_counter_ahead_of_what_was_sent_breaks_the_wire);
	tcase_add_test(t, a_counter_that_goes_back_breaks_the_wire);
	t = tcase(suite, "notice");
	tcase_add_test(t, a_wish_for_space_ends_with_the_next_request);
	t = tcase(suite, "hazards");
	tcase_add_test(t, hazards_name_key_and_queue_pair);
	tcase_add_test(t, a_wire_keeps_its_hazard_slot);
	tcase_add_test(t, hazards_of_the_dead_and_of_strangers_do_not_count);
	t = tcase(suite, "life");
	tcase_add_loop_test(t, a_wire_that_does_not_fit_is_refused, 0, N(bad_events));
	tcase_add_loop_test(t, both_ends_have_one_layout, 0, (int)(sizeof(layouts) / sizeof(layouts[0])));
	tcase_add_test(t, a_wire_is_not_made_twice);
	tcase_add_test(t, loopback_ends_know_each_other_while_both_live);
	return harness_run(suite);
}
