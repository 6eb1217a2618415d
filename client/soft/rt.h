/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runtime of a process: its pages, its progress thread, timers, sleeping and waking (datapath.md 5).
 *
 * Who makes progress: the thread that polls or posts, inline; a thread blocked in ibv_get_cq_event, which then reads
 * the kick pipe in the progress thread's place; the progress thread for everything that nobody looks at: it ticks
 * (1 ms) while the process is active and serves every wire with work that outlived a tick, and serves at once when
 * it was kicked; both it leaves to threads that poll.
 */
#ifndef SOFT_RT_H
#define SOFT_RT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/control/process.h"
#include "client/soft/objects.h"
#include "proto/ring_abi.h"

struct soft_qp;
struct soft_channel;

struct soft_timer {
	uint64_t deadline; /* CLOCK_MONOTONIC, ns; 0: not set */
	void (*fire)(struct soft_timer *timer);
	struct soft_timer *next, **prev;
};

/* Joins the daemon, maps the pages, starts the progress thread; once per process. 0 or a negative errno. */
int rt_start(void);
/* The last context is closed, or the process ends: stops the thread, unmaps. Idempotent. */
void rt_stop(void);

/*
 * True where the context is not this process's, but a parent's: what was mapped for it is not there, and nothing of it may be
 * touched. Cheap; tested first at each entry point of the data path.
 */
static inline bool rt_foreign(const struct soft_context *ctx)
{
	return ctx->epoch != process_epoch();
}

/* This process's page (mapped read-write), its peer id, and the map page (read-only). NULL before rt_start(). */
struct vsd_page *rt_page(void);
uint32_t rt_peer_id(void);
/* Somebody watches what is registered as it happens. */
bool rt_watched(void);
/* The peer id that @qpn is leased to, 0 for nobody. */
uint32_t rt_qpn_owner(uint32_t qpn);
/* How often the multicast groups of this bucket changed. */
uint32_t rt_mcast_generation(uint32_t bucket);

/*
 * Serves hot wires, ready bits, the run queue and due timers once, bounded. The caller holds no lock. Returns true when
 * something was done. Two threads at once: the second returns false at once.
 */
bool rt_progress(void);
/* True in the progress thread: copies to program memory then go through process_vm_writev (see copy.h). */
extern _Atomic(void *) rt_progress_self; /* its thread pointer, while it runs */

static inline bool rt_in_progress_thread(void)
{
	return atomic_load_explicit(&rt_progress_self, memory_order_relaxed) == __builtin_thread_pointer();
}

/* The QP's requester must run again (timer, space, wire attached). Any thread, any lock held; idempotent. */
void rt_run_later(struct soft_qp *qp);
/* Takes the QP out of the run queue; after return the runtime does not touch it. No lock held. */
void rt_forget_qp(struct soft_qp *qp);

/* Timers fire in rt_progress(), no lock held. Any thread. */
void rt_timer_set(struct soft_timer *timer, uint64_t deadline);
void rt_timer_clear(struct soft_timer *timer);
/* After return the timer does not fire and is not firing. No lock held. */
void rt_timer_cancel(struct soft_timer *timer);
uint64_t rt_now(void);

/*
 * Blocks the calling thread until @fd (a semaphore eventfd of ours) is readable, making the process's progress
 * meanwhile; cancellation point; EINTR as read(2) gives it. 0, or -1 with errno.
 */
int rt_block(int fd);

/* QPs by number, for wires and datagrams. The lookup is valid until rt_forget_qp(). */
int rt_qp_insert(struct soft_qp *qp, uint32_t qpn);
void rt_qp_remove(uint32_t qpn);
struct soft_qp *rt_qp_get(uint32_t qpn); /* takes a reference: */
void rt_qp_put(struct soft_qp *qp);

#endif
