/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues.
 */
#include "client/soft/srq.h"

#include <errno.h>

int soft_srq_init(struct soft_srq *srq, uint32_t max_wr, uint32_t max_sge, bool single_threaded)
{
	(void)srq;
	(void)max_wr;
	(void)max_sge;
	(void)single_threaded;
	return -ENOSYS;
}

void soft_srq_deinit(struct soft_srq *srq)
{
	(void)srq;
}

int soft_srq_modify(struct soft_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	(void)srq;
	(void)attr;
	(void)mask;
	return -ENOSYS;
}

int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	return ENOSYS;
}

bool soft_srq_take(struct soft_srq *srq, struct soft_rwqe *wqe, struct ibv_sge *sge)
{
	(void)srq;
	(void)wqe;
	(void)sge;
	return false;
}
