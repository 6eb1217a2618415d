/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be seen of a client from outside: its command and cgroup in /proc, its counters in its page.
 */
#ifndef DAEMON_STATS_H
#define DAEMON_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ring_abi.h"

struct process;
struct server;
struct session;

struct stats_who {
	char command[64]; /* escaped; "" when it cannot be seen */
	char cgroup[256];
	char container[16]; /* "" when it is in none that we know how to tell */
};

struct stats_total {
	unsigned segments;
	uint64_t shared_bytes;
	unsigned regions;
	uint64_t region_bytes;
	unsigned fds;
};

void stats_who(const struct session *session, struct stats_who *who);
/* Name of a counter; NULL for those without a meaning. */
const char *stats_counter_name(unsigned counter);
/* False when there are none. They are the client's word, and may be nonsense. */
bool stats_counters(const struct process *process, uint64_t counters[VSD_COUNT_N]);
void stats_total(struct server *server, struct stats_total *total);
/* The first 12 digits of a container's id in a cgroup's path, or "". */
void stats_container(const char *cgroup, char *container, unsigned size);

#endif
