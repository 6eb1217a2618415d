/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: two processes may only be joined by what both of them said. Guarantees: a QP number is in the table once and
 * was leased to its QP's process; a QP that is in no connected state has no wire.
 */
#include "daemon/qp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/wire_pair.h"

enum { REF_PD, REF_SEND_CQ, REF_RECV_CQ, REF_SRQ, REFS };

#define WR_BYTES  64u
#define SGE_BYTES 16u

int qpn_table_init(struct qpn_table *table)
{
	table->ranges = calloc(QPN_RANGES, sizeof(struct qpn_range *));
	return table->ranges ? 0 : -ENOMEM;
}

void qpn_table_deinit(struct qpn_table *table)
{
	free(table->ranges);
	table->ranges = NULL;
}

struct qp *qpn_table_get(const struct qpn_table *table, uint32_t qpn)
{
	struct qpn_range *range =
		qpn < QPN_RANGES * QPN_RANGE_SIZE ? table->ranges[qpn / QPN_RANGE_SIZE] : NULL;

	return range ? range->qps[qpn % QPN_RANGE_SIZE] : NULL;
}

static int qpn_table_set(struct qpn_table *table, struct qp *qp)
{
	struct qpn_range **range = &table->ranges[qp->attr.qpn / QPN_RANGE_SIZE];

	if (!*range)
		*range = calloc(1, sizeof(**range));
	if (!*range)
		return -ENOMEM;
	(*range)->qps[qp->attr.qpn % QPN_RANGE_SIZE] = qp;
	(*range)->count++;
	return 0;
}

static void qpn_table_unset(struct qpn_table *table, const struct qp *qp)
{
	struct qpn_range **range = &table->ranges[qp->attr.qpn / QPN_RANGE_SIZE];

	(*range)->qps[qp->attr.qpn % QPN_RANGE_SIZE] = NULL;
	if (--(*range)->count == 0) {
		free(*range);
		*range = NULL;
	}
}

static uint32_t qp_max(const struct device_attr *attr)
{
	return attr->max_qp;
}

static void qp_fini(struct object *object)
{
	struct qp *qp = (struct qp *)object;

	qp_leave(qp);
	qpn_table_unset(&object->context->server->qps, qp);
	lease_number_give(&object->owner->leases[LEASE_KIND_QPN], qp->attr.qpn);
}

