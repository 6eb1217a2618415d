/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets that strangers write to. The last close of an fd that one of them sends (a socket that lingers, a file of a
 * FUSE server that is silent) may take as long as he likes, so none may be let go in the loop's thread.
 */
#ifndef DAEMON_INLET_H
#define DAEMON_INLET_H

#include <stdbool.h>
#include <stddef.h>

struct worker;

/* From now on no fd gets into this socket, nor into those that are accepted from it, where the kernel can (6.16). */
void inlet_protect(int fd);
/* For tests: as on a kernel that cannot. */
void inlet_careful(bool careful);
/* sock_recv() of the daemon's side; a record with fds stays in the socket: -EPROTO. */
int inlet_recv(int fd, void *buf, size_t size, size_t *length);
/* Closes @fd (may be -1); elsewhere, if there may be fds in it. */
void inlet_close(struct worker *worker, int fd);

#endif
