/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's table of mapped regions: what is refused, where a mapping lies, who shares it, and that it is in no
 * child and no core dump.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/region.h"
#include "tests/lib/harness.h"

#define SIZE 65536u
#define BASE HARNESS_BASE

/* A memfd as the daemon makes it. */
static int file_make(size_t size, int seals)
{
	int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int sealed(size_t size)
{
	return file_make(size, F_SEAL_SHRINK | F_SEAL_GROW);
}

/* The same file, read-only, as the daemon passes it. */
static int reopened(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

	int r = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(r, 0);
	return r;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(a_region_lies_at_its_base)
{
	struct soft_region *region;
	int fd = sealed(SIZE);

	ck_assert_int_eq(region_map(7, fd, BASE, SIZE, true, &region), 0);
	ck_assert(!is_open(fd));
	ck_assert_ptr_eq(region->addr, (void *)BASE);
	ck_assert_uint_eq(region->base, BASE);
	memset(region->addr, 1, SIZE);
	ck_assert_ptr_null(region_put(region));
	ck_assert_int_eq(msync((void *)BASE, SIZE, MS_ASYNC), -1);
}
END_TEST

static const uint64_t taken[] = { BASE, 0, UINT64_MAX - 4095, 4096 * 3 + 1 };

START_TEST(elsewhere_when_the_base_will_not_do)
{
	void *there = mmap((void *)BASE, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct soft_region *region;

	ck_assert_ptr_eq(there, (void *)BASE);
	ck_assert_int_eq(region_map(7, sealed(SIZE), taken[_i], SIZE, true, &region), 0);
	ck_assert_ptr_ne(region->addr, (void *)taken[_i]);
	ck_assert_uint_eq(region->base, taken[_i]);
	memset(region->addr, 1, SIZE);
	region_put(region);
	munmap(there, 4096);
}
END_TEST

START_TEST(what_could_shrink_is_refused)
{
	struct soft_region *region = NULL;
	int fds[2], fd = file_make(SIZE, 0);

	ck_assert_int_eq(region_map(7, fd, BASE, SIZE, true, &region), -EPROTO);
	ck_assert(!is_open(fd));
	ck_assert_int_eq(region_map(7, sealed(SIZE - 4096), BASE, SIZE, true, &region), -EPROTO);
	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, 0, true, &region), -EPROTO);
	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, UINT64_MAX, true, &region), -EPROTO);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(region_map(7, fds[0], BASE, SIZE, false, &region), -EPROTO);
	ck_assert_int_eq(close(fds[1]), 0);
	/* Whoever asks for more than the fd gives gets nothing. */
	fd = sealed(SIZE);
	ck_assert_int_eq(region_map(7, reopened(fd), BASE, SIZE, true, &region), -EACCES);
	close(fd);
	ck_assert_int_eq(region_map(7, -1, BASE, SIZE, true, &region), -EBADF);
	ck_assert_ptr_null(region);
	ck_assert_ptr_null(region_find(7, false));
}
END_TEST

START_TEST(one_mapping_serves_all_who_may)
{
	struct soft_region *region, *reader, *found;
	int fd = sealed(SIZE), ro = reopened(fd);

	ck_assert_int_eq(region_map(7, dup(ro), BASE, SIZE, false, &reader), 0);
	ck_assert_ptr_null(region_find(7, true));
	found = region_find(7, false);
	ck_assert_ptr_eq(found, reader);
	region_put(found);
	/* A writer needs a mapping of its own, which then serves readers too. */
	ck_assert_int_eq(region_map(7, dup(fd), BASE, SIZE, true, &region), 0);
	ck_assert_ptr_ne(region, reader);
	ck_assert_int_eq(region_map(7, dup(ro), BASE, SIZE, false, &found), 0);
	ck_assert_ptr_eq(found, region);
	region->addr[9] = 9;
	ck_assert_uint_eq(reader->addr[9], 9);
	region_put(found);
	region_put(reader);
	found = region_find(7, true);
	ck_assert_ptr_eq(found, region);
	region_put(found);
	region_put(region);
	ck_assert_ptr_null(region_find(7, true));
	close(fd);
	close(ro);
}
END_TEST

