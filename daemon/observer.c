/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an operator wants to know of a port that goes down without asking, and a client of limits before it opens. Guarantees:
 * the device is opened and asked in a thread; a device that is to go is let go at once (the kernel waits for that with some
 * drivers): we close at its message; lines about one device are limited, its events are counted all the same.
 *
 * Not every driver opens for a request without data of its own (the client's half of it would send some): those are not
 * observed, which is said once.
 */
#include "daemon/observer.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/fd.h"
#include "daemon/node.h"
#include "daemon/server.h"
#include "daemon/uverbs_call.h"
#include "daemon/watch.h"
#include "daemon/worker.h"

const char *observer_folder = "/dev/char";

/* One look at a device: it opens it, unless it is open. */
struct looking {
	struct job job;
	struct observer *observer; /* NULL: it has gone */
	char nodes[96], path[64];
	dev_t rdev;
	uint32_t driver, n_ports;
	int fd, events; /* ours until it is over */
	int error;
	const char *what; /* failed */
	struct observed observed;
};

/* As enum ibv_event_type. */
static const char *const event_names[OBSERVER_EVENTS] = {
	[8] = "device-fatal",
	[9] = "port-active",
	[10] = "port-error",
	[11] = "lid-change",
	[12] = "pkey-change",
	[13] = "sm-change",
	[17] = "client-reregister",
	[18] = "gid-change",
};

enum { EVENT_DEVICE_FATAL = 8, EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERR = 10 };

const char *observer_event_name(unsigned event)
{
	return event < OBSERVER_EVENTS ? event_names[event] : NULL;
}

/* --- in a thread ----------------------------------------------------------------------------------------------------- */

/* What the kernel's half of some drivers asks of the client's: the least that there is. */
static const struct {
	uint32_t driver;
	uint32_t words[2];
} openings[] = {
	{ RDMA_DRIVER_MLX5, { 16, 4 } },  /* doorbells: all, and fast ones */
	{ RDMA_DRIVER_IRDMA, { 0, 5 } },  /* version of the interface */
};

static int open_context(struct looking *looking)
{
	struct uverbs_call call;
	uint32_t vectors;
	uint8_t answer[512];

	uverbs_call_init(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, looking->driver);
	uverbs_call_out(&call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	for (unsigned i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
		if (openings[i].driver == looking->driver)
			uverbs_call_in(&call, UVERBS_ATTR_UHW_IN, openings[i].words, sizeof(openings[i].words));
	}
	/* Room for what a driver may say; what it says is of no use here. */
	uverbs_call_out(&call, UVERBS_ATTR_UHW_OUT, answer, sizeof(answer));
	uverbs_call_optional(&call);
	return uverbs_call_make(&call, looking->fd);
}

static int open_events(struct looking *looking)
{
	struct uverbs_call call;
	int r;

	uverbs_call_init(&call, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, looking->driver);
	uverbs_call_new_fd(&call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
	r = uverbs_call_make(&call, looking->fd);
	if (r < 0)
		return r;
	looking->events = uverbs_call_fd(&call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
	if (fcntl(looking->events, F_SETFL, O_NONBLOCK) < 0 || fcntl(looking->events, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static int open_node(struct looking *looking)
{
	looking->fd = node_open(looking->nodes, looking->rdev);
	/* The host's own, where we have no place for one. */
	if (looking->fd < 0)
		looking->fd = open(looking->path, O_RDWR | O_CLOEXEC);
	return looking->fd < 0 ? -errno : 0;
}

static int ask(struct looking *looking)
{
	struct observed *observed = &looking->observed;
	struct ib_uverbs_query_device query = { .response = 0 };
	struct ib_uverbs_query_port port;
	int r = uverbs_invoke(looking->fd, looking->driver, IB_USER_VERBS_CMD_QUERY_DEVICE, &query, sizeof(query),
		&observed->device, sizeof(observed->device));

	for (unsigned i = 0; r == 0 && i < looking->n_ports && i < REAL_PORTS_MAX; i++) {
		memset(&port, 0, sizeof(port));
		port.port_num = (uint8_t)(i + 1);
		r = uverbs_invoke(looking->fd, looking->driver, IB_USER_VERBS_CMD_QUERY_PORT, &port, sizeof(port),
			&observed->ports[i], sizeof(observed->ports[i]));
		observed->n_ports += r == 0;
	}
	return r;
}

static bool failed(struct looking *looking, int r, const char *what)
{
	if (r == 0)
		return false;
	looking->error = r;
	looking->what = what;
	return true;
}

static void run(struct job *job)
{
	struct looking *looking = container_of(job, struct looking, job);

	if (looking->fd < 0 && (failed(looking, open_node(looking), "its node") ||
				       failed(looking, open_context(looking), "its context") ||
				       failed(looking, open_events(looking), "its events")))
		return;
	(void)failed(looking, ask(looking), "its limits");
}

/* --- in the loop ------------------------------------------------------------------------------------------------------ */

static void look(struct observer *observer);

static void close_both(struct server *server, int fd, int events)
{
	worker_close(server->worker, events);
	worker_close(server->worker, fd);
}

static void observer_free(struct observer *observer)
{
	if (observer->looking)
		observer->looking->observer = NULL;
	watch_deinit(&observer->watch);
	close_both(observer->server, observer->fd, observer->events);
	list_remove(&observer->link);
	free(observer);
}

void observer_event(struct observer *observer, const struct ib_uverbs_async_event_desc *event)
{
	const char *name = observer_event_name(event->event_type);
	bool bad = event->event_type == EVENT_DEVICE_FATAL || event->event_type == EVENT_PORT_ERR;
	unsigned port = event->event_type == EVENT_DEVICE_FATAL ? 0 : (unsigned)event->element;
	unsigned dropped = 0;

	if (!name)
		return;
	observer->counts[port <= REAL_PORTS_MAX ? port : 0][event->event_type]++;
	watch_device(observer->server, observer->name, port, name, !bad);
	if (log_limit_take(&observer->log_limit, loop_now(), &dropped)) {
		if (dropped)
			log_line(LOG_LEVEL_WARNING, MSG_LINES_DROPPED, "%s: %u lines were not written", observer->name, dropped);
		if (port)
			log_line(bad ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, MSG_DEVICE_EVENT, "%s port %u: %s", observer->name,
				port, name);
		else
			log_line(LOG_LEVEL_WARNING, MSG_DEVICE_EVENT, "%s: %s", observer->name, name);
	}
	look(observer);
}

static void events_ready(void *data, unsigned ready)
{
	struct observer *observer = data;
	struct ib_uverbs_async_event_desc event;

	(void)ready;
	for (unsigned i = 0; i < 16; i++) {
		ssize_t n = read(observer->events, &event, sizeof(event));

		if (n == (ssize_t)sizeof(event)) {
			observer_event(observer, &event);
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		/* The device goes, or has gone: there will be a message about that, too. */
		observer_free(observer);
		return;
	}
}

uint64_t observer_count(const struct observer *observer, uint32_t port, unsigned event)
{
	return event == EVENT_DEVICE_FATAL ? observer->counts[0][event]
	       : port <= REAL_PORTS_MAX	   ? observer->counts[port][event]
					   : 0;
}

static int attach(struct observer *observer, struct looking *looking)
{
	int r;

	if (!fd_fits(looking->fd) || !fd_fits(looking->events))
		return -ENFILE;
	r = watch_init(&observer->watch, observer->server->loop, looking->events, events_ready, observer);
	if (r == 0)
		r = watch_set(&observer->watch, LOOP_READ);
	if (r < 0)
		return r;
	observer->fd = looking->fd;
	observer->events = looking->events;
	looking->fd = looking->events = -1;
	return 0;
}

static void done(struct job *job)
{
	struct looking *looking = container_of(job, struct looking, job);
	struct observer *observer = looking->observer;
	int r = job->skipped ? -ECANCELED : looking->error;

	if (observer) {
		observer->looking = NULL;
		if (r == 0 && observer->fd < 0) {
			looking->what = "its events";
			r = attach(observer, looking);
		}
		if (r == 0) {
			observer->observed = looking->observed;
			observer->known = true;
		} else if (!job->skipped) {
			log_info("%s: its events and limits are not known: %s: %s", observer->name, looking->what, strerror(-r));
		}
	}
	/* There may be no server any more, and what nobody wants is no device that is in use. */
	cleanup_close(&looking->events);
	cleanup_close(&looking->fd);
	free(looking);
	if (observer && observer->again && observer->fd >= 0)
		look(observer);
}

/* Asks the device again, or for the first time. */
static void look(struct observer *observer)
{
	struct server *server = observer->server;
	struct looking *looking;

	observer->again = observer->looking != NULL;
	if (observer->again)
		return;
	looking = calloc(1, sizeof(*looking));
	if (!looking)
		return;
	*looking = (struct looking){
		.job = { .run = run, .done = done },
		.observer = observer,
		.rdev = observer->rdev,
		.driver = observer->driver,
		.n_ports = observer->n_ports,
		.fd = observer->fd < 0 ? -1 : fcntl(observer->fd, F_DUPFD_CLOEXEC, 0),
		.events = -1,
	};
	snprintf(looking->nodes, sizeof(looking->nodes), "%s", server->nodes);
	snprintf(looking->path, sizeof(looking->path), "%s/%u:%u", observer_folder, major(observer->rdev),
		minor(observer->rdev));
	observer->looking = looking;
	if (job_submit(server->jobs, server->own_queue, &looking->job) < 0) {
		observer->looking = NULL;
		if (looking->fd >= 0)
			close(looking->fd);
		free(looking);
	}
}

static bool is_of(const struct observer *observer, const struct real_device *device)
{
	return observer->rdev == device->rdev && observer->index == device->index && strcmp(observer->name, device->name) == 0;
}

const struct observer *observer_find(const struct server *server, const struct real_device *device)
{
	list_for_each (pos, &server->observers) {
		const struct observer *observer = container_of(pos, struct observer, link);

		if (is_of(observer, device))
			return observer;
	}
	return NULL;
}

static void observe(struct server *server, const struct real_device *device)
{
	struct observer *observer = calloc(1, sizeof(*observer));

	if (!observer)
		return;
	*observer = (struct observer){
		.server = server,
		.rdev = device->rdev,
		.index = device->index,
		.driver = device->driver,
		.n_ports = device->n_ports,
		.fd = -1,
		.events = -1,
		.watch = WATCH_NULL,
	};
	snprintf(observer->name, sizeof(observer->name), "%s", device->name);
	list_append(&server->observers, &observer->link);
	look(observer);
}

static bool is_there(const struct real_devices *devices, const struct observer *observer)
{
	for (unsigned i = 0; i < devices->n; i++) {
		if (is_of(observer, &devices->list[i]))
			return true;
	}
	return false;
}

void observers_update(struct server *server)
{
	bool wanted = server->observing && server->config->device_events;

	list_for_each_safe (pos, &server->observers) {
		struct observer *observer = container_of(pos, struct observer, link);

		if (!wanted || !is_there(&server->real, observer))
			observer_free(observer);
	}
	for (unsigned i = 0; wanted && i < server->real.n; i++) {
		if (!observer_find(server, &server->real.list[i]))
			observe(server, &server->real.list[i]);
	}
}

void observers_end(struct server *server)
{
	while (!list_empty(&server->observers))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		observer_free(container_of(server->observers.next, struct observer, link));
}
