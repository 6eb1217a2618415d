/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose allocations come out of the shared heap: what it is given behaves as libc's. A TAP line for each check.
 * It knows what is in the heap by a function of the library's, which --ordinary says shall find nothing.
 *
 *	heap [--ordinary]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1024, MIB = 1024 * KIB, PAGE = 4096, THREADS = 4, ROUNDS = 300 };

/* A compiler that sees how much warns of it. */
static volatile size_t too_much = PTRDIFF_MAX;

static int (*heap_find)(const void *, size_t, uint32_t *, uint64_t *);
static bool ordinary;
static unsigned tests, failed;

static void ok(bool good, const char *what)
{
	printf("%s %u - %s\n", good ? "ok" : "not ok", ++tests, what);
	failed += !good;
}

static bool shared(const void *at, size_t size)
{
	uint32_t region;
	uint64_t offset;

	return heap_find && heap_find(at, size, &region, &offset) == 0;
}

/* Where it should be. */
static bool placed(const void *at, size_t size)
{
	return at && shared(at, size) == !ordinary;
}

static bool is_filled(const uint8_t *at, size_t size, uint8_t with)
{
	for (size_t i = 0; i < size; i++)
		if (at[i] != with)
			return false;
	return true;
}

/* Whether reading @at is a fault. */
static bool faults(const void *at)
{
	unsigned char in;

	return mincore((void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), 1, &in) < 0 || ({
		int fds[2];
		bool bad = pipe(fds) < 0 || (write(fds[1], at, 1) < 0 && errno == EFAULT);

		close(fds[0]);
		close(fds[1]);
		bad;
	});
}

/* The compiler must not know what comes of it. */
static void *volatile sink;

static void *kept(void *at)
{
	sink = at;
	return sink;
}

static void families(void)
{
	void *mem = NULL;

	ok(!shared(kept(malloc(1000)), 1000), "a small allocation is ordinary");
	ok(placed(kept(malloc(MIB)), MIB), "malloc");
	uint8_t *zeros = kept(calloc(3, MIB));
	ok(placed(zeros, 3 * MIB) && is_filled(zeros, 3 * MIB, 0), "calloc");
	memset(zeros, 1, 3 * MIB);
	free(zeros);
	zeros = kept(calloc(1, 3 * MIB));
	ok(is_filled(zeros, 3 * MIB, 0), "calloc of what was used");
	free(zeros);
	ok(posix_memalign(&mem, PAGE, 100) == 0 && placed(mem, 100) && (uintptr_t)mem % PAGE == 0, "posix_memalign to a page");
	ok(malloc_usable_size(mem) >= 100, "malloc_usable_size");
	free(mem);
	ok(posix_memalign(&mem, 2 * MIB, MIB) == 0 && placed(mem, MIB) && (uintptr_t)mem % (2 * MIB) == 0,
		"posix_memalign to 2 MiB");
	free(mem);
	ok(posix_memalign(&mem, 3, 100) == EINVAL, "posix_memalign to nonsense");
	ok(placed(kept(aligned_alloc(PAGE, 2 * PAGE)), 2 * PAGE), "aligned_alloc");
	ok(placed(kept(memalign(PAGE, PAGE)), PAGE), "memalign");
	ok(placed(kept(valloc(10)), 10), "valloc");
	errno = 0;
	ok(!kept(calloc(too_much, 4)) && errno == ENOMEM, "calloc of too much");
	errno = 0;
	ok(!kept(malloc(too_much)) && errno == ENOMEM, "malloc of too much");
}

static void reallocations(void)
{
	uint8_t *at = malloc(1000), *other;

	memset(at, 7, 1000);
	at = realloc(at, MIB);
	ok(placed(at, MIB) && is_filled(at, 1000, 7), "realloc of a small one to a large one");
	memset(at, 8, MIB);
	other = malloc(MIB); /* in its way */
	at = realloc(at, 20 * MIB);
	ok(placed(at, 20 * MIB) && is_filled(at, MIB, 8), "realloc to a larger one");
	memset(at, 9, 20 * MIB);
	at = realloc(at, 300 * MIB);
	ok(placed(at, 20 * MIB) && is_filled(at, 20 * MIB, 9), "realloc to more than a segment has");
	at = realloc(at, 10);
	ok(is_filled(at, 10, 9), "realloc to a small one");
	free(at);
	free(other);
	ok(!reallocarray(NULL, too_much, 4), "reallocarray of too much");
}

