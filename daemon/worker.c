/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: freeing a memfd takes 62 ms per GiB, the last close of what a hostile client chose as long as he likes, and the
 * loop has other clients. Guarantees: what was handed over is begun in order, and done before worker_free() returns
 * unless it hangs; a thread that hangs holds up nobody, for another one comes in its place; threads touch no daemon
 * state: they run this file's code, and tasks (job.c), which have a thread to themselves.
 */
#include "daemon/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "proto/fdlist.h"

#define THREADS	    2
#define THREADS_MAX 512
#define STACK	    65536
/* So long may all be busy, with more to do, before another one is started. */
#define STUCK_MS 100
/* So long is waited for those that hang at the end. */
#define END_SECONDS 2

struct worker {
	pthread_mutex_t lock;
	pthread_cond_t more;
	pthread_cond_t fewer;
	unsigned threads; /* that run */
	unsigned idle;	  /* of them, that wait for work */
	struct task *tasks, **last; /* those that have not begun */
	unsigned n_tasks;
	int *fds;	  /* a ring; what is in it is open, so the limit of fds bounds it */
	unsigned size, first, n;
	uint64_t taken; /* when the last one was, or the first one of all came */
	bool ends;
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Both with the lock, which they give up for as long as the work takes. */
static void run_task(struct worker *worker)
{
	struct task *task = worker->tasks;

	worker->tasks = task->next;
	if (!worker->tasks)
		worker->last = &worker->tasks;
	worker->n_tasks--;
	pthread_mutex_unlock(&worker->lock);
	task->run(task);
	pthread_mutex_lock(&worker->lock);
}

static void run_close(struct worker *worker)
{
	int fd = worker->fds[worker->first];

	worker->first = (worker->first + 1) % worker->size;
	worker->n--;
	worker->taken = now_ms();
	pthread_mutex_unlock(&worker->lock);
	close(fd);
	pthread_mutex_lock(&worker->lock);
}

/* Somebody waits for a task, and for a close() nobody. False: this thread is one too many, or all end. */
static bool work_once(struct worker *worker)
{
	if (worker->tasks) {
		run_task(worker);
		return true;
	}
	if (worker->n > 0) {
		run_close(worker);
		return true;
	}
	if (worker->ends || worker->idle >= THREADS)
		return false;
	worker->idle++;
	pthread_cond_wait(&worker->more, &worker->lock);
	worker->idle--;
	return true;
}

static void *work(void *data)
{
	struct worker *worker = data;

	pthread_mutex_lock(&worker->lock);
	while (work_once(worker))
		;
	worker->threads--;
	pthread_cond_signal(&worker->fewer);
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* One more thread; the lock is held. */
static int start(struct worker *worker)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
#ifndef VERBSD_SANITIZED
	pthread_attr_setstacksize(&attr, STACK);
#endif
	/* Signals are the loop's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, work, worker);
	worker->threads += r == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

int worker_new(struct worker **worker)
{
	struct worker *made = calloc(1, sizeof(*made));
	pthread_condattr_t attr;
	int r = 0;

	if (!made)
		return -ENOMEM;
	made->last = &made->tasks;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->more, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&made->fewer, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&made->lock);
	for (unsigned i = 0; i < THREADS && r == 0; i++)
		r = start(made);
	pthread_mutex_unlock(&made->lock);
	if (r < 0) {
		worker_free(made);
		return r;
	}
	*worker = made;
	return 0;
}

struct worker *worker_free(struct worker *worker)
{
	struct timespec until;
	int r = 0;

	if (!worker)
		return NULL;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += END_SECONDS;
	pthread_mutex_lock(&worker->lock);
	worker->ends = true;
	pthread_cond_broadcast(&worker->more);
	while (worker->threads > 0 && r == 0)
		r = pthread_cond_timedwait(&worker->fewer, &worker->lock, &until);
	pthread_mutex_unlock(&worker->lock);
	/* Who hangs still looks at it when that ends. */
	if (r != 0)
		return NULL;
	pthread_cond_destroy(&worker->more);
	pthread_cond_destroy(&worker->fewer);
	pthread_mutex_destroy(&worker->lock);
	free(worker->fds);
	free(worker);
	return NULL;
}

static bool grow(struct worker *worker)
{
	unsigned size = worker->size ? worker->size * 2 : 64;
	int *fds = reallocarray(NULL, size, sizeof(*fds));

	if (!fds)
		return false;
	for (unsigned i = 0; i < worker->n; i++)
		fds[i] = worker->fds[(worker->first + i) % worker->size];
	free(worker->fds);
	worker->fds = fds;
	worker->size = size;
	worker->first = 0;
	return true;
}

static bool queue(struct worker *worker, int fd)
{
	if (worker->n == worker->size && !grow(worker))
		return false;
	if (worker->n == 0)
		worker->taken = now_ms();
	else if (now_ms() - worker->taken > STUCK_MS && worker->threads < THREADS_MAX && start(worker) == 0)
		worker->taken = now_ms();
	worker->fds[(worker->first + worker->n++) % worker->size] = fd;
	pthread_cond_signal(&worker->more);
	return true;
}

void worker_run(struct worker *worker, struct task *task)
{
	pthread_mutex_lock(&worker->lock);
	task->next = NULL;
	*worker->last = task;
	worker->last = &task->next;
	worker->n_tasks++;
	/* Who was woken and has not come yet still counts as idle: better a thread too many than one that waits for a close(). */
	if (worker->idle < worker->n_tasks + worker->n && worker->threads < THREADS_MAX)
		(void)start(worker);
	pthread_cond_signal(&worker->more);
	pthread_mutex_unlock(&worker->lock);
}

void worker_close(struct worker *worker, int fd)
{
	bool queued = false;

	if (fd < 0)
		return;
	if (worker) {
		pthread_mutex_lock(&worker->lock);
		queued = queue(worker, fd);
		pthread_mutex_unlock(&worker->lock);
	}
	if (!queued)
		close(fd);
}

void worker_close_list(struct worker *worker, struct fdlist *fds)
{
	for (size_t i = 0; i < fds->n; i++)
		worker_close(worker, fdlist_steal(fds, i));
	*fds = (struct fdlist)FDLIST_NULL;
}
