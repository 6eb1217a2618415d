/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The dynamic linker only grumbles about a preload that it cannot use, or the program ends before its main. So the
 * library is tried on a program that does nothing, and what went wrong is said in one line.
 */
#include "client/ctl/preload.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/escape.h"

#define PROBE "/bin/true"

/* Whether a list of libraries has @library already. */
static bool list_has(const char *list, const char *library)
{
	size_t length = strlen(library);

	for (const char *at = list; (at = strstr(at, library)); at += length)
		if ((at == list || strchr(": ", at[-1])) &&
			(!at[length] || strchr(": ", at[length])))
			return true;
	return false;
}

/* LD_PRELOAD with @library: what was there stays first, since a sanitizer insists on it. To be freed. */
static char *list_with(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *list;

	if (!old || !*old)
		return strdup(library);
	if (list_has(old, library))
		return strdup(old);
	return asprintf(&list, "%s:%s", old, library) < 0 ? NULL : list;
}

static void probe_child(const char *list, const int out[2])
{
	setenv("LD_PRELOAD", list, 1);
	dup2(out[1], STDERR_FILENO);
	dup2(out[1], STDOUT_FILENO);
	close(out[0]);
	close(out[1]);
	execl(PROBE, PROBE, (char *)NULL);
	/* An image may have next to nothing in it, but it has us. */
	if (errno == ENOENT)
		execl((const char *)getauxval(AT_EXECFN), "verbsctl", "--version", (char *)NULL);
	dprintf(STDERR_FILENO, "%s: %s\n", PROBE, strerror(errno));
	_exit(CTL_NOT_FOUND);
}

/* The first line of @text that is about @library, or just the first, cut off behind itself. */
static char *line_about(char *text, const char *library)
{
	char *line = strstr(text, library);

	if (!line)
		line = text;
	while (line > text && line[-1] != '\n')
		line--;
	line[strcspn(line, "\n")] = 0;
	return line;
}

/* Runs the probe with that LD_PRELOAD; what it printed is in @text. Its wait status, or a negative errno. */
static int probe_run(const char *list, char *text, size_t size)
{
	int out[2], status;
	size_t at = 0;
	ssize_t n;

	if (pipe(out) < 0)
		return -errno;

	pid_t pid = fork();

	if (pid == 0)
		probe_child(list, out);
	close(out[1]);
	if (pid < 0) {
		n = -errno;
		close(out[0]);
		return (int)n;
	}
	while ((n = read(out[0], text + at, size - 1 - at)) > 0 || (n < 0 && errno == EINTR))
		at += n > 0 ? (size_t)n : 0;
	text[at] = 0;
	close(out[0]);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

/* 0, or an exit code. */
static int list_try(const char *list, const char *library)
{
	char text[4096] = "", reason[sizeof(text)];
	int status = probe_run(list, text, sizeof(text));

	if (status < 0) {
		ctl_say("run: %s: %s", PROBE, strerror(-status));
		return CTL_CANNOT_RUN;
	}

	bool grumbled = strstr(text, "preload") && strstr(text, library);

	if (status == 0 && !grumbled)
		return 0;
	if (*text)
		escape(reason, sizeof(reason), line_about(text, library));
	else if (WIFSIGNALED(status))
		snprintf(reason, sizeof(reason), "%s was killed by signal %d", PROBE,
			WTERMSIG(status));
	else
		snprintf(reason, sizeof(reason), "%s ended with status %d", PROBE,
			WEXITSTATUS(status));
	ctl_say("run: %s cannot be preloaded: %s", library, reason);
	return CTL_CANNOT_RUN;
}

static int preload_with(const char *library, bool keep)
{
	char *list;
	int r = CTL_CANNOT_RUN;

	if (strpbrk(library, ":; \t\n")) {
		ctl_say("run: %s: the dynamic linker takes no path with a blank, a colon or a semicolon", library);
		return r;
	}
	list = list_with(library);
	if (!list) {
		ctl_say("run: %s", strerror(ENOMEM));
		return r;
	}
	r = list_try(list, library);
	if (r == 0 && keep)
		setenv("LD_PRELOAD", list, 1);
	free(list);
	return r;
}

int preload_try(const char *library)
{
	return preload_with(library, false);
}

int preload_add(const char *library)
{
	return preload_with(library, true);
}
