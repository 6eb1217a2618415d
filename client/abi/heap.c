/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap is a library of its own, since a program gets it only when it asks: it is found by its name. */
#include "client/abi/heap.h"

#include <dlfcn.h>
#include <stdatomic.h>

typedef int (*find_function)(const void *addr, size_t length, uint32_t *region, uint64_t *offset);

static int find_nothing(const void *addr, size_t length, uint32_t *region, uint64_t *offset)
{
	(void)addr;
	(void)length;
	(void)region;
	(void)offset;
	return -1;
}

/* It is preloaded, or it is not there. */
static find_function heap(void)
{
	static _Atomic(find_function) known;
	find_function find = atomic_load_explicit(&known, memory_order_relaxed);

	if (find)
		return find;
	*(void **)&find = dlsym(RTLD_DEFAULT, "verbsd_heap_find");
	if (!find)
		find = find_nothing;
	atomic_store_explicit(&known, find, memory_order_relaxed);
	return find;
}

bool abi_heap_find(const void *addr, size_t length, uint32_t *region, uint64_t *offset)
{
	return heap()(addr, length, region, offset) == 0;
}
