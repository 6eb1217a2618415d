/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions and windows by key: what a key lets through, what is published, and that closing waits for who is inside.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/mr_private.h"
#include "client/soft/page.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)
#define KEY 0x12300u
#define MW_KEY 0x45600u

static uint8_t memory[8192];
static struct soft_pd pd, other_pd, domain;
static struct soft_mr mr;
static struct soft_mw mw;
static struct soft_qp qp, other_qp;

static void setup(void)
{
	rt.page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rt.page, MAP_FAILED);
	ck_assert_int_eq(pair_loop_init(), 0);
	pd.base = &pd;
	pd.number = 1;
	domain.base = &pd;
	other_pd.base = &other_pd;
	other_pd.number = 2;
	qp.pd = &domain;
	other_qp.pd = &pd;
	qp.serial = 1;
	other_qp.serial = 2;
	mr = (struct soft_mr){ .mr = { .addr = memory, .length = 4096 }, .mem = memory, .pd = &pd, .key = KEY, .iova = 0x70000,
			       .access = ALL };
	mw = (struct soft_mw){ .mw = { .rkey = MW_KEY, .type = IBV_MW_TYPE_1 }, .pd = &pd };
	ck_assert_int_eq(mr_open(&mr), 0);
}

static void teardown(void)
{
	mr_close(&mr);
	pair_loop_deinit();
	munmap(rt.page, VSD_PAGE_SIZE);
}

static const struct {
	const char *name;
	uint32_t key;
	struct soft_pd *pd;
	uint64_t addr, length;
	unsigned access;
	int want;
} refs[] = {
	{ "all of it", KEY, &pd, 0x70000, 4096, IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "by a parent domain", KEY, &domain, 0x70000, 1, 0, 0 },
	{ "its last byte", KEY, &pd, 0x70fff, 1, IBV_ACCESS_REMOTE_READ, 0 },
	{ "nothing, with any key", 0xffffff00, &pd, 0, 0, 0, 0 },
	{ "one byte too many", KEY, &pd, 0x70000, 4097, 0, -ERANGE },
	{ "before it", KEY, &pd, 0x6ffff, 1, 0, -ERANGE },
	{ "behind it", KEY, &pd, 0x71000, 1, 0, -ERANGE },
	{ "around the world", KEY, &pd, 0x70800, UINT64_MAX - 0x700, 0, -ERANGE },
	{ "what was not granted", KEY, &pd, 0x70000, 8, IBV_ACCESS_REMOTE_ATOMIC, -EACCES },
	{ "another PD", KEY, &other_pd, 0x70000, 1, 0, -EINVAL },
	{ "another tag", KEY + 1, &pd, 0x70000, 1, 0, -EINVAL },
	{ "a key near it", KEY + 0x100, &pd, 0x70000, 1, 0, -EINVAL },
	{ "a key far from it", 0xabcdef00, &pd, 0x70000, 1, 0, -EINVAL },
};

START_TEST(a_key_lets_through_what_it_should)
{
	struct mr_ref ref;
	void *ptr;
	int r = mr_ref(refs[_i].key, refs[_i].pd, NULL, refs[_i].addr, refs[_i].length, refs[_i].access, true, &ref,
		       &ptr);

	ck_assert_msg(r == refs[_i].want, "%s: %d", refs[_i].name, r);
	if (r == 0 && refs[_i].length) {
		ck_assert_ptr_eq(ref.mr, &mr);
		ck_assert_ptr_eq(ptr, memory + (refs[_i].addr - 0x70000));
	}
	if (r == 0)
		mr_unref(&ref);
	ck_assert_int_eq(mr_close(&mr), 0);
}
END_TEST

START_TEST(a_closed_key_lets_nothing_through)
{
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mr_close(&mr), 0);
	ck_assert_int_eq(mr_ref(KEY, &pd, NULL, 0x70000, 1, 0, true, &ref, &ptr), -EINVAL);
}
END_TEST

