/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping and waking (datapath.md 5). The process is "active" while threads of it poll, or while one that was woken
 * works off what came; else it is "asleep", and who sends to it kicks it, once per sleep epoch.
 *
 *	falling asleep	store asleep with a new epoch, full barrier, look at everything, block
 *	sending		publish, full barrier, load the state, kick if asleep and not kicked in this epoch
 *
 * One thread reads the kick pipe: the first that blocks for an event, else the progress thread. The pipe goes back to
 * the progress thread lazily, with the tick: a program that takes one event after the other does not pay for it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/count.h"
#include "client/soft/map.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define WAIT_MAX_MS 1000

/* epoll data of our own fds; anything else is a pair, by its pidfd. */
enum { ON_WAKE = 1, ON_TIMER = 2, ON_EVENTS = 4, ON_KICK = 8, ON_MAX = 16 };

_Atomic(void *) rt_progress_self;

/* --- the state word ---------------------------------------------------------------------------------------------------- */

static void state_store(uint64_t state)
{
	atomic_store(&rt.state, state);
	atomic_store(&rt.page->state, state);
}

void sleep_fall(void)
{
	pthread_mutex_lock(&rt.state_lock);
	state_store(((atomic_load(&rt.state) >> 1) + 1) << 1 | 1);
	pthread_mutex_unlock(&rt.state_lock);
	atomic_thread_fence(memory_order_seq_cst);
}

/*
 * From here on nobody kicks. Whoever wakes the process may go back to the program, or block without reading the pipe:
 * the tick that is armed here puts it to sleep again. The progress thread arms its own.
 */
void sleep_stay_awake(void)
{
	if (!rt_asleep())
		return;
	pthread_mutex_lock(&rt.state_lock);
	state_store(atomic_load(&rt.state) & ~1ull);
	pthread_mutex_unlock(&rt.state_lock);
	if (!rt_in_progress_thread())
		sleep_arm(rt_now() + TICK_NS);
}

void sleep_wake(void)
{
	if (atomic_load_explicit(&rt.running, memory_order_relaxed) && !rt_in_progress_thread())
		count_add(rt.wake);
}

void sleep_wake_if_asleep(void)
{
	atomic_thread_fence(memory_order_seq_cst);

	uint64_t state = atomic_load_explicit(&rt.state, memory_order_relaxed);

	if (!(state & 1) || atomic_load_explicit(&rt.self_kicked, memory_order_relaxed) == state)
		return;
	/* Woken first, then remembered: a second thread relies on what is remembered. */
	sleep_wake();
	atomic_store(&rt.self_kicked, state);
}

void sleep_arm(uint64_t deadline)
{
	pthread_mutex_lock(&rt.arm_lock);
	if (rt.timer >= 0 && (!rt.armed || deadline < rt.armed)) {
		struct itimerspec at = { .it_value = { .tv_sec = (time_t)(deadline / 1000000000u),
						       .tv_nsec = (long)(deadline % 1000000000u) } };

		rt.armed = deadline;
		timerfd_settime(rt.timer, TFD_TIMER_ABSTIME, &at, NULL);
	}
	pthread_mutex_unlock(&rt.arm_lock);
}

/* --- who reads the kick pipe ---------------------------------------------------------------------------------------------- */

static void watch_fd(int op, int fd, uint64_t tag)
{
	struct epoll_event watch = { .events = EPOLLIN, .data.u64 = tag };

	if (epoll_ctl(rt.epoll, op, fd, &watch) < 0 && errno != EEXIST && errno != ENOENT)
		control_debug("epoll: %s", strerror(errno));
}

/*
 * The kick pipe comes back to the progress thread when nobody is blocked; false: somebody is. Whoever lets the process
 * fall asleep sees to it: asleep without a reader of the pipe is deaf.
 */
static bool take_kick_back(void)
{
	bool mine;

	pthread_mutex_lock(&rt.state_lock);
	mine = !rt.leader;
	if (mine && !rt.kick_given && !atomic_load(&rt.kick_over)) {
		watch_fd(EPOLL_CTL_ADD, rt.kick, ON_KICK);
		rt.kick_given = true;
	}
	pthread_mutex_unlock(&rt.state_lock);
	return mine;
}

/* The daemon and all peers are gone: a pipe that hung up is readable for ever. */
static void end_kick(void)
{
	pthread_mutex_lock(&rt.state_lock);
	if (rt.kick_given)
		watch_fd(EPOLL_CTL_DEL, rt.kick, ON_KICK);
	rt.kick_given = false;
	atomic_store(&rt.kick_over, true);
	pthread_mutex_unlock(&rt.state_lock);
}

void sleep_drain_kick(void)
{
	char bytes[512];
	long n;

	do {
		n = syscall(SYS_read, rt.kick, bytes, sizeof(bytes));
	} while (n == sizeof(bytes));
	if (n == 0)
		end_kick();
}

