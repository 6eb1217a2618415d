/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl watch: a line for each object that comes or goes, until the daemon ends or the reader does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/escape.h"
#include "client/ctl/items.h"

static void device_text(const Vsd__EvChange *change)
{
	const Vsd__Item *item = change->item;
	char device[64 * ESCAPE_MAX], state[64];

	printf("%c %-13s %s", change->added ? '+' : '-', "device", escape(device, sizeof(device), item->device));
	if (item->has_number)
		printf(" port %" PRIu32, item->number);
	printf(" %s\n", escape(state, sizeof(state), item->state ? item->state : "?"));
}

static void change_text(const Vsd__EvChange *change)
{
	const Vsd__Item *item = change->item;
	const char *type = item_type_name((unsigned)item->type);
	char command[64 * ESCAPE_MAX], device[64 * ESCAPE_MAX], kind[64], state[64];
	char name[65 * ESCAPE_MAX];

	if (item->type == VSD__OBJECT_TYPE__OBJ_DEVICE) {
		device_text(change);
		return;
	}
	printf("%c %-13s", change->added ? '+' : '-', type ? type : "?");
	if (item->session)
		printf(" client %" PRIu64, item->session);
	printf(" id %" PRIu32, item->handle);
	if (item->name && *item->name)
		printf(" name %s", escape(name, sizeof(name), item->name));
	if (item->has_number)
		printf(" number %" PRIu32, item->number);
	if (item->kind && *item->kind)
		printf(" %s", escape(kind, sizeof(kind), item->kind));
	if (item->state && *item->state)
		printf(" %s", escape(state, sizeof(state), item->state));
	if (item->device && *item->device)
		printf(" device %s", escape(device, sizeof(device), item->device));
	if (item->pid)
		printf(" pid %" PRIu32, item->pid);
	printf(" uid %" PRIu32 "%s%s\n", item->uid, *item->command ? " " : "",
		escape(command, sizeof(command), item->command));
}

static void change_json(const Vsd__EvChange *change)
{
	struct table *table =
		items_table(change->added ? "added" : "removed", ITEMS_ALL, true, false);

	items_add(table, ITEMS_ALL, true, change->item);

	char *line = table_line(table);

	puts(line);
	free(line);
	table_free(table);
}

int ctl_watch(const struct ctl *ctl)
{
	bool all;
	struct conn *conn = ctl_connect_widest(ctl, &all);

	if (!conn)
		return CTL_NO_DAEMON;

	int r = conn_call(conn, VSD__OP__OP_WATCH, NULL, NULL, NULL);

	while (r == 0) {
		ProtobufCMessage *event;

		r = conn_event(conn, VSD__OP__EV_CHANGE, &vsd__ev_change__descriptor, &event);
		if (r < 0)
			break;
		ctl->json ? change_json((Vsd__EvChange *)event)
			  : change_text((Vsd__EvChange *)event);
		conn_reply_free(event);
		/* main() says what is wrong with the output. */
		if (fflush(stdout) != 0)
			break;
	}
	conn_close(conn);
	return r < 0 ? ctl_failed("watch", r) : CTL_OK;
}
