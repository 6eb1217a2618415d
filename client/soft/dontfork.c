/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes that registrations lie over are counted, those of the soft device and those of real ones apart. A page is out, not
 * there in a child, if all of it is registered with the soft device, or any of it with a real one. What has been taken out is
 * kept as well, so that no page is ever given back that was not taken here: the program has its own ideas about fork.
 *
 * Each registration advises its own range anew, whatever was there before: the program may have put other memory at that
 * address since. Each deregistration gives back what is out and has no reason to be any more. Neither looks into /proc: a
 * page of hugetlbfs cannot be split, which the kernel says with EINVAL, and then the same is tried with the next larger size.
 *
 * Most registrations share no page with any other and are soon gone. The newest of those are kept aside, in none of the three
 * sets: what one of them takes and gives back are its own pages, and that is all. Whatever comes near it moves it to the sets
 * first.
 *
 * Pages that are out split the address space into mappings, and those are limited. Stretches that touch are one. Where there
 * are too many all the same, memory of the soft device stays in the child: it needs no protection, but was asked for it.
 */
#include "client/soft/dontfork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/control/process.h"
#include "client/soft/cover.h"

#define MAPPINGS_DEFAULT 65530 /* of vm.max_map_count */
#define MAPPINGS_SHARE	 16    /* one stretch for so many mappings; each needs two */

/* Recursive: a signal handler that interrupts one of these may fork. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Atomic bool on, registered;
static struct cover soft, real; /* real: the library's own mappings, too */
static struct cover out;	/* as a set: what is MADV_DONTFORK on behalf of those */
static uint32_t stretches_max;

#define ASIDE_MAX 4

static struct aside {
	uintptr_t start, end; /* end 0: nothing. Its room in `soft` is promised */
	bool out;	      /* its pages are */
} aside[ASIDE_MAX];
static unsigned aside_next; /* who goes when there is no room */
static uintptr_t gap_lo, gap_hi; /* nothing in here is in any of the sets */

/* --- children ------------------------------------------------------------------------------------------------------ */

static void prepare(void)
{
	pthread_mutex_lock(&lock);
}

static void parent(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * Nothing that was out is here, and nothing of what is here is registered. Whether it was asked for is inherited. Nothing is
 * freed: a thread that is not here may have been at it.
 */
static void in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	soft = real = out = (struct cover){ 0 };
	memset(aside, 0, sizeof(aside));
	gap_lo = gap_hi = 0;
	registered = false;
}

static const struct process_hooks hooks = { prepare, parent, in_child, in_child };

static void enter(void)
{
	pthread_mutex_lock(&lock);
}

static void leave(void)
{
	pthread_mutex_unlock(&lock);
}

/* --- pages --------------------------------------------------------------------------------------------------------- */

/* Every size of page that Linux has, and that can be mapped whole or not at all. The first is the usual one. */
static const uintptr_t units[] = { 0, 1u << 16, 1u << 20, 1u << 21, 1u << 23, 1u << 24, 1u << 25, 1u << 28, 1u << 29, 1u << 30,
	(uintptr_t)1 << 31, (uintptr_t)1 << 34 };

#define UNITS (sizeof(units) / sizeof(units[0]))

static uintptr_t unit_of(unsigned level)
{
	static _Atomic uintptr_t page;

	if (!page)
		page = (uintptr_t)getpagesize();
	return units[level] > page ? units[level] : page;
}

static uintptr_t down(uintptr_t at, uintptr_t unit)
{
	return at & ~(unit - 1);
}

static uintptr_t up(uintptr_t at, uintptr_t unit)
{
	return down(at + unit - 1, unit);
}

enum way {
	TAKE_INSIDE, /* pages that are registered all over */
	TAKE_ALL,
	GIVE, /* pages that are out, and need not be */
};

/* For a real device, or one of our own mappings. */
static bool is_real(uintptr_t lo, uintptr_t hi)
{
	uintptr_t a, b;

	return cover_part(&real, lo, hi, &a, &b);
}

