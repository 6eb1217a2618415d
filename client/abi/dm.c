/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory. The soft device has none of its own: a memfd of the daemon's stands for it, mapped by whoever has its
 * context and imports it. Programs may touch it with the two copying calls and with work requests only. The calls copy in
 * units of 4 bytes, as adapters do: the manual page does not say so, but rdma-core's tests ask that all else be EINVAL.
 */
#include "client/abi/abi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/region.h"

#define UNIT	  4u
#define ALIGN_MAX 21u /* 2 MiB */
#define ACCESS                                                                                    \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |   \
		    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED))

/* In soft_dm.users: the program has let go of it while regions were on it; the last of them frees it. */
#define UNIMPORTED (1u << 31)

struct soft_dm {
	struct ibv_dm dm;
	struct soft_context *ctx; /* of dm.context; in a child of fork, this process's own */
	uint8_t *memory;
	size_t size, length;
	_Atomic unsigned users; /* regions on it */
};

static struct soft_dm *soft_dm_of(struct ibv_dm *dm)
{
	return soft_container(dm, struct soft_dm, dm);
}

/* The mapping of a parent's is not in its children. */
static bool is_here(const struct soft_dm *dm)
{
	return !rt_foreign(dm->ctx) && !process_borrowed();
}

/* --- its life ------------------------------------------------------------------------------------------------------ */

static void dm_free(struct soft_dm *dm)
{
	struct soft_context *ctx = dm->ctx;

	dontfork_munmap(dm->memory, dm->size);
	free(dm);
	abi_context_of(ctx)->shared--;
	abi_context_unref(ctx);
}

void abi_dm_unref(struct soft_dm *dm)
{
	if (--dm->users == UNIMPORTED)
		dm_free(dm);
}

/* The mapping cannot be moved afterwards, so it is asked for at an address that is aligned and free at this moment. */
static int memory_map(struct soft_dm *dm, int fd, uint64_t size, uint32_t log_align)
{
	size_t align = (size_t)1 << log_align;
	uintptr_t base = 0;

	if (align > (size_t)sysconf(_SC_PAGESIZE)) {
		void *room = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (room == MAP_FAILED) {
			close(fd);
			return -ENOMEM;
		}
		base = ((uintptr_t)room + align - 1) & ~(align - 1);
		munmap(room, size + align);
	}

	int r = region_file_map(fd, base, size, true, &dm->memory);

	if (r == 0 && ((uintptr_t)dm->memory & (align - 1))) {
		dontfork_munmap(dm->memory, size); /* another thread mapped something there just then */
		r = -ENOMEM;
	}
	return r;
}

static int to_dm(struct ibv_dm *d, uint64_t offset, const void *from, size_t length);
static int from_dm(void *to, struct ibv_dm *d, uint64_t offset, size_t length);

static int dm_fill(struct soft_dm *dm, const Vsd__DmReply *reply, int fd, uint32_t log_align)
{
	if (reply->length > reply->size) {
		close(fd);
		return -EPROTO;
	}

	int r = memory_map(dm, fd, reply->size, log_align);

	if (r < 0)
		return r;
	dm->size = reply->size;
	dm->length = reply->length;
	dm->dm.memcpy_to_dm = to_dm;
	dm->dm.memcpy_from_dm = from_dm;
	dm->dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->dm.handle = reply->handle;
	abi_context_of(dm->ctx)->shared++;
	abi_context_ref(dm->ctx);
	return 0;
}

/* What the daemon answers to @op. @made: it is this call's, and goes with its failure. */
static int dm_make(struct soft_dm *dm, uint16_t op, const ProtobufCMessage *request, uint32_t log_align, bool made)
{
	ProtobufCMessage *message = NULL;
	struct fdlist fds = FDLIST_NULL;
	int r = control_call(op, request, &vsd__dm_reply__descriptor, &message, &fds);

	if (r == 0 && fds.n != 1)
		r = -EPROTO;
	if (r == 0)
		r = dm_fill(dm, (const Vsd__DmReply *)message, fdlist_steal(&fds, 0), log_align);
	if (r < 0 && message && made)
		control_destroy(dm->ctx->id, VSD__OBJECT_TYPE__OBJ_DM, ((const Vsd__DmReply *)message)->handle);
	fdlist_deinit(&fds);
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static struct ibv_dm *dm_new(struct ibv_context *c, struct soft_context *ctx, uint16_t op,
	const ProtobufCMessage *request, uint32_t log_align, bool made)
{
	struct soft_dm *dm = calloc(1, sizeof(*dm));
	int r = -ENOMEM;

	if (dm) {
		dm->ctx = ctx;
		dm->dm.context = c;
		r = dm_make(dm, op, request, log_align, made);
	}
	if (r < 0) {
		free(dm);
		return abi_null(-r);
	}
	return &dm->dm;
}

struct ibv_dm *abi_alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *attr)
{
	Vsd__DmAllocRequest request = VSD__DM_ALLOC_REQUEST__INIT;

