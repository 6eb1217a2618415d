/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what a client has on a real device the kernel knows, and we do not. Guarantees: what is counted by halves is
 * not told.
 */
#include "daemon/census.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[RDMA_NL_RESOURCES] = {
	[RDMA_NL_CONTEXTS] = "contexts",
	[RDMA_NL_PDS] = "pds",
	[RDMA_NL_MRS] = "mrs",
	[RDMA_NL_QPS] = "qps",
	[RDMA_NL_CQS] = "cqs",
	[RDMA_NL_SRQS] = "srqs",
};

const char *census_name(enum rdma_nl_resource kind)
{
	return names[kind];
}

struct taking {
	struct census *census;
	enum rdma_nl_resource kind;
	unsigned last; /* objects of one process come in a row */
};

static struct census_entry *entry_of(struct taking *taking, uint32_t pid)
{
	struct census *census = taking->census;

	if (taking->last < census->n && census->list[taking->last].pid == pid)
		return &census->list[taking->last];
	for (unsigned i = 0; i < census->n; i++) {
		if (census->list[i].pid == pid) {
			taking->last = i;
			return &census->list[i];
		}
	}
	if (census->n == census->room) {
		unsigned room = census->room ? 2 * census->room : 64;
		struct census_entry *list = reallocarray(census->list, room, sizeof(*list));

		if (!list) {
			census->failed = true;
			return NULL;
		}
		census->list = list;
		census->room = room;
	}
	taking->last = census->n;
	census->list[census->n] = (struct census_entry){ .pid = pid };
	return &census->list[census->n++];
}

static void count(void *data, uint32_t pid)
{
	struct taking *taking = data;
	struct census_entry *entry = entry_of(taking, pid);

	if (entry)
		entry->n[taking->kind]++;
}

void census_deinit(struct census *census)
{
	free(census->list);
	*census = (struct census)CENSUS_NULL;
}

void census_take(struct census *census, int netlink, uint32_t index, enum rdma_nl_resource kind)
{
	struct taking taking = { .census = census, .kind = kind };

	(void)rdma_nl_owners(netlink, index, kind, count, &taking);
}

bool census_find(const struct census *census, uint32_t pid, unsigned n[RDMA_NL_RESOURCES])
{
	for (unsigned i = 0; i < census->n && !census->failed; i++) {
		if (census->list[i].pid == pid) {
			memcpy(n, census->list[i].n, sizeof(census->list[i].n));
			return true;
		}
	}
	return false;
}
