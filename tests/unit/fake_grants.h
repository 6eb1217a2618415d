/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's answers to REGION_GRANT, for tests of the map engine: a thread on the daemon's end of the event socket
 * that knows the regions which the test tells it of. Any other key is EACCES.
 */
#ifndef TESTS_UNIT_FAKE_GRANTS_H
#define TESTS_UNIT_FAKE_GRANTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct fake_region {
	uint32_t key, number;
	int fd; /* the test's; -1: the answer has none */
	uint64_t base, size;
	bool writable;
	int status; /* of the answer */
};

#define FAKE_REGIONS 8

struct fake_grants {
	int events;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct fake_region regions[FAKE_REGIONS];
	unsigned n;
	unsigned asked, answered;
	bool hold; /* no answer while it is set */
};

/* A memfd as the daemon makes it. */
int fake_region_file(uint64_t size);

void grants_start(struct fake_grants *grants, int events);
/* After the client's runtime has stopped. */
void grants_stop(struct fake_grants *grants);
/* Adds a region, or changes what is known of its key. */
void grants_set(struct fake_grants *grants, const struct fake_region *region);
void grants_hold(struct fake_grants *grants, bool hold);
/* How often it was asked; waits until @n answers were sent. */
unsigned grants_asked(struct fake_grants *grants);
void grants_wait(struct fake_grants *grants, unsigned n);

#endif
