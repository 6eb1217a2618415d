/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a range of memory may be registered. The kernel is asked without touching more than two pages: a region of
 * 50 GB must not be populated by its registration.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/mr.h"

/* What the kernel does not say plainly (special mappings, an older kernel) its list of mappings does. */
int mr_maps_allow(uintptr_t from, uintptr_t to, bool write)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int r = 0;

	if (!file)
		return 0;
	while (r == 0 && fgets(line, sizeof(line), file)) {
		uint64_t start, end;
		char prot[5];

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, prot) != 3 || end <= from || start >= to)
			continue;
		if (prot[0] != 'r' || (write && prot[1] != 'w'))
			r = -EACCES;
	}
	fclose(file);
	return r;
}

static int page_allows(uintptr_t page, size_t size, bool write)
{
	while (madvise((void *)page, size, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL)
			return mr_maps_allow(page, page + size, write);
		return errno == ENOMEM || errno == EFAULT ? -EFAULT : 0;
	}
	return 0;
}

int mr_probe(const void *addr, size_t length, bool write)
{
	size_t size = (size_t)getpagesize();
	uintptr_t from = (uintptr_t)addr & ~(size - 1), end = (uintptr_t)addr + length;
	int r;

	if (length == 0)
		return 0;
	if (end < (uintptr_t)addr || end > UINTPTR_MAX - size)
		return -EFAULT;
	end = (end + size - 1) & ~(size - 1);
	while (msync((void *)from, end - from, MS_ASYNC) < 0) {
		if (errno == ENOMEM)
			return -EFAULT;
		if (errno != EINTR)
			break;
	}
	r = page_allows(from, size, write);
	if (r == 0 && end - from > size)
		r = page_allows(end - size, size, write);
	return r;
}
