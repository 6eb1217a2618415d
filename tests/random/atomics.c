/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomics of several QPs on one word, all at once: there must be one order, each QP's own kept, in which every one
 * returned what the one before it left, and the last one left what is there now. ATOMIC WRITEs return nothing: the word
 * is then what the last one of some QP wrote, and never of two. What the two kinds make of each other is open.
 */
#include "tests/random/model.h"

#include <string.h>

enum { ORDER_MAX = 24 };

struct word {
	unsigned worker;
	int64_t off;
	uint64_t now;
	struct m_wr *wrs[ORDER_MAX];
	uint64_t returned[ORDER_MAX];
	bool used[ORDER_MAX];
	unsigned n;
	unsigned tries;
};

static bool same_place(struct model *m, const struct m_wr *a, const struct m_wr *b)
{
	return a->target == b->target && is_atomic(a) == is_atomic(b) && wr_worker(m, a) == wr_worker(m, b);
}

bool atomic_is_shared(struct model *m, const struct m_wr *wr)
{
	for (size_t i = 0; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		if (a->atomic && !a->old && a->wr->flow != wr->flow && same_place(m, a->wr, wr))
			return true;
	}
	return false;
}

void atomic_add(struct model *m, struct m_wr *wr)
{
	m->atomics = grown(m->atomics, m->n_atomics, &m->atomics_room, sizeof(*m->atomics));
	m->atomics[m->n_atomics++] = wr;
}

/* What the WR has put there may be gone: something else was written or filled. */
static bool overwritten(const struct model *m, const struct m_wr *wr, unsigned worker, uint32_t lo, uint32_t hi)
{
	for (size_t i = 0; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		if (a->write && a->wr != wr && a->worker == worker && a->lo < hi && lo < a->hi)
			return true;
	}
	for (size_t i = 0; i < m->n_fills; i++) {
		const struct fill_seen *f = &m->fills[i];

		if (f->worker == worker && f->range.lo < hi && lo < f->range.hi)
			return true;
	}
	return false;
}

/* False: what it returned cannot be read any more. */
static bool returned(struct model *m, const struct m_wr *wr, uint64_t *value)
{
	unsigned worker = flow_qp(m, wr->flow)->worker;
	uint8_t bytes[8] = { 0 };
	size_t at = 0;

	for (unsigned i = 0; i < wr->n_sge && at < 8; i++) {
		uint32_t len = wr->sge[i].len, off = (uint32_t)wr->sge[i].off;

		if (!len)
			continue;
		if (ranges_touch(&m->torn, worker, off, off + len) || overwritten(m, wr, worker, off, off + len) ||
			!worker_read(m, worker, off, len, bytes + at))
			return false;
		at += len;
	}
	memcpy(value, bytes, 8);
	return at == 8;
}

static bool first_of_its_flow(const struct word *word, unsigned i)
{
	for (unsigned k = 0; k < word->n; k++) {
		if (!word->used[k] && word->wrs[k]->flow == word->wrs[i]->flow &&
			word->wrs[k]->index < word->wrs[i]->index)
			return false;
	}
	return true;
}

static uint64_t done(const struct m_wr *wr, uint64_t value)
{
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return value + wr->compare;
	return value == wr->compare ? wr->swap : value;
}

static bool order_exists(struct word *word, unsigned depth, uint64_t value)
{
	if (depth == word->n)
		return value == word->now;
	if (++word->tries > 100000)
		return true; /* too many to try */
	for (unsigned i = 0; i < word->n; i++) {
		if (word->used[i] || word->returned[i] != value || !first_of_its_flow(word, i))
			continue;
		word->used[i] = true;
		if (order_exists(word, depth + 1, done(word->wrs[i], value)))
			return true;
		word->used[i] = false;
	}
	return false;
}

/* The word is what the last ATOMIC WRITE of some QP wrote. */
static bool last_exists(const struct word *word)
{
	for (unsigned i = 0; i < word->n; i++) {
		bool last = true;

		for (unsigned k = 0; k < word->n; k++)
			last &= word->wrs[k]->flow != word->wrs[i]->flow || word->wrs[k]->index <= word->wrs[i]->index;
		if (last && word->wrs[i]->swap == word->now)
			return true;
	}
	return false;
}

/* After the WR: then what the model knows of the word is the filling. MAYBE: a part of it was. */
static enum tri filled_since(const struct model *m, const struct m_wr *wr)
{
	enum tri filled = NO;

	for (size_t i = 0; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		for (size_t k = 0; a->wr == wr && a->remote && k < m->n_fills; k++) {
			const struct fill_seen *f = &m->fills[k];

			if (f->range.hi <= a->lo || a->hi <= f->range.lo || !access_before_fill(a, f))
				continue;
			filled = f->range.lo <= a->lo && a->hi <= f->range.hi ? YES : filled == NO ? MAYBE : filled;
		}
	}
	return filled;
}

static bool explain(struct model *m, const struct m_wr *first)
{
	struct word word = { .worker = wr_worker(m, first), .off = first->target };
	struct memory *memory = &m->worker[word.worker].memory;
	uint32_t off = (uint32_t)word.off;
	bool known = !ranges_touch(&m->torn, word.worker, off, off + 8) && !memchr(memory->unknown + off, 1, 8);
	uint64_t before;
	enum tri filled = NO;

	memcpy(&before, memory->bytes + off, 8);
	for (size_t i = 0; i < m->n_atomics; i++) {
		struct m_wr *wr = m->atomics[i];

		if (!same_place(m, wr, first))
			continue;
		if (filled_since(m, wr) > filled)
			filled = filled_since(m, wr);
		if (word.n == ORDER_MAX || (is_atomic(wr) ? !returned(m, wr, &word.returned[word.n]) : wr->dirty))
			known = false;
		else
			word.wrs[word.n++] = wr;
	}
	if (known && filled == YES)
		return true;
	known &= filled == NO;
	if (!worker_read(m, word.worker, off, 8, (uint8_t *)&word.now))
		return wrong(m, "died", "worker %u cannot be read", word.worker);
	if (known && !(is_atomic(first) ? order_exists(&word, 0, before) : last_exists(&word)))
		return wrong(m, "atomic", "no order of %u atomics on 0x%x of worker %u explains what they returned", word.n,
			off, word.worker);
	memset(memory->unknown + off, 1, 8); /* taken from there */
	return true;
}

bool atomics_explain(struct model *m)
{
	for (size_t i = 0; i < m->n_atomics; i++) {
		bool first = true;

		for (size_t k = 0; k < i; k++)
			first &= !same_place(m, m->atomics[k], m->atomics[i]);
		if (first && !explain(m, m->atomics[i]))
			return false;
	}
	return true;
}
