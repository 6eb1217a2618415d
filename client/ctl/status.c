/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl status: the daemon at a glance. A list of lines for people, one object in JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/table.h"

#define ROWS 16

struct status_row {
	const char *name;
	enum table_kind kind;
	const char *text;
	uint64_t number;
};

static char *uptime_format(char *buf, size_t size, uint64_t seconds)
{
	unsigned days = (unsigned)(seconds / 86400);

	snprintf(buf, size, "%ud %02u:%02u:%02u", days, (unsigned)(seconds / 3600 % 24),
		(unsigned)(seconds / 60 % 60), (unsigned)(seconds % 60));
	return buf;
}

static void status_json(struct table *table, const struct status_row *rows)
{
	for (size_t i = 0; i < ROWS; i++)
		table_column(table, rows[i].name, rows[i].text ? TABLE_TEXT : rows[i].kind);
	table_row(table);
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].text)
			table_text(table, i, rows[i].text);
		else
			table_number(table, i, rows[i].number);
}

static void status_lines(struct table *table, const struct status_row *rows)
{
	char buf[64];

	table_column(table, "NAME", TABLE_TEXT);
	table_column(table, "VALUE", TABLE_LONG);
	for (size_t i = 0; i < ROWS; i++) {
		const char *text = rows[i].text;

		if (!text && rows[i].kind == TABLE_SIZE)
			text = size_format(buf, sizeof(buf), rows[i].number);
		else if (!text && rows[i].kind == TABLE_LONG)
			text = uptime_format(buf, sizeof(buf), rows[i].number);
		else if (!text)
			snprintf(buf, sizeof(buf), "%" PRIu64, rows[i].number);
		table_row(table);
		table_text(table, 0, rows[i].name);
		table_text(table, 1, text ? text : buf);
	}
}

int ctl_status(const struct ctl *ctl)
{
	struct conn *conn = ctl_connect(ctl, false);
	ProtobufCMessage *reply;

	if (!conn)
		return CTL_NO_DAEMON;

	int r = conn_call(conn, VSD__OP__OP_STATUS, NULL, &vsd__status_reply__descriptor, &reply);

	conn_close(conn);
	if (r < 0)
		return ctl_failed("status", r);

	const Vsd__StatusReply *status = (Vsd__StatusReply *)reply;
	/* The time up is a plain number in JSON. */
	const struct status_row rows[ROWS] = {
		{ "version", TABLE_TEXT, status->version, 0 },
		{ "pid", TABLE_NUMBER, NULL, status->pid },
		{ "uptime", ctl->json ? TABLE_NUMBER : TABLE_LONG, NULL, status->uptime },
		{ "socket", TABLE_TEXT, status->socket, 0 },
		{ "config", TABLE_TEXT, status->config, 0 },
		{ "sessions", TABLE_NUMBER, NULL, status->sessions },
		{ "contexts", TABLE_NUMBER, NULL, status->contexts },
		{ "objects", TABLE_NUMBER, NULL, status->objects },
		{ "segments", TABLE_NUMBER, NULL, status->segments },
		{ "wires", TABLE_NUMBER, NULL, status->wires },
		{ "fds", TABLE_NUMBER, NULL, status->fds },
		{ "shared_bytes", TABLE_SIZE, NULL, status->shared_bytes },
		{ "regions", TABLE_NUMBER, NULL, status->regions },
		{ "region_bytes", TABLE_SIZE, NULL, status->region_bytes },
		{ "requests", TABLE_NUMBER, NULL, status->requests },
		{ "refused", TABLE_NUMBER, NULL, status->refused },
	};
	struct table *table = table_new("status", ctl->json, false);

	ctl->json ? status_json(table, rows) : status_lines(table, rows);
	r = table_print(table);
	table_free(table);
	conn_reply_free(reply);
	return r < 0 ? ctl_failed("status", r) : CTL_OK;
}