/* True: this thread reads the kick pipe now. */
bool sleep_lead(void)
{
	bool lead;

	pthread_mutex_lock(&rt.state_lock);
	lead = !rt.leader;
	rt.leader = true;
	if (lead && rt.kick_given) {
		watch_fd(EPOLL_CTL_DEL, rt.kick, ON_KICK);
		rt.kick_given = false;
	}
	pthread_mutex_unlock(&rt.state_lock);
	return lead;
}

/*
 * Back to the program, or cancelled. Until it blocks again nobody kicks; the progress thread takes over when that takes
 * longer than a tick.
 */
void sleep_lead_end(void)
{
	uint64_t now = rt_now();

	pthread_mutex_lock(&rt.state_lock);
	rt.leader = false;
	pthread_mutex_unlock(&rt.state_lock);
	atomic_store(&rt.left_at, now);
	sleep_stay_awake();
	sleep_arm(now + TICK_NS);
}

/* --- polling ------------------------------------------------------------------------------------------------------------- */

/*
 * A program that polls again and again makes the process active; the timer then starts the ticks, so this costs no
 * wake-up. A few polls between events, as event-driven programs make them, do not add up: blocking and arming start the
 * count anew.
 */
void sleep_polled(void)
{
	unsigned n = atomic_load_explicit(&rt.flip_count, memory_order_relaxed);

	atomic_store_explicit(&rt.flip_count, n + 1, memory_order_relaxed);
	if (n == 0)
		atomic_store_explicit(&rt.flip_start, rt_now(), memory_order_relaxed);
	if (n < FLIP_POLLS && n != FLIP_SLOW)
		return;

	uint64_t now = rt_now(), took = now - atomic_load_explicit(&rt.flip_start, memory_order_relaxed);

	if (n == FLIP_SLOW && took < TICK_NS)
		return;
	atomic_store_explicit(&rt.flip_count, 0, memory_order_relaxed);
	if (took > FLIP_NS || !atomic_load_explicit(&rt.running, memory_order_relaxed))
		return;
	atomic_store(&rt.polling, true);
	sleep_stay_awake();
	sleep_arm(now + TICK_NS);
}

static void armed_round(struct soft_td *td)
{
	if (!td) {
		rt_progress();
		return;
	}
	td_enter(td);
	td_round(td, false);
	td_leave(td);
}

void rt_armed(struct soft_td *td)
{
	atomic_store_explicit(&rt.flip_count, 0, memory_order_relaxed);
	if (!atomic_load_explicit(&rt.polling, memory_order_relaxed) || !atomic_load(&rt.running)) {
		armed_round(td);
		return;
	}
	/* It polled, and goes over to events: not ten milliseconds of ticks first. */
	atomic_store(&rt.polling, false);
	take_kick_back();
	sleep_fall();
	if (progress_sweep())
		sleep_wake(); /* there may be more */
}

/* Of the progress thread: serves everything until nothing came for a while, and falls asleep. */
static void work_off(void)
{
	uint64_t start = rt_now(), now = start;
	bool more;

	do {
		uint64_t end = now + SPIN_NS;

		sleep_stay_awake();
		do {
			if (rt_work())
				end = rt_now() + SPIN_NS;
			else
				sched_yield();
			now = rt_now();
		} while (rt.many_cpus && now < end && now - start < WORK_NS && !atomic_load(&rt.stop));
		if (atomic_load(&rt.polling) || atomic_load(&rt.stop))
			return;
		if (now - start >= WORK_NS) {
			count_add(rt.wake); /* back in a moment: the daemon has events, too */
			return;
		}
		take_kick_back();
		sleep_fall();
		more = progress_sweep();
	} while (more);
}

/* --- the progress thread ------------------------------------------------------------------------------------------------------ */

