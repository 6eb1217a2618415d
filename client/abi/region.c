/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * <verbsd.h>: memory regions that processes share. The daemon makes, names and counts them; their memory is mapped
 * here, and populated here, so that it is this process that pays for the pages. The MR on one is as any other, but for
 * its key, which is the region's, and its address in work requests, which is the same in every process.
 */
#include "client/verbsd.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/abi/abi.h"
#include "client/abi/capability.h"
#include "client/abi/native_mr.h"
#include "client/abi/region.h"
#include "client/native/native.h"
#include "client/soft/region.h"

#define ATTR_FLAGS                                                                                \
	((unsigned)(VERBSD_MR_HUGE_2M | VERBSD_MR_HUGE_1G | VERBSD_MR_POPULATE | VERBSD_MR_NUMA))
#define EXPORT_FLAGS                                                                              \
	((unsigned)(VERBSD_EXPORT_READ_ONLY | VERBSD_EXPORT_PERSIST | VERBSD_EXPORT_SEAL))
#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-"

/*
 * The head of each call here, as ABI_ENTER: what is not ours may be another copy's of this library, if that one serves
 * the process. Otherwise it is a real device's: native_mr.c.
 */
#define ENTER(ctx, fail, name, ...)                                                               \
	do {                                                                                      \
		if (!abi_ours(ctx) && real_deferred())                                            \
			return REAL_INT(fail(EOPNOTSUPP), name, "VERBSD_1", __VA_ARGS__);         \
		if (!abi_ours(ctx) && !(ctx)->device) /* nothing that a device was opened for */  \
			return fail(EOPNOTSUPP);                                                  \
		if (abi_ours(ctx) && abi_foreign(ctx))                                            \
			return fail(ABI_CHILD_ERRNO);                                             \
	} while (0)

static int fail_int(int error)
{
	return abi_errno(-error);
}

/* --- arguments ----------------------------------------------------------------------------------------------------- */

static int name_check(const char *name)
{
	size_t n = name ? strlen(name) : 0;

	return n >= 1 && n < sizeof(((struct verbsd_mr_info *)0)->name) && strspn(name, NAME_CHARS) == n
		       ? 0
		       : -EINVAL;
}

/* What a region can do about access: its addresses are given, and its pages are never paged in from elsewhere. */
static int access_check(unsigned *access)
{
	*access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (*access & (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB))
		return -EINVAL;
	return abi_access_check(*access);
}

static int attr_check(const struct verbsd_mr_attr *attr, unsigned *access)
{
	if (!attr || attr->comp_mask || !attr->size || attr->flags & ~ATTR_FLAGS)
		return -EINVAL;
	if ((attr->flags & VERBSD_MR_HUGE_2M) && (attr->flags & VERBSD_MR_HUGE_1G))
		return -EINVAL;
	*access = attr->access | IBV_ACCESS_LOCAL_WRITE;
	return access_check(access);
}

static uint32_t attr_flags(const struct verbsd_mr_attr *attr)
{
	uint32_t flags = 0;

	if (attr->flags & VERBSD_MR_HUGE_2M)
		flags |= VSD__REGION_FLAG__REGION_HUGE_2M;
	if (attr->flags & VERBSD_MR_HUGE_1G)
		flags |= VSD__REGION_FLAG__REGION_HUGE_1G;
	return flags;
}

static uint32_t export_flags(unsigned flags)
{
	uint32_t result = 0;

	if (flags & VERBSD_EXPORT_READ_ONLY)
		result |= VSD__REGION_FLAG__REGION_READ_ONLY;
	if (flags & VERBSD_EXPORT_PERSIST)
		result |= VSD__REGION_FLAG__REGION_PERSIST;
	if (flags & VERBSD_EXPORT_SEAL)
		result |= VSD__REGION_FLAG__REGION_SEAL;
	return result;
}

/* --- making one ---------------------------------------------------------------------------------------------------- */

/* The call whose answer is an MR on a region: *@reply, to be freed, and *@fd. */
static int region_call(const struct soft_context *ctx, uint16_t op, const ProtobufCMessage *request,
	Vsd__RegionReply **reply, int *fd)
{
	ProtobufCMessage *message = NULL;
	struct fdlist fds = FDLIST_NULL;
	int r = control_call(op, request, &vsd__region_reply__descriptor, &message, &fds);

	if (r == 0 && (fds.n != 1 || !message))
		r = -EPROTO;
	if (r == 0) {
		*reply = (Vsd__RegionReply *)message;
		*fd = fdlist_steal(&fds, 0);
		return 0;
	}
	/* It was made, but its fd is lost. */
	if (message)
		control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_MR,
			((Vsd__RegionReply *)message)->handle);
	protobuf_c_message_free_unpacked(message, NULL);
	fdlist_deinit(&fds);
	return r;
}

