/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of shared regions: kept when everybody died, gone when nobody has them, whatever their size; under traffic; and over
 * a quota.
 */
#include "tests/e2e/sharing.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* --- life and death ------------------------------------------------------------------------------------------------- */

static void creator(int fd, void *arg)
{
	const char *name = arg;
	struct verbsd_mr_info info;
	struct end end;

	nod_wait(fd);
	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, strstr(name, "keep") ? VERBSD_EXPORT_PERSIST : 0);

	memset(mr->addr, 10, SIZE);
	info = query(mr);
	say(fd, &info, sizeof(info));
	(void)pause();
}

void kept_when_all_are_dead(void)
{
	const char *name = name_of("keep");
	struct child child = child_start(creator, (void *)(uintptr_t)name);
	struct verbsd_mr_info before, now, list[2];
	uint8_t local[64];
	struct end end, other;

	nod(child.fd);
	hear(child.fd, &before, sizeof(before));
	NEED(before.flags == VERBSD_MR_PERSIST);
	child_kill(&child);
	end_open(&end);
	do
		NEED(verbsd_list_mr(end.ctx, list, 2) == 1);
	while (list[0].users != 0);
	NEED(list[0].flags == VERBSD_MR_PERSIST && list[0].rkey == before.rkey && list[0].base == before.base);

	bool created = true;
	struct ibv_mr *mr = verbsd_attach_mr(end.pd, name, &usual, VERBSD_EXPORT_PERSIST, &created);

	NEED(mr && !created);
	now = query(mr);
	NEED(now.rkey == before.rkey && now.base == before.base && now.size == before.size && now.users == 1);
	for (size_t i = 0; i < SIZE; i++)
		NEED(((uint8_t *)mr->addr)[i] == 10);

	/* Who knows the key from before reads the region by it. */
	struct ibv_mr *plain = ibv_reg_mr(end.pd, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);

	NEED(plain);
	other = end;
	end_qp_destroy(&end);
	end_pair(&end, &other);
	NEED(end_work(&end, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)local, 64, plain->lkey, before.base + 77, before.rkey }) ==
		IBV_WC_SUCCESS);
	NEED(local[0] == 10 && local[63] == 10);
	end_qp_destroy(&other);
	NEED(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(mr) == 0);
	/* Without users it stays, until it is released. */
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 1);
	mr = verbsd_import_mr(end.pd, name, 0);
	NEED(mr && mr->rkey == before.rkey);
	NEED(verbsd_release_mr(end.ctx, name) == 0);
	NEED(query(mr).flags == 0);
	NEED(verbsd_persist_mr(mr, true) == EINVAL);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}

void gone_when_all_are_dead(void)
{
	const char *name = name_of("lose");
	struct child child = child_start(creator, (void *)(uintptr_t)name), next = child_start(creator, (void *)(uintptr_t)name);
	struct verbsd_mr_info info;
	struct end end;

	nod(child.fd);
	hear(child.fd, &info, sizeof(info));
	end_open(&end);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, name, ALL_ACCESS);

	NEED(mr && query(mr).users == 2);
	child_kill(&child);
	/* One who has it keeps it, name and contents. */
	users_wait(mr, 1);
	NEED(strcmp(query(mr).name, name) == 0 && ((uint8_t *)mr->addr)[0] == 10);
	NEED(ibv_dereg_mr(mr) == 0);
	REFUSED(verbsd_import_mr(end.pd, name, 0), ENOENT);
	nod(next.fd);
	hear(next.fd, &info, sizeof(info));
	child_kill(&next);
	gone_wait(end.pd, name);
	end_close(&end);
}

