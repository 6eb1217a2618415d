/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon is a child of verbsctl and must outlive the program's children, so these get a parent of their own: a
 * subreaper that has no other children, and is done when it has none left.
 */
#include "client/ctl/reaper.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/program.h"

void reaper_signals(sigset_t *set)
{
	static const int signals[] = { SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
		SIGWINCH, SIGCONT };

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(set, signals[i]);
}

int reaper_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int reaper_signal(const sigset_t *set, pid_t pid)
{
	siginfo_t info;
	int signal;

	do
		signal = sigwaitinfo(set, &info);
	while (signal < 0 && errno == EINTR);
	/* The terminal's signals go to the whole group, the program included. */
	if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL && pid > 0)
		kill(pid, signal);
	return signal;
}

/* Once the program is gone: its children that are left. */
static void orphans_signal(int signal)
{
	FILE *file = fopen("/proc/thread-self/children", "re");
	long pid;

	if (!file)
		return;
	while (fscanf(file, "%ld", &pid) == 1)
		kill((pid_t)pid, signal);
	fclose(file);
}

/* Reaps who is gone. False when nobody is left. *@program is 0 once it is gone, and *@code is its. */
static bool reaper_reap(pid_t *program, int *code)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == *program) {
			*code = reaper_code(status);
			*program = 0;
		}
	return pid == 0;
}

static void reaper_main(char **argv, const sigset_t *old)
{
	int code = EXIT_FAILURE;
	sigset_t set;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	reaper_signals(&set);

	pid_t program = fork();

	if (program == 0) {
		sigprocmask(SIG_SETMASK, old, NULL);
		_exit(program_exec(argv));
	}
	if (program < 0)
		perror("verbsctl: run");
	while (reaper_reap(&program, &code)) {
		int signal = reaper_signal(&set, program);

		if (program == 0 && signal > 0 && signal != SIGCHLD)
			orphans_signal(signal);
	}
	_exit(code);
}

pid_t reaper_start(char **argv, const sigset_t *old)
{
	pid_t pid = fork();

	if (pid == 0)
		reaper_main(argv, old);
	return pid < 0 ? -errno : pid;
}