static int memory_prepare(const struct soft_region *region, const struct verbsd_mr_attr *attr)
{
	int r = 0;

	if (!attr)
		return 0;
	if (attr->flags & VERBSD_MR_NUMA)
		r = region_bind(region, attr->numa_node);
	if (r == 0 && attr->flags & VERBSD_MR_POPULATE)
		r = region_populate(region);
	return r;
}

/* The daemon's word about what the region shall be. */
static int persist_set(const struct soft_context *ctx, uint32_t mr, bool persist)
{
	Vsd__RegionPersistRequest request = VSD__REGION_PERSIST_REQUEST__INIT;

	request.context = ctx->id;
	request.mr = mr;
	request.persist = persist;
	return control_call(VSD__OP__OP_REGION_PERSIST, &request.base, NULL, NULL, NULL);
}

static int region_use(struct soft_mr *mr, const struct abi_region_call *call, const Vsd__RegionReply *reply, int fd)
{
	bool writable = !(reply->flags & VSD__REGION_FLAG__REGION_READ_ONLY);
	int r = region_map(reply->region, fd, reply->iova, reply->size, writable, &mr->region);

	if (r < 0)
		return r;
	mr->mem = mr->region->addr;
	mr->mapped = true;
	mr->mapped_writable = writable;
	mr->mr.addr = mr->mem;
	mr->mr.length = reply->size;
	return memory_prepare(mr->region, reply->created ? call->attr : NULL);
}

/* Maps what the daemon gave, as @mr. Takes @fd over. */
static int mr_fill(struct soft_mr *mr, const struct abi_region_call *call,
	const Vsd__RegionReply *reply, int fd)
{
	mr->handle = reply->handle;
	mr->key = reply->key;
	mr->leased = reply->key == call->spare_key;
	mr->iova = reply->iova;
	mr->access = reply->access;
	if (!reply->has_memory || reply->memory == VSD__MR_MEMORY__MR_ON_REGION)
		return region_use(mr, call, reply, fd);
	if (call->map)
		return call->map(mr, reply, fd);
	close(fd);
	return -EPROTO;
}

static int mr_make(struct soft_mr *mr, const struct abi_region_call *call, bool *created)
{
	Vsd__RegionReply *reply = NULL;
	int fd = -1, r = region_call(mr->ctx, call->op, call->request, &reply, &fd);

	if (!reply)
		return r;
	r = mr_fill(mr, call, reply, fd);
	if (r == 0) {
		r = abi_mr_start(mr);
	} else {
		/* A region that is not what was asked for shall not outlive this call under its name. */
		if (reply->created)
			persist_set(mr->ctx, reply->handle, false);
		control_destroy(mr->ctx->id, VSD__OBJECT_TYPE__OBJ_MR, reply->handle);
	}
	if (r < 0) {
		mr->region = region_put(mr->region);
		abi_mr_unmap(mr);
	} else if (created) {
		*created = reply->created;
	}
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return r;
}

struct soft_mr *abi_region_mr(struct ibv_pd *pd, const struct abi_region_call *call, bool *created)
{
	struct soft_mr *mr = abi_mr_alloc(pd, NULL, 0, 0);
	int r = mr ? mr_make(mr, call, created) : -ENOMEM;

	if (call->spare_key && (r < 0 || !mr->leased))
		abi_key_put(soft_context_of(pd->context), call->spare_key);
	if (r < 0) {
		free(mr);
		return abi_null(-r);
	}
	return mr;
}

/* --- on real devices ------------------------------------------------------------------------------------------------ */

static int native_prepare(const struct soft_region *region, const void *attr)
{
	return memory_prepare(region, attr);
}

/* What may be ignored elsewhere counts there. */
static uint32_t native_access(unsigned asked, unsigned access)
{
	return access | (asked & IBV_ACCESS_RELAXED_ORDERING);
}

