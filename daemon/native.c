/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a client's own driver does everything on a real device but open it. Guarantees: one file for one client; charged
 * before it is opened; the kernel frees what the client had when its last file is closed, which is ours at the latest at
 * its death; a withdrawn grant stops the next open, never an open context.
 */
#include "daemon/native.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/backend_ibv.h"
#include "daemon/cleanup.h"
#include "daemon/dispatch.h"
#include "daemon/fd.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/native_domain.h"
#include "daemon/native_region.h"
#include "daemon/policy.h"
#include "daemon/refuse.h"
#include "daemon/remains.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/worker.h"

#define REPORT_MS   10000
#define OFFERED_MAX 16 /* nodes of one user; each has a process at the gate */

static unsigned count_of(const struct server *server, uid_t uid, const char *grant)
{
	unsigned n = 0;

	list_for_each (pos, &server->natives) {
		const struct native *native = container_of(pos, struct native, everyone);

		n += native->uid == uid && strcmp(native->grant, grant) == 0 && native->index != UINT32_MAX;
	}
	return n;
}

static unsigned count_offered(const struct server *server, uid_t uid)
{
	unsigned n = 0;

	list_for_each (pos, &server->natives) {
		const struct native *native = container_of(pos, struct native, everyone);

		n += native->uid == uid && !native->reported;
	}
	return n;
}

unsigned native_count(const struct server *server, const char *device)
{
	unsigned n = 0;

	list_for_each (pos, &server->natives)
		n += strcmp(container_of(pos, struct native, everyone)->device, device) == 0;
	return n;
}

/*
 * The client dies with what it registers itself, so its own limit is the one that helps. What it is now; 0: it cannot be
 * known.
 */
static uint64_t raise_memlock(const struct session *session, uint64_t bytes)
{
	struct pollfd dead = { .fd = session->pidfd, .events = POLLIN };
	struct rlimit limit;
	uint64_t was;

	/* A pid is this client's only while it lives. */
	if (session->pidfd < 0 || poll(&dead, 1, 0) != 0 || prlimit(session->pid, RLIMIT_MEMLOCK, NULL, &limit) < 0)
		return 0;
	was = limit.rlim_cur;
	if (was >= bytes)
		return was;
	limit.rlim_cur = bytes;
	if (limit.rlim_max < bytes)
		limit.rlim_max = bytes;
	if (poll(&dead, 1, 0) != 0)
		return was;
	if (prlimit(session->pid, RLIMIT_MEMLOCK, &limit, NULL) == 0)
		return bytes;
	log_warning("pid %d: its memory lock limit cannot be raised: %m", (int)session->pid);
	return was;
}

bool native_raise_memlock(const struct native *native, uint64_t bytes)
{
	return raise_memlock(native->session, native->memlock) >= bytes;
}

