/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an initiator may do itself instead of asking the owner (datapath.md 2): `direct` between two QPs of this
 * process, `map` in shared regions that the daemon lets this process map, `cma` between processes of one domain. An
 * engine can only succeed: whatever a check or a copy finds, the WR then goes down the lane from its beginning and the
 * owner's verdict counts. Callers see to it that no earlier WR of the QP waits for the owner.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/map.h"
#include "client/soft/pieces.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"

enum engine_mode { MODE_AUTO, MODE_STAGE, MODE_CMA, MODE_DIRECT, MODE_MAP };

/* VERBSD_ENGINE forces one engine, for tests and for who suspects one. */
static enum engine_mode engine_mode(void)
{
	static const char *const names[] = { "auto", "stage", "cma", "direct", "map" };
	static _Atomic int known = -1;
	int mode = atomic_load_explicit(&known, memory_order_relaxed);

	if (mode >= 0)
		return mode;
	const char *wanted = getenv("VERBSD_ENGINE");

	mode = MODE_AUTO;
	for (int i = 0; wanted && i < 5; i++) {
		if (strcmp(wanted, names[i]) == 0)
			mode = i;
	}
	atomic_store_explicit(&known, mode, memory_order_relaxed);
	return mode;
}

bool engine_is_for(const struct swqe *w)
{
	return w->length && (w->opcode == IBV_WR_RDMA_WRITE || swqe_has_response(w));
}

/* The size of the next slice. The last one has the last eight bytes whole. */
static uint32_t slice(const struct swqe *w, uint32_t *budget)
{
	uint64_t left = w->length - w->off;
	uint32_t n = left < *budget + (uint64_t)COPY_TAIL ? left : *budget;

	*budget -= n < *budget ? n : *budget;
	return n;
}

static enum engine_result advance(struct soft_qp *qp, struct swqe *w, uint32_t n)
{
	w->off += n;
	if (w->off < w->length)
		return ENGINE_MORE;
	qp_count(qp, VSD_COUNT_INITIATOR_RUN, 1);
	return ENGINE_DONE;
}

/* --- in memory of this process's: direct, map -------------------------------------------------------------------------- */

static enum engine_result run_atomic(struct soft_qp *qp, struct swqe *w, void *ptr)
{
	bool swap = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t value;

	if (!swqe_is_aligned(w, ptr) || sge_check(qp, w->sge, w->n_sge, IBV_ACCESS_LOCAL_WRITE) < 0 ||
		(rt_in_progress_thread() && mr_probe(ptr, 8, true) < 0))
		return ENGINE_NO;
	value = atomic_apply(ptr, swap ? VSD_REQ_CMP_SWAP : VSD_REQ_FETCH_ADD, w->compare_add, w->swap);
	if (sge_scatter(qp, w->sge, w->n_sge, 0, &value, sizeof(value)) < 0) {
		requester_fail(qp, w, IBV_WC_LOC_PROT_ERR); /* deregistered just now; the word has changed */
		return ENGINE_FAILED;
	}
	return advance(qp, w, w->length);
}

/* The end of a message is stored by itself, however its source is cut into pieces. */
static int write_end(struct soft_qp *qp, struct swqe *w, uint8_t *ptr, uint32_t n)
{
	uint8_t end[COPY_TAIL];
	int err = sge_gather(qp, w->sge, w->n_sge, w->off + n - COPY_TAIL, end, COPY_TAIL);

	return err < 0 ? err : copy_to_program(ptr + n - COPY_TAIL, end, COPY_TAIL);
}

static int write_slice(struct soft_qp *qp, struct swqe *w, uint8_t *ptr, uint32_t n)
{
	uint32_t before = n;
	int err = 0;

	if (w->flags & IBV_SEND_INLINE)
		return copy_to_program(ptr, w->data + w->off, n);
	if (w->n_sge > 1 && n >= COPY_TAIL && w->off + n == w->length)
		before -= COPY_TAIL;
	if (before)
		err = sge_gather_across(qp, w->sge, w->n_sge, w->off, ptr, before);
	return err < 0 || before == n ? err : write_end(qp, w, ptr, n);
}

