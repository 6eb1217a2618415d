/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs to have memory that is there already: importing a shared region by its name, against registering touched
 * memory of that size and against making such memory. Runs under the preload. Prints "name<tab>value<tab>unit", medians.
 *
 *	regions import KIB ROUNDS     verbsd_import_mr() in a second process, without its first touches
 *	regions register KIB ROUNDS   ibv_reg_mr() of touched memory
 *	regions make KIB              memfd_create(), ftruncate(), mmap(), populate
 *	regions call ROUNDS           one control call, ibv_alloc_pd()
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/verbsd.h"
#include "tests/bench/bench.h"

#define ROUNDS_MAX 10000u

static uint64_t samples[ROUNDS_MAX];

static int order(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void print_median(const char *name, unsigned n)
{
	qsort(samples, n, sizeof(samples[0]), order);
	printf("%s\t%.2f\tus\n", name, (double)samples[n / 2] / 1000);
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

/* The preload has it; the program is linked without. */
static void *symbol(const char *name)
{
	void *at = dlsym(RTLD_DEFAULT, name);

	if (!at) {
		errno = ENOENT;
		fail(name);
	}
	return at;
}

static void import_here(const char *name, unsigned rounds)
{
	struct ibv_mr *(*import)(struct ibv_pd *, const char *, unsigned);
	struct ibv_pd *pd = open_pd();

	*(void **)&import = symbol("verbsd_import_mr");
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t start = now();
		struct ibv_mr *mr = import(pd, name, IBV_ACCESS_LOCAL_WRITE);

		samples[i] = now() - start;
		if (!mr || ibv_dereg_mr(mr))
			fail("verbsd_import_mr");
	}
	print_median("region_import", rounds);
}

static int import_rounds(size_t size, unsigned rounds)
{
	struct verbsd_mr_attr attr = { .size = size, .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE };
	struct ibv_mr *(*attach)(struct ibv_pd *, const char *, const struct verbsd_mr_attr *, unsigned, bool *);
	char name[32], byte;
	int ready[2], status;

	snprintf(name, sizeof(name), "bench.%d", (int)getpid());
	if (pipe(ready))
		fail("pipe");

	pid_t child = fork(); /* before anything is opened */

	if (child == 0) {
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			_exit(1);
		import_here(name, rounds);
		exit(0);
	}
	*(void **)&attach = symbol("verbsd_attach_mr");
	if (!attach(open_pd(), name, &attr, 0, NULL))
		fail("verbsd_attach_mr");
	if (write(ready[1], "", 1) != 1 || waitpid(child, &status, 0) != child)
		fail("child");
	return status ? 1 : 0;
}

static int register_rounds(size_t size, unsigned rounds)
{
	struct ibv_pd *pd = open_pd();
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	memset(at, 1, size);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t start = now();
		struct ibv_mr *mr = ibv_reg_mr(pd, at, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

		samples[i] = now() - start;
		if (!mr || ibv_dereg_mr(mr))
			fail("ibv_reg_mr");
	}
	print_median("memory_register", rounds);
	return 0;
}

static int make_memory(size_t size)
{
	uint64_t start = now();
	int fd = memfd_create("bench", MFD_CLOEXEC);
	void *at = fd < 0 || ftruncate(fd, (off_t)size) ? MAP_FAILED
							: mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED || madvise(at, size, MADV_POPULATE_WRITE))
		fail("populate");
	samples[0] = now() - start;
	print_median("memory_make", 1);
	return 0;
}

static int call_rounds(unsigned rounds)
{
	struct ibv_pd *pd = open_pd();

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t start = now();
		struct ibv_pd *one = ibv_alloc_pd(pd->context);

		samples[i] = now() - start;
		if (!one || ibv_dealloc_pd(one))
			fail("ibv_alloc_pd");
	}
	print_median("control_call", rounds);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	size_t size = argc > 2 ? strtoull(argv[2], NULL, 0) << 10 : 0;
	unsigned rounds = (unsigned)strtoul(argv[argc - 1], NULL, 0);

	if (rounds == 0 || (rounds > ROUNDS_MAX && strcmp(what, "make") != 0))
		return 2;
	if (strcmp(what, "import") == 0 && argc == 4)
		return import_rounds(size, rounds);
	if (strcmp(what, "register") == 0 && argc == 4)
		return register_rounds(size, rounds);
	if (strcmp(what, "make") == 0 && argc == 3)
		return make_memory(size);
	if (strcmp(what, "call") == 0 && argc == 3)
		return call_rounds(rounds);
	fprintf(stderr, "usage: regions import|register KIB ROUNDS | make KIB | call ROUNDS\n");
	return 2;
}
