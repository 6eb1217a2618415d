/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Progress: one round serves the hot wires, what the ready bits name, the run queue and due timers. One thread at a
 * time; a second one leaves at once, since the first looks at the same things.
 */
#include <sched.h>

#include "client/soft/lane.h"
#include "client/soft/order.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define ROUND_WIRES 64u	    /* wires taken from ready bits in one round */
#define ROUND_RUNS 16u	    /* QPs of the run queue, each of which may copy QP_COPY_SLICE; one alone QP_CMA_SLICE */
#define ROUND_PAIRS 32u
#define RECV_TRIES 16u
#define TICK_ROUNDS 2u	    /* of polls between two ticks: they are at it */

/* --- loopback -------------------------------------------------------------------------------------------------------- */

/* loop_lock held. */
static void loop_push(struct wire *wire)
{
	atomic_store(&wire->hot, true);
	wire->ready_next = rt.loop_ready;
	rt.loop_ready = wire;
	atomic_store(&rt.loop_any, true);
}

/* The other end is not polled directly: it is told. loop_lock is held, unless the domain of that end stands for it. */
static void loop_tell(struct wire *far)
{
	if (atomic_load(&far->td))
		rt_run_later(atomic_load(&far->qp));
	else
		loop_push(far);
}

/*
 * The other end stays what it is while loop_lock is held, or while this end's domain is: who unlinks it has both. What
 * was published stands before the look (wire_notify).
 */
void loop_mark(struct wire *wire)
{
	bool mine = atomic_load_explicit(&wire->td, memory_order_relaxed), locked = !mine;

	if (locked)
		pthread_mutex_lock(&rt.loop_lock);

	struct wire *far = atomic_load(&wire->other);

	if (far && !atomic_load(&far->hot)) {
		if (!locked && !atomic_load(&far->td)) {
			pthread_mutex_lock(&rt.loop_lock);
			locked = true;
		}
		if (!atomic_load(&far->hot))
			loop_tell(far);
	}
	if (locked)
		pthread_mutex_unlock(&rt.loop_lock);
	sleep_wake_if_asleep();
}

void loop_heat(struct wire *wire)
{
	pthread_mutex_lock(&rt.loop_lock);
	if (!atomic_load(&wire->hot))
		loop_push(wire);
	pthread_mutex_unlock(&rt.loop_lock);
}

/* Leaves the hot set. */
void loop_retire(struct wire *wire)
{
	pthread_mutex_lock(&rt.loop_lock);
	atomic_store(&wire->hot, false);
	atomic_thread_fence(memory_order_seq_cst);
	if (wire_pending(wire))
		loop_push(wire);
	pthread_mutex_unlock(&rt.loop_lock);
}

void progress_adopt(struct wire *wire)
{
	struct soft_td *td = atomic_load(&wire->td);

	if (td) {
		if (wire->pair->segment)
			ready_set(wire);
		td_wire_heat(td, wire);
		return;
	}
	if (wire->pair->segment) {
		ready_set(wire);
		hot_add(&rt.hot, wire);
		return;
	}
	loop_heat(wire);
}

static void list_drop(struct wire **list, struct wire *wire)
{
	for (; *list; list = &(*list)->ready_next)
		if (*list == wire) {
			*list = wire->ready_next;
			return;
		}
}

void progress_forget_wire(struct wire *wire)
{
	order_forget(wire);
	hot_remove(&rt.hot, wire);
	if (wire->pair->segment) {
		ready_clear(wire);
	} else {
		pthread_mutex_lock(&rt.loop_lock);
		list_drop(&rt.loop_ready, wire);
		pthread_mutex_unlock(&rt.loop_lock);
	}
	watch_forget(wire);
}

/* --- serving ----------------------------------------------------------------------------------------------------------- */

bool wire_serve(struct wire *wire)
{
	uint32_t recvs = atomic_load_explicit(&wire->theirs->recvs, memory_order_relaxed);
	uint32_t seen = atomic_load_explicit(&wire->seen_recvs, memory_order_relaxed);
	bool did;

	if (atomic_load_explicit(&wire->released, memory_order_relaxed))
		return false;
	wire_look(wire);
	if (wire->kind == VSD__WIRE_KIND__WIRE_DGRAM) {
		/* Nobody waits for acknowledgements of datagrams. */
		atomic_store_explicit(&wire->seen_acked,
			atomic_load_explicit(&wire->theirs->acked, memory_order_relaxed), memory_order_relaxed);
		did = datagram_service(wire);
	} else {
		struct soft_qp *qp = atomic_load_explicit(&wire->qp, memory_order_relaxed);

		did = qp && qp_service(qp, wire);
	}
	rt_owes_nothing();
	/* A hint: seen when something came of it, or nothing did for some turns (its QP may have been busy). */
	if (recvs != seen && (did || ++wire->tries > RECV_TRIES)) {
		atomic_store_explicit(&wire->seen_recvs, recvs, memory_order_relaxed);
		wire->tries = 0;
	}
	return did;
}

