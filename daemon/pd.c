/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a PD is only a name that other objects stand on; who may name it is all there is to it. Guarantees: a parent
 * domain is accepted wherever a PD is; a PD's number is the same for all who have it, and no other living PD's.
 */
#include "daemon/pd.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/server.h"

static uint32_t pd_max(const struct device_attr *attr)
{
	return attr->max_pd;
}

static void pd_fini(struct object *object)
{
	handle_remove(
		&object->context->server->pd_numbers, ((struct pd *)object)->number, OBJECT_PD);
}

static void pd_describe(const struct object *object, struct item *item)
{
	item->number = ((const struct pd *)object)->number;
	item->users = object->n_users;
	item->has |= ITEM_NUMBER | ITEM_USERS;
}

const struct object_class object_pd = {
	.name = "pd",
	.slot = SLOT_PDS,
	.size = sizeof(struct pd),
	.shared = true,
	.max = pd_max,
	.fini = pd_fini,
	.describe = pd_describe,
};

int pd_new(struct attachment *attachment, struct object **pd)
{
	struct object *made;
	int r = object_new(attachment, OBJECT_PD, 0, &made);

	if (r < 0)
		return r;
	r = handle_insert(&attachment->context->server->pd_numbers, OBJECT_PD, made,
		&((struct pd *)made)->number);
	if (r < 0) {
		object_discard(made);
		return r == -ENOSPC ? -ENOMEM : r;
	}
	r = object_publish(made);
	if (r == 0)
		*pd = made;
	return r;
}

const struct object *pd_base(const struct object *pd)
{
	return pd->type == OBJECT_PARENT_DOMAIN ? object_refers(pd, 0) : pd;
}

struct object *pd_get(const struct attachment *attachment, uint32_t handle)
{
	struct object *pd = object_get(attachment, OBJECT_PD, handle);

	return pd ? pd : object_get(attachment, OBJECT_PARENT_DOMAIN, handle);
}
