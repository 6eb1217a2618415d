/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A child of fork and its parent's contexts. Its copies of them are inert; but it has their fds, and those are
 * capabilities. With one it imports the context, and may have of it what is the context's and not its parent's: device
 * memory. (Of a real device it would have that through the device node that it inherits.)
 */
#include "client/abi/abi.h"

#include <pthread.h>
#include <string.h>

#include "client/abi/capability.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void abi_child_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static struct ibv_context *import(struct soft_context *ctx)
{
	const struct conn_fd *capability = &abi_context_of(ctx)->capability;
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	const struct abi_context_source source = {
		.op = VSD__OP__OP_CONTEXT_ATTACH,
		.request = &request.base,
		.cmd_fd = -1,
	};
	uint8_t nonce[VSD_NONCE_SIZE];
	int r = conn_fd_ours(capability) ? capability_read(capability->fd, nonce) : -EBADF;

	if (r < 0)
		return abi_null(-r);
	request.nonce.data = nonce;
	request.nonce.len = sizeof(nonce);

	struct ibv_context *c = abi_context_new(&source);
	int error = errno;

	explicit_bzero(nonce, sizeof(nonce));
	return c ? c : abi_null(error);
}

/* It is kept until the process ends: its parent's context cannot be closed here. */
struct soft_context *abi_context_here(struct soft_context *ctx)
{
	struct abi_context *outer = abi_context_of(ctx);

	if (!rt_foreign(ctx))
		return ctx;
	abi_enter();
	pthread_mutex_lock(&lock);
	if (!outer->here || rt_foreign(outer->here)) {
		struct ibv_context *c = import(ctx);

		outer->here = c ? soft_context_of(c) : NULL;
	}
	pthread_mutex_unlock(&lock);
	return outer->here;
}