static struct ibv_mr *native_alloc(struct ibv_pd *pd, const struct verbsd_mr_attr *attr, unsigned access)
{
	struct native_mr_call call = {
		.request = VSD__NATIVE_REGION_REQUEST__INIT, .prepare = native_prepare, .arg = attr
	};

	call.request.access = native_access(attr->access, access);
	call.request.flags = attr_flags(attr);
	call.request.has_size = true;
	call.request.size = attr->size;
	return native_mr_new(pd, &call, NULL);
}

/* @import as for a soft device; @asked: the access that the program said. */
static struct ibv_mr *native_import(struct ibv_pd *pd, const Vsd__RegionImportRequest *import, unsigned asked,
	const struct verbsd_mr_attr *attr, bool *created)
{
	struct native_mr_call call = {
		.request = VSD__NATIVE_REGION_REQUEST__INIT, .prepare = native_prepare, .arg = attr
	};

	call.request.access = native_access(asked, import->access);
	call.request.flags = import->flags;
	call.request.name = import->name;
	call.request.has_nonce = import->has_nonce;
	call.request.nonce = import->nonce;
	call.request.has_size = import->has_size;
	call.request.size = import->size;
	return native_mr_new(pd, &call, created);
}

VERBS_API struct ibv_mr *verbsd_alloc_mr(struct ibv_pd *pd, const struct verbsd_mr_attr *attr)
{
	ENTER(pd->context, abi_null, verbsd_alloc_mr, pd, attr);

	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;
	unsigned access;
	int r = attr_check(attr, &access);

	if (r < 0)
		return abi_null(-r);
	if (!abi_ours(pd->context))
		return native_alloc(pd, attr, access);
	request.context = soft_context_of(pd->context)->id;
	request.pd = pd->handle;
	request.size = attr->size;
	request.access = access;
	request.flags = attr_flags(attr);

	const struct abi_region_call call = {
		.op = VSD__OP__OP_REGION_CREATE,
		.request = &request.base,
		.attr = attr,
	};
	struct soft_mr *mr = abi_region_mr(pd, &call, NULL);

	return mr ? &mr->mr : NULL;
}

/* --- finding one --------------------------------------------------------------------------------------------------- */

static struct ibv_mr *mr_import(struct ibv_pd *pd, Vsd__RegionImportRequest *request, unsigned asked,
	const struct verbsd_mr_attr *attr, bool *created)
{
	if (!abi_ours(pd->context))
		return native_import(pd, request, asked, attr, created);

	struct soft_context *ctx = soft_context_of(pd->context);
	struct abi_region_call call = {
		.op = VSD__OP__OP_REGION_IMPORT,
		.request = &request->base,
		.attr = attr,
	};
	int r = abi_key_take(ctx, &call.spare_key);

	if (r < 0)
		return abi_null(-r);
	request->context = ctx->id;
	request->pd = pd->handle;
	request->spare_key = call.spare_key;

	struct soft_mr *mr = abi_region_mr(pd, &call, created);

	return mr ? &mr->mr : NULL;
}

VERBS_API struct ibv_mr *verbsd_import_mr(struct ibv_pd *pd, const char *name, unsigned access)
{
	ENTER(pd->context, abi_null, verbsd_import_mr, pd, name, access);

	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;
	unsigned asked = access;
	int r = name_check(name);

	if (r == 0)
		r = access_check(&access);
	if (r < 0)
		return abi_null(-r);
	request.name = (char *)(uintptr_t)name;
	request.access = access;
	return mr_import(pd, &request, asked, NULL, NULL);
}

VERBS_API struct ibv_mr *verbsd_import_mr_fd(struct ibv_pd *pd, int fd, unsigned access)
{
	ENTER(pd->context, abi_null, verbsd_import_mr_fd, pd, fd, access);

	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;
	uint8_t nonce[VSD_NONCE_SIZE];
	unsigned asked = access;
	int r = access_check(&access);

	if (r == 0)
		r = capability_read(fd, nonce);
	if (r < 0)
		return abi_null(-r);
	request.has_nonce = true;
	request.nonce.data = nonce;
	request.nonce.len = sizeof(nonce);
	request.access = access;

	struct ibv_mr *mr = mr_import(pd, &request, asked, NULL, NULL);

	explicit_bzero(nonce, sizeof(nonce));
	return mr;
}

