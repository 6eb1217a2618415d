/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listening sockets, and who may come in.
 */
#ifndef DAEMON_ACCEPT_H
#define DAEMON_ACCEPT_H

#include <stdbool.h>

struct listener;
struct server;
struct session;

int accept_init(struct server *server);
/* Listens on @fd, which is taken over. */
int server_listen(struct server *server, int fd, bool admin);
/* Makes a socket file there, which goes with the listener. A failure is logged. */
int server_listen_at(struct server *server, const char *path, unsigned mode, bool admin);
/* Stops accepting and closes the listening sockets; sessions go on. */
void server_unlisten(struct server *server);
/*
 * Makes a session of a connected socket, which is taken over, as if it had come to @listener. A negative errno when
 * the client is refused. Also for tests.
 */
int server_adopt(
	struct server *server, struct listener *listener, int fd, struct session **session);

#endif
