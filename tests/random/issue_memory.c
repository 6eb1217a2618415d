/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on memory that is not simply the program's: pages that come and go, device memory, and regions on it. In the
 * model all of it lies behind the arena. Of device memory the workers keep a copy there, made whenever the coordinator
 * looks.
 */
#include "tests/random/model.h"

#include <errno.h>

int64_t dm_place(const struct model *m, int64_t id)
{
	(void)m;
	return ARENA + id % DMS * DM_MAX;
}

static bool dm_is(const struct model *m, int64_t id, unsigned worker)
{
	return id >= 0 && id < OBJECTS && m->dms[id].live && m->dms[id].worker == worker;
}

static bool place_is_taken(const struct model *m, const struct op *op)
{
	for (unsigned i = 0; i < m->tops[OP_DM]; i++) {
		if (m->dms[i].live && m->dms[i].worker == op->worker && i % DMS == op->id % DMS)
			return true;
	}
	return false;
}

/* It is filled at once: what is in it before is not promised. */
static void dm_fill(struct model *m, const struct op *op, int64_t off, int64_t len, int64_t seed, struct cmd *cmd)
{
	cmd->fill.seed = (uint64_t)seed;
	cmd->fill.n = 1;
	cmd->fill.at[0].off = (uint32_t)(dm_place(m, op->id) + off);
	cmd->fill.at[0].len = (uint32_t)len;
}

bool issue_dm(struct model *m, const struct op *op)
{
	int64_t len = op->a[DM_LEN];
	struct fill fill;
	struct cmd *cmd;

	if (len <= 0 || len > DM_MAX || len % 4 || place_is_taken(m, op))
		return false;
	cmd = issue_command(m, op, CMD_DM, op->worker);
	dm_fill(m, op, 0, len, op->a[DM_SEED], cmd);
	fill = cmd->fill;
	if (issue_call(m, op->worker, "ibv_alloc_dm", 0, 0) != 0)
		return true;
	m->dms[op->id] = (struct m_dm){ .live = true, .worker = op->worker, .len = (uint64_t)len };
	fill_note(m, &fill, op->worker, true, -1, NULL);
	return true;
}

bool issue_dm_copy(struct model *m, const struct op *op)
{
	const struct m_dm *dm = &m->dms[op->id];
	int64_t off = op->a[DMCOPY_OFF], len = op->a[DMCOPY_LEN];
	int want = off < 0 || off + len > (int64_t)dm->len ? EFAULT : off % 4 || len % 4 ? EINVAL : 0;
	struct fill fill;
	struct cmd *cmd;

	if (!dm->live || len <= 0 || len > DM_MAX)
		return false;
	cmd = issue_command(m, op, CMD_DM_COPY, dm->worker);
	dm_fill(m, op, off, len, op->a[DMCOPY_SEED], cmd);
	fill = cmd->fill;
	if (issue_call(m, dm->worker, "ibv_memcpy_to_dm", want, want) == 0)
		fill_note(m, &fill, dm->worker, true, -1, NULL);
	return true;
}

/* A region on device memory: its addresses begin at 0. */
bool issue_dm_mr(struct model *m, const struct op *op, bool legal)
{
	int64_t id = op->a[MR_DM] - 1, off = op->a[MR_OFF], len = op->a[MR_LEN];
	struct m_mr *mr = &m->mrs[op->id];
	int expected;

	if (!dm_is(m, id, op->worker) || off < 0)
		return false;
	expected = legal && op->a[MR_ACCESS] & IBV_ACCESS_ZERO_BASED && off + len <= (int64_t)m->dms[id].len ? 0 : EINVAL;
	issue_command(m, op, CMD_MR, op->worker);
	if (issue_call(m, op->worker, "ibv_reg_dm_mr", expected, expected) != 0)
		return true;
	off += dm_place(m, id);
	*mr = (struct m_mr){
		.worker = op->worker,
		.key = m->worker[op->worker].reply.results[m->worker[op->worker].reply.n_results - 1].value[0],
		.shift = -(int64_t)m->worker[op->worker].hello.arena - off,
		.dm = (int)id,
		.now = {
			.live = true,
			.pd = (int)op->a[MR_PD],
			.off = off,
			.len = (uint64_t)len,
			.access = (unsigned)op->a[MR_ACCESS],
		},
	};
	m->pds[op->a[MR_PD]].users++;
	m->dms[id].users++;
	return true;
}