void persistence_comes_and_goes(void)
{
	const char *name = name_of("persist");
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, 0);

	NEED(verbsd_persist_mr(mr, true) == 0 && query(mr).flags == VERBSD_MR_PERSIST);
	NEED(verbsd_persist_mr(mr, true) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	mr = verbsd_import_mr(end.pd, name, 0);
	NEED(mr && verbsd_persist_mr(mr, false) == 0 && query(mr).flags == 0);
	NEED(verbsd_persist_mr(mr, false) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	REFUSED(verbsd_import_mr(end.pd, name, 0), ENOENT);
	end_close(&end);
}

/* A region that cannot be made as it was asked for is not there afterwards, persistent or not. */
void nothing_is_left_of_a_failure(void)
{
	const char *name = name_of("failure");
	const struct verbsd_mr_attr attr = { .size = SIZE, .flags = VERBSD_MR_NUMA, .numa_node = 1023 };
	struct end end;

	end_open(&end);
	REFUSED(verbsd_attach_mr(end.pd, name, &attr, VERBSD_EXPORT_PERSIST, NULL), EINVAL);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);

	/* No fd for the answer: the daemon has made it already. */
	struct rlimit limit, none = { .rlim_cur = 3 };
	struct ibv_mr *mr = named(end.pd, name, 0);
	int writing = verbsd_export_mr_fd(mr, 0);

	NEED(writing >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none.rlim_max = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
	REFUSED(verbsd_import_mr(end.pd, name, 0), EMFILE);
	REFUSED(verbsd_import_mr_fd(end.pd, writing, 0), EMFILE);
	REFUSED(verbsd_alloc_mr(end.pd, &usual), EMFILE);
	NEED(verbsd_export_mr_fd(mr, 0) == -1 && errno == EMFILE);
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	NEED(query(mr).users == 1 && verbsd_list_mr(end.ctx, NULL, 0) == 1);
	NEED(ibv_dereg_mr(mr) == 0);
	close(writing);
	end_close(&end);
}

/* --- size ----------------------------------------------------------------------------------------------------------- */

static size_t pages_present(const void *memory, size_t n)
{
	size_t page = (size_t)getpagesize(), present = 0;
	unsigned char *vec = malloc(n / page);

	NEED(vec && mincore((void *)(uintptr_t)memory, n, vec) == 0);
	for (size_t i = 0; i < n / page; i++)
		present += vec[i] & 1;
	free(vec);
	return present;
}

static void sparse_importer(int fd, void *arg)
{
	struct end end;

	nod_wait(fd);
	end_open(&end);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, arg, ALL_ACCESS);

	NEED(mr && mr->length == 8 * GIB);

	uint8_t *memory = mr->addr;

	/* Nothing is there but what its creator touched. */
	NEED(pages_present(memory, 8 * GIB) == 2);
	NEED(memory[0] == 1 && memory[8 * GIB - 1] == 2 && memory[5 * GIB] == 0);
	end_meet(&end, fd);
	nod_wait(fd);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

void eight_gibibytes(void)
{
	const char *name = name_of("sparse");
	struct child child = child_start(sparse_importer, (void *)(uintptr_t)name);
	const struct verbsd_mr_attr attr = { .size = 8 * GIB, .access = ALL_ACCESS };
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

	NEED(mr && verbsd_export_mr(mr, name, 0) == 0);

	uint8_t *memory = mr->addr;
	uint64_t base = query(mr).base;

	memory[0] = 1;
	memory[8 * GIB - 1] = 2;
	nod(child.fd);
	end_meet(&end, child.fd);
	/* From one end of it to the other. */
	NEED(end_work(&end, &(struct work){ IBV_WR_RDMA_WRITE, base, 4096, mr->lkey, base + 8 * GIB - 4096, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(memory[8 * GIB - 4096] == 1 && memory[8 * GIB - 1] == 0);
	nod(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* --- the end of a registration -------------------------------------------------------------------------------------- */

#define BLOCK (256u << 10)

struct target {
	uint64_t base;
	uint32_t rkey;
};

/* Writes until it is told no, each time another byte. */
static void writer(int fd, void *arg)
{
	struct end end;
	struct target target;
	uint8_t byte = 0;

	(void)arg;
	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &usual);

	NEED(mr);
	for (;;) {
		enum ibv_wc_status status;

		hear(fd, &target, sizeof(target));
		if (!target.rkey)
			break;
		end_meet(&end, fd);
		do {
			memset(mr->addr, ++byte, BLOCK);
			status = end_work(&end, &(struct work){ IBV_WR_RDMA_WRITE, query(mr).base, BLOCK, mr->lkey,
							target.base, target.rkey });
		} while (status == IBV_WC_SUCCESS);
		NEED(status == IBV_WC_REM_ACCESS_ERR);
		nod(fd);
		end_qp_destroy(&end);
		end_qp(&end);
	}
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* After ibv_dereg_mr() returned nothing lands in the memory, which others still have. */
void the_end_under_traffic(void)
{
	static uint8_t seen[BLOCK];
	struct child child = child_start(writer, NULL);
	struct end end;

	end_open(&end);

	struct ibv_mr *keeper = verbsd_alloc_mr(end.pd, &usual);
	int fd = verbsd_export_mr_fd(keeper, 0);
	uint8_t *memory = keeper->addr;

	NEED(keeper && fd >= 0);
	for (unsigned round = 0; round < 30; round++) {
		struct ibv_mr *mr = verbsd_import_mr_fd(end.pd, fd, ALL_ACCESS);
		struct target target = { query(keeper).base, 0 };

		NEED(mr);
		target.rkey = mr->rkey;
		say(child.fd, &target, sizeof(target));
		end_meet(&end, child.fd);
		/* Until some have come; then at whatever moment it is. */
		for (uint8_t first = *(volatile uint8_t *)memory; first == *(volatile uint8_t *)memory;)
			sched_yield();
		for (unsigned i = 0; i < round * 997 % 5000; i++)
			(void)*(volatile uint8_t *)(memory + i);
		NEED(ibv_dereg_mr(mr) == 0);
		memcpy(seen, memory, BLOCK);
		nod_wait(child.fd);
		NEED(memcmp(seen, memory, BLOCK) == 0);
		end_qp_destroy(&end);
		end_qp(&end);
	}

	struct target none = { 0, 0 };

	say(child.fd, &none, sizeof(none));
	child_end(&child);
	NEED(ibv_dereg_mr(keeper) == 0);
	close(fd);
	end_close(&end);
}

/* --- quotas: of a daemon with 3 regions, 4 MiB of them, 1 MiB persistent --------------------------------------------- */

void quotas(void)
{
	const struct verbsd_mr_attr large = { .size = 3 * SIZE }, huge = { .size = 4 * SIZE + 1 };
	const char *name = name_of("quota"), *other = name_of("over");
	struct end end;

	end_open(&end);
	REFUSED(verbsd_alloc_mr(end.pd, &huge), EDQUOT);
	REFUSED(verbsd_attach_mr(end.pd, name, &huge, 0, NULL), EDQUOT);
	REFUSED(verbsd_attach_mr(end.pd, name, &large, VERBSD_EXPORT_PERSIST, NULL), EDQUOT);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);

	struct ibv_mr *a = named(end.pd, name, VERBSD_EXPORT_PERSIST), *b = verbsd_alloc_mr(end.pd, &large), *c;

	NEED(b);
	REFUSED(verbsd_alloc_mr(end.pd, &usual), EDQUOT); /* bytes */
	NEED(verbsd_export_mr(b, other, VERBSD_EXPORT_PERSIST) == EDQUOT);
	NEED(verbsd_persist_mr(b, true) == EINVAL); /* a name that comes with what was refused is not kept */
	NEED(verbsd_export_mr(b, other, 0) == 0 && verbsd_persist_mr(b, true) == EDQUOT);
	NEED(ibv_dereg_mr(b) == 0);
	/* What persists is charged although nobody has it. */
	NEED(ibv_dereg_mr(a) == 0);
	b = verbsd_alloc_mr(end.pd, &usual);
	c = verbsd_alloc_mr(end.pd, &usual);
	NEED(b && c);
	REFUSED(verbsd_alloc_mr(end.pd, &usual), EDQUOT); /* regions */
	NEED(ibv_dereg_mr(b) == 0);
	b = named(end.pd, other, 0);
	NEED(verbsd_persist_mr(b, true) == EDQUOT);
	NEED(verbsd_release_mr(end.ctx, name) == 0);
	NEED(verbsd_persist_mr(b, true) == 0 && verbsd_release_mr(end.ctx, other) == 0);
	/* An import costs nobody a region. */
	a = verbsd_alloc_mr(end.pd, &usual);
	NEED(a && verbsd_export_mr(a, name, 0) == 0);

	struct ibv_mr *again = verbsd_import_mr(end.pd, name, 0);

	NEED(again);
	NEED(ibv_dereg_mr(again) == 0 && ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0 && ibv_dereg_mr(c) == 0);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}
