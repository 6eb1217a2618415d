/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The map engine at work: two QPs of one process that are made to use it, a region that its owner has mapped at one
 * address and the initiator at another, and a daemon that is the test.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/map.h"
#include "client/soft/region.h"
#include "client/soft/rt_private.h"
#include "tests/unit/soft_mapped.h"

#define SIZE (4u << 20)

static uint8_t memory[512u << 10];

/* The entry of an MR that is on a region. */
static void open_region(void)
{
	ck_assert_int_eq(mr_open(mr), 0);
	mapped_entry()->region = MAPPED_NUMBER;
}

static void setup(void)
{
	mapped_start(SIZE, memory, sizeof(memory));
	mapped_region(MAPPED_BASE, SIZE, LOOP_ACCESS);
	mapped_grant(SIZE, true, 0);
}

static void post(enum ibv_wr_opcode opcode, uint64_t at, size_t from, uint32_t length)
{
	ck_assert_int_eq(loop_send(a, 1, opcode, local, memory + from, length, mr, (void *)(uintptr_t)(MAPPED_BASE + at)), 0);
}

static void run(enum ibv_wr_opcode opcode, uint64_t at, size_t from, uint32_t length)
{
	post(opcode, at, from, length);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
}

/* WRITEs of one byte until the engine runs one; how many took the lane. */
static unsigned until_mapped(void)
{
	uint64_t before = mapped_runs();
	unsigned n = 0;

	for (; mapped_runs() == before; n++)
		run(IBV_WR_RDMA_WRITE, SIZE - 1, 0, 1);
	return n - 1;
}

START_TEST(the_first_use_takes_the_lane)
{
	grants_hold(&grants, true);
	memset(memory, 0x31, 64);
	for (unsigned i = 0; i < 10; i++)
		run(IBV_WR_RDMA_WRITE, 100, 0, 64);
	ck_assert_uint_eq(mapped_runs(), 0);
	ck_assert_mem_eq(region + 100, memory, 64);
	grants_hold(&grants, false);
	until_mapped();
	ck_assert_uint_eq(grants_asked(&grants), 1);
}
END_TEST

START_TEST(write_read_and_atomics_are_run)
{
	uint64_t before, value = 40;

	until_mapped();
	before = mapped_runs();
	for (size_t i = 0; i < sizeof(memory) / 2; i++)
		memory[i] = (uint8_t)(i * 7 + (i >> 9));
	run(IBV_WR_RDMA_WRITE, 4093, 0, sizeof(memory) / 2);
	ck_assert_mem_eq(region + 4093, memory, sizeof(memory) / 2);
	run(IBV_WR_RDMA_READ, 4093, sizeof(memory) / 2, sizeof(memory) / 2);
	ck_assert_mem_eq(memory + sizeof(memory) / 2, memory, sizeof(memory) / 2);
	memcpy(region + 512, &value, 8);
	run(IBV_WR_ATOMIC_FETCH_AND_ADD, 512, 0, 8);
	ck_assert_mem_eq(memory, &value, 8);
	ck_assert_uint_eq(*(uint64_t *)(region + 512), 41);
	run(IBV_WR_ATOMIC_CMP_AND_SWP, 512, 0, 8); /* compares with 1 */
	ck_assert_uint_eq(*(uint64_t *)(region + 512), 41);
	ck_assert_uint_eq(mapped_runs(), before + 4);
}
END_TEST

/* The last eight bytes are one store, however the source is cut. */
START_TEST(pieces_of_a_source_are_put_together)
{
	struct ibv_sge sge[4];
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = sge, .num_sge = 4, .opcode = IBV_WR_RDMA_WRITE };
	uint64_t before;
	size_t at = 0;

	until_mapped();
	before = mapped_runs();
	for (size_t i = 0; i < 4096; i++)
		memory[i] = (uint8_t)(i + 1);
	for (unsigned i = 0; i < 4; i++) {
		uint32_t length = i == 0 ? 300 : 3;

		sge[i] = (struct ibv_sge){ (uintptr_t)memory + at, length, local->key };
		at += length;
	}
	wr.wr.rdma.remote_addr = MAPPED_BASE + 64;
	wr.wr.rdma.rkey = mr->key;
	ck_assert_int_eq(soft_post_send(&a->v.qp, &wr, &bad), 0);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
	ck_assert_mem_eq(region + 64, memory, at);
	ck_assert_uint_eq(region[64 + at], 0);
	ck_assert_uint_eq(mapped_runs(), before + 1);
}
END_TEST

START_TEST(a_refusal_is_asked_for_once)
{
	mapped_grant(SIZE, true, EACCES);
	memset(memory, 0x32, 64);
	for (unsigned i = 0; i < 50; i++)
		run(IBV_WR_RDMA_WRITE, i, 0, 64);
	grants_wait(&grants, 1);
	for (unsigned i = 0; i < 50; i++)
		run(IBV_WR_RDMA_WRITE, i, 0, 64);
	ck_assert_uint_eq(grants_asked(&grants), 1);
	ck_assert_uint_eq(mapped_runs(), 0);
	ck_assert_mem_eq(region + 49, memory, 64);
}
END_TEST

