/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a host may have many adapters with many ports, and an answer has an end. Guarantees: a device is in the answer
 * whole or not at all.
 */
#include "daemon/encode_real.h"

#include <string.h>

#include "daemon/backend.h"
#include "daemon/backend_ibv.h"
#include "daemon/encode.h"
#include "daemon/look.h"
#include "daemon/native.h"
#include "daemon/observer.h"
#include "daemon/policy.h"
#include "daemon/server.h"
#include "daemon/session.h"

/* So much of an answer is left free: its header, and what follows the devices. */
#define SPARE 256

static Vsd__Gid *encode_gid(struct scratch *scratch, const struct real_port *port, uint32_t i)
{
	Vsd__Gid *gid = scratch_alloc(scratch, sizeof(*gid));
	uint8_t *raw = scratch_alloc(scratch, GID_SIZE);

	if (!gid || !raw)
		return NULL;
	memcpy(raw, port->gids[i].raw, GID_SIZE);
	vsd__gid__init(gid);
	gid->raw.len = GID_SIZE;
	gid->raw.data = raw;
	gid->index = port->gid_index[i];
	gid->type = port->gids[i].type;
	return gid;
}

static Vsd__Port *encode_port(struct scratch *scratch, const struct real_port *from, uint32_t number)
{
	Vsd__Port *port = scratch_alloc(scratch, sizeof(*port));
	Vsd__Gid **gids = scratch_alloc(scratch, REAL_GIDS_MAX * sizeof(*gids));
	uint32_t *pkeys = scratch_alloc(scratch, sizeof(*pkeys));

	if (!port || !gids || !pkeys)
		return NULL;
	vsd__port__init(port);
	port->number = number;
	port->state = from->state;
	port->lid = from->lid;
	port->sm_lid = from->sm_lid;
	port->link_layer = from->link_layer;
	port->gids = gids;
	while (port->n_gids < from->n_gids) {
		gids[port->n_gids] = encode_gid(scratch, from, (uint32_t)port->n_gids);
		if (!gids[port->n_gids])
			return NULL;
		port->n_gids++;
	}
	port->pkeys = pkeys;
	port->pkeys[0] = from->pkey;
	port->n_pkeys = 1;
	return port;
}

/* What only the device itself can tell. */
static void add_observed_port(Vsd__Port *port, const struct observer *observer, uint32_t number)
{
	const struct ib_uverbs_query_port_resp *from;

	if (!observer || !observer->known || number > observer->observed.n_ports)
		return;
	from = &observer->observed.ports[number - 1];
	port->max_mtu = from->max_mtu;
	port->active_mtu = from->active_mtu;
	port->max_msg_sz = from->max_msg_sz;
	port->active_width = from->active_width;
	port->active_speed = from->active_speed;
}

static void add_observed(Vsd__Device *device, const struct observer *observer)
{
	const struct ib_uverbs_query_device_resp *from;
	struct device_attr attr;

	if (!observer || !observer->known)
		return;
	from = &observer->observed.device;
	attr = (struct device_attr){
		.max_qp = from->max_qp,
		.max_qp_wr = from->max_qp_wr,
		.max_sge = from->max_sge,
		.max_cq = from->max_cq,
		.max_cqe = from->max_cqe,
		.max_mr = from->max_mr,
		.max_pd = from->max_pd,
		.max_srq = from->max_srq,
		.max_srq_wr = from->max_srq_wr,
		.max_ah = from->max_ah,
		.max_mw = from->max_mw,
		.max_rd_atom = from->max_qp_rd_atom,
		.max_mr_size = from->max_mr_size,
		.max_mcast_grp = from->max_mcast_grp,
		.max_mcast_qp_attach = from->max_mcast_qp_attach,
		.max_total_mcast_qp_attach = from->max_total_mcast_qp_attach,
	};
	encode_limits(device, &attr);
}

static bool encode_ports(struct call *call, const struct real_device *from, const struct observer *observer,
	Vsd__Device *device)
{
	struct scratch *scratch = &call->server->scratch;

	device->ports = scratch_alloc(scratch, REAL_PORTS_MAX * sizeof(*device->ports));
	for (uint32_t i = 1; device->ports && i <= from->n_ports && i <= REAL_PORTS_MAX; i++) {
		const struct real_port *port = look_port(call->server, from, i);

		if (!port)
			continue;
		device->ports[device->n_ports] = encode_port(scratch, port, i);
		if (!device->ports[device->n_ports])
			return false;
		add_observed_port(device->ports[device->n_ports], observer, i);
		device->n_ports++;
	}
	return device->ports != NULL;
}

static Vsd__Device *encode_device(struct call *call, const struct real_device *from)
{
	struct scratch *scratch = &call->server->scratch;
	const struct observer *observer = observer_find(call->server, from);
	Vsd__Device *device = scratch_alloc(scratch, sizeof(*device));

	if (!device)
		return NULL;
	vsd__device__init(device);
	device->name = scratch_strdup(scratch, from->name);
	device->node = scratch_strdup(scratch, from->node);
	device->index = from->index;
	device->guid = from->guid;
	device->node_type = from->node_type;
	device->transport = from->transport;
	device->has_rdev = 1;
	device->rdev = from->rdev;
	device->has_driver = 1;
	device->driver = from->driver;
	device->contexts = native_count(call->server, from->name);
	if (!device->name || !device->node || !encode_ports(call, from, observer, device))
		return NULL;
	add_observed(device, observer);
	return device;
}

int encode_real(struct call *call, Vsd__DeviceListReply *reply)
{
	struct server *server = call->server;
	size_t bytes = vsd__device_list_reply__get_packed_size(reply);
	struct policy_client client;
	bool all = call->session->admin;
	int r = policy_client_init(&client, call->session);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < server->real.n; i++) {
		const struct real_device *device = &server->real.list[i];

		if (!all && !policy_device(server->config, &client.who, device->name, device->n_ports))
			continue;

		Vsd__Device *out = encode_device(call, device);

		if (out)
			bytes += vsd__device__get_packed_size(out) + 8;
		if (!out || bytes > VSD_ANSWER_MAX - SPARE)
			break;
		reply->devices[reply->n_devices++] = out;
	}
	if (server->real.rdma_cm && (all || policy_rdma_cm(server->config, &client.who))) {
		reply->has_rdma_cm = 1;
		reply->rdma_cm = server->real.rdma_cm;
	}
	policy_client_deinit(&client);
	return 0;
}
