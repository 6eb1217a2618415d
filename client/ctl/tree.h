/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs would find in /dev/infiniband and /sys/class/infiniband if the soft devices were the kernel's, as files.
 * Functions return 0 or a negative errno. Folders are given as fds.
 */
#ifndef CLIENT_CTL_TREE_H
#define CLIENT_CTL_TREE_H

#include <stddef.h>

#include "proto/verbsd.pb-c.h"

#define TREE_DEV "/dev/infiniband"
#define TREE_SYS "/sys/class/infiniband"

/* Whether there is anything to show. */
int tree_devices(const Vsd__DeviceListReply *devices);

/* The soft devices' entries of the one and of the other folder, into @folder. What is there already stays. */
int tree_dev(const Vsd__DeviceListReply *devices, int folder);
int tree_sys(const Vsd__DeviceListReply *devices, int folder);

/* Both, below dev/ and sys/ in @folder, and links to what the real ones have. */
int tree_make(const Vsd__DeviceListReply *devices, int folder);

/*
 * The same, in a folder that is kept from one run to the next (in XDG_RUNTIME_DIR, else in TMPDIR or /tmp, of this user's): its
 * path. The same devices have the same folder, others another, so that it never changes under a program.
 */
int tree_cached(const Vsd__DeviceListReply *devices, char *path, size_t size);

/* Removes a folder with all that is in it. */
void tree_remove(const char *path);

#endif
