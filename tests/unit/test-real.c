/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices without any: a sysfs of our own, netlink messages as the kernel writes them, and who is granted what.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_netlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/backend_ibv.h"
#include "daemon/census.h"
#include "daemon/counters.h"
#include "daemon/policy.h"
#include "daemon/rdma_nl.h"
#include "tests/lib/harness.h"

static char sysfs[] = "/tmp/verbsd-sysfs-XXXXXX";
static const size_t pattern = sizeof(sysfs) - sizeof("XXXXXX");
static struct real_devices devices;

/* --- sysfs ----------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *format, ...)
{
	char name[128], path[256];
	va_list args;
	FILE *file;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	for (char *at = path + sizeof(sysfs); (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	ck_assert_int_eq(fclose(file), 0);
}

static void put_device(const char *node, const char *name, const char *rdev, unsigned ports)
{
	put(name, "infiniband_verbs/%s/ibdev", node);
	put(rdev, "infiniband_verbs/%s/dev", node);
	put("0200:0aff:fe63:0001\n", "infiniband/%s/node_guid", name);
	put("1: CA\n", "infiniband/%s/node_type", name);
	for (unsigned i = 1; i <= ports; i++) {
		put("4: ACTIVE\n", "infiniband/%s/ports/%u/state", name, i);
		put("0x11\n", "infiniband/%s/ports/%u/lid", name, i);
		put("0x1\n", "infiniband/%s/ports/%u/sm_lid", name, i);
		put("Ethernet\n", "infiniband/%s/ports/%u/link_layer", name, i);
		put("0xffff\n", "infiniband/%s/ports/%u/pkeys/0", name, i);
		put("fe80:0000:0000:0000:0000:0aff:fe63:0001\n", "infiniband/%s/ports/%u/gids/0", name, i);
		put("0000:0000:0000:0000:0000:0000:0000:0000\n", "infiniband/%s/ports/%u/gids/1", name, i);
		put("0000:0000:0000:0000:0000:ffff:0a63:0001\n", "infiniband/%s/ports/%u/gids/2", name, i);
		put("RoCE v2\n", "infiniband/%s/ports/%u/gid_attrs/types/2", name, i);
	}
}

static void setup(void)
{
	strcpy(sysfs + pattern, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(sysfs));
	real_devices_init(&devices, sysfs);
}

static void teardown(void)
{
	char command[64];

	real_devices_deinit(&devices);
	snprintf(command, sizeof(command), "rm -r %s", sysfs);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(devices_are_found_in_the_order_of_their_nodes)
{
	put_device("uverbs10", "mlx5_1", "231:202\n", 2);
	put_device("uverbs2", "rxe0", "231:194\n", 1);
	put("other\n", "infiniband_verbs/abi_version");
	put("10:124\n", "misc/rdma_cm/dev");
	real_devices_scan(&devices);
	ck_assert_uint_eq(devices.n, 2);
	ck_assert_str_eq(devices.list[0].name, "rxe0");
	ck_assert_str_eq(devices.list[1].name, "mlx5_1");
	ck_assert_uint_eq(devices.list[0].rdev, makedev(231, 194));
	ck_assert_uint_eq(devices.list[0].guid, 0x02000afffe630001);
	ck_assert_uint_eq(devices.list[0].n_ports, 1);
	ck_assert_uint_eq(devices.list[1].n_ports, 2);
	ck_assert_uint_eq(devices.rdma_cm, makedev(10, 124));
	ck_assert_ptr_eq(real_device_find(&devices, "mlx5_1"), &devices.list[1]);
	ck_assert_ptr_eq(real_device_by_node(&devices, "uverbs2"), &devices.list[0]);
	ck_assert_ptr_null(real_device_find(&devices, "uverbs2"));
}
END_TEST

START_TEST(a_host_without_devices_has_none)
{
	real_devices_scan(&devices);
	ck_assert_uint_eq(devices.n, 0);
	ck_assert_uint_eq(devices.rdma_cm, 0);
}
END_TEST

START_TEST(a_device_that_is_half_gone_is_none)
{
	put_device("uverbs0", "rxe0", "nonsense\n", 1);
	put("rxe1\n", "infiniband_verbs/uverbs1/ibdev");
	real_devices_scan(&devices);
	ck_assert_uint_eq(devices.n, 0);
}
END_TEST

START_TEST(there_is_an_end_to_devices)
{
	for (unsigned i = 0; i <= REAL_DEVICES_MAX; i++) {
		char node[16], name[16], rdev[16];

		snprintf(node, sizeof(node), "uverbs%u", i);
		snprintf(name, sizeof(name), "rxe%u", i);
		snprintf(rdev, sizeof(rdev), "231:%u", i);
		put_device(node, name, rdev, 0);
	}
	real_devices_scan(&devices);
	ck_assert_uint_eq(devices.n, REAL_DEVICES_MAX);
}
END_TEST

static void count(void *data)
{
	(*(unsigned *)data)++;
}

/* Devices that come and go are looked for when the kernel says so, and at no other time. */
START_TEST(nothing_is_looked_at_before_the_kernel_speaks)
{
	static const char other[] = "add@/devices/x\0SUBSYSTEM=net\0", ours[] = "add@/devices/x\0SUBSYSTEM=infiniband_verbs\0";
	struct loop *loop;
	unsigned changes = 0;
	int pair[2];

	ck_assert_int_eq(loop_new(&loop), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	devices.uevents = pair[0];
	ck_assert_int_eq(real_devices_follow(&devices, loop, count, &changes), 0);
	ck_assert(!timer_pending(&devices.settle));
	put_device("uverbs0", "rxe0", "231:192\n", 1);
	ck_assert_int_eq(send(pair[1], other, sizeof(other), 0), sizeof(other));
	ck_assert_int_eq(loop_turn(loop, true), 0);
	ck_assert(!timer_pending(&devices.settle));
	ck_assert_uint_eq(devices.n, 0);
	ck_assert_int_eq(send(pair[1], ours, sizeof(ours), 0), sizeof(ours));
	while (changes == 0)
		ck_assert_int_eq(loop_turn(loop, true), 0);
	ck_assert_uint_eq(devices.n, 1);
	ck_assert(!timer_pending(&devices.settle));
	real_devices_deinit(&devices);
	close(pair[1]);
	loop_free(loop);
}
END_TEST

START_TEST(a_port_is_read_as_it_is)
{
	static const uint8_t v4[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0x63, 0, 1 };
	struct real_port port;

	put_device("uverbs0", "rxe0", "231:192\n", 1);
	real_devices_scan(&devices);
	ck_assert_int_eq(real_port_read(sysfs, devices.list[0].name, 1, &port), 0);
	ck_assert_uint_eq(port.state, 4);
	ck_assert_uint_eq(port.lid, 0x11);
	ck_assert_uint_eq(port.sm_lid, 1);
	ck_assert_uint_eq(port.pkey, 0xffff);
	ck_assert_uint_eq(port.link_layer, LINK_ETHERNET);
	ck_assert_uint_eq(port.n_gids, 2);
	ck_assert_uint_eq(port.gid_index[1], 2);
	ck_assert_mem_eq(port.gids[1].raw, v4, sizeof(v4));
	ck_assert_uint_eq(port.gids[1].type, GID_ROCE_V2);
	ck_assert_uint_eq(port.gids[0].type, GID_IB);
	ck_assert_int_lt(real_port_read(sysfs, devices.list[0].name, 2, &port), 0);
}
END_TEST

static const struct {
	const char *bytes;
	size_t n;
	bool is;
} uevents[] = {
#define UEVENT(text, is) { text, sizeof(text) - 1, is }
	UEVENT("add@/x\0ACTION=add\0SUBSYSTEM=infiniband_verbs\0SEQNUM=1\0", true),
	UEVENT("add@/x\0SUBSYSTEM=infiniband\0", true),
	UEVENT("add@/x\0SUBSYSTEM=infiniband", true),
	UEVENT("add@/x\0SUBSYSTEM=misc\0", true),
	UEVENT("add@/x\0SUBSYSTEM=net\0", false),
	UEVENT("add@/x\0SUBSYSTEM=miscellany\0", false),
	UEVENT("add@/infiniband\0ACTION=add\0", false),
	UEVENT("SUBSYSTEM=", false),
	UEVENT("", false),
};

START_TEST(messages_about_other_things_are_left_alone)
{
	ck_assert_int_eq(uevent_is_rdma(uevents[_i].bytes, uevents[_i].n), uevents[_i].is);
}
END_TEST

/* Drivers come and go, and files with them; nothing in there makes a counter but a number. */
START_TEST(counters_are_numbers)
{
	static struct counter list[COUNTERS_MAX];
	char path[128];

	put_device("uverbs0", "rxe0", "231:192\n", 1);
	ck_assert_uint_eq(counters_read(sysfs, "rxe0", 1, list), 0);
	put("17\n", "infiniband/rxe0/ports/1/counters/port_xmit_data");
	put("18446744073709551615\n", "infiniband/rxe0/ports/1/hw_counters/rcvd_pkts");
	put("3", "infiniband/rxe0/ports/1/hw_counters/ack_deffered");
	put("", "infiniband/rxe0/ports/1/hw_counters/empty");
	put("N/A\n", "infiniband/rxe0/ports/1/hw_counters/absent");
	put("-1\n", "infiniband/rxe0/ports/1/hw_counters/negative");
	put("18446744073709551616\n", "infiniband/rxe0/ports/1/hw_counters/too_big");
	put("5 apples\n", "infiniband/rxe0/ports/1/hw_counters/five");
	put("10\n", "infiniband/rxe0/ports/1/hw_counters/lifespan");
	put("1\n", "infiniband/rxe0/ports/1/hw_counters/bad name");
	put("1\n", "infiniband/rxe0/ports/1/hw_counters/a_name_that_is_much_longer_than_any_that_a_driver_has");
	snprintf(path, sizeof(path), "%s/infiniband/rxe0/ports/1/hw_counters/folder", sysfs);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/infiniband/rxe0/ports/1/hw_counters/fifo", sysfs);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	snprintf(path, sizeof(path), "%s/infiniband/rxe0/ports/1/hw_counters/link", sysfs);
	ck_assert_int_eq(symlink("rcvd_pkts", path), 0);
	ck_assert_uint_eq(counters_read(sysfs, "rxe0", 1, list), 3);
	ck_assert_str_eq(list[0].name, "port_xmit_data");
	ck_assert_uint_eq(list[0].value, 17);
	ck_assert_str_eq(list[1].name, "ack_deffered");
	ck_assert_str_eq(list[2].name, "rcvd_pkts");
	ck_assert_uint_eq(list[2].value, UINT64_MAX);
	for (unsigned i = 0; i < COUNTERS_MAX + 50; i++)
		put("1\n", "infiniband/rxe0/ports/1/hw_counters/n%u", i);
	ck_assert_uint_eq(counters_read(sysfs, "rxe0", 1, list), COUNTERS_MAX);
}
END_TEST

/* --- netlink --------------------------------------------------------------------------------------------------------- */

/* A kernel that answers one question with what it was given, the number of the question put in. */
struct kernel {
	pthread_t thread;
	int ours, theirs;
	uint8_t bytes[3][512];
	size_t n[3];
	unsigned datagrams;
};

static void *answer(void *data)
{
	struct kernel *kernel = data;
	struct nlmsghdr question;

	if (recv(kernel->theirs, &question, sizeof(question), MSG_TRUNC) < (ssize_t)sizeof(question))
		return NULL;
	for (unsigned i = 0; i < kernel->datagrams; i++) {
		for (size_t at = 0; at + sizeof(struct nlmsghdr) <= kernel->n[i];) {
			struct nlmsghdr *head = (void *)(kernel->bytes[i] + at);

			if (head->nlmsg_seq == 0)
				head->nlmsg_seq = question.nlmsg_seq;
			if (head->nlmsg_len < sizeof(*head))
				break;
			at += NLMSG_ALIGN(head->nlmsg_len);
		}
		send(kernel->theirs, kernel->bytes[i], kernel->n[i], 0);
	}
	return NULL;
}

static void kernel_start(struct kernel *kernel)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	kernel->ours = pair[0];
	kernel->theirs = pair[1];
	ck_assert_int_eq(pthread_create(&kernel->thread, NULL, answer, kernel), 0);
}

