/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts full memory barriers: runs a program and steps through what it marks with two breakpoints, one instruction at a
 * time, looking at each for a lock prefix, an exchange with memory or a fence. Stepping is slow enough for other threads
 * to interfere, so it is the median that counts. Prints "sections N	instructions MEDIAN	barriers MEDIAN	least MINIMUM".
 *
 *	barriers PROGRAM [ARGUMENT...]
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECTIONS 1000u

static void fail(const char *what)
{
	fprintf(stderr, "barriers: %s: %s\n", what, strerror(errno));
	exit(1);
}

#ifdef __x86_64__
/* The bytes at the next instruction, or @back bytes before it. */
static uint64_t code(pid_t pid, unsigned back)
{
	errno = 0;

	long at = ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, rip), NULL);
	long bytes = errno ? 0 : ptrace(PTRACE_PEEKTEXT, pid, at - (long)back, NULL);

	if (errno)
		fail("ptrace");
	return (uint64_t)bytes;
}

/* Legacy and REX prefixes before the opcode; lock is one of them. */
static bool is_barrier(uint64_t bytes)
{
	const uint8_t *p = (const uint8_t *)&bytes, *end = p + sizeof(bytes);

	for (; p < end; p++) {
		if (*p == 0xf0)
			return true;
		if (*p != 0x66 && *p != 0xf2 && *p != 0xf3 && *p != 0x64 && *p != 0x65 && (*p & 0xf0) != 0x40)
			break;
	}
	if (end - p < 3)
		return false;
	if (p[0] == 0x86 || p[0] == 0x87) /* xchg: with memory it locks */
		return p[1] < 0xc0;
	return p[0] == 0x0f && p[1] == 0xae && p[2] == 0xf0; /* mfence */
}

static bool is_breakpoint(uint64_t bytes)
{
	return (bytes & 0xff) == 0xcc;
}
#endif

static int order(const void *a, const void *b)
{
	const unsigned *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Until the next stop; false: the program has ended, with *@status. */
static bool go_on(pid_t pid, enum __ptrace_request how, int signal, int *status)
{
	if (ptrace(how, pid, NULL, (void *)(intptr_t)signal) || waitpid(pid, status, 0) != pid)
		fail("ptrace");
	return WIFSTOPPED(*status);
}

#ifdef __x86_64__
static void step_through(pid_t pid, unsigned *instructions, unsigned *barriers)
{
	int status, signal = 0;

	for (;;) {
		uint64_t bytes = code(pid, 0);

		if (!signal && is_breakpoint(bytes))
			return;
		*instructions += 1;
		*barriers += is_barrier(bytes);
		if (!go_on(pid, PTRACE_SINGLESTEP, signal, &status)) {
			fprintf(stderr, "barriers: the program ended within a section, status 0x%x\n", status);
			exit(1);
		}
		/* Such as the end of its child. */
		signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
	}
}
#endif

int main(int argc, char **argv)
{
#ifdef __x86_64__
	static unsigned instructions[SECTIONS], barriers[SECTIONS];
	unsigned n = 0;
	int status, signal = 0;
	pid_t pid = argc > 1 ? fork() : -1;

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execv(argv[1], argv + 1);
		fail(argv[1]);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 2;
	while (go_on(pid, PTRACE_CONT, signal, &status)) {
		signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		/* An exec is a trap too. */
		if (signal || n == SECTIONS || !is_breakpoint(code(pid, 1)))
			continue;
		step_through(pid, &instructions[n], &barriers[n]);
		n++;
		/* Over the breakpoint that ends it. */
		if (!go_on(pid, PTRACE_CONT, 0, &status))
			break;
	}
	if (n == 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "barriers: %u sections, the program ended with status 0x%x\n", n, status);
		return 1;
	}
	qsort(instructions, n, sizeof(instructions[0]), order);
	qsort(barriers, n, sizeof(barriers[0]), order);
	printf("sections %u\tinstructions %u\tbarriers %u\tleast %u\n", n, instructions[n / 2], barriers[n / 2], barriers[0]);
	return 0;
#else
	(void)argc;
	(void)argv;
	(void)order;
	(void)go_on;
	return 77;
#endif
}