START_TEST(the_null_region_has_no_address)
{
	struct soft_mr null = { .pd = &pd, .key = 0x99900, .null = true };
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mr_open(&null), 0);
	ck_assert_int_eq(mr_ref(0x99900, &pd, NULL, 0x1234, 99, IBV_ACCESS_LOCAL_WRITE, false, &ref, &ptr), 0);
	ck_assert_ptr_null(ptr);
	ck_assert(ref.mr->null);
	mr_unref(&ref);
	ck_assert_int_eq(mr_ref(0x99900, &pd, NULL, 0, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	ck_assert_int_eq(mr_close(&null), 0);
}
END_TEST

static _Atomic int step;

static void *closer(void *arg)
{
	atomic_store(&step, 1);

	int r = mr_close(&mr);

	atomic_store(&step, 2);
	return (void *)(intptr_t)r;
}

static pthread_t start_closer(void)
{
	struct mr_ref probe;
	pthread_t thread;
	void *ptr;

	ck_assert_int_eq(pthread_create(&thread, NULL, closer, NULL), 0);
	/* Closed for newcomers, and still waiting. */
	while (mr_ref(KEY, &pd, NULL, 0x70000, 1, 0, true, &probe, &ptr) == 0) {
		mr_unref(&probe);
		sched_yield();
	}
	for (int i = 0; i < 200; i++)
		sched_yield();
	ck_assert_int_eq(atomic_load(&step), 1);
	return thread;
}

START_TEST(closing_waits_for_a_thread_of_ours)
{
	struct mr_ref ref;
	pthread_t thread;
	void *ptr, *r;

	ck_assert_int_eq(mr_ref(KEY, &pd, NULL, 0x70000, 8, 0, true, &ref, &ptr), 0);
	thread = start_closer();
	mr_unref(&ref);
	pthread_join(thread, &r);
	ck_assert_ptr_null(r);
}
END_TEST

START_TEST(closing_waits_for_an_initiator)
{
	struct vsd_hazard *hazard = pair_hazard_enter(&rt.loop[0], KEY, 0x200);
	pthread_t thread;
	void *r;

	thread = start_closer();
	pair_hazard_leave(&rt.loop[0], hazard);
	pthread_join(thread, &r);
	ck_assert_ptr_null(r);
}
END_TEST

/* As the two ends of a connection in a segment see it. */
static struct pair segment = { .segment = 4 };
static struct wire initiator = {
	.pair = &segment,
	.index = 2,
	.gen = 9,
	.local_qpn = 0x300,
	.peer_qpn = 0x200,
};
static const struct wire owner = {
	.pair = &segment,
	.index = 2,
	.gen = 9,
	.local_qpn = 0x200,
	.peer_qpn = 0x300,
};

START_TEST(a_region_that_an_initiator_does_not_leave_stays_whole)
{
	struct vsd_hazard *hazard = pair_hazard_enter(&rt.loop[0], KEY, 0x200);
	const struct vsd_key *entry = &rt.page->keys[(KEY >> 8) % VSD_PAGE_KEYS];
	struct mr_ref ref;
	void *ptr;

	key_wait_limit = 20000000;
	ck_assert_int_eq(mr_close(&mr), -EBUSY);
	ck_assert_uint_ne(entry->gen, 0);
	ck_assert_int_eq(mr_ref(KEY, &pd, NULL, 0x70000, 1, 0, true, &ref, &ptr), 0);
	mr_unref(&ref);
	pair_hazard_leave(&rt.loop[0], hazard);
	ck_assert_int_eq(mr_close(&mr), 0);
}
END_TEST

static int peer_check(uint64_t addr, uint64_t length, unsigned access, uint64_t *remote)
{
	return mr_peer_check(rt.page, KEY, addr, length, access, &initiator, remote);
}

START_TEST(an_initiator_finds_entry_and_gate)
{
	uint64_t remote;

	ck_assert_int_eq(peer_check(0x70000, 1, IBV_ACCESS_REMOTE_READ, &remote), -EACCES);
	qp_gate_open(0x200, IBV_ACCESS_REMOTE_READ, 1, 0x300, &owner);
	ck_assert_int_eq(peer_check(0x70010, 16, IBV_ACCESS_REMOTE_READ, &remote), 0);
	ck_assert_uint_eq(remote, (uintptr_t)memory + 0x10);
	ck_assert_int_eq(peer_check(0x70010, 4096, IBV_ACCESS_REMOTE_READ, &remote), -ERANGE);
	ck_assert_int_eq(peer_check(0x6ffff, 1, IBV_ACCESS_REMOTE_READ, &remote), -ERANGE);
	ck_assert_int_eq(peer_check(0x70010, UINT64_MAX, IBV_ACCESS_REMOTE_READ, &remote), -ERANGE);
	ck_assert_int_eq(peer_check(0x70010, 1, IBV_ACCESS_REMOTE_WRITE, &remote), -EACCES); /* the gate's word */
	ck_assert_int_eq(mr_peer_check(rt.page, KEY + 1, 0x70000, 1, IBV_ACCESS_REMOTE_READ, &initiator, &remote),
			 -EACCES);
	qp_gate_close(0x200);
	ck_assert_int_eq(peer_check(0x70000, 1, IBV_ACCESS_REMOTE_READ, &remote), -EACCES);
}
END_TEST

/* A QP that was reset and connected again, to the same peer: what comes by another wire is not for it. */
START_TEST(an_initiator_needs_the_gates_connection)
{
	uint64_t remote;
	struct pair other = { .segment = 5 };

	qp_gate_open(0x200, IBV_ACCESS_REMOTE_READ, 1, 0x300, NULL);
	ck_assert_int_eq(peer_check(0x70000, 1, IBV_ACCESS_REMOTE_READ, &remote), -EACCES);
	qp_gate_open(0x200, IBV_ACCESS_REMOTE_READ, 1, 0x300, &owner);
	ck_assert_int_eq(peer_check(0x70000, 1, IBV_ACCESS_REMOTE_READ, &remote), 0);

	struct wire olds[] = { initiator, initiator, initiator, initiator };

	olds[0].gen--;
	olds[1].index++;
	olds[2].local_qpn++;
	olds[3].pair = &other;
	for (size_t i = 0; i < sizeof(olds) / sizeof(olds[0]); i++)
		ck_assert_int_eq(mr_peer_check(rt.page, KEY, 0x70000, 1, IBV_ACCESS_REMOTE_READ, &olds[i], &remote),
				 -EACCES);
	qp_gate_close(0x200);
}
END_TEST

START_TEST(an_initiator_needs_the_gates_pd)
{
	uint64_t remote;

	qp_gate_open(0x200, IBV_ACCESS_REMOTE_READ, 2, 0x300, &owner);
	ck_assert_int_eq(peer_check(0x70000, 1, IBV_ACCESS_REMOTE_READ, &remote), -EACCES);
}
END_TEST

START_TEST(a_closed_or_reopened_key_has_another_generation)
{
	const struct vsd_key *entry = &rt.page->keys[(KEY >> 8) % VSD_PAGE_KEYS];
	uint64_t gen = entry->gen;

	ck_assert_uint_ne(gen, 0);
	ck_assert_int_eq(mr_close(&mr), 0);
	ck_assert_uint_eq(entry->gen, 0);
	ck_assert_int_eq(mr_open(&mr), 0);
	ck_assert_uint_gt(entry->gen, gen);
}
END_TEST

START_TEST(a_slot_in_use_is_left_alone)
{
	uint32_t far = KEY + (VSD_PAGE_KEYS << 8);
	struct soft_mr second = mr;
	const struct vsd_key *entry = &rt.page->keys[(KEY >> 8) % VSD_PAGE_KEYS];

	second.key = far;
	ck_assert_int_eq(mr_open(&second), 0);
	ck_assert_uint_eq(entry->key, KEY);
	ck_assert_int_eq(mr_close(&second), 0);
	ck_assert_uint_ne(entry->gen, 0);
}
END_TEST

START_TEST(local_regions_are_not_published)
{
	struct soft_mr local = mr;

	local.key = 0x77700;
	local.access = IBV_ACCESS_LOCAL_WRITE;
	ck_assert_int_eq(mr_open(&local), 0);
	ck_assert_uint_eq(rt.page->keys[0x777].gen, 0);
	ck_assert_int_eq(mr_close(&local), 0);
}
END_TEST

static struct ibv_mw_bind_info bind_info(uint64_t addr, uint64_t length, unsigned access)
{
	return (struct ibv_mw_bind_info){ .mr = &mr.mr, .addr = addr, .length = length, .mw_access_flags = access };
}

static int bind_now(struct soft_qp *by, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct mw_bind want = mw_bind_of(&mw.mw, info);

	return mw_bind(&want, by, rkey);
}

START_TEST(a_window_shows_its_part_of_the_region)
{
	struct ibv_mw_bind_info info = bind_info(0x70100, 256, IBV_ACCESS_REMOTE_READ);
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 1, &info), 0);
	ck_assert_uint_eq(mw.key, MW_KEY + 1);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70110, 16, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), 0);
	ck_assert_ptr_eq(ptr, memory + 0x110);
	mr_unref(&ref);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70110, 256, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -ERANGE);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70110, 1, IBV_ACCESS_REMOTE_WRITE, true, &ref, &ptr), -EACCES);
	ck_assert_int_eq(mr_ref(MW_KEY, &pd, &qp, 0x70110, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	/* Not as a local key, and the region is executed by its owner only, and stays. */
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, NULL, 0x70110, 1, 0, false, &ref, &ptr), -EINVAL);
	ck_assert_uint_eq(rt.page->keys[(KEY >> 8) % VSD_PAGE_KEYS].gen, 0);
	ck_assert_int_eq(mr_close(&mr), -EBUSY);
	ck_assert_int_eq(mw_close(&mw), 0);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70110, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	ck_assert_uint_ne(rt.page->keys[(KEY >> 8) % VSD_PAGE_KEYS].gen, 0);
	ck_assert_int_eq(mr_close(&mr), 0);
}
END_TEST

