/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that blocks for an event. One that does is the one that reads the kick pipe, and makes the process's progress when it
 * is kicked (datapath.md 5): one wake-up from a peer's message to the program.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/poll.h>

#include "client/soft/rt_private.h"

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) != 0; /* an error too: the caller's read() says which */
}

/*
 * About one wake-up's length of progress before sleeping, for as long as that helps; then now and then, to see whether it does
 * again. Where this process has one processor of several, whoever it waits for may need that one.
 */
static bool block_spin(int fd)
{
	bool spins = spin_begin(&rt.spin);
	uint64_t end = rt_now() + SPIN_NS;
	bool found, first = true;

	sleep_stay_awake();
	do {
		for (unsigned i = 0; i < LOOK_ROUNDS; i++)
			if (rt_work())
				break;
		found = readable(fd);
		if (found || !spins)
			break;
		if (!rt.many_cpus)
			sched_yield();
		first = false;
	} while (rt_now() < end);
	if (spins && !(found && first))
		spin_end(&rt.spin, found);
	return found;
}

static const int fault_signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };

/*
 * poll(2) is never restarted; read(2) on a uverbs file would be, if the handler asks for it. Which one ran is not known:
 * all have to ask, but for those of faults (sanitizers and crash reporters have them).
 */
static bool restarts(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	for (size_t i = 0; i < sizeof(fault_signals) / sizeof(fault_signals[0]); i++)
		sigaddset(&faults, fault_signals[i]);
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction action;

		if (sigismember(&faults, sig) || sigaction(sig, NULL, &action) < 0)
			continue;
		if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && !(action.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

/* Cancellation is allowed here alone: not between the read of the pipe and the end of what it asks for. */
static int poll_cancellable(struct pollfd *p, nfds_t n, int cancel)
{
	int ready;

	pthread_setcancelstate(cancel, NULL);
	ready = poll(p, n, -1);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return ready;
}

static int block_sleep(int fd, bool lead, int cancel)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
				       { .fd = atomic_load(&rt.kick_over) ? -1 : rt.kick, .events = POLLIN } };

		if (lead && !atomic_load(&rt.polling)) {
			sleep_fall();
			while (progress_sweep())
				sched_yield(); /* who holds the lock of a QP may need this CPU */
		}

		int n = poll_cancellable(p, lead ? 2 : 1, cancel);

		if (n < 0 && !(errno == EINTR && restarts()))
			return -1;
		if (n > 0 && p[0].revents)
			return 0;
		if (n > 0 && p[1].revents) {
			sleep_drain_kick();
			rt_count(VSD_COUNT_WAKEUPS, 1);
			if (block_spin(fd))
				return 0;
		}
	}
}

/* Back to the program, or cancelled. */
static void block_end(void *lead)
{
	if (*(bool *)lead)
		sleep_lead_end();
}

int rt_block(int fd)
{
	atomic_store_explicit(&rt.flip_count, 0, memory_order_relaxed);
	if (!atomic_load(&rt.running)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		return poll(&p, 1, -1) < 0 ? -1 : 0;
	}

	int cancel, r = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (!block_spin(fd)) {
		bool lead = sleep_lead();

		pthread_cleanup_push(block_end, &lead);
		r = block_sleep(fd, lead, cancel);
		pthread_cleanup_pop(1);
	}
	pthread_setcancelstate(cancel, NULL);
	return r;
}
