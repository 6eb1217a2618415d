/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: objects must be the same for every process that was given the context, and must go when the last one is gone.
 * Guarantees: teardown follows the ranks of enum object_type; an attachment that ended holds no charge.
 */
#include "daemon/context.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/fd.h"
#include "daemon/mr_place.h"
#include "daemon/nonce.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"

#define OBJECTS_MAX (1u << 22)

static int attach(struct session *session, struct context *context, struct attachment **attachment)
{
	struct attachment *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	made->session = session;
	made->context = context;
	for (unsigned i = 0; i < OBJECT_TYPES; i++)
		list_init(&made->objects[i]);
	for (unsigned i = 0; i <= LEASE_KIND_KEY; i++)
		list_init(&made->leases[i]);
	list_init(&made->places);
	notice_init(&made->notice, 0);
	r = charge_take(&made->charge, &session->domain->account, SLOT_CONTEXTS, 1);
	if (r == 0)
		r = handle_insert(&session->attachments, OBJECT_CONTEXT, made, &made->id);
	if (r < 0) {
		charge_release(&made->charge);
		free(made);
		return r == -ENOSPC ? -ENOMEM : r;
	}
	made->domain = domain_ref(session->domain);
	list_append(&session->attached, &made->link_session);
	list_append(&context->attachments, &made->link_context);
	*attachment = made;
	return 0;
}

static void context_free(struct context *context)
{
	assert(list_empty(&context->attachments));
	list_for_each_safe (pos, &context->shared) {
		int r = object_destroy(container_of(pos, struct object, link));

		assert(r == 0);
		(void)r;
	}
	handle_table_deinit(&context->objects);
	list_remove(&context->link);
	context->device->contexts--;
	context->server->n_contexts--;
	device_unref(context->device);
	explicit_bzero(context->nonce, sizeof(context->nonce));
	free(context);
}

int context_open(struct session *session, struct device *device, struct attachment **attachment)
{
	struct context *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	if (getrandom(made->nonce, sizeof(made->nonce), 0) != sizeof(made->nonce)) {
		free(made);
		return -EIO;
	}
	made->server = session->server;
	made->device = device_ref(device);
	list_init(&made->attachments);
	list_init(&made->shared);
	handle_table_init(&made->objects, OBJECTS_MAX);
	list_append(&session->server->contexts, &made->link);
	device->contexts++;
	session->server->n_contexts++;
	r = attach(session, made, attachment);
	if (r < 0)
		context_free(made);
	return r;
}

/* One whose attachments are all being taken down is nobody's any more. */
static bool is_open(const struct context *context)
{
	list_for_each (pos, &context->attachments) {
		if (container_of(pos, struct attachment, link_context)->session)
			return true;
	}
	return false;
}

int context_attach(struct session *session, const uint8_t nonce[VSD_NONCE_SIZE],
	struct attachment **attachment)
{
	struct context *found = NULL;

	list_for_each (pos, &session->server->contexts) {
		struct context *context = container_of(pos, struct context, link);

		if (!nonce_differs(context->nonce, nonce))
			found = context;
	}
	if (!found || !is_open(found))
		return refuse(-EACCES, "no context has this capability");
	return attach(session, found, attachment);
}

int context_capability(const struct context *context)
{
	return memfd_const("verbsd-context", context->nonce, sizeof(context->nonce));
}

void contexts_port_changed(struct server *server, const struct device *device)
{
	list_for_each (at, &server->contexts) {
		struct context *context = container_of(at, struct context, link);

		if (context->device != device)
			continue;
		list_for_each (pos, &context->attachments) {
			struct attachment *attachment =
				container_of(pos, struct attachment, link_context);
			struct process *process =
				attachment->session ? attachment->session->process : NULL;

			if (!process)
				continue;
			process_notify(process, &attachment->notice, NOTICE_PORT, 0);
			process_flush(process);
		}
	}
}

struct attachment *attachment_get(const struct session *session, uint32_t id)
{
	return handle_get(&session->attachments, id, OBJECT_CONTEXT);
}

void attachment_close(struct attachment *attachment)
{
	struct server *server = attachment->context->server;

	handle_remove(&attachment->session->attachments, attachment->id, OBJECT_CONTEXT);
	list_for_each (pos, &attachment->objects[OBJECT_QP])
		qp_kill((struct qp *)container_of(pos, struct object, link));
	list_for_each (pos, &attachment->leases[LEASE_KIND_QPN]) {
		struct lease *lease = container_of(pos, struct lease, link);

		map_page_set(&server->map, lease->first, lease->count, 0);
	}
	notice_drop(&attachment->notice);
	mr_places_close(attachment);
	attachment->session = NULL;
	list_remove(&attachment->link_session);
	list_append(&server->dying, &attachment->link_session);
	server_reap(server);
}

static bool reap_objects(struct attachment *attachment, unsigned *budget)
{
	for (unsigned type = OBJECT_QP; type < OBJECT_TYPES; type++) {
		while (!list_empty(&attachment->objects[type])) {
			int r;

			if (*budget == 0)
				return false;
			--*budget;
			r = object_destroy(
				container_of(attachment->objects[type].next, struct object, link));
			assert(r == 0);
			(void)r;
		}
	}
	return true;
}

bool attachment_reap(struct attachment *attachment, unsigned *budget)
{
	struct context *context = attachment->context;

	if (!mr_places_reap(attachment, budget) || !reap_objects(attachment, budget))
		return false;
	for (unsigned kind = 0; kind <= LEASE_KIND_KEY; kind++) {
		while (!list_empty(&attachment->leases[kind]))
			lease_free(
				container_of(attachment->leases[kind].next, struct lease, link));
	}
	list_remove(&attachment->link_session);
	list_remove(&attachment->link_context);
	charge_release(&attachment->charge);
	domain_unref(attachment->domain);
	free(attachment);
	if (list_empty(&context->attachments))
		context_free(context);
	return true;
}
