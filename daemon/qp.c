/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: two processes may only be joined by what both of them said. Guarantees: a QP number is in the table once and
 * was leased to its QP's process; a QP that is in no connected state has no wire.
 */
#include "daemon/qp.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/multicast.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/srq.h"
#include "daemon/target.h"
#include "daemon/wire_pair.h"
#include "daemon/xrcd.h"

enum { REF_PD, REF_SEND_CQ, REF_RECV_CQ, REF_SRQ, REF_XRCD, REFS };

#define WR_BYTES  64u
#define SGE_BYTES 16u

struct qp *qp_by_number(const struct server *server, uint32_t qpn)
{
	struct number *number = numbers_get(&server->numbers, qpn, NUMBER_QP);

	return number ? container_of(number, struct qp, number) : NULL;
}

struct qp *notice_qp(struct notice *notice)
{
	return container_of(notice, struct qp, notice);
}

struct wire *qp_wire(const struct qp *qp)
{
	return list_empty(&qp->wires)
		       ? NULL
		       : wire_of_end(container_of(qp->wires.next, struct wire_end, link));
}

static uint32_t qp_max(const struct device_attr *attr)
{
	return attr->max_qp;
}

static int qp_busy(const struct object *object)
{
	return mcast_busy((const struct qp *)object);
}

static void qp_fini(struct object *object)
{
	struct qp *qp = (struct qp *)object;

	notice_drop(&qp->notice);
	if (qp->attr.type == QP_XRC_RECV) {
		target_close(qp);
		return;
	}
	mcast_leave(qp);
	qp_leave(qp);
	numbers_remove(&object->context->server->numbers, &qp->number);
	lease_number_give(&object->owner->leases[LEASE_KIND_QPN], qp->attr.qpn);
}

static const char *type_name(enum qp_type type)
{
	switch (type) {
	case QP_RC:
		return "RC";
	case QP_UC:
		return "UC";
	case QP_UD:
		return "UD";
	case QP_XRC_SEND:
		return "XRC_SEND";
	case QP_XRC_RECV:
		return "XRC_RECV";
	}
	return "?";
}

static void describe_peer(const struct qp *qp, struct item *item)
{
	enum qp_state state = qp->target ? qp->target->state : qp->state;
	const struct wire *wire = qp_wire(qp);

	item->state = qp_state_name(state);
	if (qp->attr.type != QP_UD && state != QP_RESET && state != QP_INIT) {
		item->peer_number = qp->target ? qp->target->dest.qpn : qp->dest.qpn;
		item->has |= ITEM_PEER_NUMBER;
	}
	if (wire) {
		item->peer_pid = (uint32_t)wire_peer_pid(wire, qp);
		item->has |= ITEM_PEER_PID;
	}
}

static void qp_describe(const struct object *object, struct item *item)
{
	const struct qp *qp = (const struct qp *)object;

	item_set_ref(item, &item->pd, ITEM_PD, object_refers(object, REF_PD));
	item_set_ref(item, &item->send_cq, ITEM_SEND_CQ, object_refers(object, REF_SEND_CQ));
	item_set_ref(item, &item->recv_cq, ITEM_RECV_CQ, object_refers(object, REF_RECV_CQ));
	item_set_ref(item, &item->srq, ITEM_SRQ, object_refers(object, REF_SRQ));
	item_set_ref(item, &item->xrcd, ITEM_XRCD, object_refers(object, REF_XRCD));
	item->number = qp->attr.qpn;
	item->depth = qp->attr.max_send_wr;
	item->kind = type_name(qp->attr.type);
	item->has |= ITEM_NUMBER | ITEM_DEPTH;
	describe_peer(qp, item);
}

const struct object_class object_qp = {
	.name = "qp",
	.slot = SLOT_QPS,
	.size = sizeof(struct qp),
	.refs = REFS,
	.max = qp_max,
	.busy = qp_busy,
	.fini = qp_fini,
	.describe = qp_describe,
};

