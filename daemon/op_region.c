/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions.
 */
#include "daemon/op.h"

#include <errno.h>
#include <fcntl.h>

#include "daemon/context.h"
#include "daemon/dm.h"
#include "daemon/encode.h"
#include "daemon/fd.h"
#include "daemon/list_walk.h"
#include "daemon/mr.h"
#include "daemon/mr_place.h"
#include "daemon/native.h"
#include "daemon/native_region.h"
#include "daemon/pair.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/watch.h"
#include "daemon/wire_pair.h"

/* enum ibv_access_flags */
#define ACCESS_LOCAL_WRITE   (1u << 0)
#define ACCESS_REMOTE_WRITES (1u << 1 | 1u << 3) /* atomics too */
#define ACCESS_REMOTE        (ACCESS_REMOTE_WRITES | 1u << 2)

/* What an MR on a region is made from. */
struct use {
	struct attachment *attachment; /* NULL: it is for a real device */
	struct native *native;	       /* this one; NULL: one that the client opened itself */
	struct region *region;
	bool writable, created;
	uint32_t pd, access, spare_key;
};

static int check_flags(uint32_t flags, uint32_t known)
{
	return flags & ~known ? refuse(-EINVAL, "flags 0x%x", flags) : 0;
}

/* What is said of each MR that was just made, with the fd of its memory. On failure, also of @fd, nothing is left of it. */
static int answer(struct call *call, struct object *object, int fd, Vsd__RegionReply **reply)
{
	const struct mr *mr = (const struct mr *)object;
	int r = fd < 0 ? fd : fdlist_consume(&call->fds, fd);

	if (r < 0) {
		(void)object_destroy(object);
		return r;
	}
	*reply = call_alloc(call, sizeof(**reply));
	vsd__region_reply__init(*reply);
	(*reply)->handle = object->handle;
	(*reply)->key = mr->key;
	(*reply)->iova = mr->attr.iova;
	(*reply)->access = mr->attr.access;
	call->reply = &(*reply)->base;
	return 0;
}

/* The same for a real device. */
static int use_native(struct call *call, const struct use *use, bool writable)
{
	struct region *region = use->region;
	struct native_region *made;
	Vsd__NativeRegionReply *reply;
	int r = native_region_new(call->session, use->native, region, writable, use->access, &made);

	if (r < 0)
		return r;
	r = region_fd(region, call->session, writable);
	if (r >= 0)
		r = fdlist_consume(&call->fds, r);
	if (r < 0) {
		native_region_free(made);
		return r;
	}
	reply = call_alloc(call, sizeof(*reply));
	vsd__native_region_reply__init(reply);
	reply->handle = made->id;
	reply->iova = region->range.base;
	reply->size = region->size;
	reply->access = use->access;
	reply->flags = (region_flags(region) & ~(uint32_t)REGION_READ_ONLY) | (writable ? 0 : REGION_READ_ONLY);
	reply->region = region->number;
	reply->created = use->created;
	reply->registers = made->registers;
	call->reply = &reply->base;
	return 0;
}

/* The region's fd, an MR on it, and the answer that says so. On failure nothing is left of them. */
static int use_region(struct call *call, const struct use *use)
{
	struct region *region = use->region;
	bool writable = use->writable && !region->sealed;
	struct object *object;
	Vsd__RegionReply *reply;
	int r;

	if (!use->attachment)
		return use_native(call, use, writable);
	r = mr_new_on_region(
		use->attachment, use->pd, region, writable, use->access, use->spare_key, &object);
	if (r < 0)
		return r;
	r = answer(call, object, region_fd(region, call->session, writable), &reply);
	if (r < 0)
		return r;
	reply->size = region->size;
	reply->flags = region_flags(region) & ~(uint32_t)REGION_READ_ONLY;
	if (!writable)
		reply->flags |= REGION_READ_ONLY;
	reply->region = region->number;
	reply->created = use->created;
	return 0;
}

/* A new region, named if @name is given, with an MR. */
static int create(
	struct call *call, struct use *use, uint64_t size, uint32_t flags, const char *name)
{
	int r;

	if (!name && flags & (REGION_READ_ONLY | REGION_PERSIST))
		return refuse(-EINVAL, "flags 0x%x without a name", flags);
	r = region_new(call->session, size, flags & REGION_HUGE, &use->region);
	if (r < 0)
		return r;
	use->writable = true;
	use->created = true;
	use->access |= ACCESS_LOCAL_WRITE;
	/* Until it has a user it may go at any check; keep it by hand. */
	region_ref(use->region);
	if (name)
		r = region_export(use->region, call->session, name, flags);
	if (r == 0)
		r = use_region(call, use);
	if (r < 0)
		region_unname(use->region);
	region_unref(use->region);
	if (r == 0)
		region_announce(use->region);
	return r;
}