static void kernel_stop(struct kernel *kernel)
{
	pthread_join(kernel->thread, NULL);
	close(kernel->ours);
	close(kernel->theirs);
}

static struct nlmsghdr *message(struct kernel *kernel, unsigned i, unsigned type, size_t body)
{
	struct nlmsghdr *head = (void *)(kernel->bytes[i] + kernel->n[i]);

	head->nlmsg_len = (uint32_t)(NLMSG_HDRLEN + body);
	head->nlmsg_type = (uint16_t)type;
	kernel->n[i] += NLMSG_ALIGN(head->nlmsg_len);
	if (kernel->datagrams <= i)
		kernel->datagrams = i + 1;
	return head;
}

static void attribute(struct kernel *kernel, unsigned i, struct nlmsghdr *head, unsigned type, const void *value, size_t n)
{
	struct nlattr *attr = (void *)((uint8_t *)head + NLMSG_ALIGN(head->nlmsg_len));

	attr->nla_len = (uint16_t)(NLA_HDRLEN + n);
	attr->nla_type = (uint16_t)type;
	memcpy((uint8_t *)attr + NLA_HDRLEN, value, n);
	head->nlmsg_len += NLA_HDRLEN + NLA_ALIGN((uint32_t)n);
	kernel->n[i] += NLA_HDRLEN + NLA_ALIGN((uint32_t)n);
}

