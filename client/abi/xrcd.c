/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains. What processes share is an inode; the daemon, which takes no file from anybody, believes its number within a
 * trust domain.
 */
#include "client/abi/abi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "client/soft/xrc.h"

#define MASK_NEEDED ((uint32_t)(IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS))

static int request_fill(Vsd__XrcdOpenRequest *request, const struct ibv_xrcd_init_attr *attr)
{
	struct stat st;

	request->create = (attr->oflags & O_CREAT) != 0;
	request->exclusive = (attr->oflags & O_EXCL) != 0;
	if (attr->fd == -1)
		return request->create ? 0 : -EINVAL;
	if (fstat(attr->fd, &st) < 0)
		return -errno;
	request->has_device = request->has_inode = true;
	request->device = st.st_dev;
	request->inode = st.st_ino;
	return 0;
}

static int daemon_open(struct soft_xrcd *xrcd, const Vsd__XrcdOpenRequest *request)
{
	ProtobufCMessage *message = NULL;
	int r = control_call(
		VSD__OP__OP_XRCD_OPEN, &request->base, &vsd__object_reply__descriptor, &message, NULL);

	if (r < 0)
		return r;

	const Vsd__ObjectReply *reply = (const Vsd__ObjectReply *)message;

	if (reply && reply->has_number) {
		xrcd->handle = reply->handle;
		xrcd->number = reply->number;
	} else {
		r = -EPROTO;
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

struct ibv_xrcd *abi_open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *attr)
{
	Vsd__XrcdOpenRequest request = VSD__XRCD_OPEN_REQUEST__INIT;
	struct soft_context *ctx = soft_context_of(c);

	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);
	if (attr->comp_mask & ~MASK_NEEDED)
		return abi_null(EOPNOTSUPP);
	if ((attr->comp_mask & MASK_NEEDED) != MASK_NEEDED)
		return abi_null(EINVAL);

	int r = request_fill(&request, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_xrcd *xrcd = calloc(1, sizeof(*xrcd));

	if (!xrcd)
		return abi_null(ENOMEM);
	request.context = ctx->id;
	r = daemon_open(xrcd, &request);
	if (r < 0) {
		free(xrcd);
		return abi_null(-r);
	}
	xrcd->ctx = ctx;
	xrcd->xrcd.context = c;
	abi_context_ref(ctx);
	return &xrcd->xrcd;
}

int abi_close_xrcd(struct ibv_xrcd *x)
{
	struct soft_xrcd *xrcd = soft_xrcd_of(x);
	struct soft_context *ctx = xrcd->ctx;

	if (abi_foreign(x->context))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (xrcd->users)
		return abi_errno(abi_busy(ctx, VSD__OBJECT_TYPE__OBJ_XRCD, xrcd->handle, xrcd->users));

	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_XRCD, xrcd->handle);

	if (r < 0)
		return abi_errno(r);
	free(xrcd);
	abi_context_unref(ctx);
	return 0;
}
