/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of WRs that the map engine runs from where the program has them: what such a list does to either memory, to the queues
 * and to the counters is what its WRs would do one by one, up to the one that fails or finds no place.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/mr_private.h"
#include "tests/unit/soft_list.h"

#define BYTES 64u

static uint8_t model[LIST_SIZE], model_here[LIST_MEMORY];

/* @n WRs that overlap at the end that they write to, so that their order shows; @reads: READs, else WRITEs. */
static void add_run(bool reads, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		list_add(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, reads ? 100 * i : 24 * i, reads ? 24 * i : 100 * i, BYTES);
}

/* What the first @n WRs of such a list do. */
static void model_run(bool reads, unsigned n)
{
	memcpy(model, region, LIST_SIZE);
	memcpy(model_here, memory, LIST_MEMORY);
	for (unsigned i = 0; i < n; i++)
		memcpy(reads ? model_here + 24 * i : model + 24 * i, (reads ? model : model_here) + 100 * i, BYTES);
}

static void assert_model(void)
{
	ck_assert(memcmp(region, model, LIST_SIZE) == 0);
	ck_assert(memcmp(memory, model_here, LIST_MEMORY) == 0);
}

/* --- lists that are done -------------------------------------------------------------------------------------------------- */

static const unsigned lengths[] = { 1, 2, 16, 64, 65, LIST_DEPTH };

/* By the end of the post, with nothing left in the queue. */
START_TEST(a_list_is_run_whole_and_in_order)
{
	unsigned n = lengths[_i / 2];
	bool reads = _i % 2;

	model_run(reads, n);
	add_run(reads, n);
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	ck_assert_int_eq(list_post(), 0);
	ck_assert_uint_eq(list_counted(VSD_COUNT_INITIATOR_RUN), n);
	ck_assert_uint_eq(list_counted(VSD_COUNT_POSTS), n);
	ck_assert_uint_eq(list_counted(VSD_COUNT_BYTES_SENT), reads ? 0 : n * BYTES);
	ck_assert_uint_eq(list_counted(VSD_COUNT_BYTES_RECEIVED), reads ? n * BYTES : 0);
	ck_assert_uint_eq(list_copied(), 0);
	assert_model();

	struct ibv_wc wc = loop_wait(a_send);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, LIST_FIRST + n - 1);
	ck_assert_int_eq(wc.opcode, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	ck_assert_uint_eq(wc.byte_len, BYTES);
	ck_assert_uint_eq(wc.qp_num, a->v.qp.qp_num);
	ck_assert(list_nothing());
}
END_TEST

START_TEST(those_that_are_signalled_complete)
{
	unsigned every = _i ? 3 : 1;

	a->init.sq_sig_all = !_i;
	add_run(false, 20);
	if (_i)
		list_signal(3);
	ck_assert_int_eq(list_post(), 0);
	for (unsigned i = every - 1; i < 20; i += every)
		list_expect(i, i + 1, IBV_WC_SUCCESS);
	ck_assert(list_nothing());
	ck_assert_uint_eq(list_counted(VSD_COUNT_INITIATOR_RUN), 20);
}
END_TEST

