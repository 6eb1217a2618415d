/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may take long, done in a thread: a registration, opening a device, destroying what a dead client left. In the loop
 * again one learns what came of it.
 *
 *	struct opening { struct job job; ... };		on the heap
 *	job_submit(server->jobs, session_queue(session), &opening->job);
 *
 * Jobs of one queue (a client's) are done one at a time, in order; of one user's queues some at a time; so whoever has
 * much to do holds up himself alone. To answer a request from a job, see later.h.
 */
#ifndef DAEMON_JOB_H
#define DAEMON_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/list.h"
#include "daemon/worker.h"

#define JOBS_RUNNING_MAX 32   /* at a time, of all users */
#define JOBS_USER_MAX	 8    /* of one */
#define JOBS_WAITING_MAX 16384 /* that have not begun */

struct job;
struct jobs;
struct loop;

/* Filled in by the caller: run and done. */
struct job {
	struct task task; /* the worker's, while it runs; then in the list of those that are over */
	struct list link; /* in its queue, until it begins */
	struct job_queue *queue;
	struct jobs *jobs;
	bool skipped; /* it was not run: the queue had ended, or the daemon does */
	/* In a thread: touches nothing but what is the job's own, and neither logs nor refuses. */
	void (*run)(struct job *job);
	/* In the loop, once, whatever became of the others; frees the job. */
	void (*done)(struct job *job);
};

/* @worker's threads do it. 0 or a negative errno. */
int jobs_new(struct loop *loop, struct worker *worker, struct jobs **jobs);
/*
 * After worker_free(): what is over is told, what never began too (skipped); what hangs is left alone. Nothing is submitted
 * any more.
 */
struct jobs *jobs_free(struct jobs *jobs);

/* A queue of @uid's; NULL: no memory. */
struct job_queue *job_queue_new(uint32_t uid);
/* Nothing more will be submitted. With @skip what has not begun is not done any more. NULL is fine. */
struct job_queue *job_queue_end(struct jobs *jobs, struct job_queue *queue, bool skip);

/*
 * 0: done() will be called, by the loop. -EAGAIN: too much waits; the job is still the caller's. Without @jobs (tests) it is
 * done here and now.
 */
int job_submit(struct jobs *jobs, struct job_queue *queue, struct job *job);

#endif
