/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capabilities: small sealed memfds of the daemon's with a nonce in them, which a program may have from anybody.
 */
#ifndef CLIENT_ABI_CAPABILITY_H
#define CLIENT_ABI_CAPABILITY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

/* Reads the nonce. -EBADF: no fd; -EINVAL: no capability. Never blocks, whatever the fd is. */
int capability_read(int fd, uint8_t nonce[VSD_NONCE_SIZE]);
/* Whether two fds are capabilities for one thing. */
bool capability_same(int a, int b);

#endif