static bool serve_new(struct wire *wire)
{
	if (atomic_load_explicit(&wire->td, memory_order_relaxed))
		return false; /* its domain's, since it was put on the way */
	hot_add(&rt.hot, wire);
	return wire_serve(wire);
}

static bool take_loop(void)
{
	bool did = false;

	for (unsigned n = 0; atomic_load_explicit(&rt.loop_any, memory_order_relaxed); n++) {
		if (n == ROUND_WIRES) {
			rt.leftover = true;
			break;
		}
		pthread_mutex_lock(&rt.loop_lock);

		struct wire *wire = rt.loop_ready;

		if (wire)
			rt.loop_ready = wire->ready_next;
		if (!rt.loop_ready)
			atomic_store(&rt.loop_any, false);
		pthread_mutex_unlock(&rt.loop_lock);
		if (wire)
			did |= serve_new(wire);
	}
	return did;
}

/* The wires of one word of ready bits that are not hot. False: @budget is used up. */
static bool take_word(struct pair *pair, unsigned i, unsigned *budget, bool *did)
{
	_Atomic uint64_t *word = &pair->mem->sides[pair->side].ready[i];
	uint64_t bits = atomic_load_explicit(word, memory_order_acquire);

	for (; bits; bits &= bits - 1) {
		uint32_t index = i * 64 + (unsigned)__builtin_ctzll(bits);
		struct wire *wire = index < pair->priv->n_wires ? pair->priv->wires[index] : NULL;

		if (!wire) {
			/* Nobody's. A wire that is attached later looks for itself. A peer may set such bits for ever. */
			atomic_fetch_and(word, ~(1ull << (index % 64)));
			if (*budget == 0)
				return false;
			--*budget;
			continue;
		}
		if (atomic_load_explicit(&wire->hot, memory_order_relaxed) ||
		    atomic_load_explicit(&wire->td, memory_order_relaxed) || atomic_load(&wire->released))
			continue;
		if (*budget == 0)
			return false;
		--*budget;
		*did |= serve_new(wire);
	}
	return true;
}

static bool take_pair(struct pair *pair, bool sweep, unsigned *budget)
{
	struct vsd_side *side = &pair->mem->sides[pair->side];
	uint64_t summary = atomic_load_explicit(&side->summary, memory_order_relaxed);
	bool did = false;

	if (!summary && !sweep)
		return false;
	if (summary)
		summary = atomic_exchange(&side->summary, 0);
	if (sweep)
		summary = UINT64_MAX;
	for (; summary; summary &= summary - 1)
		if (!take_word(pair, (unsigned)__builtin_ctzll(summary), budget, &did)) {
			atomic_fetch_or(&side->summary, summary);
			rt.leftover = true;
			break;
		}
	return did;
}

/*
 * QPs wait for chunks. Wires that are not hot may hold some that their peer has taken without a notice: it did not know
 * that anybody waits.
 */
static bool take_waiting(struct pair *pair)
{
	bool did = false;

	if (!pair->priv || !atomic_load_explicit(&pair->priv->waiting, memory_order_relaxed))
		return false;
	for (uint32_t i = 0; i < pair->priv->n_wires; i++) {
		struct wire *wire = pair->priv->wires[i];
		struct soft_td *td = wire ? atomic_load_explicit(&wire->td, memory_order_relaxed) : NULL;

		if (wire && wire_pending(wire) && (!td || td_park(td)))
			did |= wire_serve(wire);
	}
	return pool_wake(pair) || did;
}

static bool take_all_waiting(void)
{
	bool did = take_waiting(&rt.loop[0]);

	did |= take_waiting(&rt.loop[1]);
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		did |= take_waiting(pair);
	return did;
}

static bool take_ready(bool sweep)
{
	unsigned budget = ROUND_WIRES, looked = 0;
	static struct pair *from; /* under the progress lock; a stale one is found by walking the list */
	struct pair *pair = rt.pairs;
	bool did = false;

	if (!pair)
		return false;
	if (!sweep && pair->priv->next) {
		while (pair && pair != from)
			pair = pair->priv->next;
		if (!pair)
			pair = rt.pairs;
	}
	for (struct pair *start = pair; looked < ROUND_PAIRS || sweep; looked++) {
		did |= take_pair(pair, sweep, &budget);
		pair = pair->priv->next ? pair->priv->next : rt.pairs;
		if (pair == start)
			break;
	}
	from = pair;
	return did;
}

