/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The 40 bytes before a datagram's payload: a global route header, or, where the route is RoCE v2 between IPv4 addresses,
 * 20 bytes of nothing and an IPv4 header.
 */
#ifndef CLIENT_SOFT_GRH_H
#define CLIENT_SOFT_GRH_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/control/control.h"

#define GRH_SIZE 40

/* What a datagram of @payload bytes from @port along @ah carries. */
void grh_build(const Vsd__Port *port, const struct ibv_ah_attr *ah, uint32_t payload, uint8_t to[GRH_SIZE]);
/*
 * What the completion says as service level: the address vector's; on Ethernet, as Mellanox's adapters have it and UCX reads
 * it, which header it is: 0 RoCE v1, 9 and 10 RoCE v2 with IPv6 and IPv4.
 */
uint8_t grh_service_level(const Vsd__Port *port, const struct ibv_ah_attr *ah);
/*
 * The way back: fills is_global and grh of @ah. False when the header is for no GID of @port. @grh is what a program
 * hands back to us, so it may be anything.
 */
bool grh_reverse(const Vsd__Port *port, const void *grh, struct ibv_ah_attr *ah);

/* Where a datagram with this header was sent to. @header may be anything. */
void grh_destination(uint8_t link_layer, const void *header, union ibv_gid *gid);

/* Whether a datagram to @lid with this header, or with none (NULL), is meant for the port. @header may be anything. */
bool grh_addresses(const Vsd__Port *port, uint16_t lid, const void *header);

#endif
