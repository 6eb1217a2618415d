/* SPDX-License-Identifier: BSD-2-Clause */
/* Where our files are. */
#ifndef CLIENT_CTL_INSTALLED_H
#define CLIENT_CTL_INSTALLED_H

/*
 * The path of an installed file: @env (or NULL) names it, or it is found from where this program is, as @dir (configured,
 * as is the folder of programs) lies from there, or in @dir itself. To be freed; NULL when it is nowhere.
 */
char *installed_find(const char *env, const char *dir, const char *name);

#endif