VERBS_API struct ibv_mr *verbsd_attach_mr(struct ibv_pd *pd, const char *name,
	const struct verbsd_mr_attr *attr, unsigned flags, bool *created)
{
	ENTER(pd->context, abi_null, verbsd_attach_mr, pd, name, attr, flags, created);

	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;
	unsigned access;
	int r = name_check(name);

	if (r == 0)
		r = attr_check(attr, &access);
	/* A seal has to come after the creator has filled the region. */
	if (flags & ~EXPORT_FLAGS || flags & VERBSD_EXPORT_SEAL)
		r = -EINVAL;
	if (r < 0)
		return abi_null(-r);
	request.name = (char *)(uintptr_t)name;
	/* Who finds a read-only one may read it: the daemon implies writing where it can be. */
	request.access = access & (attr->access | ~(unsigned)IBV_ACCESS_LOCAL_WRITE);
	request.has_size = true;
	request.size = attr->size;
	request.flags = VSD__REGION_FLAG__REGION_CREATE | attr_flags(attr) | export_flags(flags);
	return mr_import(pd, &request, attr->access, attr, created);
}

/* --- giving it to others ------------------------------------------------------------------------------------------- */

/* An MR on a region, in the daemon's terms. */
struct target {
	bool native;
	uint32_t context, mr;
	uint32_t rkey;
	unsigned access;
	bool writable;
};

/* -EINVAL: it is not on a region. */
static int target_of(struct ibv_mr *m, struct target *target)
{
	struct native_mr_name name;
	const struct soft_mr *mr;
	int r;

	if (abi_ours(m->context)) {
		mr = soft_mr_of(m);
		if (!mr->region || mr->gone)
			return -EINVAL;
		*target = (struct target){
			.context = mr->ctx->id, .mr = mr->handle, .rkey = mr->key, .access = mr->access, .writable = mr->mapped_writable
		};
		return 0;
	}
	r = native_mr_name(m, &name);
	if (r == 0)
		*target = (struct target){
			.native = true, .mr = name.handle, .rkey = name.rkey, .access = name.access, .writable = name.writable
		};
	return r;
}

/* In the session that the MR is in; real devices have one of their own. */
static int call_in(bool native, uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **reply, struct fdlist *fds)
{
	return native ? native_call(op, request, type, reply, fds) : control_call(op, request, type, reply, fds);
}

static int daemon_export(const struct target *target, const char *name, unsigned flags, struct fdlist *fds)
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;

	request.context = target->context;
	request.mr = target->mr;
	request.name = (char *)(uintptr_t)name;
	request.flags = export_flags(flags);
	return call_in(target->native, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL, fds);
}

VERBS_API int verbsd_export_mr(struct ibv_mr *m, const char *name, unsigned flags)
{
	ENTER(m->context, fail_int, verbsd_export_mr, m, name, flags);

	struct target target = { .native = false };
	int r = target_of(m, &target);

	if (r == 0 && (flags & ~EXPORT_FLAGS || name_check(name) < 0))
		r = -EINVAL;
	return abi_errno(r < 0 ? r : daemon_export(&target, name, flags, NULL));
}

VERBS_API int verbsd_export_mr_fd(struct ibv_mr *m, unsigned flags)
{
	ENTER(m->context, abi_minus, verbsd_export_mr_fd, m, flags);

	struct fdlist fds = FDLIST_NULL;
	struct target target = { .native = false };
	int r = flags & ~EXPORT_FLAGS ? -EINVAL : target_of(m, &target);

	if (r == 0)
		r = daemon_export(&target, NULL, flags, &fds);
	if (r == 0 && fds.n != 1)
		r = -EPROTO;
	if (r == 0)
		r = fdlist_steal(&fds, 0);
	fdlist_deinit(&fds);
	return r < 0 ? abi_minus(-r) : r;
}

VERBS_API int verbsd_persist_mr(struct ibv_mr *m, bool persist)
{
	ENTER(m->context, fail_int, verbsd_persist_mr, m, persist);

	Vsd__RegionPersistRequest request = VSD__REGION_PERSIST_REQUEST__INIT;
	struct target target = { .native = false };
	int r = target_of(m, &target);

	if (r < 0)
		return abi_errno(r);
	request.context = target.context;
	request.mr = target.mr;
	request.persist = persist;
	return abi_errno(call_in(target.native, VSD__OP__OP_REGION_PERSIST, &request.base, NULL, NULL, NULL));
}

