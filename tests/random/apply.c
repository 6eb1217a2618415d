/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes everything that a batch did to memory, in the model: WRs and fills in the order in which they were posted, which
 * every order that verbs promises agrees with, but where a fill came after what was posted behind it.
 */
#include "tests/random/model.h"

#include <stdlib.h>
#include <string.h>

/* Bytes on their way, and which of them are not known. */
struct payload {
	uint8_t *bytes, *unknown;
	size_t len;
};

static struct payload payload_new(size_t len)
{
	struct payload p = { .len = len };

	p.bytes = malloc(2 * len + 1);
	if (!p.bytes)
		abort();
	p.unknown = p.bytes + len;
	memset(p.bytes, 0, 2 * len);
	return p;
}

/* --- the model's memory --- */

static void read_range(struct model *m, unsigned worker, int64_t off, uint64_t len, struct payload *p, size_t at)
{
	struct memory *memory = &m->worker[worker].memory;

	if (off < 0 || off + (int64_t)len > SPACE) {
		memset(p->unknown + at, 1, len);
		return;
	}
	memcpy(p->bytes + at, memory->bytes + off, len);
	memcpy(p->unknown + at, memory->unknown + off, len);
	ranges_mark(&m->torn, worker, (uint32_t)off, (uint32_t)(off + (int64_t)len), p->unknown + at);
	ranges_mark(&m->blurred, worker, (uint32_t)off, (uint32_t)(off + (int64_t)len), p->unknown + at);
}

/* What was filled after this access stays as it is. */
static void write_piece(struct model *m, const struct m_access *access, const struct payload *p, size_t at,
	uint32_t lo, uint32_t hi, size_t fill)
{
	struct memory *memory = &m->worker[access->worker].memory;

	for (; fill < m->n_fills; fill++) {
		const struct fill_seen *f = &m->fills[fill];

		if (f->seq > access->wr->seq || f->range.hi <= lo || hi <= f->range.lo || !access_before_fill(access, f))
			continue;
		if (lo < f->range.lo)
			write_piece(m, access, p, at, lo, f->range.lo, fill + 1);
		if (f->range.hi < hi)
			write_piece(m, access, p, at + (f->range.hi - lo), f->range.hi, hi, fill + 1);
		return;
	}
	memcpy(memory->bytes + lo, p->bytes + at, hi - lo);
	memcpy(memory->unknown + lo, p->unknown + at, hi - lo);
}

static void write_range(struct model *m, struct m_access access, int64_t off, uint64_t len, const struct payload *p,
	size_t at)
{
	if (off < 0 || off + (int64_t)len > SPACE || !len)
		return;
	write_piece(m, &access, p, at, (uint32_t)off, (uint32_t)(off + (int64_t)len), 0);
}

/* --- WRs --- */

static void gather(struct model *m, struct m_wr *wr, struct payload *p)
{
	size_t at = 0;

	if (wr->payload) {
		memcpy(p->bytes, wr->payload, 2 * p->len);
		return;
	}
	for (unsigned i = 0; i < wr->n_sge; i++) {
		read_range(m, flow_qp(m, wr->flow)->worker, wr->sge[i].off, wr->sge[i].len, p, at);
		at += wr->sge[i].len;
	}
	if (wr->dirty)
		memset(p->unknown, 1, p->len);
}

static void scatter(struct model *m, struct m_access access, const struct m_sge *sge, unsigned n, uint64_t skip,
	const struct payload *p)
{
	size_t at = 0;

	for (unsigned i = 0; i < n && at < p->len; i++) {
		if (skip >= sge[i].len) {
			skip -= sge[i].len;
			continue;
		}
		uint64_t piece = sge[i].len - skip < p->len - at ? sge[i].len - skip : p->len - at;

		access.mr = sge[i].mr;
		write_range(m, access, sge[i].off + (int64_t)skip, piece, p, at);
		at += piece;
		skip = 0;
	}
}

static struct m_access access_of(struct model *m, const struct m_wr *wr, bool remote)
{
	return (struct m_access){
		.wr = wr,
		.seq = wr->seq,
		.worker = remote ? wr_worker(m, wr) : flow_qp(m, wr->flow)->worker,
		.remote = remote,
		.mr = -1,
		.life = remote ? wr->flow->back : wr->flow,
	};
}

/* By the key that the WR names. */
static struct m_access access_by_key(struct model *m, const struct m_wr *wr)
{
	struct m_access access = access_of(m, wr, true);
	const struct m_mr *mr = key_mr(m, access.worker, wr->rkey);

	if (mr)
		access.mr = (int)(mr - m->mrs);
	return access;
}

static void apply_write(struct model *m, struct m_wr *wr)
{
	struct payload p = payload_new(wr->len);

	gather(m, wr, &p);
	if (is_word(wr) && atomic_is_shared(m, wr)) {
		wr->dirty |= memchr(p.unknown, 1, 8) != NULL;
		memcpy(&wr->swap, p.bytes, 8);
		atomic_add(m, wr);
	}
	write_range(m, access_by_key(m, wr), wr->target, wr->len, &p, 0);
	free(p.bytes);
}