static void device_message(struct kernel *kernel, unsigned i, uint32_t index, const char *name)
{
	struct nlmsghdr *head = message(kernel, i, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET), 0);

	attribute(kernel, i, head, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	attribute(kernel, i, head, RDMA_NLDEV_ATTR_DEV_NAME, name, strlen(name) + 1);
}

static void error_message(struct kernel *kernel, unsigned i, int error)
{
	struct nlmsghdr *head = message(kernel, i, NLMSG_ERROR, sizeof(struct nlmsgerr));

	memcpy(NLMSG_DATA(head), &error, sizeof(error));
}

START_TEST(devices_come_in_several_messages)
{
	static struct kernel kernel;
	struct rdma_nl_device list[4];

	device_message(&kernel, 0, 3, "mlx5_0");
	device_message(&kernel, 0, 4, "mlx5_1");
	device_message(&kernel, 1, 7, "rxe0");
	message(&kernel, 2, NLMSG_DONE, 4);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_devices(kernel.ours, list, 4), 3);
	ck_assert_uint_eq(list[2].index, 7);
	ck_assert_str_eq(list[1].name, "mlx5_1");
	kernel_stop(&kernel);
}
END_TEST

START_TEST(there_is_room_for_so_many)
{
	static struct kernel kernel;
	struct rdma_nl_device list[1];

	device_message(&kernel, 0, 3, "mlx5_0");
	device_message(&kernel, 0, 4, "mlx5_1");
	message(&kernel, 1, NLMSG_DONE, 4);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_devices(kernel.ours, list, 1), 1);
	kernel_stop(&kernel);
}
END_TEST

