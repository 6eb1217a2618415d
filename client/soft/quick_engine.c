/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs, WRITEs and atomics of at most one slice, with one piece of memory at this end, that the map or the cma engine can
 * run: what engines.c does, by the same rules. WRs of one post that name the same keys share one hazard slot, whose barrier is
 * the only one, since the slot names the region at this end as well. What cannot be done so is left to engines.c.
 */
#include "client/soft/quick.h"

#include "client/soft/copy.h"
#include "client/soft/map.h"
#include "client/soft/mr_private.h"

static bool is_inline(const struct swqe *w)
{
	return w->flags & IBV_SEND_INLINE;
}

static bool is_quick(const struct soft_qp *qp, const struct swqe *w)
{
	if (w->state != SWQE_QUEUED || w->lane_only || w->internal || !w->length || w->length > QP_SLICE)
		return false;
	if (w->opcode == IBV_WR_RDMA_WRITE)
		return is_inline(w) || w->n_sge == 1;
	return swqe_has_response(w) && w->n_sge == 1 && qp->attr.max_rd_atomic;
}

/* No earlier WR waits for the owner, and the first message is not this one. */
static bool is_in_turn(const struct soft_qp *qp, const struct wire *wire)
{
	const struct requester *req = &qp->priv->req;

	return req->una == req->tx && req->acked == req->msn && req->msn && quick_is_smooth(qp, wire) &&
	       !rt_in_progress_thread();
}

static bool apply(const struct swqe *w, void *theirs, void *mine)
{
	uint8_t op = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? VSD_REQ_CMP_SWAP : VSD_REQ_FETCH_ADD;
	uint64_t value;

	if (!swqe_is_aligned(w, theirs))
		return false;
	value = atomic_apply(theirs, op, w->compare_add, w->swap);
	copy_ordered(mine, &value, sizeof(value));
	return true;
}

static bool is_viewed(const struct wire *wire, const struct swqe *w)
{
	return wire->view.entry && wire->view.key == w->rkey;
}

/* As engine_of(), for the key that was used last. */
static enum engine_kind engine_for(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	const struct pair *pair = wire->pair;

	if (is_viewed(wire, w) && !atomic_load_explicit(&pair->dead, memory_order_relaxed) &&
	    __atomic_load_n(&pair->engines, __ATOMIC_RELAXED) & VSD__ENGINE_RIGHT__ENGINE_MAP)
		return ENGINE_MAP;
	return engine_of(qp, wire, w);
}

/* WRs that share a hazard slot. */
struct together {
	struct soft_qp *qp;
	struct wire *wire;
	enum engine_kind engine;
	const struct key_slot *slot;	 /* of the region at this end */
	const struct map_window *window; /* of the one at the other end; NULL: not found yet */
};

/* Where the mapped bytes are; NULL: not for us. */
static void *find(struct together *all, const struct swqe *w)
{
	struct wire *wire = all->wire;
	unsigned access = swqe_access(w);
	void *theirs = all->window ? map_window_at(all->window, w->raddr, w->length, access) : NULL;
	uint64_t remote;

	if (theirs)
		return theirs;
	if (is_viewed(wire, w)) {
		theirs = map_again(wire, w->raddr, w->length, access);
		if (theirs) {
			all->window = &wire->view.window;
			return theirs;
		}
	}
	if (mr_peer_check(wire->pair->page, w->rkey, w->raddr, w->length, access, wire, &remote) < 0 ||
	    map_find(wire->pair, w->rkey, w->raddr, w->length, w->length, w->opcode != IBV_WR_RDMA_READ, &theirs) !=
		    MAP_FOUND)
		return NULL;
	map_remember(wire, w->rkey, access);
	return theirs;
}

static bool run_mapped(struct together *all, const struct swqe *w, void *mine)
{
	void *theirs = find(all, w);

	if (!theirs)
		return false;
	if (w->opcode == IBV_WR_RDMA_WRITE)
		copy_short(theirs, mine, w->length);
	else if (w->opcode == IBV_WR_RDMA_READ)
		copy_short(mine, theirs, w->length);
	else
		return apply(w, theirs, mine);
	return true;
}

static bool run_cma(struct wire *wire, const struct swqe *w, void *mine)
{
	uint64_t remote;

	return mr_peer_check(wire->pair->page, w->rkey, w->raddr, w->length, swqe_access(w), wire, &remote) == 0 &&
	       engine_cma(wire, w, mine, remote);
}

/* Inside a hazard that names both keys. False: nothing was done, or it is to be done again. */
static inline __attribute__((always_inline)) bool run(struct together *all, const struct swqe *w)
{
	void *mine = w->data;

	if (!is_inline(w))
		mine = mr_named(all->slot, all->qp->pd, w->sge->lkey, w->sge->addr, w->sge->length,
				w->opcode == IBV_WR_RDMA_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE);
	if (!mine)
		return false;
	return all->engine == ENGINE_MAP ? run_mapped(all, w, mine) : run_cma(all->wire, w, mine);
}

/* One like @first: the same engine, the same keys. */
static bool is_alike(const struct soft_qp *qp, const struct swqe *first, const struct swqe *w)
{
	return is_quick(qp, w) && w->rkey == first->rkey && (w->opcode == first->opcode || !swqe_is_atomic(w)) &&
	       (is_inline(w) || (!is_inline(first) && w->sge->lkey == first->sge->lkey));
}

/* From the next one on, as many as go on alike, as long as there is something left of @budget, bytes. */
static unsigned run_together(struct soft_qp *qp, struct wire *wire, uint32_t *budget)
{
	struct requester *req = &qp->priv->req;
	struct swqe *first = swqe_at(req, req->tx), *w = first;
	struct together all = {
		.qp = qp,
		.wire = wire,
		.engine = engine_for(qp, wire, first),
		.slot = is_inline(first) ? NULL : key_slot_get(first->sge->lkey),
	};
	struct vsd_hazard *hazard;
	unsigned n = 0;

	if (all.engine == ENGINE_OTHER || (!all.slot && !is_inline(first)))
		return 0;
	hazard = wire_hazard_enter(wire, first->rkey, all.slot);
	if (!hazard)
		return 0;
	while (run(&all, w)) {
		w->off = w->length;
		w->state = SWQE_DONE;
		*budget -= w->length;
		if (++n == QP_TURN_WRS || req->tx + n == req->head)
			break;
		w = swqe_at(req, req->tx + n);
		if (w->length > *budget || !is_alike(qp, first, w))
			break;
	}
	wire_hazard_leave(wire, hazard);
	return n;
}

bool quick_engine(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	uint32_t budget = QP_SLICE;

	while (req->tx != req->head && is_quick(qp, swqe_at(req, req->tx)) && swqe_at(req, req->tx)->length <= budget &&
	       is_in_turn(qp, wire)) {
		unsigned n = run_together(qp, wire, &budget);

		if (!n)
			return false;
		qp_count(qp, VSD_COUNT_INITIATOR_RUN, n);
		req->known = true;
		req->tx += n;
		if (req->started < req->tx)
			req->started = req->tx;
		requester_complete(qp);
		if (req->tx == req->head)
			return qp->priv->failure == QP_FINE;
	}
	return false;
}