static enum engine_result run_copy(struct soft_qp *qp, struct swqe *w, uint8_t *ptr, uint32_t n)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	int err = 0;

	/* Of a message with a piece that is not this QP's nothing is copied; a copy in one piece looks for itself. */
	if (!w->off && !(w->flags & IBV_SEND_INLINE) && (w->n_sge > 1 || n < w->length))
		err = sge_check(qp, w->sge, w->n_sge, read ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (err == 0)
		err = read ? sge_scatter(qp, w->sge, w->n_sge, w->off, ptr, n) : write_slice(qp, w, ptr, n);
	return err < 0 ? ENGINE_NO : advance(qp, w, n);
}

/* --- direct ---------------------------------------------------------------------------------------------------------- */

static bool direct_usable(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	(void)qp;
	return wire->pair->segment == 0 && (w->opcode == IBV_WR_RDMA_WRITE || swqe_has_response(w));
}

static enum engine_result direct_in_peer(struct soft_qp *qp, struct soft_qp *peer, struct swqe *w,
	uint32_t *budget)
{
	struct mr_ref ref;
	void *ptr;

	if (!w->length)
		return advance(qp, w, 0);
	if (mr_ref_in(qp_td(qp), w->rkey, peer->pd, peer, w->raddr + w->off, w->length - w->off, swqe_access(w), true,
		    &ref, &ptr) < 0)
		return ENGINE_NO;
	enum engine_result result = ENGINE_NO;

	/* What need not be there is its owner's to reach. */
	if (ref.mr && (ref.mr->null || mr_is_paged(&ref)))
		;
	else if (swqe_is_atomic(w))
		result = run_atomic(qp, w, ptr);
	else
		result = run_copy(qp, w, ptr, slice(w, budget));
	mr_unref(&ref);
	return result;
}

/*
 * A QP of a thread domain finds its peer by the other end of the wire: that, and its QP, stay as long as the domain is ours
 * (loop_mark()).
 */
static struct soft_qp *peer_get(const struct soft_qp *qp, const struct wire *wire)
{
	const struct wire *far;

	if (!qp_td(qp))
		return rt_qp_get(wire->peer_qpn);
	far = wire->mine == wire->theirs ? wire : atomic_load(&wire->other);
	return far ? atomic_load(&far->qp) : NULL;
}

static void peer_put(const struct soft_qp *qp, struct soft_qp *peer)
{
	if (!qp_td(qp))
		rt_qp_put(peer);
}

/*
 * The peer counts who is inside. Count, then look at its state; it changes its state, then looks at the count: one of
 * the two sees the other (both are sequentially consistent).
 */
static enum engine_result direct_run(struct soft_qp *qp, struct wire *wire, struct swqe *w,
	uint32_t *budget)
{
	struct soft_qp *peer = peer_get(qp, wire);
	enum engine_result result = ENGINE_NO;

	if (!peer)
		return ENGINE_NO;
	atomic_fetch_add(&peer->priv->direct, 1);
	int state = atomic_load(&peer->state);

	if ((state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
		    state == IBV_QPS_SQE) &&
		atomic_load(&peer->priv->wire_id) == wire_id(wire) &&
		(atomic_load(&peer->priv->access) & swqe_access(w)))
		result = direct_in_peer(qp, peer, w, budget);
	atomic_fetch_sub(&peer->priv->direct, 1);
	peer_put(qp, peer);
	return result;
}

/* --- map --------------------------------------------------------------------------------------------------------------- */

static bool pair_lets(const struct pair *pair, Vsd__EngineRight right)
{
	return (__atomic_load_n(&pair->engines, __ATOMIC_RELAXED) & right) && pair->page &&
	       !atomic_load_explicit(&pair->dead, memory_order_relaxed);
}