START_TEST(answers_to_an_older_question_do_not_count)
{
	static struct kernel kernel;
	struct rdma_nl_device list[4];

	device_message(&kernel, 0, 3, "mlx5_0");
	((struct nlmsghdr *)(void *)kernel.bytes[0])->nlmsg_seq = UINT32_MAX;
	message(&kernel, 0, NLMSG_DONE, 4)->nlmsg_seq = UINT32_MAX;
	device_message(&kernel, 1, 7, "rxe0");
	message(&kernel, 1, NLMSG_DONE, 4);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_devices(kernel.ours, list, 4), 1);
	ck_assert_str_eq(list[0].name, "rxe0");
	kernel_stop(&kernel);
}
END_TEST

START_TEST(the_driver_is_a_number)
{
	static struct kernel kernel;
	uint32_t driver = RDMA_DRIVER_SIW, got = 0;

	attribute(&kernel, 0, message(&kernel, 0, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV), 0),
		RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, &driver, sizeof(driver));
	error_message(&kernel, 1, 0);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_driver(kernel.ours, 1, &got), 0);
	ck_assert_uint_eq(got, RDMA_DRIVER_SIW);
	kernel_stop(&kernel);
}
END_TEST

START_TEST(a_refusal_is_an_error)
{
	static struct kernel kernel;
	uint32_t got;

	error_message(&kernel, 0, -EPERM);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_driver(kernel.ours, 1, &got), -EPERM);
	kernel_stop(&kernel);
}
END_TEST

/* A table of resources: an entry for each of these pids. */
static void table(struct kernel *kernel, const uint32_t *pids, unsigned n)
{
	struct nlmsghdr *head = message(kernel, 0, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET), 0);
	uint8_t bytes[256];
	size_t used = 0;

	for (unsigned i = 0; i < n; i++) {
		struct nlattr entry = { .nla_len = 2 * NLA_HDRLEN + 4, .nla_type = NLA_F_NESTED | RDMA_NLDEV_ATTR_RES_QP_ENTRY };
		struct nlattr pid = { .nla_len = NLA_HDRLEN + 4, .nla_type = RDMA_NLDEV_ATTR_RES_PID };

		memcpy(bytes + used, &entry, sizeof(entry));
		memcpy(bytes + used + 4, &pid, sizeof(pid));
		memcpy(bytes + used + 8, &pids[i], 4);
		used += entry.nla_len;
	}
	attribute(kernel, 0, head, NLA_F_NESTED | RDMA_NLDEV_ATTR_RES_QP, bytes, used);
	message(kernel, 1, NLMSG_DONE, 4);
}

