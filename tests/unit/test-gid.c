/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/gid.c: the GID tables of both link layers. The host's addresses are the test's own. */
#include "daemon/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/harness.h"

#define MAX 32

static struct ifaddrs addresses[MAX];
static union {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_ll ll;
} values[MAX];
static unsigned n_addresses;
static bool fails;

/* In place of libc's. */
int getifaddrs(struct ifaddrs **list)
{
	if (fails) {
		errno = EPERM;
		return -1;
	}
	for (unsigned i = 0; i < n_addresses; i++)
		addresses[i].ifa_next = i + 1 < n_addresses ? &addresses[i + 1] : NULL;
	*list = n_addresses ? addresses : NULL;
	return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
	ck_assert_ptr_eq(list, addresses);
}

static struct ifaddrs *add(const char *name, unsigned flags)
{
	struct ifaddrs *one = &addresses[n_addresses];

	ck_assert_uint_lt(n_addresses, MAX);
	*one = (struct ifaddrs){ .ifa_name = (char *)(uintptr_t)name, .ifa_flags = flags };
	one->ifa_addr = &values[n_addresses++].any;
	return one;
}

static void add_mac(const char *name, unsigned flags, uint8_t last)
{
	struct sockaddr_ll *ll = (void *)add(name, flags)->ifa_addr;

	*ll = (struct sockaddr_ll){ .sll_family = AF_PACKET, .sll_halen = 6, .sll_addr = { 0x52, 0x54, 0, 0x12, 0x34, last } };
}

static void add_ip(const char *name, unsigned flags, const char *text)
{
	struct ifaddrs *one = add(name, flags);
	struct sockaddr_in *in = (void *)one->ifa_addr;
	struct sockaddr_in6 *in6 = (void *)one->ifa_addr;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		return;
	}
	ck_assert_int_eq(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
	in6->sin6_family = AF_INET6;
}

/* A machine with two interfaces that are up, one that is down and one without an address. */
static void machine(void)
{
	n_addresses = 0;
	fails = false;
	add_mac("lo", IFF_UP | IFF_LOOPBACK, 0);
	add_mac("down0", 0, 1);
	add_mac("bare0", IFF_UP, 2);
	add_mac("eth0", IFF_UP, 3);
	add_mac("eth1", IFF_UP, 4);
	add("tun0", IFF_UP)->ifa_addr = NULL;
	add_ip("lo", IFF_UP | IFF_LOOPBACK, "127.0.0.1");
	add_ip("down0", 0, "10.0.0.1");
	add_ip("eth0", IFF_UP, "192.0.2.2");
	add_ip("eth0", IFF_UP, "192.0.2.3");
	add_ip("eth1", IFF_UP, "198.51.100.7");
	add_ip("lo", IFF_UP | IFF_LOOPBACK, "::1");
	add_ip("eth0", IFF_UP, "2001:db8::2");
	add_ip("eth0", IFF_UP, "fe80::5054:ff:fe12:3403");
}

static struct gid_table table;

static void make(enum link_layer layer, const char *netdev, uint32_t nth)
{
	struct device_config config;

	device_default(&config, "x", 4);
	config.link_layer = layer;
	config.nth_ethernet = nth;
	snprintf(config.netdev, sizeof(config.netdev), "%s", netdev);
	memset(&table, 0xa5, sizeof(table));
	gid_table_make(&config, &table);
}

/* The table has @text both as RoCE v1 and v2, from @index on. */
static void expect_roce(uint32_t index, const char *text)
{
	uint8_t raw[GID_SIZE];

	ck_assert_int_eq(inet_pton(AF_INET6, text, raw), 1);
	ck_assert_uint_ge(table.n, index + 2);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_mem_eq(table.gids[index + i].raw, raw, GID_SIZE);
	ck_assert_uint_eq(table.gids[index].type, GID_ROCE_V1);
	ck_assert_uint_eq(table.gids[index + 1].type, GID_ROCE_V2);
}

