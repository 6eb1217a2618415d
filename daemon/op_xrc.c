/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC: its domains, receive QPs that several processes have open, and what joins send QPs with SRQs.
 */
#include "daemon/op.h"

#include <errno.h>

#include "daemon/context.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/target.h"
#include "daemon/wire_pair.h"
#include "daemon/xrcd.h"

int op_xrcd_open(struct call *call)
{
	const Vsd__XrcdOpenRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct xrcd_how how = {
		.file = {
			.has = request->has_inode,
			.device = request->has_device ? request->device : 0,
			.inode = request->has_inode ? request->inode : 0,
		},
		.create = request->create,
		.exclusive = request->exclusive,
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_inode != request->has_device)
		return refuse(-EINVAL, "half an inode");
	return call_object(call, xrcd_open(attachment, &how, &object), &object);
}

int op_qp_open(struct call *call)
{
	const Vsd__QpOpenRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	return call_object(call, qp_open(attachment, request->xrcd, request->qpn, &object), &object);
}

int op_qp_query(struct call *call)
{
	const Vsd__QpQueryRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct qp *qp = attachment ? (const struct qp *)object_get(attachment, OBJECT_QP,
						   request->handle)
					 : NULL;
	const struct xrc_target *target = qp ? qp->target : NULL;
	Vsd__QpQueryReply *reply;

	if (!qp)
		return -EINVAL;
	if (!target)
		return refuse(-EINVAL, "QP 0x%x is not shared", qp->attr.qpn);
	reply = call_alloc(call, sizeof(*reply));
	vsd__qp_query_reply__init(reply);
	reply->state = target->state;
	reply->attr = call_alloc(call, sizeof(*reply->attr));
	vsd__shared_attr__init(reply->attr);
	reply->attr->mask = target->mask;
	reply->attr->values = call_alloc(call, sizeof(target->values));
	for (unsigned i = 0; i < SHARED_FIELDS; i++) {
		if (target->mask & 1u << i)
			reply->attr->values[reply->attr->n_values++] = target->values[i];
	}
	call->reply = &reply->base;
	return 0;
}

int op_xrc_connect(struct call *call)
{
	const Vsd__XrcConnectRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct qp *qp = attachment ? (struct qp *)object_get(attachment, OBJECT_QP, request->qp) : NULL;

	if (!qp)
		return -EINVAL;
	/* On its way since before the QP was reset: by now its receive QP may serve another connection. */
	if (request->has_resets && request->resets != qp->resets)
		return 0;
	if (qp->attr.type != QP_XRC_SEND || !qp_state_connected(qp->state))
		return refuse(-EINVAL, "QP 0x%x sends to no SRQ", qp->attr.qpn);
	return xrc_connect(qp, request->srqn);
}

int op_xrc_report(struct call *call)
{
	const Vsd__XrcReportRequest *request = (const void *)call->request;
	struct xrc_target *target = wire_target(call->server, call->session->process,
		request->segment, request->wire, request->generation);
	uint32_t event = request->has_event ? request->event : 0;

	/* It may have been reset meanwhile, but not for the sender's leaving: what failed, failed before that. */
	if (!target)
		return refuse(-ENOENT, "no XRC receive QP there");
	if (event > TARGET_EVENT_MAX || (request->has_event && event == 0))
		return refuse(-EINVAL, "event %u", event);
	target_report(target, event);
	return 0;
}
