/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl counters: what the ports of real devices have counted, a row for each counter. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "client/ctl/conn.h"
#include "client/ctl/ctl.h"
#include "client/ctl/table.h"

enum { DEVICE, PORT, COUNTER, VALUE };

static int port_add(struct conn *conn, struct table *table, char *device, uint32_t port)
{
	Vsd__DeviceCountersRequest request = VSD__DEVICE_COUNTERS_REQUEST__INIT;
	const Vsd__DeviceCountersReply *reply;
	ProtobufCMessage *message;

	request.device = device;
	request.port = port;

	int r = conn_call(conn, VSD__OP__OP_DEVICE_COUNTERS, &request.base, &vsd__device_counters_reply__descriptor, &message);

	/* A device may go at any time. */
	if (r == -ENODEV || r == -EINVAL)
		return 0;
	if (r < 0)
		return r;
	reply = (Vsd__DeviceCountersReply *)message;
	for (size_t i = 0; i < reply->n_counters; i++) {
		table_row(table);
		table_text(table, DEVICE, device);
		table_number(table, PORT, port);
		table_text(table, COUNTER, reply->counters[i]->name);
		table_number(table, VALUE, reply->counters[i]->value);
	}
	conn_reply_free(message);
	return 0;
}

static int devices_add(const struct ctl *ctl, struct conn *conn, struct table *table, const Vsd__DeviceListReply *list)
{
	bool found = ctl->n_args == 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->n_devices; i++) {
		const Vsd__Device *device = list->devices[i];

		if (device->soft || (ctl->n_args && strcmp(ctl->args[0], device->name) != 0))
			continue;
		found = true;
		for (size_t j = 0; r == 0 && j < device->n_ports; j++)
			r = port_add(conn, table, device->name, device->ports[j]->number);
	}
	return found ? r : -ENODEV;
}

int ctl_counters(const struct ctl *ctl)
{
	struct table *table;
	struct conn *conn;
	ProtobufCMessage *list;
	int r;

	/* Who may administer sees all of them; others, what they may open. */
	if (conn_open(ctl->admin, &conn) < 0)
		conn = ctl_connect(ctl, false);
	if (!conn)
		return CTL_NO_DAEMON;
	table = table_new("counters", ctl->json, !ctl->no_headings);
	table_column(table, "DEVICE", TABLE_LONG);
	table_column(table, "PORT", TABLE_NUMBER);
	table_column(table, "COUNTER", TABLE_TEXT);
	table_column(table, "VALUE", TABLE_NUMBER);
	r = conn_call(conn, VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &list);
	if (r == 0) {
		r = devices_add(ctl, conn, table, (Vsd__DeviceListReply *)list);
		conn_reply_free(list);
	}
	conn_close(conn);
	if (r == 0)
		r = table_print(table);
	table_free(table);
	return r < 0 ? ctl_failed("counters", r) : CTL_OK;
}
