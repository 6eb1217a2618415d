/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of completion queues have among themselves.
 */
#ifndef SOFT_CQ_PRIVATE_H
#define SOFT_CQ_PRIVATE_H

#include "client/soft/cq.h"

/* Queues one event of @cq. CQ lock held. */
void channel_fire(struct soft_channel *channel, struct soft_cq *cq);

/* Takes the oldest CQE; false: there is none. */
bool cq_pop(struct soft_cq *cq, struct soft_cqe *cqe);
/* The same, making progress when there is none. */
bool cq_pop_progress(struct soft_cq *cq, struct soft_cqe *cqe);

#endif
