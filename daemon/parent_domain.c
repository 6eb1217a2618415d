/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a parent domain stands for its PD and binds a TD to what is made under it. Guarantees: neither can be destroyed
 * before it.
 */
#include "daemon/parent_domain.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"

enum { REF_PD, REF_TD, REFS };

struct parent_domain {
	struct object object;
};

static uint32_t parent_domain_max(const struct device_attr *attr)
{
	return attr->max_parent_domain;
}

static void parent_domain_describe(const struct object *object, struct item *item)
{
	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item_set_ref(item, &item->parent, ITEM_PARENT, object_refers(object, REF_TD));
	item->users = object->n_users;
	item->has |= ITEM_USERS;
}

const struct object_class object_parent_domain = {
	.name = "parent_domain",
	.slot = SLOT_PARENT_DOMAINS,
	.size = sizeof(struct parent_domain),
	.refs = REFS,
	.max = parent_domain_max,
	.describe = parent_domain_describe,
};

int parent_domain_new(
	struct attachment *attachment, uint32_t pd, uint32_t td, struct object **parent_domain)
{
	struct object *on_pd = object_get(attachment, OBJECT_PD, pd);
	struct object *on_td = td ? object_get(attachment, OBJECT_TD, td) : NULL;
	struct object *made;
	int r;

	if (!on_pd || (td && !on_td))
		return -EINVAL;
	r = object_new(attachment, OBJECT_PARENT_DOMAIN, 0, &made);
	if (r < 0)
		return r;
	object_refer(made, REF_PD, on_pd);
	object_refer(made, REF_TD, on_td);
	r = object_publish(made);
	if (r == 0)
		*parent_domain = made;
	return r;
}
