/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups. Whoever is attached gets what is sent to the group from anywhere in the domain: there is no subnet
 * manager that would have to be asked first.
 */
#include "client/abi/abi.h"
#include "client/soft/multicast.h"

#include <pthread.h>

static int daemon_call(uint16_t op, const struct soft_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	Vsd__McastRequest request = VSD__MCAST_REQUEST__INIT;
	union ibv_gid copy = *gid;

	request.context = qp->ctx->id;
	request.qp = qp->handle;
	request.gid.data = copy.raw;
	request.gid.len = sizeof(copy.raw);
	request.lid = lid;
	return control_call(op, &request.base, NULL, NULL, NULL);
}

/* The QP is attached to groups of its device's only port. */
static int group_name(const struct soft_qp *qp, const union ibv_gid *gid, uint16_t lid, struct mcast_name *name)
{
	const Vsd__Port *port = abi_port(qp->ctx, 1);

	if (qp->init.qp_type != IBV_QPT_UD || !port)
		return -EINVAL;
	return mcast_name((uint8_t)port->link_layer, gid, lid, name) ? 0 : -EINVAL;
}

static int attach(struct soft_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct mcast_name name;
	int r = group_name(qp, gid, lid, &name);

	if (r < 0 || soft_mcast_attached(qp, &name))
		return r;
	r = daemon_call(VSD__OP__OP_MCAST_ATTACH, qp, gid, lid);
	if (r < 0)
		return r;
	r = soft_mcast_attach(qp, &name);
	if (r < 0)
		daemon_call(VSD__OP__OP_MCAST_DETACH, qp, gid, lid);
	return r;
}

VERBS_API int ibv_attach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	ABI_ENTER_INT(q->context, ibv_attach_mcast, "IBVERBS_1.1", q, gid, lid);
	pthread_mutex_lock(&q->mutex);

	int r = attach(soft_qp_of(q), gid, lid);

	pthread_mutex_unlock(&q->mutex);
	return abi_errno(r);
}

/* As other objects go, it goes without a daemon too. */
static int detach(struct soft_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct mcast_name name;
	int r = group_name(qp, gid, lid, &name);

	if (r < 0 || !soft_mcast_attached(qp, &name))
		return -EINVAL;
	soft_mcast_detach(qp, &name);
	r = daemon_call(VSD__OP__OP_MCAST_DETACH, qp, gid, lid);
	if (r < 0)
		control_debug("qp 0x%x: the daemon keeps it in a multicast group: error %d", qp->v.qp.qp_num, -r);
	return 0;
}

VERBS_API int ibv_detach_mcast(struct ibv_qp *q, const union ibv_gid *gid, uint16_t lid)
{
	ABI_ENTER_INT(q->context, ibv_detach_mcast, "IBVERBS_1.1", q, gid, lid);
	pthread_mutex_lock(&q->mutex);

	int r = detach(soft_qp_of(q), gid, lid);

	pthread_mutex_unlock(&q->mutex);
	return abi_errno(r);
}
