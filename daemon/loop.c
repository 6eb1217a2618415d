/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: one file knows libevent, everything else knows watches and timers. Guarantees: a watch or timer that was
 * deinitialised is never called again; a timer of 0 ms runs after the sockets were looked at once more, so that work
 * cut into slices starves nobody.
 */
#include "daemon/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/burst.h"

struct loop {
	struct event_base *base;
	struct burst burst;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t clock_monotonic(void)
{
	return now_ns() / 1000000;
}

static uint64_t (*clock_now)(void) = clock_monotonic;

uint64_t loop_now(void)
{
	return clock_now();
}

void loop_set_clock(uint64_t (*clock)(void))
{
	clock_now = clock ? clock : clock_monotonic;
}

int loop_new(struct loop **loop)
{
	struct loop *made = calloc(1, sizeof(*made));
	cpu_set_t cpus;

	if (!made)
		return -ENOMEM;
	made->burst.never = sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) < 2;
	made->base = event_base_new();
	if (!made->base) {
		free(made);
		return -ENOMEM;
	}
	*loop = made;
	return 0;
}

struct loop *loop_free(struct loop *loop)
{
	if (loop) {
		event_base_free(loop->base);
		free(loop);
	}
	return NULL;
}

int loop_run(struct loop *loop)
{
	int r;

	do {
		bool on = burst_goes_on(&loop->burst, loop->burst.until ? now_ns() : 0);

		r = event_base_loop(loop->base, EVLOOP_ONCE | (on ? EVLOOP_NONBLOCK : 0));
		if (on)
			sched_yield(); /* others may want this processor, the client among them */
	} while (r == 0 && !event_base_got_break(loop->base));
	return r < 0 ? -EIO : 0;
}

void loop_served(struct loop *loop)
{
	burst_served(&loop->burst, now_ns());
}

int loop_turn(struct loop *loop, bool wait)
{
	return event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK)) < 0 ? -EIO
											   : 0;
}

void loop_quit(struct loop *loop)
{
	event_base_loopbreak(loop->base);
}

static void watch_ready(evutil_socket_t fd, short what, void *data)
{
	struct watch *watch = data;
	unsigned ready = (what & EV_READ ? LOOP_READ : 0) | (what & EV_WRITE ? LOOP_WRITE : 0);

	(void)fd;
	watch->fn(watch->data, ready);
}

int watch_init(struct watch *watch, struct loop *loop, int fd,
	void (*fn)(void *data, unsigned ready), void *data)
{
	*watch = (struct watch){ .loop = loop, .fn = fn, .data = data, .fd = fd };
	watch->event = event_new(loop->base, fd, EV_PERSIST, watch_ready, watch);
	return watch->event ? 0 : -ENOMEM;
}

int watch_set(struct watch *watch, unsigned mask)
{
	short what = EV_PERSIST;

	if (mask == watch->mask)
		return 0;
	if (mask & LOOP_READ)
		what |= EV_READ;
	if (mask & LOOP_WRITE)
		what |= EV_WRITE;
	event_del(watch->event);
	watch->mask = 0;
	if (!mask)
		return 0;
	if (event_assign(watch->event, watch->loop->base, watch->fd, what, watch_ready, watch) <
			0 ||
		event_add(watch->event, NULL) < 0)
		return -ENOMEM;
	watch->mask = mask;
	return 0;
}

void watch_deinit(struct watch *watch)
{
	if (watch->event) {
		event_del(watch->event);
		event_free(watch->event);
	}
	*watch = (struct watch)WATCH_NULL;
}

static void timer_ready(evutil_socket_t fd, short what, void *data)
{
	struct timer *timer = data;

	(void)fd;
	(void)what;
	timer->fn(timer->data);
}

int timer_init(struct timer *timer, struct loop *loop, void (*fn)(void *data), void *data)
{
	timer->fn = fn;
	timer->data = data;
	timer->event = evtimer_new(loop->base, timer_ready, timer);
	return timer->event ? 0 : -ENOMEM;
}

void timer_set(struct timer *timer, uint64_t ms)
{
	struct timeval tv = { .tv_sec = (time_t)(ms / 1000),
		.tv_usec = (suseconds_t)(ms % 1000 * 1000) };

	evtimer_add(timer->event, &tv);
}

void timer_cancel(struct timer *timer)
{
	evtimer_del(timer->event);
}

bool timer_pending(const struct timer *timer)
{
	return evtimer_pending(timer->event, NULL);
}

void timer_deinit(struct timer *timer)
{
	if (timer->event) {
		event_del(timer->event);
		event_free(timer->event);
	}
	timer->event = NULL;
}

static void signal_ready(evutil_socket_t fd, short what, void *data)
{
	struct loop_signal *sig = data;

	(void)fd;
	(void)what;
	sig->fn(sig->data);
}

int loop_signal_init(
	struct loop_signal *sig, struct loop *loop, int number, void (*fn)(void *data), void *data)
{
	sig->fn = fn;
	sig->data = data;
	sig->event = evsignal_new(loop->base, number, signal_ready, sig);
	return sig->event && evsignal_add(sig->event, NULL) == 0 ? 0 : -ENOMEM;
}

void loop_signal_deinit(struct loop_signal *sig)
{
	if (sig->event) {
		evsignal_del(sig->event);
		event_free(sig->event);
	}
	sig->event = NULL;
}