static bool map_usable(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	(void)qp;
	return pair_lets(wire->pair, VSD__ENGINE_RIGHT__ENGINE_MAP) && engine_is_for(w) &&
	       map_hinted(wire->pair, w->rkey);
}

/*
 * A slice is below the size from which non-temporal stores pay, and memcpy() fences its own: by the release that
 * leaves the hazard everything is where others look.
 */
static enum engine_result map_inside(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget,
	enum map_result *found)
{
	uint64_t at = w->raddr + w->off, left = w->length - w->off, remote;
	uint32_t n = slice(w, budget);
	void *ptr;

	/* All that is left is checked with every slice: nothing of a message that does not fit is stored. */
	if (mr_peer_check(wire->pair->page, w->rkey, at, left, swqe_access(w), wire, &remote) < 0)
		return ENGINE_NO;
	*found = map_find(wire->pair, w->rkey, at, left, n, w->opcode != IBV_WR_RDMA_READ, &ptr);
	if (*found != MAP_FOUND)
		return *found == MAP_BAD ? ENGINE_NO : ENGINE_PASS;
	return swqe_is_atomic(w) ? run_atomic(qp, w, ptr) : run_copy(qp, w, ptr, n);
}

static enum engine_result map_run(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget)
{
	struct vsd_hazard *hazard = wire_hazard_enter(wire, w->rkey, NULL);
	enum map_result found = MAP_PASS;
	enum engine_result result;
	uint32_t before = *budget;

	if (!hazard)
		return ENGINE_NO;
	result = map_inside(qp, wire, w, budget, &found);
	wire_hazard_leave(wire, hazard);
	if (found == MAP_ABSENT)
		map_ask(wire->pair, w->rkey, wire->local_qpn);
	if (result == ENGINE_PASS)
		*budget = before;
	return result;
}

/* --- cma --------------------------------------------------------------------------------------------------------------- */

static bool cma_allowed(const struct pair *pair)
{
	return pair_lets(pair, VSD__ENGINE_RIGHT__ENGINE_CMA) && pair->pid > 0;
}

static bool cma_usable(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	(void)qp;
	return cma_allowed(wire->pair) && w->length &&
	       w->n_sge <= PIECES_MAX &&
	       (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_READ);
}

/*
 * Makes the last @tail bytes of @n pieces a piece of their own, for which there is room: the kernel copies piece by piece, which
 * others see in that order (x86). A piece more of the peer's memory would cost it another walk through the peer's pages. Where
 * the end is in several pieces it is gathered in @end, so that it is stored whole. The number of pieces, or -EFAULT.
 */
static int cut(struct iovec *iov, int n, uint8_t end[COPY_TAIL], size_t tail)
{
	struct iovec *last = &iov[n - 1];

	if (last->iov_len == tail)
		return n;
	if (last->iov_len > tail) {
		last->iov_len -= tail;
		iov[n] = (struct iovec){ (uint8_t *)last->iov_base + last->iov_len, tail };
		return n + 1;
	}
	for (size_t left = tail; left;) {
		last = &iov[n - 1];
		size_t part = last->iov_len < left ? last->iov_len : left;

		left -= part;
		last->iov_len -= part;
		if (copy_from_paged(end + left, (uint8_t *)last->iov_base + last->iov_len, part) < 0)
			return -EFAULT;
		n -= !last->iov_len;
	}
	iov[n] = (struct iovec){ end, tail };
	return n + 1;
}

/*
 * Led by the guard word, so that nothing is written into another process that has the pid by now. What is read is thrown away
 * then: whoever reads looks afterwards whether the peer is alive, which costs less (tests/models/README.md, proto-kill.c).
 */
