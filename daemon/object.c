/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: charging, counting, handles and "who stands on whom" are the same for every type and must not be forgotten by
 * one. Guarantees: an object that has a handle is charged, counted and known to its backend; one that is stood on
 * cannot be destroyed; discarding gives back exactly what was taken.
 */
#include "daemon/object.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/users.h"
#include "daemon/watch.h"

static const struct object_class *const classes[OBJECT_TYPES] = {
	[OBJECT_QP] = &object_qp,
	[OBJECT_AH] = &object_ah,
	[OBJECT_SRQ] = &object_srq,
	[OBJECT_CQ] = &object_cq,
	[OBJECT_MW] = &object_mw,
	[OBJECT_MR] = &object_mr,
	[OBJECT_PARENT_DOMAIN] = &object_parent_domain,
	[OBJECT_TD] = &object_td,
	[OBJECT_PD] = &object_pd,
	[OBJECT_DM] = &object_dm,
	[OBJECT_XRCD] = &object_xrcd,
};

const struct object_class *object_class(enum object_type type)
{
	return type > 0 && type < OBJECT_TYPES ? classes[type] : NULL;
}

const char *object_type_name(enum object_type type)
{
	if (object_class(type))
		return classes[type]->name;
	return type == OBJECT_CONTEXT  ? "context"
	       : type == OBJECT_WIRE   ? "wire"
	       : type == OBJECT_REGION ? "region"
	       : type == OBJECT_MCAST  ? "mcast"
				       : "client";
}

int object_new(struct attachment *attachment, enum object_type type, uint64_t queue_bytes,
	struct object **object)
{
	const struct object_class *class = classes[type];
	struct context *context = attachment->context;
	struct account *account = &attachment->domain->account;
	struct object *made;
	struct charge charge = CHARGE_NULL, bytes = CHARGE_NULL;
	int r;

	if (context->count[type] >= class->max(&context->device->attr))
		return refuse(-ENOMEM, "the device has no more than %u of %s",
			context->count[type], class->name);
	r = charge_take(&charge, account, class->slot, 1);
	if (r == 0)
		r = charge_take(&bytes, account, SLOT_QUEUE_BYTES, queue_bytes);
	if (r < 0) {
		charge_release(&charge);
		return r;
	}
	made = calloc(1, class->size + class->refs * sizeof(struct object_ref));
	if (!made) {
		charge_release(&charge);
		charge_release(&bytes);
		return -ENOMEM;
	}
	*made = (struct object){
		.type = type,
		.context = context,
		.owner = class->shared ? NULL : attachment,
		.session = attachment->session ? attachment->session->id : 0,
		.n_refs = class->refs,
		.charge = charge,
		.bytes = bytes,
		.refs = (struct object_ref *)(void *)((char *)made + class->size),
	};
	list_init(&made->link);
	list_init(&made->users);
	context->count[type]++;
	*object = made;
	return 0;
}

/* Objects are counted, not references: a QP stands on its CQ once, though it both sends and receives there. */
static bool stands_on(const struct object *object, const struct object *to)
{
	for (unsigned i = 0; i < object->n_refs; i++)
		if (object->refs[i].to == to)
			return true;
	return false;
}

void object_refer(struct object *object, unsigned i, struct object *to)
{
	assert(i < object->n_refs && !object->refs[i].to);
	if (!to)
		return;
	if (!stands_on(object, to))
		to->n_users++;
	object->refs[i].to = to;
	object->refs[i].from = object;
	list_append(&to->users, &object->refs[i].link);
}

static void unrefer(struct object_ref *ref)
{
	struct object *to = ref->to;

	if (!to)
		return;
	list_remove(&ref->link);
	ref->to = NULL;
	if (!stands_on(ref->from, to))
		to->n_users--;
}

void object_replace(struct object *object, unsigned i, struct object *to)
{
	unrefer(&object->refs[i]);
	object_refer(object, i, to);
}

struct object *object_refers(const struct object *object, unsigned i)
{
	return object->refs[i].to;
}

struct object *object_discard(struct object *object)
{
	if (!object)
		return NULL;
	for (unsigned i = 0; i < object->n_refs; i++)
		unrefer(&object->refs[i]);
	object->context->count[object->type]--;
	charge_release(&object->charge);
	charge_release(&object->bytes);
	free(object);
	return NULL;
}

static void undo(struct object *object)
{
	if (classes[object->type]->fini)
		classes[object->type]->fini(object);
	object_discard(object);
}

/* With a handle, as @type. */
static int make_known(struct object *object, uint32_t type)
{
	struct context *context = object->context;
	struct device *device = context->device;
	int r;

	r = device->backend->object_new(device, object);
	if (r < 0) {
		undo(object);
		return r;
	}
	r = handle_insert(&context->objects, type, object, &object->handle);
	if (r < 0) {
		device->backend->object_free(device, object);
		undo(object);
		return r == -ENOSPC ? -ENOMEM : r;
	}
	return 0;
}

static void enlist(struct object *object)
{
	struct context *context = object->context;

	list_append(object->owner ? &object->owner->objects[object->type] : &context->shared,
		&object->link);
	context->server->n_objects++;
}

int object_publish(struct object *object)
{
	int r = make_known(object, object->type);

	if (r < 0)
		return r;
	enlist(object);
	watch_object(object, true);
	return 0;
}

int object_set_aside(struct object *object)
{
	struct context *context = object->context;
	int r = make_known(object, OBJECT_VACANT);

	if (r == 0)
		context->vacant++;
	return r;
}

void object_come(struct object *object, bool tell)
{
	handle_retype(&object->context->objects, object->handle, OBJECT_VACANT, object->type);
	object->context->vacant--;
	enlist(object);
	if (tell)
		watch_object(object, true);
}

void object_go(struct object *object, bool tell)
{
	if (tell)
		watch_object(object, false);
	for (unsigned i = 0; i < object->n_refs; i++)
		unrefer(&object->refs[i]);
	list_remove(&object->link);
	object->context->server->n_objects--;
	object->context->vacant++;
	handle_retype(&object->context->objects, object->handle, object->type, OBJECT_VACANT);
}

struct object *object_drop(struct object *object)
{
	struct context *context = object->context;

	context->device->backend->object_free(context->device, object);
	handle_remove(&context->objects, object->handle, OBJECT_VACANT);
	context->vacant--;
	return object_discard(object);
}

struct object *object_get(
	const struct attachment *attachment, enum object_type type, uint32_t handle)
{
	struct object *object = handle_get(&attachment->context->objects, handle, type);

	if (!object || (object->owner && object->owner != attachment)) {
		refuse(0, "no %s %u", object_type_name(type), handle);
		return NULL;
	}
	return object;
}

int object_busy(const struct object *object)
{
	const struct object_class *class = classes[object->type];
	char users[USERS_TEXT];

	if (object->n_users == 0)
		return class->busy ? class->busy(object) : 0;
	users_say(object, NULL, users, sizeof(users));
	return refuse(-EBUSY, "%s %u: in use by %s", class->name, object->handle,
		users);
}

int object_destroy(struct object *object)
{
	struct context *context = object->context;
	int r = object_busy(object);

	if (r < 0)
		return r;
	watch_object(object, false);
	context->device->backend->object_free(context->device, object);
	handle_remove(&context->objects, object->handle, object->type);
	list_remove(&object->link);
	context->server->n_objects--;
	undo(object);
	return 0;
}
