/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only user of sendmsg() and recvmsg(). A record is sent whole or not at all.
 */
#ifndef PROTO_SOCK_H
#define PROTO_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/fdlist.h"

/*
 * Sends one record with the fds of @fds (may be NULL; not consumed). MSG_NOSIGNAL; non-blocking when @wait is false.
 * 0, or a negative errno (-EAGAIN, -EPIPE, -ETOOMANYREFS ...).
 */
int sock_send(int fd, const void *buf, size_t length, const struct fdlist *fds, bool wait);

/*
 * Receives one record. With @fds NULL there is no control buffer: fds that a peer sent are never received, and
 * MSG_CTRUNC is reported as -EPROTO (the daemon's side). Otherwise at most VSD_FDS_MAX close-on-exec fds are stored,
 * and MSG_CTRUNC is -EMFILE: the record is there, *@length is written, its fds are lost (the client's side).
 * A truncated record is -EMSGSIZE. End of stream: 0 with *@length 0.
 */
int sock_recv(int fd, void *buf, size_t size, bool wait, struct fdlist *fds, size_t *length);

/* Whether the next record has fds; it stays where it is. */
bool sock_has_fds(int fd);

/* Connects to a SOCK_SEQPACKET socket at @path, close-on-exec. The fd, or a negative errno. */
int sock_connect(const char *path);
/* Listens at @path (an old socket file that nobody listens on is replaced), mode @mode. The fd, or a negative errno. */
int sock_listen(const char *path, unsigned mode, int backlog);

#endif
