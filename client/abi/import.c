/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts, PDs and MRs that another process opened, or this one did, by what it hands over: the context's cmd_fd, which
 * is a capability, and handles, which mean the same to all who have the context.
 */
#include "client/abi/abi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/abi/capability.h"
#include "client/abi/file.h"
#include "client/abi/region.h"
#include "client/soft/region.h"

/* --- contexts ------------------------------------------------------------------------------------------------------ */

struct ibv_context *abi_context_attach(int capability, int cmd_fd)
{
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	const struct abi_context_source source = {
		.op = VSD__OP__OP_CONTEXT_ATTACH,
		.request = &request.base,
		.cmd_fd = cmd_fd,
	};
	uint8_t nonce[VSD_NONCE_SIZE];
	int r = capability_read(capability, nonce);

	if (r < 0)
		return abi_null(-r);
	request.nonce.data = nonce;
	request.nonce.len = sizeof(nonce);

	struct ibv_context *c = abi_context_new(&source);
	int error = errno;

	explicit_bzero(nonce, sizeof(nonce));
	if (!c)
		control_debug("import: %s", strerror(error));
	return c ? c : abi_null(error);
}

VERBS_API struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct stat st;

	if (real_inside() || real_deferred())
		return REAL_PTR(ibv_import_device, "IBVERBS_1.10", cmd_fd);
	/* Ours is a file in memory; a real context's is a device node. */
	if (fcntl(cmd_fd, F_GET_SEALS) >= 0)
		return abi_context_attach(cmd_fd, cmd_fd);
	if (fcntl(cmd_fd, F_GETFD) < 0)
		return abi_null(EBADF);
	if (fstat(cmd_fd, &st) == 0 && S_ISCHR(st.st_mode))
		return REAL_PTR(ibv_import_device, "IBVERBS_1.10", cmd_fd);
	return abi_null(EINVAL);
}

/* --- PDs ----------------------------------------------------------------------------------------------------------- */

VERBS_API struct ibv_pd *ibv_import_pd(struct ibv_context *c, uint32_t handle)
{
	ABI_ENTER_PTR(c, ibv_import_pd, "IBVERBS_1.10", c, handle);

	struct soft_context *ctx = soft_context_of(c);
	Vsd__PdImportRequest request = VSD__PD_IMPORT_REQUEST__INIT;

	request.context = ctx->id;
	request.handle = handle;

	struct soft_pd *pd = abi_pd_new(ctx, VSD__OP__OP_PD_IMPORT, &request.base);

	return pd ? &pd->pd : NULL;
}

VERBS_API void ibv_unimport_pd(struct ibv_pd *p)
{
	if (!abi_ours(p->context)) {
		REAL_VOID(ibv_unimport_pd, "IBVERBS_1.10", p);
		return;
	}

	struct soft_pd *pd = soft_pd_of(p);

	/* A parent domain is its process's, and cannot have been imported. */
	if (!abi_foreign(p->context) && pd->base == pd)
		abi_pd_unimport(pd);
}

/* --- MRs ----------------------------------------------------------------------------------------------------------- */

struct wanted {
	const struct soft_context *ctx;
	uint32_t handle;
};

static bool is_wanted(const struct soft_mr *mr, const void *arg)
{
	const struct wanted *wanted = arg;

	if (mr->handle != wanted->handle && !(mr->imported && mr->imported_as == wanted->handle))
		return false;
	return mr->ctx == wanted->ctx || capability_same(mr->ctx->capability, wanted->ctx->capability);
}

/* Another pointer to an MR of this process. */
static struct ibv_mr *import_here(struct ibv_pd *pd, struct soft_mr *mr, uint32_t handle)
{
	struct soft_mr *pointer = soft_pd_same(mr->pd, soft_pd_of(pd)) ? abi_mr_alloc(pd, NULL, mr->mr.length, 0) : NULL;
	int error = soft_pd_same(mr->pd, soft_pd_of(pd)) ? ENOMEM : EINVAL;

	if (!pointer) {
		abi_mr_put(mr);
		return abi_null(error);
	}
	pointer->of = mr;
	pointer->mr.handle = handle;
	pointer->mr.lkey = mr->mr.lkey;
	pointer->mr.rkey = mr->mr.rkey;
	abi_pd_ref(pointer->pd);
	abi_context_ref(pointer->ctx);
	return &pointer->mr;
}

/* Device memory, all of it, as who imports that maps it. */
static int map_dm(struct soft_mr *mr, const Vsd__RegionReply *reply, int fd)
{
	uint8_t *memory;
	int r = -EPROTO;

	if (reply->at > reply->size || reply->length > reply->size - reply->at)
		close(fd);
	else
		r = region_file_map(fd, 0, reply->size, true, &memory);
	if (r < 0)
		return r;
	mr->map = memory;
	mr->map_size = reply->size;
	mr->mem = memory + reply->at;
	mr->mapped = mr->mapped_writable = true;
	return 0;
}

/* A memfd that the process behind @pidfd has mapped. */
static int map_file(struct soft_mr *mr, const Vsd__RegionReply *reply, int pidfd)
{
	struct abi_buffer buffer = { .fd = -1, .length = reply->length, .iova = reply->iova, .access = reply->access };
	int r = abi_file_find(pidfd, reply->at, reply->length, reply->access & IBV_ACCESS_LOCAL_WRITE, &buffer.fd, &buffer.offset);

	if (r == 0) {
		r = abi_buffer_map(mr, &buffer);
		close(buffer.fd);
	}
	close(pidfd);
	/* What is no mistake of the program's is not to be had. */
	return r == -EINVAL || r == -EACCES ? -EOPNOTSUPP : r;
}

static int map_other(struct soft_mr *mr, const Vsd__RegionReply *reply, int fd)
{
	int r = reply->memory == VSD__MR_MEMORY__MR_ON_DM ? map_dm(mr, reply, fd) : map_file(mr, reply, fd);

	mr->mr.length = reply->length;
	return r;
}

/* An MR of this process's own, on the memory that the other process's is on. */
static struct ibv_mr *import_there(struct ibv_pd *pd, uint32_t handle)
{
	struct soft_context *ctx = soft_context_of(pd->context);
	Vsd__MrImportRequest request = VSD__MR_IMPORT_REQUEST__INIT;
	struct abi_region_call call = { .op = VSD__OP__OP_MR_IMPORT, .request = &request.base, .map = map_other };
	int r = abi_key_take(ctx, &call.spare_key);

	if (r < 0)
		return abi_null(-r);
	request.context = ctx->id;
	request.pd = pd->handle;
	request.handle = handle;
	request.spare_key = call.spare_key;

	struct soft_mr *mr = abi_region_mr(pd, &call, NULL);

	if (!mr) {
		if (errno == EOPNOTSUPP)
			control_debug("import of mr %u: only the process that registered it can have its memory", handle);
		return NULL;
	}
	mr->imported = true;
	mr->imported_as = handle;
	mr->mr.handle = handle;
	mr->mr.addr = NULL;
	return &mr->mr;
}

VERBS_API struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	ABI_ENTER_PTR(pd->context, ibv_import_mr, "IBVERBS_1.10", pd, handle);

	const struct wanted wanted = { soft_context_of(pd->context), handle };
	struct soft_mr *mr = mr_find(is_wanted, &wanted);

	return mr ? import_here(pd, mr, handle) : import_there(pd, handle);
}
