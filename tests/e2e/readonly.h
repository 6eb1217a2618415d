/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For the test of read-only exports: what one prints, and the tricks of who holds a read-only fd.
 */
#ifndef TESTS_E2E_READONLY_H
#define TESTS_E2E_READONLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One finding: "ok<TAB>name" or "not<TAB>name<TAB>detail" on stdout. */
__attribute__((format(printf, 3, 4))) void finding(bool ok, const char *name, const char *format, ...);

/* What shall not be written. */
struct prey {
	const char *name;
	int fd; /* read-only */
	size_t size;
	const uint8_t *truth; /* another mapping of it; NULL: what @fd reads at the start has to stay */
};

/* Everything that can be tried with the fd and a mapping of it; each has to be refused, and to change nothing. */
void tricks_run(const struct prey *prey);
/* The same where an fd for writing can be had, as the superuser can, and a seal has to hold. */
void tricks_run_sealed(const struct prey *prey);

/* What the daemon itself has open. */
void tricks_with_daemon(pid_t pid);

/* readonly_verbs.c: the tricks of a program that imports @name by the library. */
void verbs_tricks(const char *name, int capability);

#endif
