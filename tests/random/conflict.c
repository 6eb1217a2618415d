/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order among the accesses of a batch, and where there is none: bytes that two accesses touched, one of them writing,
 * in no order that verbs promises, are open. `torn` is memory whose content is open, `blurred` what a reader got.
 */
#include "tests/random/model.h"

static bool inline_read(const struct m_access *a)
{
	return a->wr && a->wr->inlined && !a->remote;
}

/* A fence behind @a's WR holds @b's back until the response of the first is there. */
static bool fenced(const struct m_wr *a, const struct m_wr *b)
{
	for (size_t i = a->index + 1; i <= b->index; i++) {
		if (a->flow->at[i]->fence && a->flow->at[i]->outcome != OUT_NOT)
			return true;
	}
	return false;
}

/* @a's WR was posted first. */
static bool comes_first(const struct m_access *a, const struct m_access *b)
{
	const struct m_wr *x = a->wr, *y = b->wr;

	if (inline_read(a) && a->worker == b->worker && !(a->threads && y->flow != x->flow) && !(b->remote && y->flow != x->flow))
		return true;
	if (x->flow != y->flow)
		return false;
	if (a->remote && b->remote)
		return true;
	/* What is inline was read by the post already. */
	return !a->remote && a->write && !inline_read(b) && fenced(x, y);
}

int access_order(const struct m_access *a, const struct m_access *b)
{
	if (!a->wr || !b->wr || a->wr == b->wr)
		return 0;
	if (a->wr->seq < b->wr->seq)
		return comes_first(a, b) ? -1 : 0;
	return comes_first(b, a) ? 1 : 0;
}

bool access_before_fill(const struct m_access *access, const struct fill_seen *fill)
{
	if (access->worker != fill->worker)
		return false;
	if (inline_read(access) && access->seq < fill->seq)
		return true;
	return (fill->mr >= 0 && fill->mr == access->mr) || (fill->life && fill->life == access->life);
}

bool access_after_fill(const struct m_access *access, const struct fill_seen *fill)
{
	bool by_receive = access->remote && access->wr && access->seq != access->wr->seq;

	return access->worker == fill->worker && access->seq > fill->seq &&
	       (fill->waited_for || !access->remote || by_receive);
}

/* --- ranges --- */

static void open_add(struct m_open *open, unsigned worker, uint32_t lo, uint32_t hi)
{
	open->at = grown(open->at, open->n, &open->room, sizeof(*open->at));
	open->at[open->n].worker = worker;
	open->at[open->n].lo = lo;
	open->at[open->n++].hi = hi;
}

bool ranges_touch(const struct m_open *open, unsigned worker, uint32_t lo, uint32_t hi)
{
	for (size_t i = 0; i < open->n; i++) {
		if (open->at[i].worker == worker && open->at[i].lo < hi && lo < open->at[i].hi)
			return true;
	}
	return false;
}

void ranges_mark(const struct m_open *open, unsigned worker, uint32_t lo, uint32_t hi, uint8_t *unknown)
{
	for (size_t i = 0; i < open->n; i++) {
		if (open->at[i].worker != worker)
			continue;
		uint32_t from = open->at[i].lo > lo ? open->at[i].lo : lo;
		uint32_t to = open->at[i].hi < hi ? open->at[i].hi : hi;

		if (from < to)
			memset(unknown + (from - lo), 1, to - from);
	}
}

/* Open, but for what was filled after both accesses. */
static void torn_add(struct model *m, const struct m_access *a, const struct m_access *b, uint32_t lo, uint32_t hi,
	size_t fill)
{
	for (; fill < m->n_fills; fill++) {
		const struct fill_seen *f = &m->fills[fill];

		if (f->worker != a->worker || f->range.hi <= lo || hi <= f->range.lo || !access_before_fill(a, f) ||
			(b && !access_before_fill(b, f)))
			continue;
		if (lo < f->range.lo)
			torn_add(m, a, b, lo, f->range.lo, fill + 1);
		if (f->range.hi < hi)
			torn_add(m, a, b, f->range.hi, hi, fill + 1);
		return;
	}
	open_add(&m->torn, a->worker, lo, hi);
}

static void blur(struct model *m, const struct m_access *reader, uint32_t lo, uint32_t hi)
{
	struct m_wr *wr = m->wrs[reader->wr->id];

	if (reader->old)
		return;
	if (wr->outcome == OUT_NONE && !reader->remote)
		wr->dirty = true;
	open_add(&m->blurred, reader->worker, lo, hi);
}

static bool same_word(const struct m_access *a, const struct m_access *b)
{
	return a->atomic && b->atomic && a->lo == b->lo && !a->maybe && !b->maybe && is_atomic(a->wr) == is_atomic(b->wr);
}

static void pair(struct model *m, const struct m_access *a, const struct m_access *b)
{
	uint32_t lo = a->lo > b->lo ? a->lo : b->lo, hi = a->hi < b->hi ? a->hi : b->hi;

	if (a->worker != b->worker || lo >= hi || !(a->write || b->write) || (a->old && b->old) || same_word(a, b) ||
		access_order(a, b))
		return;
	if (!a->write || !b->write) {
		blur(m, a->write ? b : a, lo, hi);
		return;
	}
	torn_add(m, a, b, lo, hi, 0);
	/* What fills the place afterwards says nothing of what an atomic found there. */
	if (a->atomic && is_atomic(a->wr))
		blur(m, a, lo, hi);
	if (b->atomic && is_atomic(b->wr))
		blur(m, b, lo, hi);
}

static void against_fill(struct model *m, const struct m_access *a, const struct fill_seen *f)
{
	uint32_t lo = a->lo > f->range.lo ? a->lo : f->range.lo, hi = a->hi < f->range.hi ? a->hi : f->range.hi;

	if (a->worker != f->worker || lo >= hi || access_before_fill(a, f) || access_after_fill(a, f))
		return;
	if (a->write)
		open_add(&m->torn, a->worker, lo, hi);
	else
		blur(m, a, lo, hi);
}

/* Nothing says that it has ended. */
static bool flies(const struct m_access *a)
{
	return a->write && a->wr && (a->wr->outcome == OUT_NONE || a->wr->flow->type != IBV_QPT_RC) && !a->wr->delivered;
}

void conflicts_find(struct model *m)
{
	m->torn.n = m->blurred.n = m->flying.n = 0;
	for (size_t i = 0; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		if (flies(a))
			open_add(&m->flying, a->worker, a->lo, a->hi);
		if (a->write && a->maybe)
			torn_add(m, a, NULL, a->lo, a->hi, 0);
		for (size_t k = i + 1; k < m->n_accesses; k++)
			pair(m, a, &m->accesses[k]);
		for (size_t k = 0; k < m->n_fills; k++)
			against_fill(m, a, &m->fills[k]);
	}
}
