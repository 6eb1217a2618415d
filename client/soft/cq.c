/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: a ring of CQEs in this process's memory, under one lock. A poll that finds nothing makes progress
 * for the whole process, or for the CQ's thread domain, and looks once more: a program that polls needs no other thread.
 */
#include "client/soft/cq.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "client/soft/buf.h"
#include "client/soft/cq_private.h"
#include "client/soft/rt.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

static uint32_t ring_size(uint32_t cqe)
{
	uint32_t size = 1;

	while (size < cqe)
		size <<= 1;
	return size;
}

int soft_cq_init(struct soft_cq *cq, uint32_t cqe, bool single_threaded)
{
	if (cqe == 0 || cqe > 1u << 26)
		return -EINVAL;
	cq->size = ring_size(cqe);
	cq->ring = buf_alloc(cq->parent_domain, cq->size * sizeof(*cq->ring), BUF_CQ);
	if (!cq->ring)
		return -ENOMEM;
	cq->v.cq.cqe = (int)cqe;
	cq->head = cq->tail = 0;
	atomic_init(&cq->count, 0);
	atomic_init(&cq->armed, 0);
	atomic_init(&cq->overrun, false);
	atomic_init(&cq->target_thread, NULL);
	cq->events = cq->queued = 0;
	cq->event_next = NULL;
	cq->event_prev = NULL;
	cq->single = single_threaded;
	soft_lock_init(&cq->lock, single_threaded && cq->parent_domain ? cq->parent_domain->td : NULL);
	soft_lock_init(&cq->poll_lock, NULL);
	return 0;
}

void soft_cq_deinit(struct soft_cq *cq)
{
	buf_free(cq->parent_domain, cq->ring, BUF_CQ);
	cq->ring = NULL;
}

/* The lock is held by who stores. */
static void set_count(struct soft_cq *cq, uint32_t count)
{
	atomic_store_explicit(&cq->count, count, memory_order_relaxed);
}

static uint32_t get_count(const struct soft_cq *cq)
{
	return atomic_load_explicit(&cq->count, memory_order_relaxed);
}

int soft_cq_resize(struct soft_cq *cq, uint32_t cqe)
{
	if (cqe == 0 || cqe > 1u << 26)
		return -EINVAL;

	uint32_t size = ring_size(cqe);
	struct soft_cqe *ring = buf_alloc(cq->parent_domain, size * sizeof(*ring), BUF_CQ);
	struct soft_cqe *old = ring;
	int r = -EINVAL; /* fewer than are in it */

	if (!ring)
		return -ENOMEM;

	enum soft_held held = soft_hold(&cq->lock);

	if (get_count(cq) <= cqe) {
		uint32_t n = get_count(cq);

		for (uint32_t i = 0; i < n; i++)
			ring[i] = cq->ring[(cq->tail + i) & (cq->size - 1)];
		old = cq->ring;
		cq->ring = ring;
		cq->size = size;
		cq->tail = 0;
		cq->head = n;
		cq->v.cq.cqe = (int)cqe;
		r = 0;
	}
	soft_release(&cq->lock, held);
	buf_free(cq->parent_domain, old, BUF_CQ);
	return r;
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void soft_cqe_stamp(struct soft_cqe *cqe)
{
	cqe->timestamp = clock_ns(CLOCK_MONOTONIC_RAW);
}

static bool fires(const struct soft_cq *cq, const struct soft_cqe *cqe)
{
	int armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);

	return armed == 1 || (armed == 2 && (cqe->solicited || cqe->wc.status != IBV_WC_SUCCESS));
}

/* Room for one more, or false. Lock held. */
static bool make_room(struct soft_cq *cq)
{
	if (get_count(cq) < (uint32_t)cq->v.cq.cqe)
		return true;
	if (!cq->ignore_overrun) {
		atomic_store_explicit(&cq->overrun, true, memory_order_relaxed);
		return false;
	}
	soft_cqe_taken(&cq->ring[cq->tail++ & (cq->size - 1)]); /* as a device overwrites the oldest */
	set_count(cq, get_count(cq) - 1);
	return true;
}

struct soft_cqe *soft_cq_queue(struct soft_cq *cq)
{
	bool over;

