/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an answer belongs to its request however long that takes, and a client that dies meanwhile must not leave anything
 * behind. Guarantees: one answer for each request; drop() is called once for each.
 */
#include "daemon/later.h"

#include <errno.h>

#include "daemon/dispatch.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"

static struct later *later_of(struct job *job)
{
	return container_of(job, struct later, job);
}

static void run(struct job *job)
{
	struct later *later = later_of(job);

	later->run(later);
}

static void done(struct job *job)
{
	struct later *later = later_of(job);
	struct session *session = later->session;

	if (session) {
		session->later = NULL;
		dispatch_later(session, later, job->skipped);
	}
	later->drop(later);
}

void later_orphan(struct later *later)
{
	later->session->later = NULL;
	later->session = NULL;
}

/* Without threads it is a handler like any other. */
static int at_once(struct call *call, struct later *later)
{
	int r;

	later->run(later);
	r = later->finish(later, call);
	later->drop(later);
	return r;
}

int call_later(struct call *call, struct later *later)
{
	struct session *session = call->session;
	struct job_queue *queue;
	int r = -ENOMEM;

	if (!call->server->jobs)
		return at_once(call, later);
	later->session = session;
	later->header = *call->header;
	later->method = call->method;
	later->job.run = run;
	later->job.done = done;
	session->later = later;
	queue = session_queue(session);
	if (queue)
		r = job_submit(call->server->jobs, queue, &later->job);
	if (r == 0)
		return CALL_LATER;
	session->later = NULL;
	later->drop(later);
	return refuse(r, "too many requests that take long");
}
