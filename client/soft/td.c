/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains: who has one. The owner's half is in td.h; here is the other one, with the barrier that it needs in
 * threads which execute none, and what others want to know of all domains.
 */
#include "client/soft/td.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/membarrier.h>

#include "client/control/control.h"
#include "client/soft/in_child.h"
#include "client/soft/rt_private.h"

_Atomic bool td_barriers_slow;
bool td_fences;

/* A leaf: the list changes under this and the progress lock, so either is enough to walk it. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned domains;

void td_in_child(void)
{
	pthread_mutex_init(&list_lock, NULL);
	atomic_store(&domains, 0);
}

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

void td_init(void)
{
#ifdef TD_TSAN
	td_fences = true;
#else
	td_fences = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) < 0 ||
		    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) < 0;
	if (td_fences)
		control_debug("no membarrier: thread domains have a barrier in each call");
#endif
}

struct soft_td *td_new(void)
{
	struct soft_td *td = aligned_alloc(_Alignof(struct soft_td), sizeof(*td));

	if (!td)
		return NULL;
	memset(td, 0, sizeof(*td));

	bool entered = rt_enter();

	pthread_mutex_lock(&list_lock);
	td->next = rt.tds;
	rt.tds = td;
	atomic_fetch_add(&domains, 1);
	pthread_mutex_unlock(&list_lock);
	rt_leave(entered);
	return td;
}

void td_free(struct soft_td *td)
{
	bool entered = rt_enter();

	td_park_wait(td);
	td_flush_counts(td);
	rt.parked--;
	if (rt.td_turn == td)
		rt.td_turn = NULL;
	pthread_mutex_lock(&list_lock);
	for (struct soft_td **at = &rt.tds; *at; at = &(*at)->next)
		if (*at == td) {
			*at = td->next;
			break;
		}
	atomic_fetch_sub(&domains, 1);
	pthread_mutex_unlock(&list_lock);
	rt_leave(entered);
	free(td->words);
	free(td);
}

/* --- exclusion ---------------------------------------------------------------------------------------------------------- */

void td_barrier_heavy(void)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };

	if (td_fences) {
		atomic_thread_fence(memory_order_seq_cst);
		return;
	}
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
		return;
	/* Forbidden since we started. No store waits for so long to be seen, and no thread keeps one while it waits. */
	atomic_store(&td_barriers_slow, true);
	syscall(SYS_nanosleep, &tick, NULL);
}

static bool is_inside(const struct soft_td *td)
{
	return atomic_load_explicit(&td->seq, memory_order_acquire) & 1;
}

static bool is_parked(const struct soft_td *td)
{
	return atomic_load_explicit(&td->gate, memory_order_relaxed);
}

static void gate_close(struct soft_td *td)
{
	atomic_store(&td->gate, 1);
}

static void gate_open(struct soft_td *td)
{
	atomic_store_explicit(&td->gate, 0, memory_order_release);
}

void td_take_back(struct soft_td *td)
{
	uint64_t seq = atomic_load_explicit(&td->seq, memory_order_relaxed);

	/* Outside while it waits: a verb may wait for it to be. */
	atomic_store_explicit(&td->seq, seq + 1, memory_order_release);

	bool entered = rt_enter();

	if (is_parked(td)) {
		gate_open(td);
		rt.parked--;
	}
	atomic_store_explicit(&td->seq, seq + 2, memory_order_relaxed);
	rt_leave(entered);
}

void td_left_behind(void)
{
	sleep_wake_if_asleep();
}

static void parked(struct soft_td *td)
{
	rt.parked++;
	td_flush_counts(td);
}

bool td_park(struct soft_td *td)
{
	if (is_parked(td))
		return true;
	gate_close(td);
	td_barrier_heavy();
	if (is_inside(td)) {
		gate_open(td);
		return false;
	}
	parked(td);
	return true;
}

void td_park_wait(struct soft_td *td)
{
	if (is_parked(td))
		return;
	gate_close(td);
	td_barrier_heavy();
	while (is_inside(td))
		sched_yield();
	parked(td);
}

void td_park_begin(struct soft_td *td)
{
	gate_close(td);
	td->parking = true;
}

void td_park_all(void)
{
	td_barrier_heavy();
	for (struct soft_td *td = rt.tds; td; td = td->next) {
		if (!td->parking)
			continue;
		td->parking = false;
		if (is_inside(td))
			gate_open(td);
		else
			parked(td);
	}
}

enum soft_held soft_hold(struct soft_lock *lock)
{
	if (soft_lock_td(lock)) {
		bool entered = rt_enter();
		struct soft_td *td = soft_lock_td(lock);

		if (td) {
			td_park_wait(td);
			return entered ? HELD_TD : HELD_TD_INSIDE;
		}
		rt_leave(entered);
	}
	soft_mutex_lock(&lock->mutex);
	return HELD_MUTEX;
}

void soft_release(struct soft_lock *lock, enum soft_held held)
{
	if (held == HELD_MUTEX)
		soft_mutex_unlock(&lock->mutex);
	else
		rt_leave(held == HELD_TD);
}

/* --- what others want to know ------------------------------------------------------------------------------------------- */

void td_flush_counts(struct soft_td *td)
{
	for (unsigned i = 0; i < VSD_COUNT_N; i++) {
		uint64_t now = atomic_load_explicit(&td->counts[i], memory_order_relaxed);

		rt_count(i, now - td->flushed[i]);
		td->flushed[i] = now;
	}
}

static bool names(const struct soft_td *td, const void *slot)
{
	for (unsigned i = 0; i < TD_KEYS; i++)
		if (atomic_load_explicit(&td->keys[i], memory_order_acquire) == slot)
			return true;
	return false;
}

bool td_key_named(const void *slot)
{
	bool named = false;

	if (!atomic_load(&domains))
		return false;
	td_barrier_heavy();
	pthread_mutex_lock(&list_lock);
	for (const struct soft_td *td = rt.tds; td && !named; td = td->next)
		named = names(td, slot);
	pthread_mutex_unlock(&list_lock);
	return named;
}

bool td_any(void)
{
	return atomic_load_explicit(&domains, memory_order_relaxed);
}

uint64_t td_polls(void)
{
	uint64_t polls = 0;

	pthread_mutex_lock(&list_lock);
	for (const struct soft_td *td = rt.tds; td; td = td->next)
		polls += atomic_load_explicit(&td->polls, memory_order_relaxed);
	pthread_mutex_unlock(&list_lock);
	return polls;
}

uint64_t td_next_due(void)
{
	uint64_t next = 0;

	pthread_mutex_lock(&list_lock);
	for (const struct soft_td *td = rt.tds; td; td = td->next) {
		uint64_t due = atomic_load_explicit(&td->due, memory_order_relaxed);

		if (due && (!next || due < next))
			next = due;
	}
	pthread_mutex_unlock(&list_lock);
	return next;
}
