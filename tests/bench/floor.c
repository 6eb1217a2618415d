/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two processes that share memory can reach on this machine, without any library: the other side of most ratios.
 * Prints "name<tab>value<tab>unit", the median of batches.
 *
 *	floor flag            a word to and fro, half the time of a round
 *	floor ring            a 64-byte descriptor each way, its flag in the slot: half the time of a round
 *	floor memcpy SIZE     a warm copy
 *	floor vm_write SIZE   process_vm_writev() into another process; floor vm_read SIZE
 *	floor fences          a copy of 8 bytes between two full fences
 *	floor add             an uncontended locked add
 *	floor mutex           an uncontended mutex, taken and given back, where the process has a second thread
 *	floor eventfd         a wake-up on the other processor and back, half the time
 *	floor cycle           a cycle of the counter that perftest counts in
 *	floor state           what the host gives at this moment: flag as above, then the work of each of the two processors
 *	                      while both are busy, which takes longer where a core is shared
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define BATCHES 301 /* short ones: on a busy machine the median is still of some that nobody disturbed */
#define STOP UINT64_MAX
#define SLOTS 1024u

static double samples[BATCHES];

static int order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Nanoseconds of one call: the median batch of @n calls. The first batch warms up. */
static double median_of(void (*call)(void *), void *arg, unsigned n)
{
	for (int b = -1; b < BATCHES; b++) {
		uint64_t start = now();

		for (unsigned i = 0; i < n; i++)
			call(arg);
		if (b >= 0)
			samples[b] = (double)(now() - start) / n;
	}
	qsort(samples, BATCHES, sizeof(samples[0]), order);
	return samples[BATCHES / 2];
}

static void *shared(size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mem == MAP_FAILED)
		fail("mmap");
	memset(mem, 0, size);
	return mem;
}

/* On the other processor, until it is killed or ends. */
static pid_t beside(void (*run)(void *), void *arg)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(1);
		run(arg);
		_exit(0);
	}
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* --- to and fro ---------------------------------------------------------------------------------------------------- */

struct flags {
	_Alignas(64) _Atomic uint64_t there;
	_Alignas(64) _Atomic uint64_t back;
	_Alignas(64) uint64_t n;
};

static void await(_Atomic uint64_t *word, uint64_t value)
{
	while (atomic_load_explicit(word, memory_order_acquire) != value)
		;
}

static void flag_back(void *arg)
{
	struct flags *f = arg;

	for (uint64_t i = 1;; i++) {
		await(&f->there, i);
		atomic_store_explicit(&f->back, i, memory_order_release);
	}
}

static void flag_round(void *arg)
{
	struct flags *f = arg;

	atomic_store_explicit(&f->there, ++f->n, memory_order_release);
	await(&f->back, f->n);
}

static int flag(size_t size)
{
	struct flags *f = shared(sizeof(*f));
	pid_t child = beside(flag_back, f);

	(void)size;
	printf("flag\t%.1f\tns\n", median_of(flag_round, f, 200) / 2);
	end(child);
	return 0;
}

struct slot {
	_Alignas(64) uint64_t words[7];
	_Atomic uint64_t seq;
};

struct rings {
	struct slot there[SLOTS], back[SLOTS];
};

struct cursor {
	struct rings *rings;
	uint64_t at, sum;
};

static void slot_put(struct slot *ring, uint64_t at)
{
	struct slot *slot = &ring[at % SLOTS];

	for (unsigned i = 0; i < 7; i++)
		slot->words[i] = at + i;
	atomic_store_explicit(&slot->seq, at + 1, memory_order_release);
}

static uint64_t slot_get(struct slot *ring, uint64_t at)
{
	struct slot *slot = &ring[at % SLOTS];
	uint64_t sum = 0;

	await(&slot->seq, at + 1);
	for (unsigned i = 0; i < 7; i++)
		sum += slot->words[i];
	return sum;
}

