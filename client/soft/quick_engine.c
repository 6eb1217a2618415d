/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs, WRITEs and atomics of at most one slice, with one piece of memory at this end, that the map or the cma engine can
 * run: what engines.c does, by the same rules. WRs of one post that name the same keys share one hazard slot, whose barrier is
 * the only one, since the slot names the region at this end as well. What cannot be done so is left to engines.c.
 */
#include "client/soft/quick.h"

#include "client/soft/copy.h"
#include "client/soft/in_piece.h"
#include "client/soft/map.h"
#include "client/soft/mr_private.h"

static bool is_inline(const struct swqe *w)
{
	return w->flags & IBV_SEND_INLINE;
}

static bool is_quick(const struct soft_qp *qp, const struct swqe *w)
{
	if (w->state != SWQE_QUEUED || w->lane_only || w->internal || !w->length || w->length > QP_COPY_SLICE)
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

/* WRs that share a hazard slot. What was found in it stays true until it is left. */
struct together {
	struct soft_qp *qp;
	struct wire *wire;
	enum engine_kind engine;
	const struct key_slot *slot; /* of the region at this end; NULL: inline bytes alone */
	const struct soft_mr *mr;    /* that region, and what it was found to allow; NULL: not looked at yet */
	unsigned access;
	const struct map_window *window; /* of the one at the other end; NULL: not found yet */
	struct vsd_hazard *hazard;
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

/* The program's bytes of a WR; NULL: not all of them are its to use. */
IN_PIECE void *find_mine(struct together *all, const struct swqe *w)
{
	unsigned access = w->opcode == IBV_WR_RDMA_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE;

	if (is_inline(w))
		return w->data;
	if (!all->mr || access & ~all->access) {
		all->mr = mr_named(all->slot, all->qp->pd, w->sge->lkey, access);
		all->access = access;
		if (!all->mr)
			return NULL;
	}
	return mr_named_at(all->mr, w->sge->addr, w->sge->length); /* an atomic may name more than its eight bytes */
}

/* Inside a hazard that names both keys. False: nothing was done, or it is to be done again. */
IN_PIECE bool run_one(struct together *all, const struct swqe *w)
{
	void *mine = find_mine(all, w);

	if (!mine)
		return false;
	return all->engine == ENGINE_MAP ? run_mapped(all, w, mine) : run_cma(all->wire, w, mine);
}

/* Enters the hazard that @first and those like it are in; which is left by wire_hazard_leave(). False: there is none for them. */
static bool begin_together(struct together *all, const struct swqe *first)
{
	if (!is_inline(first))
		all->slot = key_slot_get(first->sge->lkey);
	if (!is_inline(first) && !all->slot)
		return false;
	all->engine = engine_for(all->qp, all->wire, first);
	if (all->engine == ENGINE_OTHER)
		return false;
	all->hazard = wire_hazard_enter(all->wire, first->rkey, all->slot);
	return all->hazard;
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
	struct together all = { .qp = qp, .wire = wire };
	unsigned n = 0;

	if (!begin_together(&all, first))
		return 0;
	while (run_one(&all, w)) {
		w->off = w->length;
		w->state = SWQE_DONE;
		*budget -= w->length;
		if (++n == QP_TURN_WRS || req->tx + n == req->head)
			break;
		w = swqe_at(req, req->tx + n);
		if (w->length > *budget || !is_alike(qp, first, w))
			break;
	}
	wire_hazard_leave(wire, all.hazard);
	return n;
}

bool quick_engine(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	uint32_t budget = QP_COPY_SLICE;

	while (req->tx != req->head && is_quick(qp, swqe_at(req, req->tx)) && is_in_turn(qp, wire)) {
		unsigned n;

		if (swqe_at(req, req->tx)->length > budget) {
			qp_again(qp);
			return true;
		}
		n = run_together(qp, wire, &budget);
		if (!n)
			return false;
		qp_count(qp, VSD_COUNT_INITIATOR_RUN, n);
		req->known = true;
		req->tx += n;
		if (req->started < req->tx)
			req->started = req->tx;
		requester_complete(qp);
		if (req->tx == req->head || qp->priv->failure != QP_FINE)
			return qp->priv->failure == QP_FINE;
	}
	return false;
}

/* --- a list, as the program has it ---------------------------------------------------------------------------------- */

/* @wr in the form of a WQE, whose piece is where the program has it. False: for the general way, which also says why. */
static bool take(const struct requester *req, const struct ibv_send_wr *wr, struct swqe *w)
{
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (wr->num_sge != 1 || !(atomic || wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ))
		return false;
	swqe_begin(w, wr->opcode);
	w->wr_id = wr->wr_id;
	w->raddr = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	w->length = wr->sg_list->length;
	w->n_sge = 1;
	w->flags = wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	w->sge = wr->sg_list;
	w->data = (void *)(uintptr_t)wr->sg_list->addr;
	if (is_inline(w))
		return wr->opcode == IBV_WR_RDMA_WRITE && w->length <= req->max_inline;
	if (!atomic)
		return req->max_sge;
	if (w->length < sizeof(uint64_t))
		return false;
	w->length = sizeof(uint64_t);
	w->raddr = wr->wr.atomic.remote_addr;
	w->rkey = wr->wr.atomic.rkey;
	w->compare_add = wr->wr.atomic.compare_add;
	w->swap = wr->wr.atomic.swap;
	return req->max_sge;
}

/* WRs of a list that were run. Each takes a place in the queue as any other does. */
struct list_run {
	struct soft_qp *qp;
	uint64_t places; /* that are left */
	uint32_t budget; /* bytes that are left */
	uint64_t sent, received;
	unsigned n, pending; /* that many are not behind una yet */
};

static void pass(struct list_run *run)
{
	struct requester *req = &run->qp->priv->req;

	req->head += run->pending;
	req->tx += run->pending;
	req->una += run->pending;
	run->pending = 0;
}

/* What completes it, if anything does; the queue's una moves on behind that. */
static __attribute__((noinline)) void complete(struct list_run *run, const struct ibv_send_wr *wr, uint32_t length)
{
	pass(run);
	run->qp->priv->req.una--;
	requester_done(run->qp, wr->wr_id, wr->opcode, length, IBV_WC_SUCCESS);
	run->qp->priv->req.una++;
}

/* True: it completes by itself, once the hazard is left. */
IN_PIECE bool ran(struct list_run *run, const struct ibv_send_wr *wr, uint32_t length)
{
	run->n++;
	run->pending++;
	run->places--;
	run->budget -= length;
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		run->sent += length;
	else if (wr->opcode == IBV_WR_RDMA_READ)
		run->received += length;
	return run->qp->init.sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED;
}

/* The usual WR behind one that was run: a WRITE or a READ between the same regions. Its length; 0: it is none, or not whole there. */
IN_PIECE uint32_t follow(const struct together *all, const struct swqe *first, const struct ibv_send_wr *wr, uint32_t budget)
{
	bool read = wr->opcode == IBV_WR_RDMA_READ;
	struct ibv_sge sge;
	uint8_t *mine, *theirs;

	if (!all->window || !all->mr || !(read || wr->opcode == IBV_WR_RDMA_WRITE) || wr->num_sge != 1 ||
	    wr->wr.rdma.rkey != first->rkey)
		return 0;
	copy_sges(&sge, wr->sg_list, 1);
	if (sge.lkey != first->sge->lkey || !sge.length || sge.length > budget || (read && !all->access))
		return 0;
	mine = mr_named_at(all->mr, sge.addr, sge.length);
	theirs = map_window_at(all->window, wr->wr.rdma.remote_addr, sge.length, read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
	if (!mine || !theirs)
		return 0;
	if (read)
		copy_short(mine, theirs, sge.length);
	else
		copy_short(theirs, mine, sge.length);
	return sge.length;
}

/* The same of any that may share the hazard. */
static __attribute__((noinline)) uint32_t run_like(struct together *all, const struct swqe *first, const struct ibv_send_wr *wr,
						   uint32_t budget)
{
	struct swqe w;

	if (!take(&all->qp->priv->req, wr, &w) || w.length > budget || !is_alike(all->qp, first, &w) || !run_one(all, &w))
		return 0;
	return w.length;
}

/* From the first one on, as many as share a hazard, up to one that completes; @list is what is left. */
static void run_list(struct list_run *run, struct wire *wire, const struct swqe *first, struct ibv_send_wr **list)
{
	struct together all = { .qp = run->qp, .wire = wire };
	const struct ibv_send_wr *wr = *list, *completes = NULL;
	uint32_t length, last = 0;

	if (!begin_together(&all, first))
		return;
	length = run_one(&all, first) ? first->length : 0;
	while (length) {
		last = length;
		*list = wr->next;
		if (ran(run, wr, length)) {
			completes = wr;
			break;
		}
		wr = wr->next;
		if (!wr || !run->places)
			break;
		length = follow(&all, first, wr, run->budget);
		if (!length)
			length = run_like(&all, first, wr, run->budget);
	}
	wire_hazard_leave(wire, all.hazard);
	if (completes)
		complete(run, completes, last);
}

/* What is inline is read by the post, whatever other WRs of it do: of several they are copied into the queue first. */
static bool is_for_list(const struct ibv_send_wr *list)
{
	if (!list->next)
		return true;
	for (; list; list = list->next)
		if (list->send_flags & IBV_SEND_INLINE)
			return false;
	return true;
}

static void settle(struct list_run *run)
{
	struct soft_qp *qp = run->qp;
	struct requester *req = &qp->priv->req;

	pass(run);
	req->known = true;
	if (req->started < req->tx)
		req->started = req->tx;
	qp_count(qp, VSD_COUNT_INITIATOR_RUN, run->n);
	if (run->sent)
		qp_count(qp, VSD_COUNT_BYTES_SENT, run->sent);
	if (run->received)
		qp_count(qp, VSD_COUNT_BYTES_RECEIVED, run->received);
}

static uint64_t places(const struct requester *req)
{
	uint64_t used = req->head - req->internals - atomic_load_explicit(&req->freed, memory_order_acquire);

	return used < req->max ? req->max - used : 0;
}

unsigned quick_list(struct soft_qp *qp, struct ibv_send_wr **list)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	struct list_run run = { .qp = qp, .budget = QP_COPY_SLICE };
	struct swqe first;
	unsigned before;

	if (!*list || !wire || !is_for_list(*list))
		return 0;
	do {
		before = run.n;
		run.places = places(req);
		if (req->tx != req->head || rt_owes() || !is_in_turn(qp, wire) || !run.places || !take(req, *list, &first) ||
		    !is_quick(qp, &first) || first.length > run.budget)
			break;
		run_list(&run, wire, &first, list);
		pass(&run);
	} while (*list && run.n != before);
	if (run.n)
		settle(&run);
	return run.n;
}
