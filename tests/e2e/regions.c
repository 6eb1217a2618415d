/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that processes share, by the calls of <verbsd.h>: made, named, handed over, imported, kept and given back; and
 * used by work requests of every kind. One case a run (see ends.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct ibv_mr *alloc(struct ibv_pd *pd, size_t size, unsigned access)
{
	struct verbsd_mr_attr attr = { .size = size, .access = access };
	struct ibv_mr *mr = verbsd_alloc_mr(pd, &attr);

	NEED(mr);
	return mr;
}

static struct verbsd_mr_info query(struct ibv_mr *mr)
{
	struct verbsd_mr_info info;

	memset(&info, 0xa5, sizeof(info));
	NEED(verbsd_query_mr(mr, &info) == 0);
	return info;
}

static uint64_t base_of(struct ibv_mr *mr)
{
	return query(mr).base;
}

/* Bytes that say where they are. */
static void fill(uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		memcpy(memory + i, &word, 8);
	}
}

static bool filled(const uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		if (memcmp(memory + i, &word, 8) != 0)
			return false;
	}
	return true;
}

/* --- alone ---------------------------------------------------------------------------------------------------------- */

static void a_region_is_made(void)
{
	static const size_t sizes[] = { 1, 4095, 4096, 4097, MIB, 3 * MIB + 5 };
	struct end end;

	end_open(&end);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct ibv_mr *mr = alloc(end.pd, sizes[i], IBV_ACCESS_REMOTE_READ);
		size_t page = (size_t)getpagesize();
		struct verbsd_mr_info info = query(mr);

		NEED(mr->length >= sizes[i] && mr->length < sizes[i] + page && mr->length % page == 0);
		NEED(mr->pd == end.pd && mr->context == end.ctx && mr->lkey && mr->rkey);
		NEED(info.size == mr->length && info.rkey == mr->rkey && info.users == 1);
		NEED(info.access == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
		NEED(info.flags == 0 && info.name[0] == '\0' && info.page_size == page);
		NEED((uintptr_t)mr->addr == info.base);
		for (size_t at = 0; at < mr->length; at += 4096)
			NEED(((uint8_t *)mr->addr)[at] == 0);
		fill(mr->addr, mr->length, i);
		NEED(filled(mr->addr, mr->length, i));
		NEED(ibv_dereg_mr(mr) == 0);
	}
	end_close(&end);
}