/* --- pages that come and go --- */

bool issue_pages(struct model *m, const struct op *op)
{
	int64_t from = op->a[PAGES_FROM], n = op->a[PAGES_N];
	struct fill fill = { .seed = (uint64_t)op->a[PAGES_SEED], .n = 1 };

	if (op->worker >= m->workers || from < 0 || n <= 0 || from + n > PAGES || !workers_sync(m))
		return false;
	fill.at[0].off = (uint32_t)(PAGED + from * PAGE);
	fill.at[0].len = (uint32_t)(n * PAGE);
	issue_command(m, op, CMD_PAGES, op->worker)->fill = fill;
	if (issue_call(m, op->worker, "mmap", 0, 0) != 0)
		return true;
	for (int64_t i = from; i < from + n; i++)
		m->worker[op->worker].pages[i] =
			(struct m_page){ .away = !op->a[PAGES_THERE], .seed = fill.seed, .changed = m->seq };
	fill_note(m, &fill, op->worker, true, -1, NULL);
	return true;
}

/* What is wrong with one of them; which errno tells of it is the device's affair. */
static enum tri can_be_advised(struct model *m, const struct op *op, const struct m_sge *sge)
{
	struct use use = {
		.worker = m->pds[op->id].worker,
		.seq = m->seq + 1,
		.access = op->a[ADVISE_HOW] == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0,
		.pd = (int)op->id,
		.key = sge->key,
		.addr = sge->addr,
		.len = sge->len,
		.qp = -1,
		.bind = true,
	};
	enum tri allowed;

	use.access |= IBV_ACCESS_ON_DEMAND;
	allowed = key_allows(m, &use);
	/* Pages that are away: nobody may wait for them, and nobody need notice. */
	if (op->a[ADVISE_HOW] == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ||
		pages_there(m, use.worker, sge->off, sge->len, use.seq) == YES)
		return allowed;
	return tri_and(allowed, op->a[ADVISE_FLAGS] & IBV_ADVISE_MR_FLAG_FLUSH ? NO : MAYBE);
}

bool issue_advise(struct model *m, const struct op *op)
{
	struct m_sge sge[SGES] = { 0 };
	int64_t n = op->a[ADVISE_SGES];
	unsigned worker = m->pds[op->id].worker;
	enum tri good = n > 0 ? YES : NO;
	const struct result *result;

	if (!m->pds[op->id].live || n < 0 || n > 2 || !workers_sync(m) || !sges_make(m, op->a + ADVISE_SGE, n, worker, sge))
		return false;
	for (int64_t i = 0; i < n; i++) {
		if (!sge[i].len)
			return false;
		good = tri_and(good, can_be_advised(m, op, &sge[i]));
	}
	sges_copy(issue_command(m, op, CMD_ADVISE, worker), sge, (unsigned)n);
	result = worker_do(m, worker);
	if (result && good != MAYBE && (good == YES) != !result->error)
		wrong(m, "errno", "ibv_advise_mr on worker %u: error %d", worker, result->error);
	return true;
}

/* --- all --- */

bool memory_look(struct model *m)
{
	bool any = false;

	for (unsigned i = 0; i < m->tops[OP_DM]; i++) {
		if (!m->dms[i].live)
			continue;
		cmd_add(m, m->dms[i].worker, CMD_DM_LOOK, i);
		any = true;
	}
	return !any || workers_sync(m);
}
