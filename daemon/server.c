/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: somebody must own everything. Guarantees: accepting is budgeted, so that clients that only connect and close
 * starve nobody; nothing is freed while a caller may have a pointer to it; what is to be freed is freed in slices.
 */
#include "daemon/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/accept.h"
#include "daemon/context.h"
#include "daemon/device.h"
#include "daemon/job.h"
#include "daemon/look.h"
#include "daemon/native.h"
#include "daemon/node.h"
#include "daemon/observer.h"
#include "daemon/pair.h"
#include "daemon/process.h"
#include "daemon/rdma_nl.h"
#include "daemon/session.h"
#include "daemon/watch.h"

#define REAP_OBJECTS    4096u /* in one turn of the loop */
#define REAP_SESSIONS   16u
#define KEEP_PERIOD_MS  1000
#define UNSTICK_MS      10
#define HELLO_PERIOD_MS 5000
#define HELLO_TIME_MS   10000

#define PROCESSES_MAX (1u << 20)
#define SEGMENTS_MAX  (1u << 22)
#define PDS_MAX	      (1u << 24)
#define XRCDS_MAX     (1u << 24)

static void reap(void *data)
{
	struct server *server = data;
	unsigned budget = REAP_OBJECTS;

	for (unsigned i = 0; i < REAP_SESSIONS && !list_empty(&server->lost); i++)
		session_free(container_of(server->lost.next, struct session, link));
	while (budget > 0 && !list_empty(&server->dying)) {
		if (!attachment_reap(
			    container_of(server->dying.next, struct attachment, link_session),
			    &budget))
			break;
	}
	if (!list_empty(&server->lost) || !list_empty(&server->dying))
		timer_set(&server->reaper, 0);
	if (server->idle)
		server->idle(server);
}

void server_reap(struct server *server)
{
	if (!timer_pending(&server->reaper))
		timer_set(&server->reaper, 0);
}

static void keep(void *data)
{
	struct server *server = data;

	if (segments_expire(server, loop_now()))
		timer_set(&server->keeper, KEEP_PERIOD_MS);
}

void server_keep(struct server *server)
{
	if (server->n_kept > SEGMENT_KEEP_MAX)
		segments_expire(server, loop_now());
	if (!timer_pending(&server->keeper))
		timer_set(&server->keeper, KEEP_PERIOD_MS);
}

static void unstick(void *data)
{
	struct server *server = data;
	struct list stuck;

	list_init(&stuck);
	while (!list_empty(&server->stuck)) {
		struct list *link = server->stuck.next;

		list_remove(link);
		list_append(&stuck, link);
	}
	while (!list_empty(&stuck))
		session_flush(container_of(stuck.next, struct session, link_stuck));
}

void server_unstick(struct server *server)
{
	timer_set(&server->unstick, UNSTICK_MS);
}

void server_end_silent(struct server *server)
{
	uint64_t now = loop_now();

	list_for_each_safe (pos, &server->sessions) {
		struct session *session = container_of(pos, struct session, link);

		if (session->state == SESSION_NEW && now - session->since > HELLO_TIME_MS)
			session_lost(session, GONE_DEAD);
	}
}

static void end_silent(void *data)
{
	struct server *server = data;

	server_end_silent(server);
	timer_set(&server->hello_timer, HELLO_PERIOD_MS);
}

static int devices_make(struct server *server, const struct config *config, struct list *devices)
{
	for (unsigned i = 0; i < config->n_devices; i++) {
		struct device *device;
		int r = device_new(
			server->backend, &config->devices[i], server->next_device + i, &device);

		if (r < 0)
			return r;
		list_append(devices, &device->link);
	}
	server->next_device += config->n_devices;
	return 0;
}

static void devices_drop(struct list *devices)
{
	while (!list_empty(devices)) {
		struct device *device = container_of(devices->next, struct device, link);

		list_remove(&device->link);
		device_unref(device);
	}
}

static int set_up(struct server *server, struct loop *loop)
{
	int r;

	r = timer_init(&server->reaper, loop, reap, server);
	if (r == 0)
		r = timer_init(&server->keeper, loop, keep, server);
	if (r == 0)
		r = timer_init(&server->unstick, loop, unstick, server);
	if (r == 0)
		r = timer_init(&server->hello_timer, loop, end_silent, server);
	if (r == 0)
		r = accept_init(server);
	if (r == 0)
		r = numbers_init(&server->numbers);
	if (r == 0)
		r = lease_pool_init(&server->qpns, SLOT_QPNS, 8);
	server->qpns.units--; /* the last QP number stands for multicast */
	if (r == 0)
		r = lease_pool_init(&server->keys, SLOT_KEYS, 12);
	if (r == 0)
		r = map_page_init(&server->map);
	if (r == 0)
		r = mcast_init(&server->mcast);
	if (r == 0)
		r = devices_make(server, server->config, &server->devices);
	if (r == 0)
		timer_set(&server->hello_timer, HELLO_PERIOD_MS);
	return r;
}

int server_new(struct loop *loop, struct config *config, const struct backend *backend,
	struct server **server)
{
	struct server *made = calloc(1, sizeof(*made));
	int r;

