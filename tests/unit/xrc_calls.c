/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC as a client of the fixture asks for it. */
#include "tests/unit/xrc_calls.h"

#include <errno.h>

#include "tests/lib/harness.h"

enum { XRC_SEND = 9, XRC_RECV = 10 };

#define DEVICE 0xfeed

int64_t call_xrcd_open(struct client *client, uint64_t inode, bool create, bool exclusive)
{
	Vsd__XrcdOpenRequest request = VSD__XRCD_OPEN_REQUEST__INIT;

	request.context = client->context;
	request.has_device = request.has_inode = inode != 0;
	request.device = DEVICE;
	request.inode = inode;
	request.create = create;
	request.exclusive = exclusive;
	return client_object(client, VSD__OP__OP_XRCD_OPEN, &request.base);
}

int64_t call_srq_create(struct client *client, uint32_t xrcd, uint32_t number)
{
	Vsd__SrqCreateRequest request = VSD__SRQ_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.max_wr = 4;
	request.max_sge = 1;
	request.type = 1;
	request.has_cq = request.has_xrcd = request.has_number = true;
	request.cq = client->cq;
	request.xrcd = xrcd;
	request.number = number;
	return client_object(client, VSD__OP__OP_SRQ_CREATE, &request.base);
}

int64_t call_send_create(struct client *client, uint32_t qpn)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.type = XRC_SEND;
	request.qpn = qpn;
	request.has_send_cq = true;
	request.send_cq = client->cq;
	request.max_send_wr = 16;
	request.max_send_sge = 1;
	return client_object(client, VSD__OP__OP_QP_CREATE, &request.base);
}

uint32_t call_target_create(struct client *client, uint32_t xrcd, uint32_t *qpn)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;
	ProtobufCMessage *reply;
	uint32_t handle;

	request.context = client->context;
	request.type = XRC_RECV;
	request.has_xrcd = true;
	request.xrcd = xrcd;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_QP_CREATE, &request.base,
				 &vsd__object_reply__descriptor, &reply),
		0);
	handle = ((Vsd__ObjectReply *)reply)->handle;
	*qpn = ((Vsd__ObjectReply *)reply)->number;
	protobuf_c_message_free_unpacked(reply, NULL);
	return handle;
}

int64_t call_target_open(struct client *client, uint32_t xrcd, uint32_t qpn)
{
	Vsd__QpOpenRequest request = VSD__QP_OPEN_REQUEST__INIT;

	request.context = client->context;
	request.xrcd = xrcd;
	request.qpn = qpn;
	return client_object(client, VSD__OP__OP_QP_OPEN, &request.base);
}

int call_target_set(struct client *client, uint32_t handle, unsigned state, uint32_t mask, uint32_t value)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;
	Vsd__SharedAttr attr = VSD__SHARED_ATTR__INIT;

	attr.mask = mask;
	attr.values = &value;
	attr.n_values = 1;
	request.context = client->context;
	request.handle = handle;
	request.state = state;
	request.attr = &attr;
	return client_call(client, VSD__OP__OP_QP_MODIFY, &request.base, NULL, NULL);
}

/* Its state, or -1; the attributes that were set. */
int call_target_state(struct client *client, uint32_t handle, uint32_t *mask)
{
	Vsd__QpQueryRequest request = VSD__QP_QUERY_REQUEST__INIT;
	ProtobufCMessage *reply;
	int state;

	request.context = client->context;
	request.handle = handle;
	if (client_call(client, VSD__OP__OP_QP_QUERY, &request.base, &vsd__qp_query_reply__descriptor, &reply) != 0)
		return -1;
	state = (int)((Vsd__QpQueryReply *)reply)->state;
	*mask = ((Vsd__QpQueryReply *)reply)->attr->mask;
	protobuf_c_message_free_unpacked(reply, NULL);
	return state;
}

void target_is(struct client *client, uint32_t handle, int state)
{
	uint32_t mask;

	ck_assert_int_eq(call_target_state(client, handle, &mask), state);
}

int call_xrc_connect(struct client *client, uint32_t qp, uint32_t srqn)
{
	Vsd__XrcConnectRequest request = VSD__XRC_CONNECT_REQUEST__INIT;

	request.context = client->context;
	request.qp = qp;
	request.srqn = srqn;
	return client_call(client, VSD__OP__OP_XRC_CONNECT, &request.base, NULL, NULL);
}

int call_wire_release(struct client *client, const Vsd__EvWire *wire)
{
	Vsd__WireReleaseRequest request = VSD__WIRE_RELEASE_REQUEST__INIT;

	request.segment = wire->segment;
	request.wire = wire->wire;
	request.generation = wire->generation;
	return client_call(client, VSD__OP__OP_WIRE_RELEASE, &request.base, NULL, NULL);
}

/* 0: it failed, and nobody is told why. */
int call_xrc_report(struct client *client, const Vsd__EvWire *wire, uint32_t event)
{
	Vsd__XrcReportRequest request = VSD__XRC_REPORT_REQUEST__INIT;

	request.segment = wire->segment;
	request.wire = wire->wire;
	request.generation = wire->generation;
	request.has_event = event != 0;
	request.event = event;
	return client_call(client, VSD__OP__OP_XRC_REPORT, &request.base, NULL, NULL);
}
