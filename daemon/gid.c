/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: programs for RoCE choose a GID by its kind, so the table has to look like an adapter's. Guarantees: first the
 * link-local address, then the IPv4 and then the global IPv6 addresses of one interface, each as RoCE v1 and v2; what
 * does not fit is left out.
 */
#include "daemon/gid.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>

#define AUTO "auto"
#define NONE "none"

static void put_be64(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> (56 - 8 * i));
}

static void add(struct gid_table *table, const uint8_t raw[GID_SIZE], enum gid_type type)
{
	struct gid *gid = &table->gids[table->n];

	if (table->n == GID_TABLE_MAX)
		return;
	memcpy(gid->raw, raw, GID_SIZE);
	gid->type = type;
	table->n++;
}

static void add_roce(struct gid_table *table, const uint8_t raw[GID_SIZE])
{
	add(table, raw, GID_ROCE_V1);
	add(table, raw, GID_ROCE_V2);
}

void gid_mac(uint64_t guid, uint8_t mac[6])
{
	for (int i = 0; i < 3; i++) {
		mac[i] = (uint8_t)(guid >> (56 - 8 * i));
		mac[3 + i] = (uint8_t)(guid >> (16 - 8 * i));
	}
	/* Administered by us, and a single station's. */
	mac[0] = (uint8_t)((mac[0] | 2) & ~1);
}

static void add_link_local(struct gid_table *table, uint64_t prefix, const uint8_t mac[6])
{
	uint8_t raw[GID_SIZE];

	put_be64(raw, prefix);
	memcpy(raw + 8, mac, 3);
	raw[8] ^= 2;
	raw[11] = 0xff;
	raw[12] = 0xfe;
	memcpy(raw + 13, mac + 3, 3);
	add_roce(table, raw);
}

/* The GID that stands for this address; false for one that stands for itself alone or that no port has. */
static bool address_gid(const struct sockaddr *address, sa_family_t family, uint8_t raw[GID_SIZE])
{
	if (!address || address->sa_family != family)
		return false;
	if (family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;

		memset(raw, 0, 10);
		memset(raw + 10, 0xff, 2);
		memcpy(raw + 12, &in->sin_addr, 4);
		return in->sin_addr.s_addr != htonl(INADDR_ANY);
	}

	const struct sockaddr_in6 *in6 = (const void *)address;

	memcpy(raw, &in6->sin6_addr, GID_SIZE);
	return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) && !IN6_IS_ADDR_MULTICAST(&in6->sin6_addr) &&
	       !IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

static void add_addresses(
	struct gid_table *table, const struct ifaddrs *all, const char *netdev, sa_family_t family)
{
	uint8_t raw[GID_SIZE];

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, netdev) == 0 && address_gid(i->ifa_addr, family, raw))
			add_roce(table, raw);
	}
}

/* Interfaces are listed with one address after the other: only the first of each counts. */
static bool is_first(const struct ifaddrs *all, const struct ifaddrs *one)
{
	for (const struct ifaddrs *i = all; i != one; i = i->ifa_next) {
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && strcmp(i->ifa_name, one->ifa_name) == 0)
			return false;
	}
	return true;
}

/* The @nth interface that is up, not the loopback, and has an IPv4 address; NULL: there are not so many. */
static const char *netdev_auto(const struct ifaddrs *all, uint32_t nth)
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
			i->ifa_flags & IFF_LOOPBACK || !is_first(all, i))
			continue;
		if (nth-- == 0)
			return i->ifa_name;
	}
	return NULL;
}

/* The interface's hardware address, if it has one like Ethernet's. */
static bool netdev_mac(const struct ifaddrs *all, const char *netdev, uint8_t mac[6])
{
	static const uint8_t zero[6];

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || strcmp(i->ifa_name, netdev) != 0)
			continue;

		const struct sockaddr_ll *ll = (const void *)i->ifa_addr;

		if (ll->sll_halen == 6 && memcmp(ll->sll_addr, zero, 6) != 0) {
			memcpy(mac, ll->sll_addr, 6);
			return true;
		}
	}
	return false;
}

static void roce_make(const struct device_config *config, const struct ifaddrs *all, struct gid_table *table)
{
	const char *netdev = config->netdev;
	uint8_t mac[6];

	if (strcmp(netdev, AUTO) == 0)
		netdev = netdev_auto(all, config->nth_ethernet);
	else if (strcmp(netdev, NONE) == 0)
		netdev = NULL;
	if (!netdev || !netdev_mac(all, netdev, mac))
		gid_mac(config->guid, mac);
	add_link_local(table, config->gid_prefix, mac);
	if (!netdev)
		return;
	snprintf(table->netdev, sizeof(table->netdev), "%s", netdev);
	add_addresses(table, all, netdev, AF_INET);
	add_addresses(table, all, netdev, AF_INET6);
}

void gid_table_make(const struct device_config *config, struct gid_table *table)
{
	struct ifaddrs *all = NULL;

	memset(table, 0, sizeof(*table));
	if (config->link_layer == LINK_INFINIBAND) {
		uint8_t raw[GID_SIZE];

		put_be64(raw, config->gid_prefix);
		put_be64(raw + 8, config->guid);
		add(table, raw, GID_IB);
		return;
	}
	if (getifaddrs(&all) < 0)
		all = NULL;
	roce_make(config, all, table);
	if (all)
		freeifaddrs(all);
}
