/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel behind the daemon's calls to a real device: it knows one PD, and counts what is registered on it. Its calls
 * may come from threads.
 */
#ifndef TESTS_UNIT_FAKE_KERNEL_H
#define TESTS_UNIT_FAKE_KERNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define KERNEL_PD 7u

struct fake_kernel {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned registered; /* now */
	uint32_t next;
	bool there[256];
	int fail, fail_dereg;
	bool old; /* it pins memory through mappings alone that can be written */
	unsigned lists; /* how often it was asked for all objects of a kind; it has none to tell */
	bool hold, held; /* one registration waits while the first is set, and the second says that it does */
	uint32_t driver, access;
	uint64_t iova, length;
	uint8_t first; /* byte of the memory */
};

extern struct fake_kernel kernel;

/* From now on it is the kernel, with nothing registered. */
void kernel_use(void);
/* How many are registered now, and were made so far. */
unsigned kernel_registered(void);
uint32_t kernel_made(void);
/* Waits until a registration waits; whether one does. */
void kernel_wait_held(void);
bool kernel_is_held(void);
/* Lets go what waits. */
void kernel_go_on(void);

#endif
