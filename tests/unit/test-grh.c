/* SPDX-License-Identifier: BSD-2-Clause */
/* client/soft/grh.c: what stands before a datagram, and the way back that is read from it. */
#include "client/soft/grh.h"

#include <arpa/inet.h>
#include <string.h>

#include "tests/lib/harness.h"

#define GIDS 6

static uint8_t raw[GIDS][16];
static Vsd__Gid gids[GIDS], *list[GIDS];
static Vsd__Port port;

static const char *const ethernet[GIDS] = { "fe80::5054:ff:fe12:3403", "fe80::5054:ff:fe12:3403", "::ffff:192.0.2.2",
	"::ffff:192.0.2.2", "2001:db8::2", "2001:db8::2" };

static void setup(void)
{
	vsd__port__init(&port);
	port.number = 1;
	port.link_layer = IBV_LINK_LAYER_ETHERNET;
	port.n_gids = GIDS;
	port.gids = list;
	for (uint32_t i = 0; i < GIDS; i++) {
		ck_assert_int_eq(inet_pton(AF_INET6, ethernet[i], raw[i]), 1);
		vsd__gid__init(&gids[i]);
		gids[i].index = i;
		gids[i].raw = (ProtobufCBinaryData){ .len = 16, .data = raw[i] };
		gids[i].type = i & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
		list[i] = &gids[i];
	}
}

/* From index @index of the port to itself. */
static struct ibv_ah_attr address(uint32_t index)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .sl = 3 };

	ah.grh.sgid_index = (uint8_t)index;
	ah.grh.hop_limit = 64;
	ah.grh.traffic_class = 0x28;
	ah.grh.flow_label = 0x12345;
	memcpy(ah.grh.dgid.raw, raw[index], 16);
	return ah;
}

START_TEST(the_way_back_is_the_way_that_was_taken)
{
	struct ibv_ah_attr ah = address((uint32_t)_i), back = { .is_global = 0 };
	uint8_t header[GRH_SIZE];

	grh_build(&port, &ah, 100, header);
	ck_assert(grh_reverse(&port, header, &back));
	ck_assert_int_eq(back.is_global, 1);
	ck_assert_int_eq(back.grh.sgid_index, _i);
	ck_assert_mem_eq(back.grh.dgid.raw, raw[_i], 16);
	ck_assert_uint_eq(back.grh.traffic_class, 0x28);
	/* An IPv4 header has no flow label. */
	ck_assert_uint_eq(back.grh.flow_label, _i == 3 ? 0 : 0x12345);
}
END_TEST

START_TEST(each_kind_says_what_it_is)
{
	static const uint8_t level[GIDS] = { 0, 9, 0, 10, 0, 9 }, next[GIDS] = { 0x1b, 17, 0x1b, 0, 0x1b, 17 };
	struct ibv_ah_attr ah = address((uint32_t)_i);
	uint8_t header[GRH_SIZE];

	ck_assert_uint_eq(grh_service_level(&port, &ah), level[_i]);
	grh_build(&port, &ah, 100, header);
	/* Where the destination address is looked for whatever came: at the end. */
	ck_assert_mem_eq(header + GRH_SIZE - 4, raw[_i] + 12, 4);
	if (next[_i]) {
		ck_assert_uint_eq(header[0] >> 4, 6);
		ck_assert_uint_eq(header[6], next[_i]);
		ck_assert_uint_eq(header[4] << 8 | header[5], 12 + 8 + 100 + 4 + (next[_i] == 17 ? 8 : 0));
	} else {
		ck_assert_uint_eq(header[20], 0x45);
		ck_assert_uint_eq(header[22] << 8 | header[23], 20 + 8 + 12 + 8 + 100 + 4);
		ck_assert_uint_eq(header[29], 17);
	}
}
END_TEST

START_TEST(infiniband_has_its_service_level)
{
	struct ibv_ah_attr ah = address(0), back;
	uint8_t header[GRH_SIZE];

	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port.n_gids = 1;
	gids[0].type = IBV_GID_TYPE_IB;
	ck_assert_uint_eq(grh_service_level(&port, &ah), 3);
	ck_assert_uint_eq(grh_service_level(NULL, &ah), 3);
	grh_build(&port, &ah, 100, header);
	ck_assert_uint_eq(header[6], 0x1b);
	ck_assert(grh_reverse(&port, header, &back));
	ck_assert_int_eq(back.grh.sgid_index, 0);
}
END_TEST

START_TEST(a_header_for_somebody_else_leads_nowhere)
{
	struct ibv_ah_attr ah = address(3), back = { .port_num = 9 };
	uint8_t header[GRH_SIZE];

	ah.grh.dgid.raw[15]++;
	grh_build(&port, &ah, 100, header);
	ck_assert(!grh_reverse(&port, header, &back));
	memset(header, 0, sizeof(header));
	ck_assert(!grh_reverse(&port, header, &back));
	memset(header, 0xff, sizeof(header));
	ck_assert(!grh_reverse(&port, header, &back));
	ck_assert_int_eq(back.port_num, 9);
}
END_TEST

START_TEST(a_damaged_ipv4_header_is_none)
{
	struct ibv_ah_attr ah = address(3), back;
	uint8_t header[GRH_SIZE];

	grh_build(&port, &ah, 100, header);
	for (unsigned i = 20; i < GRH_SIZE; i++) {
		header[i] ^= 0x10;
		ck_assert(!grh_reverse(&port, header, &back));
		header[i] ^= 0x10;
	}
}
END_TEST

START_TEST(an_empty_entry_gives_a_header_without_a_source)
{
	static const uint8_t zero[16];
	struct ibv_ah_attr ah = address(0);
	uint8_t header[GRH_SIZE];

	ah.grh.sgid_index = 7;
	grh_build(&port, &ah, 100, header);
	ck_assert_mem_eq(header + 8, zero, 16);
	grh_build(NULL, &ah, 100, header);
	ck_assert_mem_eq(header + 8, zero, 16);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("grh");
	TCase *t = harness_tcase(suite, "grh");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, the_way_back_is_the_way_that_was_taken, 0, GIDS);
	tcase_add_loop_test(t, each_kind_says_what_it_is, 0, GIDS);
	tcase_add_test(t, infiniband_has_its_service_level);
	tcase_add_test(t, a_header_for_somebody_else_leads_nowhere);
	tcase_add_test(t, a_damaged_ipv4_header_is_none);
	tcase_add_test(t, an_empty_entry_gives_a_header_without_a_source);
	return harness_run(suite);
}
