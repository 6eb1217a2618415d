/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What adapters do for a QP beside moving its messages: pacing, and negotiation when a connection is made. Here a rate is
 * noted and reported, and slows nothing down; there is nothing to negotiate.
 */
#include "client/abi/abi.h"
#include "client/soft/td.h"

void abi_pacing_caps(struct ibv_packet_pacing_caps *caps)
{
	*caps = (struct ibv_packet_pacing_caps){
		.qp_rate_limit_min = 1,
		.qp_rate_limit_max = UINT32_MAX,
		.supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD,
	};
}

/* 0 is no limit. */
int abi_modify_qp_rate_limit(struct ibv_qp *q, struct ibv_qp_rate_limit_attr *attr)
{
	struct soft_qp *qp = soft_qp_of(q);
	int r = 0;

	if (abi_foreign(q->context))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (attr->comp_mask || ((attr->max_burst_sz || attr->typical_pkt_sz) && !attr->rate_limit))
		return abi_errno(-EINVAL);
	if (q->qp_type != IBV_QPT_RC && q->qp_type != IBV_QPT_UC && q->qp_type != IBV_QPT_UD)
		return abi_errno(-EOPNOTSUPP);

	enum soft_held held = soft_hold(&qp->sq_lock);

	if (atomic_load(&qp->state) == IBV_QPS_RTS)
		qp->attr.rate_limit = attr->rate_limit;
	else
		r = -EINVAL;
	soft_release(&qp->sq_lock, held);
	return abi_errno(r);
}

/* Of what was asked for nothing is accepted, which is no error. */
VERBS_API int ibv_set_ece(struct ibv_qp *q, struct ibv_ece *ece)
{
	ABI_ENTER_INT(q->context, ibv_set_ece, "IBVERBS_1.10", q, ece);
	if (ece->comp_mask)
		return abi_errno(-EINVAL);
	ece->options = 0;
	return 0;
}

/* No vendor, no options. */
VERBS_API int ibv_query_ece(struct ibv_qp *q, struct ibv_ece *ece)
{
	ABI_ENTER_INT(q->context, ibv_query_ece, "IBVERBS_1.10", q, ece);
	*ece = (struct ibv_ece){ .vendor_id = 0 };
	return 0;
}