static void arguments_are_checked(void)
{
	static const struct verbsd_mr_attr bad[] = {
		{ .size = 0 },
		{ .size = SIZE_MAX },
		{ .size = 4096, .comp_mask = 1 },
		{ .size = 4096, .flags = VERBSD_MR_HUGE_2M | VERBSD_MR_HUGE_1G },
		{ .size = 4096, .flags = VERBSD_MR_PERSIST },
		{ .size = 4096, .flags = VERBSD_MR_READ_ONLY },
		{ .size = 4096, .flags = 1u << 30 },
		{ .size = 4096, .access = IBV_ACCESS_ZERO_BASED },
		{ .size = 4096, .access = IBV_ACCESS_ON_DEMAND },
		{ .size = 4096, .access = IBV_ACCESS_HUGETLB },
		{ .size = 4096, .access = 1u << 15 },
		{ .size = 4096, .flags = VERBSD_MR_NUMA, .numa_node = -1 },
		{ .size = 4096, .flags = VERBSD_MR_NUMA, .numa_node = 1023 },
	};
	static const char *const names[] = { "", " ", "a b", "name\n", "\xc3\xa4",
		"12345678901234567890123456789012345678901234567890123456789012345" };
	struct verbsd_mr_attr good = { .size = 4096 };
	char memory[64];
	struct end end;

	end_open(&end);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		REFUSED(verbsd_alloc_mr(end.pd, &bad[i]), EINVAL);
		REFUSED(verbsd_attach_mr(end.pd, "bad", &bad[i], VERBSD_EXPORT_PERSIST, NULL), EINVAL);
	}
	REFUSED(verbsd_alloc_mr(end.pd, NULL), EINVAL);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);

	struct ibv_mr *mr = alloc(end.pd, 4096, 0);
	struct ibv_mr *plain = ibv_reg_mr(end.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct verbsd_mr_info info;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		NEED(verbsd_export_mr(mr, names[i], 0) == EINVAL);
		REFUSED(verbsd_import_mr(end.pd, names[i], 0), EINVAL);
		REFUSED(verbsd_attach_mr(end.pd, names[i], &good, 0, NULL), EINVAL);
		NEED(verbsd_release_mr(end.ctx, names[i]) == EINVAL);
	}
	NEED(verbsd_export_mr(mr, NULL, 0) == EINVAL);
	NEED(verbsd_export_mr(mr, "name", 1u << 20) == EINVAL);
	NEED(verbsd_export_mr_fd(mr, 1u << 20) == -1 && errno == EINVAL);
	REFUSED(verbsd_attach_mr(end.pd, "name", &good, VERBSD_EXPORT_SEAL, NULL), EINVAL);
	REFUSED(verbsd_import_mr(end.pd, "name", IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(verbsd_import_mr(end.pd, "name", 0), ENOENT);
	NEED(verbsd_release_mr(end.ctx, "name") == ENOENT);
	NEED(verbsd_persist_mr(mr, true) == EINVAL);
	NEED(verbsd_list_mr(end.ctx, &info, -1) == -1 && errno == EINVAL);
	NEED(verbsd_list_mr(end.ctx, NULL, 1) == -1 && errno == EINVAL);
	NEED(verbsd_query_mr(mr, NULL) == EINVAL);
	/* Ordinary regions are not shared. */
	NEED(plain);
	NEED(verbsd_query_mr(plain, &info) == EINVAL);
	NEED(verbsd_export_mr(plain, "name", 0) == EINVAL);
	NEED(verbsd_export_mr_fd(plain, 0) == -1 && errno == EINVAL);
	NEED(verbsd_persist_mr(plain, true) == EINVAL);
	NEED(ibv_dereg_mr(plain) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* Objects that are not ours are not touched. */
static void foreign_objects_are_refused(void)
{
	struct ibv_context ctx = { .num_comp_vectors = 1 };
	struct ibv_pd pd = { .context = &ctx };
	struct ibv_mr mr = { .context = &ctx, .pd = &pd };
	struct verbsd_mr_attr attr = { .size = 4096 };
	struct verbsd_mr_info info;

	REFUSED(verbsd_alloc_mr(&pd, &attr), EOPNOTSUPP);
	REFUSED(verbsd_import_mr(&pd, "name", 0), EOPNOTSUPP);
	REFUSED(verbsd_import_mr_fd(&pd, 0, 0), EOPNOTSUPP);
	REFUSED(verbsd_attach_mr(&pd, "name", &attr, 0, NULL), EOPNOTSUPP);
	NEED(verbsd_export_mr(&mr, "name", 0) == EOPNOTSUPP);
	NEED(verbsd_export_mr_fd(&mr, 0) == -1 && errno == EOPNOTSUPP);
	NEED(verbsd_persist_mr(&mr, true) == EOPNOTSUPP);
	NEED(verbsd_release_mr(&ctx, "name") == EOPNOTSUPP);
	NEED(verbsd_query_mr(&mr, &info) == EOPNOTSUPP);
	NEED(verbsd_list_mr(&ctx, &info, 1) == -1 && errno == EOPNOTSUPP);
}

/* --- work requests -------------------------------------------------------------------------------------------------- */

/* @other has the region @mr with all rights; @end writes, reads and adds there from its region @own. */
static void works_of_every_kind(struct end *end, struct ibv_mr *own, const struct verbsd_mr_info *far, uint8_t *far_memory)
{
	uint64_t base = base_of(own), value = 7;
	uint8_t *memory = own->addr;

	fill(memory, MIB, 1);
	NEED(end_work(end, &(struct work){ IBV_WR_RDMA_WRITE, base, MIB, own->lkey, far->base + MIB, far->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(filled(far_memory + MIB, MIB, 1));
	fill(far_memory + 64, 4096, 2);
	NEED(end_work(end, &(struct work){ IBV_WR_RDMA_READ, base + 8, 4096, own->lkey, far->base + 64, far->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(filled(memory + 8, 4096, 2));
	memcpy(far_memory, &value, 8);
	NEED(end_work(end, &(struct work){ IBV_WR_ATOMIC_FETCH_AND_ADD, base, 8, own->lkey, far->base, far->rkey, 5 }) ==
		IBV_WC_SUCCESS);
	memcpy(&value, memory, 8);
	NEED(value == 7);
	NEED(end_work(end, &(struct work){ IBV_WR_ATOMIC_CMP_AND_SWP, base, 8, own->lkey, far->base, far->rkey, 12, 99 }) ==
		IBV_WC_SUCCESS);
	memcpy(&value, memory, 8);
	NEED(value == 12);
	memcpy(&value, far_memory, 8);
	NEED(value == 99);
}

static void work_requests_reach_it(void)
{
	struct end a, b = { 0 };

	a.ctx = end_device();
	a.pd = ibv_alloc_pd(a.ctx);
	NEED(a.pd);
	b.ctx = a.ctx;
	b.pd = ibv_alloc_pd(a.ctx);
	NEED(b.pd);
	end_pair(&a, &b);

	struct ibv_mr *from = alloc(a.pd, 2 * MIB, 0), *to = alloc(b.pd, 2 * MIB, ALL_ACCESS);
	struct verbsd_mr_info far = query(to);

	works_of_every_kind(&a, from, &far, to->addr);
	/* SEND out of one region into another. */
	fill(from->addr, 5000, 3);
	end_recv(&b, far.base + 4096, 5000, to->lkey);
	NEED(end_work(&a, &(struct work){ IBV_WR_SEND, base_of(from), 5000, from->lkey, 0, 0 }) == IBV_WC_SUCCESS);
	NEED(end_wait(&b) == IBV_WC_SUCCESS);
	NEED(filled((uint8_t *)to->addr + 4096, 5000, 3));
	/* One byte behind it is too far. */
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, base_of(from), 16, from->lkey, far.base + far.size - 15,
				 far.rkey }) == IBV_WC_REM_ACCESS_ERR);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(from) == 0);
	NEED(ibv_dereg_mr(to) == 0);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_dealloc_pd(b.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
}

/* Where the mapping lies is the process's own affair: what counts is the address that all agree on. */
static void a_base_that_is_taken(void)
{
	struct end a, b = { 0 };

	a.ctx = end_device();
	a.pd = ibv_alloc_pd(a.ctx);
	NEED(a.pd);

	struct ibv_mr *first = alloc(a.pd, 4 * MIB, 0);
	uint64_t base = base_of(first);
	int fd = verbsd_export_mr_fd(first, 0);

	NEED(fd >= 0);
	NEED(ibv_dereg_mr(first) == 0);
	REFUSED(verbsd_import_mr_fd(a.pd, fd, 0), EACCES); /* nobody had it any more */
	close(fd);
	first = alloc(a.pd, 4 * MIB, ALL_ACCESS);
	base = base_of(first);
	fd = verbsd_export_mr_fd(first, 0);
	NEED(fd >= 0);
	/* A reader's mapping in the same process serves as well, so nothing has to be elsewhere but a second writer's. */
	NEED((uintptr_t)first->addr == base);

	struct ibv_mr *second = verbsd_import_mr_fd(a.pd, fd, ALL_ACCESS);

	NEED(second && second->addr == first->addr && second->lkey != first->lkey && second->rkey != first->rkey);
	NEED(query(second).base == base && query(second).users == 2);
	b.ctx = a.ctx;
	b.pd = a.pd;
	end_pair(&a, &b);
	fill(first->addr, 64, 9);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, base, 64, second->lkey, base + 128, second->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(ibv_dereg_mr(first) == 0);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, base, 64, second->lkey, base + 256, second->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(filled((uint8_t *)second->addr + 128, 64, 9) && filled((uint8_t *)second->addr + 256, 64, 9));
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(second) == 0);
	close(fd);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
}

static void windows_on_it(void)
{
	struct end a, b = { 0 };

	a.ctx = end_device();
	a.pd = ibv_alloc_pd(a.ctx);
	NEED(a.pd);
	b.ctx = a.ctx;
	b.pd = a.pd;
	end_pair(&a, &b);

	struct ibv_mr *mr = alloc(a.pd, MIB, IBV_ACCESS_MW_BIND | ALL_ACCESS);
	uint64_t base = base_of(mr);
	struct ibv_mw *mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.bind_info = { mr, base + 4096, 4096, IBV_ACCESS_REMOTE_WRITE },
		.send_flags = IBV_SEND_SIGNALED,
	};

	NEED(mw && ibv_bind_mw(b.qp, mw, &bind) == 0);
	NEED(end_wait(&b) == IBV_WC_SUCCESS);
	NEED(ibv_dereg_mr(mr) == EBUSY);
	fill(mr->addr, 4096, 4);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, base, 4096, mr->lkey, base + 4096, mw->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(filled((uint8_t *)mr->addr + 4096, 4096, 4));
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, base, 8, mr->lkey, base, mw->rkey }) ==
		IBV_WC_REM_ACCESS_ERR);
	NEED(ibv_dealloc_mw(mw) == 0);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
}

static bool rereg_refused(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access, int error)
{
	errno = 0;
	return ibv_rereg_mr(mr, flags, pd, addr, length, access) == IBV_REREG_MR_ERR_INPUT && errno == error;
}

/* PD and access may change, within what the export gives; where and how large it is may not. */
static void it_is_changed(void)
{
	struct end a, b = { 0 };

	a.ctx = end_device();
	a.pd = ibv_alloc_pd(a.ctx);
	NEED(a.pd);
	b.ctx = a.ctx;
	b.pd = ibv_alloc_pd(a.ctx);
	NEED(b.pd);
	end_pair(&a, &b);

	struct ibv_mr *mr = alloc(a.pd, MIB, 0), *from = alloc(a.pd, MIB, 0);
	uint64_t base = base_of(mr);
	void *memory = mr->addr;
	struct work write = { IBV_WR_RDMA_WRITE, base_of(from), 4096, from->lkey, base, mr->rkey };

	NEED(rereg_refused(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4096, 0, EINVAL));
	NEED(rereg_refused(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ZERO_BASED, EINVAL));
	NEED(rereg_refused(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL));
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, b.pd, NULL, 0, ALL_ACCESS) == 0);
	NEED(mr->pd == b.pd && mr->addr == memory && mr->length == MIB && query(mr).access == ALL_ACCESS);
	NEED(ibv_dealloc_pd(b.pd) == EBUSY);
	fill(from->addr, 4096, 5);
	NEED(end_work(&a, &write) == IBV_WC_SUCCESS);
	NEED(filled(memory, 4096, 5));
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
	NEED(end_work(&a, &write) == IBV_WC_REM_ACCESS_ERR);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(ibv_dereg_mr(from) == 0);
	NEED(ibv_dealloc_pd(b.pd) == 0);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
}

