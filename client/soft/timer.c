/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers: a wheel of milliseconds with exact deadlines in its buckets, so that setting one costs the same with one
 * waiting QP and with ten thousand. They fire in whoever makes progress; the timerfd wakes the progress thread for
 * those that nobody polls for.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "client/soft/in_child.h"
#include "client/soft/rt_private.h"

#define SHIFT 20 /* of a bucket: 1.05 ms */
#define BUCKETS 512u

static struct {
	pthread_mutex_t lock;
	struct soft_timer *bucket[BUCKETS];
	unsigned set;
	uint64_t at;		   /* bucket number up to which everything due has fired */
	_Atomic uint64_t earliest; /* no timer is due before; 0: none is set */
	struct soft_timer *_Atomic firing;
} wheel = { .lock = PTHREAD_MUTEX_INITIALIZER };

void timer_in_child(void)
{
	pthread_mutex_init(&wheel.lock, NULL);
	memset(wheel.bucket, 0, sizeof(wheel.bucket));
	wheel.set = 0;
	wheel.at = 0;
	atomic_store(&wheel.earliest, 0);
	atomic_store(&wheel.firing, NULL);
}

uint64_t rt_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void timer_unlink(struct soft_timer *timer)
{
	if (!timer->prev)
		return;
	*timer->prev = timer->next;
	if (timer->next)
		timer->next->prev = timer->prev;
	timer->prev = NULL;
	timer->next = NULL;
	timer->deadline = 0;
	if (--wheel.set == 0)
		atomic_store(&wheel.earliest, 0);
}

static void timer_link(struct soft_timer *timer, uint64_t deadline)
{
	uint64_t n = deadline >> SHIFT;
	struct soft_timer **head = &wheel.bucket[(n < wheel.at ? wheel.at : n) % BUCKETS];

	timer->deadline = deadline;
	timer->next = *head;
	timer->prev = head;
	if (*head)
		(*head)->prev = &timer->next;
	*head = timer;
	wheel.set++;
}

void rt_timer_set(struct soft_timer *timer, uint64_t deadline)
{
	if (deadline == 0)
		deadline = 1;
	pthread_mutex_lock(&wheel.lock);
	timer_unlink(timer);
	timer_link(timer, deadline);

	uint64_t earliest = atomic_load(&wheel.earliest);

	if (!earliest || deadline < earliest)
		atomic_store(&wheel.earliest, deadline);
	pthread_mutex_unlock(&wheel.lock);
	sleep_arm(deadline);
}

void rt_timer_clear(struct soft_timer *timer)
{
	pthread_mutex_lock(&wheel.lock);
	timer_unlink(timer);
	pthread_mutex_unlock(&wheel.lock);
}

void rt_timer_cancel(struct soft_timer *timer)
{
	rt_timer_clear(timer);
	if (rt_inside())
		return;
	while (atomic_load(&wheel.firing) == timer)
		sched_yield();
	rt_timer_clear(timer); /* it may have set itself again */
}

static uint64_t bucket_earliest(uint64_t n, bool any_lap)
{
	uint64_t earliest = 0;

	for (const struct soft_timer *timer = wheel.bucket[n % BUCKETS]; timer; timer = timer->next)
		if ((any_lap || timer->deadline >> SHIFT <= n) && (!earliest || timer->deadline < earliest))
			earliest = timer->deadline;
	return earliest;
}

/* Lock held. Most deadlines are within a turn of the wheel: the first bucket of this turn that has one decides. */
static uint64_t find_earliest(void)
{
	uint64_t earliest = 0;

	if (wheel.set == 0)
		return 0;
	for (uint64_t n = wheel.at; n < wheel.at + BUCKETS && !earliest; n++)
		earliest = bucket_earliest(n, false);
	if (earliest)
		return earliest;
	for (uint64_t n = 0; n < BUCKETS; n++) {
		uint64_t here = bucket_earliest(n, true);

		if (here && (!earliest || here < earliest))
			earliest = here;
	}
	return earliest;
}

/* One timer of bucket @n that is due, unlinked; lock held. */
static struct soft_timer *take_due(uint64_t n, uint64_t now)
{
	for (struct soft_timer *timer = wheel.bucket[n % BUCKETS]; timer; timer = timer->next)
		if (timer->deadline <= now) {
			timer_unlink(timer);
			return timer;
		}
	return NULL;
}

bool timer_fire_due(uint64_t now)
{
	uint64_t earliest = atomic_load_explicit(&wheel.earliest, memory_order_relaxed);
	bool did = false;

	if (!earliest || now < earliest)
		return false;
	pthread_mutex_lock(&wheel.lock);

	uint64_t last = now >> SHIFT, n = wheel.at;

	if (last - n >= BUCKETS || n == 0)
		n = last >= BUCKETS ? last - BUCKETS + 1 : 0;
	for (; n <= last; n++) {
		struct soft_timer *timer;

		wheel.at = n; /* a timer that is set for the past meanwhile goes here */
		while ((timer = take_due(n, now))) {
			atomic_store(&wheel.firing, timer);
			pthread_mutex_unlock(&wheel.lock);
			timer->fire(timer);
			did = true;
			pthread_mutex_lock(&wheel.lock);
			atomic_store(&wheel.firing, NULL);
		}
	}
	atomic_store(&wheel.earliest, find_earliest());
	pthread_mutex_unlock(&wheel.lock);
	return did;
}

uint64_t timer_next(void)
{
	return atomic_load(&wheel.earliest);
}

bool timer_any(void)
{
	return atomic_load_explicit(&wheel.earliest, memory_order_relaxed);
}
