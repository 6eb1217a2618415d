/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mmap() and its like. Plain anonymous memory comes out of the heap; all that changes mappings is watched, since the program
 * may name pages of the heap in it, those of malloc() included.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "client/heap/heap.h"

#define SHOWN __attribute__((visibility("default")))
#define RW    (PROT_READ | PROT_WRITE)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* In no header of the names that large files have. */
#undef mmap64

static size_t whole(size_t length)
{
	return (length + HEAP_PAGE - 1) & ~(size_t)(HEAP_PAGE - 1);
}

/* What of [*at, *at+*length) is in the reserve; false: nothing. */
static bool clip(uint8_t **at, size_t *length)
{
	uint8_t *base = heap_base, *end = *at + *length;

	if (!base || !*length || end <= base || *at >= base + HEAP_RESERVE)
		return false;
	if (end > base + HEAP_RESERVE)
		end = base + HEAP_RESERVE;
	if (*at < base)
		*at = base;
	*length = (size_t)(end - *at);
	return true;
}

/* --- mmap ------------------------------------------------------------------------------------------------------------ */

static bool is_plain(const void *addr, size_t length, int prot, int flags, int fd)
{
	return !addr && fd == -1 && length >= HEAP_MMAP_MIN && prot == RW &&
	       (flags & ~MAP_POPULATE) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

static void *map(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	int saved = errno;
	uint8_t *at;
	void *mem;

	if (is_plain(addr, length, prot, flags, fd)) {
		mem = heap_take(length, HEAP_PAGE, true);
		errno = saved;
		if (mem && flags & MAP_POPULATE) {
			sys_madvise(mem, length, MADV_POPULATE_WRITE); /* as there, it need not succeed */
			errno = saved;
		}
		if (mem)
			return mem;
	}
	mem = sys_mmap(addr, length, prot, flags, fd, offset);
	at = mem;
	length = whole(length);
	if (mem != MAP_FAILED && flags & MAP_FIXED && clip(&at, &length))
		heap_overlaid(at, length);
	return mem;
}

SHOWN void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return map(addr, length, prot, flags, fd, offset);
}

SHOWN void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return map(addr, length, prot, flags, fd, offset);
}

/* --- munmap, mprotect ------------------------------------------------------------------------------------------------ */

/* The parts of a range before and behind the reserve. */
static int outside(uint8_t *from, size_t length, const uint8_t *at, size_t inside, int (*call)(void *, size_t))
{
	int r = 0;

	if (from < at)
		r = call(from, (size_t)(at - from));
	if (r == 0 && from + length > at + inside)
		r = call((void *)(uintptr_t)(at + inside), (size_t)(from + length - (at + inside)));
	return r;
}

SHOWN int munmap(void *addr, size_t length)
{
	uint8_t *at = addr;
	size_t inside = whole(length);

	if ((uintptr_t)addr % HEAP_PAGE || inside < length || !clip(&at, &inside))
		return sys_munmap(addr, length);
	if (outside(addr, whole(length), at, inside, sys_munmap) < 0)
		return -1;

	int saved = errno;

	heap_unmap(at, inside);
	errno = saved;
	return 0;
}

SHOWN int mprotect(void *addr, size_t length, int prot)
{
	int r = sys_mprotect(addr, length, prot);
	uint8_t *at = addr;

	length = whole(length);
	if (r == 0 && clip(&at, &length))
		heap_protected(at, length, prot);
	return r;
}

/* --- madvise ----------------------------------------------------------------------------------------------------------- */

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#define MADV_KEEPONFORK 19
#endif

/* Advice on pages of the heap. Most of it is the same for memory that can be shared. */
static int advise(uint8_t *at, size_t length, int advice)
{
	int r;

	switch (advice) {
	case MADV_DONTFORK: /* a child has a copy: what was to be kept from it cannot be changed from there */
	case MADV_DOFORK:
	case MADV_FREE: /* it may keep what is there */
	case MADV_KEEPONFORK:
		return 0;
	case MADV_DONTNEED:
		heap_zero(at, length);
		return 0;
	case MADV_WIPEONFORK:
		r = heap_eject(at, length);
		if (r < 0) {
			errno = -r;
			return -1;
		}
		return sys_madvise(at, length, advice);
	default:
		return sys_madvise(at, length, advice);
	}
}

SHOWN int madvise(void *addr, size_t length, int advice)
{
	uint8_t *at = addr;
	size_t inside = whole(length);

	if ((uintptr_t)addr % HEAP_PAGE || inside < length || !clip(&at, &inside) || at != addr ||
		inside != whole(length) || !heap_is_given(at, inside))
		return sys_madvise(addr, length, advice);
	return advise(at, inside, advice);
}

/* --- mremap ------------------------------------------------------------------------------------------------------------ */

/* To another place, which is ordinary memory where the program names it. */
static void *move(uint8_t *at, size_t old, size_t length, int flags, void *to)
{
	void *mem;

	if (flags & MREMAP_FIXED) {
		mem = map(to, length, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	} else {
		mem = heap_take(length, HEAP_PAGE, true);
		if (!mem)
			mem = sys_mmap(NULL, length, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if (mem == MAP_FAILED)
		return mem;
	memcpy(mem, at, old < length ? old : length);
#ifdef MREMAP_DONTUNMAP
	if (flags & MREMAP_DONTUNMAP) {
		heap_zero(at, old);
		return mem;
	}
#endif
	heap_unmap(at, old);
	return mem;
}

static void *remap(uint8_t *at, size_t old, size_t length, int flags, void *to)
{
	if (flags & ~MREMAP_MAYMOVE)
		return move(at, old, length, flags, to);
	if (length < old)
		heap_unmap(at + length, old - length);
	if (length <= old || heap_extend(at + old, length - old))
		return at;
	if (flags & MREMAP_MAYMOVE)
		return move(at, old, length, flags, to);
	errno = ENOMEM;
	return MAP_FAILED;
}

SHOWN void *mremap(void *addr, size_t old, size_t length, int flags, ...)
{
	void *to = NULL, *mem;

	if (flags & MREMAP_FIXED) {
		va_list args;

		va_start(args, flags);
		to = va_arg(args, void *);
		va_end(args);
	}
	if ((uintptr_t)addr % HEAP_PAGE == 0 && length && heap_is_mapped(addr, whole(old)))
		return remap(addr, whole(old), whole(length), flags, to);

	uint8_t *at = to;

	mem = sys_mremap(addr, old, length, flags, to);
	length = whole(length);
	if (mem != MAP_FAILED && to && clip(&at, &length))
		heap_overlaid(at, length);
	return mem;
}
