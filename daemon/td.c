/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what a TD saves is saved in the client; here it counts, is listed, and cannot go while a parent domain stands
 * on it.
 */
#include "daemon/td.h"

#include "daemon/context.h"
#include "daemon/item.h"

struct td {
	struct object object;
};

static uint32_t td_max(const struct device_attr *attr)
{
	return attr->max_td;
}

static void td_describe(const struct object *object, struct item *item)
{
	item->users = object->n_users;
	item->has |= ITEM_USERS;
}

const struct object_class object_td = {
	.name = "td",
	.slot = SLOT_TDS,
	.size = sizeof(struct td),
	.max = td_max,
	.describe = td_describe,
};

int td_new(struct attachment *attachment, struct object **td)
{
	struct object *made;
	int r = object_new(attachment, OBJECT_TD, 0, &made);

	if (r == 0)
		r = object_publish(made);
	if (r == 0)
		*td = made;
	return r;
}
