/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsd-gate: a process without rights that takes an fd from a client in the daemon's place. An fd can be made such that
 * looking at it, or letting it go, hangs for ever; then only this process does. One serves one fd.
 */
#ifndef DAEMON_GATE_H
#define DAEMON_GATE_H

#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/loop.h"

struct jobs;

/* The file that the fd must be of. */
struct gate_want {
	dev_t dev, rdev;
	ino_t ino;
};

struct gate_process;

/* Whose a gate is. */
struct gate_owner {
	struct loop *loop;
	struct jobs *jobs; /* whose threads begin it; NULL (tests): it is begun at once */
	uid_t uid;	   /* the client's */
	/* The process is there (0); or there is none, and the gate is over. Not called when gate_start() itself has begun it. */
	void (*started)(void *data, int r);
	/* @fd is the client's file, checked, and the callee's; or a negative errno. The gate is over then. */
	void (*done)(void *data, int fd);
	void *data;
};

struct gate {
	struct gate_owner owner;
	struct gate_want want;
	struct watch watch;
	int fd; /* our end */
	struct gate_process *process; /* NULL: it has answered, or was ended */
	bool starting; /* there is no process yet */
	bool returned; /* gate_start() has */
	int error;
};

/*
 * A user's: so many may hang; so many may be on their way out, with those that have not begun yet; so many may be started at
 * once, and then a second.
 */
#define GATE_HUNG_USER 8
#define GATE_ENDING    64
#define GATE_BURST     64
#define GATE_RATE      32

#define GATE_NULL { .fd = -1, .watch = WATCH_NULL }

typedef int gate_spawn_fn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
	const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const envp[restrict]);
/* The program that has gate_main(), by default this one; and what begins it, by default posix_spawn(). For tests. */
extern const char *gate_program;
extern gate_spawn_fn *gate_spawn;

/*
 * Starts one; *@client is the client's socket, not to be handed out while it is starting. 0 or a negative errno: -EAGAIN, that
 * user has had many in a short time; -EBUSY, many of his hang.
 */
int gate_start(struct gate *gate, const struct gate_owner *owner, const struct gate_want *want, int *client);
/* Ends it, whatever it is at. */
void gate_end(struct gate *gate);
/* Gates that were told to end and have not: they hang, or are still being started. */
unsigned gate_hung(void);

/* 0 when @fd is a file open for reading and writing of what @want says; looks only, and does not wait. */
int gate_check(int fd, const struct gate_want *want);
/* Takes one fd from @client and passes it on to @daemon, or says why not. The exit code. */
int gate_serve(int client, int daemon, const struct gate_want *want);
/* What the program does when its first argument is --gate; @argv has what follows. */
int gate_main(int argc, char **argv);

#endif
