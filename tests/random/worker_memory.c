/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is not simply the program's: pages that come and go, and device memory. That cannot be touched but by copies,
 * so a copy of each piece is kept behind the arena for the coordinator.
 */
#include "tests/random/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int worker_pages(struct worker *w, const struct cmd *cmd, struct result *result)
{
	bool there = cmd->a[PAGES_THERE];
	void *at = w->arena + PAGED + cmd->a[PAGES_FROM] * PAGE;
	int prot = there ? PROT_READ | PROT_WRITE : PROT_NONE;

	(void)result;
	if (mmap(at, (size_t)cmd->a[PAGES_N] * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return errno;
	if (there)
		worker_fill(w, &cmd->fill);
	return 0;
}

int worker_advise(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_sge sge[SGES];

	(void)result;
	memcpy(sge, cmd->sge, sizeof(sge));
	return ibv_advise_mr(w->pds[cmd->id].pd, (enum ibv_advise_mr_advice)cmd->a[ADVISE_HOW],
		(uint32_t)cmd->a[ADVISE_FLAGS], sge, cmd->n_sge);
}

/* --- device memory --- */

static size_t place(uint32_t id)
{
	return ARENA + (size_t)(id % DMS) * DM_MAX;
}

static struct device_memory *of_place(struct worker *w, size_t off)
{
	for (uint32_t id = (uint32_t)((off - ARENA) / DM_MAX); id < OBJECTS; id += DMS) {
		if (w->dms[id].dm)
			return &w->dms[id];
	}
	return NULL;
}

/* A pattern into device memory; 0, or what the copy returned. */
static int fill_one(struct ibv_dm *dm, uint64_t seed, size_t off, size_t at, size_t len)
{
	uint8_t *bytes = calloc(1, at + len);
	int err = ENOMEM;

	if (bytes) {
		pattern_fill(bytes, seed, at, at + len);
		err = ibv_memcpy_to_dm(dm, off, bytes + at, len);
	}
	free(bytes);
	return err;
}

void worker_dm_fill(struct worker *w, uint64_t seed, size_t at, size_t len)
{
	struct device_memory *dm = of_place(w, at);

	if (!dm || fill_one(dm->dm, seed, (at - ARENA) % DM_MAX, at, len))
		abort();
}

int worker_dm(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_alloc_dm_attr attr = { .length = (size_t)cmd->a[DM_LEN], .log_align_req = (uint32_t)cmd->a[DM_ALIGN] };
	struct device_memory *dm = &w->dms[cmd->id];

	(void)result;
	dm->dm = ibv_alloc_dm(w->ctx, &attr);
	if (!dm->dm)
		return errno;
	dm->len = attr.length;
	worker_fill(w, &cmd->fill);
	return 0;
}

int worker_dm_copy(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	return fill_one(w->dms[cmd->id].dm, cmd->fill.seed, (size_t)cmd->a[DMCOPY_OFF], cmd->fill.at[0].off,
		cmd->fill.at[0].len);
}

int worker_dm_look(struct worker *w, const struct cmd *cmd, struct result *result)
{
	const struct device_memory *dm = &w->dms[cmd->id];

	(void)result;
	return ibv_memcpy_from_dm(w->arena + place(cmd->id), dm->dm, 0, dm->len);
}

int worker_dm_free(struct worker *w, uint32_t id)
{
	struct device_memory *dm = &w->dms[id];
	/* Nothing changes it any more: what is in it last is looked at later. */
	int err = ibv_memcpy_from_dm(w->arena + place(id), dm->dm, 0, dm->len);

	if (!err)
		err = ibv_free_dm(dm->dm);
	if (!err)
		dm->dm = NULL;
	return err;
}
