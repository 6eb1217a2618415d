/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A gate's process that is begun when the test says so: in the place of daemon/gate.h's gate_spawn.
 */
#ifndef TESTS_UNIT_HELD_SPAWN_H
#define TESTS_UNIT_HELD_SPAWN_H

#include <sys/types.h>

/* From now on whoever begins one waits. */
void held_spawn_use(void);
/* Nobody waits any more. */
void held_spawn_go(void);
/* Until @n wait. */
void held_spawn_wait(unsigned n);
/* How many were begun. */
unsigned held_spawn_made(void);
/* The last one, and the thread that began it. */
pid_t held_spawn_pid(void);
pid_t held_spawn_thread(void);

#endif