static void ring_back(void *arg)
{
	volatile uint64_t sum = 0;
	struct rings *rings = arg;

	(void)sum; /* clang: nobody reads it */
	for (uint64_t at = 0;; at++) {
		sum += slot_get(rings->there, at);
		slot_put(rings->back, at);
	}
}

static void ring_round(void *arg)
{
	struct cursor *c = arg;

	slot_put(c->rings->there, c->at);
	c->sum += slot_get(c->rings->back, c->at++);
}

static int ring(size_t size)
{
	struct cursor c = { .rings = shared(sizeof(struct rings)) };
	pid_t child = beside(ring_back, c.rings);

	(void)size;
	printf("ring\t%.1f\tns\n", median_of(ring_round, &c, 200) / 2);
	end(child);
	return 0;
}

struct bells {
	int there, back;
};

static void bell_ring(int fd)
{
	if (eventfd_write(fd, 1))
		fail("eventfd");
}

static void bell_wait(int fd)
{
	eventfd_t value;

	if (eventfd_read(fd, &value))
		fail("eventfd");
}

static void bell_back(void *arg)
{
	const struct bells *bells = arg;

	for (;;) {
		bell_wait(bells->there);
		bell_ring(bells->back);
	}
}

static void bell_round(void *arg)
{
	const struct bells *bells = arg;

	bell_ring(bells->there);
	bell_wait(bells->back);
}

static int wake(size_t size)
{
	struct bells bells = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) };
	pid_t child = beside(bell_back, &bells);

	(void)size;
	printf("eventfd\t%.1f\tns\n", median_of(bell_round, &bells, 5) / 2);
	end(child);
	return 0;
}

/* --- copies -------------------------------------------------------------------------------------------------------- */

struct copy {
	char *to, *from;
	size_t size;
	pid_t peer;
	ssize_t (*vm)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long);
};

/* Batches of some 100 us. */
static unsigned copies_for(size_t size)
{
	size_t n = (1u << 20) / (size + 256);

	return n < 1 ? 1 : n > 500 ? 500 : (unsigned)n;
}

static void copied(const char *name, const struct copy *copy, void (*call)(void *))
{
	double ns = median_of(call, (void *)(uintptr_t)copy, copies_for(copy->size));

	printf("%s\t%.1f\tns\n%s_rate\t%.4f\tGB/s\n", name, ns, name, (double)copy->size / ns);
}

static void copy_memcpy(void *arg)
{
	const struct copy *copy = arg;

	memcpy(copy->to, copy->from, copy->size);
	__asm__ volatile("" : : "r"(copy->to) : "memory");
}

static int hot(size_t size)
{
	struct copy copy = { shared(size), shared(size), size, 0, NULL };

	copied("memcpy", &copy, copy_memcpy);
	return 0;
}

static void copy_vm(void *arg)
{
	const struct copy *copy = arg;
	struct iovec here = { copy->from, copy->size }, there = { copy->to, copy->size };

	if (copy->vm(copy->peer, &here, 1, &there, 1, 0) != (ssize_t)copy->size)
		fail("process_vm");
}

