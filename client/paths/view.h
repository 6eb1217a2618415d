/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The view: a folder, named by VERBSD_PATHS, that has dev/infiniband and sys/class/infiniband with what those would
 * have in them if the soft devices were the kernel's. Nothing here takes a lock or allocates, or changes errno.
 */
#ifndef CLIENT_PATHS_VIEW_H
#define CLIENT_PATHS_VIEW_H

#include <stdbool.h>

#define VIEW_MAX 512 /* longer paths are left alone */

/* Whether @path is one of the two folders: there the view comes first, since it has what the real one has as well. */
bool view_folder(const char *path, char view[VIEW_MAX]);
/* Whether @path is below one of them: there the view has what the real one has not. */
bool view_below(const char *path, char view[VIEW_MAX]);
/* Whether @path is one of either kind. */
bool view_covers(const char *path);

#endif
