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
#include "daemon/mr_place.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"
#include "daemon/region.h"
#include "daemon/server.h"

/* enum ibv_access_flags */
#define ACCESS_LOCAL_WRITE   (1u << 0)
#define ACCESS_REMOTE_WRITE  (1u << 1)
#define ACCESS_REMOTE_ATOMIC (1u << 3)
#define ACCESS_MW_BIND       (1u << 4)
#define ACCESS_ON_DEMAND     (1u << 6)
#define ACCESS_WRITES                                                                             \
	(ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC | ACCESS_MW_BIND)
#define ACCESS_KNOWN    0x3ffu
#define ACCESS_OPTIONAL 0x3ff00000u

static uint32_t mr_max(const struct device_attr *attr)
{
	return attr->max_mr;
}

/* By process, and that by its session, whose number is never another's. */
static int key_compare(const void *a, const void *b)
{
	const struct mr *x = a, *y = b;

	if (x->object.session != y->object.session)
		return x->object.session < y->object.session ? -1 : 1;
	return x->key == y->key ? 0 : x->key < y->key ? -1 : 1;
}

static void mr_fini(struct object *object)
{
	struct mr *mr = (struct mr *)object;

	if (mr->leased)
		lease_number_give(&object->owner->leases[LEASE_KIND_KEY], mr->key >> 8);
	if (mr->listed)
		tdelete(mr, &object->context->server->regions.mrs, key_compare);
	if (mr->region)
		region_unref(mr->region);
}

static void mr_describe(const struct object *object, struct item *item)
{
	const struct mr *mr = (const struct mr *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, MR_REF_PD));
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
	.refs = MR_REFS,
	.max = mr_max,
	.fini = mr_fini,
	.describe = mr_describe,
};

/* The whole address space, as null and implicit on-demand regions have it. */
static bool is_whole(const struct mr_attr *attr)
{
	return attr->addr == 0 && attr->length == UINT64_MAX;
}

int mr_check(const struct context *context, const struct mr_attr *attr)
{
	if (attr->access & ~(ACCESS_KNOWN | ACCESS_OPTIONAL))
		return refuse(-EINVAL, "access flags 0x%x", attr->access);
	if (attr->access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) &&
		!(attr->access & ACCESS_LOCAL_WRITE))
		return refuse(-EINVAL, "remote write without local write");
	if (is_whole(attr))
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

/* Where the peers that may map a heap find it: the tree of regions' MRs. */
static int on_heap(struct mr *mr, struct server *server, struct region *heap)
{
	if (!tsearch(mr, &server->regions.mrs, key_compare))
		return -ENOMEM;
	mr->listed = true;
	mr->region = heap;
	mr->writable = true;
	region_ref(heap);
	return 0;
}

static void off_heap(struct mr *mr)
{
	tdelete(mr, &mr->object.context->server->regions.mrs, key_compare);
	mr->listed = false;
	region_unref(mr->region);
	mr->region = NULL;
	mr->writable = false;
	mr->attr.heap = 0;
}

static int check_heap(const struct region *heap, const struct mr_attr *attr)
{
	if (!heap)
		return refuse(-EINVAL, "no heap %u", attr->heap);
	if (attr->dm || attr->offset > heap->size || attr->length > heap->size - attr->offset)
		return refuse(-EINVAL, "0x%llx bytes at 0x%llx of heap %u, which has 0x%llx",
			(unsigned long long)attr->length, (unsigned long long)attr->offset,
			attr->heap, (unsigned long long)heap->size);
	return 0;
}

int mr_new(struct attachment *attachment, uint32_t pd, uint32_t key, const struct mr_attr *attr,
	struct object **mr)
{
	struct object *on_pd = pd_get(attachment, pd);
	struct object *on_dm = attr->dm ? dm_get(attachment, attr->dm) : NULL;
	struct region *heap = attr->heap ? heap_find(attachment->session, attr->heap) : NULL;
	struct object *made;
	int r;

	if (!on_pd || (attr->dm && !on_dm))
		return -EINVAL;
	r = mr_check(attachment->context, attr);
	if (r == 0 && on_dm)
		r = check_dm(on_dm, attr);
	if (r == 0 && attr->heap)
		r = check_heap(heap, attr);
	if (r < 0)
		return r;
	r = object_new(attachment, OBJECT_MR, 0, &made);
	if (r < 0)
		return r;
	r = mr_key_take(attachment, key);
	if (r < 0) {
		object_discard(made);
		return r;
	}
	((struct mr *)made)->attr = *attr;
	((struct mr *)made)->key = key;
	((struct mr *)made)->leased = true;
	if (heap) {
		r = on_heap((struct mr *)made, attachment->context->server, heap);
		if (r < 0) {
			lease_number_give(&attachment->leases[LEASE_KIND_KEY], key >> 8);
			object_discard(made);
			return r;
		}
	}
	object_refer(made, MR_REF_PD, on_pd);
	object_refer(made, MR_REF_DM, on_dm);
	r = object_publish(made);
	if (r == 0)
		*mr = made;
	return r;
}

const struct object *mr_pd(const struct mr *mr)
{
	return object_refers(&mr->object, MR_REF_PD);
}

const struct object *mr_dm(const struct mr *mr)
{
	return object_refers(&mr->object, MR_REF_DM);
}

/* The MR of @session's process with this key, if it was another's to give. */
static const struct mr *with_key(const struct server *server, uint64_t session, uint32_t key)
{
	const struct mr wanted = { .object = { .session = session }, .key = key };
	void *node = tfind(&wanted, &server->regions.mrs, key_compare);

	return node ? *(struct mr **)node : NULL;
}

