/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults at every step of every call that makes something: what the parts of the program share.
 */
#ifndef TESTS_E2E_STEPS_H
#define TESTS_E2E_STEPS_H

#include <stdbool.h>

#include "kit.h"
#include "tests/lib/fault.h"

/* What calls stand on: made once, without faults. */
struct ground {
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer;
	struct ibv_mr *mr;
	struct ibv_mr *region, *unnamed; /* shared regions, of which one has a name */
	int capability;			 /* of that one */
	int file;			 /* a memfd */
	struct ibv_dm *dm;
	struct ibv_context *imported; /* from another process, and: */
	struct ibv_pd *same;
	uint8_t *memory;
	unsigned allocations; /* of the parent domain's allocator that are live */
	uint32_t step;	      /* of what a path counts for itself */
};

/*
 * A call that makes something: NULL, with errno, when it failed. What cannot be undone by itself is made anew each time.
 */
struct path {
	const char *name;
	void *(*make)(struct ground *ground);
	void (*use)(struct ground *ground, void *made); /* NULL: making it is use enough */
	int (*unmake)(struct ground *ground, void *made);
	bool alone;	/* not on the ground, but what the ground stands on */
	unsigned calls; /* to the daemon, at least; a test that injects nothing shows nothing */
	bool light;	/* allocates nothing, as changes need not */
};

/* Of a change, that leaves nothing to undo; it may allocate nothing. */
int nothing_to_undo(struct ground *ground, void *made);

extern const struct path paths_objects[], paths_changes[], paths_regions[], paths_imports[], paths_reregs[];

#define STEPS_MAX 300

/* Another process, that has one of everything that can be imported; before this one opens a device. */
void giver_start(void);
void giver_end(void);
/* The ground for what has to do with it. */
void ground_regions_make(struct ground *ground);
void ground_regions_end(struct ground *ground);
/* Releases what persists. */
void regions_clean(void);

#endif