static bool is_soft(uintptr_t lo, uintptr_t hi)
{
	uintptr_t a, b;

	return !cover_hole(&soft, lo, hi, &a, &b);
}

static bool is_out(uintptr_t lo, uintptr_t hi)
{
	uintptr_t a, b;

	return !cover_hole(&out, lo, hi, &a, &b);
}

/* What is smaller than a page may be taken or given as the whole page. */
static bool may_widen(uintptr_t lo, uintptr_t hi, enum way way)
{
	switch (way) {
	case TAKE_INSIDE:
		return is_soft(lo, hi);
	case TAKE_ALL:
		return true;
	case GIVE:
		return is_out(lo, hi) && !is_real(lo, hi) && !is_soft(lo, hi);
	}
	return false;
}

static int say(uintptr_t lo, uintptr_t hi, int advice)
{
	/* ENOMEM: some of it is not mapped; the rest was advised. */
	return madvise((void *)lo, hi - lo, advice) < 0 && errno != ENOMEM ? -errno : 0;
}

static int advise_exactly(uintptr_t lo, uintptr_t hi, enum way way)
{
	int r = say(lo, hi, way == GIVE ? MADV_DOFORK : MADV_DONTFORK);

	if (r < 0)
		return r;
	return way == GIVE ? cover_cut(&out, lo, hi) : cover_fill(&out, lo, hi);
}

static int first_error(int a, int b)
{
	return a < 0 ? a : b;
}

/* Advises [lo, hi), a multiple of the unit of @level. EINVAL: there are larger pages in it. 0 or a negative errno. */
static int advise(uintptr_t lo, uintptr_t hi, unsigned level, enum way way)
{
	int r = advise_exactly(lo, hi, way);

	if (r != -EINVAL || level + 1 == UNITS)
		return r;

	uintptr_t unit = unit_of(level + 1), from = down(lo, unit), to = up(hi, unit);

	if (to - from == unit) {
		if (from == lo && to == hi)
			return advise(lo, hi, level + 1, way);
		return may_widen(from, to, way) ? advise(from, to, level + 1, way) : way == TAKE_INSIDE ? 0 : r;
	}
	/* Whatever has larger pages begins and ends at a multiple of them. */
	r = 0;
	from = up(lo, unit);
	to = down(hi, unit);
	if (lo < from)
		r = advise(lo, from, level, way);
	if (from < to)
		r = first_error(r, advise(from, to, level + 1, way));
	if (to < hi)
		r = first_error(r, advise(to, hi, level, way));
	return r;
}

/* --- aside --------------------------------------------------------------------------------------------------------- */

/* Stretches that are out, all told, are as many as may be. */
static bool is_full(void)
{
	uint32_t n = out.edges / 2;

	if (n + ASIDE_MAX < stretches_max)
		return false;
	for (unsigned i = 0; i < ASIDE_MAX; i++)
		n += aside[i].end && aside[i].out;
	return n >= stretches_max;
}

/* To the sets with it. */
static void settle(struct aside *one)
{
	uintptr_t unit = unit_of(0), lo = up(one->start, unit), hi = down(one->end, unit);

	gap_lo = gap_hi = 0;
	cover_keep(&soft, one->start, one->end);
	if (one->out && cover_fill(&out, lo, hi) < 0)
		say(lo, hi, MADV_DOFORK); /* no memory to know it by */
	one->end = 0;
}

/* [lo, hi) are whole pages: what shares a page with them is on one of them. */
static bool is_near(const struct aside *one, uintptr_t lo, uintptr_t hi)
{
	return one->start < hi && lo < one->end;
}

/* The sets are about to change for these pages. */
static void settle_near(uintptr_t lo, uintptr_t hi)
{
	gap_lo = gap_hi = 0;
	for (unsigned i = 0; i < ASIDE_MAX; i++)
		if (is_near(&aside[i], lo, hi))
			settle(&aside[i]);
}