START_TEST(a_zero_based_window_counts_from_its_start)
{
	struct ibv_mw_bind_info info = bind_info(0x70100, 256, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED);
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 1, &info), 0);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 255, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), 0);
	ck_assert_ptr_eq(ptr, memory + 0x1ff);
	mr_unref(&ref);
	ck_assert_int_eq(mw_close(&mw), 0);
}
END_TEST

static const struct {
	const char *name;
	uint64_t addr, length;
	unsigned access, mr_access;
	uint32_t rkey;
	int want;
} binds[] = {
	{ "fits", 0x70000, 4096, IBV_ACCESS_REMOTE_WRITE, ALL, MW_KEY + 1, 0 },
	{ "too long", 0x70000, 4097, IBV_ACCESS_REMOTE_READ, ALL, MW_KEY + 1, -ERANGE },
	{ "before it", 0x6ff00, 10, IBV_ACCESS_REMOTE_READ, ALL, MW_KEY + 1, -ERANGE },
	{ "region without binding", 0x70000, 1, IBV_ACCESS_REMOTE_READ, ALL & ~IBV_ACCESS_MW_BIND, MW_KEY + 1, -EACCES },
	{ "writes to what is read-only", 0x70000, 1, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_MW_BIND, MW_KEY + 1, -EACCES },
	{ "unknown access", 0x70000, 1, IBV_ACCESS_ON_DEMAND, ALL, MW_KEY + 1, -EINVAL },
	{ "another key's index", 0x70000, 1, IBV_ACCESS_REMOTE_READ, ALL, MW_KEY + 0x100, -EINVAL },
};

