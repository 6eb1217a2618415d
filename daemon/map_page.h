/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The map page: which process each range of QP numbers is leased to. Written here, mapped read-only by every client.
 */
#ifndef DAEMON_MAP_PAGE_H
#define DAEMON_MAP_PAGE_H

#include <stdbool.h>
#include <stdint.h>

struct vsd_map;

struct map_page {
	struct vsd_map *map;
	int fd; /* read-only */
};

#define MAP_PAGE_NULL                                                                             \
	{                                                                                         \
		.fd = -1                                                                          \
	}

int map_page_init(struct map_page *page);
void map_page_deinit(struct map_page *page);
/* @first and @count are QP numbers, whole ranges. */
void map_page_set(struct map_page *page, uint32_t first, uint32_t count, uint32_t peer);
/* Whether somebody watches. */
void map_page_watched(struct map_page *page, bool watched);

#endif
