/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One table says which field of an item is which column, and for which kinds of object it is worth a column on a
 * terminal. JSON has them all, so that a program's view does not depend on ours.
 */
#include "client/ctl/items.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "client/ctl/ctl.h"

#define QP      (1u << VSD__OBJECT_TYPE__OBJ_QP)
#define AH      (1u << VSD__OBJECT_TYPE__OBJ_AH)
#define SRQ     (1u << VSD__OBJECT_TYPE__OBJ_SRQ)
#define CQ      (1u << VSD__OBJECT_TYPE__OBJ_CQ)
#define MW      (1u << VSD__OBJECT_TYPE__OBJ_MW)
#define MR      (1u << VSD__OBJECT_TYPE__OBJ_MR)
#define PDOMAIN (1u << VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN)
#define TD      (1u << VSD__OBJECT_TYPE__OBJ_TD)
#define PD      (1u << VSD__OBJECT_TYPE__OBJ_PD)
#define DM      (1u << VSD__OBJECT_TYPE__OBJ_DM)
#define CONTEXT (1u << VSD__OBJECT_TYPE__OBJ_CONTEXT)
#define WIRE    (1u << VSD__OBJECT_TYPE__OBJ_WIRE)
#define CLIENT  (1u << VSD__OBJECT_TYPE__OBJ_CLIENT)
#define REGION  (1u << VSD__OBJECT_TYPE__OBJ_REGION)
#define MCAST   (1u << VSD__OBJECT_TYPE__OBJ_MCAST)
#define XRCD    (1u << VSD__OBJECT_TYPE__OBJ_XRCD)
#define MIXED   (1u << ITEMS_ALL)
#define OBJECTS (QP | AH | SRQ | CQ | MW | MR | PDOMAIN | TD | PD | DM | XRCD | CONTEXT | WIRE)
#define JSON    0u
#define SPARED  (1u << 31) /* not on a terminal that is too narrow */
#define ONLY    (1u << 30) /* null in JSON for other kinds */

static const char *const type_names[] = {
	[VSD__OBJECT_TYPE__OBJ_QP] = "qp",
	[VSD__OBJECT_TYPE__OBJ_AH] = "ah",
	[VSD__OBJECT_TYPE__OBJ_SRQ] = "srq",
	[VSD__OBJECT_TYPE__OBJ_CQ] = "cq",
	[VSD__OBJECT_TYPE__OBJ_MW] = "mw",
	[VSD__OBJECT_TYPE__OBJ_MR] = "mr",
	[VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN] = "parent-domain",
	[VSD__OBJECT_TYPE__OBJ_TD] = "td",
	[VSD__OBJECT_TYPE__OBJ_PD] = "pd",
	[VSD__OBJECT_TYPE__OBJ_DM] = "dm",
	[VSD__OBJECT_TYPE__OBJ_CONTEXT] = "context",
	[VSD__OBJECT_TYPE__OBJ_WIRE] = "wire",
	[VSD__OBJECT_TYPE__OBJ_CLIENT] = "client",
	[VSD__OBJECT_TYPE__OBJ_REGION] = "region",
	[VSD__OBJECT_TYPE__OBJ_MCAST] = "mcast",
	[VSD__OBJECT_TYPE__OBJ_XRCD] = "xrcd",
	[VSD__OBJECT_TYPE__OBJ_DEVICE] = "device",
};

#define N_TYPES (sizeof(type_names) / sizeof(type_names[0]))

enum field_kind {
	FIELD_U32,
	FIELD_U64,
	FIELD_STRING,
	FIELD_TYPE,
	FIELD_COUNTER,
	FIELD_OWNER, /* a number; 0: nobody */
	FIELD_OWNER64,
	FIELD_MODE,
	FIELD_PERSIST,
};

#define ALWAYS      0, 0
#define AT(member)  offsetof(Vsd__Item, member), 0
#define HAS(member) offsetof(Vsd__Item, member), offsetof(Vsd__Item, has_##member)