static void note_owner(void *data, uint32_t pid)
{
	uint32_t **at = data;

	*(*at)++ = pid;
}

START_TEST(resources_have_owners)
{
	static struct kernel kernel;
	static const uint32_t pids[] = { 17, 18, 17, 17 };
	uint32_t got[8] = { 0 }, *at = got;

	table(&kernel, pids, 4);
	kernel_start(&kernel);
	ck_assert_int_eq(rdma_nl_owners(kernel.ours, 1, RDMA_NL_QPS, note_owner, &at), 0);
	ck_assert_int_eq(at - got, 4);
	ck_assert_mem_eq(got, pids, sizeof(pids));
	kernel_stop(&kernel);
}
END_TEST

START_TEST(a_census_counts_by_process)
{
	static struct kernel kernel;
	static const uint32_t pids[] = { 17, 18, 17, 17, 0, 18 };
	struct census census = CENSUS_NULL;
	unsigned n[RDMA_NL_RESOURCES];

	table(&kernel, pids, 6);
	kernel_start(&kernel);
	census_take(&census, kernel.ours, 1, RDMA_NL_QPS);
	ck_assert(census_find(&census, 17, n));
	ck_assert_uint_eq(n[RDMA_NL_QPS], 3);
	ck_assert_uint_eq(n[RDMA_NL_MRS], 0);
	ck_assert(census_find(&census, 18, n));
	ck_assert_uint_eq(n[RDMA_NL_QPS], 2);
	ck_assert(!census_find(&census, 19, n));
	census_deinit(&census);
	kernel_stop(&kernel);
}
END_TEST

/* Whatever is cut off or lies about its length ends in an error or in less, never outside. */
START_TEST(broken_messages_are_harmless)
{
	static struct kernel kernel;
	struct rdma_nl_device list[4];
	int r;

	memset(&kernel, 0, sizeof(kernel));
	device_message(&kernel, 0, 3, "mlx5_0");
	if (_i < (int)kernel.n[0])
		kernel.bytes[0][_i] ^= 0xff;
	error_message(&kernel, 1, -EIO);
	kernel_start(&kernel);
	r = rdma_nl_devices(kernel.ours, list, 4);
	ck_assert_int_le(r, 1);
	kernel_stop(&kernel);
}
END_TEST

/* --- policy ---------------------------------------------------------------------------------------------------------- */

static const struct grant_case {
	const char *devices, *cgroups;
	const char *device;
	unsigned n_ports;
	const char *cgroup;
	bool is;
} grant_cases[] = {
	{ "*", "", "rxe0", 1, "", true },
	{ "", "", "rxe0", 1, "", false },
	{ "rxe0", "", "rxe0", 1, "", true },
	{ "rxe0", "", "rxe1", 1, "", false },
	{ "rxe0", "", "rxe01", 1, "", false },
	{ "rxe*", "", "rxe01", 1, "", true },
	{ "mlx5_0, rxe1", "", "rxe1", 1, "", true },
	{ "mlx5_0 rxe1", "", "mlx5_0", 2, "", true },
	{ "mlx5_0/1", "", "mlx5_0", 1, "", true },
	{ "mlx5_0/1", "", "mlx5_0", 2, "", false },
	{ "mlx5_0/2 mlx5_0/1", "", "mlx5_0", 2, "", true },
	{ "mlx5_0/2", "", "mlx5_0", 1, "", false },
	{ "*", "/system.slice/a.service", "rxe0", 1, "/system.slice/a.service", true },
	{ "*", "/system.slice/a.service", "rxe0", 1, "/system.slice/a.service/below", true },
	{ "*", "/system.slice/a.service", "rxe0", 1, "/system.slice/a.service2", false },
	{ "*", "/system.slice/a.service", "rxe0", 1, "", false },
	{ "*", "/user.slice /system.slice/*.service", "rxe0", 1, "/system.slice/b.service", true },
	{ "*", "/user.slice", "rxe0", 1, "/", false },
};

static struct config *config;

static void config_setup(void)
{
	config = config_new();
	ck_assert_ptr_nonnull(config);
}

static void config_teardown(void)
{
	config = config_free(config);
}

