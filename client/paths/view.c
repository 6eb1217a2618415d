/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which paths have another in the view. Paths are compared as they are written: who goes there by a relative path, or
 * through a link, does not come from a program that looks for RDMA devices.
 */
#include "client/paths/view.h"

#include <stdlib.h>
#include <string.h>

static char root[VIEW_MAX / 2]; /* "": there is no view */
static size_t root_length;

__attribute__((constructor)) static void view_init(void)
{
	const char *path = secure_getenv("VERBSD_PATHS");
	size_t n = path ? strlen(path) : 0;

	if (n == 0 || n >= sizeof(root) || path[0] != '/')
		return;
	memcpy(root, path, n + 1);
	root_length = n;
}

/* What follows the name of one of the two folders, without slashes at its head; NULL for another path. */
__attribute__((noinline)) static const char *rest_of(const char *path)
{
	static const struct {
		const char *name;
		size_t n;
	} folders[] = { { "/dev/infiniband", 15 }, { "/sys/class/infiniband", 21 } };

	if (root_length == 0 || !path || path[0] != '/')
		return NULL;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		const char *rest = path + folders[i].n;

		if (strncmp(path, folders[i].name, folders[i].n) == 0 && (*rest == '/' || !*rest))
			return rest + strspn(rest, "/");
	}
	return NULL;
}

/* A step up might lead out of the folder. */
static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")); at += 2)
		if ((at == path || at[-1] == '/') && (!at[2] || at[2] == '/'))
			return true;
	return false;
}

static bool translate(const char *path, char view[VIEW_MAX])
{
	size_t n = strlen(path);

	if (root_length + n >= VIEW_MAX)
		return false;
	memcpy(view, root, root_length);
	memcpy(view + root_length, path, n + 1);
	return true;
}

bool view_folder(const char *path, char view[VIEW_MAX])
{
	const char *rest = rest_of(path);

	return rest && !*rest && translate(path, view);
}

bool view_below(const char *path, char view[VIEW_MAX])
{
	const char *rest = rest_of(path);

	return rest && *rest && !goes_up(rest) && translate(path, view);
}

bool view_covers(const char *path)
{
	return rest_of(path) != NULL;
}
