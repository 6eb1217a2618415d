/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What fork safety costs a registration, against the two system calls that it cannot do without, and how many mappings it
 * leaves. Runs under the preload. Prints "name<tab>value<tab>unit".
 *
 *	fork bare ROUNDS       MADV_DONTFORK and MADV_DOFORK of a page
 *	fork register ROUNDS   ibv_reg_mr() and ibv_dereg_mr() of a touched page
 *	fork paired ROUNDS     the same with the two calls of the first, by the program itself
 *	fork safe ROUNDS       the same after ibv_fork_init()
 *	fork mappings ROUNDS   after ibv_fork_init(), of ranges of every size: mappings after all less those before
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>

#include "tests/bench/bench.h"

#undef ibv_reg_mr

enum { PAGE = 4096, PAGES = 256, LIVE = 16, ROUNDS_MAX = 1000000 };

static uint32_t samples[ROUNDS_MAX];

static int order(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void print_median(const char *name, unsigned n)
{
	qsort(samples, n, sizeof(samples[0]), order);
	printf("%s\t%.3f\tus\n", name, (double)samples[n / 2] / 1000);
}

static uint8_t *touched(void)
{
	uint8_t *mem = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		fail("mmap");
	memset(mem, 1, PAGES * PAGE);
	return mem;
}

static struct ibv_pd *open_pd(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	if (!pd)
		fail("no device");
	ibv_free_device_list(list);
	return pd;
}

static void bare(unsigned rounds)
{
	uint8_t *page = touched() + PAGES / 2 * PAGE;

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t start = now();

		if (madvise(page, PAGE, MADV_DONTFORK) || madvise(page, PAGE, MADV_DOFORK))
			fail("madvise");
		samples[i] = (uint32_t)(now() - start);
	}
	print_median("bare", rounds);
}

static void registrations_with(unsigned rounds, int paired)
{
	uint8_t *page = touched() + PAGES / 2 * PAGE;
	struct ibv_pd *pd = open_pd();

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t start = now();
		struct ibv_mr *mr = ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE);

		if (!mr || (paired && madvise(page, PAGE, MADV_DONTFORK)))
			fail("ibv_reg_mr");
		if (ibv_dereg_mr(mr) || (paired && madvise(page, PAGE, MADV_DOFORK)))
			fail("ibv_dereg_mr");
		samples[i] = (uint32_t)(now() - start);
	}
	print_median("register", rounds);
}

static void registrations(unsigned rounds)
{
	registrations_with(rounds, 0);
}

static void paired(unsigned rounds)
{
	registrations_with(rounds, 1);
}

static void safe(unsigned rounds)
{
	if (ibv_fork_init())
		fail("ibv_fork_init");
	registrations(rounds);
}

static unsigned mappings_of(const uint8_t *mem)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[1024];
	unsigned long from, to;
	unsigned n = 0;

	if (!file)
		fail("/proc/self/maps");
	while (fgets(line, sizeof(line), file))
		n += sscanf(line, "%lx-%lx", &from, &to) == 2 && from < (uintptr_t)mem + PAGES * PAGE && to > (uintptr_t)mem;
	fclose(file);
	return n;
}

static void mappings(unsigned rounds)
{
	struct ibv_mr *live[LIVE] = { NULL };
	uint8_t *mem = touched();
	struct ibv_pd *pd;
	unsigned before;

	if (ibv_fork_init())
		fail("ibv_fork_init");
	pd = open_pd();
	before = mappings_of(mem);
	srand(1);
	for (unsigned i = 0; i < rounds; i++) {
		size_t at = (size_t)rand() % ((PAGES - 8) * PAGE), length = 1 + (size_t)rand() % (8 * PAGE);

		if (live[i % LIVE] && ibv_dereg_mr(live[i % LIVE]))
			fail("ibv_dereg_mr");
		live[i % LIVE] = ibv_reg_mr(pd, mem + at, length, IBV_ACCESS_LOCAL_WRITE);
		if (!live[i % LIVE])
			fail("ibv_reg_mr");
	}
	for (unsigned i = 0; i < LIVE; i++)
		if (live[i] && ibv_dereg_mr(live[i]))
			fail("ibv_dereg_mr");
	printf("mappings\t%d\tmore\n", (int)mappings_of(mem) - (int)before);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(unsigned rounds);
	} pieces[] = {
		{ "bare", bare },	  { "register", registrations }, { "paired", paired },
		{ "safe", safe },	  { "mappings", mappings },
	};
	unsigned rounds = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

	for (size_t i = 0; rounds && rounds <= ROUNDS_MAX && i < sizeof(pieces) / sizeof(pieces[0]); i++)
		if (strcmp(argv[1], pieces[i].name) == 0) {
			pieces[i].run(rounds);
			return 0;
		}
	fprintf(stderr, "usage: fork bare|register|paired|safe|mappings ROUNDS\n");
	return 2;
}