/* Which objects each type stands on. */
static int check_refs(const struct qp_attr *attr, struct object *const on[REFS])
{
	bool receives = attr->type == QP_XRC_RECV, sends = attr->type == QP_XRC_SEND;

	if (receives)
		return on[REF_XRCD] && attr->send_cq == 0 && attr->recv_cq == 0 && attr->srq == 0
			       ? 0
			       : refuse(-EINVAL, "an XRC receive QP has an XRCD and nothing else");
	if (!on[REF_PD] || !on[REF_SEND_CQ] || (attr->srq && !on[REF_SRQ]) || attr->xrcd)
		return -EINVAL;
	if (sends)
		return attr->recv_cq == 0 && attr->srq == 0
			       ? 0
			       : refuse(-EINVAL, "an XRC send QP receives nothing");
	if (on[REF_SRQ] && srq_is_xrc(on[REF_SRQ]))
		return refuse(-EINVAL, "srq %u is for XRC", attr->srq);
	return on[REF_RECV_CQ] ? 0 : -EINVAL;
}

static int check(const struct context *context, const struct qp_attr *attr)
{
	const struct device_attr *device = &context->device->attr;

	if (attr->type != QP_RC && attr->type != QP_UC && attr->type != QP_UD &&
		attr->type != QP_XRC_SEND && attr->type != QP_XRC_RECV)
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
	qp->number = (struct number){ NUMBER_QP, qp->attr.qpn };
	r = numbers_add(&attachment->context->server->numbers, &qp->number);
	if (r < 0)
		lease_number_give(&attachment->leases[LEASE_KIND_QPN], qp->attr.qpn);
	return r;
}

/* @qpn: of a receive QP that is to be opened; 0: a new one. */
static int target_take(struct qp *qp, const struct object *xrcd, uint32_t qpn)
{
	struct xrc_domain *domain = xrcd_domain(xrcd);
	int r = qpn ? target_open(domain, qpn, qp) : target_new(domain, qp);

	if (r == 0)
		qp->attr.qpn = qp->target->number.value;
	return r;
}

/* @attr->qpn of an XRC receive QP: as of target_take(). */
static int qp_make(struct attachment *attachment, const struct qp_attr *attr,
	struct object *const on[REFS], struct object **qp)
{
	struct object *made;
	struct qp *new;
	int r = object_new(attachment, OBJECT_QP, queue_bytes(attr), &made);

	if (r < 0)
		return r;
	new = (struct qp *)made;
	new->attr = *attr;
	new->process = attachment->session->process;
	list_init(&new->wires);
	list_init(&new->groups);
	list_init(&new->link_target);
	notice_init(&new->notice, 0);
	r = attr->type == QP_XRC_RECV ? target_take(new, on[REF_XRCD], attr->qpn)
				      : number_take(attachment, new);
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

static struct object *named(
	const struct attachment *attachment, enum object_type type, uint32_t handle)
{
	return handle ? object_get(attachment, type, handle) : NULL;
}

int qp_new(
	struct attachment *attachment, uint32_t pd, const struct qp_attr *attr, struct object **qp)
{
	struct object *on[REFS] = {
		[REF_PD] = attr->type == QP_XRC_RECV ? NULL : pd_get(attachment, pd),
		[REF_SEND_CQ] = named(attachment, OBJECT_CQ, attr->send_cq),
		[REF_RECV_CQ] = named(attachment, OBJECT_CQ, attr->recv_cq),
		[REF_SRQ] = named(attachment, OBJECT_SRQ, attr->srq),
		[REF_XRCD] = named(attachment, OBJECT_XRCD, attr->xrcd),
	};
	int r = check(attachment->context, attr);