	if (!made) {
		config_free(config);
		return -ENOMEM;
	}
	made->loop = loop;
	made->config = config;
	made->backend = backend;
	made->started = loop_now();
	made->map = (struct map_page)MAP_PAGE_NULL;
	domains_init(&made->domains);
	list_init(&made->devices);
	list_init(&made->sessions);
	list_init(&made->lost);
	list_init(&made->dying);
	list_init(&made->contexts);
	list_init(&made->kept);
	list_init(&made->stuck);
	list_init(&made->watchers);
	list_init(&made->natives);
	list_init(&made->observers);
	list_init(&made->looks);
	list_init(&made->lookers);
	list_init(&made->native_domains);
	real_devices_init(&made->real, "/sys/class");
	snprintf(made->nodes, sizeof(made->nodes), "%s", NODES_PATH);
	handle_table_init(&made->processes, PROCESSES_MAX);
	handle_table_init(&made->segments, SEGMENTS_MAX);
	handle_table_init(&made->pd_numbers, PDS_MAX);
	handle_table_init(&made->xrcd_numbers, XRCDS_MAX);
	regions_init(&made->regions, &made->keys);
	scratch_init(&made->scratch);
	r = set_up(made, loop);
	if (r < 0) {
		server_free(made);
		return r;
	}
	*server = made;
	return 0;
}

static void real_changed(void *data)
{
	struct server *server = data;

	watch_devices(server);
	observers_update(server);
	log_info("%u real devices", server->real.n);
	for (unsigned i = 0; i < server->real.n; i++)
		log_debug("%s is %s, driver %u", server->real.list[i].node, server->real.list[i].name,
			server->real.list[i].driver);
}

int server_real(struct server *server)
{
	int r;

	server->real.netlink = rdma_nl_open();
	r = real_devices_follow(&server->real, server->loop, real_changed, server);
	/* Where netlink is forbidden there may still be devices. */
	if (r < 0)
		log_warning("real devices that come later will not be seen: %s", strerror(-r));
	real_devices_scan(&server->real);
	if (server->real.n > 0)
		real_changed(server);
	return 0;
}

void server_observe(struct server *server)
{
	server->own_queue = job_queue_new(UINT32_MAX);
	server->observing = server->own_queue != NULL;
	observers_update(server);
}

static void end_sessions(struct server *server)
{
	/* The daemon ends, not the clients: nobody is told that his peer is gone. */
	process_silence(server);
	server->ending = true;
	while (!list_empty(&server->sessions))
		session_lost(
			container_of(server->sessions.next, struct session, link), GONE_ADMIN);
	while (!list_empty(&server->lost))
		session_free(container_of(server->lost.next, struct session, link));
	while (!list_empty(&server->dying)) {
		unsigned budget = REAP_OBJECTS;

		attachment_reap(container_of(server->dying.next, struct attachment, link_session),
			&budget);
	}
}

void server_end(struct server *server)
{
	server_unlisten(server);
	server->idle = NULL;
	if (server->reaper.event)
		end_sessions(server);
	server->observing = false;
	observers_end(server);
	looks_end(server);
	server->own_queue = job_queue_end(server->jobs, server->own_queue, true);
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	server_end(server);
	assert(!server->pairs && list_empty(&server->contexts));
	regions_deinit(&server->regions);
	devices_drop(&server->devices);
	real_devices_deinit(&server->real);
	timer_deinit(&server->reaper);
	timer_deinit(&server->keeper);
	timer_deinit(&server->unstick);
	timer_deinit(&server->hello_timer);
	timer_deinit(&server->accept_pause);
	handle_table_deinit(&server->processes);
	handle_table_deinit(&server->segments);
	handle_table_deinit(&server->pd_numbers);
	handle_table_deinit(&server->xrcd_numbers);
	numbers_deinit(&server->numbers);
	lease_pool_deinit(&server->qpns);
	lease_pool_deinit(&server->keys);
	map_page_deinit(&server->map);
	config_free(server->config);
	free(server);
	return NULL;
}

struct device *server_device(const struct server *server, const char *name)
{
	list_for_each (pos, &server->devices) {
		struct device *device = container_of(pos, struct device, link);

		if (strcmp(device->config.name, name) == 0)
			return device;
	}
	return NULL;
}

struct session *server_session(const struct server *server, uint64_t id)
{
	list_for_each (pos, &server->sessions) {
		struct session *session = container_of(pos, struct session, link);

		if (session->id == id)
			return session;
	}
	return NULL;
}

/* A port that goes down or comes up is no other device: who has it open is told. */
static void port_set(struct server *server, const struct device_config *config)
{
	struct device *device = server_device(server, config->name);

	if (!device || device->config.active == config->active)
		return;
	device->config.active = config->active;
	contexts_port_changed(server, device);
}

int server_configure(struct server *server, struct config *config, char *error, unsigned size)
{
	struct device *made[CONFIG_DEVICES_MAX] = { NULL };
	struct list devices = LIST_NULL(devices);
	int r = 0;

	/* First whatever can fail. */
	for (unsigned i = 0; i < config->n_devices && r == 0; i++) {
		struct device *old = server_device(server, config->devices[i].name);

		if (old && device_unchanged(old, &config->devices[i]))
			continue;
		r = device_new(server->backend, &config->devices[i],
			old ? old->index : server->next_device++, &made[i]);
		if (r < 0)
			snprintf(error, size, "device %s: %s", config->devices[i].name,
				strerror(-r));
	}
	if (r < 0) {
		for (unsigned i = 0; i < config->n_devices; i++)
			device_unref(made[i]);
		config_free(config);
		return r;
	}
	for (unsigned i = 0; i < config->n_devices; i++) {
		struct device *device =
			made[i] ? made[i] : server_device(server, config->devices[i].name);

		list_remove(&device->link);
		list_append(&devices, &device->link);
	}
	devices_drop(&server->devices);
	while (!list_empty(&devices)) {
		struct list *link = devices.next;

		list_remove(link);
		list_append(&server->devices, link);
	}
	domains_set_limits(&server->domains, config);
	for (unsigned i = 0; i < config->n_devices; i++)
		port_set(server, &config->devices[i]);
	config_free(server->config);
	server->config = config;
	native_recheck(server);
	observers_update(server);
	log_set_level(config->log_level);
	return 0;
}