static int pieces_write(const struct pair *pair, const struct pieces *p, uint64_t addr, uint32_t n, bool last)
{
	uint64_t guard = pair->page->guard_value;
	struct iovec remote[2] = { { (void *)(uintptr_t)pair->page->guard_addr, sizeof(guard) }, { (void *)(uintptr_t)addr, n } };
	struct iovec local[PIECES_MAX + 2] = { { &guard, sizeof(guard) } };
	uint8_t end[COPY_TAIL];
	int n_local = (int)p->n;
	ssize_t moved;

	memcpy(local + 1, p->iov, p->n * sizeof(local[0]));
	if (last)
		n_local = cut(local + 1, n_local, end, copy_tail(addr + n, n));
	if (n_local < 0)
		return n_local;
	moved = process_vm_writev(pair->pid, local, 1 + (unsigned)n_local, remote, 2, 0);
	if (moved < 0)
		return -errno;
	return moved == (ssize_t)(sizeof(guard) + n) ? 0 : -EFAULT;
}

/* 0, or why not: -EPERM and -ESRCH for good. */
static int cma_move(struct pair *pair, const struct swqe *w, struct pieces *p, uint64_t addr, uint32_t n)
{
	bool last = w->off + n == w->length;

	return w->opcode == IBV_WR_RDMA_READ ? pieces_read(pair, p, addr, n, last) : pieces_write(pair, p, addr, n, last);
}

void engine_cma_over(struct pair *pair, int err)
{
	if (err == -EPERM || err == -ESRCH || err == -ENOSYS)
		__atomic_and_fetch(&pair->engines, ~(uint32_t)VSD__ENGINE_RIGHT__ENGINE_CMA,
			__ATOMIC_RELAXED);
}

bool engine_cma(struct wire *wire, const struct swqe *w, void *mine, uint64_t remote)
{
	struct pieces p;
	int err;

	p.iov[0] = (struct iovec){ mine, w->length };
	p.n = 1;
	p.n_refs = 0;
	err = cma_move(wire->pair, w, &p, remote, w->length);
	engine_cma_over(wire->pair, err);
	return err == 0;
}

static int cma_slice(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t n)
{
	unsigned access = w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct pair *pair = wire->pair;
	struct pieces p;
	uint64_t addr;
	/* All that is left is checked with every slice: nothing of a message that does not fit is stored. */
	int err = mr_peer_check(pair->page, w->rkey, w->raddr + w->off, w->length - w->off, swqe_access(w), wire, &addr);

	if (err < 0)
		return err;
	p.n = p.n_refs = 0;
	if (w->flags & IBV_SEND_INLINE)
		p.iov[p.n++] = (struct iovec){ w->data + w->off, n };
	else
		err = pieces_find(&p, qp_td(qp), qp->pd, w->sge, w->n_sge, w->off, n, access);
	if (!err)
		err = cma_move(pair, w, &p, addr, n);
	pieces_release(&p);
	return err;
}

/*
 * As slice(). What has the whole turn is done by calls that are longer, unless another QP is in the run queue. (Domains have their
 * own, and hot wires are served between two calls.)
 */
static uint32_t cma_length(const struct swqe *w, uint32_t *budget)
{
	uint32_t whole = QP_CMA_SLICE, n;

	if (*budget < QP_COPY_SLICE || rt_in_progress_thread() || atomic_load_explicit(&rt.run_any, memory_order_relaxed))
		return slice(w, budget);
	n = slice(w, &whole);
	*budget -= n < *budget ? n : *budget;
	return n;
}

static enum engine_result cma_run(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget)
{
	struct vsd_hazard *hazard = wire_hazard_enter(wire, w->rkey, NULL);
	uint32_t n;
	int err;

	if (!hazard)
		return ENGINE_NO;
	n = cma_length(w, budget);
	err = cma_slice(qp, wire, w, n);
	wire_hazard_leave(wire, hazard);
	engine_cma_over(wire->pair, err);
	return err < 0 ? ENGINE_NO : advance(qp, w, n);
}

/* --- choice ------------------------------------------------------------------------------------------------------------ */