int op_region_create(struct call *call)
{
	const Vsd__RegionCreateRequest *request = (const void *)call->request;
	struct use use = {
		.attachment = call_attachment(call, request->context),
		.pd = request->pd,
		.access = request->access,
	};
	int r;

	if (!use.attachment)
		return -EINVAL;
	r = check_flags(request->flags, REGION_HUGE | REGION_READ_ONLY | REGION_PERSIST);
	if (r < 0)
		return r;
	return create(call, &use, request->size, request->flags, request->name);
}

static int import_by_nonce(
	struct call *call, struct use *use, const Vsd__RegionImportRequest *request)
{
	if (request->name || request->flags || request->has_size)
		return refuse(-EINVAL, "a capability alone says which region it is");
	if (request->nonce.len != VSD_NONCE_SIZE)
		return refuse(-EINVAL, "nonce of %zu bytes", request->nonce.len);
	use->region = region_open(call->server, request->nonce.data, &use->writable);
	if (!use->region)
		return refuse(-EACCES, "no region has this capability");
	return use_region(call, use);
}

static int import_by_name(
	struct call *call, struct use *use, const Vsd__RegionImportRequest *request)
{
	bool may_create = request->flags & REGION_CREATE;
	uint32_t flags = request->flags & ~(uint32_t)REGION_CREATE;
	int r = check_flags(flags, REGION_HUGE | REGION_READ_ONLY | REGION_PERSIST);

	if (r == 0)
		r = region_name_check(request->name);
	if (r < 0)
		return r;
	if (may_create ? !request->has_size || request->size == 0 : flags || request->has_size)
		return refuse(-EINVAL, "size and flags come with CREATE, and CREATE with a size");
	use->region = region_find(call->server, call->session->domain, request->name);
	if (!use->region && may_create)
		return create(call, use, request->size, flags, request->name);
	if (!use->region)
		return refuse(-ENOENT, "no region %s", request->name);
	if (may_create && request->size > use->region->size)
		return refuse(-EINVAL, "region %s has 0x%llx bytes", request->name,
			(unsigned long long)use->region->size);
	use->writable = !use->region->read_only;
	/* As if it had created it, as far as that goes. */
	if (may_create && use->writable)
		use->access |= ACCESS_LOCAL_WRITE;
	return use_region(call, use);
}

int op_region_import(struct call *call)
{
	const Vsd__RegionImportRequest *request = (const void *)call->request;
	struct use use = {
		.attachment = call_attachment(call, request->context),
		.pd = request->pd,
		.access = request->access,
		.spare_key = request->spare_key,
	};

	if (!use.attachment)
		return -EINVAL;
	if (request->has_nonce)
		return import_by_nonce(call, &use, request);
	if (!request->name)
		return refuse(-EINVAL, "neither name nor capability");
	return import_by_name(call, &use, request);
}

int op_native_region(struct call *call)
{
	const Vsd__NativeRegionRequest *request = (const void *)call->request;
	struct native *native = request->has_native ? native_get(call->session, request->native) : NULL;
	struct use use = { .native = native, .access = request->access };
	Vsd__RegionImportRequest import = VSD__REGION_IMPORT_REQUEST__INIT;
	int r;

	if (request->has_native && (!native || native->fd < 0))
		return refuse(-EINVAL, "no real context %u", request->native);
	import.name = request->name;
	import.has_nonce = request->has_nonce;
	import.nonce = request->nonce;
	import.has_size = request->has_size;
	import.size = request->size;
	import.flags = request->flags;
	if (request->has_nonce)
		return import_by_nonce(call, &use, &import);
	if (request->name)
		return import_by_name(call, &use, &import);
	r = check_flags(request->flags, REGION_HUGE);
	return r < 0 ? r : create(call, &use, request->size, request->flags, NULL);
}

/* The file of a device memory, or who knows the file: the process that registered @mr. */
static int memory_fd(const struct mr *mr)
{
	const struct session *session;

	if (mr_dm(mr))
		return dm_fd(mr_dm(mr));
	session = mr->object.owner->session;
	if (!session || session->pidfd < 0)
		return refuse(-EOPNOTSUPP, "no pidfd of the process of mr %u", mr->object.handle);
	return fd_admit(fcntl(session->pidfd, F_DUPFD_CLOEXEC, 0));
}

