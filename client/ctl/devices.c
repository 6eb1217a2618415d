/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl devices: a row for each port, with what its device may be used for. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "client/ctl/conn.h"
#include "client/ctl/ctl.h"
#include "client/ctl/table.h"

/* The numbers of enum ibv_port_state, ibv_mtu and IBV_LINK_LAYER_*, which are fixed. */
static const char *const port_states[] = { "nop", "down", "init", "armed", "active",
	"active-defer" };
static const char *const link_layers[] = { "unspecified", "infiniband", "ethernet" };

#define NAME_OF(names, i) ((i) < sizeof(names) / sizeof((names)[0]) ? (names)[i] : "?")

enum device_column {
	DEVICE,
	PORT,
	STATE,
	LINK,
	LID,
	MTU,
	KIND,
	CONTEXTS,
	GUID,
	GID,
	FIXED, /* those above are on the terminal too */
};

static const struct {
	const char *name;
	enum table_kind kind;
} fixed[FIXED] = {
	[DEVICE] = { "DEVICE", TABLE_LONG },
	[PORT] = { "PORT", TABLE_NUMBER },
	[STATE] = { "STATE", TABLE_TEXT },
	[LINK] = { "LINK", TABLE_TEXT },
	[LID] = { "LID", TABLE_NUMBER },
	[MTU] = { "MTU", TABLE_NUMBER },
	[KIND] = { "KIND", TABLE_TEXT },
	[CONTEXTS] = { "CONTEXTS", TABLE_NUMBER },
	[GUID] = { "GUID", TABLE_TEXT },
	[GID] = { "GID", TABLE_LONG },
};

/* JSON alone has the limits. */
static const struct {
	const char *name;
	size_t offset;
} limits[] = {
	{ "MAX_QP", offsetof(Vsd__Device, max_qp) },
	{ "MAX_QP_WR", offsetof(Vsd__Device, max_qp_wr) },
	{ "MAX_SGE", offsetof(Vsd__Device, max_sge) },
	{ "MAX_CQ", offsetof(Vsd__Device, max_cq) },
	{ "MAX_CQE", offsetof(Vsd__Device, max_cqe) },
	{ "MAX_MR", offsetof(Vsd__Device, max_mr) },
	{ "MAX_PD", offsetof(Vsd__Device, max_pd) },
	{ "MAX_TD", offsetof(Vsd__Device, max_td) },
	{ "MAX_SRQ", offsetof(Vsd__Device, max_srq) },
	{ "MAX_SRQ_WR", offsetof(Vsd__Device, max_srq_wr) },
	{ "MAX_AH", offsetof(Vsd__Device, max_ah) },
	{ "MAX_MW", offsetof(Vsd__Device, max_mw) },
	{ "MAX_RD_ATOM", offsetof(Vsd__Device, max_rd_atom) },
};

#define N_LIMITS (sizeof(limits) / sizeof(limits[0]))

static void port_add(struct table *table, const Vsd__Device *device, const Vsd__Port *port)
{
	char gid[INET6_ADDRSTRLEN] = "";

	table_number(table, PORT, port->number);
	table_text(table, STATE, NAME_OF(port_states, port->state));
	table_text(table, LINK, NAME_OF(link_layers, port->link_layer));
	table_number(table, LID, port->lid);
	if (port->active_mtu > 0 && port->active_mtu < 8)
		table_number(table, MTU, 128u << port->active_mtu);
	if (port->n_gids && port->gids[0]->raw.len == 16)
		inet_ntop(AF_INET6, port->gids[0]->raw.data, gid, sizeof(gid));
	table_text(table, GID, gid);
}

static void device_add(
	struct table *table, const Vsd__Device *device, const Vsd__Port *port, bool json)
{
	char guid[24];

	snprintf(guid, sizeof(guid), "%016" PRIx64, device->guid);
	table_row(table);
	table_text(table, DEVICE, device->name);
	table_text(table, KIND, device->soft ? "soft" : "real");
	table_number(table, CONTEXTS, device->contexts);
	table_text(table, GUID, guid);
	if (port)
		port_add(table, device, port);
	/* Of a real device they are known when it is watched. */
	for (size_t i = 0; json && device->max_qp && i < N_LIMITS; i++)
		table_number(table, FIXED + i,
			*(const uint32_t *)((const uint8_t *)device + limits[i].offset));
}

static int devices_print(const struct ctl *ctl, const Vsd__DeviceListReply *reply)
{
	struct table *table = table_new("devices", ctl->json, !ctl->no_headings);

	for (size_t i = 0; i < FIXED; i++)
		table_column(table, fixed[i].name, fixed[i].kind);
	for (size_t i = 0; ctl->json && i < N_LIMITS; i++)
		table_column(table, limits[i].name, TABLE_NUMBER);
	for (size_t i = 0; i < reply->n_devices; i++) {
		const Vsd__Device *device = reply->devices[i];

		if (device->n_ports == 0)
			device_add(table, device, NULL, ctl->json);
		for (size_t j = 0; j < device->n_ports; j++)
			device_add(table, device, device->ports[j], ctl->json);
	}

	int r = table_print(table);

	table_free(table);
	return r;
}

int ctl_devices(const struct ctl *ctl)
{
	struct conn *conn;
	ProtobufCMessage *reply;

	/* Who may administer sees all of them; others, what they may open. */
	if (conn_open(ctl->admin, &conn) < 0)
		conn = ctl_connect(ctl, false);
	if (!conn)
		return CTL_NO_DAEMON;

	int r = conn_call(
		conn, VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &reply);

	conn_close(conn);
	if (r < 0)
		return ctl_failed("devices", r);
	r = devices_print(ctl, (Vsd__DeviceListReply *)reply);
	conn_reply_free(reply);
	return r < 0 ? ctl_failed("devices", r) : CTL_OK;
}
