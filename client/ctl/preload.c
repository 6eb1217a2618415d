/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The dynamic linker only grumbles about a preload that it cannot use, or the program ends before its main. So the
 * preload is tried on a program that does nothing, and what went wrong is said in one line.
 */
#include "client/ctl/preload.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/escape.h"

#define LIBRARY_ENV "VERBSD_LIBRARY"
#define PROBE       "/bin/true"

/* Where @dir is, seen from the folder that this program is in. */
static char *installed_beside(const char *dir, const char *name)
{
	char exe[PATH_MAX], *path;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	size_t common = 0;

	if (n <= 0)
		return NULL;
	exe[n] = 0;

	char *slash = strrchr(exe, '/');

	if (!slash)
		return NULL;
	*slash = 0;
	/* /usr/bin and /usr/lib/x have /usr in common, and one step up leads there. */
	for (size_t i = 0; VERBSD_BINDIR[i] && VERBSD_BINDIR[i] == dir[i]; i++)
		if (dir[i] == '/')
			common = i;
	for (const char *step = &VERBSD_BINDIR[common]; (step = strchr(step, '/')); step++) {
		slash = strrchr(exe, '/');
		if (!slash)
			return NULL;
		*slash = 0;
	}
	if (asprintf(&path, "%s%s/%s", exe, &dir[common], name) < 0)
		return NULL;
	return path;
}

char *installed_find(const char *env, const char *dir, const char *name)
{
	const char *named = getenv(env);
	char *path;

	if (named && *named)
		return access(named, R_OK) == 0 ? realpath(named, NULL) : NULL;
	path = installed_beside(dir, name);
	if (path && access(path, R_OK) == 0)
		return path;
	free(path);
	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return NULL;
	if (access(path, R_OK) == 0)
		return path;
	free(path);
	return NULL;
}

static void probe_child(const int out[2])
{
	dup2(out[1], STDERR_FILENO);
	dup2(out[1], STDOUT_FILENO);
	close(out[0]);
	close(out[1]);
	execl(PROBE, PROBE, (char *)NULL);
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

/* Runs the probe with the environment as it is; what it printed is in @text. Its wait status, or a negative errno. */
static int probe_run(char *text, size_t size)
{
	int out[2], status;
	size_t at = 0;
	ssize_t n;

	if (pipe(out) < 0)
		return -errno;

	pid_t pid = fork();

	if (pid == 0)
		probe_child(out);
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

static int preload_try(const char *library)
{
	char text[4096] = "", reason[sizeof(text)];
	int status = probe_run(text, sizeof(text));

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

/* Whether a list of LD_PRELOAD has @library already. */
static bool list_has(const char *list, const char *library)
{
	size_t length = strlen(library);

	for (const char *at = list; (at = strstr(at, library)); at += length)
		if ((at == list || strchr(": ", at[-1])) &&
			(!at[length] || strchr(": ", at[length])))
			return true;
	return false;
}

int preload_set(void)
{
	char *library = installed_find(LIBRARY_ENV, VERBSD_LIBDIR, "libverbsd.so.1");
	const char *old = getenv("LD_PRELOAD");
	char *list = NULL;
	int r = CTL_CANNOT_RUN;

	if (!library) {
		ctl_say("run: the library was not found (%s names another)", LIBRARY_ENV);
		return r;
	}
	if (strpbrk(library, ": \t\n")) {
		ctl_say("run: %s: the dynamic linker takes no path with a blank or a colon",
			library);
	} else if (asprintf(&list, "%s%s%s", old && *old ? old : "", old && *old ? ":" : "",
			   library) < 0) {
		list = NULL;
		ctl_say("run: %s", strerror(ENOMEM));
	} else {
		/* What was there stays first: a sanitizer insists on it. */
		if (!old || !list_has(old, library))
			setenv("LD_PRELOAD", list, 1);
		r = preload_try(library);
	}
	free(list);
	free(library);
	return r;
}
