/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments and their pages. A page that is given back is punched out of its memfd at once: the host has it again, and it
 * reads as zeros when it is taken next. The lock is not held meanwhile, which takes its time for many pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/heap/heap.h"

#define RW (PROT_READ | PROT_WRITE)

uint8_t *_Atomic heap_base;

/* Recursive: a handler of fork's that runs behind ours may allocate. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct heap_segment *units[HEAP_UNITS]; /* by address; those of one segment are the same */
static size_t n_units;			       /* that were ever used */
static bool hopeless;			       /* no address space */

void *sys_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

int sys_munmap(void *addr, size_t length)
{
	return (int)syscall(SYS_munmap, addr, length);
}

int sys_mprotect(void *addr, size_t length, int prot)
{
	return (int)syscall(SYS_mprotect, addr, length, prot);
}

int sys_madvise(void *addr, size_t length, int advice)
{
	return (int)syscall(SYS_madvise, addr, length, advice);
}

void *sys_mremap(void *addr, size_t old, size_t length, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, addr, old, length, flags, to);
}

void heap_lock(void)
{
	pthread_mutex_lock(&lock);
}

void heap_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void heap_lock_renew(void)
{
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/* --- segments: lock held --------------------------------------------------------------------------------------------- */

static struct heap_segment *segment_of(const void *at)
{
	return units[((uintptr_t)at - (uintptr_t)heap_base) / HEAP_UNIT];
}

struct heap_segment *heap_segment(size_t i)
{
	for (size_t u = 0; u < n_units; u++) {
		if (!units[u] || (u && units[u] == units[u - 1]))
			continue;
		if (i-- == 0)
			return units[u];
	}
	return NULL;
}

static size_t page_of(const struct heap_segment *segment, const void *at)
{
	return (size_t)((const uint8_t *)at - segment->addr) / HEAP_PAGE;
}

static uint8_t *page_at(const struct heap_segment *segment, size_t page)
{
	return segment->addr + page * HEAP_PAGE;
}

static enum heap_page kind_at(const struct heap_segment *segment, size_t page)
{
	return PAGE_KIND(segment->states[page]);
}

static bool reserve(void)
{
	void *mem;

	if (heap_base || hopeless)
		return !hopeless;
	mem = sys_mmap(NULL, HEAP_RESERVE + HEAP_UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	hopeless = mem == MAP_FAILED || sysconf(_SC_PAGESIZE) != HEAP_PAGE;
	if (!hopeless)
		atomic_store_explicit(&heap_base, (uint8_t *)(((uintptr_t)mem + HEAP_UNIT - 1) & ~(HEAP_UNIT - 1)),
			memory_order_release);
	return !hopeless;
}

/* The first of @n units in a row that nothing is in; HEAP_UNITS: none. */
static size_t units_find(size_t n)
{
	for (size_t first = 0, u = 0; u < HEAP_UNITS; u++) {
		if (units[u])
			first = u + 1;
		else if (u + 1 - first == n)
			return first;
	}
	return HEAP_UNITS;
}

/* Nobody may write there any more, nor is anything there. */
static void blank(uint8_t *at, size_t length)
{
	sys_mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static size_t record_size(size_t pages)
{
	return sizeof(struct heap_segment) + (pages + 7) / 8 * 8 + pages * sizeof(uint32_t);
}

static struct heap_segment *segment_map(const struct heap_region *region, uint8_t *at)
{
	size_t pages = region->size / HEAP_PAGE;
	struct heap_segment *segment;
	struct stat st;

	/* Pages that could go would be a SIGBUS; the daemon's cannot. */
	if (fstat(region->fd, &st) < 0 || (uint64_t)st.st_size < region->size ||
		!(fcntl(region->fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return NULL;
	segment = sys_mmap(NULL, record_size(pages), RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (segment == MAP_FAILED)
		return NULL;
	if (sys_mmap(at, region->size, RW, MAP_SHARED | MAP_FIXED, region->fd, 0) == MAP_FAILED) {
		sys_munmap(segment, record_size(pages));
		return NULL;
	}
	segment->addr = at;
	segment->pages = pages;
	segment->number = region->number;
	segment->fd = region->fd;
	segment->dev = st.st_dev;
	segment->ino = st.st_ino;
	segment->lengths = (uint32_t *)(void *)(segment->states + (pages + 7) / 8 * 8);
	memset(segment->states, PAGE_STATE(PAGE_FREE, RW), pages);
	return segment;
}

static struct heap_segment *segment_new(size_t size)
{
	size_t n = (size + HEAP_UNIT - 1) / HEAP_UNIT, first = units_find(n);
	struct heap_segment *segment = NULL;
	struct heap_region region;

	if (first == HEAP_UNITS)
		return NULL;
	/* A whole unit, so that there are few; where the quota forbids that, no more than is needed. */
	if (source_take(size < HEAP_UNIT ? HEAP_UNIT : size, &region) < 0 &&
		(size >= HEAP_UNIT || source_take(size, &region) < 0))
		return NULL;
	if (region.size >= size && region.size <= n * HEAP_UNIT)
		segment = segment_map(&region, heap_base + first * HEAP_UNIT);
	if (!segment) {
		close(region.fd);
		source_give(region.number);
		return NULL;
	}
	for (size_t u = first; u < first + n; u++)
		units[u] = segment;
	if (n_units < first + n)
		n_units = first + n;
	return segment;
}

static void segment_free(struct heap_segment *segment)
{
	struct stat st;

	for (size_t u = 0; u < n_units; u++)
		if (units[u] == segment)
			units[u] = NULL;
	blank(segment->addr, segment->pages * HEAP_PAGE);
	if (fstat(segment->fd, &st) == 0 && st.st_dev == segment->dev && st.st_ino == segment->ino)
		close(segment->fd);
	source_give(segment->number);
	sys_munmap(segment, record_size(segment->pages));
}

/* One that is empty goes, but for the last of its kind: what was made for one allocation goes with that. */
static void segment_look(struct heap_segment *segment)
{
	bool another = segment->pages > HEAP_UNIT / HEAP_PAGE;
	struct heap_segment *other;

	if (segment->used || !segment->number)
		return;
	for (size_t i = 0; !another && (other = heap_segment(i)); i++)
		another = other != segment && other->number && !other->used;
	if (another)
		segment_free(segment);
}

/* --- pages: lock held -------------------------------------------------------------------------------------------------- */

/* @n free pages in a row, the first aligned to @align bytes. segment->pages: none. */
static size_t run_find(struct heap_segment *segment, size_t n, size_t align)
{
	size_t run = 0, page = segment->first;

	while (page < segment->pages) {
		if (kind_at(segment, page) != PAGE_FREE) {
			page += kind_at(segment, page) == PAGE_HEAD ? segment->lengths[page] : 1;
			run = 0;
			continue;
		}
		if (run == 0 && (uintptr_t)page_at(segment, page) & (align - 1)) {
			page++;
			continue;
		}
		page++;
		if (++run == n)
			return page - n;
	}
	return segment->pages;
}

static void first_advance(struct heap_segment *segment)
{
	while (segment->first < segment->pages && kind_at(segment, segment->first) != PAGE_FREE)
		segment->first++;
}

/* Free pages become the program's. */
static bool run_take(struct heap_segment *segment, size_t page, size_t n, enum heap_page kind)
{
	bool closed = false;

	for (size_t i = page; i < page + n && !closed; i++)
		closed = PAGE_PROT(segment->states[i]) != RW;
	if (closed && sys_mprotect(page_at(segment, page), n * HEAP_PAGE, RW) < 0)
		return false;
	memset(segment->states + page, PAGE_STATE(kind, RW), n);
	segment->used += n;
	first_advance(segment);
	return true;
}

static void *segment_take(struct heap_segment *segment, size_t n, size_t align, bool mapped)
{
	size_t page;

	if (!segment->number || segment->pages - segment->used < n)
		return NULL;
	page = run_find(segment, n, align);
	if (page == segment->pages || !run_take(segment, page, n, mapped ? PAGE_MAPPED : PAGE_BODY))
		return NULL;
	if (!mapped) {
		segment->states[page] = PAGE_STATE(PAGE_HEAD, RW);
		segment->lengths[page] = (uint32_t)n;
	}
	return page_at(segment, page);
}

/* A child's pages are its own, and are not given out again. */
static void run_leave_copy(struct heap_segment *segment, size_t page, size_t n)
{
	blank(page_at(segment, page), n * HEAP_PAGE);
	memset(segment->states + page, PAGE_DEAD, n);
}

/*
 * Pages become free, with protection @prot. The lock is given up meanwhile; the pages are nobody's then, and @segment stays
 * as long as it has used ones.
 */
static void run_leave(struct heap_segment *segment, size_t page, size_t n, int prot)
{
	uint8_t *at = page_at(segment, page);

	if (!segment->number) {
		run_leave_copy(segment, page, n);
		return;
	}
	memset(segment->states + page, PAGE_STATE(PAGE_LEAVING, RW), n);
	heap_unlock();
	/* It may have been protected; and what cannot be punched out is written over. */
	sys_mprotect(at, n * HEAP_PAGE, RW);
	if (sys_madvise(at, n * HEAP_PAGE, MADV_REMOVE) < 0)
		memset(at, 0, n * HEAP_PAGE);
	if (prot != RW && sys_mprotect(at, n * HEAP_PAGE, prot) < 0)
		prot = RW;
	heap_lock();
	memset(segment->states + page, PAGE_STATE(PAGE_FREE, prot), n);
	segment->used -= n;
	if (segment->first > page)
		segment->first = page;
	segment_look(segment);
}

/* --- what malloc() and its like need --------------------------------------------------------------------------------- */

void *heap_take(size_t size, size_t align, bool mapped)
{
	size_t n = (size + HEAP_PAGE - 1) / HEAP_PAGE;
	struct heap_segment *segment;
	void *mem = NULL;

	if (!size || size > HEAP_RESERVE / 2 || align > HEAP_UNIT)
		return NULL;
	heap_lock();
	if (reserve()) {
		for (size_t i = 0; !mem && (segment = heap_segment(i)); i++)
			mem = segment_take(segment, n, align, mapped);
		if (!mem) {
			segment = segment_new(n * HEAP_PAGE);
			mem = segment ? segment_take(segment, n, align, mapped) : NULL;
		}
	}
	heap_unlock();
	return mem;
}

/* The segment, if malloc() gave what is there. Lock held. */
static struct heap_segment *given(const void *at, size_t *page)
{
	struct heap_segment *segment = heap_has(at) ? segment_of(at) : NULL;

	if (!segment || (uintptr_t)at % HEAP_PAGE)
		return NULL;
	*page = page_of(segment, at);
	return *page < segment->pages && kind_at(segment, *page) == PAGE_HEAD ? segment : NULL;
}

/* How many pages it still has: a program may have unmapped the end of it. Lock held. */
static size_t length_of(const struct heap_segment *segment, size_t page)
{
	size_t n = 1;

	while (n < segment->lengths[page] && kind_at(segment, page + n) == PAGE_BODY)
		n++;
	return n;
}

size_t heap_size(const void *at)
{
	struct heap_segment *segment;
	size_t page, size = 0;

	heap_lock();
	segment = given(at, &page);
	if (segment)
		size = length_of(segment, page) * HEAP_PAGE;
	heap_unlock();
	return size;
}

bool heap_drop(void *at)
{
	struct heap_segment *segment;
	size_t page;

	heap_lock();
	segment = given(at, &page);
	if (segment)
		run_leave(segment, page, length_of(segment, page), RW);
	heap_unlock();
	return segment;
}

/* The pages from @page on are free and there. */
static bool run_is_free(const struct heap_segment *segment, size_t page, size_t n)
{
	if (!segment->number || page > segment->pages || n > segment->pages - page)
		return false;
	for (size_t i = page; i < page + n; i++)
		if (kind_at(segment, i) != PAGE_FREE)
			return false;
	return true;
}

bool heap_resize(void *at, size_t size)
{
	size_t n = (size + HEAP_PAGE - 1) / HEAP_PAGE, page, was;
	struct heap_segment *segment;
	bool done = false;

	heap_lock();
	segment = n ? given(at, &page) : NULL;
	if (segment) {
		was = length_of(segment, page);
		done = n <= was || (run_is_free(segment, page + was, n - was) &&
					   run_take(segment, page + was, n - was, PAGE_BODY));
		if (done)
			segment->lengths[page] = (uint32_t)n;
		if (n < was)
			run_leave(segment, page + n, was - n, RW);
	}
	heap_unlock();
	return done;
}

/* --- what mmap() and its like need ------------------------------------------------------------------------------------- */

/*
 * Calls @each for the runs of pages of one kind in a range. It is called with the lock held, and may give it up: the
 * segment is looked up again for each run.
 */
static void runs_walk(uint8_t *at, size_t length, void (*each)(struct heap_segment *, size_t, size_t, int), int arg)
{
	uint8_t *end = at + length;

	heap_lock();
	while (at < end && heap_has(at)) {
		struct heap_segment *segment = segment_of(at);
		size_t page, last, n = 1;

		if (!segment || page_of(segment, at) >= segment->pages) {
			at = heap_base + ((size_t)(at - heap_base) / HEAP_UNIT + 1) * HEAP_UNIT;
			continue;
		}
		page = page_of(segment, at);
		last = page + (size_t)(end - at + HEAP_PAGE - 1) / HEAP_PAGE;
		if (last > segment->pages)
			last = segment->pages;
		while (page + n < last && segment->states[page + n] == segment->states[page])
			n++;
		at += n * HEAP_PAGE;
		each(segment, page, n, arg);
	}
	heap_unlock();
}

static void unmap_run(struct heap_segment *segment, size_t page, size_t n, int arg)
{
	(void)arg;
	switch (kind_at(segment, page)) {
	case PAGE_HEAD:
	case PAGE_BODY:
	case PAGE_MAPPED:
		run_leave(segment, page, n, PROT_NONE);
		break;
	case PAGE_FOREIGN:
		run_leave_copy(segment, page, n);
		break;
	case PAGE_FREE:
	case PAGE_LEAVING:
	case PAGE_DEAD:
		break;
	}
}

void heap_unmap(uint8_t *at, size_t length)
{
	runs_walk(at, length, unmap_run, 0);
}

static void overlay_run(struct heap_segment *segment, size_t page, size_t n, int arg)
{
	(void)arg;
	if (kind_at(segment, page) == PAGE_FREE)
		segment->used += n;
	memset(segment->states + page, PAGE_FOREIGN, n);
	first_advance(segment);
}

void heap_overlaid(uint8_t *at, size_t length)
{
	runs_walk(at, length, overlay_run, 0);
}

static void protect_run(struct heap_segment *segment, size_t page, size_t n, int prot)
{
	for (size_t i = page; i < page + n; i++)
		segment->states[i] = PAGE_STATE(kind_at(segment, i), prot & (RW | PROT_EXEC));
}

void heap_protected(uint8_t *at, size_t length, int prot)
{
	runs_walk(at, length, protect_run, prot);
}

/* A range that lies wholly in one segment, whose pages are all the program's. Lock held. */
static struct heap_segment *range_of(const uint8_t *at, size_t length, bool mapped)
{
	struct heap_segment *segment = heap_has(at) ? segment_of(at) : NULL;
	size_t page, last, offset, size;

	if (!segment || !length)
		return NULL;
	offset = (size_t)(at - segment->addr);
	size = segment->pages * HEAP_PAGE;
	if (offset >= size || length > size - offset)
		return NULL;
	page = offset / HEAP_PAGE;
	last = (offset + length - 1) / HEAP_PAGE;
	for (; page <= last; page++) {
		enum heap_page kind = kind_at(segment, page);

		if (kind != PAGE_MAPPED && (mapped || (kind != PAGE_HEAD && kind != PAGE_BODY)))
			return NULL;
	}
	return segment;
}

bool heap_is_mapped(const uint8_t *at, size_t length)
{
	bool is;

	heap_lock();
	is = range_of(at, length, true);
	heap_unlock();
	return is;
}

bool heap_is_given(const uint8_t *at, size_t length)
{
	bool is;

	heap_lock();
	is = range_of(at, length, false);
	heap_unlock();
	return is;
}

bool heap_extend(uint8_t *end, size_t length)
{
	size_t n = (length + HEAP_PAGE - 1) / HEAP_PAGE, page;
	struct heap_segment *segment;
	bool done;

	heap_lock();
	segment = segment_of(end - 1);
	page = page_of(segment, end - 1) + 1;
	done = run_is_free(segment, page, n) && run_take(segment, page, n, PAGE_MAPPED);
	heap_unlock();
	return done;
}

int heap_eject(uint8_t *at, size_t length)
{
	uint8_t *copy = sys_mmap(NULL, length, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return -errno;
	sys_mprotect(at, length, RW);
	memcpy(copy, at, length);
	if (sys_mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
		sys_munmap(copy, length);
		return -errno;
	}
	heap_overlaid(at, length);
	return 0;
}

void heap_zero(uint8_t *at, size_t length)
{
	if (sys_madvise(at, length, MADV_REMOVE) == 0)
		return;
	/* Of a child's copy, or of what the program has mapped over it. */
	if (sys_madvise(at, length, MADV_DONTNEED) < 0)
		memset(at, 0, length);
}

__attribute__((visibility("default"))) int verbsd_heap_find(const void *addr, size_t length, uint32_t *region, uint64_t *offset)
{
	const struct heap_segment *segment;

	if (!heap_has(addr))
		return -ENOENT;
	heap_lock();
	segment = range_of(addr, length, false);
	if (segment && segment->number) {
		*region = segment->number;
		*offset = (uint64_t)((const uint8_t *)addr - segment->addr);
	} else {
		segment = NULL;
	}
	heap_unlock();
	return segment ? 0 : -ENOENT;
}