START_TEST(infiniband_has_one_gid)
{
	uint8_t raw[GID_SIZE];

	make(LINK_INFINIBAND, "auto", 0);
	ck_assert_int_eq(inet_pton(AF_INET6, "fe80::256:5344:0:5", raw), 1);
	ck_assert_uint_eq(table.n, 1);
	ck_assert_mem_eq(table.gids[0].raw, raw, GID_SIZE);
	ck_assert_uint_eq(table.gids[0].type, GID_IB);
	ck_assert_str_eq(table.netdev, "");
}
END_TEST

START_TEST(ethernet_has_the_addresses_of_the_first_interface)
{
	make(LINK_ETHERNET, "auto", 0);
	ck_assert_str_eq(table.netdev, "eth0");
	ck_assert_uint_eq(table.n, 8);
	expect_roce(0, "fe80::5054:ff:fe12:3403");
	expect_roce(2, "::ffff:192.0.2.2");
	expect_roce(4, "::ffff:192.0.2.3");
	expect_roce(6, "2001:db8::2");
}
END_TEST

START_TEST(the_second_device_has_the_second_interface)
{
	make(LINK_ETHERNET, "auto", 1);
	ck_assert_str_eq(table.netdev, "eth1");
	ck_assert_uint_eq(table.n, 4);
	expect_roce(0, "fe80::5054:ff:fe12:3404");
	expect_roce(2, "::ffff:198.51.100.7");
}
END_TEST

START_TEST(without_an_interface_there_is_a_link_local_gid)
{
	static const struct {
		const char *netdev;
		uint32_t nth;
		bool fails;
	} cases[] = { { "auto", 2, false }, { "none", 0, false }, { "auto", 0, true } };

	fails = cases[_i].fails;
	make(LINK_ETHERNET, cases[_i].netdev, cases[_i].nth);
	ck_assert_str_eq(table.netdev, "");
	ck_assert_uint_eq(table.n, 2);
	/* 02:56:53:00:00:05, of the GUID 0256:5344:0000:0005 */
	expect_roce(0, "fe80::56:53ff:fe00:5");
}
END_TEST

START_TEST(a_named_interface_is_taken_as_it_is)
{
	make(LINK_ETHERNET, "lo", 0);
	ck_assert_str_eq(table.netdev, "lo");
	expect_roce(2, "::ffff:127.0.0.1");
	expect_roce(4, "::1");
	make(LINK_ETHERNET, "absent0", 0);
	ck_assert_str_eq(table.netdev, "absent0");
	ck_assert_uint_eq(table.n, 2);
}
END_TEST

START_TEST(what_does_not_fit_is_left_out)
{
	char text[16];

	for (unsigned i = 0; i < 12; i++) {
		snprintf(text, sizeof(text), "192.0.2.%u", 100 + i);
		add_ip("eth0", IFF_UP, text);
	}
	make(LINK_ETHERNET, "eth0", 0);
	ck_assert_uint_eq(table.n, GID_TABLE_MAX);
}
END_TEST

START_TEST(two_tables_of_the_same_addresses_are_equal)
{
	struct gid_table first;

	make(LINK_ETHERNET, "auto", 0);
	first = table;
	make(LINK_ETHERNET, "auto", 0);
	ck_assert_mem_eq(&first, &table, sizeof(table));
	add_ip("eth0", IFF_UP, "192.0.2.4");
	make(LINK_ETHERNET, "auto", 0);
	ck_assert_mem_ne(&first, &table, sizeof(table));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gid");
	TCase *t = harness_tcase(suite, "gid");

	tcase_add_checked_fixture(t, machine, NULL);
	tcase_add_test(t, infiniband_has_one_gid);
	tcase_add_test(t, ethernet_has_the_addresses_of_the_first_interface);
	tcase_add_test(t, the_second_device_has_the_second_interface);
	tcase_add_loop_test(t, without_an_interface_there_is_a_link_local_gid, 0, 3);
	tcase_add_test(t, a_named_interface_is_taken_as_it_is);
	tcase_add_test(t, what_does_not_fit_is_left_out);
	tcase_add_test(t, two_tables_of_the_same_addresses_are_equal);
	return harness_run(suite);
}
