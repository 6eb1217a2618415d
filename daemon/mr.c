/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a region's key must be the client's own, once, and its PD and device memory must outlive it. Guarantees: a rereg
 * that fails changes nothing; who may only read a shared region gets no right to write it, here or from afar.
 */
#include "daemon/mr.h"

#include <errno.h>
#include <search.h>

#include "daemon/context.h"
#include "daemon/dm.h"
#include "daemon/item.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"
#include "daemon/region.h"
#include "daemon/server.h"

enum { REF_PD, REF_DM, REFS };

/* enum ibv_access_flags */
#define ACCESS_LOCAL_WRITE   (1u << 0)
#define ACCESS_REMOTE_WRITE  (1u << 1)
#define ACCESS_REMOTE_ATOMIC (1u << 3)
#define ACCESS_MW_BIND       (1u << 4)
#define ACCESS_WRITES                                                                             \
	(ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC | ACCESS_MW_BIND)
#define ACCESS_KNOWN    0x3ffu
#define ACCESS_OPTIONAL 0x3ff00000u

static uint32_t mr_max(const struct device_attr *attr)
{
	return attr->max_mr;
}

/* By process, and that by its session, whose number is never another's. */
static int on_region_compare(const void *a, const void *b)
{
	const struct mr *x = a, *y = b;

	if (x->object.session != y->object.session)
		return x->object.session < y->object.session ? -1 : 1;
	return x->key == y->key ? 0 : x->key < y->key ? -1 : 1;
}

static void mr_fini(struct object *object)
{
	struct mr *mr = (struct mr *)object;

	if (!mr->region || mr->key != mr->region->key)
		lease_number_give(&object->owner->leases[LEASE_KIND_KEY], mr->key >> 8);
	if (mr->region) {
		tdelete(mr, &object->context->server->regions.mrs, on_region_compare);
		region_unref(mr->region);
	}
}

static void mr_describe(const struct object *object, struct item *item)
{
	const struct mr *mr = (const struct mr *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item->number = mr->key;
	item->addr = mr->attr.addr;
	item->length = mr->attr.length;
	item->access = mr->attr.access;
	item->users = object->n_users;
	item->has |= ITEM_NUMBER | ITEM_ADDR | ITEM_LENGTH | ITEM_ACCESS | ITEM_USERS;
	if (mr->region) {
		region_describe(mr->region, item);
		item->flags &= ~(uint32_t)REGION_READ_ONLY;
		if (!mr->writable)
			item->flags |= REGION_READ_ONLY;
	}
}

const struct object_class object_mr = {
	.name = "mr",
	.slot = SLOT_MRS,
	.size = sizeof(struct mr),
	.refs = REFS,
	.max = mr_max,
	.fini = mr_fini,
	.describe = mr_describe,
};

static int check(const struct context *context, const struct mr_attr *attr)
{
	/* The whole address space, as null and implicit on-demand regions have it. */
	bool whole = attr->addr == 0 && attr->length == UINT64_MAX;

	if (attr->access & ~(ACCESS_KNOWN | ACCESS_OPTIONAL))
		return refuse(-EINVAL, "access flags 0x%x", attr->access);
	if (attr->access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) &&
		!(attr->access & ACCESS_LOCAL_WRITE))
		return refuse(-EINVAL, "remote write without local write");
	if (whole)
		return 0;
	if (attr->length > context->device->attr.max_mr_size ||
		attr->addr + attr->length < attr->addr)
		return refuse(-EINVAL, "0x%llx bytes at 0x%llx", (unsigned long long)attr->length,
			(unsigned long long)attr->addr);
	return 0;
}

static int check_writes(bool writable, uint32_t access)
{
	if (!writable && access & ACCESS_WRITES)
		return refuse(-EACCES, "access flags 0x%x, and it may only read", access);
	return 0;
}

/* On the bytes of @dm. */
static int check_dm(const struct object *dm, const struct mr_attr *attr)
{
	uint64_t length = dm_length(dm);

	if (attr->addr > length || attr->length > length - attr->addr)
		return refuse(-EINVAL, "0x%llx bytes at 0x%llx of the 0x%llx of dm %u",
			(unsigned long long)attr->length, (unsigned long long)attr->addr,
			(unsigned long long)length, dm->handle);
	return 0;
}

int mr_new(struct attachment *attachment, uint32_t pd, uint32_t key, const struct mr_attr *attr,
	struct object **mr)
{
	struct object *on_pd = pd_get(attachment, pd);
	struct object *on_dm = attr->dm ? dm_get(attachment, attr->dm) : NULL;
	struct object *made;
	int r;

