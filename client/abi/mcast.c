/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups: not offered yet (max_mcast_grp is 0). */
#include "client/abi/abi.h"

VERBS_API int ibv_attach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	ABI_ENTER_INT(q->context, ibv_attach_mcast, "IBVERBS_1.1", q, gid, lid);
	return abi_errno(-EOPNOTSUPP);
}

VERBS_API int ibv_detach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	ABI_ENTER_INT(q->context, ibv_detach_mcast, "IBVERBS_1.1", q, gid, lid);
	return abi_errno(-EOPNOTSUPP);
}
