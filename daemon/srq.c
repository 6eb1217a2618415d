/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an SRQ outlives the QPs that take from it, never the other way round.
 */
#include "daemon/srq.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/xrcd.h"
#include "proto/limits.h"

enum { REF_PD, REF_CQ, REF_XRCD, REFS };
enum { SRQT_BASIC = 0, SRQT_XRC = 1 };

#define RECV_BYTES 32u
#define SGE_BYTES  16u
#define TAG_BYTES  192u

struct srq {
	struct object object;
	struct srq_attr attr;
	struct number number; /* of an XRC SRQ */
};

static uint32_t srq_max(const struct device_attr *attr)
{
	return attr->max_srq;
}

static void srq_fini(struct object *object)
{
	const struct srq *srq = (const struct srq *)object;

	if (srq->attr.type != SRQT_XRC)
		return;
	numbers_remove(&object->context->server->numbers, &srq->number);
	lease_number_give(&object->owner->leases[LEASE_KIND_QPN], srq->number.value);
}

static void srq_describe(const struct object *object, struct item *item)
{
	const struct srq *srq = (const struct srq *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item_set_ref(item, &item->recv_cq, ITEM_RECV_CQ, object_refers(object, REF_CQ));
	item_set_ref(item, &item->xrcd, ITEM_XRCD, object_refers(object, REF_XRCD));
	item->kind = srq->attr.type == SRQT_XRC ? "XRC" : srq->attr.max_tags ? "TM" : "BASIC";
	if (srq->attr.type == SRQT_XRC) {
		item->number = srq->number.value;
		item->has |= ITEM_NUMBER;
	}
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
	.fini = srq_fini,
	.describe = srq_describe,
};

static int number_take(struct attachment *attachment, struct srq *srq)
{
	struct list *leases = &attachment->leases[LEASE_KIND_QPN];
	int r = lease_number_take(leases, srq->attr.number);

	if (r < 0)
		return r;
	srq->number = (struct number){ NUMBER_SRQ, srq->attr.number };
	r = numbers_add(&attachment->context->server->numbers, &srq->number);
	if (r < 0)
		lease_number_give(leases, srq->attr.number);
	return r;
}

static int check(const struct device_attr *device, const struct srq_attr *attr)
{
	bool xrc = attr->type == SRQT_XRC;

	if (attr->type != SRQT_BASIC && !xrc)
		return refuse(-EOPNOTSUPP, "type %u", attr->type);
	if (xrc ? !attr->cq || !attr->xrcd || !attr->number : attr->xrcd || attr->number)
		return refuse(-EINVAL, "cq %u, xrcd %u, number 0x%x for an SRQ of type %u", attr->cq,
			attr->xrcd, attr->number, attr->type);
	if (attr->max_wr == 0 || attr->max_wr > device->max_srq_wr ||
		attr->max_sge > device->max_sge)
		return refuse(-EINVAL, "%u receives of %u elements", attr->max_wr, attr->max_sge);
	return 0;
}

static uint64_t queue_bytes(const struct srq_attr *attr)
{
	return (uint64_t)attr->max_wr * (RECV_BYTES + (uint64_t)attr->max_sge * SGE_BYTES) +
	       (uint64_t)attr->max_tags * TAG_BYTES;
}

int srq_new(struct attachment *attachment, uint32_t pd, const struct srq_attr *attr,
	struct object **srq)
{
	bool xrc = attr->type == SRQT_XRC;
	struct object *on[REFS] = { [REF_PD] = pd_get(attachment, pd) };
	struct object *made;
	int r = check(&attachment->context->device->attr, attr);

	if (r < 0)
		return r;
	if (xrc) {
		on[REF_CQ] = object_get(attachment, OBJECT_CQ, attr->cq);
		on[REF_XRCD] = object_get(attachment, OBJECT_XRCD, attr->xrcd);
	}
	if (!on[REF_PD] || (xrc && (!on[REF_CQ] || !on[REF_XRCD])))
		return -EINVAL;
	r = object_new(attachment, OBJECT_SRQ, queue_bytes(attr), &made);
	if (r < 0)
		return r;
	((struct srq *)made)->attr = *attr;
	r = xrc ? number_take(attachment, (struct srq *)made) : 0;
	if (r < 0) {
		object_discard(made);
		return r;
	}
	for (unsigned i = 0; i < REFS; i++)
		object_refer(made, i, on[i]);
	r = object_publish(made);
	if (r == 0)
		*srq = made;
	return r;
}

bool srq_is_xrc(const struct object *srq)
{
	return ((const struct srq *)srq)->attr.type == SRQT_XRC;
}

struct process *srq_process(
	const struct server *server, uint32_t number, const struct xrc_domain *domain)
{
	const struct number *found = numbers_get(&server->numbers, number, NUMBER_SRQ);
	const struct srq *srq = found ? container_of(found, struct srq, number) : NULL;
	const struct attachment *owner = srq ? srq->object.owner : NULL;
	struct process *process;

	if (!srq || xrcd_domain(object_refers(&srq->object, REF_XRCD)) != domain)
		return NULL;
	/* A session that is lost has its objects for a little while. */
	process = owner->session ? owner->session->process : NULL;
	return process && !process->broken ? process : NULL;
}

int srq_modify(struct attachment *attachment, uint32_t handle, uint32_t max_wr, uint32_t max_tags)
{
	struct srq *srq = (struct srq *)object_get(attachment, OBJECT_SRQ, handle);
	struct srq_attr attr;
	int r;

	if (!srq)
		return -EINVAL;
	if (max_wr == 0 || max_wr > attachment->context->device->attr.max_srq_wr || max_tags > VSD_TAGS_MAX)
		return refuse(-EINVAL, "%u receives, %u tags", max_wr, max_tags);
	if (srq->attr.max_tags && !max_tags)
		return refuse(-EINVAL, "srq %u: it has tags", handle);
	attr = srq->attr;
	attr.max_wr = max_wr;
	attr.max_tags = max_tags;
	r = charge_change(&srq->object.bytes, queue_bytes(&attr));
	if (r == 0)
		srq->attr = attr;
	return r;
}