static struct soft_qp *run_last(void)
{
	struct soft_qp *last = NULL;

	pthread_mutex_lock(&rt.run_lock);
	if (rt.run_head)
		last = soft_container(rt.run_tail, struct soft_qp, run_next);
	pthread_mutex_unlock(&rt.run_lock);
	return last;
}

/* One turn for each QP that is queued now: who queues itself again has its next turn in the next round. */
static bool run_queue(void)
{
	struct soft_qp *last, *qp = NULL;
	bool did = false;

	if (!atomic_load_explicit(&rt.run_any, memory_order_relaxed))
		return false;
	last = run_last();
	for (unsigned n = 0; last && qp != last; n++) {
		if (n == ROUND_RUNS) {
			rt.leftover = true;
			break;
		}
		pthread_mutex_lock(&rt.run_lock);
		qp = rt.run_head;
		if (qp) {
			rt.run_head = qp->run_next;
			if (!rt.run_head) {
				rt.run_tail = &rt.run_head;
				atomic_store(&rt.run_any, false);
			}
			atomic_store(&qp->run_queued, false);
		}
		pthread_mutex_unlock(&rt.run_lock);
		if (!qp)
			break;
		did |= qp_run(qp); /* who has its locks may wait for this CPU: nothing was done */
	}
	return did;
}

static void run_push(struct soft_qp *qp)
{
	pthread_mutex_lock(&rt.run_lock);
	if (!atomic_exchange(&qp->run_queued, true)) {
		qp->run_next = NULL;
		*rt.run_tail = qp;
		rt.run_tail = &qp->run_next;
		atomic_store(&rt.run_any, true);
	}
	pthread_mutex_unlock(&rt.run_lock);
}

void rt_run_later(struct soft_qp *qp)
{
	struct soft_td *td = qp_td(qp);

	if (atomic_load_explicit(&qp->run_queued, memory_order_relaxed))
		return;
	if (td)
		td_mail(td, qp);
	else
		run_push(qp);
	if (!rt_inside())
		sleep_wake_if_asleep();
}

void qp_again(struct soft_qp *qp)
{
	struct soft_td *td = qp_td(qp);

	if (td)
		td_again(td, qp);
	else
		rt_run_later(qp);
}

static void run_remove(struct soft_qp *qp)
{
	pthread_mutex_lock(&rt.run_lock);
	for (struct soft_qp **at = &rt.run_head; *at; at = &(*at)->run_next)
		if (*at == qp) {
			*at = qp->run_next;
			if (rt.run_tail == &qp->run_next)
				rt.run_tail = at;
			break;
		}
	if (!rt.run_head)
		atomic_store(&rt.run_any, false);
	atomic_store(&qp->run_queued, false);
	pthread_mutex_unlock(&rt.run_lock);
}

void rt_forget_qp(struct soft_qp *qp)
{
	bool entered = rt_enter();
	struct soft_td *td = qp_td(qp);

	wire_collect(); /* the other end of a loopback wire does not find it any more */
	run_remove(qp);
	if (td) {
		td_park_wait(td);
		td_forget_qp(td, qp);
	}
	rt_leave(entered);
	while (!rt_inside() && atomic_load(&qp->refs))
		sched_yield();
}

/* --- rounds -------------------------------------------------------------------------------------------------------------- */

static bool round_clock(void)
{
	if (!timer_any() && !atomic_load_explicit(&rt.watch_any, memory_order_relaxed))
		return false;

	uint64_t now = rt_now();

	if (atomic_load_explicit(&rt.watch_any, memory_order_relaxed))
		watch_all(now);
	return timer_fire_due(now);
}

bool progress_round(enum td_look look, bool clock)
{
	bool did, sweep = look == TD_SWEEP;

	rt.leftover = false;
	did = hot_serve(&rt.hot);
	did |= take_loop();
	did |= take_ready(sweep);
	if (sweep)
		did |= take_all_waiting();
	did |= run_queue();
	if (clock)
		did |= round_clock();
	if (rt.tds)
		did |= td_serve(look, clock);
	wire_collect();
	return did;
}

/* Nobody queued anything, nor did the last round leave something. */
static bool is_quiet(void)
{
	return !rt.leftover && !atomic_load_explicit(&rt.loop_any, memory_order_relaxed) &&
	       !atomic_load_explicit(&rt.run_any, memory_order_relaxed);
}

bool progress_poll(void)
{
	rt.rounds += 1;
	progress_asked();
	/* Most polls look at the wires that were used last and at nothing else. */
	if (rt.rounds % FULL_ROUNDS && is_quiet())
		return hot_quick(&rt.hot);
	return progress_round(TD_POLL, rt.rounds % CLOCK_ROUNDS == 0);
}

