/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles of XRC receive QPs: what a program has of one that it made or opened. The QP itself, with its state and its
 * attributes, is the daemon's, and what it receives is served by the processes that have the SRQs.
 */
#include "client/abi/abi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/xrc.h"

/* --- attributes ------------------------------------------------------------------------------------------------------ */

#define FIELD(flag, field, member)                                                                \
	{ flag, VSD__SHARED_FIELD__FIELD_##field, offsetof(struct ibv_qp_attr, member),           \
		sizeof(((struct ibv_qp_attr *)0)->member) }

/* Each is a number of 1, 2 or 4 bytes. */
static const struct {
	int flag;
	unsigned field;
	size_t offset, size;
} fields[] = {
	FIELD(IBV_QP_ACCESS_FLAGS, ACCESS, qp_access_flags),
	FIELD(IBV_QP_PKEY_INDEX, PKEY_INDEX, pkey_index),
	FIELD(IBV_QP_PORT, PORT, port_num),
	FIELD(IBV_QP_PATH_MTU, PATH_MTU, path_mtu),
	FIELD(IBV_QP_MAX_DEST_RD_ATOMIC, MAX_DEST_RD_ATOMIC, max_dest_rd_atomic),
	FIELD(IBV_QP_MIN_RNR_TIMER, MIN_RNR_TIMER, min_rnr_timer),
	FIELD(IBV_QP_DEST_QPN, DEST_QPN, dest_qp_num),
	FIELD(IBV_QP_RQ_PSN, RQ_PSN, rq_psn),
	FIELD(IBV_QP_SQ_PSN, SQ_PSN, sq_psn),
	FIELD(IBV_QP_TIMEOUT, TIMEOUT, timeout),
	FIELD(IBV_QP_AV, DLID, ah_attr.dlid),
	FIELD(IBV_QP_AV, SL, ah_attr.sl),
	FIELD(IBV_QP_AV, SRC_PATH_BITS, ah_attr.src_path_bits),
	FIELD(IBV_QP_AV, STATIC_RATE, ah_attr.static_rate),
	FIELD(IBV_QP_AV, AV_PORT, ah_attr.port_num),
	FIELD(IBV_QP_AV, IS_GLOBAL, ah_attr.is_global),
	FIELD(IBV_QP_AV, SGID_INDEX, ah_attr.grh.sgid_index),
	FIELD(IBV_QP_AV, HOP_LIMIT, ah_attr.grh.hop_limit),
	FIELD(IBV_QP_AV, TRAFFIC_CLASS, ah_attr.grh.traffic_class),
	FIELD(IBV_QP_AV, FLOW_LABEL, ah_attr.grh.flow_label),
	FIELD(IBV_QP_AV, DGID_0, ah_attr.grh.dgid.raw[0]),
	FIELD(IBV_QP_AV, DGID_1, ah_attr.grh.dgid.raw[4]),
	FIELD(IBV_QP_AV, DGID_2, ah_attr.grh.dgid.raw[8]),
	FIELD(IBV_QP_AV, DGID_3, ah_attr.grh.dgid.raw[12]),
	FIELD(IBV_QP_RETRY_CNT, RETRY_CNT, retry_cnt),
	FIELD(IBV_QP_RNR_RETRY, RNR_RETRY, rnr_retry),
	FIELD(IBV_QP_MAX_QP_RD_ATOMIC, MAX_RD_ATOMIC, max_rd_atomic),
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static bool is_gid(unsigned field)
{
	return field >= VSD__SHARED_FIELD__FIELD_DGID_0 && field <= VSD__SHARED_FIELD__FIELD_DGID_3;
}

static size_t size_of(size_t i)
{
	return is_gid(fields[i].field) ? 4 : fields[i].size;
}

void abi_xrc_fill(Vsd__SharedAttr *shared, uint32_t *values, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t all[SHARED_FIELDS] = { 0 };

	vsd__shared_attr__init(shared);
	shared->values = values;
	for (size_t i = 0; i < N_FIELDS; i++) {
		if (!(mask & fields[i].flag))
			continue;
		shared->mask |= 1u << fields[i].field;
		memcpy(&all[fields[i].field], (const char *)attr + fields[i].offset, size_of(i)); /* little-endian */
	}
	for (unsigned field = 0; field < SHARED_FIELDS; field++)
		if (shared->mask & 1u << field)
			values[shared->n_values++] = all[field];
}

static int take_values(const Vsd__SharedAttr *shared, struct ibv_qp_attr *attr)
{
	uint32_t all[SHARED_FIELDS] = { 0 };
	size_t n = 0;

	if (shared->mask >> SHARED_FIELDS || (size_t)__builtin_popcount(shared->mask) != shared->n_values)
		return -EPROTO;
	for (unsigned field = 0; field < SHARED_FIELDS; field++)
		if (shared->mask & 1u << field)
			all[field] = shared->values[n++];
	memset(attr, 0, sizeof(*attr));
	for (size_t i = 0; i < N_FIELDS; i++)
		memcpy((char *)attr + fields[i].offset, &all[fields[i].field], size_of(i));
	return 0;
}

int abi_xrc_refresh(struct soft_qp *qp, struct ibv_qp_attr *attr)
{
	Vsd__QpQueryRequest request = VSD__QP_QUERY_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	request.context = qp->ctx->id;
	request.handle = qp->handle;

	int r = control_call(
		VSD__OP__OP_QP_QUERY, &request.base, &vsd__qp_query_reply__descriptor, &message, NULL);

	if (r < 0)
		return r;

	const Vsd__QpQueryReply *reply = (const Vsd__QpQueryReply *)message;

	r = reply && reply->state <= IBV_QPS_ERR ? take_values(reply->attr, attr) : -EPROTO;
	if (r == 0)
		attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)reply->state;
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

int abi_xrc_query(struct soft_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	int r = abi_xrc_refresh(qp, attr);

	if (r < 0)
		return r;
	*init = (struct ibv_qp_init_attr){ .qp_context = qp->v.qp.qp_context, .qp_type = IBV_QPT_XRC_RECV };
	qp->v.qp.state = attr->qp_state;
	return 0;
}

/* --- life -------------------------------------------------------------------------------------------------------------- */

static int daemon_make(struct soft_qp *qp, const struct soft_xrcd *xrcd, uint32_t qpn)
{
	Vsd__QpCreateRequest create = VSD__QP_CREATE_REQUEST__INIT;
	Vsd__QpOpenRequest open = VSD__QP_OPEN_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	create.context = open.context = qp->ctx->id;
	create.has_xrcd = true;
	create.xrcd = open.xrcd = xrcd->handle;
	create.type = IBV_QPT_XRC_RECV;
	open.qpn = qpn;

	int r = control_call(qpn ? VSD__OP__OP_QP_OPEN : VSD__OP__OP_QP_CREATE, qpn ? &open.base : &create.base,
		&vsd__object_reply__descriptor, &message, NULL);

	if (r < 0)
		return r;

	const Vsd__ObjectReply *reply = (const Vsd__ObjectReply *)message;

	if (reply && reply->has_number) {
		qp->handle = reply->handle;
		qp->v.qp.qp_num = reply->number;
	} else {
		r = -EPROTO;
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static void handle_fields(struct soft_qp *qp, struct ibv_context *c, void *context)
{
	struct ibv_qp *v = &qp->v.qp;

	qp->ctx = soft_context_of(c);
	qp->init.qp_type = v->qp_type = IBV_QPT_XRC_RECV;
	v->context = c;
	v->qp_context = context;
	v->state = IBV_QPS_RESET;
	pthread_mutex_init(&v->mutex, NULL);
	pthread_cond_init(&v->cond, NULL);
}

/* Its queues take nothing: to the data path it is a QP that stays in RESET. */
struct ibv_qp *abi_xrc_handle(struct ibv_context *c, struct ibv_xrcd *x, uint32_t qpn, void *context)
{
	struct soft_xrcd *xrcd = soft_xrcd_of(x);
	struct soft_qp *qp = calloc(1, sizeof(*qp));
	int r = -ENOMEM;

	if (!qp)
		return abi_null(ENOMEM);
	handle_fields(qp, c, context);
	qp->xrcd = xrcd;
	r = soft_qp_init(qp);
	if (r < 0)
		goto err_free;
	r = daemon_make(qp, xrcd, qpn);
	if (r < 0)
		goto err_deinit;
	qp->v.qp.handle = qp->handle;
	xrcd->users++;
	abi_context_ref(qp->ctx);
	xrc_handle_insert(qp);
	return &qp->v.qp;

err_deinit:
	soft_qp_deinit(qp);
err_free:
	free(qp);
	return abi_null(-r);
}

int abi_xrc_destroy(struct soft_qp *qp)
{
	struct soft_context *ctx = qp->ctx;

	xrc_handle_remove(qp);
	soft_async_drop(&ctx->async, &qp->v.qp);

	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_QP, qp->handle);

	if (r < 0)
		control_debug("qp 0x%x: the daemon keeps it: error %d", qp->v.qp.qp_num, -r);
	xrc_settle();
	soft_qp_deinit(qp);
	qp->xrcd->users--;
	pthread_cond_destroy(&qp->v.qp.cond);
	pthread_mutex_destroy(&qp->v.qp.mutex);
	free(qp);
	abi_context_unref(ctx);
	return 0;
}

#define OPEN_NEEDED ((uint32_t)(IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE))
#define OPEN_KNOWN  (OPEN_NEEDED | (uint32_t)IBV_QP_OPEN_ATTR_CONTEXT)

struct ibv_qp *abi_open_qp(struct ibv_context *c, struct ibv_qp_open_attr *attr)
{
	if (abi_foreign(c))
		return abi_null(ABI_CHILD_ERRNO);
	if (attr->comp_mask & ~OPEN_KNOWN)
		return abi_null(EOPNOTSUPP);
	if ((attr->comp_mask & OPEN_NEEDED) != OPEN_NEEDED || attr->qp_type != IBV_QPT_XRC_RECV || !attr->xrcd ||
		attr->xrcd->context != c || !attr->qp_num || attr->qp_num >> 24)
		return abi_null(EINVAL);
	return abi_xrc_handle(
		c, attr->xrcd, attr->qp_num, attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL);
}
