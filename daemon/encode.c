/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: listings and EV_CHANGE show the same items. Guarantees: an item is complete or not there.
 */
#include "daemon/encode.h"

#include <stddef.h>

#include "daemon/backend.h"
#include "daemon/census.h"
#include "daemon/session.h"

/* clang-format off */
/* Optional numbers: where each stands on both sides. */
#define FIELD32(bit, name)                                                              \
	{ bit, offsetof(struct item, name), offsetof(Vsd__Item, has_##name), offsetof(Vsd__Item, name), false }
#define FIELD64(bit, name)                                                              \
	{ bit, offsetof(struct item, name), offsetof(Vsd__Item, has_##name), offsetof(Vsd__Item, name), true }

static const struct {
	enum item_field bit;
	size_t from, has, to;
	bool wide;
} fields[] = {
	FIELD32(ITEM_NUMBER, number),	FIELD32(ITEM_PD, pd),
	FIELD32(ITEM_PARENT, parent),	FIELD32(ITEM_SEND_CQ, send_cq),
	FIELD32(ITEM_RECV_CQ, recv_cq), FIELD32(ITEM_SRQ, srq),
	FIELD64(ITEM_ADDR, addr),	FIELD64(ITEM_LENGTH, length),
	FIELD32(ITEM_ACCESS, access),	FIELD32(ITEM_DEPTH, depth),
	FIELD32(ITEM_PEER_PID, peer_pid), FIELD32(ITEM_PEER_NUMBER, peer_number),
	FIELD32(ITEM_USERS, users),	FIELD32(ITEM_GID, gid),
	FIELD32(ITEM_REGION, region),	FIELD32(ITEM_FLAGS, flags),
	FIELD64(ITEM_HUGE, huge),	FIELD32(ITEM_XRCD, xrcd),
};
/* clang-format on */

static void encode_numbers(Vsd__Item *out, const struct item *item)
{
	for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const char *from = (const char *)item + fields[i].from;
		char *to = (char *)out + fields[i].to;

		if (!(item->has & fields[i].bit))
			continue;
		*(protobuf_c_boolean *)(void *)((char *)out + fields[i].has) = 1;
		if (fields[i].wide)
			*(uint64_t *)(void *)to = *(const uint64_t *)(const void *)from;
		else
			*(uint32_t *)(void *)to = *(const uint32_t *)(const void *)from;
	}
}

Vsd__Item *encode_item(
	struct scratch *scratch, const struct item *item, const struct stats_who *who)
{
	Vsd__Item *out = scratch_alloc(scratch, sizeof(*out));

	if (!out)
		return NULL;
	vsd__item__init(out);
	out->type = (Vsd__ObjectType)item->type;
	out->session = item->session;
	out->context = item->context;
	out->handle = item->handle;
	out->pid = item->pid;
	out->uid = item->uid;
	out->command = scratch_strdup(scratch, who->command);
	out->cgroup = scratch_strdup(scratch, who->cgroup);
	out->device = scratch_strdup(scratch, item->device ? item->device : "");
	if (!out->command || !out->cgroup || !out->device)
		return NULL;
	if (item->kind && !(out->kind = scratch_strdup(scratch, item->kind)))
		return NULL;
	if (item->state && !(out->state = scratch_strdup(scratch, item->state)))
		return NULL;
	if (item->name && !(out->name = scratch_strdup(scratch, item->name)))
		return NULL;
	if (item->in_use_by[0] &&
		!(out->in_use_by = scratch_strdup(scratch, item->in_use_by)))
		return NULL;
	if (who->container[0] && !(out->container = scratch_strdup(scratch, who->container)))
		return NULL;
	encode_numbers(out, item);
	return out;
}

static bool add_counter(struct scratch *scratch, Vsd__Item *item, const char *name, uint64_t value)
{
	Vsd__Counter *counter = scratch_alloc(scratch, sizeof(*counter));

	if (!counter)
		return false;
	vsd__counter__init(counter);
	counter->name = scratch_strdup(scratch, name);
	counter->value = value;
	item->counters[item->n_counters++] = counter;
	return counter->name != NULL;
}

bool encode_counters(struct scratch *scratch, Vsd__Item *item, const struct session *session)
{
	uint64_t values[VSD_COUNT_N];

	item->counters = scratch_alloc(scratch, (VSD_COUNT_N + 1) * sizeof(*item->counters));
	if (!item->counters)
		return false;
	/* What its domain was refused for its limits. */
	if (!add_counter(scratch, item, "over_limit", session->domain->account.refused))
		return false;
	if (!stats_counters(session->process, values))
		return true;
	for (unsigned i = 0; i < VSD_COUNT_N; i++) {
		const char *name = stats_counter_name(i);

		if (name && !add_counter(scratch, item, name, values[i]))
			return false;
	}
	return true;
}

bool encode_resources(struct scratch *scratch, Vsd__Item *out, const struct item *item)
{
	out->counters = scratch_alloc(scratch, RDMA_NL_RESOURCES * sizeof(*out->counters));
	if (!out->counters)
		return false;
	for (enum rdma_nl_resource kind = RDMA_NL_CONTEXTS; kind < RDMA_NL_RESOURCES; kind++) {
		if (!add_counter(scratch, out, census_name(kind), item->resources[kind]))
			return false;
	}
	return true;
}

void encode_limits(Vsd__Device *out, const struct device_attr *attr)
{
	out->max_qp = attr->max_qp;
	out->max_qp_wr = attr->max_qp_wr;
	out->max_sge = attr->max_sge;
	out->max_cq = attr->max_cq;
	out->max_cqe = attr->max_cqe;
	out->max_mr = attr->max_mr;
	out->max_pd = attr->max_pd;
	out->max_srq = attr->max_srq;
	out->max_srq_wr = attr->max_srq_wr;
	out->max_ah = attr->max_ah;
	out->max_mw = attr->max_mw;
	out->max_td = attr->max_td;
	out->max_rd_atom = attr->max_rd_atom;
	out->max_mr_size = attr->max_mr_size;
	out->has_max_mcast_grp = 1;
	out->max_mcast_grp = attr->max_mcast_grp;
	out->has_max_mcast_qp_attach = 1;
	out->max_mcast_qp_attach = attr->max_mcast_qp_attach;
	out->has_max_total_mcast_qp_attach = 1;
	out->max_total_mcast_qp_attach = attr->max_total_mcast_qp_attach;
}
