/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a window's key index must not be an MR's, in one process or in two.
 */
#include "daemon/mw.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/mr_place.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"

enum { REF_PD, REFS };
enum { MW_TYPE_1 = 1, MW_TYPE_2 = 2 };

struct mw {
	struct object object;
	uint32_t type, key;
};

static uint32_t mw_max(const struct device_attr *attr)
{
	return attr->max_mw;
}

static void mw_fini(struct object *object)
{
	struct mw *mw = (struct mw *)object;

	lease_number_give(&object->owner->leases[LEASE_KIND_KEY], mw->key >> 8);
}

static void mw_describe(const struct object *object, struct item *item)
{
	const struct mw *mw = (const struct mw *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item->number = mw->key;
	item->kind = mw->type == MW_TYPE_1 ? "1" : "2";
	item->has |= ITEM_NUMBER;
}

const struct object_class object_mw = {
	.name = "mw",
	.slot = SLOT_MWS,
	.size = sizeof(struct mw),
	.refs = REFS,
	.max = mw_max,
	.fini = mw_fini,
	.describe = mw_describe,
};

int mw_new(struct attachment *attachment, uint32_t pd, uint32_t type, uint32_t key,
	struct object **mw)
{
	struct object *on_pd = pd_get(attachment, pd);
	struct object *made;
	int r;

	if (!on_pd)
		return -EINVAL;
	if (type != MW_TYPE_1 && type != MW_TYPE_2)
		return refuse(-EINVAL, "type %u", type);
	r = object_new(attachment, OBJECT_MW, 0, &made);
	if (r < 0)
		return r;
	r = mr_key_take(attachment, key);
	if (r < 0) {
		object_discard(made);
		return r;
	}
	((struct mw *)made)->type = type;
	((struct mw *)made)->key = key;
	object_refer(made, REF_PD, on_pd);
	r = object_publish(made);
	if (r == 0)
		*mw = made;
	return r;
}
