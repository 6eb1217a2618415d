/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc() and its like. What is large, or aligned to pages, comes out of the heap; everything else, and all that the heap
 * has no room for, from whoever the program would have asked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/heap/heap.h"

#define SHOWN __attribute__((visibility("default")))

/* libc's own, for what dlsym() may want while it is asked who comes next. */
void *__libc_malloc(size_t size);
void __libc_free(void *at);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t align, size_t size);

static struct {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*memalign)(size_t, size_t);
	size_t (*usable)(void *);
} next = { __libc_malloc, __libc_free, __libc_calloc, __libc_realloc, __libc_memalign, NULL };

static bool found;

/* Before the first call has returned there is one thread. */
static void next_find(void)
{
	found = true; /* what is asked for from here on gets libc's */

	void *(*alloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	void (*give)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	void *(*zeroed)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	void *(*again)(void *, size_t) = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	void *(*aligned)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");

	next.usable = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
	if (!alloc || !give || !zeroed || !again || !aligned)
		return; /* libc's it stays */
	next.malloc = alloc;
	next.free = give;
	next.calloc = zeroed;
	next.realloc = again;
	next.memalign = aligned;
}

#define FIND()                                                                                                        \
	do {                                                                                                          \
		if (__builtin_expect(!found, 0))                                                                      \
			next_find();                                                                                  \
	} while (0)

/* An allocation leaves errno alone unless it fails. */
static void *large(size_t size, size_t align)
{
	int saved = errno;
	void *mem = heap_take(size, align, false);

	errno = saved;
	return mem;
}

SHOWN void *malloc(size_t size)
{
	void *mem = size >= HEAP_MALLOC_MIN ? large(size, HEAP_PAGE) : NULL;

	FIND();
	return mem ? mem : next.malloc(size);
}

SHOWN void *calloc(size_t n, size_t size)
{
	size_t bytes;
	void *mem = NULL;

	if (!__builtin_mul_overflow(n, size, &bytes) && bytes >= HEAP_MALLOC_MIN)
		mem = large(bytes, HEAP_PAGE); /* zeros as it is */
	FIND();
	return mem ? mem : next.calloc(n, size);
}

SHOWN void free(void *at)
{
	int saved = errno;

	FIND();
	if (!heap_has(at) || !heap_drop(at))
		next.free(at);
	errno = saved;
}

static void *aligned(size_t align, size_t size)
{
	/* Pages are what such a program wants, and what it gets it has to itself. */
	void *mem = size && align >= HEAP_PAGE && !(align & (align - 1)) ? large(size, align) : NULL;

	FIND();
	return mem ? mem : next.memalign(align, size);
}

/* What lies in the heap, to be as large as @size. */
static void *moved(void *at, size_t was, size_t size)
{
	void *mem;

	if (size == 0) {
		free(at);
		return NULL;
	}
	if (heap_resize(at, size))
		return at;
	mem = size >= HEAP_PAGE ? large(size, HEAP_PAGE) : NULL;
	if (!mem)
		mem = malloc(size);
	if (!mem)
		return NULL;
	memcpy(mem, at, was < size ? was : size);
	free(at);
	return mem;
}

SHOWN void *realloc(void *at, size_t size)
{
	size_t was = at && heap_has(at) ? heap_size(at) : 0;
	void *mem;

	FIND();
	if (was)
		return moved(at, was, size);
	/* What has grown large moves in here. */
	was = at && next.usable && size >= HEAP_MALLOC_MIN ? next.usable(at) : 0;
	if (!was)
		return at || size < HEAP_MALLOC_MIN ? next.realloc(at, size) : malloc(size);
	mem = large(size, HEAP_PAGE);
	if (!mem)
		return next.realloc(at, size);
	memcpy(mem, at, was < size ? was : size);
	next.free(at);
	return mem;
}

SHOWN void *reallocarray(void *at, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(at, bytes);
}

SHOWN void *memalign(size_t align, size_t size)
{
	return aligned(align, size);
}

SHOWN void *aligned_alloc(size_t align, size_t size)
{
	return aligned(align, size);
}

SHOWN int posix_memalign(void **mem, size_t align, size_t size)
{
	int saved = errno;
	void *got;

	if (align % sizeof(void *) || !align || align & (align - 1))
		return EINVAL;
	got = aligned(align, size);
	errno = saved;
	if (!got)
		return ENOMEM;
	*mem = got;
	return 0;
}

SHOWN void *valloc(size_t size)
{
	return aligned(HEAP_PAGE, size);
}

SHOWN void *pvalloc(size_t size)
{
	size_t whole = (size + HEAP_PAGE - 1) & ~(size_t)(HEAP_PAGE - 1);

	if (whole < size) {
		errno = ENOMEM;
		return NULL;
	}
	return aligned(HEAP_PAGE, whole ? whole : HEAP_PAGE);
}

SHOWN size_t malloc_usable_size(void *at)
{
	size_t size = at && heap_has(at) ? heap_size(at) : 0;

	FIND();
	return size || !at || !next.usable ? size : next.usable(at);
}
