/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions that this process has mapped: its own MRs and imports, and those that the daemon granted it for the
 * map engine. One mapping per region and right in a process, counted; kept out of children and of core dumps.
 */
#ifndef SOFT_REGION_H
#define SOFT_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct soft_region {
	uint32_t number; /* the daemon's */
	bool writable;
	uint8_t *addr;	 /* the mapping */
	uint64_t base;	 /* iova of its first byte */
	uint64_t size;
	dev_t dev;	 /* which file it is: a number may come again */
	ino_t ino;
	unsigned users;
	struct soft_region *next;
};

/*
 * Maps region @number (@fd is taken over, whatever comes of it), at @base if nothing is there, or takes another
 * reference to the mapping that exists. A mapping that may be written serves readers too. 0, or a negative errno.
 */
int region_map(uint32_t number, int fd, uint64_t base, uint64_t size, bool writable, struct soft_region **region);
/*
 * The same for the map engine, unasked by the program: what may only be read leaves @base to an import that may write.
 */
int region_map_granted(uint32_t number, int fd, uint64_t base, uint64_t size, bool writable,
		       struct soft_region **region);
/* A reference to the mapping, if there is one that will do; NULL otherwise. */
struct soft_region *region_find(uint32_t number, bool writable);
/*
 * A mapping that is in no table and has one owner: a memfd of the daemon's, at @at if nothing is there. @fd is taken over.
 */
int region_file_map(int fd, uint64_t at, uint64_t size, bool writable, uint8_t **addr);
/* The last reference unmaps. Any thread, any lock held but a region's. Returns NULL. */
struct soft_region *region_put(struct soft_region *region);

/* Makes every page present, with an error instead of a signal. -EOPNOTSUPP: the kernel is too old. */
int region_populate(const struct soft_region *region);
/* New pages of the region come from this NUMA node, whoever touches them first. -EINVAL: there is no such node. */
int region_bind(const struct soft_region *region, int node);

#endif
