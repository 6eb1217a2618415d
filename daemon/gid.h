/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The GIDs of a port: one on InfiniBand; on Ethernet what a RoCE adapter makes of its network interface's addresses.
 */
#ifndef DAEMON_GID_H
#define DAEMON_GID_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"

#define GID_SIZE      16
#define GID_TABLE_MAX 16

/* enum ibv_gid_type */
enum gid_type { GID_IB = 0, GID_ROCE_V1 = 1, GID_ROCE_V2 = 2 };

struct gid {
	uint8_t raw[GID_SIZE];
	uint32_t type;
};

struct gid_table {
	struct gid gids[GID_TABLE_MAX]; /* by index, without gaps */
	uint32_t n;
	char netdev[CONFIG_NETDEV_MAX + 1]; /* "": none */
};

/*
 * The table of that device, with the addresses that the host has now. What the kernel does not tell is not in it. No
 * byte of *@table is left as it was, so that two can be compared.
 */
void gid_table_make(const struct device_config *config, struct gid_table *table);

/* The MAC address that a device without an interface has, by its GUID. */
void gid_mac(uint64_t guid, uint8_t mac[6]);

#endif
