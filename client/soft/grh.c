/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs read these headers themselves (UCX does), so they are those that an adapter would leave there. */
#include "client/soft/grh.h"

#include <arpa/inet.h>
#include <string.h>

#define FLOW_MASK    0xfffffu
#define CLASS_SHIFT  20
#define HOPS_MAX     0xff
#define NEXT_IBA     0x1b
#define NEXT_UDP     17
#define UDP_SIZE     8
#define TRANSPORT(n) (12 + 8 + (((n) + 3) & ~3u) + 4) /* BTH, DETH, padded payload, ICRC */
#define IPV4_OFFSET  (GRH_SIZE - sizeof(struct ipv4))

struct ipv4 {
	uint8_t version_size, class;
	uint16_t length, id, fragment;
	uint8_t hops, protocol;
	uint16_t sum;
	uint8_t from[4], to[4];
};

_Static_assert(sizeof(struct ipv4) == 20 && sizeof(struct ibv_grh) == GRH_SIZE, "as on a wire");

static const Vsd__Gid *gid_at(const Vsd__Port *port, uint32_t index)
{
	for (size_t i = 0; port && i < port->n_gids; i++)
		if (port->gids[i]->index == index && port->gids[i]->raw.len == sizeof(union ibv_gid))
			return port->gids[i];
	return NULL;
}

static bool is_ipv4(const uint8_t *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* Over a header whose sum is right it is 0. */
static uint16_t ipv4_sum(const struct ipv4 *header)
{
	uint16_t words[sizeof(*header) / 2];
	uint32_t sum = 0;

	memcpy(words, header, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~(sum + (sum >> 16));
}

static void ipv4_build(const uint8_t *from, const struct ibv_global_route *route, uint32_t payload, uint8_t *to)
{
	struct ipv4 header = {
		.version_size = 0x45,
		.class = route->traffic_class,
		.length = htons((uint16_t)(sizeof(header) + UDP_SIZE + TRANSPORT(payload))),
		.fragment = htons(0x4000), /* not to be fragmented */
		.hops = route->hop_limit,
		.protocol = NEXT_UDP,
	};

	memcpy(header.from, from + 12, sizeof(header.from));
	memcpy(header.to, route->dgid.raw + 12, sizeof(header.to));
	header.sum = ipv4_sum(&header);
	memset(to, 0, IPV4_OFFSET);
	memcpy(to + IPV4_OFFSET, &header, sizeof(header));
}

/* Whether a datagram along @ah has an IPv4 header; in *@v2 whether it is of RoCE v2. */
static bool route_ipv4(const Vsd__Gid *from, const struct ibv_ah_attr *ah, bool *v2)
{
	*v2 = from && from->type == IBV_GID_TYPE_ROCE_V2;
	return *v2 && is_ipv4(from->raw.data) && is_ipv4(ah->grh.dgid.raw);
}

uint8_t grh_service_level(const Vsd__Port *port, const struct ibv_ah_attr *ah)
{
	bool v2, ipv4;

	if (!port || port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return ah->sl;
	ipv4 = route_ipv4(gid_at(port, ah->grh.sgid_index), ah, &v2);
	return ipv4 ? 10 : v2 ? 9 : 0;
}

void grh_build(const Vsd__Port *port, const struct ibv_ah_attr *ah, uint32_t payload, uint8_t to[GRH_SIZE])
{
	const struct ibv_global_route *route = &ah->grh;
	const Vsd__Gid *from = gid_at(port, route->sgid_index);
	bool v2, ipv4 = route_ipv4(from, ah, &v2);
	struct ibv_grh grh = {
		.version_tclass_flow =
			htonl(6u << 28 | (uint32_t)route->traffic_class << CLASS_SHIFT | (route->flow_label & FLOW_MASK)),
		.paylen = htons((uint16_t)(TRANSPORT(payload) + (v2 ? UDP_SIZE : 0))),
		.next_hdr = v2 ? NEXT_UDP : NEXT_IBA,
		.hop_limit = route->hop_limit,
		.dgid = route->dgid,
	};

	if (ipv4) {
		ipv4_build(from->raw.data, route, payload, to);
		return;
	}
	if (from)
		memcpy(&grh.sgid, from->raw.data, sizeof(grh.sgid));
	memcpy(to, &grh, sizeof(grh));
}

/* The index of that GID; on Ethernet each is there once for each kind. */
static int gid_index(const Vsd__Port *port, const union ibv_gid *gid, bool v2)
{
	for (size_t i = 0; i < port->n_gids; i++) {
		const Vsd__Gid *g = port->gids[i];

		if (g->raw.len == sizeof(gid->raw) && memcmp(g->raw.data, gid->raw, sizeof(gid->raw)) == 0 &&
			(g->type == IBV_GID_TYPE_ROCE_V2) == v2)
			return (int)g->index;
	}
	return -1;
}

static void ipv4_gid(union ibv_gid *gid, const uint8_t address[4])
{
	memset(gid->raw, 0, 10);
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, address, 4);
}

bool grh_reverse(const Vsd__Port *port, const void *header, struct ibv_ah_attr *ah)
{
	struct ibv_global_route route = { .hop_limit = HOPS_MAX };
	union ibv_gid own;
	struct ibv_grh grh;
	struct ipv4 ipv4;
	bool v2;
	int index;

	memcpy(&grh, header, sizeof(grh));
	memcpy(&ipv4, (const uint8_t *)header + IPV4_OFFSET, sizeof(ipv4));
	if (port->link_layer == IBV_LINK_LAYER_ETHERNET && ipv4.version_size == 0x45 && ipv4_sum(&ipv4) == 0) {
		v2 = true;
		ipv4_gid(&own, ipv4.to);
		ipv4_gid(&route.dgid, ipv4.from);
		route.traffic_class = ipv4.class;
	} else {
		uint32_t word = ntohl(grh.version_tclass_flow);

		v2 = port->link_layer == IBV_LINK_LAYER_ETHERNET && grh.next_hdr == NEXT_UDP;
		own = grh.dgid;
		route.dgid = grh.sgid;
		route.flow_label = word & FLOW_MASK;
		route.traffic_class = (uint8_t)(word >> CLASS_SHIFT);
	}
	index = gid_index(port, &own, v2);
	if (index < 0 || index > UINT8_MAX)
		return false;
	route.sgid_index = (uint8_t)index;
	ah->is_global = 1;
	ah->grh = route;
	return true;
}

void grh_destination(uint8_t link_layer, const void *header, union ibv_gid *gid)
{
	struct ibv_grh grh;
	struct ipv4 ipv4;

	memcpy(&grh, header, sizeof(grh));
	memcpy(&ipv4, (const uint8_t *)header + IPV4_OFFSET, sizeof(ipv4));
	if (link_layer == IBV_LINK_LAYER_ETHERNET && ipv4.version_size == 0x45 && ipv4_sum(&ipv4) == 0)
		ipv4_gid(gid, ipv4.to);
	else
		*gid = grh.dgid;
}

bool grh_addresses(const Vsd__Port *port, uint16_t lid, const void *header)
{
	union ibv_gid gid;

	if (port->link_layer == IBV_LINK_LAYER_ETHERNET ? !header : lid != port->lid && !(lid == 0 && header))
		return false;
	if (!header)
		return true;
	grh_destination((uint8_t)port->link_layer, header, &gid);
	for (size_t i = 0; i < port->n_gids; i++)
		if (port->gids[i]->raw.len == sizeof(gid) && memcmp(port->gids[i]->raw.data, gid.raw, sizeof(gid)) == 0)
			return true;
	return false;
}
