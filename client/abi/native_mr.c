/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MRs on shared regions, on real devices. The region is mapped and filled here, so that this process pays for its pages;
 * then the daemon registers it on the program's PD, by its dup of the device's file, and so on its own limit of locked
 * memory. Where it has no dup, or the driver's part in the program has a say in registrations, the driver is asked as for
 * any memory. To the driver's data path an MR is its keys: an MR of ours is one that it never hears of.
 */
#include "client/abi/native_mr.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/abi/abi.h"
#include "client/control/process.h"
#include "client/native/native.h"

/* Who made what the program has. */
enum maker {
	BY_DAEMON,
	BY_DRIVER,
	BY_IMPORT, /* the driver, of what the daemon registered once for a domain */
};

struct native_mr {
	struct native_mr *next;
	enum maker maker;
	struct ibv_mr *shown; /* the program's pointer: below, or the driver's */
	/* As the real library lays an MR out, should one come there. */
	struct {
		struct ibv_mr mr;
		int type, access;
	} own;
	struct soft_region *region;
	uint32_t id; /* at the daemon, */
	uint64_t session; /* in this session */
	uint64_t epoch;
	uint32_t driver;
	unsigned access;
	bool writable;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct native_mr *mrs; /* under the lock */
static _Atomic unsigned n_mrs;

/* A child keeps the list, to know what is not its own. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static const struct process_hooks hooks = { .child = in_child, .forget = in_child };

/* Takes it out of the list when @take. */
static struct native_mr *find(const struct ibv_mr *mr, bool take)
{
	struct native_mr **p = &mrs, *found;

