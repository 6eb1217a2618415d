/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a queue pair of a dead client takes part in the network and pins memory. Guarantees: bounded work, whatever another
 * process does with that file meanwhile; what depends on others goes before them. Left to the kernel, which does it at the
 * last close: the context itself and its events' files, objects of a driver's own kinds, a queue pair that is in multicast
 * groups and what it stands on (the kernel refuses, and tells nobody the groups).
 *
 * Who only closed his socket to us lives on, and so does what he has.
 */
#include "daemon/remains.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/uverbs_call.h"

#define PASSES	  3
/* A process that ends closes its sockets first: so long it may take until it is dead. */
#define DYING_MS  1000
#define PAGE	  1024
#define PAGES_MAX 4096 /* of one kind in one pass */

#define NO_ANSWER UINT16_MAX

/* In the order in which they can go. */
static const struct kind {
	uint16_t object, method, handle, answer;
	uint16_t answer_size;
} kinds[] = {
	{ UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, UVERBS_ATTR_DESTROY_FLOW_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_ATTR_DESTROY_QP_RESP, 4 },
	{ UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, UVERBS_ATTR_DESTROY_WQ_HANDLE, UVERBS_ATTR_DESTROY_WQ_RESP, 4 },
	{ UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_ATTR_DESTROY_SRQ_RESP, 4 },
	{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_ATTR_DESTROY_CQ_RESP, 8 },
	{ UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_ATTR_DESTROY_MR_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, UVERBS_ATTR_FREE_DM_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, UVERBS_ATTR_DESTROY_XRCD_HANDLE, NO_ANSWER, 0 },
	{ UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE, NO_ANSWER, 0 },
};

/* Some of the handles of a kind. How many. */
static unsigned list(int fd, uint32_t driver, const struct kind *kind, uint32_t handles[PAGE])
{
	struct uverbs_call call;
	uint32_t n = 0;

	uverbs_call_init(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, driver);
	uverbs_call_value(&call, UVERBS_ATTR_INFO_OBJECT_ID, kind->object, sizeof(uint64_t));
	uverbs_call_out(&call, UVERBS_ATTR_INFO_TOTAL_HANDLES, &n, sizeof(n));
	uverbs_call_out(&call, UVERBS_ATTR_INFO_HANDLES_LIST, handles, PAGE * sizeof(handles[0]));
	if (uverbs_call_make(&call, fd) < 0)
		return 0;
	return n < PAGE ? n : PAGE;
}

static int destroy(int fd, uint32_t driver, const struct kind *kind, uint32_t handle)
{
	struct uverbs_call call;
	uint64_t answer;

	uverbs_call_init(&call, kind->object, kind->method, driver);
	uverbs_call_handle(&call, kind->handle, handle);
	if (kind->answer != NO_ANSWER)
		uverbs_call_out(&call, kind->answer, &answer, kind->answer_size);
	return uverbs_call_make(&call, fd);
}

/* How many of that kind are left. */
static unsigned destroy_kind(int fd, uint32_t driver, const struct kind *kind)
{
	uint32_t handles[PAGE];
	unsigned n = 0;

	for (unsigned page = 0; page < PAGES_MAX; page++) {
		unsigned gone = 0;

		n = list(fd, driver, kind, handles);
		for (unsigned i = 0; i < n; i++)
			gone += destroy(fd, driver, kind, handles[i]) == 0;
		if (n == 0 || gone == 0)
			break;
	}
	return n;
}

unsigned remains_destroy(int fd, uint32_t driver)
{
	unsigned left = 0;

	/* One that is in use may be the last one's reason, or be free a moment later. */
	for (unsigned pass = 0; pass < PASSES; pass++) {
		left = 0;
		for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			left += destroy_kind(fd, driver, &kinds[i]);
		if (left == 0)
			break;
	}
	return left;
}

struct leaving {
	struct job job;
	int fd, pidfd; /* ours; pidfd -1: it counts as dead */
	uint32_t driver;
	int wait;
	bool dead;
	unsigned left;
	struct charge charge, fds_charge; /* the client's, until this is over */
	char who[128];
};

static void run(struct job *job)
{
	struct leaving *leaving = container_of(job, struct leaving, job);
	struct pollfd dead = { .fd = leaving->pidfd, .events = POLLIN };

	leaving->dead = leaving->pidfd < 0 || poll(&dead, 1, leaving->wait) == 1;
	if (leaving->dead)
		leaving->left = remains_destroy(leaving->fd, leaving->driver);
	close(leaving->fd);
	leaving->fd = -1;
}

static void done(struct job *job)
{
	struct leaving *leaving = container_of(job, struct leaving, job);

	if (leaving->left)
		log_info("%s: %u objects or more stay until the last process ends that has its file", leaving->who, leaving->left);
	cleanup_close(&leaving->fd);
	cleanup_close(&leaving->pidfd);
	charge_release(&leaving->charge);
	charge_release(&leaving->fds_charge);
	free(leaving);
}

void remains_leave(struct session *session, struct native *native)
{
	struct server *server = session->server;
	struct job_queue *queue = session_queue(session);
	bool wanted = session->reason == GONE_ADMIN || session->pidfd >= 0;
	struct leaving *leaving = native->fd >= 0 && wanted && !server->ending ? calloc(1, sizeof(*leaving)) : NULL;

	if (!leaving)
		return;
	*leaving = (struct leaving){
		.job = { .run = run, .done = done },
		.fd = fcntl(native->fd, F_DUPFD_CLOEXEC, 0),
		.pidfd = session->reason == GONE_ADMIN ? -1 : fcntl(session->pidfd, F_DUPFD_CLOEXEC, 0),
		.driver = native->driver,
		.charge = native->charge,
		.fds_charge = native->fds_charge,
		.wait = server->jobs ? DYING_MS : 0,
	};
	snprintf(leaving->who, sizeof(leaving->who), "client %llu (pid %d, uid %u): %s", (unsigned long long)session->id,
		(int)session->pid, session->uid, native->device);
	native->charge = native->fds_charge = (struct charge)CHARGE_NULL;
	if (leaving->fd < 0 || !queue || (leaving->pidfd < 0 && session->reason != GONE_ADMIN) ||
		job_submit(server->jobs, queue, &leaving->job) < 0)
		done(&leaving->job);
}
