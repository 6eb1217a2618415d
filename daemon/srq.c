/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an SRQ outlives the QPs that take from it, never the other way round.
 */
#include "daemon/srq.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"

enum { REF_PD, REFS };
enum { SRQT_BASIC = 0 };

#define RECV_BYTES 32u
#define SGE_BYTES  16u

struct srq {
	struct object object;
	struct srq_attr attr;
};

static uint32_t srq_max(const struct device_attr *attr)
{
	return attr->max_srq;
}

static void srq_describe(const struct object *object, struct item *item)
{
	const struct srq *srq = (const struct srq *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item->kind = "BASIC";
	item->depth = srq->attr.max_wr;
	item->users = object->n_users;
	item->has |= ITEM_DEPTH | ITEM_USERS;
}

const struct object_class object_srq = {
	.name = "srq",
	.slot = SLOT_SRQS,
	.size = sizeof(struct srq),
	.refs = REFS,
	.max = srq_max,
	.describe = srq_describe,
};

int srq_new(struct attachment *attachment, uint32_t pd, const struct srq_attr *attr,
	struct object **srq)
{
	const struct device_attr *device = &attachment->context->device->attr;
	struct object *on_pd = pd_get(attachment, pd);
	struct object *made;
	int r;

	if (attr->type != SRQT_BASIC)
		return refuse(-EOPNOTSUPP, "type %u", attr->type);
	if (!on_pd)
		return -EINVAL;
	if (attr->max_wr == 0 || attr->max_wr > device->max_srq_wr ||
		attr->max_sge > device->max_sge)
		return refuse(-EINVAL, "%u receives of %u elements", attr->max_wr, attr->max_sge);
	r = object_new(attachment, OBJECT_SRQ,
		(uint64_t)attr->max_wr * (RECV_BYTES + (uint64_t)attr->max_sge * SGE_BYTES),
		&made);
	if (r < 0)
		return r;
	((struct srq *)made)->attr = *attr;
	object_refer(made, REF_PD, on_pd);
	r = object_publish(made);
	if (r == 0)
		*srq = made;
	return r;
}
