/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether an engine that is forced ran anything at all: what each worker's library counts, on the page that it publishes. This is
 * the only thing here that knows more than verbs.
 */
#include "tests/random/by_itself.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/ring_abi.h"

/* --- a worker's --------------------------------------------------------------------------------------------------------- */

static const struct vsd_page *page_find(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	const struct vsd_page *page = NULL;
	char line[512];
	void *start;

	while (file && !page && fgets(line, sizeof(line), file)) {
		if (strstr(line, "memfd:verbsd-process") && strstr(line, " rw-s ") && sscanf(line, "%p-", &start) == 1)
			page = start;
	}
	if (file)
		fclose(file);
	return page;
}

void by_itself_look(struct by_itself *now)
{
	static const struct vsd_page *page;

	if (!page)
		page = page_find();
	if (page)
		*now = (struct by_itself){ vsd_page_counter(page, VSD_COUNT_INITIATOR_RUN), vsd_page_counter(page, VSD_COUNT_PULLED) };
}

/* --- the coordinator's ---------------------------------------------------------------------------------------------------- */

static struct engine {
	const char *name;
	unsigned programs;
	struct by_itself sum;
} engines[] = { { .name = "auto" }, { .name = "stage" }, { .name = "cma" }, { .name = "direct" }, { .name = "map" } };

#define N_ENGINES (sizeof(engines) / sizeof(engines[0]))

void by_itself_count(const char *engine, const struct model *m)
{
	for (struct engine *e = engines; e < engines + N_ENGINES; e++) {
		if (strcmp(e->name, engine) != 0)
			continue;
		e->programs++;
		for (unsigned i = 0; i < m->workers; i++) {
			e->sum.run += m->worker[i].reply.by_itself.run;
			e->sum.pulled += m->worker[i].reply.by_itself.pulled;
		}
	}
}

/* A child with its parent is as two workers are: neither is the other's ancestor, as a ptrace scope asks for. */
static bool workers_may_copy(void)
{
	static uint64_t word;
	struct iovec here = { &(uint64_t){ 0 }, sizeof(word) }, there = { &word, sizeof(word) };
	int status = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(process_vm_readv(getppid(), &here, 1, &there, 1, 0) != (ssize_t)sizeof(word) ||
		      process_vm_writev(getppid(), &here, 1, &there, 1, 0) != (ssize_t)sizeof(word));
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* What has more than the base is short, and a program seldom posts what an engine finds nothing before. */
static bool is_as_it_should(const struct engine *e, bool base)
{
	if (strcmp(e->name, "stage") == 0)
		return !e->sum.run && !e->sum.pulled;
	if (strcmp(e->name, "cma") == 0)
		return !base || (e->sum.run && e->sum.pulled) || !workers_may_copy();
	return true; /* workers have no shared regions, so map leaves all to the lane */
}

bool by_itself_print(bool base)
{
	bool good = true;

	printf("run by initiators and fetched:");
	for (const struct engine *e = engines; e < engines + N_ENGINES; e++) {
		if (!e->programs)
			continue;
		printf(" %s %llu %llu", e->name, (unsigned long long)e->sum.run, (unsigned long long)e->sum.pulled);
		if (!is_as_it_should(e, base)) {
			printf(" (wrong)");
			good = false;
		}
	}
	putchar('\n');
	return good;
}
