/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the field reports want of one pool for many processes: E1, E3 and E8. (E2 and E7 are cases of sharing.c, E4 is a
 * benchmark.) The program stands before sendmsg(), so it counts the requests that a call makes. One case a run (see ends.h).
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

#define MIB	 ((size_t)1 << 20)
#define IMPORTERS 8
#define NAME	 "e2e/pools"

static __thread unsigned requests;

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static __typeof__(&sendmsg) next;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
	requests++;
	return next(fd, msg, flags);
}

/* --- E1: one registers, the others attach, and the last as fast as the first ------------------------------------------------- */

struct cost {
	unsigned requests;
	size_t resident; /* pages of this process's that came with it */
	size_t length;
};

/* Of all that this process has mapped. Counted page by page: what statm says lags behind by up to 64 pages a processor. */
static size_t resident_pages(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	unsigned long kib = 0;
	char line[256];
	bool found = false;

	NEED(file);
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "Rss: %lu kB", &kib) == 1;
	fclose(file);
	NEED(found);
	return kib / 4;
}

static struct cost import(struct ibv_pd *pd)
{
	size_t before = resident_pages(), after;
	struct cost cost = { 0 };
	struct ibv_mr *mr;

	requests = 0;
	mr = verbsd_import_mr(pd, NAME, ALL_ACCESS);
	cost.requests = requests;
	NEED(mr);
	after = resident_pages();
	cost.resident = after > before ? after - before : 0;
	cost.length = mr->length;
	NEED(ibv_dereg_mr(mr) == 0);
	return cost;
}

static void importer(int fd, void *arg)
{
	struct end end;
	struct cost cost;

	(void)arg;
	end_open(&end);
	for (;;) {
		char go = 0;

		hear(fd, &go, 1);
		if (!go)
			break;
		cost = import(end.pd);
		say(fd, &cost, sizeof(cost));
	}
	end_close(&end);
}

static struct cost cost_of(const struct child *child)
{
	struct cost cost;

	nod(child->fd);
	hear(child->fd, &cost, sizeof(cost));
	return cost;
}

/* No more than so many pages come with any of them: what the library needs for itself, and nothing of the region. */
#define OWN_PAGES 64

static void e1_the_eighth_is_as_the_first(void)
{
	static const size_t sizes[] = { 4096, MIB, 1024 * MIB, 8192 * MIB };
	struct child children[IMPORTERS];
	unsigned first = 0;
	struct end end;

	for (unsigned i = 0; i < IMPORTERS; i++)
		children[i] = child_start(importer, NULL);
	end_open(&end);
	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		const struct verbsd_mr_attr attr = { .size = sizes[s], .access = ALL_ACCESS };
		struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

		NEED(mr && verbsd_export_mr(mr, NAME, 0) == 0);
		/* Numbers that are leased come with the first call of each. */
		for (unsigned i = 0; s == 0 && i < IMPORTERS; i++)
			cost_of(&children[i]);
		for (unsigned i = 0; i < IMPORTERS; i++) {
			struct cost cost = cost_of(&children[i]);

			if (!first)
				first = cost.requests;
			NEED(cost.length == sizes[s]);
			NEED(cost.requests == first && cost.requests <= 3);
			NEED(cost.resident < OWN_PAGES);
		}
		NEED(ibv_dereg_mr(mr) == 0);
	}
	for (unsigned i = 0; i < IMPORTERS; i++) {
		char stop = 0;

		say(children[i].fd, &stop, 1);
		child_end(&children[i]);
	}
	end_close(&end);
}

/* --- E3: the first operation after a restart finds everything in its place ----------------------------------------------------- */

#define POOL (64 * MIB)

static void filler(int fd, void *arg)
{
	const struct verbsd_mr_attr attr = { .size = POOL, .access = ALL_ACCESS, .flags = VERBSD_MR_POPULATE };
	struct end end;
	bool created = false;

	(void)arg;
	end_open(&end);

	struct ibv_mr *mr = verbsd_attach_mr(end.pd, NAME, &attr, VERBSD_EXPORT_PERSIST, &created);

	NEED(mr && created);
	for (size_t at = 0; at < POOL; at += 4096)
		*(uint64_t *)((uint8_t *)mr->addr + at) = at + 1;
	say(fd, &mr->rkey, sizeof(mr->rkey));
	(void)pause();
}

static bool all_there(void *addr)
{
	static unsigned char pages[POOL / 4096];

	NEED(mincore(addr, POOL, pages) == 0);
	for (size_t i = 0; i < sizeof(pages); i++)
		if (!(pages[i] & 1))
			return false;
	return true;
}

static void e3_no_stall_after_a_restart(void)
{
	const struct verbsd_mr_attr attr = { .size = POOL, .access = ALL_ACCESS, .flags = VERBSD_MR_POPULATE };
	struct child child = child_start(filler, NULL);
	uint8_t *memory = malloc(MIB);
	bool created = true;
	struct end a, b;
	uint32_t rkey;

	NEED(memory);
	hear(child.fd, &rkey, sizeof(rkey));
	child_kill(&child);
	end_open(&a);
	end_qp_destroy(&a);
	b = a;
	end_pair(&a, &b);

	struct ibv_mr *own = ibv_reg_mr(a.pd, memory, MIB, ALL_ACCESS);

	NEED(own);
	requests = 0;

	struct ibv_mr *mr = verbsd_attach_mr(a.pd, NAME, &attr, VERBSD_EXPORT_PERSIST, &created);

	NEED(mr && !created && requests <= 3);
	/* Nothing is registered anew, and no page has to come. */
	NEED(mr->rkey == rkey && mr->length == POOL);
	NEED(all_there(mr->addr));
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, MIB, own->lkey, (uintptr_t)mr->addr + POOL - MIB,
				 rkey }) == IBV_WC_SUCCESS);
	for (size_t at = 0; at < MIB; at += 4096)
		NEED(*(uint64_t *)(memory + at) == POOL - MIB + at + 1);
	NEED(verbsd_release_mr(a.ctx, NAME) == 0);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(own) == 0);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dealloc_pd(a.pd) == 0 && ibv_close_device(a.ctx) == 0);
	free(memory);
}

/* --- E8: the end of a client with a large region is nothing to the others -------------------------------------------------------- */

#define HUGE_REGION (256 * MIB)

static void holder(int fd, void *arg)
{
	const struct verbsd_mr_attr attr = { .size = HUGE_REGION, .access = ALL_ACCESS, .flags = VERBSD_MR_POPULATE };
	struct end end;

	(void)arg;
	end_open(&end);
	NEED(verbsd_alloc_mr(end.pd, &attr));
	nod(fd);
	(void)pause();
}

static void e8_others_are_served(void)
{
	struct child child = child_start(holder, NULL);
	unsigned served = 0;
	struct end end;

	nod_wait(child.fd);
	end_open(&end);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 1);
	child_kill(&child);
	/* Each answer is one that the daemon gave while it got rid of the other. */
	while (verbsd_list_mr(end.ctx, NULL, 0) != 0) {
		struct ibv_pd *pd = ibv_alloc_pd(end.ctx);

		NEED(pd && ibv_dealloc_pd(pd) == 0);
		NEED(++served < 100000);
	}
	end_close(&end);
}

static const struct end_case cases[] = {
	{ "e1-the-eighth-is-as-the-first", e1_the_eighth_is_as_the_first },
	{ "e3-no-stall-after-a-restart", e3_no_stall_after_a_restart },
	{ "e8-others-are-served", e8_others_are_served },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
