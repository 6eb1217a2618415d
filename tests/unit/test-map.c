/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants of the map engine, by themselves: a pair whose peer is the test, which writes the peer's page and gives the
 * daemon's answers, honest or not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/soft/map.h"
#include "client/soft/qp.h"
#include "client/soft/region.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_grants.h"

#define KEY    0x12345u
#define QPN    0x101u
#define BASE   HARNESS_BASE
#define SIZE   (1u << 20)
#define NUMBER 5u

static struct vsd_page *page; /* the peer's */
static struct pair *pair;
static int file;

static void pair_make(void)
{
	Vsd__EvSegment event = VSD__EV_SEGMENT__INIT;
	int mem = memfd_create("segment", MFD_CLOEXEC), fd = memfd_create("page", MFD_CLOEXEC), quiet[2], kick[2];

	event.segment = 4;
	event.size = VSD_SEGMENT_WIRES + 4096;
	event.peer = 9;
	event.engines = VSD__ENGINE_RIGHT__ENGINE_STAGE | VSD__ENGINE_RIGHT__ENGINE_MAP;
	event.wires = 4;
	ck_assert_int_eq(ftruncate(mem, (off_t)event.size), 0);
	ck_assert_int_eq(ftruncate(fd, VSD_PAGE_SIZE), 0);
	ck_assert_int_eq(pwrite(mem, (uint32_t[]){ VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, 8, 0), 8);
	ck_assert_int_eq(pwrite(fd, (uint32_t[]){ VSD_PAGE_MAGIC, VSD_ABI_VERSION }, 8, 0), 8);
	page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	/* A pipe's end is as good as a pidfd here. */
	ck_assert_int_eq(pipe2(quiet, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(kick, O_CLOEXEC), 0);
	ck_assert_int_eq(pair_add(&event, mem, quiet[0], kick[1], fd), 0);
	close(quiet[1]);
	close(kick[0]);
	pair = pair_find(4, 0);
	pair->priv->attached = 1; /* as if it had a wire */
}

static void setup(void)
{
	rt.page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rt.page, MAP_FAILED);
	rt.epoll = epoll_create1(EPOLL_CLOEXEC);
	file = fake_region_file(SIZE);
	pair_make();
}

static void teardown(void)
{
	pair_remove_all();
	events_deinit();
	map_stop();
	ck_assert(!map_any());
	ck_assert_ptr_null(region_find(NUMBER, false));
	munmap(page, VSD_PAGE_SIZE);
	munmap(rt.page, VSD_PAGE_SIZE);
	close(rt.epoll);
	close(file);
}

static struct vsd_key *entry(void)
{
	return &page->keys[(KEY >> 8) % VSD_PAGE_KEYS];
}

/* The peer says: KEY gives access to a region. */
static void entry_open(uint64_t gen)
{
	entry()->key = KEY;
	entry()->addr = 0x5000;
	entry()->length = SIZE;
	entry()->iova = BASE;
	entry()->region = NUMBER;
	entry()->gen = gen;
}

static int reopened(int flags)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	fd = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void answer(uint64_t gen, bool writable)
{
	Vsd__RegionGrantReply reply = VSD__REGION_GRANT_REPLY__INIT;

	reply.region = NUMBER;
	reply.iova = BASE;
	reply.size = SIZE;
	reply.writable = writable;
	map_answer(4, 0, KEY, gen, 0, &reply, reopened(writable ? O_RDWR : O_RDONLY));
}

static enum map_result find(uint64_t addr, uint64_t length, bool write, void **ptr)
{
	return map_find(pair, KEY, addr, length, length, write, ptr);
}

static enum map_result find_any(void)
{
	void *ptr;

	return find(BASE, 8, false, &ptr);
}

static void grant(uint64_t gen, bool writable)
{
	entry_open(gen);
	ck_assert_int_eq(find_any(), MAP_ABSENT);
	map_ask(pair, KEY, QPN);
	ck_assert_int_eq(find_any(), MAP_PASS);
	answer(gen, writable);
	ck_assert_int_eq(find_any(), MAP_FOUND);
}

START_TEST(a_grant_maps_the_regions_own_memory)
{
	uint64_t word = 0;
	void *ptr;

	ck_assert(!map_hinted(pair, KEY));
	grant(3, true);
	ck_assert(map_hinted(pair, KEY));
	ck_assert_int_eq(find(BASE + 4096, 8, true, &ptr), MAP_FOUND);
	*(uint64_t *)ptr = 0x1122334455667788;
	ck_assert_int_eq(pread(file, &word, 8, 4096), 8);
	ck_assert_uint_eq(word, 0x1122334455667788);
}
END_TEST

static const struct {
	const char *name;
	uint64_t addr, length;
	enum map_result want;
} ranges[] = {
	{ "all of it", BASE, SIZE, MAP_FOUND },
	{ "its last byte", BASE + SIZE - 1, 1, MAP_FOUND },
	{ "one byte too many", BASE, SIZE + 1ull, MAP_BAD },
	{ "over its end", BASE + SIZE - 4, 8, MAP_BAD },
	{ "behind it", BASE + SIZE, 1, MAP_BAD },
	{ "before it", BASE - 1, 2, MAP_BAD },
	{ "far before it", 0, 8, MAP_BAD },
	{ "around the world", BASE + 8, UINT64_MAX - 4, MAP_BAD },
	{ "the end of the world", UINT64_MAX - 7, 8, MAP_BAD },
};

/* Whatever the peer's page says of length and bounds. */
START_TEST(the_grant_bounds_what_is_touched)
{
	enum map_result result;
	void *ptr;

	grant(3, true);
	entry()->length = UINT64_MAX;
	entry()->addr = 0;
	result = find(ranges[_i].addr, ranges[_i].length, true, &ptr);
	ck_assert_msg(result == ranges[_i].want, "%s: %d", ranges[_i].name, result);
}
END_TEST

START_TEST(another_translation_than_the_regions_is_the_owners)
{
	grant(3, true);
	entry()->iova = BASE + 4096;
	ck_assert_int_eq(find_any(), MAP_BAD);
}
END_TEST

START_TEST(a_read_only_grant_is_not_written)
{
	void *ptr;

	grant(3, false);
	ck_assert_int_eq(find(BASE, 8, false, &ptr), MAP_FOUND);
	ck_assert_int_eq(find(BASE, 8, true, &ptr), MAP_PASS);
	ck_assert_int_eq(mprotect((void *)((uintptr_t)ptr & ~4095ull), 4096, PROT_READ | PROT_WRITE), -1);
}
END_TEST

/* ... also not through a mapping that this process has for writing, of its own right. */
START_TEST(the_grant_counts_not_the_mapping)
{
	struct soft_region *own;
	void *ptr;

	ck_assert_int_eq(region_map(NUMBER, reopened(O_RDWR), BASE, SIZE, true, &own), 0);
	grant(3, false);
	ck_assert_int_eq(find(BASE, 8, false, &ptr), MAP_FOUND);
	ck_assert_ptr_eq(ptr, own->addr); /* and there is no second one */
	ck_assert_int_eq(find(BASE, 8, true, &ptr), MAP_PASS);
	region_put(own);
}
END_TEST

START_TEST(what_is_mapped_read_only_leaves_the_base_alone)
{
	struct soft_region *own;

	grant(3, false);
	ck_assert_int_eq(region_map(NUMBER, reopened(O_RDWR), BASE, SIZE, true, &own), 0);
	ck_assert_ptr_eq(own->addr, (void *)BASE);
	region_put(own);
}
END_TEST

START_TEST(another_generation_is_another_key)
{
	grant(3, true);
	entry()->gen = 4;
	ck_assert_int_eq(find_any(), MAP_ABSENT);
	map_ask(pair, KEY, QPN);
	ck_assert_int_eq(find_any(), MAP_PASS);
	answer(3, true); /* of an earlier question, late */
	ck_assert_int_eq(find_any(), MAP_PASS);
	answer(4, true);
	ck_assert_int_eq(find_any(), MAP_FOUND);
	entry()->gen = 3;
	ck_assert_int_eq(find_any(), MAP_ABSENT);
}
END_TEST

START_TEST(another_tag_is_another_key)
{
	void *ptr;

	grant(3, true);
	ck_assert_int_eq(map_find(pair, KEY + 1, BASE, 8, 8, false, &ptr), MAP_ABSENT);
	ck_assert_int_eq(map_find(pair, KEY + (VSD_PAGE_KEYS << 8), BASE, 8, 8, false, &ptr), MAP_ABSENT);
	ck_assert_int_eq(map_find(pair, KEY + 0x100, BASE, 8, 8, false, &ptr), MAP_ABSENT);
}
END_TEST

START_TEST(a_closed_entry_is_not_asked_for)
{
	entry_open(3);
	entry()->gen = 0;
	map_ask(pair, KEY, QPN);
	ck_assert(!map_any());
	/* ... and closed while the answer is on its way: */
	entry()->gen = 3;
	map_ask(pair, KEY, QPN);
	entry()->gen = 0;
	answer(3, true);
	ck_assert_int_eq(find_any(), MAP_ABSENT);
}
END_TEST

static void refuse(uint64_t gen, int status)
{
	entry_open(gen);
	map_ask(pair, KEY, QPN);
	map_answer(4, 0, KEY, gen, status, NULL, -1);
}

/* It lies about the number of the region, or about the key: all the same. */
START_TEST(a_refusal_holds_for_the_generation)
{
	refuse(3, EACCES);
	ck_assert_int_eq(find_any(), MAP_PASS);
	map_look();
	map_reap();
	ck_assert_int_eq(find_any(), MAP_PASS);
	entry()->gen = 4;
	ck_assert_int_eq(find_any(), MAP_ABSENT);
}
END_TEST

/* A heap's region is mapped whole, and the key begins somewhere in it. */
START_TEST(a_part_of_a_region_is_found_by_its_offset)
{
	Vsd__RegionGrantReply reply = VSD__REGION_GRANT_REPLY__INIT;
	void *ptr = NULL;

	reply.region = NUMBER;
	reply.iova = BASE;
	reply.size = SIZE;
	reply.writable = reply.has_offset = true;
	reply.offset = 4096;
	entry_open(3);
	map_ask(pair, KEY, QPN);
	map_answer(4, 0, KEY, 3, 0, &reply, reopened(O_RDWR));
	ck_assert_int_eq(pwrite(file, "atoffset", 8, 4096 + 16), 8);
	ck_assert_int_eq(find(BASE + 16, 8, false, &ptr), MAP_FOUND);
	ck_assert_mem_eq(ptr, "atoffset", 8);
	ck_assert_int_eq(find(BASE + SIZE - 4096 - 8, 8, true, &ptr), MAP_FOUND);
	ck_assert_int_eq(find(BASE + SIZE - 4096 - 7, 8, true, &ptr), MAP_BAD);
	ck_assert_int_eq(find(BASE - 4097, 8, true, &ptr), MAP_BAD);
}
END_TEST

START_TEST(a_refusal_holds_until_there_is_another_wire)
{
	refuse(3, EACCES);
	ck_assert_int_eq(find_any(), MAP_PASS);
	atomic_fetch_add(&pair->priv->wires_made, 1);
	ck_assert_int_eq(find_any(), MAP_ABSENT);
	refuse(3, EACCES);
	ck_assert_int_eq(find_any(), MAP_PASS);
	/* The wire came after the question: the daemon may not have known it. */
	entry()->gen = 4;
	map_ask(pair, KEY, QPN);
	atomic_fetch_add(&pair->priv->wires_made, 1);
	map_answer(4, 0, KEY, 4, EACCES, NULL, -1);
	ck_assert_int_eq(find_any(), MAP_ABSENT);
}
END_TEST

static const int passing[] = { EMFILE, ENFILE, ENOMEM };

START_TEST(want_of_something_is_no_refusal)
{
	refuse(3, passing[_i]);
	ck_assert_int_eq(find_any(), MAP_PASS);
	map_look();
	ck_assert_int_eq(find_any(), MAP_ABSENT);
	map_ask(pair, KEY, QPN);
	answer(3, true);
	ck_assert_int_eq(find_any(), MAP_FOUND);
}
END_TEST

START_TEST(a_lost_fd_is_asked_for_again)
{
	Vsd__RegionGrantReply reply = VSD__REGION_GRANT_REPLY__INIT;

	reply.region = NUMBER;
	reply.size = SIZE;
	entry_open(3);
	map_ask(pair, KEY, QPN);
	map_answer(4, 0, KEY, 3, 0, &reply, -1);
	ck_assert_int_eq(find_any(), MAP_PASS);
	map_look();
	ck_assert_int_eq(find_any(), MAP_ABSENT);
}
END_TEST

static const struct {
	const char *name;
	uint64_t size;
	int seals;
} files[] = {
	{ "shorter than said", SIZE / 2, F_SEAL_SHRINK | F_SEAL_GROW },
	{ "not sealed", SIZE, 0 },
	{ "empty", 0, F_SEAL_SHRINK },
};

START_TEST(a_file_that_will_not_do_is_a_refusal)
{
	Vsd__RegionGrantReply reply = VSD__REGION_GRANT_REPLY__INIT;
	int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, (off_t)files[_i].size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, files[_i].seals), 0);
	entry_open(3);
	map_ask(pair, KEY, QPN);
	reply.region = NUMBER;
	reply.iova = BASE;
	reply.size = SIZE;
	map_answer(4, 0, KEY, 3, 0, &reply, fd);
	ck_assert_msg(find_any() == MAP_PASS, "%s", files[_i].name);
}
END_TEST

