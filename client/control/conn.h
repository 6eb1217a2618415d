/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of control/ share: the session's state and how its fds are kept. */
#ifndef CLIENT_CONTROL_CONN_H
#define CLIENT_CONTROL_CONN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/control/control.h"
#include "client/control/process.h"

/* An fd of ours and the file that it was: programs close and reuse fd numbers that are not theirs. */
struct conn_fd {
	int fd;
	dev_t dev;
	ino_t ino;
};

#define CONN_FD_NULL { .fd = -1 }

/* Notes which file @file->fd is. 0 or a negative errno. */
int conn_fd_note(struct conn_fd *file, int fd);
/* True while the number still is that file. */
bool conn_fd_ours(const struct conn_fd *file);
/* Closes it, if it is still ours. */
void conn_fd_close(struct conn_fd *file);

struct conn {
	pthread_mutex_t lock; /* over everything here; held for the whole of a call */
	struct conn_fd socket;
	uint32_t serial;
	bool joined; /* JOIN succeeded: a session that is lost after that is not made again */
	_Atomic bool lost;
	_Atomic uint64_t features; /* that the daemon granted */
};

extern struct conn conn;

/* Takes conn.lock; fails, without the lock, where this process may have no session. */
int conn_enter(void);
/* With conn.lock held: connected and said hello, or why not. */
int conn_need(void);
/* With conn.lock held: the session is over. */
void conn_drop(const char *why);

/* The event socket, as control_join() got it; -1: none. */
void events_note(int fd);
/* In a child: the fd is the runtime's to close. */
void events_forget(void);

#endif
