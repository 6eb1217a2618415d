/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: behind a file of sysfs, and behind netlink's word on a queue pair, is a driver that asks its adapter, which may be slow,
 * or gone mad. Guarantees: the loop waits for neither; a device that hangs holds up one answer of each who asks, for a moment,
 * then none; however often somebody asks, one thread asks a device, and the kernel goes through its lists once a second.
 */
#include "daemon/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backend_ibv.h"
#include "daemon/census.h"
#include "daemon/dispatch.h"
#include "daemon/job.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/server.h"
#include "daemon/session.h"

#define FRESH_MS 1000 /* owners */

/* What is known of a device. */
struct look {
	struct list link; /* in the server's */
	char name[64];
	uint32_t index;
	struct asking *asking[LOOK_KINDS]; /* NULL: nobody is */
	struct real_port ports[REAL_PORTS_MAX];
	bool known[REAL_PORTS_MAX];
	struct census census;
	uint64_t counted; /* when; 0: never */
};

/* A thread's question. */
struct asking {
	struct job job;
	struct server *server;
	struct look *look; /* NULL: the device, or the server, has gone */
	enum look_kind kind;
	uint64_t since;
	bool told; /* that it takes long */
	char sysfs[128], name[64];
	uint32_t index, n_ports;
	struct real_port ports[REAL_PORTS_MAX];
	bool known[REAL_PORTS_MAX];
	struct census census;
};

/* Who waits for the answers. */
struct waiting {
	struct later later;
	struct list link; /* in the server's */
	struct timer timer;
	enum look_kind kind;
	int (*finish)(struct call *call);
	size_t size;
	_Alignas(8) uint8_t request[];
};

/* --- in a thread ----------------------------------------------------------------------------------------------------- */

static void count_owners(struct asking *asking)
{
	int netlink = rdma_nl_open();

	if (netlink < 0)
		return;
	for (enum rdma_nl_resource kind = RDMA_NL_CONTEXTS; kind < RDMA_NL_RESOURCES; kind++)
		census_take(&asking->census, netlink, asking->index, kind);
	close(netlink);
}

static void run(struct job *job)
{
	struct asking *asking = container_of(job, struct asking, job);

	if (asking->kind == LOOK_OWNERS) {
		count_owners(asking);
		return;
	}
	for (uint32_t i = 0; i < asking->n_ports; i++)
		asking->known[i] = real_port_read(asking->sysfs, asking->name, i + 1, &asking->ports[i]) == 0;
}

/* --- in the loop ------------------------------------------------------------------------------------------------------ */

static bool is_late(const struct asking *asking)
{
	return loop_now() - asking->since >= LOOK_MS;
}

static bool is_awaited(const struct server *server, enum look_kind kind)
{
	list_for_each (pos, &server->looks) {
		const struct asking *asking = container_of(pos, struct look, link)->asking[kind];

		if (asking && !is_late(asking))
			return true;
	}
	return false;
}

static void waiting_free(struct waiting *waiting)
{
	list_remove(&waiting->link);
	timer_deinit(&waiting->timer);
	free(waiting);
}

static int wait_finish(struct later *later, struct call *call)
{
	struct waiting *waiting = container_of(later, struct waiting, later);

	call->request = waiting->size ? (const void *)waiting->request : NULL;
	return waiting->finish(call);
}

static void wait_over(struct waiting *waiting)
{
	struct session *session = waiting->later.session;

	if (session) {
		session->later = NULL;
		dispatch_later(session, &waiting->later, false);
	}
	waiting_free(waiting);
}

/* What a driver does not say in time is not waited for. */
static void wait_enough(void *data)
{
	struct waiting *waiting = data;
	struct session *session = waiting->later.session;

	for (struct list *pos = session ? session->server->looks.next : NULL; pos && pos != &session->server->looks; pos = pos->next) {
		struct asking *asking = container_of(pos, struct look, link)->asking[waiting->kind];

		if (asking && !asking->told)
			log_warning("%s: its driver takes longer than %d ms to tell of its %s", asking->name, LOOK_MS,
				asking->kind == LOOK_PORTS ? "ports" : "objects");
		if (asking)
			asking->told = true;
	}
	wait_over(waiting);
}

static void learn(struct look *look, struct asking *asking)
{
	if (asking->kind == LOOK_PORTS) {
		memcpy(look->ports, asking->ports, sizeof(look->ports));
		memcpy(look->known, asking->known, sizeof(look->known));
		return;
	}
	census_deinit(&look->census);
	look->census = asking->census;
	asking->census = (struct census)CENSUS_NULL;
	look->counted = loop_now() ? loop_now() : 1;
}

