/* SPDX-License-Identifier: BSD-2-Clause */
/* A tree of installed files may be moved as a whole, so they are looked for beside this program first. */
#include "client/ctl/installed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	const char *named = env ? getenv(env) : NULL;
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
