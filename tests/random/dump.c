/* SPDX-License-Identifier: BSD-2-Clause */
/* What the model knows at a failure, for whoever has to understand it. */
#include "tests/random/model.h"

static void wr_dump(struct model *m, FILE *to, struct m_wr *wr)
{
	static const char *const effects[] = { "none", "maybe", "done" };
	static const char *const outcomes[] = { "waits", "ok", "failed", "flushed", "gone", "not posted" };
	struct verdict v = wr_verdict(m, wr);

	fprintf(to, "wr %u: qp %d to %d, opcode %u, %llu bytes%s%s%s, %s status %d (possible 0x%x%s), effect %s", wr->id,
		wr->flow->qp, wr->dst >= 0 ? wr->dst : wr->flow->peer, wr->opcode, (unsigned long long)wr->len,
		wr->signaled ? " signalled" : "", wr->inlined ? " inline" : "", wr->fence ? " fence" : "",
		outcomes[wr->outcome], wr->status, v.mask, v.blocked ? " or waits" : "", effects[wr_effect(m, wr)]);
	if (wr->rkey)
		fprintf(to, ", key 0x%x at 0x%llx", wr->rkey, (unsigned long long)wr->raddr);
	if (wr->recv)
		fprintf(to, ", receive %u", wr->recv->id);
	fprintf(to, "%s%s\n", wr->delivered ? ", delivered" : "", wr->lost ? ", lost" : "");
}

static void queue_dump(FILE *to, const char *what, unsigned id, const struct m_queue *queue)
{
	static const char *const states[] = { "posted", "taken", "failed", "flushed", "gone", "not posted" };

	for (size_t i = queue->head; i < queue->n; i++)
		fprintf(to, "receive %u of %s %u: %s\n", queue->at[i]->id, what, id, states[queue->at[i]->state]);
}

static void access_dump(FILE *to, const struct m_access *a)
{
	fprintf(to, "worker %u %x..%x %s by wr %d %s%s%s\n", a->worker, a->lo, a->hi, a->write ? "written" : "read",
		a->wr ? (int)a->wr->id : -1, a->remote ? "remote" : "local", a->maybe ? " maybe" : "", a->old ? " old" : "");
}

void model_dump_wrs(struct model *m, FILE *to)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		if (wr_active(m, m->wrs[i]))
			wr_dump(m, to, m->wrs[i]);
	}
}

void model_dump(struct model *m, FILE *to)
{
	model_dump_wrs(m, to);
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		const struct m_qp *qp = &m->qps[i];

		if (!qp->live)
			continue;
		fprintf(to, "qp %u (0x%x) of worker %u: state %d%s\n", i, qp->number, qp->worker, qp->state,
			qp->failing ? ", failed just now" : "");
		queue_dump(to, "qp", i, &qp->rq);
	}
	for (unsigned i = 0; i < m->tops[OP_MR]; i++)
		fprintf(to, "mr %u of worker %u: key 0x%x%s\n", i, m->mrs[i].worker, m->mrs[i].key, m->mrs[i].now.live ? "" : " gone");
	for (unsigned i = 0; i < m->tops[OP_MW]; i++)
		fprintf(to, "mw %u of worker %u: key 0x%x%s%s\n", i, m->mws[i].worker, m->mws[i].rkey,
			m->mws[i].live ? "" : " gone", m->mws[i].bound ? " bound" : "");
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++)
		queue_dump(to, "srq", i, &m->srqs[i].queue);
	for (size_t i = 0; i < m->n_accesses; i++)
		access_dump(to, &m->accesses[i]);
	for (size_t i = 0; i < m->torn.n; i++)
		fprintf(to, "open: worker %u %x..%x\n", m->torn.at[i].worker, m->torn.at[i].lo, m->torn.at[i].hi);
	for (size_t i = 0; i < m->blurred.n; i++)
		fprintf(to, "open to readers: worker %u %x..%x\n", m->blurred.at[i].worker, m->blurred.at[i].lo,
			m->blurred.at[i].hi);
}

/* Follows one place in memory through a program. */
void model_watch(struct model *m, FILE *to)
{
	const struct memory *memory = &m->worker[m->watch_worker].memory;
	uint32_t off = m->watch_off;
	uint8_t is = 0;

	if (!off)
		return;
	for (size_t i = 0; i < m->n_accesses; i++) {
		const struct m_access *a = &m->accesses[i];

		if (a->worker == m->watch_worker && a->lo <= off && off < a->hi)
			access_dump(to, a);
	}
	for (size_t i = 0; i < m->n_fills; i++) {
		if (m->fills[i].worker == m->watch_worker && m->fills[i].range.lo <= off && off < m->fills[i].range.hi)
			fprintf(to, "filled with %llu\n", (unsigned long long)m->fills[i].seed);
	}
	worker_read(m, m->watch_worker, off, 1, &is);
	fprintf(to, "batch %u: worker %u at 0x%x is 0x%02x, and is to be 0x%02x%s\n", m->batch, m->watch_worker, off, is,
		memory->bytes[off], memory->unknown[off] ? " or anything" : "");
}