START_TEST(binding_is_checked)
{
	struct ibv_mw_bind_info info = bind_info(binds[_i].addr, binds[_i].length, binds[_i].access);
	int r;

	mr.access = binds[_i].mr_access;
	ck_assert_int_eq(mw_open(&mw), 0);
	r = bind_now(&qp, binds[_i].rkey, &info);
	ck_assert_msg(r == binds[_i].want, "%s: %d", binds[_i].name, r);
	ck_assert_int_eq(mw_close(&mw), 0);
	ck_assert_uint_eq(mr.windows, 0);
}
END_TEST

START_TEST(a_window_of_type_1_is_bound_anew_and_unbound)
{
	struct ibv_mw_bind_info info = bind_info(0x70000, 16, IBV_ACCESS_REMOTE_READ);
	struct ibv_mw_bind_info none = bind_info(0, 0, 0);
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 1, &info), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 2, &info), 0);
	ck_assert_uint_eq(mr.windows, 1);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 3, &none), 0);
	ck_assert_uint_eq(mr.windows, 0);
	ck_assert_int_eq(mr_ref(MW_KEY + 3, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
}
END_TEST

/* The verb gives the window its new key when it posts; a bind that is flushed leaves what was bound, under the old key. */
START_TEST(a_bind_that_is_flushed_changes_nothing)
{
	struct ibv_mw_bind_info info = bind_info(0x70000, 16, IBV_ACCESS_REMOTE_READ);
	struct mr_ref ref;
	void *ptr;

	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 1, &info), 0);
	mw.mw.rkey = MW_KEY + 2;
	ck_assert_int_eq(mr_ref(MW_KEY + 2, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	ck_assert_int_eq(mr_ref(MW_KEY + 1, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), 0);
	mr_unref(&ref);
	/* One that comes to pass late does not take the key of those behind it back. */
	mw.mw.rkey = MW_KEY + 4;
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 3, &info), 0);
	ck_assert_uint_eq(mw.mw.rkey, MW_KEY + 4);
	ck_assert_int_eq(mw_close(&mw), 0);
}
END_TEST

