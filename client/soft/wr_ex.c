/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ibv_wr_* functions.
 */
#include "client/soft/qp.h"

#include <errno.h>

int soft_qp_fill_ex(struct soft_qp *qp, uint64_t send_ops_flags)
{
	(void)qp;
	return send_ops_flags ? -EOPNOTSUPP : 0;
}