/* Our own node first: the host's may be closed to us. Without a place for one, what everybody may open. */
int native_open_file(const char *nodes, const char *path, dev_t rdev)
{
	int fd = node_open(nodes, rdev), r;
	struct stat st;

	if (fd >= 0 || fd == -ENFILE)
		return fd;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != rdev ? -ENXIO : 0;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

bool native_needs_node(const struct native_want *want)
{
	return !want->device || (real_device_needs_opener(want->device) && !want->rdwr);
}

static void taken_back(struct native *native)
{
	timer_deinit(&native->late);
	gate_end(&native->gate);
	node_take_back(&native->node);
}

/* --- waiting for the file -------------------------------------------------------------------------------------------- */

struct waiting {
	struct later later;
	uint32_t native;
};

static int wait_finish(struct later *later, struct call *call)
{
	const struct waiting *waiting = container_of(later, struct waiting, later);
	const struct native *native = native_get(call->session, waiting->native);

	return native && native->reported ? 0 : refuse(-EINVAL, "no file came for real context %u", waiting->native);
}

static void wait_drop(struct later *later)
{
	free(container_of(later, struct waiting, later));
}

int native_await(struct call *call, struct native *native, struct later *later)
{
	later->session = call->session;
	later->header = *call->header;
	later->method = call->method;
	call->session->later = native->waiter = later;
	return CALL_LATER;
}

int native_wait(struct call *call, struct native *native)
{
	struct waiting *waiting;

	if (native->reported)
		return 0;
	waiting = calloc(1, sizeof(*waiting));
	if (!waiting)
		return -ENOMEM;
	waiting->native = native->id;
	waiting->later.finish = wait_finish;
	waiting->later.drop = wait_drop;
	return native_await(call, native, &waiting->later);
}

static void wait_end(struct native *native)
{
	struct later *later = native->waiter;

	native->waiter = NULL;
	if (!later)
		return;
	if (later->session) {
		later->session->later = NULL;
		dispatch_later(later->session, later, false);
	}
	later->drop(later);
}

/* Whoever waits for it is told why. */
static void fail(struct native *native, int r)
{
	native->failed = r;
	wait_end(native);
	native_close(native);
}

static void started(void *data, int r)
{
	struct native *native = data;

	if (r < 0) {
		fail(native, r);
		return;
	}
	/* From here on it is the client who takes his time. */
	timer_set(&native->late, REPORT_MS);
	wait_end(native);
}

static void reported(void *data, int fd)
{
	struct native *native = data;

	taken_back(native);
	if (fd < 0) {
		session_log(native->session, LOG_LEVEL_WARNING, MSG_CLIENT_MISBEHAVED,
			"%s: the file that it reported is not what it was given: %s", native->device, strerror(-fd));
		native_close(native);
		return;
	}
	native->reported = true;
	native->fd = fd;
	wait_end(native);
	/* With the connection manager there is nothing that we could do. */
	if (native->index == UINT32_MAX)
		native_close(native);
}

static void late(void *data)
{
	struct native *native = data;

	session_log(native->session, LOG_LEVEL_WARNING, NULL,
		native->gate.starting ? "%s: no process came to its gate in %d s" : "%s: it did not open its node in %d s",
		native->device, REPORT_MS / 1000);
	fail(native, -ETIMEDOUT);
}

static int offer_rdwr(struct native *native, const struct native_want *want, struct fdlist *fds)
{
	native->fd = fcntl(want->fd, F_DUPFD_CLOEXEC, 0);
	if (native->fd < 0)
		return -errno;
	if (!fd_fits(native->fd))
		return -ENFILE;
	native->reported = true;
	return fdlist_dup(fds, native->fd);
}

static int offer_path(struct native *native, const struct native_want *want, struct fdlist *fds)
{
	struct server *server = native->session->server;
	const struct gate_owner owner = { .loop = server->loop,
		.jobs = server->jobs,
		.uid = native->uid,
		.started = started,
		.done = reported,
		.data = native };
	struct gate_want file;
	int client, r;

	r = node_new(server->nodes, want->rdev, native->uid, &native->node);
	if (r < 0)
		return refuse(r, "no node can be made in %s", server->nodes);
	file = (struct gate_want){ .dev = native->node.dev, .ino = native->node.ino, .rdev = want->rdev };
	r = gate_start(&native->gate, &owner, &file, &client);
	if (r < 0)
		return r;
	r = fdlist_dup(fds, native->node.path);
	if (r == 0)
		r = fdlist_consume(fds, client);
	else
		close(client);
	if (r == 0)
		r = timer_init(&native->late, server->loop, late, native);
	if (r == 0)
		timer_set(&native->late, REPORT_MS);
	return r;
}

static int charge(struct native *native, const struct native_want *want)
{
	struct session *session = native->session;
	int r;

	/* The connection manager's files are no contexts, and not kept. */
	if (want->device && count_of(session->server, session->uid, want->grant->name) >= want->grant->contexts)
		return refuse_quota(-ENOMEM, "contexts in its grant");
	if (native->mode == NATIVE_PATH && count_offered(session->server, session->uid) >= OFFERED_MAX)
		return refuse_quota(-EAGAIN, "nodes that wait to be opened");
	r = charge_take(&native->charge, &session->domain->account, SLOT_REAL_CONTEXTS, 1);
	if (r < 0)
		return r;
	/* The device; or node and the gate's socket, of which one is left. */
	return charge_take(&native->fds_charge, &session->domain->account, SLOT_FDS, 2);
}

int native_open(struct session *session, const struct native_want *want, struct fdlist *fds, struct native **native)
{
	const struct real_device *device = want->device;
	struct native *made = calloc(1, sizeof(*made));
	bool path = native_needs_node(want);
	int r;

	if (!made)
		return -ENOMEM;
	*made = (struct native){
		.session = session,
		.uid = session->uid,
		.index = device ? device->index : UINT32_MAX,
		.driver = device ? device->driver : 0,
		.mode = path ? NATIVE_PATH : NATIVE_RDWR,
		.node = NODE_NULL,
		.gate = GATE_NULL,
		.late = TIMER_NULL,
		.fd = -1,
		.memlock = want->grant->memlock,
	};
	list_init(&made->link);
	list_init(&made->everyone);
	list_init(&made->regions);
	snprintf(made->device, sizeof(made->device), "%s", device ? device->name : "rdma_cm");
	snprintf(made->grant, sizeof(made->grant), "%s", want->grant->name);
	r = charge(made, want);
	if (r == 0)
		r = path ? offer_path(made, want, fds) : offer_rdwr(made, want, fds);
	if (r < 0) {
		native_close(made);
		return r;
	}
	(void)raise_memlock(session, want->grant->memlock);
	if (want->shared)
		native_domain_join(want->shared, made);
	made->id = ++session->last_native;
	list_append(&session->natives, &made->link);
	list_append(&session->server->natives, &made->everyone);
	*native = made;
	return 0;
}

struct native *native_get(const struct session *session, uint32_t id)
{
	list_for_each (pos, &session->natives) {
		struct native *native = container_of(pos, struct native, link);

		if (native->id == id)
			return native;
	}
	return NULL;
}

void native_close(struct native *native)
{
	taken_back(native);
	/* What is in a domain's file may be anybody's. */
	if (native->session->state == SESSION_LOST && !native->shared)
		remains_leave(native->session, native);
	/* The kernel frees all that the client made there, which for a large region takes a while. */
	native_regions_end(native, native->fd);
	native_domain_leave(native);
	list_remove(&native->link);
	wait_end(native);
	charge_release(&native->charge);
	charge_release(&native->fds_charge);
	list_remove(&native->everyone);
	free(native);
}

static bool still_granted(const struct native *native)
{
	const struct server *server = native->session->server;
	const struct real_device *device = real_device_find(&server->real, native->device);
	struct policy_client client;
	bool granted = false;

	if (policy_client_init(&client, native->session) < 0)
		return false;
	if (native->index == UINT32_MAX)
		granted = policy_rdma_cm(server->config, &client.who) != NULL;
	else if (device)
		granted = policy_device(server->config, &client.who, device->name, device->n_ports) != NULL;
	policy_client_deinit(&client);
	return granted;
}

void native_recheck(struct server *server)
{
	list_for_each_safe (pos, &server->natives) {
		struct native *native = container_of(pos, struct native, everyone);

		if (native->reported || still_granted(native))
			continue;
		session_log(native->session, LOG_LEVEL_INFO, NULL, "%s: its grant was withdrawn before it was opened",
			native->device);
		native_close(native);
	}
}