/* --- its pages ------------------------------------------------------------------------------------------------------ */

static size_t pages_present(const struct ibv_mr *mr)
{
	size_t page = (size_t)getpagesize(), n = 0;
	unsigned char *vec = malloc(mr->length / page);

	NEED(vec && mincore(mr->addr, mr->length, vec) == 0);
	for (size_t i = 0; i < mr->length / page; i++)
		n += vec[i] & 1;
	free(vec);
	return n;
}

static void pages_come_when_asked_for(void)
{
	struct verbsd_mr_attr attr = { .size = 4 * MIB };
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = alloc(end.pd, attr.size, 0);

	NEED(pages_present(mr) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	attr.flags = VERBSD_MR_POPULATE;
	mr = verbsd_alloc_mr(end.pd, &attr);
	NEED(mr);
	NEED(pages_present(mr) == attr.size / (size_t)getpagesize());
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* Which node a page is on; -1: the kernel does not say. */
static int node_of(void *page)
{
	int node = -1;

	return syscall(SYS_get_mempolicy, &node, NULL, 0, page, 3 /* MPOL_F_NODE | MPOL_F_ADDR */) == 0 ? node : -1;
}

static void pages_on_a_node(void)
{
	struct verbsd_mr_attr attr = { .size = MIB, .flags = VERBSD_MR_NUMA | VERBSD_MR_POPULATE };
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

	if (!mr && (errno == EPERM || errno == ENOSYS))
		end_skip("mbind is forbidden here");
	NEED(mr);

	int node = node_of(mr->addr);

	NEED(ibv_dereg_mr(mr) == 0);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
	if (node < 0)
		end_skip("get_mempolicy is forbidden here, so nothing says where the pages are");
	NEED(node == 0);
}

static bool huge_pages_free(const char *size)
{
	char path[96], text[32] = "";

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%skB/free_hugepages", size);

	FILE *file = fopen(path, "re");

	if (!file)
		return false;

	bool read = fgets(text, sizeof(text), file);

	fclose(file);
	return read && atoi(text) > 0;
}

static void huge_pages(void)
{
	static const struct {
		unsigned flag;
		const char *kb;
		size_t size;
	} kinds[] = { { VERBSD_MR_HUGE_2M, "2048", 2 * MIB }, { VERBSD_MR_HUGE_1G, "1048576", GIB } };
	unsigned tried = 0;
	struct end end;

	end_open(&end);
	for (size_t i = 0; i < 2; i++) {
		struct verbsd_mr_attr attr = { .size = 5000, .flags = kinds[i].flag | VERBSD_MR_POPULATE };

		if (!huge_pages_free(kinds[i].kb)) {
			REFUSED(verbsd_alloc_mr(end.pd, &attr), ENOMEM);
			NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
			continue;
		}

		struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

		NEED(mr && mr->length == kinds[i].size && (uintptr_t)mr->addr % kinds[i].size == 0);
		NEED(query(mr).page_size == kinds[i].size && query(mr).flags == kinds[i].flag);
		fill(mr->addr, mr->length, 1);
		NEED(ibv_dereg_mr(mr) == 0);
		tried++;
	}
	end_close(&end);
	if (!tried)
		end_skip("no free huge pages: only their refusal was seen");
}

/* --- without a daemon ------------------------------------------------------------------------------------------------ */

/* Says "ready", and goes on when the daemon is gone: at the end of stdin. */
static void the_daemon_goes(void)
{
	struct verbsd_mr_attr attr = { .size = MIB };
	struct verbsd_mr_info info;
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = alloc(end.pd, MIB, ALL_ACCESS);

	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	memset(mr->addr, 1, MIB);
	REFUSED(verbsd_alloc_mr(end.pd, &attr), ENOTCONN);
	REFUSED(verbsd_import_mr(end.pd, "name", 0), ENOTCONN);
	REFUSED(verbsd_attach_mr(end.pd, "name", &attr, 0, NULL), ENOTCONN);
	NEED(verbsd_export_mr(mr, "name", 0) == ENOTCONN);
	NEED(verbsd_export_mr_fd(mr, 0) == -1 && errno == ENOTCONN);
	NEED(verbsd_persist_mr(mr, true) == ENOTCONN);
	NEED(verbsd_release_mr(end.ctx, "name") == ENOTCONN);
	NEED(verbsd_query_mr(mr, &info) == ENOTCONN);
	NEED(verbsd_list_mr(end.ctx, &info, 1) == -1 && errno == ENOTCONN);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static const struct end_case cases[] = {
	{ "a-region-is-made", a_region_is_made },
	{ "arguments-are-checked", arguments_are_checked },
	{ "foreign-objects-are-refused", foreign_objects_are_refused },
	{ "work-requests-reach-it", work_requests_reach_it },
	{ "a-base-that-is-taken", a_base_that_is_taken },
	{ "windows-on-it", windows_on_it },
	{ "it-is-changed", it_is_changed },
	{ "pages-come-when-asked-for", pages_come_when_asked_for },
	{ "pages-on-a-node", pages_on_a_node },
	{ "huge-pages", huge_pages },
	{ "the-daemon-goes", the_daemon_goes },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