START_TEST(answers_to_nobody_leave_nothing_behind)
{
	entry_open(3);
	map_ask(pair, KEY, QPN);
	answer(2, true);
	map_ask(pair, KEY, QPN);
	map_answer(77, 0, KEY, 3, EACCES, NULL, -1); /* of a pair that is gone */
	ck_assert_int_eq(find_any(), MAP_PASS);
	map_reap();
	ck_assert_ptr_null(region_find(NUMBER, false));
}
END_TEST

/* Everything at once would be a question for each slot of the page. */
START_TEST(questions_are_few_at_a_time)
{
	unsigned waiting = 0;
	void *ptr;

	for (uint32_t i = 0; i < 1000; i++) {
		struct vsd_key *other = &page->keys[i];

		other->key = i << 8;
		other->region = 1;
		other->gen = 1;
		map_ask(pair, i << 8, QPN);
	}
	for (uint32_t i = 0; i < 1000; i++)
		waiting += map_find(pair, i << 8, 0, 8, 8, false, &ptr) == MAP_PASS;
	ck_assert_uint_eq(waiting, 64);
}
END_TEST

static bool is_mapped(void)
{
	struct soft_region *region = region_find(NUMBER, false);

	region_put(region);
	return region;
}

static void close_entry(void)
{
	entry()->gen = 0;
}