/* In the order of the columns. What comes last is cut first where a terminal is narrow. */
static const struct item_column {
	const char *name;
	enum table_kind kind;
	enum field_kind field;
	unsigned types; /* whose table has the column */
	size_t offset, has;
} columns[] = {
	{ "TYPE", TABLE_TEXT, FIELD_TYPE, MIXED, AT(type) },
	{ "CLIENT", TABLE_NUMBER, FIELD_OWNER64, OBJECTS | CLIENT | MIXED, AT(session) },
	{ "CONTEXT", TABLE_NUMBER, FIELD_U32, JSON, AT(context) },
	{ "ID", TABLE_NUMBER, FIELD_U32, OBJECTS | REGION | MCAST | MIXED, AT(handle) },
	{ "NAME", TABLE_LONG, FIELD_STRING, MR | REGION | MCAST, AT(name) },
	{ "NUMBER", TABLE_NUMBER, FIELD_U32, QP | SRQ | XRCD | WIRE | MIXED, HAS(number) },
	{ "KEY", TABLE_HEX, FIELD_U32, ONLY | MR | MW | REGION, HAS(number) },
	{ "MLID", TABLE_HEX, FIELD_U32, ONLY | MCAST, HAS(number) },
	{ "KIND", TABLE_TEXT, FIELD_STRING, QP | SRQ | CQ | MW | XRCD | CONTEXT | WIRE | MCAST | MIXED, AT(kind) },
	{ "STATE", TABLE_TEXT, FIELD_STRING, QP | CONTEXT | WIRE | MIXED, AT(state) },
	{ "PD", TABLE_NUMBER, FIELD_U32, QP | AH | SRQ | MR | MW | PDOMAIN | MIXED, HAS(pd) },
	{ "PARENT", TABLE_NUMBER, FIELD_U32, CQ | PDOMAIN, HAS(parent) },
	{ "SEND_CQ", TABLE_NUMBER, FIELD_U32, QP, HAS(send_cq) },
	{ "RECV_CQ", TABLE_NUMBER, FIELD_U32, QP | SRQ, HAS(recv_cq) },
	{ "SRQ", TABLE_NUMBER, FIELD_U32, SPARED | QP, HAS(srq) },
	{ "XRCD", TABLE_NUMBER, FIELD_U32, SPARED | QP | SRQ, HAS(xrcd) },
	{ "LENGTH", TABLE_SIZE, FIELD_U64, MR | DM | REGION, HAS(length) },
	{ "USERS", TABLE_NUMBER, FIELD_U32,
		SPARED | PD | TD | PDOMAIN | DM | XRCD | CQ | SRQ | CONTEXT | CLIENT | MR | REGION | MCAST,
		HAS(users) },
	{ "MODE", TABLE_TEXT, FIELD_MODE, MR | REGION, HAS(flags) },
	{ "PERSISTENT", TABLE_BOOL, FIELD_PERSIST, MR | REGION, HAS(flags) },
	{ "PAGE_SIZE", TABLE_SIZE, FIELD_U64, SPARED | REGION, HAS(huge) },
	{ "REGION", TABLE_NUMBER, FIELD_U32, JSON, HAS(region) },
	{ "ADDRESS", TABLE_HEX, FIELD_U64, SPARED | MR | REGION, HAS(addr) },
	{ "ACCESS", TABLE_HEX, FIELD_U32, SPARED | MR, HAS(access) },
	{ "DEPTH", TABLE_NUMBER, FIELD_U32, QP | CQ | SRQ | WIRE, HAS(depth) },
	{ "PEER", TABLE_NUMBER, FIELD_U32, QP | WIRE, HAS(peer_number) },
	{ "PEER_PID", TABLE_NUMBER, FIELD_U32, SPARED | QP | WIRE, HAS(peer_pid) },
	{ "PID", TABLE_NUMBER, FIELD_OWNER, OBJECTS | CLIENT | MIXED, AT(pid) },
	{ "UID", TABLE_NUMBER, FIELD_U32, OBJECTS | REGION | MCAST | CLIENT | MIXED, AT(uid) },
	{ "GID", TABLE_NUMBER, FIELD_U32, JSON, HAS(gid) },
	{ "BYTES_SENT", TABLE_SIZE, FIELD_COUNTER, CLIENT, ALWAYS },
	{ "BYTES_RECEIVED", TABLE_SIZE, FIELD_COUNTER, SPARED | CLIENT, ALWAYS },
	{ "ERRORS", TABLE_NUMBER, FIELD_COUNTER, SPARED | CLIENT, ALWAYS },
	{ "POSTS", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "RECVS", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "COMPLETIONS", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "RNR", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "KICKS", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "WAKEUPS", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "DROPPED", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "INITIATOR_RUN", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "PULLED", TABLE_NUMBER, FIELD_COUNTER, JSON, ALWAYS },
	{ "PDS", TABLE_NUMBER, FIELD_COUNTER, CONTEXT, ALWAYS },
	{ "MRS", TABLE_NUMBER, FIELD_COUNTER, CONTEXT, ALWAYS },
	{ "QPS", TABLE_NUMBER, FIELD_COUNTER, CONTEXT, ALWAYS },
	{ "CQS", TABLE_NUMBER, FIELD_COUNTER, CONTEXT, ALWAYS },
	{ "SRQS", TABLE_NUMBER, FIELD_COUNTER, SPARED | CONTEXT, ALWAYS },
	{ "IN_USE_BY", TABLE_LONG, FIELD_STRING, PD | TD | PDOMAIN | DM | XRCD | CQ | SRQ | MCAST, AT(in_use_by) },
	{ "DEVICE", TABLE_LONG, FIELD_STRING, SPARED | OBJECTS | MIXED, AT(device) },
	{ "COMMAND", TABLE_LONG, FIELD_STRING, OBJECTS | CLIENT | MIXED, AT(command) },
	{ "CONTAINER", TABLE_LONG, FIELD_STRING, JSON, AT(container) },
	{ "CGROUP", TABLE_LONG, FIELD_STRING, OBJECTS | CLIENT | MIXED, AT(cgroup) },
};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

