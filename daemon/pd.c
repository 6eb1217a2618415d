/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a PD is only a name that other objects stand on; who may name it is all there is to it. Guarantees: a parent
 * domain is accepted wherever a PD is.
 */
#include "daemon/pd.h"

#include "daemon/context.h"
#include "daemon/item.h"

struct pd {
	struct object object;
};

static uint32_t pd_max(const struct device_attr *attr)
{
	return attr->max_pd;
}

static void pd_describe(const struct object *object, struct item *item)
{
	item->users = object->n_users;
	item->has |= ITEM_USERS;
}

const struct object_class object_pd = {
	.name = "pd",
	.slot = SLOT_PDS,
	.size = sizeof(struct pd),
	.shared = true,
	.max = pd_max,
	.describe = pd_describe,
};

int pd_new(struct attachment *attachment, struct object **pd)
{
	struct object *made;
	int r = object_new(attachment, OBJECT_PD, 0, &made);

	if (r == 0)
		r = object_publish(made);
	if (r == 0)
		*pd = made;
	return r;
}

struct object *pd_get(const struct attachment *attachment, uint32_t handle)
{
	struct object *pd = object_get(attachment, OBJECT_PD, handle);

	return pd ? pd : object_get(attachment, OBJECT_PARENT_DOMAIN, handle);
}
