/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles, and address vectors made out of a completion's header. An address that leads nowhere is no error
 * here: it is found out by the first datagram sent to it, as on a fabric.
 */
#include "client/abi/abi.h"
#include "client/soft/grh.h"

#include <stdlib.h>
#include <string.h>

#define LID_MULTICAST	0xc000u

int abi_ah_attr_check(const struct soft_context *ctx, const struct ibv_ah_attr *attr)
{
	const Vsd__Port *port = abi_port(ctx, attr->port_num);

	if (!port || attr->sl > 15)
		return -EINVAL;
	if (!attr->is_global)
		return port->link_layer == IBV_LINK_LAYER_ETHERNET ? -EINVAL : 0;
	if (attr->grh.sgid_index >= abi_gid_table_len(port))
		return -EINVAL;
	return abi_gid(port, attr->grh.sgid_index) ? 0 : -ENODATA;
}

static int daemon_create(const struct soft_context *ctx, struct soft_ah *ah)
{
	Vsd__AhCreateRequest request = VSD__AH_CREATE_REQUEST__INIT;

	request.context = ctx->id;
	request.pd = ah->pd->pd.handle;
	request.dlid = ah->attr.dlid;
	request.port = ah->attr.port_num;
	if (ah->attr.is_global) {
		request.has_dgid = true;
		request.dgid.data = ah->attr.grh.dgid.raw;
		request.dgid.len = sizeof(ah->attr.grh.dgid.raw);
	}
	return control_create(VSD__OP__OP_AH_CREATE, &request.base, &ah->ah.handle);
}

static struct ibv_ah *ah_new(struct ibv_pd *pd, const struct ibv_ah_attr *attr)
{
	struct soft_context *ctx = soft_context_of(pd->context);
	int r = abi_ah_attr_check(ctx, attr);

	if (r < 0)
		return abi_null(-r);

	struct soft_ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return abi_null(ENOMEM);
	ah->attr = *attr;
	ah->pd = soft_pd_of(pd);
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	r = daemon_create(ctx, ah);
	if (r < 0) {
		free(ah);
		return abi_null(-r);
	}
	abi_pd_ref(ah->pd);
	abi_context_ref(ctx);
	return &ah->ah;
}

VERBS_API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	ABI_ENTER_PTR(pd->context, ibv_create_ah, "IBVERBS_1.1", pd, attr);
	return ah_new(pd, attr);
}

VERBS_API int ibv_destroy_ah(struct ibv_ah *a)
{
	ABI_ENTER_INT(a->context, ibv_destroy_ah, "IBVERBS_1.1", a);

	struct soft_ah *ah = soft_ah_of(a);
	struct soft_context *ctx = soft_context_of(a->context);
	int r = control_destroy(ctx->id, VSD__OBJECT_TYPE__OBJ_AH, a->handle);

	if (r < 0)
		return abi_errno(r);
	abi_pd_unref(ah->pd);
	free(ah);
	abi_context_unref(ctx);
	return 0;
}

/* The way back to whoever sent what @wc completed. 0 or a negative errno. */
static int attr_from_wc(const struct soft_context *ctx, uint8_t number, const struct ibv_wc *wc,
	const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const Vsd__Port *port = abi_port(ctx, number);

	if (!port)
		return -EINVAL;

	struct ibv_ah_attr out = {
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = number,
	};

	if (wc->wc_flags & IBV_WC_GRH && !grh_reverse(port, grh, &out))
		return -EINVAL;
	*attr = out;
	return 0;
}

VERBS_API int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc,
	struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	ABI_ENTER_MINUS(c, ibv_init_ah_from_wc, "IBVERBS_1.1", c, port, wc, grh, attr);

	int r = attr_from_wc(soft_context_of(c), port, wc, grh, attr);

	return r < 0 ? abi_minus(-r) : 0;
}

VERBS_API struct ibv_ah *ibv_create_ah_from_wc(
	struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	ABI_ENTER_PTR(pd->context, ibv_create_ah_from_wc, "IBVERBS_1.1", pd, wc, grh, port);

	struct ibv_ah_attr attr;
	int r = attr_from_wc(soft_context_of(pd->context), port, wc, grh, &attr);

	return r < 0 ? abi_null(-r) : ah_new(pd, &attr);
}

/* A link-local GID carries the MAC address it was made of; others would need a neighbour table. */
VERBS_API int ibv_resolve_eth_l2_from_gid(
	struct ibv_context *c, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid)
{
	ABI_ENTER_INT(c, ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1", c, attr, mac, vid);

	const uint8_t *gid = attr->grh.dgid.raw;

	if (!attr->is_global || gid[0] != 0xfe || (gid[1] & 0xc0) != 0x80)
		return abi_errno(-EINVAL);
	memcpy(mac, gid + 8, 3);
	memcpy(mac + 3, gid + 13, 3);
	mac[0] ^= 2;
	if (vid)
		*vid = 0xffff;
	return 0;
}