	soft_lock(&cq->lock);
	over = atomic_load_explicit(&cq->overrun, memory_order_relaxed);
	if (!over && make_room(cq))
		return &cq->ring[cq->head++ & (cq->size - 1)];
	soft_unlock(&cq->lock);
	if (!over)
		soft_async_raise(&cq->ctx->async, IBV_EVENT_CQ_ERR, &cq->v.cq, 0);
	return NULL;
}

void soft_cq_queued(struct soft_cq *cq, struct soft_cqe *cqe)
{
	/* Others see it before it is acknowledged, at the end of this turn. */
	if (cqe->wc.opcode & IBV_WC_RECV)
		rt_owe();
	if (cq->wc_flags & SOFT_CQ_TIMESTAMPS)
		soft_cqe_stamp(cqe);
	set_count(cq, get_count(cq) + 1);
	if (fires(cq, cqe)) {
		atomic_store_explicit(&cq->armed, 0, memory_order_relaxed);
		if (cq->channel)
			channel_fire(cq->channel, cq);
	}
	soft_unlock(&cq->lock);
}

bool soft_cq_push(struct soft_cq *cq, const struct soft_cqe *cqe)
{
	struct soft_cq_place at;

	if (!soft_cq_begin(cq, &at))
		return false;
	*at.wc = cqe->wc;
	soft_cq_end(cq, &at, cqe->of, cqe->solicited, cqe->freed, cqe->freed_to); /* or its tag */
	return true;
}

void soft_cq_purge(struct soft_cq *cq, const void *of)
{
	enum soft_held held = soft_hold(&cq->lock);
	uint32_t kept = 0, n = get_count(cq);

	for (uint32_t i = 0; i < n; i++) {
		struct soft_cqe *cqe = &cq->ring[(cq->tail + i) & (cq->size - 1)];

		if (cqe->of != of)
			cq->ring[(cq->tail + kept++) & (cq->size - 1)] = *cqe;
	}
	cq->head = cq->tail + kept;
	set_count(cq, kept);
	soft_release(&cq->lock, held);
}

static void count_taken(struct soft_td *td, unsigned n)
{
	if (td)
		td_count(td, VSD_COUNT_COMPLETIONS, n);
	else
		rt_count(VSD_COUNT_COMPLETIONS, n);
}

/* Lock held. */
static int take_many(struct soft_cq *cq, int max, struct ibv_wc *wc)
{
	int n = (int)get_count(cq);

	if (n > max)
		n = max;
	for (int i = 0; i < n; i++) {
		const struct soft_cqe *cqe = &cq->ring[cq->tail++ & (cq->size - 1)];

		soft_wc_copy(&wc[i], &cqe->wc);
		soft_cqe_taken(cqe);
	}
	if (n > 0)
		set_count(cq, get_count(cq) - (uint32_t)n);
	return n;
}

/* Lock held. */
static bool take_one(struct soft_cq *cq, struct soft_cqe *cqe)
{
	const struct soft_cqe *from;

	if (get_count(cq) == 0)
		return false;
	from = &cq->ring[cq->tail++ & (cq->size - 1)];
	soft_wc_copy(&cqe->wc, &from->wc);
	cqe->timestamp = from->timestamp;
	cqe->of = from->of;
	cqe->solicited = from->solicited;
	cqe->freed = from->freed;
	cqe->freed_to = from->freed_to;
	soft_cqe_taken(cqe);
	set_count(cq, get_count(cq) - 1);
	return true;
}

static int pop_many(struct soft_cq *cq, int max, struct ibv_wc *wc)
{
	struct soft_td *td;
	int n;

	if (get_count(cq) == 0 || max == 0)
		return 0;
	td = soft_enter(&cq->lock);
	n = take_many(cq, max, wc);
	count_taken(td, (unsigned)n);
	soft_leave(&cq->lock, td);
	return n;
}

bool cq_pop(struct soft_cq *cq, struct soft_cqe *cqe)
{
	struct soft_td *td;
	bool got;

	if (get_count(cq) == 0)
		return false;
	td = soft_enter(&cq->lock);
	got = take_one(cq, cqe);
	count_taken(td, got);
	soft_leave(&cq->lock, td);
	return got;
}

