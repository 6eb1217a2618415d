/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long SENDs in one copy (datapath.md 4): the sender puts a descriptor into the lane that names its key, and the receiver,
 * once it has a receive with room, fetches the bytes as the cma engine does. What it touches there it names in a hazard slot,
 * and looks at the sender's entry and gate before and after each slice: a sender that takes its memory back, or whose QP fails,
 * waits for one slice. What cannot be fetched, for whatever reason, is asked for again by the lane, from its beginning, and the
 * sender's own tables say then what becomes of it. Both ends are honest about nothing: a descriptor costs its sender's memory,
 * as far as that lends it, and an answer costs a message its second copy.
 */
#include <errno.h>

#include "client/soft/copy.h"
#include "client/soft/page.h"
#include "client/soft/pieces.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"

#define PULL_MAX  (4u << 20) /* longer ones take the lane, as those below PULL_MIN do */

uint32_t pull_can(void)
{
	return engine_pulls() ? VSD_CAN_PULL : 0;
}

bool pull_is_forced(void)
{
	return engine_is_forced() && engine_pulls();
}

/* --- the sender ------------------------------------------------------------------------------------------------------- */

static bool is_one_piece(const struct swqe *w)
{
	return (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM) && w->n_sge == 1 && !w->internal &&
	       !(w->flags & IBV_SEND_INLINE);
}

static bool is_possible(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	const struct pair *pair = wire->pair;

	return is_one_piece(w) && !w->lane_only && qp->priv->plain && !qp->priv->req.no_pull &&
	       !atomic_load_explicit(&pair->no_pull, memory_order_relaxed) && pair->page->can & VSD_CAN_PULL;
}

/* Of what no cache holds two processors stage more than one pulls, as long as they have nothing else to do. */
void pull_choose(struct soft_qp *qp, const struct wire *wire, struct swqe *w)
{
	struct way_run *run = &qp->priv->req.run;

	if (w->timed || w->length < PULL_MIN || w->length > PULL_MAX || pull_is_forced() ||
	    engine_pull(wire->pair, false) != PULL_CMA || !is_possible(qp, wire, w))
		return;
	w->timed = true;
	if (!run->waiting++)
		run->since = rt_now();
}

/* Two QPs of one process have one processor between them, often as not. */
static bool is_worth_it(const struct wire *wire, const struct swqe *w, enum engine_pull how)
{
	if (how == PULL_NONE || pull_is_forced())
		return how != PULL_NONE;
	if (w->timed)
		return ways_next(&wire->pair->priv->ways, w->length) == WAY_FETCH;
	return how == PULL_COPY && w->length >= PULL_MIN;
}

bool pull_is_for(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	return is_possible(qp, wire, w) && is_worth_it(wire, w, engine_pull(wire->pair, false)) &&
	       page_key_lend(w->sge->lkey, qp->v.qp.qp_num);
}

/* --- the receiver ------------------------------------------------------------------------------------------------------ */

static void refuse(struct soft_qp *qp, enum vsd_stage stage)
{
	struct responder *resp = &qp->priv->resp;

	resp->open = resp->pulling = false;
	resp->stage = stage;
	resp->stage_owed = true;
	/* The receive stays taken, if there is one: it is for the same message. Nobody has to hear that there is one. */
	resp->rnr = resp->hinted = true;
}

bool pull_begin(struct soft_qp *qp, struct wire *wire)
{
	if (engine_pull(wire->pair, true) == PULL_NONE)
		refuse(qp, VSD_STAGE_PAIR);
	else if (qp->srq && qp->srq->tags)
		refuse(qp, VSD_STAGE_WIRE);
	else
		return true;
	return false;
}

/* Both ends are of this process. */
static int copy_here(const struct pieces *p, uint64_t addr)
{
	int err = 0;

	for (unsigned i = 0; i < p->n && !err; i++) {
		const struct iovec *to = &p->iov[i];
		const void *from = (const void *)(uintptr_t)addr;

		err = mr_is_paged(&p->refs[i]) ? copy_to_paged(to->iov_base, from, to->iov_len) :
						 copy_to_program(to->iov_base, from, to->iov_len);
		addr += to->iov_len;
	}
	return err;
}

/* Inside a hazard that names the key and the QP that sends. */
static int fetch(struct soft_qp *qp, const struct wire *wire, uint32_t n)
{
	const struct responder *resp = &qp->priv->resp;
	const struct vsd_req *head = &resp->head;
	uint64_t at = head->rw.raddr + resp->got, left = head->total - resp->got, addr, again;
	struct pieces p;
	int err = mr_peer_check(wire->pair->page, head->rw.rkey, at, left, 0, wire, &addr);

	if (err < 0)
		return err;
	p.n = p.n_refs = 0;
	err = pieces_find(&p, qp_td(qp), qp->srq ? qp->srq->pd : qp->pd, resp->recv.sge, resp->recv.n_sge, resp->got, n,
			  IBV_ACCESS_LOCAL_WRITE);
	if (!err)
		err = engine_pull(wire->pair, true) == PULL_COPY ? copy_here(&p, addr) :
								   pieces_read(wire->pair, &p, addr, n, n == left);
	pieces_release(&p);
	/* What was closed meanwhile belongs to a WR that is flushed, or to nobody. */
	return err ? err : mr_peer_check(wire->pair->page, head->rw.rkey, at, left, 0, wire, &again);
}

static enum vsd_stage stage_for(int err)
{
	if (err == -EPERM || err == -ESRCH || err == -ENOSYS)
		return VSD_STAGE_PAIR;
	return err == -EFAULT || err == -E2BIG ? VSD_STAGE_WIRE : VSD_STAGE_MESSAGE;
}

/*
 * One message may take all bytes of a turn; but of several their sender waits for the acknowledgements, which are due before a
 * whole queue of it is done.
 */
bool pull_may_begin(const struct soft_qp *qp)
{
	return qp->priv->resp.pull_left > QP_COPY_SLICE - QP_SLICE;
}

int pull_run(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;

	do {
		uint32_t left = resp->head.total - resp->got, n = left;
		struct vsd_hazard *hazard = NULL;

		if (left > resp->pull_left + (uint64_t)COPY_TAIL)
			n = resp->pull_left;
		if (resp->pull_left)
			hazard = wire_hazard_enter(wire, resp->head.rw.rkey, NULL);
		if (!hazard) {
			qp_again(qp);
			return 0;
		}
		int err = fetch(qp, wire, n);

		wire_hazard_leave(wire, hazard);
		if (err < 0) {
			engine_cma_over(wire->pair, err);
			refuse(qp, stage_for(err));
			return 1;
		}
		resp->got += n;
		resp->pull_left -= n < resp->pull_left ? n : resp->pull_left;
	} while (resp->got < resp->head.total);
	resp->pulling = false;
	qp_count(qp, VSD_COUNT_PULLED, 1);
	responder_finish(qp);
	resp->dirty = true;
	return 1;
}