START_TEST(a_window_of_type_2_belongs_to_its_qp_until_invalidated)
{
	struct ibv_mw_bind_info info = bind_info(0x70000, 16, IBV_ACCESS_REMOTE_READ);
	struct mr_ref ref;
	void *ptr;

	mw.mw.type = IBV_MW_TYPE_2;
	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 9, &info), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 10, &info), -EINVAL);
	ck_assert_int_eq(mr_ref(MW_KEY + 9, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), 0);
	mr_unref(&ref);
	ck_assert_int_eq(mr_ref(MW_KEY + 9, &pd, &other_qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr),
			 -EINVAL);
	ck_assert_int_eq(key_invalidate(MW_KEY + 9, &other_qp, true), -EINVAL);
	ck_assert_int_eq(key_invalidate(MW_KEY + 8, &qp, true), -EINVAL);
	ck_assert_int_eq(key_invalidate(KEY, &qp, true), -EINVAL);
	ck_assert_int_eq(key_invalidate(MW_KEY + 9, &qp, true), 0);
	ck_assert_int_eq(key_invalidate(MW_KEY + 9, &qp, true), -EINVAL);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 10, &info), 0);
	ck_assert_int_eq(mw_close(&mw), 0);
}
END_TEST

/* Its memory may be another QP's by now. */
START_TEST(a_window_of_type_2_is_of_no_later_qp)
{
	struct ibv_mw_bind_info info = bind_info(0x70000, 16, IBV_ACCESS_REMOTE_READ);
	struct mr_ref ref;
	void *ptr;

	mw.mw.type = IBV_MW_TYPE_2;
	ck_assert_int_eq(mw_open(&mw), 0);
	ck_assert_int_eq(bind_now(&qp, MW_KEY + 9, &info), 0);
	qp.serial = 3;
	ck_assert_int_eq(mr_ref(MW_KEY + 9, &pd, &qp, 0x70000, 1, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr), -EINVAL);
	ck_assert_int_eq(key_invalidate(MW_KEY + 9, &qp, true), -EINVAL);
	ck_assert_int_eq(mw_close(&mw), 0);
}
END_TEST