/* Nothing is near these pages. */
static bool is_alone(uintptr_t lo, uintptr_t hi)
{
	uintptr_t from = 0, to = UINTPTR_MAX;

	for (unsigned i = 0; i < ASIDE_MAX; i++)
		if (is_near(&aside[i], lo, hi))
			return false;
	if (gap_lo <= lo && hi <= gap_hi)
		return true;
	if (!cover_gap(&soft, lo, hi, &from, &to) || !cover_gap(&real, lo, hi, &from, &to) ||
	    !cover_gap(&out, lo, hi, &from, &to))
		return false;
	gap_lo = from;
	gap_hi = to;
	return true;
}

/* A free place; the one that was filled longest ago is made free. */
static struct aside *aside_place(void)
{
	for (unsigned i = 0; i < ASIDE_MAX; i++)
		if (!aside[i].end)
			return &aside[i];

	struct aside *one = &aside[aside_next++ % ASIDE_MAX];

	settle(one);
	return one;
}

/* False: nothing was done, it has to go to the sets. */
static bool aside_take(uintptr_t start, uintptr_t end)
{
	uintptr_t unit = unit_of(0), lo = up(start, unit), hi = down(end, unit);
	bool takes = lo < hi && !is_full();

	if (!is_alone(down(start, unit), up(end, unit)) || cover_promise(&soft) < 0)
		return false;

	struct aside *place = aside_place();

	if (takes && say(lo, hi, MADV_DONTFORK) < 0) {
		cover_break(&soft);
		return false;
	}
	*place = (struct aside){ start, end, takes };
	return true;
}

static bool aside_put(uintptr_t start, uintptr_t end)
{
	uintptr_t unit = unit_of(0), lo = up(start, unit), hi = down(end, unit);

	for (unsigned i = 0; i < ASIDE_MAX; i++) {
		if (aside[i].end != end || aside[i].start != start)
			continue;
		aside[i].end = 0;
		cover_break(&soft);
		if (aside[i].out && say(lo, hi, MADV_DOFORK) < 0) {
			gap_lo = gap_hi = 0;
			cover_fill(&out, lo, hi); /* to be tried again with its neighbour */
		}
		return true;
	}
	return false;
}

/* --- giving back --------------------------------------------------------------------------------------------------- */

/* [lo, hi) need not be out: those pages of it that are, are given back. */
static void give(uintptr_t lo, uintptr_t hi)
{
	uintptr_t a, b;

	while (cover_part(&out, lo, hi, &a, &b)) {
		advise(a, b, 0, GIVE); /* on failure it stays in `out`, and is tried again with its neighbour */
		lo = b;
	}
}

/* The soft device has no reason to have [lo, hi) out: real ones may have one for some pages of it. */
static void give_unless_real(uintptr_t lo, uintptr_t hi)
{
	uintptr_t unit = unit_of(0), a, b;

	while (cover_hole(&real, lo, hi, &a, &b)) {
		uintptr_t from = up(a, unit), to = down(b, unit);

		if (from < to)
			give(from, to);
		lo = b;
	}
}

/* A registration of [start, end) is gone. */
static void release(uintptr_t start, uintptr_t end)
{
	uintptr_t unit = unit_of(0), lo = down(start, unit), hi = up(end, unit), a, b;

	while (cover_hole(&soft, lo, hi, &a, &b)) {
		uintptr_t to = up(b, unit);

		/* Each piece that is left in the middle would be a mapping of its own. */
		if (is_full())
			to = hi;
		give_unless_real(down(a, unit), to);
		lo = to;
	}
}

/* --- the soft device ----------------------------------------------------------------------------------------------- */

static bool set_take(uintptr_t start, uintptr_t end)
{
	uintptr_t unit = unit_of(0), lo, hi;

	settle_near(down(start, unit), up(end, unit));
	if (cover_add(&soft, start, end) < 0)
		return false;
	lo = is_soft(down(start, unit), start) ? down(start, unit) : up(start, unit);
	hi = is_soft(end, up(end, unit)) ? up(end, unit) : down(end, unit);
	if (lo < hi && !is_full())
		advise(lo, hi, 0, TAKE_INSIDE);
	return true;
}

