/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Life and states of queue pairs.
 */
#include "client/soft/qp.h"

#include <errno.h>

int soft_qp_init(struct soft_qp *qp)
{
	(void)qp;
	return -ENOSYS;
}

int soft_qp_start(struct soft_qp *qp)
{
	(void)qp;
	return -ENOSYS;
}

int soft_qp_apply(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	(void)attr;
	(void)mask;
	return -ENOSYS;
}

void soft_qp_kickoff(struct soft_qp *qp)
{
	(void)qp;
}

void soft_qp_query(struct soft_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)attr;
	(void)init;
}

int soft_qp_stop(struct soft_qp *qp)
{
	(void)qp;
	return 0;
}

void soft_qp_deinit(struct soft_qp *qp)
{
	(void)qp;
}

bool qp_service(struct soft_qp *qp, struct wire *wire)
{
	(void)qp;
	(void)wire;
	return false;
}

void qp_run(struct soft_qp *qp)
{
	(void)qp;
}

bool qp_wire_attached(struct soft_qp *qp, struct wire *wire)
{
	(void)qp;
	(void)wire;
	return false;
}

void qp_wire_gone(struct soft_qp *qp, struct wire *wire, bool dead)
{
	(void)qp;
	(void)wire;
	(void)dead;
}
