/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Users and groups of the configuration, by name or number.
 */
#ifndef DAEMON_NAMES_H
#define DAEMON_NAMES_H

#include <stdint.h>

/* 0, or -ENOENT. */
int name_to_uid(const char *name, uint32_t *uid);
int name_to_gid(const char *name, uint32_t *gid);

#endif
