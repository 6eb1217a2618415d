/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where our files are, and how a program gets the library. Functions that fail have said why.
 */
#ifndef CLIENT_CTL_PRELOAD_H
#define CLIENT_CTL_PRELOAD_H

/*
 * The path of an installed file: @env names it, or it is found from where this program is, as @dir (configured, as is
 * the folder of programs) lies from there, or in @dir itself. To be freed; NULL when it is nowhere.
 */
char *installed_find(const char *env, const char *dir, const char *name);

/*
 * Sets LD_PRELOAD to the library, after what is there, once a program was seen to start with it. 0, or an exit code.
 */
int preload_set(void);

#endif
