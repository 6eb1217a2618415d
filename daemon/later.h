/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A request that is answered when a job of its own is over. A handler that finds that the rest takes long puts what it needs
 * into a struct around this one and ends with
 *
 *	return call_later(call, &opening->later);
 *
 * Meanwhile no other request of that session is read. The fds that run() uses are to be the job's own (dups): the session
 * may go at any time.
 */
#ifndef DAEMON_LATER_H
#define DAEMON_LATER_H

#include "daemon/job.h"
#include "proto/frame.h"

struct call;
struct method;
struct session;

/* What a handler returns whose answer comes later. */
#define CALL_LATER 1

/* Filled in by the caller: run, finish, drop. */
struct later {
	struct job job;
	struct session *session; /* NULL: it is gone */
	struct frame_header header;
	const struct method *method;
	/* In a thread; what comes of it stays in the struct around this one. See job.h. */
	void (*run)(struct later *later);
	/* In the loop, as a handler, unless the session is gone or the job was not run: what it returns is the answer. */
	int (*finish)(struct later *later, struct call *call);
	/* In the loop, at the end: frees the struct around this one, and undoes what no finish() has taken over. */
	void (*drop)(struct later *later);
};

/* Takes @later over, whatever comes of it. What the handler returns. */
int call_later(struct call *call, struct later *later);
/* The session is gone: nobody waits for the answer. */
void later_orphan(struct later *later);

#endif
