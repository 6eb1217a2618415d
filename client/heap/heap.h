/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libverbsd-heap: a program's large and page-aligned allocations, out of regions that peers may map. Pages are taken from
 * segments, each a memfd of the daemon's, in one range of addresses that is reserved at first use. Without a daemon, a
 * quota or addresses left, the program gets ordinary memory.
 */
#ifndef CLIENT_HEAP_HEAP_H
#define CLIENT_HEAP_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HEAP_PAGE	4096u
#define HEAP_MALLOC_MIN (128u << 10) /* of malloc() and its like, from where libc maps them as well */
#define HEAP_MMAP_MIN	(64u << 10)
#define HEAP_UNIT	(64ull << 20)	/* segments have a multiple of that in addresses */
#define HEAP_RESERVE	(256ull << 30)
#define HEAP_UNITS	(HEAP_RESERVE / HEAP_UNIT)

/* What a page is; above it its protection. */
enum heap_page {
	PAGE_FREE,    /* reads as zeros */
	PAGE_HEAD,    /* the first of what malloc() gave */
	PAGE_BODY,    /* the others of it */
	PAGE_MAPPED,  /* of mmap() */
	PAGE_LEAVING, /* on its way to FREE */
	PAGE_FOREIGN, /* the program has mapped something else there */
	PAGE_DEAD,    /* nothing is there, and nothing will be */
};
#define PAGE_KIND(state) ((enum heap_page)((state) & 7))
#define PAGE_PROT(state) ((int)((state) >> 3))
#define PAGE_STATE(kind, prot) ((uint8_t)((kind) | (unsigned)(prot) << 3))

struct heap_segment {
	uint8_t *addr;
	size_t pages, used; /* used: not FREE */
	size_t first;	    /* no page before it is free */
	uint32_t number;    /* of the region; 0: a child's copy, which is only given back */
	int fd;		    /* of the memfd, and which file that is: the program may close any number */
	dev_t dev;
	ino_t ino;
	uint32_t *lengths; /* pages of what begins at a HEAD */
	uint8_t states[];
};

/* All that follows, but where it says otherwise, is to be called without heap_lock(). */
void heap_lock(void);
void heap_unlock(void);
/* In a child of fork, where the thread that held it is. */
void heap_lock_renew(void);

extern uint8_t *_Atomic heap_base; /* NULL: nothing was ever given out */

static inline bool heap_has(const void *at)
{
	const uint8_t *base = atomic_load_explicit(&heap_base, memory_order_acquire);

	return base && (uintptr_t)at - (uintptr_t)base < HEAP_RESERVE;
}

/* Zeroed pages, aligned to @align (a power of two); @mapped: they are mmap()'s. NULL: take ordinary memory. */
void *heap_take(size_t size, size_t align, bool mapped);
/* Bytes of what malloc() gave there; 0: nothing of ours. */
size_t heap_size(const void *at);
/* Gives that back; false: nothing of ours. */
bool heap_drop(void *at);
/* Makes it that large where it lies; false: it cannot. */
bool heap_resize(void *at, size_t size);

/* Of pages within the reserve; what is in no segment is passed over. */
void heap_unmap(uint8_t *at, size_t length);
/* They have been mapped over. */
void heap_overlaid(uint8_t *at, size_t length);
/* They have that protection now. */
void heap_protected(uint8_t *at, size_t length, int prot);
/* Ordinary memory with the same contents, for what only that can do. 0, or a negative errno. */
int heap_eject(uint8_t *at, size_t length);
/* Their contents are zeros, in whatever way that is to be had. */
void heap_zero(uint8_t *at, size_t length);
/* Whether they are all mmap()'s; all mmap()'s or malloc()'s. */
bool heap_is_mapped(const uint8_t *at, size_t length);
bool heap_is_given(const uint8_t *at, size_t length);
/* Takes the free pages behind what ends at @end, for mmap()'s. */
bool heap_extend(uint8_t *end, size_t length);

/* Held: each segment in turn, from @i 0. NULL: no more. */
struct heap_segment *heap_segment(size_t i);

/* --- the daemon's side: under heap_lock() --- */

struct heap_region {
	uint32_t number;
	uint64_t size;
	int fd;
};

/* A new region; 0, or a negative errno. */
int source_take(uint64_t size, struct heap_region *region);
void source_give(uint32_t number);
/* In a child: the session is its parent's. */
void source_forget(void);

/* System calls themselves, past what this library shows in their name. */
void *sys_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int sys_munmap(void *addr, size_t length);
int sys_mprotect(void *addr, size_t length, int prot);
int sys_madvise(void *addr, size_t length, int advice);
void *sys_mremap(void *addr, size_t old, size_t length, int flags, void *to);

/* For libverbsd: whether [addr, addr+length) is the heap's, and which part of which region. */
int verbsd_heap_find(const void *addr, size_t length, uint32_t *region, uint64_t *offset);

#endif
