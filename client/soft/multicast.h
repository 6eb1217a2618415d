/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: the groups that QPs of this process are attached to, and the groups that they send to.
 */
#ifndef SOFT_MULTICAST_H
#define SOFT_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/control/control.h"

struct soft_qp;
struct swqe;
struct vsd_req;

#define MCAST_QPN 0xffffffu

struct mcast_name {
	uint8_t link_layer;
	uint16_t lid; /* 0 on Ethernet, where it counts for nothing */
	union ibv_gid gid;
};

/* ff00::/8, or an IPv4 address of such. */
bool mcast_gid(const union ibv_gid *gid);
/* The name of a group as an address leads to it, or to be attached to. False: it is none. */
bool mcast_name(uint8_t link_layer, const union ibv_gid *gid, uint16_t lid, struct mcast_name *name);

/* For the ABI face, which has the daemon's word. -ENOMEM. */
int soft_mcast_attach(struct soft_qp *qp, const struct mcast_name *name);
void soft_mcast_detach(struct soft_qp *qp, const struct mcast_name *name);
/* To how many it is attached. */
unsigned soft_mcast_groups(const struct soft_qp *qp);
bool soft_mcast_attached(const struct soft_qp *qp, const struct mcast_name *name);

/* Delivers to all QPs of this process that are attached to the group, but @not. False: there was none. @payload begins with
 * a GRH. */
bool mcast_deliver(const struct mcast_name *name, const struct vsd_req *head, const uint8_t *payload,
	const struct soft_qp *not);
/* The same for one that came by a wire: its GRH says where to. */
bool mcast_arrived(const struct vsd_req *head, const uint8_t *payload);

/* Sends a WR whose destination is MCAST_QPN (sq lock). As datagram_send(). */
int mcast_send(struct soft_qp *qp, struct swqe *w);

/* The daemon's answer about a group (progress lock); NULL: it refused. */
void mcast_resolved(const struct mcast_name *name, uint32_t context, const Vsd__McastResolveReply *reply);
/* events.c: asks the daemon, as a context of this device may; answered by mcast_resolved(). */
void rt_mcast_resolve(uint32_t context, const struct mcast_name *name, uint32_t after);

/* The runtime stops. */
void mcast_stop(void);

#endif