const char *item_type_name(unsigned type)
{
	return type < N_TYPES ? type_names[type] : NULL;
}

unsigned item_type_find(const char *name)
{
	for (unsigned i = 0; i < N_TYPES; i++)
		if (type_names[i] && strcmp(type_names[i], name) == 0)
			return i;
	return 0;
}

static bool column_shown(const struct item_column *column, unsigned type, bool json)
{
	return json || column->types & (1u << type);
}

/* What is short on a terminal and clear in JSON. */
static const char *heading(const struct item_column *column)
{
	static const char *const headings[][2] = {
		{ "SEND_CQ", "SCQ" },
		{ "RECV_CQ", "RCQ" },
		{ "IN_USE_BY", "IN USE BY" },
		{ "BYTES_SENT", "SENT" },
		{ "BYTES_RECEIVED", "RECEIVED" },
		{ "PERSISTENT", "KEPT" },
		{ "PAGE_SIZE", "PAGES" },
	};

	for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++)
		if (strcmp(column->name, headings[i][0]) == 0)
			return headings[i][1];
	return column->name;
}

struct table *items_table(const char *name, unsigned type, bool json, bool headings)
{
	struct table *table = table_new(name, json, headings);

	for (size_t i = 0; i < N_COLUMNS; i++)
		if (column_shown(&columns[i], type, json)) {
			table_column(table, json ? columns[i].name : heading(&columns[i]),
				columns[i].kind);
			if (columns[i].types & SPARED)
				table_droppable(table);
		}
	return table;
}

/* Counters are known by their names, which are the columns' in lower case. */
static void counter_add(struct table *table, size_t at, const char *name, const Vsd__Item *item)
{
	for (size_t i = 0; i < item->n_counters; i++)
		if (strcasecmp(item->counters[i]->name, name) == 0)
			table_number(table, at, item->counters[i]->value);
}