/* A bind waits in its queue behind others. */
START_TEST(a_bind_may_come_after_its_window_and_its_region)
{
	struct ibv_mw_bind_info info = bind_info(0x70000, 16, IBV_ACCESS_REMOTE_READ);
	struct soft_mr *gone = malloc(sizeof(*gone));
	struct soft_mw *window = malloc(sizeof(*window));
	struct mw_bind want;

	ck_assert(gone && window);
	*gone = mr;
	gone->key = 0x77700;
	*window = mw;
	info.mr = &gone->mr;
	ck_assert_int_eq(mr_open(gone), 0);
	ck_assert_int_eq(mw_open(window), 0);
	want = mw_bind_of(&window->mw, &info);
	ck_assert_int_eq(mr_close(gone), 0);
	free(gone);
	ck_assert_int_eq(mw_bind(&want, &qp, MW_KEY + 1), -EINVAL);
	ck_assert_int_eq(mw_close(window), 0);
	free(window);
	ck_assert_int_eq(mw_bind(&want, &qp, MW_KEY + 1), -EINVAL);
}
END_TEST

START_TEST(memory_is_probed_without_being_populated)
{
	size_t size = 64u << 20;
	uint8_t *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static const char constant[] = "not for writing";
	unsigned char *present = calloc(1, size / 4096), n = 0;

	ck_assert_int_eq(mr_probe(area, size, true), 0);
	ck_assert_int_eq(mincore(area, size, present), 0);
	for (size_t i = 0; i < size / 4096; i++)
		n += present[i] & 1;
	ck_assert_int_le(n, 2);
	free(present);
	ck_assert_int_eq(mr_probe(constant, sizeof(constant), false), 0);
	ck_assert_int_eq(mr_probe(constant, sizeof(constant), true), -EACCES);
	ck_assert_int_eq(mprotect(area, 4096, PROT_NONE), 0);
	ck_assert_int_eq(mr_probe(area, 100, false), -EACCES);
	ck_assert_int_eq(munmap(area + 8192, 4096), 0);
	ck_assert_int_eq(mr_probe(area + 4096, 3 * 4096, false), -EFAULT);
	ck_assert_int_eq(mr_probe(area + 8192, 1, false), -EFAULT);
	ck_assert_int_eq(mr_probe(NULL, 1, false), -EFAULT);
	ck_assert_int_eq(mr_probe((void *)-16, 64, false), -EFAULT);
	ck_assert_int_eq(mr_probe(NULL, 0, true), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mr");
	TCase *t = harness_tcase(suite, "keys");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_key_lets_through_what_it_should, 0, sizeof(refs) / sizeof(refs[0]));
	tcase_add_test(t, a_closed_key_lets_nothing_through);
	tcase_add_test(t, the_null_region_has_no_address);
	tcase_add_test(t, closing_waits_for_a_thread_of_ours);
	tcase_add_test(t, closing_waits_for_an_initiator);
	tcase_add_test(t, a_region_that_an_initiator_does_not_leave_stays_whole);
	tcase_add_test(t, memory_is_probed_without_being_populated);
	t = harness_tcase(suite, "published");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_initiator_finds_entry_and_gate);
	tcase_add_test(t, an_initiator_needs_the_gates_connection);
	tcase_add_test(t, an_initiator_needs_the_gates_pd);
	tcase_add_test(t, a_closed_or_reopened_key_has_another_generation);
	tcase_add_test(t, a_slot_in_use_is_left_alone);
	tcase_add_test(t, local_regions_are_not_published);
	t = harness_tcase(suite, "windows");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_window_shows_its_part_of_the_region);
	tcase_add_test(t, a_zero_based_window_counts_from_its_start);
	tcase_add_loop_test(t, binding_is_checked, 0, sizeof(binds) / sizeof(binds[0]));
	tcase_add_test(t, a_window_of_type_1_is_bound_anew_and_unbound);
	tcase_add_test(t, a_bind_that_is_flushed_changes_nothing);
	tcase_add_test(t, a_window_of_type_2_belongs_to_its_qp_until_invalidated);
	tcase_add_test(t, a_window_of_type_2_is_of_no_later_qp);
	tcase_add_test(t, a_bind_may_come_after_its_window_and_its_region);
	return harness_run(suite);
}