static void mappings(void)
{
	const size_t size = 64 * PAGE;
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *more;

	ok(at != MAP_FAILED && placed(at, size) && is_filled(at, size, 0), "mmap");
	memset(at, 1, size);
	ok(munmap(at + 16 * PAGE, 16 * PAGE) == 0 && faults(at + 16 * PAGE) && !faults(at + 15 * PAGE) &&
			!faults(at + 32 * PAGE) && !shared(at, size),
		"munmap of the middle");
	more = mmap(at + 16 * PAGE, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ok(more == at + 16 * PAGE && is_filled(more, 16 * PAGE, 0) && !shared(more, PAGE) && is_filled(at, 16 * PAGE, 1),
		"mmap over it");
	ok(madvise(at, 4 * PAGE, MADV_DONTNEED) == 0 && is_filled(at, 4 * PAGE, 0) && at[4 * PAGE] == 1, "MADV_DONTNEED");
	ok(madvise(at + 4 * PAGE, PAGE, MADV_FREE) == 0, "MADV_FREE");
	ok(mprotect(at, PAGE, PROT_NONE) == 0 && faults(at) && !faults(at + PAGE), "mprotect");
	ok(munmap(at, size) == 0 && faults(at) && faults(at + size - 1), "munmap of all");
	ok(munmap(at, size) == 0, "munmap of nothing");
	errno = 0;
	ok(munmap(at + 1, size) < 0 && errno == EINVAL, "munmap of no page");
	ok(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "mmap of nothing");
}

static void remappings(void)
{
	const size_t size = 64 * PAGE;
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *old = at, *to;

	memset(at, 3, size);
	at = mremap(at, size, size / 2, 0);
	ok(at == old && faults(at + size / 2) && is_filled(at, size / 2, 3), "mremap to less");
	at = mremap(at, size / 2, 1000 * PAGE, MREMAP_MAYMOVE);
	ok(at != MAP_FAILED && placed(at, 1000 * PAGE) && is_filled(at, size / 2, 3) &&
			is_filled(at + size / 2, 1000 * PAGE - size / 2, 0),
		"mremap to more");
	ok(at == old || faults(old), "what it moved from is gone");
	to = mmap(NULL, 1000 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	old = at;
	at = mremap(at, 1000 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ok(at == to && is_filled(at, size / 2, 3) && faults(old), "mremap to a place");
	munmap(at, 1000 * PAGE);
}

/* --- fork ------------------------------------------------------------------------------------------------------------ */

static uint8_t *inherited, *guarded;

static int in_child(void)
{
	uint8_t *fresh = malloc(2 * MIB);
	int bad = !is_filled(inherited, MIB, 5) || !is_filled(guarded, 16 * PAGE, 6);

	memset(inherited, 50, MIB);
	bad |= !fresh || shared(inherited, MIB) || shared(fresh, 2 * MIB) == ordinary;
	memset(fresh, 1, 2 * MIB);
	free(fresh);
	inherited = realloc(inherited, 4 * MIB);
	bad |= !inherited || !is_filled(inherited, MIB, 50);
	free(inherited);
	munmap(guarded, 16 * PAGE);
	return bad;
}

static int in_child_alone(void)
{
	uint8_t *fresh = calloc(1, MIB);
	int bad = !fresh || !is_filled(fresh, MIB, 0);

	free(fresh);
	return bad;
}

static void forks(void)
{
	int status = -1;
	pid_t pid;

	inherited = malloc(MIB);
	guarded = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(inherited, 5, MIB);
	memset(guarded, 6, 16 * PAGE);
	mprotect(guarded, 16 * PAGE, PROT_READ);
	madvise(inherited, MIB, MADV_DONTFORK);
	madvise(inherited, MIB, MADV_DOFORK);
	pid = fork();
	if (pid == 0)
		_exit(in_child());
	/* The child has its copy by now. */
	memset(inherited, 55, MIB);
	ok(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a child has a copy, and a heap of its own");
	ok(is_filled(inherited, MIB, 55), "what a child writes is not its parent's");
	free(inherited);
	pid = fork();
	if (pid == 0) {
		if (fork() == 0)
			_exit(!is_filled(guarded, 16 * PAGE, 6) || in_child_alone());
		wait(&status);
		_exit(status != 0);
	}
	ok(waitpid(pid, &status, 0) == pid && status == 0, "so has a child's child");
	ok(system("exit 7") == 7 << 8, "system");
}

/* --- threads --------------------------------------------------------------------------------------------------------- */

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uint8_t *at[8] = { NULL };
	size_t size[8] = { 0 };
	bool good = true;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned k = (unsigned)rand_r(&seed) % 8;

		if (at[k])
			good &= is_filled(at[k], 64, (uint8_t)k) && is_filled(at[k] + size[k] - 64, 64, (uint8_t)k);
		free(at[k]);
		size[k] = 1 + (size_t)rand_r(&seed) % MIB + 64;
		at[k] = seed & 16 ? malloc(size[k]) : memalign(PAGE, size[k]);
		memset(at[k], (int)k, 64);
		memset(at[k] + size[k] - 64, (int)k, 64);
	}
	for (unsigned k = 0; k < 8; k++)
		free(at[k]);
	return (void *)(uintptr_t)good;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	bool good = true;

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, churn, (void *)(i + 1)))
			abort();
	for (unsigned i = 0; i < 10; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(thread[i], &result);
		good &= (uintptr_t)result;
	}
	ok(good, "threads that allocate, while others fork");
}

int main(int argc, char **argv)
{
	ordinary = argc > 1 && strcmp(argv[1], "--ordinary") == 0;
	*(void **)&heap_find = dlsym(RTLD_DEFAULT, "verbsd_heap_find");
	families();
	reallocations();
	mappings();
	remappings();
	forks();
	threads();
	printf("1..%u\n", tests);
	return failed != 0;
}
