/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a listing of a million objects must neither hold up the loop nor lose its place when one of them goes.
 * Guarantees: what is there all the time is shown once; nobody sees another domain without the right to.
 */
#include "daemon/list_walk.h"

#include <errno.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/look.h"
#include "daemon/mr_place.h"
#include "daemon/multicast.h"
#include "daemon/native.h"
#include "daemon/pair.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/wire_pair.h"

bool walk_may_see(const struct session *viewer, bool all, const struct domain *domain)
{
	return all || viewer->domain == domain;
}

static bool wants(const struct walk *walk, enum object_type type)
{
	return walk->type == 0 || walk->type == type;
}

static void item_begin(const struct session *session, enum object_type type, struct item *item)
{
	*item = (struct item){
		.type = type,
		.session = session->id,
		.pid = (uint32_t)session->pid,
		.uid = session->uid,
		.gid = session->gid,
		.has = ITEM_GID,
	};
}

void item_of_client(const struct session *session, struct item *item)
{
	item_begin(session, OBJECT_CLIENT, item);
	item->state = session->state == SESSION_NEW     ? "new"
		      : session->state == SESSION_READY ? "ready"
							: "joined";
	item->users = session->attachments.count;
	item->has |= ITEM_USERS;
	if (session->process) {
		item->number = session->process->id;
		item->has |= ITEM_NUMBER;
	}
}

void item_of_region(const struct region *region, struct item *item)
{
	*item = (struct item){
		.type = OBJECT_REGION,
		.handle = region->number,
		.uid = region->domain->key.uid,
		.number = region->key,
		.addr = region->range.base,
		.length = region->size,
		.has = ITEM_NUMBER | ITEM_ADDR | ITEM_LENGTH,
	};
	region_describe(region, item);
}

void item_of_object(const struct session *session, uint32_t context, const struct object *object,
	struct item *item)
{
	item_begin(session, object->type, item);
	item->context = context;
	item->handle = object->handle;
	item->device = object->context->device->config.name;
	object_class(object->type)->describe(object, item);
	users_say(object, session->domain, item->in_use_by, sizeof(item->in_use_by));
}

static void item_of_context(
	const struct session *session, const struct attachment *attachment, struct item *item)
{
	const struct context *context = attachment->context;

	item_begin(session, OBJECT_CONTEXT, item);
	item->context = attachment->id;
	item->handle = attachment->id;
	item->device = context->device->config.name;
	item->users = context->objects.count - context->vacant;
	item->has |= ITEM_USERS;
}

static void item_of_wire(
	const struct session *session, const struct wire *wire, unsigned side, struct item *item)
{
	static const char *const kinds[] = {
		[WIRE_RC] = "RC", [WIRE_UC] = "UC", [WIRE_DGRAM] = "DGRAM", [WIRE_XRC] = "XRC"
	};
	const struct wire_end *end = &wire->ends[side], *other = &wire->ends[!side];

	item_begin(session, OBJECT_WIRE, item);
	item->handle = wire->segment ? wire->segment->id : 0;
	item->number = wire->place.index;
	item->kind = kinds[wire->kind];
	item->state = end->qp || end->target || wire->kind == WIRE_DGRAM ? "open" : "gone";
	item->depth = wire->req_slots;
	item->peer_number = end->peer_qpn;
	item->has |= ITEM_NUMBER | ITEM_DEPTH | ITEM_PEER_NUMBER;
	if (other->process) {
		item->peer_pid = (uint32_t)other->process->pid;
		item->has |= ITEM_PEER_PID;
	}
}

/* Whose line a shared object stands in: its maker's, or the first attachment's when that has gone. */
static bool belongs(const struct object *object, const struct attachment *attachment)
{
	const struct attachment *first;
	bool maker_there = false;

	if (object->owner)
		return object->owner == attachment;
	first = container_of(
		attachment->context->attachments.next, struct attachment, link_context);
	list_for_each (pos, &attachment->context->attachments) {
		const struct session *session =
			container_of(pos, struct attachment, link_context)->session;

		if (session && session->id == object->session)
			maker_there = true;
	}
	if (maker_there)
		return attachment->session->id == object->session;
	return attachment == first;
}

