/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A child of fork and its parent's contexts. Its copies of them are inert; but it has their fds, and those are
 * capabilities. With one it imports the context, and may have of it what is the context's and not its parent's: device
 * memory. (Of a real device it would have that through the device node that it inherits.)
 */
#include "client/abi/abi.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void abi_child_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static struct ibv_context *import(struct soft_context *ctx)
{
	const struct conn_fd *capability = &abi_context_of(ctx)->capability;

	return conn_fd_ours(capability) ? abi_context_attach(capability->fd, -1) : abi_null(EBADF);
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
