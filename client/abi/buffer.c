/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers of the device's own choice (IBVERBS_1.17). Any memory will do for the soft device, so these are plain pages.
 * A handle says nothing of where it comes from, so ours are in a list, and any other is the real library's.
 */
#include "client/abi/abi.h"
#include "client/abi/newer.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* What a handle leads to; programs know its name alone. */
struct ibv_buf {
	void *addr;
	size_t size;
	struct ibv_buf *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_buf *buffers;

static struct ibv_buf **buffer_find(const void *handle)
{
	struct ibv_buf **p = &buffers;

	while (*p && *p != handle)
		p = &(*p)->next;
	return p;
}

void abi_buffer_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static void lock_take(void)
{
	abi_enter();
	pthread_mutex_lock(&lock);
}

static bool buffer_ours(const void *handle)
{
	lock_take();

	bool ours = *buffer_find(handle) != NULL;

	pthread_mutex_unlock(&lock);
	return ours;
}

VERBS_API void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	ABI_ENTER_PTR(pd->context, ibv_alloc_buf, "IBVERBS_1.17", pd, size, buf);
	if (size == 0)
		return abi_null(EINVAL);

	struct ibv_buf *buffer = malloc(sizeof(*buffer));

	if (!buffer)
		return abi_null(ENOMEM);
	buffer->size = size;
	buffer->addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer->addr == MAP_FAILED) {
		free(buffer);
		return abi_null(ENOMEM);
	}
	lock_take();
	buffer->next = buffers;
	buffers = buffer;
	pthread_mutex_unlock(&lock);
	*buf = buffer;
	return buffer->addr;
}

VERBS_API void ibv_free_buf(struct ibv_buf *buf)
{
	lock_take();

	struct ibv_buf **p = buffer_find(buf), *buffer = *p;

	if (buffer)
		*p = buffer->next;
	pthread_mutex_unlock(&lock);
	if (!buffer) {
		REAL_VOID(ibv_free_buf, "IBVERBS_1.17", buf);
		return;
	}
	munmap(buffer->addr, buffer->size);
	free(buffer);
}

VERBS_API struct ibv_mr *ibv_reg_buf_mr(
	struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access)
{
	ABI_ENTER_PTR(
		pd->context, ibv_reg_buf_mr, "IBVERBS_1.17", pd, buf, addr, length, access);
	if (!buffer_ours(buf))
		return abi_null(EINVAL);

	const struct ibv_buf *buffer = buf;
	size_t offset = (size_t)((uintptr_t)addr - (uintptr_t)buffer->addr);

	if (offset > buffer->size || length > buffer->size - offset)
		return abi_null(EINVAL);
	return abi_reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

VERBS_API int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	if (buffer_ours(buf))
		return abi_minus(EOPNOTSUPP);
	return REAL_INT(abi_minus(EOPNOTSUPP), ibv_export_buf_dmabuf_fd, "IBVERBS_1.18", buf);
}