VERBS_API int verbsd_release_mr(struct ibv_context *c, const char *name)
{
	ENTER(c, fail_int, verbsd_release_mr, c, name);

	Vsd__RegionReleaseRequest request = VSD__REGION_RELEASE_REQUEST__INIT;

	if (name_check(name) < 0)
		return fail_int(EINVAL);
	request.name = (char *)(uintptr_t)name;
	return abi_errno(call_in(!abi_ours(c), VSD__OP__OP_REGION_RELEASE, &request.base, NULL, NULL, NULL));
}

/* --- looking ------------------------------------------------------------------------------------------------------- */

static unsigned info_flags(uint32_t flags)
{
	unsigned result = 0;

	if (flags & VSD__REGION_FLAG__REGION_HUGE_2M)
		result |= VERBSD_MR_HUGE_2M;
	if (flags & VSD__REGION_FLAG__REGION_HUGE_1G)
		result |= VERBSD_MR_HUGE_1G;
	if (flags & VSD__REGION_FLAG__REGION_PERSIST)
		result |= VERBSD_MR_PERSIST;
	if (flags & VSD__REGION_FLAG__REGION_READ_ONLY)
		result |= VERBSD_MR_READ_ONLY;
	return result;
}

static void info_fill(struct verbsd_mr_info *info, const Vsd__Item *item)
{
	*info = (struct verbsd_mr_info){
		.rkey = item->number,
		.flags = info_flags(item->flags),
		.users = item->users,
		.size = item->length,
		.base = item->addr,
		.page_size = item->has_huge ? item->huge : (uint64_t)sysconf(_SC_PAGESIZE),
	};
	if (item->name)
		snprintf(info->name, sizeof(info->name), "%s", item->name);
}

static int daemon_query(const struct target *target, Vsd__Item **item)
{
	Vsd__RegionQueryRequest request = VSD__REGION_QUERY_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	request.context = target->context;
	request.mr = target->mr;

	int r = call_in(
		target->native, VSD__OP__OP_REGION_QUERY, &request.base, &vsd__item__descriptor, &message, NULL);

	*item = (Vsd__Item *)message;
	return r == 0 && !message ? -EPROTO : r;
}

VERBS_API int verbsd_query_mr(struct ibv_mr *m, struct verbsd_mr_info *info)
{
	ENTER(m->context, fail_int, verbsd_query_mr, m, info);

	struct target target = { .native = false };
	Vsd__Item *item = NULL;
	int r = info ? target_of(m, &target) : -EINVAL;

	if (r == 0)
		r = daemon_query(&target, &item);
	if (!item)
		return abi_errno(r);
	info_fill(info, item);
	vsd__item__free_unpacked(item, NULL);
	/* What this pointer's own key and rights are; others may have more. */
	info->rkey = target.rkey;
	info->access = target.access;
	info->flags &= ~(unsigned)VERBSD_MR_READ_ONLY;
	if (!target.writable)
		info->flags |= VERBSD_MR_READ_ONLY;
	return 0;
}

/* One page of the listing: how many it has, and *@next. */
static int list_page(bool native, uint32_t *next, struct verbsd_mr_info *info, size_t room)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	request.has_type = true;
	request.type = VSD__OBJECT_TYPE__OBJ_REGION;
	request.page = *next;

	int r = call_in(
		native, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor, &message, NULL);

	if (r < 0)
		return r;

	const Vsd__ListReply *reply = (const Vsd__ListReply *)message;

	for (size_t i = 0; i < reply->n_items && i < room; i++)
		info_fill(&info[i], reply->items[i]);
	r = (int)reply->n_items;
	*next = reply->has_next_page ? reply->next_page : 0;
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

/* The daemon keeps the place of one listing per session. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

void abi_region_in_child(void)
{
	pthread_mutex_init(&list_lock, NULL);
}

VERBS_API int verbsd_list_mr(struct ibv_context *c, struct verbsd_mr_info *info, int n)
{
	ENTER(c, abi_minus, verbsd_list_mr, c, info, n);

	uint32_t page = 0;
	int total = 0, r;

	if (n < 0 || (n > 0 && !info))
		return abi_minus(EINVAL);
	pthread_mutex_lock(&list_lock);
	do {
		r = list_page(!abi_ours(c), &page, total < n ? info + total : NULL, total < n ? (size_t)(n - total) : 0);
		total += r > 0 ? r : 0;
	} while (r >= 0 && page);
	pthread_mutex_unlock(&list_lock);
	return r < 0 ? abi_minus(-r) : total;
}