static void qp_describe(const struct object *object, struct item *item)
{
	const struct qp *qp = (const struct qp *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item_set_ref(item, &item->send_cq, ITEM_SEND_CQ, object_refers(object, REF_SEND_CQ));
	item_set_ref(item, &item->recv_cq, ITEM_RECV_CQ, object_refers(object, REF_RECV_CQ));
	item_set_ref(item, &item->srq, ITEM_SRQ, object_refers(object, REF_SRQ));
	item->number = qp->attr.qpn;
	item->depth = qp->attr.max_send_wr;
	item->kind = qp->attr.type == QP_RC ? "RC" : qp->attr.type == QP_UC ? "UC" : "UD";
	item->state = qp_state_name(qp->state);
	item->has |= ITEM_NUMBER | ITEM_DEPTH;
	if (qp->attr.type != QP_UD && qp->state != QP_RESET && qp->state != QP_INIT) {
		item->peer_number = qp->dest.qpn;
		item->has |= ITEM_PEER_NUMBER;
	}
	if (qp->wire) {
		item->peer_pid = (uint32_t)wire_peer_pid(qp->wire, qp);
		item->has |= ITEM_PEER_PID;
	}
}

const struct object_class object_qp = {
	.name = "qp",
	.slot = SLOT_QPS,
	.size = sizeof(struct qp),
	.refs = REFS,
	.max = qp_max,
	.fini = qp_fini,
	.describe = qp_describe,
};

static int check(const struct context *context, const struct qp_attr *attr)
{
	const struct device_attr *device = &context->device->attr;

	if (attr->type != QP_RC && attr->type != QP_UC && attr->type != QP_UD)
		return refuse(-EOPNOTSUPP, "type %u", attr->type);
	if (attr->max_send_wr > device->max_qp_wr || attr->max_recv_wr > device->max_qp_wr ||
		attr->max_send_sge > device->max_sge || attr->max_recv_sge > device->max_sge ||
		attr->max_inline > device->max_inline)
		return refuse(-EINVAL, "sends %u of %u, receives %u of %u, inline %u",
			attr->max_send_wr, attr->max_send_sge, attr->max_recv_wr,
			attr->max_recv_sge, attr->max_inline);
	return 0;
}

static uint64_t queue_bytes(const struct qp_attr *attr)
{
	uint64_t send = WR_BYTES + (uint64_t)attr->max_send_sge * SGE_BYTES + attr->max_inline;
	uint64_t recv = WR_BYTES / 2 + (uint64_t)attr->max_recv_sge * SGE_BYTES;

	return attr->max_send_wr * send + (attr->srq ? 0 : attr->max_recv_wr * recv);
}

static int number_take(struct attachment *attachment, struct qp *qp)
{
	int r = lease_number_take(&attachment->leases[LEASE_KIND_QPN], qp->attr.qpn);

	if (r < 0)
		return r;
	r = qpn_table_set(&attachment->context->server->qps, qp);
	if (r < 0)
		lease_number_give(&attachment->leases[LEASE_KIND_QPN], qp->attr.qpn);
	return r;
}

int qp_new(
	struct attachment *attachment, uint32_t pd, const struct qp_attr *attr, struct object **qp)
{
	struct object *on[REFS] = {
		[REF_PD] = pd_get(attachment, pd),
		[REF_SEND_CQ] = object_get(attachment, OBJECT_CQ, attr->send_cq),
		[REF_RECV_CQ] = object_get(attachment, OBJECT_CQ, attr->recv_cq),
		[REF_SRQ] = attr->srq ? object_get(attachment, OBJECT_SRQ, attr->srq) : NULL,
	};
	struct object *made;
	int r = check(attachment->context, attr);

	if (r < 0)
		return r;
	if (!on[REF_PD] || !on[REF_SEND_CQ] || !on[REF_RECV_CQ] || (attr->srq && !on[REF_SRQ]))
		return -EINVAL;
	r = object_new(attachment, OBJECT_QP, queue_bytes(attr), &made);
	if (r < 0)
		return r;
	((struct qp *)made)->attr = *attr;
	((struct qp *)made)->process = attachment->session->process;
	r = number_take(attachment, (struct qp *)made);
	if (r < 0) {
		object_discard(made);
		return r;
	}
	for (unsigned i = 0; i < REFS; i++)
		object_refer(made, i, on[i]);
	r = object_publish(made);
	if (r == 0)
		*qp = made;
	return r;
}

const struct object *qp_pd(const struct qp *qp)
{
	return object_refers(&qp->object, REF_PD);
}

bool qp_names(const struct qp *qp, const struct qp *other)
{
	return qp->dest.qpn == other->attr.qpn &&
	       device_has_address(other->object.context->device, qp->dest.lid,
		       qp->dest.has_gid ? qp->dest.gid : NULL);
}

void qp_leave(struct qp *qp)
{
	if (qp->wire)
		wire_leave(qp->wire, qp);
	assert(!qp->wire);
}

void qp_kill(struct qp *qp)
{
	qp_leave(qp);
	qp->state = QP_ERR;
	qp->process = NULL;
}

static int connect_qp(struct qp *qp)
{
	struct server *server = qp->object.context->server;
	struct qp *other = qpn_table_get(&server->qps, qp->dest.qpn);

	if (qp->attr.type == QP_UD || qp->wire || !qp_state_connected(qp->state))
		return 0;
	if (!other || other->wire || other->attr.type != qp->attr.type ||
		!qp_state_connected(other->state) || !qp_names(qp, other) || !qp_names(other, qp))
		return 0;
	return wire_connect(server, qp, other);
}

int qp_modify(struct attachment *attachment, uint32_t handle, const struct qp_change *change)
{
	struct qp *qp = (struct qp *)object_get(attachment, OBJECT_QP, handle);
	struct qp old;
	int r;

	if (!qp)
		return -EINVAL;
	if (!qp_state_follows(qp->state, change->state))
		return refuse(-EINVAL, "QP 0x%x from %s to %s", qp->attr.qpn,
			qp_state_name(qp->state), qp_state_name(change->state));
	/* The destination comes with INIT to RTR, and only then. */
	if (change->dest && !(qp->state == QP_INIT && change->state == QP_RTR))
		return refuse(-EINVAL, "QP 0x%x: a destination comes with INIT to RTR only",
			qp->attr.qpn);
	if (!change->dest && qp->state == QP_INIT && change->state == QP_RTR &&
		qp->attr.type != QP_UD)
		return refuse(-EINVAL, "QP 0x%x: no destination", qp->attr.qpn);
	old = *qp;
	qp->state = change->state;
	if (change->dest)
		qp->dest = *change->dest;
	if (change->sq_psn)
		qp->sq_psn = *change->sq_psn;
	if (!qp_state_connected(qp->state)) {
		qp->resets += qp->state == QP_RESET;
		qp_leave(qp);
		return 0;
	}
	r = connect_qp(qp);
	if (r < 0) {
		qp->state = old.state;
		qp->dest = old.dest;
		qp->sq_psn = old.sq_psn;
	}
	return r;
}
