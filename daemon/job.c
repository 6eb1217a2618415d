/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: some calls of the kernel take as long as their argument is large, or as a driver likes, and the loop has other
 * clients. Guarantees: all that is decided here is decided in the loop's thread; a thread has a job to itself, and hands it
 * back by one list; a job's done() is called once, and never while its run() is.
 */
#include "daemon/job.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/list.h"
#include "daemon/loop.h"

struct jobs {
	struct worker *worker;
	struct watch watch;
	int fd;		   /* the threads wake the loop by it */
	struct list ready; /* queues with something to begin */
	unsigned running, waiting;
	struct job_queue *active[JOBS_RUNNING_MAX]; /* whose jobs run */
	pthread_mutex_t lock;
	struct task *over; /* under the lock: the last one first */
};

struct job_queue {
	struct list link; /* in the ready ones */
	struct list jobs; /* that have not begun */
	uint32_t uid;
	bool busy;  /* one runs */
	bool ended; /* its owner is gone */
};

struct job_queue *job_queue_new(uint32_t uid)
{
	struct job_queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return NULL;
	list_init(&queue->link);
	list_init(&queue->jobs);
	queue->uid = uid;
	return queue;
}

static void queue_put(struct job_queue *queue)
{
	if (!queue->ended || queue->busy || !list_empty(&queue->jobs))
		return;
	list_remove(&queue->link);
	free(queue);
}

static struct job *job_of(struct task *task)
{
	return container_of(task, struct job, task);
}

/* In a thread. */
static void run(struct task *task)
{
	struct job *job = job_of(task);
	struct jobs *jobs = job->jobs;
	uint64_t one = 1;

	job->run(job);
	pthread_mutex_lock(&jobs->lock);
	task->next = jobs->over;
	jobs->over = task;
	/* A counter that is full wakes as well. */
	(void)!write(jobs->fd, &one, sizeof(one));
	pthread_mutex_unlock(&jobs->lock);
}

static unsigned running_of(const struct jobs *jobs, uint32_t uid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < jobs->running; i++)
		n += jobs->active[i]->uid == uid;
	return n;
}

/* The first queue whose user has not too many at work. */
static struct job_queue *choose(const struct jobs *jobs)
{
	list_for_each (pos, &jobs->ready) {
		struct job_queue *queue = container_of(pos, struct job_queue, link);

		if (running_of(jobs, queue->uid) < JOBS_USER_MAX)
			return queue;
	}
	return NULL;
}

static struct job *take(struct jobs *jobs, struct job_queue *queue)
{
	struct job *job = container_of(queue->jobs.next, struct job, link);

	list_remove(&job->link);
	jobs->waiting--;
	return job;
}

static void pump(struct jobs *jobs)
{
	struct job_queue *queue;

	while (jobs->worker && jobs->running < JOBS_RUNNING_MAX && (queue = choose(jobs))) {
		struct job *job = take(jobs, queue);

		list_remove(&queue->link);
		queue->busy = true;
		jobs->active[jobs->running++] = queue;
		job->task.run = run;
		worker_run(jobs->worker, &job->task);
	}
}

static void skip(struct jobs *jobs, struct job_queue *queue)
{
	while (!list_empty(&queue->jobs)) {
		struct job *job = take(jobs, queue);

		job->skipped = true;
		job->done(job);
	}
}

static void over(struct jobs *jobs, struct job *job)
{
	struct job_queue *queue = job->queue;
	unsigned i = 0;

	while (jobs->active[i] != queue)
		i++;
	jobs->active[i] = jobs->active[--jobs->running];
	queue->busy = false;
	if (!list_empty(&queue->jobs))
		list_append(&jobs->ready, &queue->link);
	job->done(job);
	queue_put(queue);
}

/* In the order in which they were over. */
static void take_back(struct jobs *jobs)
{
	struct task *task, *turned = NULL;

	pthread_mutex_lock(&jobs->lock);
	task = jobs->over;
	jobs->over = NULL;
	pthread_mutex_unlock(&jobs->lock);
	while (task) {
		struct task *next = task->next;

		task->next = turned;
		turned = task;
		task = next;
	}
	while (turned) {
		task = turned;
		turned = turned->next;
		over(jobs, job_of(task));
	}
}

static void woken(void *data, unsigned ready)
{
	struct jobs *jobs = data;
	uint64_t n;

	(void)ready;
	(void)!read(jobs->fd, &n, sizeof(n));
	take_back(jobs);
	pump(jobs);
}

int jobs_new(struct loop *loop, struct worker *worker, struct jobs **jobs)
{
	struct jobs *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	made->worker = worker;
	made->watch = (struct watch)WATCH_NULL;
	list_init(&made->ready);
	pthread_mutex_init(&made->lock, NULL);
	made->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = made->fd < 0 ? -errno : watch_init(&made->watch, loop, made->fd, woken, made);
	if (r == 0)
		r = watch_set(&made->watch, LOOP_READ);
	if (r < 0) {
		jobs_free(made);
		return r;
	}
	*jobs = made;
	return 0;
}

struct jobs *jobs_free(struct jobs *jobs)
{
	if (!jobs)
		return NULL;
	/* What is over may ask for more, which is not begun any more. */
	jobs->worker = NULL;
	take_back(jobs);
	while (!list_empty(&jobs->ready)) {
		struct job_queue *queue = container_of(jobs->ready.next, struct job_queue, link);

		list_remove(&queue->link);
		skip(jobs, queue);
		queue_put(queue);
	}
	watch_deinit(&jobs->watch);
	/* Who hangs comes back to it when that ends. */
	if (jobs->running > 0)
		return NULL;
	if (jobs->fd >= 0)
		close(jobs->fd);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
	return NULL;
}

struct job_queue *job_queue_end(struct jobs *jobs, struct job_queue *queue, bool skipping)
{
	if (!queue)
		return NULL;
	queue->ended = true;
	if (jobs && skipping) {
		list_remove(&queue->link);
		skip(jobs, queue);
	}
	queue_put(queue);
	return NULL;
}

int job_submit(struct jobs *jobs, struct job_queue *queue, struct job *job)
{
	job->skipped = false;
	list_init(&job->link);
	if (!jobs) {
		job->run(job);
		job->done(job);
		return 0;
	}
	assert(!queue->ended);
	if (jobs->waiting >= JOBS_WAITING_MAX)
		return -EAGAIN;
	job->jobs = jobs;
	job->queue = queue;
	if (list_empty(&queue->jobs) && !queue->busy)
		list_append(&jobs->ready, &queue->link);
	list_append(&queue->jobs, &job->link);
	jobs->waiting++;
	pump(jobs);
	return 0;
}