static void drain_timer(void)
{
	uint64_t n;

	pthread_mutex_lock(&rt.arm_lock);
	rt.armed = 0;
	while (read(rt.timer, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	pthread_mutex_unlock(&rt.arm_lock);
}

static void drain_wake(void)
{
	uint64_t n;

	while (read(rt.wake, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

/* The program closed our fds (closefrom): their numbers are the program's now. Peers reach this process by its ticks. */
static void fds_lost(void)
{
	bool entered = rt_enter();

	pthread_mutex_lock(&rt.arm_lock);
	rt.epoll = rt.wake = rt.timer = rt.kick = rt.events = -1;
	pthread_mutex_unlock(&rt.arm_lock);
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		pair->pidfd = pair->kick = -1;
	rt_leave(entered);
	control_debug("the program closed fds of the library");
}

static unsigned tick_without_fds(void)
{
	struct timespec tick = { .tv_nsec = TICK_NS };

	if (rt.epoll >= 0)
		fds_lost();
	nanosleep(&tick, NULL);
	return ON_TIMER;
}

/* Waits for the next things to do, and a second at most: a wait that already sleeps does not notice that its fds go. */
static unsigned wait_for_work(void)
{
	struct epoll_event events[16];
	int n = epoll_wait(rt.epoll, events, 16, WAIT_MAX_MS);
	unsigned what = n == 0 ? ON_TIMER : 0;

	if (n < 0 && errno != EINTR)
		return tick_without_fds();
	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 < ON_MAX) {
			what |= (unsigned)events[i].data.u64;
			continue;
		}

		bool entered = rt_enter();

		pair_died(events[i].data.ptr);
		rt_leave(entered);
		what |= ON_WAKE;
	}
	return what;
}

void sleep_read_events(void)
{
	bool entered = rt_enter();

	if (!events_read()) {
		control_debug("the daemon is gone; connections that exist go on");
		watch_fd(EPOLL_CTL_DEL, rt.events, ON_EVENTS);
		events_lost();
		control_lost();
	}
	rt_leave(entered);
}

static void look_alive(uint64_t now)
{
	static uint64_t looked; /* the progress thread's */

	if (now - looked < ALIVE_NS)
		return;
	looked = now;

	bool entered = rt_enter();

	pair_look_alive();
	map_look();
	rt_leave(entered);
	map_reap();
}

/*
 * Threads poll for the whole process, and did so since the last tick: what they are kicked for they find, after the copy that
 * they are in just now; from here they would only be kept off their locks. If they stop, a tick finds it, two from now: as long
 * as the process is awake there is one.
 */
static bool is_polled(void)
{
	return atomic_load(&rt.polling) && !rt_asleep() && progress_is_polled();
}

/* A tick while threads poll. */
static void polling_tick(void)
{
	static uint64_t polls_then; /* the progress thread's */
	static unsigned idle_ticks;
	uint64_t polls = atomic_load_explicit(&rt.polls, memory_order_relaxed) + td_polls();

	progress_tick();
	idle_ticks = polls != polls_then ? 0 : idle_ticks + 1;
	polls_then = polls;
	if (idle_ticks < IDLE_TICKS)
		return;
	idle_ticks = 0;
	atomic_store(&rt.polling, false);
	work_off();
}

static void on_timer(void)
{
	uint64_t now = rt_now();

	look_alive(now);
	if (atomic_load(&rt.polling)) {
		take_kick_back();
		polling_tick();
	} else if (rt_asleep()) {
		/* A timer that fired has only queued its QP; and a reader of the pipe may have left since. */
		take_kick_back();
		if (progress_sweep())
			work_off();
	} else if (now - atomic_load(&rt.left_at) < TICK_NS) {
		progress_tick(); /* a program that takes one event after the other is at work */
	} else {
		work_off();
	}
}

static void arm_next(void)
{
	uint64_t next = timer_next(), due = td_next_due(), now;
	bool watch = map_any();

	pthread_mutex_lock(&rt.pairs_lock);
	for (const struct pair *pair = rt.pairs; pair && !watch; pair = pair->priv->next)
		watch = pair->priv->attached;
	pthread_mutex_unlock(&rt.pairs_lock);
	if (due && (!next || due < next))
		next = due;
	now = rt_now();
	if (watch && (!next || next > now + ALIVE_NS))
		next = now + ALIVE_NS;
	if (!rt_asleep() && (!next || next > now + TICK_NS))
		next = now + TICK_NS;
	if (next)
		sleep_arm(next);
}

void *sleep_thread(void *arg)
{
	pthread_mutex_t *alive = arg;

	atomic_store(&rt_progress_self, __builtin_thread_pointer());
	pthread_mutex_lock(alive);
	while (!atomic_load(&rt.stop)) {
		unsigned what = wait_for_work();

		if (what & ON_WAKE)
			drain_wake();
		if (what & ON_TIMER)
			drain_timer();
		if (what & ON_KICK)
			sleep_drain_kick();
		if (what & ON_EVENTS)
			sleep_read_events();
		if (what == ON_KICK && is_polled())
			what = 0;
		else if (what & ON_KICK)
			rt_count(VSD_COUNT_WAKEUPS, 1);
		if (what & (ON_WAKE | ON_KICK | ON_EVENTS) && !atomic_load(&rt.stop))
			work_off();
		if (what & ON_TIMER)
			on_timer();
		events_send();
		arm_next();
	}
	atomic_store(&rt_progress_self, NULL);
	pthread_mutex_unlock(alive);
	return NULL;
}

int sleep_init(void)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	rt.epoll = epoll < 0 ? -1 : control_fd_high(epoll);
	rt.wake = wake < 0 ? -1 : control_fd_high(wake);
	rt.timer = timer < 0 ? -1 : control_fd_high(timer);
	if (rt.epoll < 0 || rt.wake < 0 || rt.timer < 0) {
		sleep_deinit();
		return -EMFILE;
	}
	watch_fd(EPOLL_CTL_ADD, rt.wake, ON_WAKE);
	watch_fd(EPOLL_CTL_ADD, rt.timer, ON_TIMER);
	watch_fd(EPOLL_CTL_ADD, rt.events, ON_EVENTS);
	watch_fd(EPOLL_CTL_ADD, rt.kick, ON_KICK);
	rt.kick_given = true;
	atomic_store(&rt.kick_over, false);
	rt.leader = false;
	rt.armed = 0;
	atomic_store(&rt.polling, false);
	atomic_store(&rt.flip_count, 0);
	state_store(1 << 1 | 1);
	return 0;
}

void sleep_deinit(void)
{
	int *fds[] = { &rt.epoll, &rt.wake, &rt.timer };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