START_TEST(a_number_that_comes_again_is_another_region)
{
	struct soft_region *first, *second, *found;

	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, SIZE, true, &first), 0);
	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, SIZE, true, &second), 0);
	ck_assert_ptr_ne(first, second);
	first->addr[0] = 1;
	ck_assert_uint_eq(second->addr[0], 0);
	found = region_find(7, true);
	ck_assert_ptr_eq(found, second); /* the newest */
	region_put(found);
	region_put(first);
	region_put(second);
}
END_TEST

START_TEST(a_reader_faults_on_a_store)
{
	struct soft_region *region;
	int fd = sealed(SIZE), ro = reopened(fd);

	close(fd);
	signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler */
	if (region_map(7, ro, BASE, SIZE, false, &region) < 0)
		return; /* and the test fails for want of the signal */
	/* The mapping cannot be made writable either. */
	if (mprotect(region->addr, SIZE, PROT_READ | PROT_WRITE) < 0 && errno == EACCES)
		*(volatile uint8_t *)region->addr = 1;
}
END_TEST

START_TEST(it_is_in_no_child_and_no_core)
{
	struct soft_region *region;
	char line[512];
	bool inside = false, seen = false;

	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, SIZE, true, &region), 0);

	FILE *smaps = fopen("/proc/self/smaps", "re");

	ck_assert_ptr_nonnull(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		uint64_t from, to;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2)
			inside = from <= BASE && BASE < to;
		if (inside && strncmp(line, "VmFlags:", 8) == 0) {
			seen = true;
			ck_assert_msg(strstr(line, " dc"), "%s", line);
			ck_assert_msg(strstr(line, " dd"), "%s", line);
		}
	}
	fclose(smaps);
	ck_assert(seen);
	region_put(region);
}
END_TEST

static size_t resident(uint8_t *addr)
{
	unsigned char vec[SIZE / 4096];
	size_t n = 0;

	ck_assert_int_eq(mincore(addr, SIZE, vec), 0);
	for (size_t i = 0; i < sizeof(vec); i++)
		n += vec[i] & 1;
	return n;
}

START_TEST(pages_come_when_asked_for)
{
	struct soft_region *region;

	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, SIZE, true, &region), 0);
	ck_assert_uint_eq(resident(region->addr), 0);
	ck_assert_int_eq(region_populate(region), 0);
	ck_assert_uint_eq(resident(region->addr), SIZE / (unsigned)getpagesize());
	region_put(region);
}
END_TEST

static const int bad_nodes[] = { -1, 1023, 1024, INT32_MAX };

START_TEST(a_node_that_is_not_there)
{
	struct soft_region *region;

	ck_assert_int_eq(region_map(7, sealed(SIZE), BASE, SIZE, true, &region), 0);
	ck_assert_int_eq(region_bind(region, bad_nodes[_i]), -EINVAL);
	ck_assert_int_eq(region_populate(region), 0);
	region_put(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *t = harness_tcase(suite, "mapped");

	tcase_add_test(t, a_region_lies_at_its_base);
	tcase_add_loop_test(t, elsewhere_when_the_base_will_not_do, 0, sizeof(taken) / sizeof(taken[0]));
	tcase_add_test(t, what_could_shrink_is_refused);
	tcase_add_test(t, one_mapping_serves_all_who_may);
	tcase_add_test(t, a_number_that_comes_again_is_another_region);
	tcase_add_test_raise_signal(t, a_reader_faults_on_a_store, SIGSEGV);
	tcase_add_test(t, it_is_in_no_child_and_no_core);
	tcase_add_test(t, pages_come_when_asked_for);
	tcase_add_loop_test(t, a_node_that_is_not_there, 0, sizeof(bad_nodes) / sizeof(bad_nodes[0]));
	return harness_run(suite);
}
