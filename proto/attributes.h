/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the folder of a device would say in /sys/class/infiniband, if the kernel had it: the library answers reads from
 * it, and verbsctl makes such a folder for programs that look themselves.
 */
#ifndef PROTO_ATTRIBUTES_H
#define PROTO_ATTRIBUTES_H

#include <stdint.h>

#include "proto/verbsd.pb-c.h"

/* Entries of a port's GID table: it has empty ones too, as on a fabric. */
uint32_t port_gids(const Vsd__Port *port);

/*
 * Calls @use with each file (such as "ports/1/gids/0") and its text, without a newline, until it returns other than 0.
 * Returns that, or 0.
 */
int device_attributes(const Vsd__Device *device, int (*use)(const char *file, const char *text, void *arg), void *arg);

#endif
