/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domain contexts: a PD of a real device that all members of a trust domain have, each by the import verbs of its own
 * driver. The daemon keeps the file; which member opened it, and whether that one lives, is of no matter.
 */
#include "client/verbsd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/abi/abi.h"
#include "client/native/native.h"

/* So often another member may be first, and gone before we come. */
#define TRIES 8

static void close_at_daemon(uint32_t native)
{
	Vsd__NativeCloseRequest request = VSD__NATIVE_CLOSE_REQUEST__INIT;

	request.native = native;
	(void)native_call(VSD__OP__OP_NATIVE_CLOSE, &request.base, NULL, NULL, NULL);
}

static int error_of(const char *what)
{
	int r = errno ? -errno : -EOPNOTSUPP;

	control_debug("domain context: %s: %s", what, strerror(-r));
	return r;
}

/* What the daemon answered, as the program's driver has it. Takes @fd over. */
static int import(const Vsd__NativeDomainReply *reply, int fd, struct ibv_pd **pd)
{
	struct ibv_context *ctx;
	int r;

	errno = 0;
	ctx = REAL_PTR(ibv_import_device, "IBVERBS_1.10", fd);
	if (!ctx) {
		r = error_of("ibv_import_device");
		close(fd);
		return r;
	}
	*pd = REAL_PTR(ibv_import_pd, "IBVERBS_1.10", ctx, reply->pd);
	if (!*pd) {
		r = error_of("ibv_import_pd");
		(void)REAL_INT(0, ibv_close_device, "IBVERBS_1.1", ctx);
		return r;
	}
	native_note_domain(ctx->cmd_fd, reply->native, reply->driver);
	return 0;
}

/* -ENOENT: the domain has none. */
static int join(const char *node, struct ibv_pd **pd)
{
	Vsd__NativeDomainRequest request = VSD__NATIVE_DOMAIN_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	struct fdlist fds = FDLIST_NULL;
	int r;

	request.node = (char *)(uintptr_t)node;
	r = native_call(
		VSD__OP__OP_NATIVE_DOMAIN, &request.base, &vsd__native_domain_reply__descriptor, &message, &fds);
	if (r == 0 && fds.n != 1)
		r = -EPROTO;
	if (r == 0)
		r = import((const Vsd__NativeDomainReply *)message, fdlist_steal(&fds, 0), pd);
	if (r < 0 && message)
		close_at_daemon(((const Vsd__NativeDomainReply *)message)->native);
	if (message)
		protobuf_c_message_free_unpacked(message, NULL);
	fdlist_deinit(&fds);
	return r;
}

/* A context of our own, to be the domain's. -EEXIST: it has one. */
static int offer(const char *node, const struct ibv_context *ctx, const struct ibv_pd *pd)
{
	Vsd__NativeDomainRequest request = VSD__NATIVE_DOMAIN_REQUEST__INIT;
	struct native_file file;

	if (!native_file(ctx->cmd_fd, &file))
		return -EOPNOTSUPP; /* the daemon has no dup of what we open ourselves */
	request.node = (char *)(uintptr_t)node;
	request.has_native = request.has_pd = true;
	request.native = file.id;
	request.pd = pd->handle;
	return native_call(VSD__OP__OP_NATIVE_DOMAIN, &request.base, NULL, NULL, NULL);
}

/* Makes one, and joins it before what it was made with goes. */
static int found(struct ibv_device *device, struct ibv_pd **pd)
{
	struct ibv_context *ctx = ibv_open_device(device);
	struct ibv_pd *own;
	int r;

	if (!ctx)
		return error_of("ibv_open_device");
	own = REAL_PTR(ibv_alloc_pd, "IBVERBS_1.1", ctx);
	r = own ? offer(device->dev_name, ctx, own) : error_of("ibv_alloc_pd");
	if (r == 0) {
		r = join(device->dev_name, pd);
		REAL_VOID(ibv_unimport_pd, "IBVERBS_1.10", own);
	} else if (own) {
		(void)REAL_INT(0, ibv_dealloc_pd, "IBVERBS_1.1", own);
	}
	(void)ibv_close_device(ctx);
	return r;
}

VERBS_API struct ibv_pd *verbsd_domain_pd(struct ibv_device *device)
{
	struct abi_device *soft;
	struct ibv_pd *pd = NULL;
	int r = -ENOENT;

	abi_first_use();
	if (real_deferred())
		return REAL_INT(abi_null(EOPNOTSUPP), verbsd_domain_pd, "VERBSD_1", device);
	soft = abi_device_ref(device);
	if (soft) {
		abi_device_unref(soft);
		return abi_null(EOPNOTSUPP);
	}
	for (unsigned i = 0; i < TRIES && (r == -ENOENT || r == -EEXIST); i++) {
		r = join(device->dev_name, &pd);
		if (r == -ENOENT)
			r = found(device, &pd);
	}
	return r < 0 ? abi_null(-r) : pd;
}
