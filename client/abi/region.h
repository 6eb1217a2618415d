/* SPDX-License-Identifier: BSD-2-Clause */
/* An MR on a shared region, from whatever call gives one. */
#ifndef CLIENT_ABI_REGION_H
#define CLIENT_ABI_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/control/control.h"
#include "client/soft/mr.h"

struct verbsd_mr_attr;

struct abi_region_call {
	uint16_t op; /* whose answer is a RegionReply */
	const ProtobufCMessage *request;
	uint32_t spare_key;		   /* as the request has it; 0: none */
	const struct verbsd_mr_attr *attr; /* where and when its pages come, if it is created; NULL: as they are touched */
	/* Maps memory that is no region's, and takes @fd over; NULL: there is none. */
	int (*map)(struct soft_mr *mr, const Vsd__RegionReply *reply, int fd);
};

/*
 * The MR that the daemon answers with, mapped and open. Gives the spare key back unless the MR has it. @created may be
 * NULL. NULL with errno: nothing is left of it.
 */
struct soft_mr *abi_region_mr(struct ibv_pd *pd, const struct abi_region_call *call, bool *created);

#endif
