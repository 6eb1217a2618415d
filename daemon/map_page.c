/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a receiver of datagrams must know whether a source QP number is its sender's, without asking. Guarantees: the
 * writable mapping is the only one; what clients get cannot be reopened for writing but by the daemon's own uid.
 */
#include "daemon/map_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/fd.h"
#include "proto/ring_abi.h"

int map_page_init(struct map_page *page)
{
	CLEANUP_CLOSE int memfd = memfd_new("verbsd-map", VSD_MAP_SIZE);
	void *map;
	int fd;

	if (memfd < 0)
		return memfd;
	fd = fd_reopen(memfd, O_RDONLY);
	if (fd < 0)
		return fd;
	map = mmap(NULL, VSD_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (map == MAP_FAILED) {
		int error = errno;

		close(fd);
		return -error;
	}
	page->map = map;
	page->fd = fd;
	page->map->version = VSD_ABI_VERSION;
	page->map->magic = VSD_MAP_MAGIC;
	return 0;
}

void map_page_deinit(struct map_page *page)
{
	if (page->map)
		munmap(page->map, VSD_MAP_SIZE);
	if (page->fd >= 0)
		close(page->fd);
	*page = (struct map_page)MAP_PAGE_NULL;
}

void map_page_set(struct map_page *page, uint32_t first, uint32_t count, uint32_t peer)
{
	for (uint32_t i = first >> VSD_MAP_SHIFT; i < (first + count) >> VSD_MAP_SHIFT; i++)
		atomic_store_explicit(&page->map->owner[i], peer, memory_order_release);
}

void map_page_watched(struct map_page *page, bool watched)
{
	atomic_store_explicit(&page->map->watched, watched, memory_order_release);
}
