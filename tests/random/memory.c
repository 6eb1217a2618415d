/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arenas of the workers: what they ought to hold, against what they hold. The coordinator reads its children's
 * memory without their help.
 */
#include "tests/random/model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHUNK = 256 << 10 }; /* what is compared at a time: it fits into a cache */

int memory_image(void)
{
	static int image = -1;
	uint8_t *bytes;

	if (image >= 0)
		return image;
	image = memfd_create("random", MFD_CLOEXEC);
	if (image < 0 || ftruncate(image, SPACE) < 0)
		abort();
	bytes = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_SHARED, image, 0);
	if (bytes == MAP_FAILED)
		abort();
	pattern_fill(bytes, 0, 0, SPACE);
	munmap(bytes, SPACE);
	return image;
}

void memory_init(struct memory *memory)
{
	memory->bytes = malloc(SPACE);
	memory->unknown = calloc(1, SPACE);
	if (!memory->bytes || !memory->unknown || pread(memory_image(), memory->bytes, SPACE, 0) != SPACE)
		abort();
}

void memory_deinit(struct memory *memory)
{
	free(memory->bytes);
	free(memory->unknown);
}

static bool bytes_read(struct model *m, unsigned worker, uint32_t off, uint32_t len, uint8_t *to)
{
	const struct m_worker *w = &m->worker[worker];
	struct iovec local = { to, len };
	struct iovec remote = { (void *)(uintptr_t)(w->hello.arena + off), len };

	return process_vm_readv(w->pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/* A page that is away is what stands for it. */
static bool page_read(struct model *m, unsigned worker, uint32_t off, uint32_t len, uint8_t *to)
{
	const struct m_page *page = &m->worker[worker].pages[(off - PAGED) / PAGE];
	uint8_t *bytes;

	if (!page->away)
		return bytes_read(m, worker, off, len, to);
	bytes = malloc(off + len);
	if (!bytes)
		abort();
	pattern_fill(bytes, page->seed, off, off + len);
	memcpy(to, bytes + off, len);
	free(bytes);
	return true;
}

bool worker_read(struct model *m, unsigned worker, uint32_t off, uint32_t len, uint8_t *to)
{
	while (len && off < SPACE) {
		uint32_t end = off < PAGED ? PAGED : (off / PAGE + 1) * PAGE, n = len < end - off ? len : end - off;

		if (!(off < PAGED ? bytes_read : page_read)(m, worker, off, n, to))
			return false;
		off += n;
		len -= n;
		to += n;
	}
	return len == 0;
}

/* Who wrote there, for the message. */
static void blame(struct model *m, unsigned worker, uint32_t off, char *to, size_t size)
{
	size_t used = 0;

	to[0] = 0;
	for (size_t i = 0; i < m->n_accesses && used + 64 < size; i++) {
		const struct m_access *a = &m->accesses[i];

		if (a->write && a->worker == worker && a->lo <= off && off < a->hi && a->wr)
			used += (size_t)snprintf(to + used, size - used, "; wr %u (opcode %u, outcome %d status %d) wrote %x..%x",
				a->wr->id, a->wr->opcode, a->wr->outcome, a->wr->status, a->lo, a->hi);
	}
}

/* What is there of [lo, hi), until the next call. Kept, since memory that is new each time costs more than the look at it. */
static const uint8_t *range_read(struct model *m, unsigned worker, uint32_t lo, uint32_t hi)
{
	static uint8_t actual[SPACE];

	if (worker_read(m, worker, lo, hi - lo, actual))
		return actual;
	wrong(m, "died", "worker %u cannot be read", worker);
	return NULL;
}

static unsigned differing(const struct memory *memory, const uint8_t *actual, uint32_t lo, uint32_t hi)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < hi - lo; i++)
		n += !memory->unknown[lo + i] && memory->bytes[lo + i] != actual[i];
	return n;
}

/*
 * The first of [from, to) of @marks that is @mark, or to. What looks at much memory does so by this and its like, and not
 * byte by byte: a sanitizer's build is several times as long about that as about all else.
 */
