/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPs, and what joins them.
 */
#include "daemon/op.h"

#include <errno.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/multicast.h"
#include "daemon/pair.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/target.h"
#include "daemon/wire_pair.h"

/* What an answer on the event socket has room for. */
#define RESOLVE_PEERS 32

int op_qp_create(struct call *call)
{
	const Vsd__QpCreateRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct qp_attr attr = {
		.type = (enum qp_type)request->type,
		.qpn = request->qpn,
		.send_cq = request->has_send_cq ? request->send_cq : 0,
		.recv_cq = request->has_recv_cq ? request->recv_cq : 0,
		.srq = request->has_srq ? request->srq : 0,
		.xrcd = request->has_xrcd ? request->xrcd : 0,
		.max_send_wr = request->max_send_wr,
		.max_recv_wr = request->max_recv_wr,
		.max_send_sge = request->max_send_sge,
		.max_recv_sge = request->max_recv_sge,
		.max_inline = request->max_inline,
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_srq && request->srq == 0)
		return refuse(-EINVAL, "srq 0");
	return call_object(call, qp_new(attachment, request->pd, &attr, &object), &object);
}

static int get_gid(protobuf_c_boolean has, const ProtobufCBinaryData *data, uint8_t gid[GID_SIZE])
{
	if (!has)
		return 0;
	if (data->len != GID_SIZE)
		return refuse(-EINVAL, "GID of %zu bytes", data->len);
	memcpy(gid, data->data, GID_SIZE);
	return 1;
}

int op_qp_modify(struct call *call)
{
	const Vsd__QpModifyRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct qp_dest dest = {
		.qpn = request->dest_qpn,
		.lid = request->has_dlid ? request->dlid : 0,
		.rq_psn = request->has_rq_psn ? request->rq_psn : 0,
	};
	struct qp_change change = {
		.state = (enum qp_state)request->state,
		.dest = request->has_dest_qpn ? &dest : NULL,
		.sq_psn = request->has_sq_psn ? &request->sq_psn : NULL,
	};
	struct shared_change shared;
	int r = get_gid(request->has_dgid, &request->dgid, dest.gid);

	if (!attachment || r < 0)
		return -EINVAL;
	dest.has_gid = r > 0;
	if (request->has_port && request->port != 1)
		return refuse(-EINVAL, "port %u", request->port);
	if (request->attr) {
		shared = (struct shared_change){
			.mask = request->attr->mask,
			.values = request->attr->values,
			.n_values = request->attr->n_values,
		};
		change.shared = &shared;
	}
	return qp_modify(attachment, request->handle, &change);
}

int op_segment_get(struct call *call)
{
	const Vsd__SegmentGetRequest *request = (const void *)call->request;

	return segment_send_again(call->server, call->session->process, request->segment);
}

int op_wire_release(struct call *call)
{
	const Vsd__WireReleaseRequest *request = (const void *)call->request;

	return wire_release(call->server, call->session->process, request->segment, request->wire,
		request->generation);
}

int op_peer_resolve(struct call *call)
{
	const Vsd__PeerResolveRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct qp *qp = qp_by_number(call->server, request->qpn);
	Vsd__PeerResolveReply *reply;
	uint8_t gid[GID_SIZE];
	int r;

	if (!attachment)
		return -EINVAL;
	r = get_gid(request->has_dgid, &request->dgid, gid);
	if (r < 0)
		return r;
	if (!qp || qp->attr.type != QP_UD || !qp->process || !qp_state_connected(qp->state) ||
		!device_has_address(qp->object.context->device, request->dlid, r ? gid : NULL))
		return refuse(-EHOSTUNREACH, "no datagram QP 0x%x there", request->qpn);
	r = wire_datagram(call->server, call->session->process, qp->process);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__peer_resolve_reply__init(reply);
	reply->peer = qp->process->id;
	call->reply = &reply->base;
	return 0;
}

static int mcast_change(struct call *call,
	int (*change)(struct attachment *, uint32_t, const uint8_t[GID_SIZE], uint32_t))
{
	const Vsd__McastRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	uint8_t gid[GID_SIZE];

	if (!attachment || get_gid(true, &request->gid, gid) < 0)
		return -EINVAL;
	return change(attachment, request->qp, gid, request->lid);
}

int op_mcast_attach(struct call *call)
{
	return mcast_change(call, mcast_attach);
}

int op_mcast_detach(struct call *call)
{
	return mcast_change(call, mcast_detach);
}

int op_mcast_resolve(struct call *call)
{
	const Vsd__McastResolveRequest *request = (const void *)call->request;
	const struct attachment *attachment = call_attachment(call, request->context);
	struct mcast_answer answer = { .max = RESOLVE_PEERS };
	Vsd__McastResolveReply *reply;
	uint8_t gid[GID_SIZE];
	int r;

	if (!attachment || get_gid(true, &request->gid, gid) < 0)
		return -EINVAL;
	answer.peers = call_alloc(call, RESOLVE_PEERS * sizeof(*answer.peers));
	r = mcast_resolve(call->session->process, attachment->context, gid, request->lid, request->after, &answer);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__mcast_resolve_reply__init(reply);
	reply->bucket = answer.bucket;
	reply->generation = answer.generation;
	reply->peers = answer.peers;
	reply->n_peers = answer.n;
	reply->more = answer.more;
	call->reply = &reply->base;
	return 0;
}
