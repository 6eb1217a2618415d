/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsd-gate: a process without rights that takes an fd from a client in the daemon's place. An fd can be made such that
 * looking at it, or letting it go, hangs for ever; then only this process does. One serves one fd.
 */
#ifndef DAEMON_GATE_H
#define DAEMON_GATE_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/loop.h"

struct worker;

/* The file that the fd must be of. */
struct gate_want {
	dev_t dev, rdev;
	ino_t ino;
};

struct gate {
	struct loop *loop;
	struct watch watch;
	int fd; /* our end; -1: it has answered, or was ended */
	pid_t pid;
	uid_t uid; /* the client's */
	struct gate_want want;
	/* @fd is the client's file, checked, and the callee's; or a negative errno. The gate is over then. */
	void (*done)(void *data, int fd);
	void *data;
};

/* A user's: so many may hang; so many may be on their way out; so many may be started at once, and then a second. */
#define GATE_HUNG_USER 8
#define GATE_ENDING    64
#define GATE_BURST     64
#define GATE_RATE      32

#define GATE_NULL { .fd = -1, .watch = WATCH_NULL }

/* The program that has gate_main(); by default this one. */
extern const char *gate_program;

/*
 * Starts one for a client of @uid's; *@client is its socket. 0 or a negative errno: -EAGAIN, that user has had many in a short
 * time; -EBUSY, many of his hang.
 */
int gate_start(struct gate *gate, struct loop *loop, uid_t uid, const struct gate_want *want,
	void (*done)(void *data, int fd), void *data, int *client);
/* Ends it, whatever it is at. */
void gate_end(struct gate *gate);
/* Gates that were told to end and have not: they hang. */
unsigned gate_hung(void);

/* 0 when @fd is a file open for reading and writing of what @want says; looks only, and does not wait. */
int gate_check(int fd, const struct gate_want *want);
/* Takes one fd from @client and passes it on to @daemon, or says why not. The exit code. */
int gate_serve(int client, int daemon, const struct gate_want *want);
/* What the program does when its first argument is --gate; @argv has what follows. */
int gate_main(int argc, char **argv);

#endif