const struct mr *mr_on_region(const struct server *server, uint64_t session, uint32_t key)
{
	const struct mr *mr = with_key(server, session, key);

	return mr && mr->region ? mr : NULL;
}

static int key_take(struct mr *mr, uint32_t key, uint32_t spare_key)
{
	struct server *server = mr->object.context->server;
	int r;

	mr->key = key;
	if (with_key(server, mr->object.session, key)) {
		mr->key = spare_key;
		r = mr_key_take(mr->object.owner, spare_key);
		if (r < 0)
			return r;
		mr->leased = true;
	}
	if (!tsearch(mr, &server->regions.mrs, key_compare))
		return -ENOMEM;
	mr->listed = true;
	return 0;
}

/* Not published yet: mr_fini() and object_discard() undo it. */
static int new_with_key(struct attachment *attachment, struct object *pd, const struct mr_attr *attr,
	uint32_t key, uint32_t spare_key, struct mr **mr)
{
	struct object *object;
	int r = object_new(attachment, OBJECT_MR, 0, &object);

	if (r < 0)
		return r;
	((struct mr *)object)->attr = *attr;
	r = key_take((struct mr *)object, key, spare_key);
	if (r < 0) {
		mr_fini(object);
		object_discard(object);
		return r;
	}
	object_refer(object, MR_REF_PD, pd);
	*mr = (struct mr *)object;
	return 0;
}

static int publish(struct mr *made, struct object **mr)
{
	int r = object_publish(&made->object);

	if (r == 0)
		*mr = &made->object;
	return r;
}

int mr_new_on_region(struct attachment *attachment, uint32_t pd, struct region *region,
	bool writable, uint32_t access, uint32_t spare_key, struct object **mr)
{
	const struct mr_attr attr = { .addr = region->range.base,
		.length = region->size,
		.iova = region->range.base,
		.access = access };
	struct object *on_pd = pd_get(attachment, pd);
	struct mr *made;
	int r;

	if (!on_pd)
		return -EINVAL;
	r = check_writes(writable, access);
	if (r == 0)
		r = mr_check(attachment->context, &attr);
	if (r == 0)
		r = new_with_key(attachment, on_pd, &attr, region->key, spare_key, &made);
	if (r != 0)
		return r;
	made->writable = writable;
	made->region = region;
	region_ref(region);
	return publish(made, mr);
}

/* Whether another process of the context can have the memory that @mr is on. */
static int check_like(const struct attachment *attachment, const struct mr *mr)
{
	const struct object *object = &mr->object;

	if (object_refers(object, MR_REF_DM))
		return 0;
	if (mr->imported || object->owner->session == attachment->session)
		return refuse(-EOPNOTSUPP, "mr %u is on memory of this process's", object->handle);
	if (object->owner->domain != attachment->domain)
		return refuse(-EOPNOTSUPP, "mr %u is on memory of another domain's process",
			object->handle);
	if (is_whole(&mr->attr) || mr->attr.access & ACCESS_ON_DEMAND)
		return refuse(-EOPNOTSUPP, "mr %u is on no memory of its own", object->handle);
	return 0;
}

int mr_new_like(struct attachment *attachment, uint32_t pd, const struct mr *from,
	uint32_t spare_key, struct object **mr)
{
	struct object *on_pd = pd_get(attachment, pd);
	struct mr_attr attr = from->attr;
	struct mr *made;
	int r;

	if (!on_pd)
		return -EINVAL;
	attr.heap = 0; /* that is a matter of its process's */
	r = check_like(attachment, from);
	if (r == 0)
		r = new_with_key(attachment, on_pd, &attr, from->key, spare_key, &made);
	if (r < 0)
		return r;
	made->imported = true;
	object_refer(&made->object, MR_REF_DM, object_refers(&from->object, MR_REF_DM));
	return publish(made, mr);
}

static bool moved(const struct mr *mr, const struct mr_attr *attr)
{
	return attr->addr != mr->attr.addr || attr->length != mr->attr.length ||
	       attr->iova != mr->attr.iova;
}

/* What is on memory of the daemon's stays where it is. */
static int check_change(const struct mr *mr, const struct mr_attr *attr)
{
	bool moves = moved(mr, attr);

	if (moves && mr->attr.dm)
		return refuse(-EINVAL, "it is on dm %u", mr->attr.dm);
	if (moves && mr->imported)
		return refuse(-EINVAL, "it is on another process's memory");
	/* What was a part of a heap may become memory that is not. */
	if (!mr->region || mr->attr.heap)
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
	if (mr->place)
		return refuse(-EINVAL, "its process registers it by itself");
	attr = (struct mr_attr){
		.addr = change->addr ? *change->addr : mr->attr.addr,
		.length = change->length ? *change->length : mr->attr.length,
		.iova = change->iova ? *change->iova : mr->attr.iova,
		.access = change->access ? *change->access : mr->attr.access,
		.dm = mr->attr.dm,
	};
	r = mr_check(attachment->context, &attr);
	if (r == 0)
		r = check_change(mr, &attr);
	if (r < 0)
		return r;
	if (object->n_users > 0)
		return refuse(-EBUSY, "memory windows are bound to it");
	if (on_pd)
		object_replace(object, MR_REF_PD, on_pd);
	if (mr->attr.heap && moved(mr, &attr))
		off_heap(mr);
	attr.heap = mr->attr.heap;
	attr.offset = mr->attr.offset;
	mr->attr = attr;
	return 0;
}
