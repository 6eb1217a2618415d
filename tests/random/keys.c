/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a key may be used: a region or a window, of the right protection domain, alive, for those bytes, with that
 * access. What changed in this batch, after the use was posted, may or may not count for it.
 */
#include "tests/random/model.h"

static int base_of(const struct model *m, int pd)
{
	return m->pds[pd].base;
}

struct m_mr *key_mr(struct model *m, unsigned worker, uint32_t key)
{
	for (unsigned i = m->tops[OP_MR]; i-- > 0;) {
		if (m->mrs[i].key == key && m->mrs[i].worker == worker && m->mrs[i].key)
			return &m->mrs[i];
	}
	return NULL;
}

/* By index: the low byte of a window's key changes. */
struct m_mw *key_mw(struct model *m, unsigned worker, uint32_t key)
{
	for (unsigned i = m->tops[OP_MW]; i-- > 0;) {
		if (m->mws[i].rkey && m->mws[i].rkey >> 8 == key >> 8 && m->mws[i].worker == worker)
			return &m->mws[i];
	}
	return NULL;
}

static bool inside(uint64_t addr, uint64_t len, uint64_t start, uint64_t size)
{
	return addr >= start && addr - start <= size && len <= size - (addr - start);
}

enum tri pages_there(const struct model *m, unsigned worker, int64_t off, uint64_t len, unsigned seq)
{
	int64_t end = off + (int64_t)len;
	enum tri all = YES;

	for (int64_t i = off < PAGED ? 0 : (off - PAGED) / PAGE; i < PAGES && PAGED + i * PAGE < end; i++) {
		const struct m_page *page = &m->worker[worker].pages[i];

		if (page->changed > m->batch_start && seq <= page->changed)
			all = tri_and(all, MAYBE);
		else if (page->away)
			all = NO;
	}
	return all;
}

static bool is_paged(int64_t off, uint64_t len)
{
	return off < SPACE && off + (int64_t)len > PAGED;
}

bool pages_matter(const struct m_wr *wr)
{
	if (wr->target >= 0 && is_paged(wr->target, wr->len))
		return true;
	for (unsigned i = 0; i < wr->n_sge; i++) {
		if (is_paged(wr->sge[i].off, wr->sge[i].len))
			return true;
	}
	return false;
}

static bool state_allows(const struct model *m, const struct m_mr *mr, const struct m_mr_state *s, const struct use *use)
{
	uint64_t start = m->worker[mr->worker].hello.arena + (uint64_t)(s->off + mr->shift);

	return s->live && base_of(m, s->pd) == base_of(m, use->pd) && (s->implicit || inside(use->addr, use->len, start, s->len)) &&
	       (s->access & use->access) == use->access;
}

static int64_t place_of(const struct model *m, const struct m_mr *mr, uint64_t addr)
{
	return (int64_t)(addr - m->worker[mr->worker].hello.arena) - mr->shift;
}

static enum tri mr_allows(const struct model *m, const struct m_mr *mr, const struct use *use)
{
	bool now = state_allows(m, mr, &mr->now, use);

	if (mr->changed <= m->batch_start || use->seq > mr->changed)
		return now ? YES : NO;
	/* A region that is registered again is closed in between. */
	if (mr->changes == 1 && !now && !state_allows(m, mr, &mr->before, use))
		return NO;
	return MAYBE;
}

static enum tri mw_allows(const struct model *m, const struct m_mw *mw, const struct use *use)
{
	uint64_t start = mw->access & IBV_ACCESS_ZERO_BASED ? 0 : mw->addr;

	if (use->qp < 0)
		return NO;
	if (mw->wild || mw->touched > m->batch_start)
		return use->seq > mw->freed_at && mw->freed_at ? NO : MAYBE;
	if (!mw->bound || mw->bound_key != use->key || base_of(m, mw->pd) != base_of(m, use->pd))
		return NO;
	if (mw->type == IBV_MW_TYPE_2 && mw->qp != use->qp)
		return NO;
	if (!inside(use->addr, use->len, start, mw->len) || (mw->access & use->access) != use->access)
		return NO;
	return pages_there(m, mw->worker, place_of(m, &m->mrs[mw->mr], mw->addr + (use->addr - start)), use->len, use->seq);
}

enum tri key_allows(struct model *m, const struct use *use)
{
	const struct m_mr *mr = key_mr(m, use->worker, use->key);
	const struct m_mw *mw;

	if (!use->len)
		return YES;
	if (mr && !use->bind)
		return tri_and(mr_allows(m, mr, use),
			pages_there(m, use->worker, place_of(m, mr, use->addr), use->len, use->seq));
	if (mr)
		return mr_allows(m, mr, use);
	mw = key_mw(m, use->worker, use->key);
	return mw ? mw_allows(m, mw, use) : NO;
}

enum tri sges_allow(struct model *m, unsigned worker, int pd, const struct m_sge *sge, unsigned n, uint64_t skip,
	uint64_t len, unsigned access, unsigned seq)
{
	enum tri all = YES;

	for (unsigned i = 0; i < n && len; i++) {
		if (skip >= sge[i].len) {
			skip -= sge[i].len;
			continue;
		}
		uint64_t piece = sge[i].len - skip < len ? sge[i].len - skip : len;
		struct use use = {
			.worker = worker,
			.seq = seq,
			.access = access,
			.pd = pd,
			.key = sge[i].key,
			.addr = sge[i].addr + skip,
			.len = piece,
			.qp = -1,
		};

		all = tri_and(all, key_allows(m, &use));
		len -= piece;
		skip = 0;
	}
	return all;
}

struct m_mw *window_of(struct model *m, const struct m_wr *wr)
{
	if (wr->opcode == IBV_WR_BIND_MW)
		return &m->mws[wr->mw];
	if (wr->opcode == IBV_WR_LOCAL_INV)
		return key_mw(m, flow_qp(m, wr->flow)->worker, wr->imm);
	if (wr->opcode == IBV_WR_SEND_WITH_INV && wr->flow->peer >= 0)
		return key_mw(m, wr_worker(m, wr), wr->imm);
	return NULL;
}

bool window_is_shared(struct model *m, const struct m_mw *mw, const struct m_wr *but)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (m->wrs[i] != but && wr_active(m, m->wrs[i]) && window_of(m, m->wrs[i]) == mw)
			return true;
	}
	return false;
}