	if (r == 0)
		r = check_refs(attr, on);
	if (r == 0 && attr->type == QP_XRC_RECV && attr->qpn)
		r = refuse(-EINVAL, "the number of an XRC receive QP is not its creator's to choose");
	return r < 0 ? r : qp_make(attachment, attr, on, qp);
}

int qp_open(struct attachment *attachment, uint32_t xrcd, uint32_t qpn, struct object **qp)
{
	const struct qp_attr attr = { .type = QP_XRC_RECV, .qpn = qpn, .xrcd = xrcd };
	struct object *on[REFS] = { [REF_XRCD] = named(attachment, OBJECT_XRCD, xrcd) };

	if (!on[REF_XRCD])
		return -EINVAL;
	if (qpn == 0)
		return refuse(-EINVAL, "no receive QP 0 in this XRCD");
	return qp_make(attachment, &attr, on, qp);
}

const struct object *qp_pd(const struct qp *qp)
{
	return object_refers(&qp->object, REF_PD);
}

bool qp_dest_is(const struct qp_dest *dest, uint32_t qpn, const struct device *device)
{
	return dest->qpn == qpn &&
	       device_has_address(device, dest->lid, dest->has_gid ? dest->gid : NULL);
}

static bool qp_names(const struct qp *qp, const struct qp *other)
{
	return qp_dest_is(&qp->dest, other->attr.qpn, other->object.context->device);
}

void qp_leave(struct qp *qp)
{
	while (!list_empty(&qp->wires))
		wire_leave(container_of(qp->wires.next, struct wire_end, link));
}

void qp_kill(struct qp *qp)
{
	mcast_leave(qp);
	qp_leave(qp);
	target_close(qp);
	notice_drop(&qp->notice);
	qp->wanted = 0;
	qp->state = QP_ERR;
	qp->process = NULL;
}

static int connect_qp(struct qp *qp)
{
	struct server *server = qp->object.context->server;
	struct qp *other = qp_by_number(server, qp->dest.qpn);

	if (qp->attr.type == QP_UD || !list_empty(&qp->wires) || !qp_state_connected(qp->state))
		return 0;
	if (qp->attr.type == QP_XRC_SEND)
		return qp->wanted ? xrc_connect(qp, (uint32_t)qp->wanted) : 0;
	if (!other || !list_empty(&other->wires) || other->attr.type != qp->attr.type ||
		!qp_state_connected(other->state) || !qp_names(qp, other) || !qp_names(other, qp))
		return 0;
	return wire_connect(server, qp, other);
}

int qp_check_change(
	uint32_t qpn, enum qp_state state, const struct qp_change *change, bool connects)
{
	bool to_rtr = state == QP_INIT && change->state == QP_RTR;

	if (!qp_state_follows(state, change->state))
		return refuse(-EINVAL, "QP 0x%x from %s to %s", qpn, qp_state_name(state),
			qp_state_name(change->state));
	/* The destination comes with INIT to RTR, and only then. */
	if (change->dest && !to_rtr)
		return refuse(-EINVAL, "QP 0x%x: a destination comes with INIT to RTR only", qpn);
	if (!change->dest && to_rtr && connects)
		return refuse(-EINVAL, "QP 0x%x: no destination", qpn);
	return 0;
}

int qp_modify(struct attachment *attachment, uint32_t handle, const struct qp_change *change)
{
	struct qp *qp = (struct qp *)object_get(attachment, OBJECT_QP, handle);
	struct qp old;
	int r;

	if (!qp)
		return -EINVAL;
	if (qp->attr.type == QP_XRC_RECV)
		return target_modify(qp->target, change);
	if (change->shared)
		return refuse(-EINVAL, "QP 0x%x is not shared", qp->attr.qpn);
	r = qp_check_change(qp->attr.qpn, qp->state, change, qp->attr.type != QP_UD);
	if (r < 0)
		return r;
	old = *qp;
	qp->state = change->state;
	if (change->dest)
		qp->dest = *change->dest;
	if (change->sq_psn)
		qp->sq_psn = *change->sq_psn;
	if (!qp_state_connected(qp->state)) {
		qp->resets += qp->state == QP_RESET;
		qp->wanted = 0;
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