static void change_entry(void)
{
	entry()->gen++;
}

static void end_wires(void)
{
	pair->priv->attached = 0;
}

static void peer_dies(void)
{
	pair_died(pair);
	pair->priv->attached = 1; /* the pair stays for its wires */
}

static void (*const endings[])(void) = { close_entry, change_entry, end_wires, peer_dies };

START_TEST(what_is_over_is_unmapped_at_the_next_look)
{
	grant(3, true);
	map_look();
	map_reap();
	ck_assert_int_eq(find_any(), MAP_FOUND);
	endings[_i]();
	map_look();
	map_reap();
	ck_assert(!is_mapped());
	ck_assert(!map_any());
}
END_TEST

START_TEST(nothing_goes_while_a_thread_is_inside)
{
	struct vsd_hazard *hazard, *other;
	void *ptr;

	grant(3, true);
	hazard = pair_hazard_enter(pair, KEY, 0x100);
	ck_assert_int_eq(find(BASE, 8, true, &ptr), MAP_FOUND);
	/* The peer pretends that nobody is inside: these words are its to spoil. */
	memset(pair->mem->sides[0].hazards, 0, sizeof(pair->mem->sides[0].hazards));
	endings[_i]();
	map_look();
	map_reap();
	ck_assert(is_mapped());
	memset(ptr, 0x5a, 8);
	/* Who comes later does not hold it up, though the slot is in use again. */
	other = pair_hazard_enter(pair, KEY, 0x100);
	pair_hazard_leave(pair, hazard);
	hazard = pair_hazard_enter(pair, KEY, 0x100);
	map_reap();
	ck_assert(!is_mapped());
	pair_hazard_leave(pair, hazard);
	pair_hazard_leave(pair, other);
}
END_TEST