/* An MR like @from, which is on no region. On failure nothing is left of it. */
static int use_memory(struct call *call, struct attachment *attachment,
	const Vsd__MrImportRequest *request, const struct mr *from)
{
	struct object *object;
	Vsd__RegionReply *reply;
	const struct mr *mr;
	int r = mr_new_like(attachment, request->pd, from, request->spare_key, &object);

	if (r < 0)
		return r;
	r = answer(call, object, memory_fd(from), &reply);
	if (r < 0)
		return r;
	mr = (const struct mr *)object;
	reply->has_memory = reply->has_at = reply->has_length = 1;
	reply->memory = mr_dm(mr) ? VSD__MR_MEMORY__MR_ON_DM : VSD__MR_MEMORY__MR_ON_PROCESS;
	reply->at = mr->attr.addr;
	reply->length = mr->attr.length;
	reply->size = mr_dm(mr) ? dm_size(mr_dm(mr)) : mr->attr.length;
	return 0;
}

int op_mr_import(struct call *call)
{
	const Vsd__MrImportRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct object *pd = attachment ? pd_get(attachment, request->pd) : NULL;
	const struct mr *mr;
	struct use use;

	if (!pd)
		return -EINVAL;
	/* Whoever has the context has its MRs, whosever process they are of. */
	mr_places_look_context(attachment->context);
	mr = handle_get(&attachment->context->objects, request->handle, OBJECT_MR);
	if (!mr)
		return refuse(-EINVAL, "no mr %u", request->handle);
	if (pd_base(mr_pd(mr)) != pd_base(pd))
		return refuse(-EINVAL, "mr %u is of another pd", request->handle);
	if (!mr->region || mr->attr.heap)
		return use_memory(call, attachment, request, mr);
	use = (struct use){
		.attachment = attachment,
		.region = mr->region,
		.writable = mr->writable,
		.pd = request->pd,
		.access = mr->attr.access,
		.spare_key = request->spare_key,
	};
	return use_region(call, &use);
}

/* The region of an MR that the client has, and whether it may write it. NULL: refused. */
static struct region *own_region(const struct call *call, uint32_t context, uint32_t handle, bool *writable)
{
	const struct native_region *native = context ? NULL : native_region_get(call->session, handle);
	struct attachment *attachment = native ? NULL : call_attachment(call, context);
	const struct mr *mr =
		attachment ? (struct mr *)object_get(attachment, OBJECT_MR, handle) : NULL;

	if (native) {
		*writable = native->writable;
		return native->region;
	}
	if (mr && (!mr->region || mr->attr.heap)) {
		refuse(0, "mr %u is not on a shared region", handle);
		return NULL;
	}
	*writable = mr && mr->writable;
	return mr ? mr->region : NULL;
}

static int reply_capability(struct call *call, struct region *region, uint32_t flags)
{
	int r = region_keep(region, call->session, flags);

	if (r == 0)
		r = region_capability(region, !(flags & (REGION_READ_ONLY | REGION_SEAL)));
	return r < 0 ? r : fdlist_consume(&call->fds, r);
}

int op_region_export(struct call *call)
{
	const Vsd__RegionExportRequest *request = (const void *)call->request;
	bool writable, read_only = request->flags & REGION_READ_ONLY;
	struct region *region = own_region(call, request->context, request->mr, &writable);
	int r = check_flags(request->flags, REGION_READ_ONLY | REGION_PERSIST | REGION_SEAL);

	if (!region)
		return -EINVAL;
	if (r < 0)
		return r;
	if (!writable && (!read_only || request->flags & REGION_SEAL))
		return refuse(-EACCES, "who may only read a region exports it read-only");
	return request->name
		       ? region_export(region, call->session, request->name, request->flags)
		       : reply_capability(call, region, request->flags);
}

int op_region_persist(struct call *call)
{
	const Vsd__RegionPersistRequest *request = (const void *)call->request;
	bool writable;
	struct region *region = own_region(call, request->context, request->mr, &writable);

	return region ? region_persist(region, call->session, request->persist) : -EINVAL;
}

