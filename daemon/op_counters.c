/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a port of a real device has counted, and what was told of it.
 */
#include "daemon/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/backend_ibv.h"
#include "daemon/counters.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/observer.h"
#include "daemon/policy.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"

struct reading {
	struct later later;
	char sysfs[128], device[64];
	uint32_t port;
	unsigned n;
	struct counter list[COUNTERS_MAX];
};

static bool may_see(const struct session *session, const struct real_device *device)
{
	struct policy_client client;
	bool granted;

	if (session->admin)
		return true;
	if (policy_client_init(&client, session) < 0)
		return false;
	granted = policy_device(session->server->config, &client.who, device->name, device->n_ports) != NULL;
	policy_client_deinit(&client);
	return granted;
}

static void read_run(struct later *later)
{
	struct reading *reading = container_of(later, struct reading, later);

	reading->n = counters_read(reading->sysfs, reading->device, reading->port, reading->list);
}

/* @name is borrowed. False: there is no room for more. */
static bool add(struct call *call, Vsd__DeviceCountersReply *reply, const char *name, uint64_t value)
{
	Vsd__Counter *counter = call_alloc(call, sizeof(*counter));

	if (!counter)
		return false;
	vsd__counter__init(counter);
	counter->name = (char *)(uintptr_t)name;
	counter->value = value;
	reply->counters[reply->n_counters++] = counter;
	return true;
}

static int read_finish(struct later *later, struct call *call)
{
	const struct reading *reading = container_of(later, struct reading, later);
	const struct real_device *device = real_device_find(&call->server->real, reading->device);
	const struct observer *observer = device ? observer_find(call->server, device) : NULL;
	Vsd__DeviceCountersReply *reply = call_alloc(call, sizeof(*reply));

	vsd__device_counters_reply__init(reply);
	reply->counters = call_alloc(call, (COUNTERS_MAX + OBSERVER_EVENTS) * sizeof(*reply->counters));
	if (!reply->counters)
		return -ENOMEM;
	for (unsigned i = 0; i < reading->n; i++) {
		char *name = scratch_strdup(&call->server->scratch, reading->list[i].name);

		if (!name || !add(call, reply, name, reading->list[i].value))
			return -ENOMEM;
	}
	for (unsigned i = 0; observer && i < OBSERVER_EVENTS; i++) {
		const char *name = observer_event_name(i);

		if (name && !add(call, reply, name, observer_count(observer, reading->port, i)))
			return -ENOMEM;
	}
	call->reply = &reply->base;
	return 0;
}

static void read_drop(struct later *later)
{
	free(container_of(later, struct reading, later));
}

int op_device_counters(struct call *call)
{
	const Vsd__DeviceCountersRequest *request = (const void *)call->request;
	const struct real_device *device = real_device_find(&call->server->real, request->device);
	struct reading *reading;
	char name[64];

	if (!device || !may_see(call->session, device))
		return refuse(-ENODEV, "device '%s'",
			log_escape(name, sizeof(name), request->device, strlen(request->device)));
	if (request->port < 1 || request->port > device->n_ports)
		return refuse(-EINVAL, "%s has no port %u", device->name, request->port);
	reading = calloc(1, sizeof(*reading));
	if (!reading)
		return -ENOMEM;
	reading->later = (struct later){ .run = read_run, .finish = read_finish, .drop = read_drop };
	snprintf(reading->sysfs, sizeof(reading->sysfs), "%s", call->server->real.sysfs);
	snprintf(reading->device, sizeof(reading->device), "%s", device->name);
	reading->port = request->port;
	return call_later(call, &reading->later);
}
