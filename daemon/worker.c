/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: freeing a memfd takes 62 ms per GiB, and the loop has other clients. Guarantees: what was handed over is done,
 * in order, before worker_free() returns; threads run no code but this file's and touch no daemon state.
 */
#include "daemon/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS   2
#define QUEUE_MAX 1024

struct worker {
	pthread_mutex_t lock;
	pthread_cond_t more;
	pthread_t threads[THREADS];
	unsigned n_threads;
	int fds[QUEUE_MAX]; /* a ring */
	unsigned first, n;
	bool ends;
};

static void *work(void *data)
{
	struct worker *worker = data;

	pthread_mutex_lock(&worker->lock);
	for (;;) {
		while (worker->n == 0 && !worker->ends)
			pthread_cond_wait(&worker->more, &worker->lock);
		if (worker->n == 0)
			break;
		int fd = worker->fds[worker->first];

		worker->first = (worker->first + 1) % QUEUE_MAX;
		worker->n--;
		pthread_mutex_unlock(&worker->lock);
		close(fd);
		pthread_mutex_lock(&worker->lock);
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

static int start(struct worker *worker)
{
	sigset_t all, old;
	int r = 0;

	/* Signals are the loop's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < THREADS && r == 0; i++) {
		r = pthread_create(&worker->threads[i], NULL, work, worker);
		worker->n_threads += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return worker->n_threads > 0 ? 0 : -r;
}

int worker_new(struct worker **worker)
{
	struct worker *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->more, NULL);
	r = start(made);
	if (r < 0) {
		worker_free(made);
		return r;
	}
	*worker = made;
	return 0;
}

struct worker *worker_free(struct worker *worker)
{
	if (!worker)
		return NULL;
	pthread_mutex_lock(&worker->lock);
	worker->ends = true;
	pthread_cond_broadcast(&worker->more);
	pthread_mutex_unlock(&worker->lock);
	for (unsigned i = 0; i < worker->n_threads; i++)
		pthread_join(worker->threads[i], NULL);
	pthread_cond_destroy(&worker->more);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return NULL;
}

void worker_close(struct worker *worker, int fd)
{
	bool queued = false;

	if (fd < 0)
		return;
	if (worker) {
		pthread_mutex_lock(&worker->lock);
		if (worker->n < QUEUE_MAX) {
			worker->fds[(worker->first + worker->n++) % QUEUE_MAX] = fd;
			pthread_cond_signal(&worker->more);
			queued = true;
		}
		pthread_mutex_unlock(&worker->lock);
	}
	if (!queued)
		close(fd);
}
