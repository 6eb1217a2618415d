/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues: WQEs that the responders of several QPs take under the SRQ's lock; the limit event.
 */
#ifndef SOFT_SRQ_H
#define SOFT_SRQ_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/soft/lock.h"
#include "client/soft/objects.h"

struct tag_list;

struct soft_rwqe {
	uint64_t wr_id;
	uint32_t n_sge;
	struct ibv_sge *sge; /* max_sge of them, in one block with the ring */
};

struct soft_cq;
struct soft_xrcd;

struct soft_srq {
	struct ibv_srq srq;
	struct soft_context *ctx;
	struct soft_pd *pd;
	uint32_t handle;
	_Atomic unsigned users;
	struct soft_lock lock;
	uint32_t max_wr, max_sge, limit;
	struct soft_rwqe *ring;
	struct ibv_sge *sges;
	uint32_t size, head, tail;
	bool limit_armed;
	/* of an XRC SRQ */
	uint32_t number, xrcd; /* its own, and its domain's */
	struct soft_cq *cq;    /* NULL: it is none */
	struct soft_xrcd *xrc;
	struct soft_srq *xrc_next;
	struct tag_list *tags; /* of a tag matching SRQ; NULL: it is none */
	struct soft_qp *starving; /* QPs that answered RNR: told (rt_run_later) when a receive comes */
};

static inline struct soft_srq *soft_srq_of(struct ibv_srq *srq)
{
	return soft_container(srq, struct soft_srq, srq);
}

int soft_srq_init(struct soft_srq *srq, uint32_t max_wr, uint32_t max_sge, bool single_threaded);
void soft_srq_deinit(struct soft_srq *srq);
int soft_srq_modify(struct soft_srq *srq, const struct ibv_srq_attr *attr, int mask);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Takes the oldest receive, its SGEs copied to @sge (max_sge of them). False: empty. Raises the limit event. */
bool soft_srq_take(struct soft_srq *srq, struct soft_rwqe *wqe, struct ibv_sge *sge);

#endif
