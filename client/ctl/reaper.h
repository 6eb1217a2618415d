/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that waits for a program and all its descendants, and passes signals on.
 */
#ifndef CLIENT_CTL_REAPER_H
#define CLIENT_CTL_REAPER_H

#include <signal.h>
#include <sys/types.h>

/* The signals that are passed on, and SIGCHLD. */
void reaper_signals(sigset_t *set);

/*
 * With those signals blocked: starts a process that runs @argv with the signal mask @old, adopts what it leaves
 * behind, and ends when all are gone, with the program's exit code. Its pid, or a negative errno.
 */
pid_t reaper_start(char **argv, const sigset_t *old);

/* Waits for one of the signals and passes it on to @pid unless the terminal sent it to everybody. The signal. */
int reaper_signal(const sigset_t *set, pid_t pid);

/* 128 + N for a program that signal N ended. */
int reaper_code(int status);

#endif
