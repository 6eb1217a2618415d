/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program that is to be run.
 */
#ifndef CLIENT_CTL_PROGRAM_H
#define CLIENT_CTL_PROGRAM_H

/* Says so when the dynamic linker will pay no attention to LD_PRELOAD: a static program, or one with privileges. */
void program_check(const char *name);

/* Replaces this process by the program. Returns only when that fails, the exit code for it. */
int program_exec(char **argv);

#endif