/* In the order of preference. */
static const struct engine {
	enum engine_mode mode;
	enum engine_kind kind;
	bool (*usable)(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w);
	enum engine_result (*run)(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget);
} engines[] = {
	{ MODE_DIRECT, ENGINE_OTHER, direct_usable, direct_run },
	{ MODE_MAP, ENGINE_MAP, map_usable, map_run },
	{ MODE_CMA, ENGINE_CMA, cma_usable, cma_run },
};
#define ENGINES_END (engines + sizeof(engines) / sizeof(engines[0]))

static bool mode_lets(enum engine_mode wanted)
{
	enum engine_mode mode = engine_mode();

	return mode == MODE_AUTO || mode == wanted;
}

/* Of a pair's engines the daemon says the same to both ends; which bits are left of them is each end's own affair. */
enum engine_pull engine_pull(const struct pair *pair, bool mine)
{
	if (!pair->segment && mode_lets(MODE_DIRECT))
		return PULL_COPY;
	if (!mode_lets(MODE_CMA))
		return PULL_NONE;
	if (mine ? cma_allowed(pair) : pair->priv->granted & VSD__ENGINE_RIGHT__ENGINE_CMA)
		return PULL_CMA;
	return PULL_NONE;
}

bool engine_pulls(void)
{
	return mode_lets(MODE_CMA) || mode_lets(MODE_DIRECT);
}

bool engine_is_forced(void)
{
	return engine_mode() != MODE_AUTO;
}

/* The first one from @engine on that may run the WR; ENGINES_END: none. */
static const struct engine *engine_from(const struct engine *engine, const struct soft_qp *qp, const struct wire *wire,
	const struct swqe *w)
{
	while (engine != ENGINES_END && !(mode_lets(engine->mode) && engine->usable(qp, wire, w)))
		engine++;
	return engine;
}

enum engine_kind engine_of(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	const struct engine *engine = engine_from(engines, qp, wire, w);

	if (engine == ENGINES_END || (engine->kind == ENGINE_MAP && !map_given(wire->pair, w->rkey)))
		return ENGINE_OTHER;
	return engine->kind;
}

static bool map_ready(const struct soft_qp *qp, const struct wire *wire, const struct swqe *w)
{
	return map_usable(qp, wire, w) && map_given(wire->pair, w->rkey);
}

/*
 * Whoever posts as deep as the queue is finds earlier WRs in the lane, always: those that came before the grant, or the
 * first of all, would keep all that come after it there.
 */
bool engine_awaits_turn(struct soft_qp *qp, struct wire *wire, const struct swqe *w)
{
	if (mode_lets(MODE_MAP) && map_ready(qp, wire, w))
		return true;
	if (qp->priv->req.acked)
		return false;
	return (mode_lets(MODE_DIRECT) && direct_usable(qp, wire, w)) || (mode_lets(MODE_CMA) && cma_usable(qp, wire, w));
}

/* The first message tells the owner that the connection is established: it takes the lane. */
static enum engine_result engine_first(struct soft_qp *qp, struct wire *wire, const struct swqe *w)
{
	if (mode_lets(MODE_MAP) && map_usable(qp, wire, w) && !map_given(wire->pair, w->rkey))
		map_ask(wire->pair, w->rkey, wire->local_qpn);
	return ENGINE_NO;
}

enum engine_result engine_run(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget)
{
	const struct engine *engine = engines;

	if (swqe_has_response(w) && !qp->attr.max_rd_atomic)
		return ENGINE_NO;
	if (!qp->priv->req.msn)
		return engine_first(qp, wire, w);
	while ((engine = engine_from(engine, qp, wire, w)) != ENGINES_END) {
		if (!*budget && w->length)
			return ENGINE_MORE;

		enum engine_result result = engine->run(qp, wire, w, budget);

		if (result != ENGINE_PASS)
			return result;
		engine++;
	}
	return ENGINE_NO;
}
