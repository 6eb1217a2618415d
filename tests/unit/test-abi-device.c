/* SPDX-License-Identifier: BSD-2-Clause */
/* client/abi/{device,sysfs}.c: the list, and how long a device lives. Real devices of the machine are let be. */
#include "client/abi/abi.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;
static int devices_told = 2; /* how many the daemon lists */

static void device_init(Vsd__Device *device, int i)
{
	static char names[2][8] = { "soft0", "soft1" };

	vsd__device__init(device);
	device->name = names[i];
	device->index = 40 + (uint32_t)i;
	device->guid = 0x0102030405060708;
	device->node_type = IBV_NODE_CA;
	device->transport = IBV_TRANSPORT_IB;
	device->soft = true;
}

static bool handle(
	struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	Vsd__DeviceListReply reply = VSD__DEVICE_LIST_REPLY__INIT;
	Vsd__Device devices[2], *list[2] = { &devices[0], &devices[1] };

	device_init(&devices[0], 0);
	device_init(&devices[1], 1);
	reply.devices = list;
	reply.n_devices = (size_t)devices_told;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

/* What the real library opens, it keeps: before the fds are counted. */
static void real_open(void)
{
	int n;
	struct ibv_device **list;

	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);
	list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
}

static void setup(void)
{
	real_open();
	harness_fds_setup();
	fake_start(&fake, handle);
}

static void teardown(void)
{
	control_close();
	fake_stop(&fake);
	harness_fds_teardown();
}

static struct ibv_device *find(struct ibv_device **list, const char *name)
{
	for (; *list; list++)
		if (strcmp(ibv_get_device_name(*list), name) == 0)
			return *list;
	return NULL;
}

START_TEST(soft_devices_are_listed)
{
	int n = 0, count = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	ck_assert_ptr_nonnull(list);
	while (list[count])
		count++;
	ck_assert_int_eq(count, n);

	struct ibv_device *dev = find(list, "soft1");

	ck_assert_ptr_nonnull(find(list, "soft0"));
	ck_assert_ptr_nonnull(dev);
	ck_assert_int_eq(ibv_get_device_index(dev), 41);
	ck_assert(ibv_get_device_guid(dev) == htobe64(0x0102030405060708));
	ck_assert_int_eq(dev->node_type, IBV_NODE_CA);
	ck_assert_int_eq(dev->transport_type, IBV_TRANSPORT_IB);
	ck_assert_str_eq(dev->ibdev_path, "/sys/class/infiniband/soft1");
	ibv_free_device_list(list);
}
END_TEST

START_TEST(a_device_keeps_its_address_while_a_list_names_it)
{
	struct ibv_device **first = ibv_get_device_list(NULL);
	struct ibv_device *dev = find(first, "soft0");
	struct ibv_device **second = ibv_get_device_list(NULL);

	ck_assert_ptr_eq(find(second, "soft0"), dev);
	ibv_free_device_list(first);
	ck_assert_str_eq(ibv_get_device_name(dev), "soft0");
	ibv_free_device_list(second);
	ck_assert_ptr_null(abi_device_ref(dev)); /* gone with the last list */
}
END_TEST

START_TEST(there_is_nothing_behind_a_device)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const uint8_t *tail = (const uint8_t *)(find(list, "soft0") + 1);

	for (int i = 0; i < 512; i++)
		ck_assert_uint_eq(tail[i], 0);
	ibv_free_device_list(list);
}
END_TEST

/* Without a daemon the answer is the real library's, which does not crash on what it does not know either. */
START_TEST(without_a_daemon_there_are_no_soft_devices)
{
	int n = -1;

	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);

	struct ibv_device **list = ibv_get_device_list(&n);

	if (list) {
		ck_assert_ptr_null(find(list, "soft0"));
		ibv_free_device_list(list);
	} else {
		ck_assert_int_eq(n, 0);
	}
}
END_TEST

START_TEST(a_daemon_with_no_device_is_no_error)
{
	int n = -1;

	devices_told = 0;

	struct ibv_device **list = ibv_get_device_list(&n);

	ck_assert_ptr_nonnull(list);
	ck_assert_int_ge(n, 0);
	ibv_free_device_list(list);
}
END_TEST

/* sysfs.c */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

START_TEST(sysfs_files_of_a_soft_device_are_answered)
{
	char buf[64];
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *path = find(list, "soft0")->ibdev_path;

	ck_assert_int_eq(ibv_read_sysfs_file(path, "node_guid", buf, sizeof(buf)), 19);
	ck_assert_str_eq(buf, "0102:0304:0506:0708");
	ck_assert_int_gt(ibv_read_sysfs_file(path, "board_id", buf, sizeof(buf)), 0);
	ck_assert_int_eq(ibv_read_sysfs_file(path, "node_guid", buf, 5), 4);
	ck_assert_str_eq(buf, "0102");
	ck_assert_int_eq(ibv_read_sysfs_file(path, "nosuchfile", buf, sizeof(buf)), -1);
	ibv_free_device_list(list);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("abi-device");
	TCase *tcase = tcase_create("list");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, soft_devices_are_listed);
	tcase_add_test(tcase, a_device_keeps_its_address_while_a_list_names_it);
	tcase_add_test(tcase, there_is_nothing_behind_a_device);
	tcase_add_test(tcase, without_a_daemon_there_are_no_soft_devices);
	tcase_add_test(tcase, a_daemon_with_no_device_is_no_error);
	tcase_add_test(tcase, sysfs_files_of_a_soft_device_are_answered);
	suite_add_tcase(suite, tcase);
	return harness_run(suite);
}