START_TEST(what_the_page_does_not_call_a_region_is_not_asked_for)
{
	mapped_entry()->region = 0;
	for (unsigned i = 0; i < 20; i++)
		run(IBV_WR_RDMA_WRITE, i, 0, 64);
	ck_assert_uint_eq(grants_asked(&grants), 0);
}
END_TEST

/* A plain region of the owner's, and a page that calls it a shared one. */
START_TEST(a_page_that_lies_gains_nothing)
{
	struct soft_mr *plain = loop_mr(&loop, region, 4096, LOOP_ACCESS), *shared = mr;

	mr = plain;
	mapped_entry()->region = MAPPED_NUMBER;
	for (unsigned i = 0; i < 50; i++)
		ck_assert_int_eq(loop_send(a, 1, IBV_WR_RDMA_WRITE, local, memory, 64, plain, region), 0);
	for (unsigned i = 0; i < 50; i++)
		loop_expect(a_send, 1, IBV_WC_SUCCESS);
	grants_wait(&grants, 1);
	ck_assert_uint_eq(mapped_runs(), 0);
	mr = shared;
	loop_mr_free(plain);
}
END_TEST

START_TEST(the_owner_judges_what_is_out_of_the_grant)
{
	uint64_t before;

	mapped_grant(SIZE / 2, true, 0); /* the daemon's word is less than the owner's */
	for (uint64_t n = 0; mapped_runs() == n;)
		run(IBV_WR_RDMA_WRITE, 0, 0, 1);
	before = mapped_runs();
	memset(memory, 0x33, 64);
	run(IBV_WR_RDMA_WRITE, SIZE / 2 - 32, 0, 64);
	ck_assert_mem_eq(region + SIZE / 2 - 32, memory, 64);
	ck_assert_uint_eq(mapped_runs(), before);
	post(IBV_WR_RDMA_WRITE, SIZE - 32, 0, 64);
	loop_expect(a_send, 1, IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(region[SIZE - 32], 0);
}
END_TEST

START_TEST(a_read_only_grant_is_for_reads)
{
	uint64_t before;

	mapped_grant(SIZE, false, 0);
	for (uint64_t n = 0; mapped_runs() == n;)
		run(IBV_WR_RDMA_READ, 0, 0, 1);
	before = mapped_runs();
	run(IBV_WR_RDMA_WRITE, 0, 0, 64);
	run(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 8);
	ck_assert_uint_eq(mapped_runs(), before);
	run(IBV_WR_RDMA_READ, 0, 0, 64);
	ck_assert_uint_eq(mapped_runs(), before + 1);
}
END_TEST

START_TEST(a_misaligned_atomic_is_the_owners_to_refuse)
{
	until_mapped();
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, 12, 0, 8);
	loop_expect(a_send, 1, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_uint_eq(*(uint64_t *)(region + 8), 0);
	ck_assert_uint_eq(*(uint64_t *)(region + 16), 0);
}
END_TEST

static bool is_given(void)
{
	return map_given(atomic_load(&a->wire)->pair, mr->key);
}

/* By its address; by its place it is aligned. */
START_TEST(a_word_that_is_not_aligned)
{
	loop_mr_free(mr);
	mapped_region(MAPPED_BASE + 4, SIZE, LOOP_ACCESS);
	mapped_grant(SIZE, true, 0);
	until_mapped();
	memset(region, 0x11, 16);
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, 8);
	loop_expect(a_send, 1, IBV_WC_REM_INV_REQ_ERR);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_uint_eq(region[i], 0x11);
}
END_TEST

