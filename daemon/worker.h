/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A few threads for what may take long, such as the last close of a large memfd, or for ever.
 */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H

struct fdlist;
struct worker;

/* Part of something bigger, which is the thread's while it runs; job.h is the way to use it. */
struct task {
	struct task *next;
	void (*run)(struct task *task);
};

int worker_new(struct worker **worker);
/* Waits until everything was done, or hangs. */
struct worker *worker_free(struct worker *worker);
/*
 * Runs @task in a thread, at once: it waits for no close() and no other task, as long as there may be more threads.
 */
void worker_run(struct worker *worker, struct task *task);
/* Closes @fd (may be -1) in a thread; at once when @worker is NULL or there is no memory. */
void worker_close(struct worker *worker, int fd);
/* All of @fds, which is empty then. */
void worker_close_list(struct worker *worker, struct fdlist *fds);

#endif