/* Atomics see each other, and what WRITEs and READs did before; a SEND takes the rest with it. */
START_TEST(a_mixed_list_is_in_order)
{
	static const enum ibv_wc_opcode opcodes[] = { IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP,
						      IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ };
	const uint64_t before = 41, swapped = 7, want[] = { 41, 41, 42 };
	struct ibv_wc wc;

	memcpy(memory, &before, 8);
	ck_assert_int_eq(loop_recv(b, 1, local, memory + 4096, 24), 0);
	list_add(IBV_WR_RDMA_WRITE, 512, 0, 8);
	list_add(IBV_WR_RDMA_READ, 512, 64, 8);
	list_add(IBV_WR_ATOMIC_FETCH_AND_ADD, 512, 72, 8);
	list_add(IBV_WR_ATOMIC_CMP_AND_SWP, 512, 80, 8)->wr.atomic.compare_add = 42;
	wrs[3].wr.atomic.swap = swapped;
	list_add(IBV_WR_SEND, 0, 64, 24)->send_flags = IBV_SEND_FENCE;
	list_add(IBV_WR_RDMA_WRITE, 520, 0, 8);
	list_add(IBV_WR_RDMA_READ, 512, 128, 16);
	list_signal(1);
	ck_assert_int_eq(list_post(), 0);
	ck_assert_uint_ge(list_counted(VSD_COUNT_INITIATOR_RUN), 4);
	for (int i = 0; i < COUNT_OF(opcodes); i++) {
		wc = loop_wait(a_send);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.wr_id, LIST_FIRST + (unsigned)i);
		ck_assert_int_eq(wc.opcode, opcodes[i]);
	}
	loop_expect(b_recv, 1, IBV_WC_SUCCESS);
	ck_assert_mem_eq(memory + 4096, want, sizeof(want));
	ck_assert_mem_eq(memory + 128, &swapped, 8);
	ck_assert_mem_eq(memory + 136, &before, 8);
	ck_assert_uint_eq(list_counted(VSD_COUNT_POSTS), 7);
}
END_TEST

/* The key of an inline piece is nobody's. One that is too long ends the list. */
START_TEST(inline_bytes_need_no_key)
{
	unsigned longest = a->priv->req.max_inline;

	model_run(false, 0);
	for (unsigned i = 0; i < 6; i++) {
		list_add(IBV_WR_RDMA_WRITE, 1000 * i, 500 * i, i == 4 ? longest + 1 : i == 2 ? longest : 8);
		if (i % 2 == 0)
			wrs[i].send_flags = IBV_SEND_INLINE;
		if (i % 2 == 0 && i < 4)
			sges[i].lkey = 0xabcdef00;
		if (i < 4)
			memcpy(model + 1000 * i, memory + 500 * i, sges[i].length);
	}
	list_signal(4);
	ck_assert_int_eq(list_post(), EINVAL);
	ck_assert_ptr_eq(bad, &wrs[4]);
	ck_assert_uint_eq(list_counted(VSD_COUNT_INITIATOR_RUN), 4);
	ck_assert_uint_eq(list_counted(VSD_COUNT_POSTS), 4);
	ck_assert_uint_eq(list_counted(VSD_COUNT_BYTES_SENT), 3 * 8 + longest);
	ck_assert_uint_eq(list_copied(), 5); /* the last of which was refused */
	assert_model();
	list_expect(3, 4, IBV_WC_SUCCESS);
	ck_assert(list_nothing());
}
END_TEST

/* What is before it waits for the owner, or for a turn to go on with it. */
START_TEST(a_list_waits_for_what_is_before_it)
{
	bool inside = rt_enter(); /* nobody takes the message, nor goes on */

	model_run(false, 0);
	if (_i) {
		list_add(IBV_WR_RDMA_WRITE, 0, 1, QP_SLICE + 4096);
		memcpy(model, memory + 1, QP_SLICE + 4096);
	} else {
		list_add(IBV_WR_SEND, 0, 0, 8);
		memcpy(model_here + LIST_MEMORY - 8, memory, 8);
	}
	ck_assert_int_eq(list_post(), 0);
	for (unsigned i = 0; i < 3; i++) {
		list_add(IBV_WR_RDMA_WRITE, QP_SLICE + 24 * i, 100 * i, BYTES);
		memcpy(model + QP_SLICE + 24 * i, memory + 100 * i, BYTES);
	}
	list_signal(1);
	ck_assert_int_eq(list_post(), 0);
	ck_assert(_i || list_counted(VSD_COUNT_INITIATOR_RUN) == 0);
	rt_leave(inside);
	ck_assert_int_eq(loop_recv(b, 1, local, memory + LIST_MEMORY - 8, 8), 0);
	list_expect(0, 3, IBV_WC_SUCCESS);
	assert_model();
}
END_TEST