int op_region_release(struct call *call)
{
	const Vsd__RegionReleaseRequest *request = (const void *)call->request;
	bool admin = call->session->admin;
	struct region *region;
	int r = region_name_check(request->name);

	if (r < 0)
		return r;
	if (request->has_uid && !admin)
		return refuse(-EPERM, "uid is for the admin socket");
	if (admin && !request->has_uid)
		return refuse(-EINVAL, "whose region %s?", request->name);
	if (admin) {
		if (regions_release(call->server, request->uid, request->name) == 0)
			return refuse(
				-ENOENT, "uid %u has no region %s", request->uid, request->name);
		return 0;
	}
	region = region_find(call->server, call->session->domain, request->name);
	if (!region)
		return refuse(-ENOENT, "no region %s", request->name);
	region_release(region);
	return 0;
}

int op_region_query(struct call *call)
{
	const Vsd__RegionQueryRequest *request = (const void *)call->request;
	bool writable;
	const struct region *region = own_region(call, request->context, request->mr, &writable);
	const struct stats_who nobody = { .command = "" };
	struct item item;
	Vsd__Item *reply;

	if (!region)
		return -EINVAL;
	item_of_region(region, &item);
	reply = encode_item(&call->server->scratch, &item, &nobody);
	if (!reply)
		return -ENOMEM;
	call->reply = &reply->base;
	return 0;
}

/* ---- the map engine ---- */

/* The QP of @peer's at the other end of the wire that this QP of @process's has. NULL: there is none. */
static const struct qp *qp_beyond(const struct server *server, const struct process *process,
	const struct process *peer, uint32_t qpn)
{
	const struct qp *qp = qp_by_number(server, qpn), *other;
	const struct wire *wire = qp ? qp_wire(qp) : NULL;

	if (!wire || qp->process != process)
		return NULL;
	other = wire_peer_qp(wire, qp);
	return other && other->process == peer ? other : NULL;
}

/*
 * Whether @process may run engines on what is registered on @mr's PD. By QP number, for looking through all wires of two
 * processes takes its time.
 */
static int check_reach(
	const struct call *call, const struct process *peer, const struct mr *mr, uint32_t qpn)
{
	const struct process *process = call->session->process;
	const struct qp *other;

	if (process->domain != peer->domain)
		return refuse(-EACCES, "process %u is of another domain", peer->id);
	other = qp_beyond(call->server, process, peer, qpn);
	if (!other || pd_base(qp_pd(other)) != pd_base(mr_pd(mr)))
		return refuse(-EACCES,
			"no wire of QP 0x%x leads to process %u and the pd of key 0x%x", qpn,
			peer->id, mr->key);
	return 0;
}

int op_region_grant(struct call *call)
{
	const Vsd__RegionGrantRequest *request = (const void *)call->request;
	const struct process *peer = process_get(call->server, request->peer);
	const struct mr *mr =
		peer ? mr_on_region(call->server, peer->session->id, request->key) : NULL;
	Vsd__RegionGrantReply *reply;
	bool writable;
	int r;

	if (!mr)
		return refuse(-EACCES, "process %u has no region with key 0x%x", request->peer,
			request->key);
	r = check_reach(call, peer, mr, request->qpn);
	if (r < 0)
		return r;
	if (!(mr->attr.access & ACCESS_REMOTE))
		return refuse(-EACCES, "key 0x%x is not for others", mr->key);
	writable = mr->writable && !mr->region->sealed && mr->attr.access & ACCESS_REMOTE_WRITES;
	r = region_fd(mr->region, call->session, writable);
	if (r >= 0)
		r = fdlist_consume(&call->fds, r);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__region_grant_reply__init(reply);
	reply->region = mr->region->number;
	reply->iova = mr->attr.iova;
	reply->size = mr->region->size;
	reply->writable = writable;
	reply->has_offset = mr->attr.heap != 0;
	reply->offset = mr->attr.offset;
	call->reply = &reply->base;
	return 0;
}

/* ---- heaps ---- */

int op_heap_create(struct call *call)
{
	const Vsd__HeapCreateRequest *request = (const void *)call->request;
	struct region *region;
	Vsd__HeapReply *reply;
	int r = heap_new(call->session, request->size, &region);

	if (r < 0)
		return r;
	r = region_fd(region, call->session, true);
	if (r >= 0)
		r = fdlist_consume(&call->fds, r);
	if (r < 0) {
		(void)heap_give(call->session, region->number);
		return r;
	}
	reply = call_alloc(call, sizeof(*reply));
	vsd__heap_reply__init(reply);
	reply->region = region->number;
	reply->size = region->size;
	call->reply = &reply->base;
	return 0;
}

int op_heap_destroy(struct call *call)
{
	const Vsd__HeapDestroyRequest *request = (const void *)call->request;

	return heap_give(call->session, request->region);
}
