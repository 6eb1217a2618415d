/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has how many of the kernel's objects on a real device.
 */
#ifndef DAEMON_CENSUS_H
#define DAEMON_CENSUS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/rdma_nl.h"

struct census_entry {
	uint32_t pid;
	unsigned n[RDMA_NL_RESOURCES];
};

struct census {
	struct census_entry *list;
	unsigned n, room;
	bool failed; /* no memory: it is not whole */
};

#define CENSUS_NULL { .list = NULL }

void census_deinit(struct census *census);
/* Counts one kind, in addition to what was counted. */
void census_take(struct census *census, int netlink, uint32_t index, enum rdma_nl_resource kind);
/* What @pid has; false: nothing, or not known. */
bool census_find(const struct census *census, uint32_t pid, unsigned n[RDMA_NL_RESOURCES]);
/* Name of a kind, as counters of listings have it. */
const char *census_name(enum rdma_nl_resource kind);

#endif
