/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a context is asked: device, port, GIDs, P_Keys, clock. The answers are what the daemon said when the context
 * was opened. Structs grow with the library's version, so each is filled no further than its caller's size.
 */
#include "client/abi/abi.h"

#include <endian.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/attributes.h"

#define PHYS_LINK_UP	   5
#define PHYS_DISABLED	   3
#define PAGE_SIZES	   0xfffff000 /* every power of two from 4 KiB on */
#define CLOCK_KHZ	   1000000    /* completion timestamps count nanoseconds */
#define PORT_CAP_IP_GIDS   (1 << 26)
#define PORT_SUBNET_PERIOD 18
#define VENDOR_NONE	   0xffffff /* as software devices say: no OUI is ours */
#define DEVICE_ATOMIC_WRITE (1ull << 40) /* IB_UVERBS_DEVICE_ATOMIC_WRITE of newer headers */

/* --- device -------------------------------------------------------------------------------------------------------- */

static void device_identity(const Vsd__Device *info, struct ibv_device_attr *attr)
{
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", PACKAGE_VERSION);
	attr->node_guid = htobe64(info->guid);
	attr->sys_image_guid = htobe64(info->guid);
	attr->vendor_id = VENDOR_NONE;
	attr->phys_port_cnt = (uint8_t)info->n_ports;
	attr->max_pkeys = info->n_ports ? (uint16_t)info->ports[0]->n_pkeys : 0;
}

static void device_limits(const Vsd__Device *info, struct ibv_device_attr *attr)
{
	uint64_t responders = (uint64_t)info->max_qp * info->max_rd_atom;

	attr->max_mr_size = info->max_mr_size;
	attr->page_size_cap = PAGE_SIZES;
	attr->max_qp = (int)info->max_qp;
	attr->max_qp_wr = (int)info->max_qp_wr;
	attr->max_sge = (int)info->max_sge;
	attr->max_sge_rd = (int)info->max_sge;
	attr->max_cq = (int)info->max_cq;
	attr->max_cqe = (int)info->max_cqe;
	attr->max_mr = (int)info->max_mr;
	attr->max_pd = (int)info->max_pd;
	attr->max_qp_rd_atom = (int)info->max_rd_atom;
	attr->max_res_rd_atom = responders > INT32_MAX ? INT32_MAX : (int)responders;
	attr->max_qp_init_rd_atom = (int)info->max_rd_atom;
	attr->max_mw = (int)info->max_mw;
	attr->max_ah = (int)info->max_ah;
	attr->max_mcast_grp = (int)info->max_mcast_grp;
	attr->max_mcast_qp_attach = (int)info->max_mcast_qp_attach;
	attr->max_total_mcast_qp_attach = (int)info->max_total_mcast_qp_attach;
	attr->max_srq = (int)info->max_srq;
	attr->max_srq_wr = (int)info->max_srq_wr;
	attr->max_srq_sge = (int)info->max_sge;
}

static void device_fill(const struct soft_context *ctx, struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	device_identity(ctx->info, attr);
	device_limits(ctx->info, attr);
	attr->atomic_cap = ctx->info->has_atomic_cap ? (enum ibv_atomic_cap)ctx->info->atomic_cap : IBV_ATOMIC_GLOB;
	attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
				 IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_UD_AV_PORT_ENFORCE |
				 IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				 IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_SRQ_RESIZE;
	if (ctx->info->has_max_xrcd && ctx->info->max_xrcd)
		attr->device_cap_flags |= IBV_DEVICE_XRC;
}

VERBS_API int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	ABI_ENTER_INT(c, ibv_query_device, "IBVERBS_1.1", c, attr);
	device_fill(soft_context_of(c), attr);
	return 0;
}

/* All that there is: nothing is pinned. */
#define ODP_SENDS (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)

#define XRC_ODP	  (ODP_SENDS | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

static const struct ibv_odp_caps odp_caps = {
	.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
	.per_transport_caps = {
		.rc_odp_caps = ODP_SENDS | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
		.uc_odp_caps = ODP_SENDS | IBV_ODP_SUPPORT_WRITE,
		.ud_odp_caps = ODP_SENDS,
	},
};

