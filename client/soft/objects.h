/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts, PDs and AHs of the soft device as the data path and the ABI face both see them. The program's ibv_* struct
 * is embedded in each, so that one container_of() leads from its pointer to ours.
 */
#ifndef SOFT_OBJECTS_H
#define SOFT_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/control/control.h"
#include "client/soft/async.h"

#define soft_container(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct soft_context {
	uint64_t epoch;		/* of the process that opened it */
	uint32_t id;		/* the daemon's number for it in this session */
	struct lease *qpns, *keys;
	struct mr_places *places;
	Vsd__Device *info;	/* the device as the daemon described it */
	int capability;		/* the memfd that is ctx->cmd_fd */
	struct soft_async async;
	struct verbs_context v; /* v.context is the program's */
};

static inline struct soft_context *soft_context_of(struct ibv_context *ctx)
{
	return soft_container(ctx, struct soft_context, v.context);
}

struct soft_td; /* td.h */

/* A PD, or a parent domain, whose `base` is the PD it extends (of a PD: itself). */
struct soft_pd {
	struct ibv_pd pd; /* pd.handle is the daemon's handle */
	uint32_t number;  /* the PD's, the same in every process that has it; of a parent domain: 0, its base has it */
	struct soft_pd *base;
	struct soft_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
	_Atomic unsigned users; /* objects on it */
};

/* Two PDs are one when they have one number: a PD may have been imported. */
static inline bool soft_pd_same(const struct soft_pd *a, const struct soft_pd *b)
{
	return a->base->number == b->base->number;
}

struct soft_ah {
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
	struct soft_pd *pd;
};

static inline struct soft_pd *soft_pd_of(struct ibv_pd *pd)
{
	return soft_container(pd, struct soft_pd, pd);
}

static inline struct soft_ah *soft_ah_of(struct ibv_ah *ah)
{
	return soft_container(ah, struct soft_ah, ah);
}

#endif
