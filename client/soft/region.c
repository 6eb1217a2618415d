/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared regions that this process has mapped. What comes from the daemon is checked here once more: a file that
 * could still shrink, or is shorter than it was said to be, would be a SIGBUS in the program's own loads.
 */
#include "client/soft/region.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/dontfork.h"
#include "client/soft/in_child.h"
#include "client/soft/rt.h"

#define MPOL_BIND 2 /* <numaif.h> is libnuma's, and this one call is all we need */
#define NODES_MAX 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_region *regions;

/* Whether @region is the one of that number, and good for that right. */
static bool serves(const struct soft_region *region, uint32_t number, bool writable)
{
	return region->number == number && (region->writable || !writable);
}

void region_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	regions = NULL;
}

struct soft_region *region_find(uint32_t number, bool writable)
{
	struct soft_region *region;

	pthread_mutex_lock(&lock);
	for (region = regions; region && !serves(region, number, writable); region = region->next)
		;
	if (region)
		region->users++;
	pthread_mutex_unlock(&lock);
	return region;
}

/* A memfd of at least @size bytes that stays so. */
static int file_check(int fd, uint64_t size, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, st) < 0)
		return -errno;
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || size == 0 || size > SIZE_MAX / 2 || st->st_size < 0 ||
	    (uint64_t)st->st_size < size) {
		control_debug("a region's file is not what the daemon says: seals 0x%x, %lld of %llu bytes", (unsigned)seals,
			(long long)st->st_size, (unsigned long long)size);
		return -EPROTO;
	}
	return 0;
}

/*
 * At @base if nothing is there, else anywhere; 0: anywhere. Not for children, who would write into their parent's pool, nor for
 * core dumps, which would be as large as the pool.
 */
static int file_map(int fd, uint64_t base, uint64_t size, bool writable, uint8_t **addr)
{
	int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
	bool sane = base % 4096 == 0 && base <= UINTPTR_MAX - size;

	/*
	 * A hint is followed when nothing is there. Not MAP_FIXED_NOREPLACE: ThreadSanitizer has no shadow for that address,
	 * takes it out of the call, and ends the program over what the flag then makes of it.
	 */
	void *mem = dontfork_mmap(sane ? (void *)(uintptr_t)base : NULL, size, prot, MAP_SHARED, fd, 0);

	if (mem == MAP_FAILED)
		return -errno;
	*addr = mem;
	return 0;
}

static int region_new(uint32_t number, int fd, uint64_t base, uint64_t at, uint64_t size, bool writable,
		      struct soft_region **out)
{
	struct stat st;
	int r = file_check(fd, size, &st);

	if (r < 0)
		return r;

	struct soft_region *region = calloc(1, sizeof(*region));

	if (!region)
		return -ENOMEM;
	r = file_map(fd, at, size, writable, &region->addr);
	if (r < 0) {
		free(region);
		return r;
	}
	region->number = number;
	region->writable = writable;
	region->base = base;
	region->size = size;
	region->dev = st.st_dev;
	region->ino = st.st_ino;
	region->users = 1;
	*out = region;
	return 0;
}

int region_file_map(int fd, uint64_t at, uint64_t size, bool writable, uint8_t **addr)
{
	struct stat st;
	int r = file_check(fd, size, &st);

	if (r == 0)
		r = file_map(fd, at, size, writable, addr);
	close(fd);
	return r;
}

/* The mapping of that very file, if there is one. Lock held. */
static struct soft_region *same_file(uint32_t number, int fd, uint64_t size, bool writable)
{
	struct soft_region *region = regions;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	while (region && !(serves(region, number, writable) && region->dev == st.st_dev &&
				 region->ino == st.st_ino && region->size == size))
		region = region->next;
	return region;
}

static int map_at(uint32_t number, int fd, uint64_t base, uint64_t at, uint64_t size, bool writable,
		  struct soft_region **region)
{
	int r = 0;

	pthread_mutex_lock(&lock);

	struct soft_region *known = same_file(number, fd, size, writable);

	if (known) {
		known->users++;
	} else {
		r = region_new(number, fd, base, at, size, writable, &known);
		if (r == 0) {
			known->next = regions;
			regions = known;
		}
	}
	pthread_mutex_unlock(&lock);
	close(fd);
	if (r == 0)
		*region = known;
	return r;
}

int region_map(uint32_t number, int fd, uint64_t base, uint64_t size, bool writable, struct soft_region **region)
{
	return map_at(number, fd, base, base, size, writable, region);
}

int region_map_granted(uint32_t number, int fd, uint64_t base, uint64_t size, bool writable,
		       struct soft_region **region)
{
	return map_at(number, fd, base, writable ? base : 0, size, writable, region);
}

struct soft_region *region_put(struct soft_region *region)
{
	if (!region)
		return NULL;
	pthread_mutex_lock(&lock);

	bool last = --region->users == 0;

	for (struct soft_region **at = &regions; last && *at; at = &(*at)->next) {
		if (*at == region) {
			*at = region->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!last)
		return NULL;
	/* Not under the lock: it takes its time when many pages were touched. */
	dontfork_munmap(region->addr, region->size);
	free(region);
	return NULL;
}

int region_populate(const struct soft_region *region)
{
	int advice = region->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	while (madvise(region->addr, region->size, advice) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL) /* before Linux 5.14 only a touch would do it, and that may be a signal */
			return -EOPNOTSUPP;
		return errno == EFAULT ? -ENOMEM : -errno; /* a SIGBUS in the making: no huge page, no space */
	}
	return 0;
}

int region_bind(const struct soft_region *region, int node)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	const unsigned bits = 8 * sizeof(mask[0]);

	if (node < 0 || node >= NODES_MAX)
		return -EINVAL;
	mask[(unsigned)node / bits] = 1ul << ((unsigned)node % bits);
	/* One more than there are: the kernel takes one off. */
	if (syscall(SYS_mbind, region->addr, region->size, MPOL_BIND, mask, NODES_MAX + 1, 0) == 0)
		return 0;
	if (errno == ENOSYS) /* a kernel of one node */
		return node == 0 ? 0 : -EINVAL;
	return -errno;
}
