/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices, contexts, leases.
 */
#include "daemon/op.h"

#include <errno.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/device.h"
#include "daemon/encode.h"
#include "daemon/encode_real.h"
#include "daemon/lease.h"
#include "daemon/look.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"

/* enum ibv_port_state, and speeds as a 4X HDR link has them */
enum { PORT_DOWN = 1, PORT_ACTIVE = 4 };
enum { WIDTH_4X = 2, SPEED_HDR = 64 };

static uint32_t mtu_enum(uint32_t bytes)
{
	uint32_t code = 1;

	while (code < 5 && 128u << code < bytes)
		code++;
	return code;
}

static void encode_gids(const struct call *call, const struct gid_table *table, Vsd__Port *port)
{
	port->gids = call_alloc(call, table->n * sizeof(*port->gids));
	for (uint32_t i = 0; i < table->n; i++) {
		Vsd__Gid *gid = call_alloc(call, sizeof(*gid));

		vsd__gid__init(gid);
		gid->raw.len = GID_SIZE;
		gid->raw.data = (uint8_t *)(uintptr_t)table->gids[i].raw;
		gid->index = i;
		gid->type = table->gids[i].type;
		gid->netdev = *table->netdev ? (char *)(uintptr_t)table->netdev : NULL;
		port->gids[port->n_gids++] = gid;
	}
}

static Vsd__Port *encode_port(const struct call *call, const struct device *device)
{
	bool ethernet = device->config.link_layer == LINK_ETHERNET;
	Vsd__Port *port = call_alloc(call, sizeof(*port));

	vsd__port__init(port);
	port->number = 1;
	port->state = device->config.active ? PORT_ACTIVE : PORT_DOWN;
	port->lid = ethernet ? 0 : device->config.lid;
	port->sm_lid = ethernet ? 0 : 1;
	port->max_mtu = mtu_enum(4096);
	port->active_mtu = mtu_enum(device->config.mtu);
	port->link_layer = device->config.link_layer;
	port->max_msg_sz = device->attr.max_msg_sz;
	port->active_width = WIDTH_4X;
	port->active_speed = SPEED_HDR;
	encode_gids(call, &device->gids, port);
	port->n_pkeys = 1;
	port->pkeys = call_alloc(call, sizeof(*port->pkeys));
	port->pkeys[0] = device->attr.pkey;
	return port;
}

/* What the client can have: the device's limit or, where that is lower, the one on its account. */
static void lower(const struct call *call, enum slot slot, uint32_t *n)
{
	for (const struct account *a = &call->session->domain->account; a; a = a->parent)
		if (a->limit[slot] < *n)
			*n = (uint32_t)a->limit[slot];
}

static void lower_all(const struct call *call, Vsd__Device *out)
{
	lower(call, SLOT_QPS, &out->max_qp);
	lower(call, SLOT_CQS, &out->max_cq);
	lower(call, SLOT_MRS, &out->max_mr);
	lower(call, SLOT_PDS, &out->max_pd);
	lower(call, SLOT_SRQS, &out->max_srq);
	lower(call, SLOT_AHS, &out->max_ah);
	lower(call, SLOT_MWS, &out->max_mw);
	lower(call, SLOT_TDS, &out->max_td);
}

static Vsd__Device *encode_device(const struct call *call, struct device *device)
{
	const struct device_attr *attr = &device->attr;
	Vsd__Device *out = call_alloc(call, sizeof(*out));

	vsd__device__init(out);
	out->name = device->config.name;
	out->index = device->index;
	out->guid = device->config.guid;
	out->node_type = attr->node_type;
	out->transport = attr->transport;
	out->soft = attr->soft;
	out->n_ports = 1;
	out->ports = call_alloc(call, sizeof(*out->ports));
	out->ports[0] = encode_port(call, device);
	encode_limits(out, attr);
	lower_all(call, out);
	out->contexts = device->contexts;
	out->has_max_dm_size = 1;
	out->max_dm_size = attr->max_dm_size;
	out->has_max_xrcd = 1;
	out->max_xrcd = attr->max_xrcd;
	out->has_atomic_cap = device->config.atomics != ATOMICS_GLOBAL; /* which clients take for granted */
	out->atomic_cap = device->config.atomics;
	return out;
}

static int device_list(struct call *call)
{
	Vsd__DeviceListReply *reply = call_alloc(call, sizeof(*reply));

	vsd__device_list_reply__init(reply);
	reply->devices = call_alloc(call, (CONFIG_DEVICES_MAX + REAL_DEVICES_MAX) * sizeof(*reply->devices));
	list_for_each (pos, &call->server->devices)
		reply->devices[reply->n_devices++] =
			encode_device(call, container_of(pos, struct device, link));
	call->reply = &reply->base;
	return encode_real(call, reply);
}

int op_device_list(struct call *call)
{
	return look_then(call, LOOK_PORTS, device_list, 0);
}

static int reply_context(struct call *call, struct attachment *attachment)
{
	Vsd__ContextReply *reply;
	int r = context_capability(attachment->context);

	if (r >= 0)
		r = fdlist_consume(&call->fds, r);
	if (r < 0) {
		attachment_close(attachment);
		return r;
	}
	reply = call_alloc(call, sizeof(*reply));
	vsd__context_reply__init(reply);
	reply->context = attachment->id;
	reply->device = encode_device(call, attachment->context->device);
	call->reply = &reply->base;
	return 0;
}

int op_context_open(struct call *call)
{
	const Vsd__ContextOpenRequest *request = (const void *)call->request;
	struct device *device = server_device(call->server, request->device);
	struct attachment *attachment;
	char name[64];
	int r;

	if (!device)
		return refuse(-ENODEV, "device '%s'",
			log_escape(name, sizeof(name), request->device, strlen(request->device)));
	r = context_open(call->session, device, &attachment);
	return r < 0 ? r : reply_context(call, attachment);
}

int op_context_attach(struct call *call)
{
	const Vsd__ContextAttachRequest *request = (const void *)call->request;
	struct attachment *attachment;
	int r;

	if (request->nonce.len != VSD_NONCE_SIZE)
		return refuse(-EINVAL, "nonce of %zu bytes", request->nonce.len);
	r = context_attach(call->session, request->nonce.data, &attachment);
	return r < 0 ? r : reply_context(call, attachment);
}

int op_context_close(struct call *call)
{
	const Vsd__ContextCloseRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);

	if (!attachment)
		return -EINVAL;
	attachment_close(attachment);
	return 0;
}

int op_lease(struct call *call)
{
	const Vsd__LeaseRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	bool qpn = request->kind == VSD__LEASE_KIND__LEASE_QPN;
	struct lease_pool *pool = qpn ? &call->server->qpns : &call->server->keys;
	Vsd__LeaseReply *reply;
	struct lease *lease;
	int r;

	if (!attachment)
		return -EINVAL;
	if (!qpn && request->kind != VSD__LEASE_KIND__LEASE_KEY)
		return refuse(-EINVAL, "kind of lease %d", (int)request->kind);
	r = lease_new(pool, &attachment->domain->account, &attachment->leases[request->kind],
		request->count, &lease);
	if (r < 0)
		return r;
	if (qpn)
		map_page_set(&call->server->map, lease->first, lease->count,
			call->session->process->id);
	reply = call_alloc(call, sizeof(*reply));
	vsd__lease_reply__init(reply);
	reply->first = lease->first;
	reply->count = lease->count;
	call->reply = &reply->base;
	return 0;
}
