/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions on a buffer that is known by an fd. What the soft device can reach is a memfd: the library maps it, so that
 * the program does not have to, and in such a way that nobody can take its pages away afterwards.
 */
#include "client/abi/abi.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "client/abi/file.h"

#define ACCESS                                                                                    \
	((unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |   \
		    IBV_ACCESS_REMOTE_ATOMIC))

static int arguments_check(const struct abi_buffer *buffer)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	if (buffer->access & ~ACCESS || !buffer->length || buffer->offset + buffer->length < buffer->offset ||
		buffer->iova + buffer->length < buffer->iova || (buffer->offset & page) != (buffer->iova & page))
		return -EINVAL;
	return abi_access_check(buffer->access);
}

/*
 * The fd may be anything: asking for seals does not leave the kernel, whatever it is, and only files in memory have any.
 * *@page is the size of its pages.
 */
static int file_check(const struct abi_buffer *buffer, uint64_t *page)
{
	int seals = fcntl(buffer->fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0 && errno == EBADF)
		return -EBADF;
	if (seals < 0) {
		control_debug("dma-buf %d: it is no memfd, and only those can be mapped", buffer->fd);
		return -EOPNOTSUPP;
	}
	if (!(seals & F_SEAL_SHRINK)) {
		control_debug("dma-buf %d: a memfd has to be sealed with F_SEAL_SHRINK first: pages that go are a SIGBUS",
			buffer->fd);
		return -EINVAL;
	}
	if (fstat(buffer->fd, &st) < 0 || fstatfs(buffer->fd, &fs) < 0)
		return -errno;
	if (st.st_size < 0 || buffer->offset + buffer->length > (uint64_t)st.st_size)
		return -EINVAL;
	*page = (uint64_t)(fs.f_type == HUGETLBFS_MAGIC ? st.st_blksize : sysconf(_SC_PAGESIZE));
	return 0;
}

int abi_buffer_map(struct soft_mr *mr, const struct abi_buffer *buffer)
{
	uint64_t page = 0;
	int r = file_check(buffer, &page);

	if (r < 0)
		return r;

	uint64_t start = buffer->offset & ~(page - 1), end = (buffer->offset + buffer->length + page - 1) & ~(page - 1);
	bool write = buffer->access & IBV_ACCESS_LOCAL_WRITE;
	void *map = dontfork_mmap(NULL, end - start, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		buffer->fd, (off_t)start);

	if (map == MAP_FAILED) /* EPERM: it is sealed against writing */
		return errno == EPERM ? -EACCES : -errno;
	mr->map = map;
	mr->map_size = end - start;
	mr->mem = (uint8_t *)map + (buffer->offset - start);
	mr->mapped = true;
	mr->mapped_writable = write;
	return 0;
}

static int buffer_register(struct soft_mr *mr, const struct abi_buffer *buffer)
{
	int r = abi_buffer_map(mr, buffer);

	if (r == 0)
		r = abi_file_keep(buffer->fd, &mr->file);
	if (r == 0)
		r = abi_mr_register(mr);
	if (r < 0)
		abi_mr_unmap(mr);
	return r;
}

static struct ibv_mr *buffer_mr(struct ibv_pd *pd, const struct abi_buffer *buffer)
{
	int r = arguments_check(buffer);

	if (r < 0)
		return abi_null(-r);

	/* As with a device's buffer, what is known of its place is the offset. */
	struct soft_mr *mr = abi_mr_alloc(pd, (void *)(uintptr_t)buffer->offset, buffer->length, buffer->access);

	if (!mr)
		return abi_null(ENOMEM);
	mr->iova = buffer->iova;
	r = buffer_register(mr, buffer);
	if (r < 0) {
		free(mr);
		return abi_null(-r);
	}
	return &mr->mr;
}

VERBS_API struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	ABI_ENTER_PTR(pd->context, ibv_reg_dmabuf_mr, "IBVERBS_1.12", pd, offset, length, iova, fd,
		access);

	const struct abi_buffer buffer = {
		.fd = fd,
		.offset = offset,
		.length = length,
		.iova = iova,
		.access = (unsigned)access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE,
	};

	return buffer_mr(pd, &buffer);
}