	if (!on_pd || (attr->dm && !on_dm))
		return -EINVAL;
	r = check(attachment->context, attr);
	if (r == 0 && on_dm)
		r = check_dm(on_dm, attr);
	if (r < 0)
		return r;
	r = object_new(attachment, OBJECT_MR, 0, &made);
	if (r < 0)
		return r;
	r = lease_number_take(&attachment->leases[LEASE_KIND_KEY], key >> 8);
	if (r < 0) {
		object_discard(made);
		return r;
	}
	((struct mr *)made)->attr = *attr;
	((struct mr *)made)->key = key;
	object_refer(made, REF_PD, on_pd);
	object_refer(made, REF_DM, on_dm);
	r = object_publish(made);
	if (r == 0)
		*mr = made;
	return r;
}

const struct object *mr_pd(const struct mr *mr)
{
	return object_refers(&mr->object, REF_PD);
}

const struct mr *mr_on_region(const struct server *server, uint64_t session, uint32_t key)
{
	const struct mr wanted = { .object = { .session = session }, .key = key };
	void *node = tfind(&wanted, &server->regions.mrs, on_region_compare);

	return node ? *(struct mr **)node : NULL;
}

static int key_take(struct mr *mr, const struct region *region, uint32_t spare_key)
{
	const struct server *server = mr->object.context->server;

	mr->key = region->key;
	if (!mr_on_region(server, mr->object.session, region->key))
		return 0;
	mr->key = spare_key;
	return lease_number_take(&mr->object.owner->leases[LEASE_KIND_KEY], spare_key >> 8);
}

int mr_new_on_region(struct attachment *attachment, uint32_t pd, struct region *region,
	bool writable, uint32_t access, uint32_t spare_key, struct object **mr)
{
	const struct mr_attr attr = { .addr = region->range.base,
		.length = region->size,
		.iova = region->range.base,
		.access = access };
	struct object *on_pd = pd_get(attachment, pd), *object = NULL;
	struct mr *made;
	int r;

	if (!on_pd)
		return -EINVAL;
	r = check_writes(writable, access);
	if (r == 0)
		r = check(attachment->context, &attr);
	if (r == 0)
		r = object_new(attachment, OBJECT_MR, 0, &object);
	if (r != 0)
		return r;
	made = (struct mr *)object;
	made->attr = attr;
	made->writable = writable;
	r = key_take(made, region, spare_key);
	if (r == 0 &&
		!tsearch(made, &attachment->context->server->regions.mrs, on_region_compare)) {
		if (made->key != region->key)
			lease_number_give(&attachment->leases[LEASE_KIND_KEY], made->key >> 8);
		r = -ENOMEM;
	}
	if (r < 0) {
		object_discard(object);
		return r;
	}
	made->region = region;
	region_ref(region);
	object_refer(object, REF_PD, on_pd);
	r = object_publish(object);
	if (r == 0)
		*mr = object;
	return r;
}

/* What is on memory of the daemon's stays where it is. */
static int check_change(const struct mr *mr, const struct mr_attr *attr)
{
	bool moves = attr->addr != mr->attr.addr || attr->length != mr->attr.length ||
		     attr->iova != mr->attr.iova;

	if (moves && mr->attr.dm)
		return refuse(-EINVAL, "it is on dm %u", mr->attr.dm);
	if (!mr->region)
		return 0;
	if (moves)
		return refuse(-EINVAL, "it is on region %u, all of it", mr->region->number);
	return check_writes(mr->writable, attr->access);
}

int mr_change(struct attachment *attachment, uint32_t handle, const struct mr_change *change)
{
	struct object *object = object_get(attachment, OBJECT_MR, handle);
	struct object *on_pd = change->pd ? pd_get(attachment, *change->pd) : NULL;
	struct mr_attr attr;
	struct mr *mr;
	int r;

	if (!object || (change->pd && !on_pd))
		return -EINVAL;
	mr = (struct mr *)object;
	attr = (struct mr_attr){
		.addr = change->addr ? *change->addr : mr->attr.addr,
		.length = change->length ? *change->length : mr->attr.length,
		.iova = change->iova ? *change->iova : mr->attr.iova,
		.access = change->access ? *change->access : mr->attr.access,
		.dm = mr->attr.dm,
	};
	r = check(attachment->context, &attr);
	if (r == 0)
		r = check_change(mr, &attr);
	if (r < 0)
		return r;
	if (object->n_users > 0)
		return refuse(-EBUSY, "memory windows are bound to it");
	if (on_pd)
		object_replace(object, REF_PD, on_pd);
	mr->attr = attr;
	return 0;
}