void progress_end(bool did)
{
	bool left = rt.leftover || atomic_load_explicit(&rt.run_any, memory_order_relaxed);
	bool yield;

	rt.idle_rounds = did ? 0 : rt.idle_rounds + 1;
	yield = rt.idle_rounds == YIELD_ROUNDS;
	if (yield)
		rt.idle_rounds = 0;
	rt_leave(true);
	/* Nothing came for long: the one that this thread waits for may be waiting for this CPU. */
	if (yield)
		sched_yield();
	/* This thread may not come back. */
	if (left)
		sleep_wake_if_asleep();
}

bool rt_progress(void)
{
	bool did;

	if (!progress_begin()) {
		progress_asked();
		return false;
	}
	did = progress_poll();
	progress_end(did);
	return did;
}

bool rt_work(void)
{
	bool did;

	if (!progress_begin())
		return false;
	rt.rounds += 1;
	did = progress_round(TD_WORK, rt.rounds % CLOCK_ROUNDS == 0);
	progress_end(did);
	return did;
}

bool progress_sweep(void)
{
	bool entered = rt_enter();
	bool did = progress_round(TD_SWEEP, true);

	did |= rt.leftover || atomic_load_explicit(&rt.run_any, memory_order_relaxed);
	rt_leave(entered);
	return did;
}

bool wire_outlived(struct wire *wire)
{
	uint64_t req = __atomic_load_n(&wire->req_in.pos, __ATOMIC_RELAXED);
	uint64_t resp = __atomic_load_n(&wire->resp_in.pos, __ATOMIC_RELAXED);
	uint64_t acked = atomic_load(&wire->seen_acked);
	bool pending = wire_pending(wire);
	bool old = pending && wire->tick_pending && wire->tick_req == req && wire->tick_resp == resp &&
		   wire->tick_acked == acked;

	wire->tick_pending = pending;
	wire->tick_req = req;
	wire->tick_resp = resp;
	wire->tick_acked = acked;
	return old;
}

/* True: there is old work. */
static bool tick_at(struct wire *wire)
{
	wire_look_owed(wire);
	return wire_outlived(wire);
}

static unsigned rounds_since_tick(void)
{
	return atomic_load_explicit(&rt.poll_rounds, memory_order_relaxed) - rt.tick_rounds;
}

/* Who was at it before the tick is so if there was any since. */
bool progress_is_polled(void)
{
	return rounds_since_tick() >= (rt.tick_polled ? 1 : TICK_ROUNDS);
}

/* They would find what is there. Not while another thread waits for the lock: polls keep out then, whether it gets on or not. */
static bool is_left_to_polls(void)
{
	return rt.tick_polled && !atomic_load(&rt.waiters);
}

/* True: there is something that was there at the last tick. */
static bool tick_look(void)
{
	bool old = false;

	for (unsigned place = 0; place < rt.hot.top; place++)
		old |= hot_at(&rt.hot, place) && tick_at(hot_at(&rt.hot, place));
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next) {
		uint64_t summary = atomic_load_explicit(&pair->mem->sides[pair->side].summary, memory_order_relaxed);

		old |= summary & pair->priv->summary_then;
		pair->priv->summary_then = summary;
	}
	return old;
}

void progress_tick(void)
{
	unsigned rounds = rounds_since_tick();
	uint64_t start;
	bool old, left;

	rt.tick_polled = rounds >= TICK_ROUNDS;
	rt.tick_rounds += rounds;
	/* Who has the lock does what would be done here, but for domains that are not parked. */
	if (!rt_try_enter() && !(td_any() && rt_enter()))
		return;
	start = rt_now();
	old = tick_look();
	old |= take_all_waiting();
	old |= round_clock();
	/*
	 * What this process has for itself (loopback, the run queue) it may have left to nobody. Who polls serves all this, as it is
	 * theirs to: a stream, or a long copy that is cut into turns, always has something that was there before, and would go on here,
	 * by system calls, while they wait for the locks.
	 */
	left = is_left_to_polls();
	if (left) {
		rt.leftover |= old; /* to the next poll, not to one of the next */
		old = false;
	} else {
		old |= take_loop();
		old |= run_queue();
	}
	if (rt.tds)
		old |= td_serve(TD_TICK, true);
	for (unsigned n = 0; old && n < 16 && rt_now() - start < WORK_NS; n++)
		old = left ? rt.tds && td_serve(TD_WORK, false) : progress_round(TD_WORK, false);
	wire_collect();
	rt_leave(true);
}