	if (process_borrowed())
		return abi_null(ABI_CHILD_ERRNO);
	if (attr->comp_mask || attr->log_align_req > ALIGN_MAX)
		return abi_null(EINVAL);

	struct soft_context *ctx = abi_context_here(soft_context_of(c));

	if (!ctx)
		return NULL;
	request.context = ctx->id;
	request.length = attr->length;
	return dm_new(c, ctx, VSD__OP__OP_DM_ALLOC, &request.base, attr->log_align_req, true);
}

int abi_free_dm(struct ibv_dm *d)
{
	struct soft_dm *dm = soft_dm_of(d);

	if (!is_here(dm))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (dm->users)
		return abi_errno(abi_busy(dm->ctx, VSD__OBJECT_TYPE__OBJ_DM, d->handle, dm->users));

	/* Of a context that is closed and was let go, the memory is the importers'. */
	int r = abi_context_of(dm->ctx)->detached ?
			0 :
			control_destroy(dm->ctx->id, VSD__OBJECT_TYPE__OBJ_DM, d->handle);

	if (r < 0)
		return abi_errno(r);
	dm_free(dm);
	return 0;
}

VERBS_API struct ibv_dm *ibv_import_dm(struct ibv_context *c, uint32_t handle)
{
	ABI_ENTER_PTR(c, ibv_import_dm, "IBVERBS_1.13", c, handle);

	Vsd__DmImportRequest request = VSD__DM_IMPORT_REQUEST__INIT;
	struct soft_context *ctx = soft_context_of(c);

	request.context = ctx->id;
	request.handle = handle;
	return dm_new(c, ctx, VSD__OP__OP_DM_IMPORT, &request.base, 0, false);
}

VERBS_API void ibv_unimport_dm(struct ibv_dm *d)
{
	if (!abi_ours(d->context)) {
		REAL_VOID(ibv_unimport_dm, "IBVERBS_1.13", d);
		return;
	}
	if (is_here(soft_dm_of(d)) && atomic_fetch_or(&soft_dm_of(d)->users, UNIMPORTED) == 0)
		dm_free(soft_dm_of(d));
}

/* --- its bytes ----------------------------------------------------------------------------------------------------- */

static bool within(const struct soft_dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->length && length <= dm->length - offset;
}

/* In the order and with the errors of mlx5: the manual page has neither. */
static int copy_check(const struct soft_dm *dm, uint64_t offset, size_t length)
{
	if (!is_here(dm))
		return -ABI_CHILD_ERRNO;
	if (!within(dm, offset, length))
		return -EFAULT;
	return offset % UNIT || length % UNIT ? -EINVAL : 0;
}

static int to_dm(struct ibv_dm *d, uint64_t offset, const void *from, size_t length)
{
	struct soft_dm *dm = soft_dm_of(d);
	int r = copy_check(dm, offset, length);

	if (r == 0)
		memcpy(dm->memory + offset, from, length);
	return abi_errno(r);
}

static int from_dm(void *to, struct ibv_dm *d, uint64_t offset, size_t length)
{
	struct soft_dm *dm = soft_dm_of(d);
	int r = copy_check(dm, offset, length);

	if (r == 0)
		memcpy(to, dm->memory + offset, length);
	return abi_errno(r);
}

struct ibv_mr *abi_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *d, uint64_t offset, size_t length, unsigned access)
{
	struct soft_dm *dm = soft_dm_of(d);

	if (abi_foreign(pd->context))
		return abi_null(ABI_CHILD_ERRNO);
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (pd->context != d->context || !(access & IBV_ACCESS_ZERO_BASED) || access & ~ACCESS ||
		abi_access_check(access) < 0 || !within(dm, offset, length))
		return abi_null(EINVAL);

	struct soft_mr *mr = abi_mr_alloc(pd, NULL, length, access);

	if (!mr)
		return abi_null(ENOMEM);
	mr->mem = dm->memory + offset;
	mr->mapped = mr->mapped_writable = true;
	mr->dm = dm;
	mr->dm_handle = d->handle;
	mr->dm_offset = offset;
	dm->users++;

	int r = abi_mr_register(mr);

	if (r < 0) {
		abi_dm_unref(dm);
		free(mr);
		return abi_null(-r);
	}
	return &mr->mr;
}
