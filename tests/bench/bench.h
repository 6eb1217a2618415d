/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of the benchmark share: the clock, the processor that a side stays on, and the end of a program that cannot
 * measure. */
#ifndef VERBSD_BENCH_H
#define VERBSD_BENCH_H
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with status 1 and a line that names it, what failed, and errno. */
_Noreturn static inline void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

/* The monotonic clock, in ns. */
static inline uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Keeps the caller on that processor, where there is more than one. */
static inline void pin(int cpu)
{
	cpu_set_t set;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

#endif