/* Who keeps the queue full would never find it empty: what came before the grant keeps what comes after it waiting. */
START_TEST(a_full_queue_goes_over_to_the_engine)
{
	soft_lock(&b->rq_lock); /* the owner serves nothing */
	for (unsigned i = 0; i < 4; i++)
		post(IBV_WR_RDMA_WRITE, 64 * i, 64 * i, 64);
	while (!is_given())
		sched_yield();
	for (unsigned i = 4; i < 8; i++)
		post(IBV_WR_RDMA_WRITE, 64 * i, 64 * i, 64);
	soft_unlock(&b->rq_lock);
	for (unsigned i = 0; i < 8; i++)
		loop_expect(a_send, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(mapped_runs(), 4);
}
END_TEST

/* ... but a SEND is the owner's, and whatever is behind it goes with it. */
START_TEST(a_write_behind_a_send_takes_the_lane)
{
	uint64_t before;

	until_mapped();
	before = mapped_runs();
	soft_lock(&b->rq_lock);
	ck_assert_int_eq(loop_send(a, 7, IBV_WR_SEND, local, memory, 8, NULL, NULL), 0);
	post(IBV_WR_RDMA_WRITE, 0, 0, 64);
	soft_unlock(&b->rq_lock);
	ck_assert_int_eq(loop_recv(b, 9, local, memory + 4096, 8), 0);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(mapped_runs(), before);
}
END_TEST

/* Behind a SEND that finds no receive nothing is stored, although the engine could. */
START_TEST(a_write_waits_for_the_send_before_it)
{
	uint64_t before;

	until_mapped();
	before = mapped_runs();
	memset(memory, 0x34, 64);
	ck_assert_int_eq(loop_send(a, 7, IBV_WR_SEND, local, memory, 8, NULL, NULL), 0);
	post(IBV_WR_RDMA_WRITE, 0, 0, 64);
	for (unsigned i = 0; i < 1000; i++)
		rt_progress();
	ck_assert_uint_eq(region[0], 0);
	ck_assert_uint_eq(mapped_runs(), before);
	ck_assert_int_eq(loop_recv(b, 9, local, memory + 4096, 8), 0);
	loop_expect(a_send, 7, IBV_WC_SUCCESS);
	loop_expect(a_send, 1, IBV_WC_SUCCESS);
	ck_assert_mem_eq(region, memory, 64);
}
END_TEST

static bool is_mapped(uint32_t number)
{
	struct soft_region *mapped = region_find(number, false);

	region_put(mapped);
	return mapped;
}

START_TEST(a_key_that_was_registered_again_is_asked_for_again)
{
	int second = fake_region_file(SIZE);
	uint8_t byte = 0;

	until_mapped();
	ck_assert_int_eq(mr_close(mr), 0);
	/* Another region has the key now. */
	grants_set(&grants, &(struct fake_region){ mr->key, MAPPED_NUMBER + 1, second, MAPPED_BASE, SIZE, true, 0 });
	memset(region, 0, SIZE);
	open_region();
	memory[0] = 0x77;
	until_mapped();
	ck_assert_uint_eq(grants_asked(&grants), 2);
	ck_assert_int_eq(pread(second, &byte, 1, SIZE - 1), 1);
	ck_assert_uint_eq(byte, 0x77);
	while (is_mapped(MAPPED_NUMBER))
		sched_yield();
	close(second);
}
END_TEST

/* With nobody at work here: the progress thread looks. */
START_TEST(a_closed_key_is_soon_unmapped)
{
	until_mapped();
	ck_assert(is_mapped(MAPPED_NUMBER));
	ck_assert_int_eq(mr_close(mr), 0);
	while (is_mapped(MAPPED_NUMBER))
		sched_yield();
	open_region();
}
END_TEST

static _Atomic bool stop;

static void *closer(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = rand_r(&seed) % 200; i; i--)
		sched_yield();
	ck_assert_int_eq(mr_close(mr), 0);
	memset(region, 0xaa, sizeof(memory));
	atomic_store(&stop, true);
	return NULL;
}

/* No byte after the key was closed, while a thread is writing all the time. */
START_TEST(closing_waits_for_the_copy)
{
	for (uintptr_t round = 0; round < 10; round++) {
		enum ibv_wc_status status = IBV_WC_SUCCESS;
		pthread_t thread;

		until_mapped();
		atomic_store(&stop, false);
		ck_assert_int_eq(pthread_create(&thread, NULL, closer, (void *)(round + 1)), 0);
		for (uint8_t n = 1; status == IBV_WC_SUCCESS; n = n % 100 + 1) {
			memory[0] = memory[sizeof(memory) - 1] = n;
			post(IBV_WR_RDMA_WRITE, 0, 0, sizeof(memory));
			status = loop_wait(a_send).status;
		}
		ck_assert_int_eq(status, IBV_WC_REM_ACCESS_ERR);
		pthread_join(thread, NULL);
		memset(memory, 0xaa, sizeof(memory));
		ck_assert(memcmp(region, memory, sizeof(memory)) == 0);
		loop_qp_free(a);
		loop_qp_free(b);
		mapped_connect();
		open_region();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map-engine");
	TCase *t = harness_tcase(suite, "engine");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, mapped_stop);
	tcase_add_test(t, the_first_use_takes_the_lane);
	tcase_add_test(t, write_read_and_atomics_are_run);
	tcase_add_test(t, pieces_of_a_source_are_put_together);
	tcase_add_test(t, a_refusal_is_asked_for_once);
	tcase_add_test(t, what_the_page_does_not_call_a_region_is_not_asked_for);
	tcase_add_test(t, a_page_that_lies_gains_nothing);
	tcase_add_test(t, the_owner_judges_what_is_out_of_the_grant);
	tcase_add_test(t, a_word_that_is_not_aligned);
	tcase_add_test(t, a_read_only_grant_is_for_reads);
	tcase_add_test(t, a_misaligned_atomic_is_the_owners_to_refuse);
	tcase_add_test(t, a_full_queue_goes_over_to_the_engine);
	tcase_add_test(t, a_write_behind_a_send_takes_the_lane);
	tcase_add_test(t, a_write_waits_for_the_send_before_it);
	tcase_add_test(t, a_key_that_was_registered_again_is_asked_for_again);
	tcase_add_test(t, a_closed_key_is_soon_unmapped);
	tcase_add_test(t, closing_waits_for_the_copy);
	return harness_run(suite);
}