static uint32_t mark_next(const uint8_t *marks, uint32_t from, uint32_t to, int mark)
{
	const uint8_t *at = memchr(marks + from, mark, to - from);

	return at ? (uint32_t)(at - marks) : to;
}

/* The first of [lo, hi), of which nothing is open, that is not what it ought to be, or hi. @actual: of lo. */
static uint32_t known_differs(const struct memory *memory, const uint8_t *actual, uint32_t lo, uint32_t hi)
{
	if (memcmp(memory->bytes + lo, actual, hi - lo) == 0)
		return hi;
	while (memory->bytes[lo] == *actual++)
		lo++;
	return lo;
}

static bool range_compare(struct model *m, unsigned worker, uint32_t lo, uint32_t hi)
{
	const struct memory *memory = &m->worker[worker].memory;
	const uint8_t *actual = range_read(m, worker, lo, hi);
	char whom[300];
	bool same = actual != NULL;
	uint32_t end, bad;

	for (uint32_t at = mark_next(memory->unknown, lo, hi, 0); same && at < hi; at = mark_next(memory->unknown, end, hi, 0)) {
		end = mark_next(memory->unknown, at, hi, 1);
		bad = known_differs(memory, actual + (at - lo), at, end);
		if (bad == end)
			continue;
		blame(m, worker, bad, whom, sizeof(whom));
		same = wrong(m, "memory", "worker %u at 0x%x: 0x%02x instead of 0x%02x (%u bytes of 0x%x..0x%x)%s", worker, bad,
			actual[bad - lo], memory->bytes[bad], differing(memory, actual, lo, hi), lo, hi, whom);
	}
	return same;
}

/* What was open is now what it is; but where something may still be on its way, it stays open. */
static bool range_adopt(struct model *m, unsigned worker, uint32_t lo, uint32_t hi)
{
	static uint8_t stays[SPACE];
	struct memory *memory = &m->worker[worker].memory;
	uint8_t *unknown = memory->unknown + lo;
	const uint8_t *actual;
	uint32_t n = hi - lo, end;

	if (mark_next(unknown, 0, n, 1) == n)
		return true;
	actual = range_read(m, worker, lo, hi);
	if (!actual)
		return false;
	memset(stays, 0, n);
	ranges_mark(&m->flying, worker, lo, hi, stays);
	for (uint32_t at = mark_next(stays, 0, n, 0); at < n; at = mark_next(stays, end, n, 0)) {
		end = mark_next(stays, at, n, 1);
		for (uint32_t from = mark_next(unknown, at, end, 1), to; from < end; from = mark_next(unknown, to, end, 1)) {
			to = mark_next(unknown, from, end, 0);
			memcpy(memory->bytes + lo + from, actual + from, to - from);
			memset(unknown + from, 0, to - from);
		}
	}
	return true;
}

typedef bool range_fn(struct model *m, unsigned worker, uint32_t lo, uint32_t hi);

static bool each_range(struct model *m, bool everything, range_fn *fn)
{
	for (unsigned i = 0; everything && i < m->workers; i++) {
		for (uint32_t lo = 0; lo < SPACE; lo += CHUNK) {
			if (!fn(m, i, lo, lo + CHUNK < SPACE ? lo + CHUNK : SPACE))
				return false;
		}
	}
	for (size_t i = 0; i < m->n_accesses && !everything; i++) {
		const struct m_access *a = &m->accesses[i];

		if (a->write && !fn(m, a->worker, a->lo, a->hi))
			return false;
	}
	for (size_t i = 0; i < m->n_fills && !everything; i++) {
		const struct fill_seen *f = &m->fills[i];

		if (!fn(m, f->worker, f->range.lo, f->range.hi))
			return false;
	}
	return true;
}

bool memory_compare(struct model *m, bool everything)
{
	return each_range(m, everything, range_compare) && each_range(m, everything, range_adopt);
}
