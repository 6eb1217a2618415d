/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: somebody who watches should not have to ask again and again. Guarantees: nobody is told of another domain but
 * over the admin socket; a watcher that does not read is ended like anybody else who leaves events unread. What a
 * client had when it went is not told one by one: its own line says it.
 */
#include "daemon/watch.h"

#include "daemon/context.h"
#include "daemon/encode.h"
#include "daemon/list_walk.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/session.h"

void watch_start(struct session *session)
{
	list_remove(&session->link_watch);
	list_append(&session->server->watchers, &session->link_watch);
}

/* @about: the client that it is about, who knows; NULL: nobody in particular. */
static void tell(struct server *server, const struct domain *domain, const struct session *about,
	const struct item *item, bool added)
{
	static uint8_t buf[4096];
	static struct scratch
		scratch; /* the server's is in use by the request that changed something */
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = VSD__OP__EV_CHANGE,
		.flags = FRAME_EVENT,
	};
	Vsd__EvChange change = VSD__EV_CHANGE__INIT;
	struct stats_who who = { .command = "" };
	int n;

	scratch_reset(&scratch);
	if (about)
		stats_who(about, &who);
	change.added = added;
	change.item = encode_item(&scratch, item, &who);
	if (!change.item)
		return;
	n = frame_pack(buf, sizeof(buf), &header, &change.base);
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
