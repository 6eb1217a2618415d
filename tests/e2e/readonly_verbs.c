/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that imported a region for reading, and has work requests write it.
 */
#include "tests/e2e/readonly.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

static struct end a, b;
static struct ibv_mr *mr;
static uint64_t base;
static uint8_t *before;

/* It is not NULL, or not 0: allowed. */
static void must_fail(bool allowed, const char *name)
{
	bool changed = memcmp(mr->addr, before, mr->length) != 0;

	finding(!allowed && !changed, name, "%s%s", allowed ? "allowed" : "", changed ? " and changed" : "");
}

/* A connection that has not failed yet. */
static void reconnect(void)
{
	if (a.qp) {
		end_qp_destroy(&a);
		end_qp_destroy(&b);
	}
	end_pair(&a, &b);
}

static void work_fails(const char *name, const struct work *work)
{
	reconnect();
	must_fail(end_work(&a, work) == IBV_WC_SUCCESS, name);
}

static void works(const uint8_t *memory, const struct ibv_mr *local)
{
	uint64_t own = (uintptr_t)memory;

	work_fails("WRITE into it", &(struct work){ IBV_WR_RDMA_WRITE, own, 64, local->lkey, base, mr->rkey });
	work_fails("a large WRITE into it", &(struct work){ IBV_WR_RDMA_WRITE, own, 65536, local->lkey, base, mr->rkey });
	work_fails("FETCH_ADD in it", &(struct work){ IBV_WR_ATOMIC_FETCH_AND_ADD, own, 8, local->lkey, base, mr->rkey, 1 });
	work_fails("CMP_SWAP in it",
		&(struct work){ IBV_WR_ATOMIC_CMP_AND_SWP, own, 8, local->lkey, base, mr->rkey, 0, 1 });
	work_fails("READ into it", &(struct work){ IBV_WR_RDMA_READ, base, 64, mr->lkey, own, local->rkey });
	work_fails("the result of FETCH_ADD into it",
		&(struct work){ IBV_WR_ATOMIC_FETCH_AND_ADD, base, 8, mr->lkey, own, local->rkey, 1 });
	reconnect();
	end_recv(&b, base, 64, mr->lkey);
	must_fail(end_work(&a, &(struct work){ IBV_WR_SEND, own, 64, local->lkey, 0, 0 }) == IBV_WC_SUCCESS ||
			  end_wait(&b) == IBV_WC_SUCCESS,
		"SEND into it");
	NEED(end_work((reconnect(), &a), &(struct work){ IBV_WR_RDMA_READ, own, 64, local->lkey, base, mr->rkey }) ==
		IBV_WC_SUCCESS);
	finding(memcmp(memory, mr->addr, 64) == 0, "READ out of it", "other bytes");
}

static void registrations(int capability)
{
	struct verbsd_mr_attr attr = { .size = 4096, .access = ALL_ACCESS };
	const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *again;

	must_fail(ibv_reg_mr(a.pd, mr->addr, 4096, IBV_ACCESS_LOCAL_WRITE) != NULL, "ibv_reg_mr with local write");
	must_fail(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, writes) == 0, "ibv_rereg_mr");
	must_fail(verbsd_import_mr(a.pd, "readonly.prey", IBV_ACCESS_LOCAL_WRITE) != NULL, "verbsd_import_mr");
	must_fail(verbsd_import_mr(a.pd, "readonly.prey", (unsigned)writes) != NULL, "verbsd_import_mr, remote write");
	must_fail(verbsd_import_mr_fd(a.pd, capability, IBV_ACCESS_LOCAL_WRITE) != NULL, "verbsd_import_mr_fd");
	must_fail(verbsd_attach_mr(a.pd, "readonly.prey", &attr, 0, NULL) != NULL, "verbsd_attach_mr");
	must_fail(verbsd_export_mr(mr, "readonly.prey", 0) == 0, "verbsd_export_mr");
	must_fail(verbsd_export_mr_fd(mr, 0) >= 0, "verbsd_export_mr_fd");
	must_fail(ibv_reg_dmabuf_mr(a.pd, 0, 4096, 0, capability, IBV_ACCESS_LOCAL_WRITE) != NULL, "ibv_reg_dmabuf_mr");
	again = ibv_import_mr(a.pd, mr->handle);
	must_fail(again && mprotect(again->addr ? again->addr : mr->addr, 4096, PROT_READ | PROT_WRITE) == 0, "ibv_import_mr");
	if (again)
		ibv_unimport_mr(again);
	must_fail(mprotect(mr->addr, 4096, PROT_READ | PROT_WRITE) == 0, "mprotect of the library's mapping");
	must_fail(madvise(mr->addr, 4096, MADV_REMOVE) == 0, "madvise of the library's mapping");
}

void verbs_tricks(const char *name, int capability)
{
	uint8_t *memory = aligned_alloc(4096, 65536);
	struct verbsd_mr_info info;
	struct ibv_mr *local;

	a.ctx = end_device();
	a.pd = ibv_alloc_pd(a.ctx);
	NEED(a.pd);
	b = a;
	mr = verbsd_import_mr(a.pd, name, IBV_ACCESS_REMOTE_READ);
	NEED(mr && memory);
	NEED(verbsd_query_mr(mr, &info) == 0);
	base = info.base;
	finding(info.flags & VERBSD_MR_READ_ONLY, "the library knows that it is read-only", "flags 0x%x", info.flags);
	before = malloc(mr->length);
	NEED(before);
	memcpy(before, mr->addr, mr->length);
	memset(memory, 'X', 65536);
	local = ibv_reg_mr(a.pd, memory, 65536, ALL_ACCESS);
	NEED(local);
	registrations(capability);
	works(memory, local);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(local) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
	free(before);
	free(memory);
}
