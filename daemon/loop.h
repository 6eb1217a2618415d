/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event loop: watched fds, timers, deferred calls, signals. The only module that knows libevent. One thread.
 */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct loop;

enum loop_ready {
	LOOP_READ = 1,
	LOOP_WRITE = 2,
};

struct watch {
	struct loop *loop;
	struct event *event;
	void (*fn)(void *data, unsigned ready);
	void *data;
	int fd; /* not owned */
	unsigned mask;
};

/* A call after a time, or (0 ms) in the next turn of the loop, when no caller's frame is left. */
struct timer {
	struct event *event;
	void (*fn)(void *data);
	void *data;
};

struct loop_signal {
	struct event *event;
	void (*fn)(void *data);
	void *data;
};

#define WATCH_NULL                                                                                \
	{                                                                                         \
		.fd = -1                                                                          \
	}
#define TIMER_NULL                                                                                \
	{                                                                                         \
		.event = NULL                                                                     \
	}

int loop_new(struct loop **loop);
struct loop *loop_free(struct loop *loop);
/* Returns after loop_quit(), or when nothing is watched any more. 0 or a negative errno. */
int loop_run(struct loop *loop);
/* One turn; waits for something to happen when @wait. For tests. */
int loop_turn(struct loop *loop, bool wait);
void loop_quit(struct loop *loop);
/* A request was taken: loop_run() looks for the next one, for some 50 us, before it sleeps. */
void loop_served(struct loop *loop);

/* Monotonic milliseconds. Tests may set their own clock. */
uint64_t loop_now(void);
void loop_set_clock(uint64_t (*clock)(void));

int watch_init(struct watch *watch, struct loop *loop, int fd,
	void (*fn)(void *data, unsigned ready), void *data);
int watch_set(struct watch *watch, unsigned mask);
void watch_deinit(struct watch *watch);

int timer_init(struct timer *timer, struct loop *loop, void (*fn)(void *data), void *data);
/* Arms it, once; a timer that is armed already is moved. */
void timer_set(struct timer *timer, uint64_t ms);
void timer_cancel(struct timer *timer);
bool timer_pending(const struct timer *timer);
void timer_deinit(struct timer *timer);

int loop_signal_init(struct loop_signal *sig, struct loop *loop, int number,
	void (*fn)(void *data), void *data);
void loop_signal_deinit(struct loop_signal *sig);

#endif