/* One grant, to uid 5 and group 7. */
static struct device_grant *grant_one(void)
{
	struct device_grant *grant = &config->grants[0];

	config_grants_drop(config);
	grant_default(grant, "one");
	grant->users.ids = calloc(1, sizeof(uint32_t));
	grant->users.ids[0] = 5;
	grant->users.n = 1;
	grant->groups.ids = calloc(1, sizeof(uint32_t));
	grant->groups.ids[0] = 7;
	grant->groups.n = 1;
	config->n_grants = 1;
	return grant;
}

START_TEST(a_grant_covers_what_it_names)
{
	const struct grant_case *c = &grant_cases[_i];
	struct policy_who who = { .uid = 5, .cgroup = c->cgroup };
	struct device_grant *grant = grant_one();

	strcpy(grant->devices, c->devices);
	strcpy(grant->cgroups, c->cgroups);
	ck_assert_msg((policy_device(config, &who, c->device, c->n_ports) != NULL) == c->is, "devices '%s', cgroups '%s'",
		c->devices, c->cgroups);
}
END_TEST

START_TEST(users_and_groups_are_admitted)
{
	static const gid_t groups[] = { 6, 7 };
	struct policy_who who = { .uid = 5, .cgroup = "" };

	grant_one();
	ck_assert_ptr_nonnull(policy_device(config, &who, "rxe0", 1));
	ck_assert_ptr_nonnull(policy_rdma_cm(config, &who));
	who.uid = 0;
	ck_assert_ptr_null(policy_device(config, &who, "rxe0", 1));
	ck_assert_ptr_null(policy_rdma_cm(config, &who));
	who.groups = groups;
	who.n_groups = 1;
	ck_assert_ptr_null(policy_device(config, &who, "rxe0", 1));
	who.n_groups = 2;
	ck_assert_ptr_nonnull(policy_device(config, &who, "rxe0", 1));
}
END_TEST

START_TEST(the_connection_manager_can_be_kept_back)
{
	struct policy_who who = { .uid = 5, .cgroup = "" };

	grant_one()->rdma_cm = false;
	ck_assert_ptr_nonnull(policy_device(config, &who, "rxe0", 1));
	ck_assert_ptr_null(policy_rdma_cm(config, &who));
}
END_TEST

START_TEST(nobody_is_granted_anything_by_an_empty_grant)
{
	struct policy_who who = { .uid = 0, .cgroup = "" };

	config_grants_drop(config);
	ck_assert_ptr_null(policy_device(config, &who, "rxe0", 1));
	grant_default(&config->grants[0], "empty");
	config->n_grants = 1;
	ck_assert_ptr_null(policy_device(config, &who, "rxe0", 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("real");
	TCase *t = harness_tcase(suite, "sysfs");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, devices_are_found_in_the_order_of_their_nodes);
	tcase_add_test(t, a_host_without_devices_has_none);
	tcase_add_test(t, a_device_that_is_half_gone_is_none);
	tcase_add_test(t, there_is_an_end_to_devices);
	tcase_add_test(t, nothing_is_looked_at_before_the_kernel_speaks);
	tcase_add_test(t, counters_are_numbers);
	tcase_add_test(t, a_port_is_read_as_it_is);
	tcase_add_loop_test(t, messages_about_other_things_are_left_alone, 0, sizeof(uevents) / sizeof(uevents[0]));
	t = harness_tcase(suite, "netlink");
	tcase_add_test(t, devices_come_in_several_messages);
	tcase_add_test(t, there_is_room_for_so_many);
	tcase_add_test(t, answers_to_an_older_question_do_not_count);
	tcase_add_test(t, the_driver_is_a_number);
	tcase_add_test(t, a_refusal_is_an_error);
	tcase_add_test(t, resources_have_owners);
	tcase_add_test(t, a_census_counts_by_process);
	tcase_add_loop_test(t, broken_messages_are_harmless, 0, 48);
	t = harness_tcase(suite, "policy");
	tcase_add_checked_fixture(t, config_setup, config_teardown);
	tcase_add_loop_test(t, a_grant_covers_what_it_names, 0, sizeof(grant_cases) / sizeof(grant_cases[0]));
	tcase_add_test(t, users_and_groups_are_admitted);
	tcase_add_test(t, the_connection_manager_can_be_kept_back);
	tcase_add_test(t, nobody_is_granted_anything_by_an_empty_grant);
	return harness_run(suite);
}
