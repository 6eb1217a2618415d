/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: somebody who watches should not have to ask again and again. Guarantees: nobody is told of another domain but
 * over the admin socket; a watcher that does not read is ended like anybody else who leaves events unread. What a
 * client had when it went is not told one by one: its own line says it.
 */
#include "daemon/watch.h"

#include <string.h>

#include "daemon/context.h"
#include "daemon/encode.h"
#include "daemon/list_walk.h"
#include "daemon/policy.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/session.h"

void watch_start(struct session *session)
{
	list_remove(&session->link_watch);
	list_append(&session->server->watchers, &session->link_watch);
	map_page_watched(&session->server->map, true);
}

void watch_stop(struct session *session)
{
	struct server *server = session->server;

	list_remove(&session->link_watch);
	map_page_watched(&server->map, !list_empty(&server->watchers));
}

/* The frame about @item; its length, or less than 1. */
static int pack(const struct item *item, const struct stats_who *who, bool added, uint8_t *frame, size_t size)
{
	/* The server's is in use by the request that changed something. */
	static struct scratch scratch;
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = VSD__OP__EV_CHANGE,
		.flags = FRAME_EVENT,
	};
	Vsd__EvChange change = VSD__EV_CHANGE__INIT;

	scratch_reset(&scratch);
	change.added = added;
	change.item = encode_item(&scratch, item, who);
	return change.item ? frame_pack(frame, size, &header, &change.base) : 0;
}

/* @about: the client that it is about, who knows; NULL: nobody in particular. */
static void tell(struct server *server, const struct domain *domain, const struct session *about,
	const struct item *item, bool added)
{
	static uint8_t buf[4096];
	struct stats_who who = { .command = "" };
	int n;

	if (about)
		stats_who(about, &who);
	n = pack(item, &who, added, buf, sizeof(buf));
	list_for_each_safe (pos, &server->watchers) {
		struct session *watcher = container_of(pos, struct session, link_watch);

		if (n > 0 && watcher != about && walk_may_see(watcher, watcher->admin, domain))
			session_send(watcher, buf, (size_t)n, NULL, true);
	}
}

void watch_object(const struct object *object, bool added)
{
	const struct context *context = object->context;
	struct item item;

	if (list_empty(&context->server->watchers))
		return;
	list_for_each (pos, &context->attachments) {
		const struct attachment *attachment =
			container_of(pos, struct attachment, link_context);

		if (!attachment->session)
			continue;
		if (object->owner ? object->owner != attachment
				  : object->session != attachment->session->id)
			continue;
		item_of_object(attachment->session, attachment->id, object, &item);
		tell(context->server, attachment->domain, attachment->session, &item, added);
		return;
	}
}

void watch_region(const struct region *region, bool added)
{
	struct item item;

	if (list_empty(&region->server->watchers))
		return;
	item_of_region(region, &item);
	tell(region->server, region->domain, NULL, &item, added);
}

void watch_session(const struct session *session, bool added)
{
	struct item item;

	if (list_empty(&session->server->watchers) || session->state == SESSION_LOST)
		return;
	item_of_client(session, &item);
	tell(session->server, session->domain, session, &item, added);
}

/* --- real devices: for those who may have them ------------------------------------------------------------------------ */

static bool may_have(const struct session *watcher, const char *device, unsigned n_ports)
{
	struct policy_client client;
	bool granted;

	if (watcher->admin)
		return true;
	if (policy_client_init(&client, watcher) < 0)
		return false;
	granted = policy_device(watcher->server->config, &client.who, device, n_ports) != NULL;
	policy_client_deinit(&client);
	return granted;
}

static void tell_device(struct server *server, const struct item *item, unsigned n_ports, bool added)
{
	const struct stats_who nobody = { .command = "" };
	uint8_t frame[1024];
	int n = 0;

	list_for_each_safe (pos, &server->watchers) {
		struct session *watcher = container_of(pos, struct session, link_watch);

		if (n == 0)
			n = pack(item, &nobody, added, frame, sizeof(frame));
		if (n > 0 && may_have(watcher, item->device, n_ports))
			session_send(watcher, frame, (size_t)n, NULL, true);
	}
}

static struct item item_of_device(const char *name, uint32_t index, const char *event)
{
	return (struct item){ .type = OBJECT_DEVICE, .handle = index, .device = name, .kind = "real", .state = event };
}

void watch_device(struct server *server, const char *device, uint32_t port, const char *event, bool good)
{
	const struct real_device *real = real_device_find(&server->real, device);
	struct item item = item_of_device(device, real ? real->index : 0, event);

	if (port) {
		item.number = port;
		item.has |= ITEM_NUMBER;
	}
	tell_device(server, &item, real ? real->n_ports : 0, good);
}

static bool is_same(const struct real_seen *seen, const struct real_device *device)
{
	return seen->index == device->index && seen->rdev == device->rdev && strcmp(seen->name, device->name) == 0;
}

void watch_devices(struct server *server)
{
	const struct real_devices *real = &server->real;
	bool known[REAL_DEVICES_MAX] = { false };

	for (unsigned i = 0; i < server->n_seen; i++) {
		const struct real_seen *seen = &server->seen[i];
		unsigned j = 0;

		while (j < real->n && !is_same(seen, &real->list[j]))
			j++;
		if (j < real->n) {
			known[j] = true;
			continue;
		}

		struct item item = item_of_device(seen->name, seen->index, "removed");

		tell_device(server, &item, seen->n_ports, false);
	}
	for (unsigned i = 0; i < real->n; i++) {
		const struct real_device *device = &real->list[i];
		struct item item = item_of_device(device->name, device->index, "added");
		struct real_seen *seen = &server->seen[i];

		if (!known[i])
			tell_device(server, &item, device->n_ports, true);
		*seen = (struct real_seen){ .index = device->index, .rdev = device->rdev, .n_ports = device->n_ports };
		_Static_assert(sizeof(seen->name) == sizeof(device->name), "names of devices");
		memcpy(seen->name, device->name, sizeof(seen->name));
	}
	server->n_seen = real->n;
}