START_TEST(a_dead_peers_grants_go_at_once)
{
	grant(3, true);
	pair_died(pair);
	ck_assert_int_eq(find_any(), MAP_ABSENT);
	map_reap();
	ck_assert(!is_mapped());
}
END_TEST

/* First touches are a chunk each, not the region. */
START_TEST(only_what_is_used_is_made_present)
{
	struct stat st;
	void *ptr;

	grant(3, true);
	ck_assert_int_eq(find(BASE + 300000, 8, true, &ptr), MAP_FOUND);
	ck_assert_int_eq(fstat(file, &st), 0);
	ck_assert_int_gt(st.st_blocks, 0);
	ck_assert_int_le(st.st_blocks * 512, 2 * 65536);
	ck_assert_int_eq(find(BASE, SIZE, true, &ptr), MAP_FOUND);
	ck_assert_int_eq(fstat(file, &st), 0);
	ck_assert_int_eq(st.st_blocks * 512, SIZE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map");
	TCase *t = harness_tcase(suite, "grants");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_grant_maps_the_regions_own_memory);
	tcase_add_loop_test(t, the_grant_bounds_what_is_touched, 0, sizeof(ranges) / sizeof(ranges[0]));
	tcase_add_test(t, another_translation_than_the_regions_is_the_owners);
	tcase_add_test(t, a_read_only_grant_is_not_written);
	tcase_add_test(t, the_grant_counts_not_the_mapping);
	tcase_add_test(t, what_is_mapped_read_only_leaves_the_base_alone);
	tcase_add_test(t, another_generation_is_another_key);
	tcase_add_test(t, another_tag_is_another_key);
	tcase_add_test(t, only_what_is_used_is_made_present);
	t = harness_tcase(suite, "answers");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_closed_entry_is_not_asked_for);
	tcase_add_test(t, a_refusal_holds_for_the_generation);
	tcase_add_test(t, a_part_of_a_region_is_found_by_its_offset);
	tcase_add_test(t, a_refusal_holds_until_there_is_another_wire);
	tcase_add_loop_test(t, want_of_something_is_no_refusal, 0, sizeof(passing) / sizeof(passing[0]));
	tcase_add_test(t, a_lost_fd_is_asked_for_again);
	tcase_add_loop_test(t, a_file_that_will_not_do_is_a_refusal, 0, sizeof(files) / sizeof(files[0]));
	tcase_add_test(t, answers_to_nobody_leave_nothing_behind);
	tcase_add_test(t, questions_are_few_at_a_time);
	t = harness_tcase(suite, "endings");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, what_is_over_is_unmapped_at_the_next_look, 0, sizeof(endings) / sizeof(endings[0]));
	tcase_add_loop_test(t, nothing_goes_while_a_thread_is_inside, 0, sizeof(endings) / sizeof(endings[0]));
	tcase_add_test(t, a_dead_peers_grants_go_at_once);
	return harness_run(suite);
}