void dontfork_take(struct dontfork_range *range, const void *addr, size_t length)
{
	uintptr_t start = (uintptr_t)addr, end = start + length;

	*range = (struct dontfork_range){ 0 };
	if (!on)
		registered = true;
	if (!on || length == 0)
		return;
	enter();
	if (aside_take(start, end) || set_take(start, end))
		*range = (struct dontfork_range){ start, end };
	leave();
}

void dontfork_put(struct dontfork_range *range)
{
	if (range->end == 0)
		return;
	enter();
	if (!aside_put(range->start, range->end) && cover_del(&soft, range->start, range->end) == 0)
		release(range->start, range->end);
	leave();
	*range = (struct dontfork_range){ 0 };
}

/* --- real devices -------------------------------------------------------------------------------------------------- */

int dontfork_take_real(const void *addr, size_t length)
{
	uintptr_t unit = unit_of(0), start = (uintptr_t)addr, end = start + length;
	int r;

	if (!on)
		registered = true;
	if (!on || length == 0)
		return 0;
	enter();
	settle_near(down(start, unit), up(end, unit));
	r = cover_add(&real, start, end);
	if (r == 0) {
		r = advise(down(start, unit), up(end, unit), 0, TAKE_ALL);
		if (r < 0) {
			cover_del(&real, start, end);
			release(start, end);
		}
	}
	leave();
	return r;
}

int dontfork_put_real(const void *addr, size_t length)
{
	uintptr_t start = (uintptr_t)addr, end = start + length;

	if (!on || length == 0)
		return 0;
	enter();
	if (cover_del(&real, start, end) == 0)
		release(start, end);
	leave();
	return 0;
}

/* --- on and off ---------------------------------------------------------------------------------------------------- */

static uint32_t stretches_allowed(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	long mappings = 0;

	if (file) {
		if (fscanf(file, "%ld", &mappings) != 1)
			mappings = 0;
		fclose(file);
	}
	if (mappings <= 0)
		mappings = MAPPINGS_DEFAULT;
	return mappings / MAPPINGS_SHARE < 1 ? 1 : (uint32_t)(mappings / MAPPINGS_SHARE);
}

static int kernel_check(void)
{
	size_t size = (size_t)getpagesize();
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r = 0;

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, size, MADV_DONTFORK) < 0 || madvise(page, size, MADV_DOFORK) < 0)
		r = errno == EINVAL ? -ENOSYS : -errno;
	munmap(page, size);
	return r;
}

int dontfork_start(void)
{
	int r = 0;

	process_hooks_add(&hooks);
	enter();
	if (!on && registered)
		r = -EINVAL;
	if (!on && r == 0)
		r = kernel_check();
	if (!on && r == 0) {
		stretches_max = stretches_allowed();
		on = true;
	}
	leave();
	return r;
}

bool dontfork_on(void)
{
	return on;
}

bool dontfork_late(void)
{
	return !on && registered;
}

/* --- our own ------------------------------------------------------------------------------------------------------- */

void *dontfork_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *mem;
	int error = 0;

	process_hooks_add(&hooks);
	enter();
	mem = mmap(addr, size, prot, flags, fd, offset);
	if (mem != MAP_FAILED && madvise(mem, size, MADV_DONTFORK) < 0)
		error = errno;
	if (mem != MAP_FAILED)
		settle_near((uintptr_t)mem, up((uintptr_t)mem + size, unit_of(0)));
	if (mem != MAP_FAILED && !error)
		error = -cover_add(&real, (uintptr_t)mem, (uintptr_t)mem + size);
	if (mem != MAP_FAILED && error) {
		munmap(mem, size);
		mem = MAP_FAILED;
		errno = error;
	}
	leave();
	if (mem != MAP_FAILED)
		madvise(mem, size, MADV_DONTDUMP);
	return mem;
}

void dontfork_munmap(void *addr, size_t size)
{
	munmap(addr, size); /* may take long */
	enter();
	cover_del(&real, (uintptr_t)addr, (uintptr_t)addr + size);
	leave();
}