static void target_open(struct soft_cq *cq, struct ibv_wc *wc, struct soft_cqe *cqe, int max)
{
	cq->target_wc = wc;
	cq->target_cqe = cqe;
	cq->target_n = 0;
	cq->target_max = max;
	atomic_store_explicit(&cq->target_thread, __builtin_thread_pointer(), memory_order_relaxed);
}

static int target_close(struct soft_cq *cq)
{
	atomic_store_explicit(&cq->target_thread, NULL, memory_order_relaxed);
	return cq->target_n;
}

/* Progress for the whole process: how many completions it handed over. */
static int progress_to(struct soft_cq *cq, struct ibv_wc *wc, struct soft_cqe *cqe, int max)
{
	bool did;
	int n;

	if (!progress_begin()) {
		progress_asked();
		return 0;
	}
	target_open(cq, wc, cqe, max);
	did = progress_poll();
	n = target_close(cq);
	if (n)
		rt_count(VSD_COUNT_COMPLETIONS, (unsigned)n);
	progress_end(did);
	return n;
}

/*
 * What an empty poll of a CQ of a thread domain does: progress for the domain alone, which the caller is in. True: nothing
 * came for long, and the one that this thread waits for may be waiting for this CPU.
 */
static bool domain_round(struct soft_td *td)
{
	td->idle_rounds = td_round(td, false) ? 0 : td->idle_rounds + 1;
	if (td->idle_rounds < YIELD_ROUNDS)
		return false;
	td->idle_rounds = 0;
	return true;
}

/* Of a CQ that has lost its elision just now, the next poll makes the progress. */
static int domain_poll(struct soft_cq *cq, int max, struct ibv_wc *wc)
{
	struct soft_td *td = soft_enter(&cq->lock);
	int n = take_many(cq, max, wc);
	bool yield = false;

	if (td)
		rt_polled(&td->polls);
	if (n == 0 && max > 0 && td) {
		target_open(cq, wc, NULL, max);
		yield = domain_round(td);
		n = target_close(cq);
		n += take_many(cq, max - n, wc + n);
	}
	if (n > 0)
		count_taken(td, (unsigned)n);
	soft_leave(&cq->lock, td);
	if (yield)
		sched_yield();
	return n;
}

static bool domain_pop(struct soft_cq *cq, struct soft_cqe *cqe)
{
	struct soft_td *td = soft_enter(&cq->lock);
	bool got = take_one(cq, cqe), yield = false;

	if (td)
		rt_polled(&td->polls);
	if (!got && td) {
		target_open(cq, NULL, cqe, 1);
		yield = domain_round(td);
		got = target_close(cq) || take_one(cq, cqe);
	}
	count_taken(td, got);
	soft_leave(&cq->lock, td);
	if (yield)
		sched_yield();
	return got;
}

bool cq_pop_progress(struct soft_cq *cq, struct soft_cqe *cqe)
{
	if (soft_lock_td(&cq->lock))
		return domain_pop(cq, cqe);
	rt_polled(&rt.polls);
	if (cq_pop(cq, cqe))
		return true;
	return progress_to(cq, NULL, cqe, 1) || cq_pop(cq, cqe);
}

int soft_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct soft_cq *cq = soft_cq_of(ibcq);
	int got;

	if (rt_foreign(cq->ctx))
		return -EIO;
	if (soft_lock_td(&cq->lock))
		return domain_poll(cq, n, wc);
	rt_polled(&rt.polls);
	got = pop_many(cq, n, wc);
	if (got || n <= 0)
		return got;
	got = progress_to(cq, wc, NULL, n);
	return got + pop_many(cq, n - got, wc + got);
}

int soft_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct soft_cq *cq = soft_cq_of(ibcq);
	struct soft_td *td;

	if (rt_foreign(cq->ctx))
		return EIO;
	td = soft_enter(&cq->lock);
	/* A request for the next completion is not weakened by a later one for solicited completions. */
	if (atomic_load_explicit(&cq->armed, memory_order_relaxed) != 1)
		atomic_store_explicit(&cq->armed, solicited_only ? 2 : 1, memory_order_relaxed);
	soft_leave(&cq->lock, td);
	rt_armed(td);
	return 0;
}