/* --- lists that fail ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	uint32_t lkey, rkey;  /* bits that are wrong */
	uint64_t here, there; /* too far */
	enum ibv_wc_status status;
} faults[] = {
	{ "no such key here", .lkey = 0x40000000, .status = IBV_WC_LOC_PROT_ERR },
	{ "old key here", .lkey = 1, .status = IBV_WC_LOC_PROT_ERR },
	{ "over the end here", .here = LIST_MEMORY - BYTES + 1, .status = IBV_WC_LOC_PROT_ERR },
	{ "before it here", .here = UINT64_MAX, .status = IBV_WC_LOC_PROT_ERR },
	{ "no such key there", .rkey = 0x40000000, .status = IBV_WC_REM_ACCESS_ERR },
	{ "old key there", .rkey = 1, .status = IBV_WC_REM_ACCESS_ERR },
	{ "over the end there", .there = LIST_SIZE - BYTES + 1, .status = IBV_WC_REM_ACCESS_ERR },
	{ "before it there", .there = UINT64_MAX, .status = IBV_WC_REM_ACCESS_ERR },
};

/* Those before the bad one are done, and none behind it. */
static void one_fails(bool reads, unsigned at, bool all, int fault)
{
	model_run(reads, at);
	add_run(reads, 7);
	sges[at].lkey ^= faults[fault].lkey;
	wrs[at].wr.rdma.rkey ^= faults[fault].rkey;
	if (faults[fault].here)
		sges[at].addr = (uintptr_t)memory + faults[fault].here;
	if (faults[fault].there)
		wrs[at].wr.rdma.remote_addr = MAPPED_BASE + faults[fault].there;
	if (all)
		list_signal(1);
	ck_assert_int_eq(list_post(), 0);
	list_expect(all ? 0 : at, at, IBV_WC_SUCCESS);
	list_expect(at, at + 1, faults[fault].status);
	list_expect(at + 1, 7, IBV_WC_WR_FLUSH_ERR);
	ck_assert(list_nothing());
	ck_assert_msg(list_counted(VSD_COUNT_INITIATOR_RUN) == at, "%s: not those before it", faults[fault].name);
	ck_assert_uint_eq(list_counted(VSD_COUNT_POSTS), 7);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_ERR);
	assert_model();
}

START_TEST(a_bad_wr_ends_a_list)
{
	static const unsigned places[] = { 0, 1, 3, 6 };

	for (int i = 0; i < 2 * COUNT_OF(places); i++) {
		one_fails(_i % 2, places[i / 2], i % 2, _i / 2);
		list_connect(a_send);
		list_fill();
	}
}
END_TEST

/* What a WRITE found of a region is not enough for what stores there. */
START_TEST(a_region_that_is_read_only)
{
	model_run(false, 0);
	memcpy(model, memory, 8);
	list_add(IBV_WR_RDMA_WRITE, 0, 0, 8);
	list_add(_i ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, 64, 16, 8);
	sges[0].lkey = sges[1].lkey = read_only->key;
	ck_assert_int_eq(list_post(), 0);
	list_expect(1, 2, IBV_WC_LOC_PROT_ERR);
	ck_assert_uint_eq(list_counted(VSD_COUNT_INITIATOR_RUN), 1);
	assert_model();
}
END_TEST

