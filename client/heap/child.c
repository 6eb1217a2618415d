/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork. Pages of the heap are shared, and a program expects a child to have a copy of its memory: so the child makes one,
 * before fork() returns in it, and the parent waits until it has. A child's copies are ordinary memory; what it allocates
 * after that comes from segments of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/heap/heap.h"

#define RW (PROT_READ | PROT_WRITE)

static int done[2] = { -1, -1 };

static void prepare(void)
{
	heap_lock();
	/* Without it (no fd is left) the parent goes on, and what it writes meanwhile may be in the copy. */
	if (heap_segment(0) && pipe2(done, O_CLOEXEC) < 0)
		done[0] = done[1] = -1;
}

static void parent(void)
{
	char c;

	if (done[0] >= 0) {
		close(done[1]);
		/* Its end, in whatever way. */
		while (read(done[0], &c, 1) < 0 && errno == EINTR)
			;
		close(done[0]);
		done[0] = done[1] = -1;
	}
	heap_unlock();
}

static void give_up(void)
{
	static const char text[] = "verbsd: no memory for a child's copy of the shared heap\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)ignored;
	_exit(127);
}

/* What the file has there, hole by hole; false: it is not to be had. */
static bool copy_file(const struct heap_segment *segment, uint8_t *to, off_t from, size_t length)
{
	off_t end = from + (off_t)length, at = from;

	while (at < end) {
		off_t data = lseek(segment->fd, at, SEEK_DATA), hole;

		if (data < 0)
			return errno == ENXIO; /* nothing any more */
		if (data >= end)
			return true;
		hole = lseek(segment->fd, data, SEEK_HOLE);
		if (hole < 0)
			return false;
		if (hole > end)
			hole = end;
		while (data < hole) {
			ssize_t n = pread(segment->fd, to + (data - from), (size_t)(hole - data), data);

			if (n <= 0 && !(n < 0 && errno == EINTR))
				return false;
			data += n > 0 ? n : 0;
		}
		at = hole;
	}
	return true;
}

static void copy_run(const struct heap_segment *segment, size_t page, size_t n, bool by_file)
{
	uint8_t *at = segment->addr + page * HEAP_PAGE;
	size_t length = n * HEAP_PAGE;
	int prot = PAGE_PROT(segment->states[page]);
	uint8_t *copy = sys_mmap(NULL, length, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		give_up();
	if (!by_file || !copy_file(segment, copy, (off_t)(page * HEAP_PAGE), length)) {
		sys_mprotect(at, length, PROT_READ);
		memcpy(copy, at, length);
	}
	if ((prot != RW && sys_mprotect(copy, length, prot) < 0) ||
		sys_mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
		give_up();
}

static void copy_segment(struct heap_segment *segment)
{
	struct stat st;
	bool by_file = fstat(segment->fd, &st) == 0 && st.st_dev == segment->dev && st.st_ino == segment->ino;

	for (size_t page = 0, n; page < segment->pages; page += n) {
		enum heap_page kind = PAGE_KIND(segment->states[page]);
		int prot = PAGE_PROT(segment->states[page]);
		bool used = kind == PAGE_HEAD || kind == PAGE_BODY || kind == PAGE_MAPPED;

		for (n = 1; page + n < segment->pages; n++) {
			enum heap_page other = PAGE_KIND(segment->states[page + n]);

			if (used != (other == PAGE_HEAD || other == PAGE_BODY || other == PAGE_MAPPED) ||
				(!used && other != kind) || PAGE_PROT(segment->states[page + n]) != prot)
				break;
		}
		if (used) {
			copy_run(segment, page, n, by_file);
		} else if (kind == PAGE_FREE || kind == PAGE_LEAVING) {
			sys_mmap(segment->addr + page * HEAP_PAGE, n * HEAP_PAGE, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
			memset(segment->states + page, PAGE_DEAD, n);
		}
	}
	if (by_file)
		close(segment->fd);
	segment->fd = -1;
	segment->number = 0;
}

static void child(void)
{
	struct heap_segment *segment;

	heap_lock_renew();
	for (size_t i = 0; (segment = heap_segment(i)); i++)
		if (segment->number)
			copy_segment(segment);
	source_forget();
	if (done[0] >= 0) {
		close(done[0]);
		close(done[1]);
		done[0] = done[1] = -1;
	}
}

__attribute__((constructor)) static void watch(void)
{
	pthread_atfork(prepare, parent, child);
}