static void apply_read(struct model *m, struct m_wr *wr)
{
	struct payload p = payload_new(wr->len);

	read_range(m, wr_worker(m, wr), wr->target, wr->len, &p, 0);
	scatter(m, access_of(m, wr, false), wr->sge, wr->n_sge, 0, &p);
	free(p.bytes);
}

static void apply_atomic(struct model *m, struct m_wr *wr)
{
	struct payload p = payload_new(8);
	uint64_t value, next;

	if (atomic_is_shared(m, wr)) {
		atomic_add(m, wr);
		memset(p.unknown, 1, 8);
		scatter(m, access_of(m, wr, false), wr->sge, wr->n_sge, 0, &p);
		free(p.bytes);
		return;
	}
	read_range(m, wr_worker(m, wr), wr->target, 8, &p, 0);
	scatter(m, access_of(m, wr, false), wr->sge, wr->n_sge, 0, &p);
	memcpy(&value, p.bytes, 8);
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		next = value + wr->compare;
	else
		next = value == wr->compare ? wr->swap : value;
	memcpy(p.bytes, &next, 8);
	if (memchr(p.unknown, 1, 8))
		memset(p.unknown, 1, 8);
	write_range(m, access_by_key(m, wr), wr->target, 8, &p, 0);
	free(p.bytes);
}

static void apply_message(struct model *m, struct m_wr *wr)
{
	bool datagram = wr->flow->type == IBV_QPT_UD;
	struct m_access access = access_of(m, wr, !datagram);
	struct payload p = payload_new(wr->len);

	if (datagram) {
		access.worker = m->qps[wr->dst].worker;
		access.life = m->qps[wr->dst].out;
		access.remote = true;
	}
	if (wr->grh) {
		struct payload grh = payload_new(40);

		memset(grh.unknown, 1, 40);
		scatter(m, access, wr->recv->sge, wr->recv->n_sge, 0, &grh);
		free(grh.bytes);
	}
	gather(m, wr, &p);
	scatter(m, access, wr->recv->sge, wr->recv->n_sge, datagram ? 40 : 0, &p);
	free(p.bytes);
}

static void apply_wr(struct model *m, struct m_wr *wr)
{
	enum effect effect = wr_effect_now(m, wr);

	if (effect == EFFECT_MAYBE)
		wr->unsure = true;
	if (effect != EFFECT_DONE || wr->applied || is_local(wr))
		return;
	wr->applied = true;
	if (is_write(wr))
		apply_write(m, wr);
	else if (wr->opcode == IBV_WR_RDMA_READ)
		apply_read(m, wr);
	else if (is_atomic(wr))
		apply_atomic(m, wr);
	else if (wr->recv && wr->delivered)
		apply_message(m, wr);
	else
		wr->applied = false;
}

/*
 * What an inline WR carries is what was there when it was posted, and an unreliable one what was there when it was sent,
 * which may arrive much later.
 */
static void snapshot(struct model *m, struct m_wr *wr)
{
	bool sent = wr->flow->type != IBV_QPT_RC && wr->outcome == OUT_OK && !is_local(wr);

	if ((!wr->inlined && !sent) || wr->payload || !wr->len)
		return;
	struct payload p = payload_new(wr->len);

	gather(m, wr, &p);
	wr->payload = p.bytes;
}

/* --- fills --- */

/* What was written after the fill by a WR that was posted before it stays as it is. */
static void fill_piece(struct model *m, const struct fill_seen *f, uint32_t lo, uint32_t hi, size_t i)
{
	struct memory *memory = &m->worker[f->worker].memory;

	for (; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		if (!a->write || !a->wr || a->wr->seq > f->seq || a->hi <= lo || hi <= a->lo || !access_after_fill(a, f))
			continue;
		if (lo < a->lo)
			fill_piece(m, f, lo, a->lo, i + 1);
		if (a->hi < hi)
			fill_piece(m, f, a->hi, hi, i + 1);
		return;
	}
	pattern_fill(memory->bytes, f->seed, lo, hi);
	memset(memory->unknown + lo, 0, hi - lo);
}

void memory_apply(struct model *m)
{
	size_t fill = 0;

	accesses_collect(m);
	conflicts_find(m);
	m->n_atomics = 0;
	m->in_flight = false;
	for (size_t i = 0; i <= m->n_wrs; i++) {
		struct m_wr *wr = i < m->n_wrs ? m->wrs[i] : NULL;

		if (wr && !wr_active(m, wr))
			continue;
		for (; fill < m->n_fills && (!wr || m->fills[fill].seq < wr->seq); fill++)
			fill_piece(m, &m->fills[fill], m->fills[fill].range.lo, m->fills[fill].range.hi, 0);
		if (!wr)
			break;
		snapshot(m, wr);
		m->in_flight |= wr->outcome == OUT_NONE || wr->flow->type != IBV_QPT_RC;
		apply_wr(m, wr);
	}
	for (size_t i = 0; i < m->torn.n; i++)
		memset(m->worker[m->torn.at[i].worker].memory.unknown + m->torn.at[i].lo, 1,
			m->torn.at[i].hi - m->torn.at[i].lo);
}
