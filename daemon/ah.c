/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an AH is counted and listed; where it leads is looked up at the first send (PEER_RESOLVE), as on a fabric.
 */
#include "daemon/ah.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"

enum { REF_PD, REFS };

struct ah {
	struct object object;
	uint32_t dlid;
};

static uint32_t ah_max(const struct device_attr *attr)
{
	return attr->max_ah;
}

static void ah_describe(const struct object *object, struct item *item)
{
	const struct ah *ah = (const struct ah *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item->number = ah->dlid;
	item->has |= ITEM_NUMBER;
}

const struct object_class object_ah = {
	.name = "ah",
	.slot = SLOT_AHS,
	.size = sizeof(struct ah),
	.refs = REFS,
	.max = ah_max,
	.describe = ah_describe,
};

int ah_new(struct attachment *attachment, uint32_t pd, uint32_t port, uint32_t dlid,
	const uint8_t *gid, struct object **ah)
{
	struct object *on_pd = pd_get(attachment, pd);
	struct object *made;
	int r;

	if (!on_pd)
		return -EINVAL;
	if (port != 1 || dlid > 0xffff)
		return refuse(-EINVAL, "port %u, LID %u", port, dlid);
	if (!gid && attachment->context->device->config.link_layer == LINK_ETHERNET)
		return refuse(-EINVAL, "no GID on Ethernet");
	r = object_new(attachment, OBJECT_AH, 0, &made);
	if (r < 0)
		return r;
	((struct ah *)made)->dlid = dlid;
	object_refer(made, REF_PD, on_pd);
	r = object_publish(made);
	if (r == 0)
		*ah = made;
	return r;
}
