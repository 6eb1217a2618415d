/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast. A datagram to a group is a WR of its own and a copy for each QP that may get it, which is as any datagram to
 * that QP from then on, but that it ends as the WR did, and comes only to who is in the group.
 */
#include "tests/random/model.h"

#include <errno.h>
#include <string.h>

enum tri multicast_reaches(struct model *m, const struct m_wr *wr)
{
	const struct m_qp *qp = &m->qps[wr->dst];
	int group = wr->parent->group - 1;

	if (qp->groups_at[group] > wr->seq)
		return MAYBE;
	return qp->groups >> group & 1 ? YES : NO;
}

static void copy_to(struct model *m, struct m_wr *wr, unsigned qp)
{
	struct m_wr *copy = wr_new(m, wr->flow);
	uint32_t id = copy->id;
	size_t index = copy->index;

	*copy = *wr;
	copy->id = id;
	copy->index = index;
	copy->dst = (int)qp;
	copy->group = 0;
	copy->parent = wr;
	copy->n_copies = 0;
	copy->signaled = copy->fence = false;
	wr->flow->copies++;
	wr->n_copies++;
}

void multicast_copy(struct model *m, struct m_wr *wr)
{
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		if (m->qps[i].live && m->qps[i].type == IBV_QPT_UD)
			copy_to(m, wr, i);
	}
}

/* A datagram that is on its way has no copy for who was not there when it was posted. */
static bool too_late(const struct model *m, uint32_t id, int64_t group)
{
	for (size_t i = 0; i < m->n_wrs; i++) {
		const struct m_wr *wr = m->wrs[i];
		bool copied = false;

		if (wr->group != group + 1 || !wr_active(m, wr))
			continue;
		for (unsigned k = 0; k < wr->n_copies; k++)
			copied |= wr->flow->at[wr->index + 1 + k]->dst == (int)id;
		if (!copied)
			return true;
	}
	return false;
}

bool issue_group(struct model *m, const struct op *op)
{
	struct m_qp *qp = &m->qps[op->id];
	int64_t group = op->a[GROUP_NUMBER];
	bool in, good;

	if (!qp->live || group < 0 || group >= GROUPS || !workers_sync(m) || too_late(m, op->id, group))
		return false;
	in = qp->groups >> group & 1;
	/* In it twice is in it once. */
	good = qp->type == IBV_QPT_UD && (op->a[GROUP_IN] || in);
	issue_command(m, op, CMD_GROUP, qp->worker);
	if (issue_call(m, qp->worker, "attaching", good ? 0 : EINVAL, good ? 0 : EINVAL) != 0)
		return true;
	if (in == (op->a[GROUP_IN] != 0))
		return true;
	qp->groups ^= 1u << group;
	qp->groups_at[group] = m->seq;
	return true;
}