static uint64_t word_at(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static void add_additions(unsigned n)
{
	memset(region + 512, 0, 16);
	for (unsigned i = 0; i < n; i++)
		list_add(IBV_WR_ATOMIC_FETCH_AND_ADD, 512, 16 * i, 8);
	list_signal(1);
}

START_TEST(atomics_of_a_list)
{
	add_additions(10);
	sges[4].length = 16; /* takes eight of them */
	memset(memory, 0xee, 256);
	ck_assert_int_eq(list_post(), 0);
	list_expect(0, 10, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_uint_eq(word_at(memory + 16 * i), i);
		ck_assert_uint_eq(word_at(memory + 16 * i + 8), 0xeeeeeeeeeeeeeeee);
	}
	ck_assert_uint_eq(word_at(region + 512), 10);
	ck_assert_uint_eq(list_counted(VSD_COUNT_BYTES_SENT) + list_counted(VSD_COUNT_BYTES_RECEIVED), 0);
	ck_assert_uint_eq(list_copied(), 0);
	add_additions(3);
	sges[1].length = 7;
	ck_assert_int_eq(list_post(), EINVAL);
	ck_assert_ptr_eq(bad, &wrs[1]);
	list_expect(0, 1, IBV_WC_SUCCESS);
	add_additions(6);
	wrs[2].wr.atomic.remote_addr += 4;
	ck_assert_int_eq(list_post(), 0);
	list_expect(0, 2, IBV_WC_SUCCESS);
	list_expect(2, 3, IBV_WC_REM_INV_REQ_ERR);
	list_expect(3, 6, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(word_at(region + 512), 2);
	ck_assert_uint_eq(word_at(region + 520), 0);
}
END_TEST

/* --- queues that are full ------------------------------------------------------------------------------------------------- */

static unsigned post_run(unsigned n, unsigned every, int err)
{
	add_run(false, n);
	list_signal(every);
	ck_assert_int_eq(list_post(), err);
	ck_assert_uint_eq(list_counted(VSD_COUNT_POSTS), list_counted(VSD_COUNT_INITIATOR_RUN));
	return (unsigned)list_counted(VSD_COUNT_INITIATOR_RUN);
}

/* Each takes a place until its completion, or that of one behind it, was read. */
START_TEST(a_full_queue_takes_no_more)
{
	unsigned every = _i ? 8 : 1;

	model_run(false, LIST_DEPTH);
	ck_assert_uint_eq(post_run(LIST_DEPTH + 5, every, ENOMEM), LIST_DEPTH);
	ck_assert_ptr_eq(bad, &wrs[LIST_DEPTH]);
	assert_model();
	ck_assert_uint_eq(post_run(1, 1, ENOMEM), 0);
	ck_assert_ptr_eq(bad, wrs);
	list_expect(every - 1, every, IBV_WC_SUCCESS);
	ck_assert_uint_eq(post_run(every + 3, every, ENOMEM), every);
	ck_assert_ptr_eq(bad, &wrs[every]);
	for (unsigned i = 2 * every - 1; i < LIST_DEPTH; i += every)
		list_expect(i, i + 1, IBV_WC_SUCCESS);
	list_expect(every - 1, every, IBV_WC_SUCCESS);
	ck_assert(list_nothing());
	ck_assert_uint_eq(post_run(LIST_DEPTH, LIST_DEPTH, 0), LIST_DEPTH);
	list_expect(LIST_DEPTH - 1, LIST_DEPTH, IBV_WC_SUCCESS);
	ck_assert_uint_eq(list_copied(), 0);
}
END_TEST

/* The QP is in error when the post returns, and nothing is done behind the WR whose completion is lost. */
START_TEST(a_lost_completion_ends_a_list)
{
	struct soft_cq *small = loop_cq(&loop, 4);

	list_connect(small);
	list_fill();
	model_run(false, 5);
	add_run(false, _i ? 10 : 5);
	list_signal(1);
	ck_assert_int_eq(list_post(), 0);
	ck_assert_int_eq(atomic_load(&a->state), IBV_QPS_ERR);
	ck_assert_uint_eq(list_counted(VSD_COUNT_INITIATOR_RUN), 5);
	assert_model();
	loop_event(&loop, IBV_EVENT_CQ_ERR);
	loop_event(&loop, IBV_EVENT_QP_FATAL);
	list_expect(0, 4, IBV_WC_SUCCESS);
	ck_assert(list_nothing());
	list_connect(a_send);
	loop_cq_free(small);
}
END_TEST

START_TEST(a_state_that_runs_nothing)
{
	model_run(false, 0);
	add_run(false, 3);
	list_signal(1);
	loop_state(a, IBV_QPS_SQD);
	ck_assert_int_eq(list_post(), 0);
	ck_assert(list_nothing());
	assert_model();
	loop_state(a, IBV_QPS_ERR);
	list_expect(0, 3, IBV_WC_WR_FLUSH_ERR);
	add_run(false, 3);
	ck_assert_int_eq(list_post(), 0);
	list_expect(0, 3, IBV_WC_WR_FLUSH_ERR);
	loop_state(a, IBV_QPS_RESET);
	add_run(false, 3);
	ck_assert_int_eq(list_post(), EINVAL);
	ck_assert_ptr_eq(bad, wrs);
	assert_model();
}
END_TEST

/* --- regions that go ------------------------------------------------------------------------------------------------------ */

static void *closer(void *arg)
{
	bool reads = arg;

	sched_yield();
	ck_assert_int_eq(mr_close(reads ? local : mr), 0);
	memset(reads ? memory : region, 0xaa, 16 * 4096);
	return NULL;
}

/* No byte after either region was closed, while a thread runs lists all the time. */
START_TEST(closing_waits_for_a_list)
{
	bool reads = _i;
	const uint8_t *at = reads ? memory : region;

	for (unsigned round = 0; round < 20; round++) {
		enum ibv_wc_status status = IBV_WC_SUCCESS;
		pthread_t thread;

		memset(reads ? region : memory, 0x55, 16 * 4096);
		for (unsigned i = 0; i < 64; i++)
			list_add(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 4096 * (i % 16), 4096 * (i % 16), 4096);
		list_signal(64);
		ck_assert_int_eq(pthread_create(&thread, NULL, closer, reads ? &reads : NULL), 0);
		while (status == IBV_WC_SUCCESS) {
			ck_assert_int_eq(list_post(), 0);
			status = loop_wait(a_send).status;
		}
		ck_assert_int_eq(status, reads ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		pthread_join(thread, NULL);
		ck_assert_uint_eq(at[0], 0xaa);
		ck_assert_mem_eq(at, at + 1, 16 * 4096 - 1);
		ck_assert_int_eq(mr_open(reads ? local : mr), 0);
		mapped_entry()->region = MAPPED_NUMBER;
		list_connect(a_send);
	}
}
END_TEST

/* --- the same as one by one ----------------------------------------------------------------------------------------------- */

#define HALF (LIST_MEMORY / 2) /* what is read from; behind it, what is stored to */
#define SPAN (LIST_SIZE / 8)   /* of the region: more than one window, and not so many that no two WRs share one */

static struct outcome {
	uint8_t there[LIST_SIZE], here[LIST_MEMORY];
	struct {
		uint64_t wr_id;
		uint32_t status, opcode, byte_len, qp_num;
	} done[2000];
	unsigned n;
} outcomes[2];

static void add_any(unsigned *seed)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	enum ibv_wr_opcode opcode = opcodes[rand_r(seed) % 4];
	bool stores = opcode != IBV_WR_RDMA_WRITE, word = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint32_t length = word ? 8u << rand_r(seed) % 2 : (uint32_t)rand_r(seed) % (rand_r(seed) % 8 ? 130 : 40000);
	uint64_t there = (uint64_t)rand_r(seed) % SPAN & ~(word ? 7ull : 0);
	struct ibv_send_wr *wr = list_add(opcode, there, stores * HALF + (uint64_t)rand_r(seed) % (HALF - length), length);

	wr->send_flags = (rand_r(seed) % 3 ? 0 : IBV_SEND_SIGNALED) | (rand_r(seed) % 4 ? 0 : IBV_SEND_FENCE);
	if (!stores && length <= 256 && rand_r(seed) % 4 == 0)
		wr->send_flags |= IBV_SEND_INLINE;
	if (!stores && rand_r(seed) % 2)
		wr->sg_list->lkey = read_only->key;
	if (!word && rand_r(seed) % 20 == 0)
		wr->num_sge = 0;
}

/* Completions, up to that of @last. */
static void take(struct outcome *o, uint64_t last)
{
	struct ibv_wc wc;

	do {
		wc = loop_wait(a_send);
		o->done[o->n].wr_id = wc.wr_id;
		o->done[o->n].status = wc.status;
		o->done[o->n].opcode = wc.opcode;
		o->done[o->n].byte_len = wc.byte_len;
		o->done[o->n++].qp_num = wc.qp_num;
	} while (wc.wr_id != last);
}

static void run_lists(unsigned seed, bool quick, struct outcome *o)
{
	list_fill();
	a->priv->plain = quick;
	for (unsigned list = 0; list < 60; list++) {
		unsigned n = 1 + (unsigned)rand_r(&seed) % 30;

		while (n_wrs < n)
			add_any(&seed);
		wrs[n - 1].send_flags |= IBV_SEND_SIGNALED;
		ck_assert_int_eq(list_post(), 0);
		take(o, LIST_FIRST + n - 1);
	}
	memcpy(o->there, region, LIST_SIZE);
	memcpy(o->here, memory, LIST_MEMORY);
}

/* Not the bytes: what a busy machine makes take the lane is counted at its other end, too, which is in this process. */
START_TEST(it_comes_to_the_same)
{
	run_lists((unsigned)_i, true, &outcomes[0]);
	run_lists((unsigned)_i, false, &outcomes[1]);
	ck_assert(memcmp(&outcomes[0], &outcomes[1], sizeof(outcomes[0])) == 0);
}
END_TEST

/* --- what the first version did otherwise --------------------------------------------------------------------------------- */

/* Inline bytes are those at the time of the post, whatever a READ before them brings. */
START_TEST(inline_bytes_are_taken_at_once)
{
	model_run(false, 0);
	memcpy(model + 8192, memory, 8);
	memcpy(model_here, region + 4096, 8);
	list_add(IBV_WR_RDMA_READ, 4096, 0, 8);
	list_add(IBV_WR_RDMA_WRITE, 8192, 0, 8)->send_flags = IBV_SEND_INLINE;
	list_signal(2);
	ck_assert_int_eq(list_post(), 0);
	list_expect(1, 2, IBV_WC_SUCCESS);
	assert_model();
}
END_TEST

/* All of an atomic's piece is to be in its region. */
START_TEST(a_long_piece_of_an_atomic)
{
	model_run(false, 0);
	list_add(IBV_WR_ATOMIC_FETCH_AND_ADD, 512, LIST_MEMORY - 8, 16);
	ck_assert_int_eq(list_post(), 0);
	list_expect(0, 1, IBV_WC_LOC_PROT_ERR);
	assert_model();
}
END_TEST

/* What is longer goes on with the next turn. */
START_TEST(a_post_copies_a_slice_or_two)
{
	for (unsigned i = 0; i < 16; i++)
		list_add(IBV_WR_RDMA_WRITE, 0, 0, QP_COPY_SLICE / 4);
	list_signal(16);
	bool inside = rt_enter();

	ck_assert_int_eq(list_post(), 0);
	ck_assert_uint_le(list_counted(VSD_COUNT_BYTES_SENT), 2 * QP_COPY_SLICE);
	rt_leave(inside);
	list_expect(15, 16, IBV_WC_SUCCESS);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, list_setup, list_teardown);
	tcase_add_loop_test(t, a_list_is_run_whole_and_in_order, 0, 2 * COUNT_OF(lengths));
	tcase_add_loop_test(t, those_that_are_signalled_complete, 0, 2);
	tcase_add_test(t, a_mixed_list_is_in_order);
	tcase_add_test(t, inline_bytes_need_no_key);
	tcase_add_loop_test(t, a_list_waits_for_what_is_before_it, 0, 2);
	tcase_add_loop_test(t, a_bad_wr_ends_a_list, 0, 2 * COUNT_OF(faults));
	tcase_add_loop_test(t, a_region_that_is_read_only, 0, 2);
	tcase_add_test(t, atomics_of_a_list);
	tcase_add_loop_test(t, a_full_queue_takes_no_more, 0, 2);
	tcase_add_loop_test(t, a_lost_completion_ends_a_list, 0, 2);
	tcase_add_test(t, a_state_that_runs_nothing);
	tcase_add_loop_test(t, closing_waits_for_a_list, 0, 2);
	tcase_add_loop_test(t, it_comes_to_the_same, 1, 4);
	tcase_add_test(t, inline_bytes_are_taken_at_once);
	tcase_add_test(t, a_long_piece_of_an_atomic);
	tcase_add_test(t, a_post_copies_a_slice_or_two);
}

int main(void)
{
	Suite *suite = suite_create("quick-list");
	TCase *t = harness_tcase(suite, "lists");

	add_tests(t);
	t = harness_tcase(suite, "lists of a thread domain");
	tcase_add_checked_fixture(t, loop_with_domain, NULL);
	add_tests(t);
	return harness_run(suite);
}
