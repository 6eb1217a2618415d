/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "client/soft/mr_private.h"
#include "tests/unit/soft_kept.h"

static bool entered;
static void *progress_self, *holder;

static struct kept {
	struct qp_private priv;
	struct wire wire;
	struct pair pair;
	struct ibv_qp_attr attr;
	int state;
	uint32_t hazards;
} kept[2];
static struct soft_mr kept_mr;
static struct vsd_gate gate;
static struct vsd_key entry;

void kept_hold(void)
{
	entered = rt_enter();
	progress_self = atomic_load(&rt_progress_self);
	holder = atomic_load(&rt.holder);
	soft_lock(&a->sq_lock);
	soft_lock(&b->sq_lock);
	soft_lock(&b->rq_lock);
}

void kept_let_go(void)
{
	soft_unlock(&b->rq_lock);
	soft_unlock(&b->sq_lock);
	soft_unlock(&a->sq_lock);
	rt_leave(entered);
}

struct vsd_gate *kept_gate(void)
{
	return &rt_page()->gates[b->v.qp.qp_num % VSD_PAGE_GATES];
}

void kept_save(void)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct soft_qp *qp = i ? b : a;

		kept[i].priv = *qp->priv;
		kept[i].wire = *wire_of(qp);
		kept[i].pair = *wire_of(qp)->pair;
		kept[i].attr = qp->attr;
		kept[i].state = atomic_load(&qp->state);
		kept[i].hazards = wire_of(qp)->pair->priv->hazards;
	}
	kept_mr = *local;
	gate = *kept_gate();
	entry = *mapped_entry();
}

void kept_put_right(void)
{
	atomic_store(&rt.holder, holder);
	atomic_store(&rt.owes, false);
	atomic_store(&rt_progress_self, progress_self);
	for (unsigned i = 0; i < 2; i++) {
		struct soft_qp *qp = i ? b : a;

		*qp->priv = kept[i].priv;
		*wire_of(qp) = kept[i].wire;
		*wire_of(qp)->pair = kept[i].pair;
		qp->attr = kept[i].attr;
		atomic_store(&wire_of(qp)->pair->priv->hazards, kept[i].hazards);
		atomic_store(&qp->state, kept[i].state);
	}
	if (local->pd != kept_mr.pd)
		free(local->pd);
	*local = kept_mr;
	if (!key_is_used(local->key))
		ck_assert_int_eq(mr_open(local), 0);
	*kept_gate() = gate;
	*mapped_entry() = entry;
}