static void cell_add(
	struct table *table, size_t at, const struct item_column *column, const Vsd__Item *item)
{
	const uint8_t *field = (const uint8_t *)item + column->offset;

	if (column->types & ONLY && !(column->types & (1u << item->type)))
		return;
	if (column->has && !*(const protobuf_c_boolean *)((const uint8_t *)item + column->has))
		return;
	switch (column->field) {
	case FIELD_U32:
		table_number(table, at, *(const uint32_t *)field);
		break;
	case FIELD_U64:
		table_number(table, at, *(const uint64_t *)field);
		break;
	case FIELD_STRING:
		table_text(table, at, *(char *const *)field);
		break;
	case FIELD_TYPE:
		table_text(table, at, item_type_name((unsigned)item->type));
		break;
	case FIELD_OWNER:
		if (*(const uint32_t *)field)
			table_number(table, at, *(const uint32_t *)field);
		break;
	case FIELD_OWNER64:
		if (*(const uint64_t *)field)
			table_number(table, at, *(const uint64_t *)field);
		break;
	case FIELD_MODE:
		table_text(table, at,
			item->flags & VSD__REGION_FLAG__REGION_READ_ONLY ? "ro" : "rw");
		break;
	case FIELD_PERSIST:
		table_number(table, at,
			(item->flags & VSD__REGION_FLAG__REGION_PERSIST) != 0);
		break;
	case FIELD_COUNTER:
		counter_add(table, at, column->name, item);
		break;
	}
}

void items_add(struct table *table, unsigned type, bool json, const Vsd__Item *item)
{
	size_t at = 0;

	table_row(table);
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (column_shown(&columns[i], type, json))
			cell_add(table, at++, &columns[i], item);
}

/* The rows of a list of MRs are those of the regions that no MR is on as well: they take memory. */
static bool row_wanted(unsigned type, const Vsd__Item *item)
{
	return type != VSD__OBJECT_TYPE__OBJ_MR ||
	       item->type != VSD__OBJECT_TYPE__OBJ_REGION || item->users == 0;
}

static int list_type(struct conn *conn, unsigned type, bool all, struct table *table,
	unsigned table_type, bool json)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	bool more = true;

	request.has_type = type != ITEMS_ALL;
	request.type = (Vsd__ObjectType)type;
	request.all = all;
	while (more) {
		ProtobufCMessage *msg;
		int r = conn_call(
			conn, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor, &msg);

		if (r < 0)
			return r;

		const Vsd__ListReply *reply = (Vsd__ListReply *)msg;

		for (size_t i = 0; i < reply->n_items; i++)
			if (row_wanted(table_type, reply->items[i]))
				items_add(table, table_type, json, reply->items[i]);
		/* A daemon that goes in circles must not keep us. */
		more = reply->has_next_page && reply->next_page > request.page;
		request.page = reply->next_page;
		conn_reply_free(msg);
	}
	return 0;
}

int items_list(struct conn *conn, struct table *table, unsigned type, bool json, bool all)
{
	int r = list_type(conn, type, all, table, type, json);

	if (r == 0 && type == VSD__OBJECT_TYPE__OBJ_MR)
		r = list_type(conn, VSD__OBJECT_TYPE__OBJ_REGION, all, table, type, json);
	return r;
}

int items_show(const struct ctl *ctl, const char *name, unsigned type)
{
	bool all;
	struct conn *conn = ctl_connect_widest(ctl, &all);

	if (!conn)
		return CTL_NO_DAEMON;

	struct table *table = items_table(name, type, ctl->json, !ctl->no_headings);
	int r = items_list(conn, table, type, ctl->json, all);

	conn_close(conn);
	if (r == 0)
		r = table_print(table);
	table_free(table);
	return r < 0 ? ctl_failed("list", r) : CTL_OK;
}