static void sleep_on(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* The pages are the peer's own: a mapping at the same address that fork() copied when it wrote there. */
static void own_pages(void *arg)
{
	const struct copy *copy = arg;

	memset(copy->to, 2, copy->size);
	bell_ring(copy->from[0]);
	sleep_on(NULL);
}

static int vm(const char *name, struct copy *copy)
{
	int ready = eventfd(0, EFD_CLOEXEC);
	pid_t child;

	copy->to = malloc(copy->size);
	copy->from = malloc(copy->size);
	if (!copy->to || !copy->from)
		fail("malloc");
	memset(copy->from, ready, copy->size);
	child = beside(own_pages, copy);
	bell_wait(ready);
	copy->peer = child;
	copied(name, copy, copy_vm);
	end(child);
	return 0;
}

static int vm_write(size_t size)
{
	struct copy copy = { .size = size, .vm = process_vm_writev };

	return vm("vm_write", &copy);
}

static int vm_read(size_t size)
{
	struct copy copy = { .size = size, .vm = process_vm_readv };

	return vm("vm_read", &copy);
}

static void copy_fenced(void *arg)
{
	struct copy *copy = arg;

	atomic_thread_fence(memory_order_seq_cst);
	copy_memcpy(copy);
	atomic_thread_fence(memory_order_seq_cst);
}

static int fences(size_t size)
{
	struct copy copy = { .to = shared(64), .from = shared(64), .size = 8 };

	(void)size;
	printf("fences\t%.2f\tns\n", median_of(copy_fenced, &copy, 10000));
	return 0;
}

/* --- locks --------------------------------------------------------------------------------------------------------- */

static void *idle(void *arg)
{
	sleep_on(arg);
	return NULL;
}

static void add_one(void *arg)
{
	atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

static int add(size_t size)
{
	(void)size;
	printf("add\t%.2f\tns\n", median_of(add_one, shared(64), 10000));
	return 0;
}

static void lock_once(void *arg)
{
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
}

static int mutex(size_t size)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;

	(void)size;
	if (pthread_create(&thread, NULL, idle, NULL))
		fail("pthread_create");
	printf("mutex\t%.2f\tns\n", median_of(lock_once, &lock, 10000));
	return 0;
}

/* perftest reads the time-stamp counter, and where there is none what we cannot know: nanoseconds are then its cycles. */
static uint64_t counter(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return now();
#endif
}

static int cycle(size_t size)
{
	uint64_t start = now(), first = counter(), last;

	(void)size;
	while (now() - start < 100000000u)
		;
	last = now();
	printf("cycle\t%.6f\tns\n", (double)(last - start) / (double)(counter() - first));
	return 0;
}

/* --- the host ------------------------------------------------------------------------------------------------------ */

enum { WORK_STEPS = 4000, WORK_BATCHES = 101 };

/* Nanoseconds of a step of six chains of three short instructions each: more at a time than a core of today can do. */
static double work(void)
{
	uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;

	for (int batch = 0; batch < WORK_BATCHES; batch++) {
		uint64_t start = now();

		for (uint64_t i = 0; i < WORK_STEPS; i++) {
			a = ((a + i) << 7 | (a + i) >> 57) ^ i;
			b = ((b + i) << 7 | (b + i) >> 57) ^ i;
			c = ((c + i) << 7 | (c + i) >> 57) ^ i;
			d = ((d + i) << 7 | (d + i) >> 57) ^ i;
			e = ((e + i) << 7 | (e + i) >> 57) ^ i;
			f = ((f + i) << 7 | (f + i) >> 57) ^ i;
			__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
		}
		samples[batch] = (double)(now() - start) / WORK_STEPS;
	}
	qsort(samples, WORK_BATCHES, sizeof(samples[0]), order);
	return samples[WORK_BATCHES / 2];
}

static void work_beside(void *arg)
{
	volatile double *there = arg;

	for (;;)
		*there = work();
}

static int state(size_t size)
{
	volatile double *there = shared(sizeof(*there));
	double here;
	pid_t child;

	flag(size);
	child = beside(work_beside, (void *)there);
	do
		here = work();
	while (!*there);
	printf("work 0\t%.3f\tns\nwork 1\t%.3f\tns\n", here, *there);
	end(child);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(size_t size);
		bool sized;
	} pieces[] = {
		{ "flag", flag, false }, { "ring", ring, false }, { "memcpy", hot, true }, { "vm_write", vm_write, true },
		{ "vm_read", vm_read, true }, { "fences", fences, false }, { "add", add, false }, { "mutex", mutex, false },
		{ "eventfd", wake, false }, { "cycle", cycle, false }, { "state", state, false },
	};

	for (size_t i = 0; argc > 1 && i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		if (strcmp(argv[1], pieces[i].name) != 0 || argc != 2 + pieces[i].sized)
			continue;
		pin(0);
		return pieces[i].run(argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
	}
	fprintf(stderr, "usage: floor flag|ring|fences|add|mutex|eventfd|cycle|state, floor memcpy|vm_write|vm_read SIZE\n");
	return 2;
}