	if (n_mrs == 0)
		return NULL;
	pthread_mutex_lock(&lock);
	while (*p && (*p)->shown != mr)
		p = &(*p)->next;
	found = *p;
	if (found && take) {
		*p = found->next;
		n_mrs--;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void insert(struct native_mr *mr)
{
	process_hooks_add(&hooks);
	pthread_mutex_lock(&lock);
	mr->next = mrs;
	mrs = mr;
	n_mrs++;
	pthread_mutex_unlock(&lock);
}

static bool is_foreign(const struct native_mr *mr)
{
	return mr->epoch != process_epoch() || process_borrowed();
}

bool native_mr_is(const struct ibv_mr *mr)
{
	return find(mr, false) != NULL;
}

int native_mr_name(const struct ibv_mr *m, struct native_mr_name *name)
{
	const struct native_mr *mr = find(m, false);

	if (!mr)
		return -EINVAL;
	if (is_foreign(mr) || mr->session != native_session())
		return -ENOTCONN;
	*name = (struct native_mr_name){
		.handle = mr->id, .rkey = m->rkey, .access = mr->access, .writable = mr->writable
	};
	return 0;
}

/* --- making one ------------------------------------------------------------------------------------------------------ */

static int release(uint32_t id)
{
	Vsd__NativeReleaseRequest request = VSD__NATIVE_RELEASE_REQUEST__INIT;

	request.handle = id;
	return native_call(VSD__OP__OP_NATIVE_RELEASE, &request.base, NULL, NULL, NULL);
}

static int ask(const Vsd__NativeRegionRequest *request, Vsd__NativeRegionReply **reply, int *fd)
{
	ProtobufCMessage *message = NULL;
	struct fdlist fds = FDLIST_NULL;
	int r = native_call(
		VSD__OP__OP_NATIVE_REGION, &request->base, &vsd__native_region_reply__descriptor, &message, &fds);

	if (r == 0 && (fds.n != 1 || !message))
		r = -EPROTO;
	if (r == 0) {
		*reply = (Vsd__NativeRegionReply *)message;
		*fd = fdlist_steal(&fds, 0);
	} else if (message) {
		/* It was made, but its fd is lost. */
		(void)release(((Vsd__NativeRegionReply *)message)->handle);
		protobuf_c_message_free_unpacked(message, NULL);
	}
	fdlist_deinit(&fds);
	return r;
}

/* What the daemon registered on the domain's PD. */
static int import(struct native_mr *mr, struct ibv_pd *pd, uint32_t handle)
{
	errno = 0;
	mr->maker = BY_IMPORT;
	mr->shown = REAL_PTR(ibv_import_mr, "IBVERBS_1.10", pd, handle);
	if (!mr->shown)
		return errno ? -errno : -EIO;
	/* A driver does not know where it is mapped. */
	mr->shown->addr = mr->region->addr;
	mr->shown->length = mr->region->size;
	return 0;
}

static int register_there(struct native_mr *mr, struct ibv_pd *pd)
{
	Vsd__NativeRegRequest request = VSD__NATIVE_REG_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	const Vsd__NativeRegReply *reply;
	int r;

	request.handle = mr->id;
	request.pd = pd->handle;
	r = native_call(VSD__OP__OP_NATIVE_REG, &request.base, &vsd__native_reg_reply__descriptor, &message, NULL);
	if (r < 0)
		return r;
	reply = (const Vsd__NativeRegReply *)message;
	if (mr->maker == BY_IMPORT) {
		r = import(mr, pd, reply->mr);
		protobuf_c_message_free_unpacked(message, NULL);
		return r;
	}
	mr->own.mr = (struct ibv_mr){ .context = pd->context,
		.pd = pd,
		.addr = mr->region->addr,
		.length = mr->region->size,
		.handle = reply->mr,
		.lkey = reply->lkey,
		.rkey = reply->rkey };
	mr->own.access = (int)mr->access;
	mr->shown = &mr->own.mr;
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}

/* By the driver, on this process's own limit. */
static int register_here(struct native_mr *mr, struct ibv_pd *pd)
{
	struct soft_region *region = mr->region;

	errno = 0;
	mr->maker = BY_DRIVER;
	mr->shown = REAL_PTR(
		ibv_reg_mr_iova2, "IBVERBS_1.8", pd, region->addr, region->size, region->base, mr->access);
	if (mr->shown)
		return 0;
	control_debug("region %u: its own driver does not register it: %m", region->number);
	return errno ? -errno : -EIO;
}

static int map_and_register(struct native_mr *mr, struct ibv_pd *pd, const struct native_mr_call *call,
	const Vsd__NativeRegionReply *reply, int fd)
{
	int r = region_map(reply->region, fd, reply->iova, reply->size, mr->writable, &mr->region);

	if (r == 0 && reply->created && call->prepare)
		r = call->prepare(mr->region, call->arg);
	/* What is registered is pinned: all of it has to be there. */
	if (r == 0)
		r = region_populate(mr->region);
	if (r == 0)
		r = reply->registers ? register_there(mr, pd) : register_here(mr, pd);
	return r;
}

/* A region that is not what was asked for shall not outlive the call under its name. */
static void unmake(const struct native_mr *mr, bool created)
{
	Vsd__RegionPersistRequest request = VSD__REGION_PERSIST_REQUEST__INIT;

	request.mr = mr->id;
	if (created)
		(void)native_call(VSD__OP__OP_REGION_PERSIST, &request.base, NULL, NULL, NULL);
	(void)release(mr->id);
}

static int make(struct native_mr *mr, struct ibv_pd *pd, struct native_mr_call *call, bool *created)
{
	Vsd__NativeRegionReply *reply = NULL;
	struct native_file file = { .domain = false };
	int fd = -1, r;

	call->request.has_native = native_file(pd->context->cmd_fd, &file);
	call->request.native = file.id;
	r = ask(&call->request, &reply, &fd);
	if (!reply)
		return r;
	mr->id = reply->handle;
	mr->session = native_session();
	mr->driver = file.driver;
	mr->maker = file.domain ? BY_IMPORT : BY_DAEMON;
	mr->access = reply->access;
	mr->writable = !(reply->flags & VSD__REGION_FLAG__REGION_READ_ONLY);
	r = map_and_register(mr, pd, call, reply, fd);
	if (r < 0) {
		unmake(mr, reply->created);
		region_put(mr->region);
	} else if (created) {
		*created = reply->created;
	}
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return r;
}

struct ibv_mr *native_mr_new(struct ibv_pd *pd, struct native_mr_call *call, bool *created)
{
	struct native_mr *mr = calloc(1, sizeof(*mr));
	int r = mr ? make(mr, pd, call, created) : -ENOMEM;

	if (r < 0) {
		free(mr);
		return abi_null(-r);
	}
	mr->epoch = process_epoch();
	insert(mr);
	return mr->shown;
}

/* --- the end of it --------------------------------------------------------------------------------------------------- */

/* 0 or a negative errno. */
static int dereg(const struct native_mr *mr)
{
	int r = 0;

	if (mr->maker == BY_IMPORT) {
		REAL_VOID(ibv_unimport_mr, "IBVERBS_1.10", mr->shown);
		if (mr->session == native_session())
			(void)release(mr->id);
		return 0;
	}
	if (mr->maker == BY_DRIVER) {
		r = REAL_INT(EOPNOTSUPP, ibv_dereg_mr, "IBVERBS_1.1", mr->shown);
		if (r)
			return r > 0 ? -r : -errno;
		if (mr->session == native_session())
			(void)release(mr->id);
		return 0;
	}
	r = mr->session == native_session() ? release(mr->id) : -ENOTCONN;
	/* Whoever registered it is gone, but not the device, which is this process's as well. */
	if (r == -ENOTCONN)
		r = native_dereg_mr(mr->own.mr.context->cmd_fd, mr->driver, mr->own.mr.handle);
	return r;
}

bool native_mr_dereg(struct ibv_mr *m, int *r)
{
	struct native_mr *mr = find(m, true);

	if (!mr)
		return false;
	*r = is_foreign(mr) ? -ABI_CHILD_ERRNO : dereg(mr);
	if (*r < 0) {
		insert(mr);
		*r = abi_errno(*r);
		return true;
	}
	region_put(mr->region);
	free(mr);
	return true;
}
