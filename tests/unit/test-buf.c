/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue buffers: what a parent domain's allocator is asked for, and that each buffer goes back where it came from.
 */
#include "client/soft/buf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/objects.h"
#include "tests/lib/harness.h"

static struct {
	void *answer; /* of alloc */
	size_t size, alignment;
	uint64_t type;
	void *freed, *context;
	struct ibv_pd *pd;
	unsigned allocs, frees;
} seen;

static void *give(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	seen.pd = pd;
	seen.context = context;
	seen.size = size;
	seen.alignment = alignment;
	seen.type = type;
	seen.allocs++;
	return seen.answer;
}

static void take(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
	seen.pd = pd;
	seen.context = context;
	seen.freed = ptr;
	seen.type = type;
	seen.frees++;
}

static int token;
static struct soft_pd domain = { .alloc = give, .free = take, .pd_context = &token };

static void setup(void)
{
	memset(&seen, 0, sizeof(seen));
}

START_TEST(plain_pds_get_zeroed_memory)
{
	struct soft_pd plain = { .pd_context = &token };

	for (unsigned i = 0; i < 2; i++) {
		struct soft_pd *pd = i ? &plain : NULL;
		uint8_t *buf = buf_alloc(pd, 1000, BUF_CQ);

		ck_assert_ptr_nonnull(buf);
		for (unsigned n = 0; n < 1000; n++)
			ck_assert_uint_eq(buf[n], 0);
		buf_free(pd, buf, BUF_CQ);
		buf_free(pd, NULL, BUF_CQ);
	}
	ck_assert_uint_eq(seen.allocs + seen.frees, 0);
}
END_TEST

START_TEST(the_allocator_is_asked_for_exactly_what_is_needed)
{
	enum buf_resource resource = (enum buf_resource)_i;
	static _Alignas(BUF_ALIGN) uint8_t memory[64] = { 7, 7, 7 };

	seen.answer = memory;
	ck_assert_ptr_eq(buf_alloc(&domain, 33, resource), memory);
	ck_assert_uint_eq(seen.size, 33);
	ck_assert_uint_eq(seen.alignment, 64);
	ck_assert_uint_eq(seen.type, 0x765300000000u + resource);
	ck_assert_ptr_eq(seen.context, &token);
	ck_assert_ptr_eq(seen.pd, &domain.pd);
	/* To zero it is the callback's task, and big ones are not touched for nothing. */
	ck_assert_uint_eq(memory[0], 7);
	ck_assert_uint_eq(seen.frees, 0);
	memset(&seen, 0, sizeof(seen));
	buf_free(&domain, memory, resource);
	ck_assert_uint_eq(seen.frees, 1);
	ck_assert_ptr_eq(seen.freed, memory);
	ck_assert_uint_eq(seen.type, 0x765300000000u + resource);
	ck_assert_ptr_eq(seen.context, &token);
	ck_assert_ptr_eq(seen.pd, &domain.pd);
}
END_TEST

START_TEST(no_memory_is_no_memory)
{
	seen.answer = NULL;
	ck_assert_ptr_null(buf_alloc(&domain, 100, BUF_QP));
	ck_assert_uint_eq(seen.allocs, 1);
	buf_free(&domain, NULL, BUF_QP);
	ck_assert_uint_eq(seen.frees, 0);
}
END_TEST

START_TEST(misaligned_memory_goes_back_at_once)
{
	static _Alignas(BUF_ALIGN) uint8_t memory[128];

	seen.answer = memory + 32;
	ck_assert_ptr_null(buf_alloc(&domain, 64, BUF_SRQ));
	ck_assert_uint_eq(seen.frees, 1);
	ck_assert_ptr_eq(seen.freed, memory + 32);
	ck_assert_uint_eq(seen.type, 0x765300000000u + BUF_SRQ);
}
END_TEST

/* Thousands of buffers, some the program's and some left to us, given back in another order than they were taken. */
START_TEST(each_goes_back_where_it_came_from)
{
	enum { N = 5000 };
	static uint8_t *buf[N];
	static bool own[N];
	unsigned theirs = 0;

	for (unsigned i = 0; i < N; i++) {
		own[i] = rand() % 3;
		seen.answer = own[i] ? IBV_ALLOCATOR_USE_DEFAULT : aligned_alloc(BUF_ALIGN, 128);
		buf[i] = buf_alloc(&domain, 128, BUF_CQ);
		ck_assert_ptr_nonnull(buf[i]);
		for (unsigned n = 0; own[i] && n < 128; n++)
			ck_assert_uint_eq(buf[i][n], 0);
		theirs += !own[i];
	}
	for (unsigned n = 0; n < N; n++) {
		unsigned i = n * 1237 % N;

		seen.freed = NULL;
		buf_free(&domain, buf[i], BUF_CQ);
		ck_assert_ptr_eq(seen.freed, own[i] ? NULL : buf[i]);
		free(own[i] ? NULL : buf[i]);
	}
	ck_assert_uint_eq(seen.frees, theirs);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("buf");
	TCase *tcase = harness_tcase(suite, "buf");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60); /* thousands of buffers, in a sanitizer's allocator too */
	tcase_add_test(tcase, plain_pds_get_zeroed_memory);
	tcase_add_loop_test(tcase, the_allocator_is_asked_for_exactly_what_is_needed, BUF_CQ, BUF_SRQ + 1);
	tcase_add_test(tcase, no_memory_is_no_memory);
	tcase_add_test(tcase, misaligned_memory_goes_back_at_once);
	tcase_add_test(tcase, each_goes_back_where_it_came_from);
	return harness_run(suite);
}