static void done(struct job *job)
{
	struct asking *asking = container_of(job, struct asking, job);
	struct look *look = asking->look;

	if (look) {
		look->asking[asking->kind] = NULL;
		if (!job->skipped)
			learn(look, asking);
		/* An answer goes to a socket, and is nothing that makes or ends another one here. */
		list_for_each_safe (pos, &asking->server->lookers) {
			struct waiting *waiting = container_of(pos, struct waiting, link);

			if (waiting->kind == asking->kind && !is_awaited(asking->server, asking->kind))
				wait_over(waiting);
		}
	}
	census_deinit(&asking->census);
	free(asking);
}

static void look_free(struct look *look)
{
	for (enum look_kind kind = LOOK_PORTS; kind < LOOK_KINDS; kind++) {
		if (look->asking[kind])
			look->asking[kind]->look = NULL;
	}
	census_deinit(&look->census);
	list_remove(&look->link);
	free(look);
}

static struct look *look_of(const struct server *server, const struct real_device *device)
{
	list_for_each (pos, &server->looks) {
		struct look *look = container_of(pos, struct look, link);

		if (look->index == device->index && strcmp(look->name, device->name) == 0)
			return look;
	}
	return NULL;
}

/* There may be other devices since the last time. */
static void forget(struct server *server)
{
	list_for_each_safe (pos, &server->looks) {
		struct look *look = container_of(pos, struct look, link);
		const struct real_device *device = real_device_find(&server->real, look->name);

		if (!device || device->index != look->index)
			look_free(look);
	}
}

static void submit(struct server *server, struct asking *asking)
{
	struct job_queue *queue = job_queue_new(UINT32_MAX);

	asking->look->asking[asking->kind] = asking;
	if (!queue || job_submit(server->jobs, queue, &asking->job) < 0) {
		asking->look->asking[asking->kind] = NULL;
		free(asking);
	}
	job_queue_end(server->jobs, queue, false);
}

static void ask(struct server *server, const struct real_device *device, enum look_kind kind)
{
	struct look *look = look_of(server, device);
	struct asking *asking;

	if (!look) {
		look = calloc(1, sizeof(*look));
		if (!look)
			return;
		snprintf(look->name, sizeof(look->name), "%s", device->name);
		look->index = device->index;
		list_append(&server->looks, &look->link);
	}
	if (look->asking[kind] || (kind == LOOK_OWNERS && look->counted && loop_now() - look->counted < FRESH_MS))
		return;
	asking = calloc(1, sizeof(*asking));
	if (!asking)
		return;
	*asking = (struct asking){
		.job = { .run = run, .done = done },
		.server = server,
		.look = look,
		.kind = kind,
		.since = loop_now(),
		.index = device->index,
		.n_ports = device->n_ports < REAL_PORTS_MAX ? device->n_ports : REAL_PORTS_MAX,
	};
	snprintf(asking->sysfs, sizeof(asking->sysfs), "%s", server->real.sysfs);
	snprintf(asking->name, sizeof(asking->name), "%s", device->name);
	submit(server, asking);
}

static bool is_wanted(const struct server *server, const struct real_device *device, enum look_kind kind)
{
	return kind == LOOK_PORTS || (server->real.netlink >= 0 && native_count(server, device->name) > 0);
}

int look_then(struct call *call, enum look_kind kind, int (*finish)(struct call *call), size_t size)
{
	struct server *server = call->server;
	struct waiting *waiting;
	int r;

	forget(server);
	for (unsigned i = 0; i < server->real.n; i++) {
		if (is_wanted(server, &server->real.list[i], kind))
			ask(server, &server->real.list[i], kind);
	}
	if (!is_awaited(server, kind))
		return finish(call);
	waiting = calloc(1, sizeof(*waiting) + size);
	if (!waiting)
		return -ENOMEM;
	waiting->later = (struct later){
		.session = call->session, .header = *call->header, .method = call->method, .finish = wait_finish
	};
	waiting->kind = kind;
	waiting->finish = finish;
	waiting->size = size;
	if (size)
		memcpy(waiting->request, call->request, size);
	list_init(&waiting->link);
	r = timer_init(&waiting->timer, server->loop, wait_enough, waiting);
	if (r < 0) {
		waiting_free(waiting);
		return r;
	}
	timer_set(&waiting->timer, LOOK_MS);
	list_append(&server->lookers, &waiting->link);
	call->session->later = &waiting->later;
	return CALL_LATER;
}

void looks_end(struct server *server)
{
	list_for_each_safe (pos, &server->lookers)
		waiting_free(container_of(pos, struct waiting, link));
	list_for_each_safe (pos, &server->looks)
		look_free(container_of(pos, struct look, link));
}

const struct real_port *look_port(const struct server *server, const struct real_device *device, uint32_t number)
{
	const struct look *look = look_of(server, device);

	return look && number >= 1 && number <= REAL_PORTS_MAX && look->known[number - 1] ? &look->ports[number - 1] : NULL;
}

bool look_owner(const struct server *server, const struct real_device *device, uint32_t pid, unsigned n[RDMA_NL_RESOURCES])
{
	const struct look *look = look_of(server, device);

	return look && census_find(&look->census, pid, n);
}
