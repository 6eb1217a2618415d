/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: the device that needs no hardware. Everything that moves bytes is in the clients; here are only its numbers.
 * Guarantees: no call fails, so that what the limits allow can be had.
 */
#include "daemon/backend.h"

#include <stddef.h>

#define NODE_CA      1 /* IBV_NODE_CA */
#define TRANSPORT_IB 0 /* IBV_TRANSPORT_IB */

static int soft_open(struct device *device, struct device_attr *attr)
{
	(void)device;
	*attr = (struct device_attr){
		.soft = true,
		.node_type = NODE_CA,
		.transport = TRANSPORT_IB,
		.max_qp = 16384,
		.max_qp_wr = 16384,
		.max_sge = 32,
		.max_inline = 1024,
		.max_cq = 65536,
		.max_cqe = 4194303,
		.max_mr = 1 << 20,
		.max_pd = 32768,
		.max_td = 32768,
		.max_parent_domain = 32768,
		.max_srq = 16384,
		.max_srq_wr = 32768,
		.max_ah = 65536,
		.max_mw = 65536,
		.max_rd_atom = 16,
		.max_mr_size = 1ull << 47,
		.max_dm = 4096,
		.max_mcast_grp = 2048,
		.max_mcast_qp_attach = 256,
		.max_total_mcast_qp_attach = 8192,
		.max_xrcd = 4096,
		.max_dm_size = 4 << 20,
		.max_msg_sz = 1u << 31,
		.pkey = 0xffff,
	};
	return 0;
}

static void soft_close(struct device *device)
{
	(void)device;
}

static int soft_object_new(struct device *device, struct object *object)
{
	(void)device;
	(void)object;
	return 0;
}

static void soft_object_free(struct device *device, struct object *object)
{
	(void)device;
	(void)object;
}

const struct backend backend_soft = {
	.name = "soft",
	.open = soft_open,
	.close = soft_close,
	.object_new = soft_object_new,
	.object_free = soft_object_free,
};
