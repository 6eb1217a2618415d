/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of a client: what stands in common in its page, and in each of its shards. */
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/process.h"
#include "daemon/stats.h"
#include "proto/ring_abi.h"
#include "tests/lib/harness.h"

static struct process process;

static void setup(void)
{
	process.page = memfd_create("page", MFD_CLOEXEC);
	ck_assert_int_ge(process.page, 0);
	ck_assert_int_eq(ftruncate(process.page, VSD_PAGE_SIZE), 0);
}

static void teardown(void)
{
	close(process.page);
}

static void put(uint64_t value, size_t at)
{
	ck_assert_int_eq(pwrite(process.page, &value, sizeof(value), (off_t)at), sizeof(value));
}

START_TEST(a_counter_is_the_sum_of_its_shards)
{
	uint64_t counters[VSD_COUNT_N];

	put(5, offsetof(struct vsd_page, counters[VSD_COUNT_RECVS]));
	put(1000, offsetof(struct vsd_page, mr_changes)); /* what stands between them is none */
	for (unsigned i = 0; i < VSD_PAGE_SHARDS; i++)
		put(i + 1, offsetof(struct vsd_page, shards) + i * sizeof(struct vsd_shard) +
				   VSD_COUNT_RECVS * sizeof(uint64_t));
	put(7, offsetof(struct vsd_page, shards[VSD_PAGE_SHARDS - 1].counters[VSD_COUNT_N - 1]));
	ck_assert(stats_counters(&process, counters));
	for (unsigned i = 0; i < VSD_COUNT_N; i++)
		ck_assert_uint_eq(counters[i], i == VSD_COUNT_RECVS ? 5 + VSD_PAGE_SHARDS * (VSD_PAGE_SHARDS + 1) / 2
						: i == VSD_COUNT_N - 1 ? 7 : 0);
}
END_TEST

START_TEST(a_page_that_is_not_there_has_none)
{
	uint64_t counters[VSD_COUNT_N];

	ck_assert(!stats_counters(NULL, counters));
	ck_assert_int_eq(ftruncate(process.page, offsetof(struct vsd_page, shards)), 0);
	ck_assert(!stats_counters(&process, counters));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stats");
	TCase *tcase = harness_tcase(suite, "stats");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_counter_is_the_sum_of_its_shards);
	tcase_add_test(tcase, a_page_that_is_not_there_has_none);
	return harness_run(suite);
}
