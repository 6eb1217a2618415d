/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: queues are the largest thing that a client can ask for by a number, so their bytes are charged before they
 * exist. Guarantees: a resize that fails leaves the old charge.
 */
#include "daemon/cq.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/refuse.h"

enum { REF_PARENT_DOMAIN, REFS };

#define CQE_BYTES 64u

struct cq {
	struct object object;
	uint32_t cqe;
	bool channel;
};

static uint32_t cq_max(const struct device_attr *attr)
{
	return attr->max_cq;
}

static void cq_describe(const struct object *object, struct item *item)
{
	const struct cq *cq = (const struct cq *)object;

	item_set_ref(item, &item->parent, ITEM_PARENT, object_refers(object, REF_PARENT_DOMAIN));
	item->kind = cq->channel ? "event" : "poll";
	item->depth = cq->cqe;
	item->users = object->n_users;
	item->has |= ITEM_DEPTH | ITEM_USERS;
}

const struct object_class object_cq = {
	.name = "cq",
	.slot = SLOT_CQS,
	.size = sizeof(struct cq),
	.refs = REFS,
	.max = cq_max,
	.describe = cq_describe,
};

static bool cqe_ok(const struct attachment *attachment, uint32_t cqe)
{
	if (cqe > 0 && cqe <= attachment->context->device->attr.max_cqe)
		return true;
	refuse(0, "%u entries", cqe);
	return false;
}

int cq_new(struct attachment *attachment, uint32_t cqe, bool channel, uint32_t parent_domain,
	struct object **cq)
{
	struct object *on = NULL, *made;
	int r;

	if (!cqe_ok(attachment, cqe))
		return -EINVAL;
	if (parent_domain) {
		on = object_get(attachment, OBJECT_PARENT_DOMAIN, parent_domain);
		if (!on)
			return -EINVAL;
	}
	r = object_new(attachment, OBJECT_CQ, (uint64_t)cqe * CQE_BYTES, &made);
	if (r < 0)
		return r;
	((struct cq *)made)->cqe = cqe;
	((struct cq *)made)->channel = channel;
	object_refer(made, REF_PARENT_DOMAIN, on);
	r = object_publish(made);
	if (r == 0)
		*cq = made;
	return r;
}

int cq_resize(struct attachment *attachment, uint32_t handle, uint32_t cqe)
{
	struct object *cq = object_get(attachment, OBJECT_CQ, handle);
	int r;

	if (!cq || !cqe_ok(attachment, cqe))
		return -EINVAL;
	r = charge_change(&cq->bytes, (uint64_t)cqe * CQE_BYTES);
	if (r < 0)
		return r;
	((struct cq *)cq)->cqe = cqe;
	return 0;
}