static int next_object(struct walk *walk, const struct attachment *attachment, struct item *item)
{
	const struct object *object;
	uint32_t type;

	/* Minor 0 is the context itself, handle h is minor h. */
	if (walk->at.minor == 0) {
		uint32_t looked = mr_places_look(walk->session->process, 0);

		walk->budget -= looked < walk->budget ? looked : walk->budget - 1;
		if (wants(walk, OBJECT_CONTEXT)) {
			item_of_context(walk->session, attachment, item);
			return 1;
		}
		walk->at.minor = 1;
	}
	while ((object = handle_next(&attachment->context->objects, &walk->at.minor, &type))) {
		if (type != OBJECT_VACANT && wants(walk, (enum object_type)type) && belongs(object, attachment)) {
			item_of_object(walk->session, attachment->id, object, item);
			return 1;
		}
		walk->at.minor++;
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
	return 0;
}

static void resources_of(const struct session *session, const struct native *native, struct item *item)
{
	const struct real_device *device = real_device_find(&session->server->real, native->device);

	if (device && look_owner(session->server, device, (uint32_t)session->pid, item->resources))
		item->has |= ITEM_RESOURCES;
}

static void item_of_native(const struct session *session, const struct native *native, struct item *item)
{
	item_begin(session, OBJECT_CONTEXT, item);
	item->handle = native->id;
	item->device = native->device;
	item->kind = native->mode == NATIVE_PATH ? "real-node" : "real";
	item->state = native->reported ? "open" : "offered";
	resources_of(session, native, item);
}

/* In the order of their numbers, as they are made. */
static int next_native(struct walk *walk, struct item *item)
{
	if (!wants(walk, OBJECT_CONTEXT))
		return 0;
	list_for_each (pos, &walk->session->natives) {
		const struct native *native = container_of(pos, struct native, link);

		if (native->id >= walk->at.minor) {
			walk->at.minor = native->id;
			item_of_native(walk->session, native, item);
			return 1;
		}
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
	return 0;
}

static int next_context(struct walk *walk, struct item *item)
{
	struct attachment *attachment;
	uint32_t id, type;
	int r;

	for (;;) {
		id = walk->at.major;
		attachment = handle_next(&walk->session->attachments, &id, &type);
		if (!attachment)
			return 0;
		if (id != walk->at.major) {
			walk->at.major = id;
			walk->at.minor = 0;
		}
		r = next_object(walk, attachment, item);
		if (r != 0)
			return r;
		walk->at.major++;
		walk->at.minor = 0;
	}
}

/* A loopback wire is shown once, as its first end has it. */
static int next_loop(struct walk *walk, struct item *item)
{
	uint32_t type;
	struct wire *wire = handle_next(&walk->session->process->loops, &walk->at.minor, &type);

	if (!wire)
		return 0;
	item_of_wire(walk->session, wire, 0, item);
	return 1;
}

static int next_in_segment(struct walk *walk, const struct segment *segment, struct item *item)
{
	unsigned side = segment_side(segment, walk->session->process);

	for (; walk->at.minor < segment->space.used; walk->at.minor++) {
		const struct wire *wire = space_get(&segment->space, walk->at.minor);

		if (wire && !wire->ends[side].released) {
			item_of_wire(walk->session, wire, side, item);
			return 1;
		}
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
	return 0;
}

static int next_wire(struct walk *walk, struct item *item)
{
	const struct process *process = walk->session->process;
	const struct server *server = walk->session->server;
	struct segment *segment;
	uint32_t type, id;
	int r;

	if (!process || !wants(walk, OBJECT_WIRE))
		return 0;
	if (walk->at.major == 0) {
		r = next_loop(walk, item);
		if (r != 0)
			return r;
		walk->at.major = 1;
		walk->at.minor = 1;
	}
	for (;;) {
		id = walk->at.major;
		segment = handle_next(&server->segments, &id, &type);
		if (!segment)
			return 0;
		if (id != walk->at.major) {
			walk->at.major = id;
			walk->at.minor = 1;
		}
		r = segment_get(server, process, id) ? next_in_segment(walk, segment, item) : 0;
		if (r != 0)
			return r;
		walk->at.major++;
		walk->at.minor = 1;
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
}

static int next_in_session(struct walk *walk, struct item *item)
{
	int r;

	if (walk->at.stage == WALK_CLIENT) {
		if (wants(walk, OBJECT_CLIENT)) {
			item_of_client(walk->session, item);
			return 1;
		}
		walk_skip(walk);
	}
	if (walk->at.stage == WALK_CONTEXTS) {
		r = next_context(walk, item);
		if (r != 0)
			return r;
		walk->at.stage = WALK_NATIVES;
		walk->at.major = 0;
		walk->at.minor = 0;
	}
	if (walk->at.stage == WALK_NATIVES) {
		r = next_native(walk, item);
		if (r != 0)
			return r;
		walk->at.stage = WALK_WIRES;
		walk->at.minor = 0;
	}
	return next_wire(walk, item);
}

static const struct session *session_from(const struct server *server, uint64_t id)
{
	list_for_each (pos, &server->sessions) {
		const struct session *session = container_of(pos, struct session, link);

		if (session->id >= id)
			return session;
	}
	return NULL;
}

static int next_region(struct walk *walk, struct item *item)
{
	const struct server *server = walk->viewer->server;

	walk->session = NULL;
	if (!wants(walk, OBJECT_REGION))
		return 0;
	list_for_each (pos, &server->regions.all) {
		const struct region *region = container_of(pos, struct region, link);

		if (region->number < walk->at.minor)
			continue;
		walk->at.minor = region->number;
		if (walk_may_see(walk->viewer, walk->all, region->domain)) {
			item_of_region(region, item);
			return 1;
		}
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
	return 0;
}

static int next_group(struct walk *walk, struct item *item)
{
	const struct server *server = walk->viewer->server;

	walk->session = NULL;
	if (!wants(walk, OBJECT_MCAST))
		return 0;
	list_for_each (pos, &server->mcast.all) {
		const struct mcast_group *group = container_of(pos, struct mcast_group, all);

		if (group->number < walk->at.minor)
			continue;
		walk->at.minor = group->number;
		if (walk_may_see(walk->viewer, walk->all, group->key.domain)) {
			mcast_describe(group, item);
			return 1;
		}
		if (walk->budget-- <= 1)
			return -EAGAIN;
	}
	return 0;
}

int walk_next(struct walk *walk, struct item *item)
{
	const struct server *server = walk->viewer->server;
	const struct session *session = session_from(server, walk->at.session);
	int r;

	for (; session;
		session = session->link.next == &server->sessions
				  ? NULL
				  : container_of(session->link.next, struct session, link)) {
		if (session->id != walk->at.session)
			walk->at = (struct cursor){ .session = session->id };
		walk->session = session;
		if (walk_may_see(walk->viewer, walk->all, session->domain)) {
			r = next_in_session(walk, item);
			if (r != 0)
				return r;
		}
		if (walk->budget-- <= 1)
			return -EAGAIN;
		walk->at = (struct cursor){ .session = session->id + 1 };
	}
	if (walk->at.session != WALK_NO_SESSION)
		walk->at = (struct cursor){ .session = WALK_NO_SESSION, .stage = WALK_REGIONS };
	if (walk->at.stage == WALK_REGIONS) {
		r = next_region(walk, item);
		if (r != 0)
			return r;
		walk->at = (struct cursor){ .session = WALK_NO_SESSION, .stage = WALK_GROUPS };
	}
	return next_group(walk, item);
}

void walk_skip(struct walk *walk)
{
	if (walk->at.stage == WALK_CLIENT) {
		walk->at.stage = WALK_CONTEXTS;
		walk->at.major = 1;
		walk->at.minor = 0;
	} else {
		walk->at.minor++;
	}
}