int abi_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t size)
{
	/* In a child of fork too: what is asked for is in its memory, and it may want to know how much device memory it can have. */
	if ((input && input->comp_mask) || size < sizeof(attr->orig_attr))
		return abi_errno(-EINVAL);

	struct ibv_device_attr_ex full = { 0 };

	device_fill(soft_context_of(c), &full.orig_attr);
	full.completion_timestamp_mask = UINT64_MAX;
	full.hca_core_clock = CLOCK_KHZ;
	full.max_dm_size = soft_context_of(c)->info->has_max_dm_size ? soft_context_of(c)->info->max_dm_size : 0;
	full.odp_caps = odp_caps;
	full.cq_mod_caps.max_cq_count = full.cq_mod_caps.max_cq_period = UINT16_MAX; /* accepted, whatever it is */
	full.xrc_odp_caps = XRC_ODP;
	abi_tag_caps(&full.tm_caps);
	abi_pacing_caps(&full.packet_pacing_caps);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags | DEVICE_ATOMIC_WRITE;
	full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int abi_query_rt_values(struct ibv_context *c, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	if (abi_foreign(c))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (asked & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return abi_errno(-EINVAL);
	if (asked & IBV_VALUES_MASK_RAW_CLOCK)
		clock_gettime(CLOCK_MONOTONIC_RAW, &values->raw_clock);
	return 0;
}

/* --- port ---------------------------------------------------------------------------------------------------------- */

const Vsd__Port *abi_port(const struct soft_context *ctx, uint32_t number)
{
	for (size_t i = 0; i < ctx->info->n_ports; i++)
		if (ctx->info->ports[i]->number == number)
			return ctx->info->ports[i];
	return NULL;
}

uint32_t abi_gid_table_len(const Vsd__Port *port)
{
	return port_gids(port);
}

static void port_fill(const Vsd__Port *port, struct ibv_port_attr *attr)
{
	/* It follows the daemon's word (client/soft/async.c). */
	uint32_t state = __atomic_load_n(&port->state, __ATOMIC_RELAXED);
	bool up = state == IBV_PORT_ACTIVE;

	*attr = (struct ibv_port_attr){
		.state = (enum ibv_port_state)state,
		.max_mtu = (enum ibv_mtu)port->max_mtu,
		.active_mtu = (enum ibv_mtu)port->active_mtu,
		.gid_tbl_len = (int)abi_gid_table_len(port),
		.port_cap_flags = PORT_CAP_IP_GIDS,
		.max_msg_sz = port->max_msg_sz,
		.pkey_tbl_len = (uint16_t)port->n_pkeys,
		.lid = (uint16_t)port->lid,
		.sm_lid = (uint16_t)port->sm_lid,
		.max_vl_num = 1,
		.subnet_timeout = PORT_SUBNET_PERIOD,
		.active_width = (uint8_t)port->active_width,
		.active_speed = (uint8_t)port->active_speed,
		.phys_state = up ? PHYS_LINK_UP : PHYS_DISABLED,
		.link_layer = (uint8_t)port->link_layer,
	};
}

int abi_query_port(
	struct ibv_context *c, uint8_t number, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr full;

	if (abi_foreign(c))
		return abi_errno(-ABI_CHILD_ERRNO);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	if (!port)
		return abi_errno(-EINVAL);
	port_fill(port, &full);
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

/* Callers of the symbol have the struct as it was before port_cap_flags2. */
VERBS_API int ibv_query_port(
	struct ibv_context *c, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	ABI_ENTER_INT(c, ibv_query_port, "IBVERBS_1.1", c, number, attr);
	return abi_query_port(c, number, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* --- GIDs ---------------------------------------------------------------------------------------------------------- */

const Vsd__Gid *abi_gid(const Vsd__Port *port, uint32_t index)
{
	for (size_t i = 0; i < port->n_gids; i++)
		if (port->gids[i]->index == index)
			return port->gids[i];
	return NULL;
}

static void gid_copy(union ibv_gid *gid, const Vsd__Gid *from)
{
	memset(gid, 0, sizeof(*gid));
	if (from && from->raw.len == sizeof(gid->raw))
		memcpy(gid->raw, from->raw.data, sizeof(gid->raw));
}

VERBS_API int ibv_query_gid(
	struct ibv_context *c, uint8_t number, int index, union ibv_gid *gid)
{
	ABI_ENTER_MINUS(c, ibv_query_gid, "IBVERBS_1.1", c, number, index, gid);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	if (!port || index < 0 || (uint32_t)index >= abi_gid_table_len(port))
		return abi_minus(EINVAL);
	gid_copy(gid, abi_gid(port, (uint32_t)index));
	return 0;
}

/* An entry as the caller knows it: what it does not know stays out, what we do not know is zero. */
static void entry_fill(void *entry, size_t size, uint32_t port_num, const Vsd__Gid *gid)
{
	struct ibv_gid_entry full = {
		.gid_index = gid->index,
		.port_num = port_num,
		.gid_type = gid->type,
		.ndev_ifindex = gid->netdev ? if_nametoindex(gid->netdev) : 0,
	};

	gid_copy(&full.gid, gid);
	memset(entry, 0, size);
	memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
}

VERBS_API int _ibv_query_gid_ex(struct ibv_context *c, uint32_t number, uint32_t index,
	struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	ABI_ENTER_INT(
		c, _ibv_query_gid_ex, "IBVERBS_1.11", c, number, index, entry, flags, size);
	if (flags)
		return abi_errno(-EOPNOTSUPP);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	if (!port || index >= abi_gid_table_len(port))
		return abi_errno(-EINVAL);

	const Vsd__Gid *gid = abi_gid(port, index);

	if (!gid)
		return abi_errno(-ENODATA);
	entry_fill(entry, size, number, gid);
	return 0;
}

static bool gid_is_empty(const Vsd__Gid *gid)
{
	union ibv_gid value, zero = { .raw = { 0 } };

	gid_copy(&value, gid);
	return memcmp(&value, &zero, sizeof(zero)) == 0;
}

VERBS_API ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries,
	size_t max, uint32_t flags, size_t size)
{
	if (!abi_ours(c))
		return REAL_INT(-EOPNOTSUPP, _ibv_query_gid_table, "IBVERBS_1.11", c, entries, max,
			flags, size);
	if (abi_foreign(c))
		return -ABI_CHILD_ERRNO;
	if (flags)
		return -EOPNOTSUPP;

	const Vsd__Device *info = soft_context_of(c)->info;
	size_t n = 0;

	for (size_t p = 0; p < info->n_ports; p++) {
		const Vsd__Port *port = info->ports[p];

		for (size_t i = 0; i < port->n_gids; i++) {
			if (gid_is_empty(port->gids[i]))
				continue;
			if (n == max)
				return -EINVAL;
			entry_fill((uint8_t *)entries + n * size, size, port->number,
				port->gids[i]);
			n++;
		}
	}
	return (ssize_t)n;
}

/* Provider-only by its version, yet ibv_devinfo and pyverbs call it. 0: InfiniBand or RoCE v1, 1: RoCE v2. */
int ibv_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type);

VERBS_API int ibv_query_gid_type(
	struct ibv_context *c, uint8_t number, unsigned index, unsigned *type)
{
	ABI_ENTER_MINUS(c, ibv_query_gid_type, "IBVERBS_PRIVATE_34", c, number, index, type);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	if (!port || index >= abi_gid_table_len(port))
		return abi_minus(EINVAL);

	const Vsd__Gid *gid = abi_gid(port, index);

	*type = gid && gid->type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
	return 0;
}

/* --- P_Keys -------------------------------------------------------------------------------------------------------- */

VERBS_API int ibv_query_pkey(struct ibv_context *c, uint8_t number, int index, __be16 *pkey)
{
	ABI_ENTER_MINUS(c, ibv_query_pkey, "IBVERBS_1.1", c, number, index, pkey);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	if (!port || index < 0 || (size_t)index >= port->n_pkeys)
		return abi_minus(EINVAL);
	*pkey = htobe16((uint16_t)port->pkeys[index]);
	return 0;
}

VERBS_API int ibv_get_pkey_index(struct ibv_context *c, uint8_t number, __be16 pkey)
{
	ABI_ENTER_MINUS(c, ibv_get_pkey_index, "IBVERBS_1.5", c, number, pkey);

	const Vsd__Port *port = abi_port(soft_context_of(c), number);

	for (size_t i = 0; port && i < port->n_pkeys; i++)
		if (htobe16((uint16_t)port->pkeys[i]) == pkey)
			return (int)i;
	return abi_minus(EINVAL);
}
