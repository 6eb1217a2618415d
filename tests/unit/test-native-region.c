/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions on real devices, with a kernel of our own.
 */
#include "daemon/native_region.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/server.h"
#include "daemon/session.h"
#include "tests/lib/harness.h"
#include "tests/unit/native_calls.h"

static struct client a, b;

static void setup(void)
{
	native_start(&a, &b);
}

static void teardown(void)
{
	native_stop(&a, &b);
}

/* --- what it does ---------------------------------------------------------------------------------------------------- */

START_TEST(a_region_is_registered_and_released)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE), rkey = 0;
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE | REMOTE_WRITE, 0x5a);

	ck_assert_int_eq(got.status, 0);
	ck_assert(got.created && got.registers);
	ck_assert_uint_eq(kernel_registered(), 0);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, &rkey), 0);
	ck_assert_uint_eq(kernel_registered(), 1);
	ck_assert_uint_eq(rkey, 0x101);
	ck_assert_uint_eq(kernel.iova, got.iova);
	ck_assert_uint_eq(kernel.length, NATIVE_SIZE);
	ck_assert_uint_eq(kernel.access, LOCAL_WRITE | REMOTE_WRITE);
	ck_assert_uint_eq(kernel.driver, RDMA_DRIVER_RXE);
	ck_assert_uint_eq(kernel.first, 0x5a);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
	ck_assert_int_eq(native_release(&a, got.handle), 0);
	ck_assert_uint_eq(kernel_registered(), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	ck_assert_int_eq(native_release(&a, got.handle), EINVAL);
}
END_TEST

START_TEST(two_clients_have_one_region)
{
	uint32_t one = native_give(&a, RDMA_DRIVER_RXE), other = native_give(&b, RDMA_DRIVER_MLX5);
	struct native_got got = native_make(&a, one, "pool", LOCAL_WRITE, 1), same = native_import(&b, other, "pool", LOCAL_WRITE | REMOTE_READ);

	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(same.status, 0);
	ck_assert(!same.created);
	ck_assert_uint_eq(same.region, got.region);
	ck_assert_uint_eq(same.iova, got.iova);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_uint_eq(kernel_registered(), 2);
	/* One goes; the other has it still. */
	client_close(&a);
	ck_assert_uint_eq(kernel_registered(), 1);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
}
END_TEST

START_TEST(it_goes_with_its_device)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1), idle = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	ck_assert_int_eq(idle.status, 0);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_end(&a, native), 0);
	ck_assert_uint_eq(kernel_registered(), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	ck_assert_int_eq(native_release(&a, got.handle), EINVAL);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), EINVAL);
}
END_TEST

START_TEST(it_goes_with_its_client)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_make(&a, 0, NULL, LOCAL_WRITE, 1).status, 0);
	client_close(&a);
	ck_assert_uint_eq(kernel_registered(), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

START_TEST(a_region_that_is_released_stays_for_who_has_it)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, "pool", LOCAL_WRITE, 1);

	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(region_release_as(&a, "pool"), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
	ck_assert_int_eq(native_import(&b, 0, "pool", 0).status, ENOENT);
	ck_assert_int_eq(native_release(&a, got.handle), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

START_TEST(it_is_exported_and_described_like_any)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;
	Vsd__RegionQueryRequest query = VSD__REGION_QUERY_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	request.mr = query.mr = got.handle;
	request.name = (char *)(uintptr_t) "pool";
	request.flags = REGION_READ_ONLY;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_QUERY, &query.base, &vsd__item__descriptor, &message), 0);
	ck_assert_str_eq(((const Vsd__Item *)message)->name, "pool");
	ck_assert_uint_eq(((const Vsd__Item *)message)->users, 1);
	protobuf_c_message_free_unpacked(message, NULL);
	request.mr = query.mr = got.handle + 1;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL), EINVAL);
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_QUERY, &query.base, NULL, NULL), EINVAL);
}
END_TEST

/* --- drivers --------------------------------------------------------------------------------------------------------- */

static const struct {
	uint32_t driver;
	bool registers;
} drivers[] = {
	{ RDMA_DRIVER_RXE, true },	  { RDMA_DRIVER_MLX5, true },	    { RDMA_DRIVER_MLX4, true },
	{ RDMA_DRIVER_EFA, true },	  { RDMA_DRIVER_HNS, true },	    { RDMA_DRIVER_CXGB4, true },
	{ RDMA_DRIVER_HFI1, true },	  { 19 /* erdma */, true },	    { 20 /* mana */, true },
	{ RDMA_DRIVER_SIW, false },	  { RDMA_DRIVER_IRDMA, false },	    { RDMA_DRIVER_MTHCA, false },
	{ RDMA_DRIVER_BNXT_RE, false },	  { RDMA_DRIVER_OCRDMA, false },    { RDMA_DRIVER_QEDR, false },
	{ RDMA_DRIVER_UNKNOWN, false },	  { 1000, false },		    { UINT32_MAX, false },
};

START_TEST(some_drivers_register_themselves)
{
	uint32_t native = native_give(&a, drivers[_i].driver);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(got.registers, drivers[_i].registers);
	if (!got.registers) {
		ck_assert_ptr_nonnull(strstr(native_logged, "registered by the client itself"));
		ck_assert_ptr_nonnull(strstr(native_logged, "dev0"));
	}
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), got.registers ? 0 : EOPNOTSUPP);
	ck_assert_int_eq(native_release(&a, got.handle), 0);
}
END_TEST

START_TEST(without_a_device_of_ours_there_is_the_memory_alone)
{
	struct native_got got = native_make(&a, 0, "pool", LOCAL_WRITE, 1);

	ck_assert_int_eq(got.status, 0);
	ck_assert(!got.registers);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), EOPNOTSUPP);
	ck_assert_int_eq(native_import(&b, 0, "pool", 0).status, 0);
}
END_TEST

/* --- hostile --------------------------------------------------------------------------------------------------------- */

START_TEST(what_is_not_its_own_is_refused)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	/* Another client's device, and another's region. */
	ck_assert_int_eq(native_make(&b, native, NULL, LOCAL_WRITE, 1).status, EINVAL);
	ck_assert_ptr_nonnull(strstr(native_logged, "no real context"));
	ck_assert_int_eq(native_reg(&b, got.handle, KERNEL_PD, NULL), EINVAL);
	ck_assert_ptr_nonnull(strstr(native_logged, "no native region"));
	ck_assert_int_eq(native_release(&b, got.handle), EINVAL);
	ck_assert_int_eq(native_make(&a, native + 1, NULL, LOCAL_WRITE, 1).status, EINVAL);
	ck_assert_int_eq(native_make(&a, UINT32_MAX, NULL, LOCAL_WRITE, 1).status, EINVAL);
}
END_TEST

START_TEST(a_pd_that_is_none_registers_nothing)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD + 1, NULL), EINVAL);
	ck_assert_ptr_nonnull(strstr(native_logged, "pd 8 is none of that device's"));
	ck_assert_int_eq(native_reg(&a, got.handle, UINT32_MAX, NULL), EINVAL);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), EBUSY);
	ck_assert_uint_eq(kernel_registered(), 1);
}
END_TEST

static const struct {
	uint32_t access;
	int want;
} accesses[] = {
	{ 0, 0 },
	{ LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND, 0 },
	{ LOCAL_WRITE | 1u << 20, 0 },
	{ REMOTE_WRITE | REMOTE_ATOMIC, 0 }, /* who makes one may write it */
	{ 1u << 5, EINVAL }, /* zero based */
	{ 1u << 6, EINVAL }, /* on demand */
	{ 1u << 7, EINVAL }, /* huge pages */
	{ 1u << 21, EINVAL },
	{ UINT32_MAX, EINVAL },
};

START_TEST(few_rights_are_known)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);

	ck_assert_int_eq(native_make(&a, native, NULL, accesses[_i].access, 1).status, accesses[_i].want);
	ck_assert_uint_eq(fixture_server->regions.count, accesses[_i].want ? 0 : 1);
}
END_TEST

START_TEST(who_may_read_registers_no_writing)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE), other = native_give(&b, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1), same;

	ck_assert_int_eq(got.status, 0);
	{
		Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;

		request.mr = got.handle;
		request.name = (char *)(uintptr_t) "pool";
		request.flags = REGION_READ_ONLY;
		ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL), 0);
	}
	ck_assert_int_eq(native_import(&b, other, "pool", LOCAL_WRITE).status, EACCES);
	ck_assert_int_eq(native_import(&b, other, "pool", MW_BIND).status, EACCES);
	same = native_import(&b, other, "pool", REMOTE_READ);
	ck_assert_int_eq(same.status, 0);
	ck_assert(same.flags & REGION_READ_ONLY);
	ck_assert(!region_fd_writes(&b));
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_uint_eq(kernel.access, REMOTE_READ);
}
END_TEST

/* A sealed region of @a's in @b's hands. */
static struct native_got sealed(uint32_t native, uint32_t other)
{
	struct native_got got = native_make(&a, native, "pool", LOCAL_WRITE, 1), same;
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;

	request.mr = got.handle;
	request.name = (char *)(uintptr_t) "pool";
	request.flags = REGION_SEAL;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL), 0);
	same = native_import(&b, other, "pool", REMOTE_READ);
	ck_assert_int_eq(same.status, 0);
	return same;
}

static bool is_own_user(void)
{
	return geteuid() != 0 && client_session(&a)->uid == geteuid();
}

/* Who changes his user is no longer looked into: by the leak checker, for one. */
static void set_user(uid_t uid)
{
	ck_assert_int_eq(seteuid(uid), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}

static void be_user(uid_t uid)
{
	set_user(uid);
	client_close(&a);
	client_close(&b);
	client_join(&a);
	client_join(&b);
}

START_TEST(what_is_sealed_is_registered_as_well)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE), other = native_give(&b, RDMA_DRIVER_RXE);
	struct native_got same = sealed(native, other);

	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_release(&b, same.handle), 0);
	same = native_import(&b, other, "pool", REMOTE_READ);
	kernel.old = !is_own_user();
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_uint_eq(kernel.access, REMOTE_READ);
}
END_TEST

/* Where clients and daemon are of one ordinary user there is no way around the seal, not even for a device that only reads. */
START_TEST(what_is_sealed_of_our_own_user_is_refused_by_old_kernels)
{
	uint32_t native, other;
	struct native_got same;

	if (geteuid() == 0)
		be_user(65534);
	native = native_give(&a, RDMA_DRIVER_RXE);
	other = native_give(&b, RDMA_DRIVER_RXE);
	same = sealed(native, other);
	ck_assert(is_own_user());
	kernel.old = true;
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), EFAULT);
	ck_assert_ptr_nonnull(strstr(native_logged, "its clients are of the daemon's own user"));
	ck_assert_uint_eq(kernel_registered(), 0);
	kernel.old = false;
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(native_release(&b, same.handle), 0);
	set_user(getuid());
}
END_TEST

START_TEST(pages_that_are_not_there_are_not_ours_to_bring)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, -1);

	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), EFAULT);
	ck_assert_ptr_nonnull(strstr(native_logged, "not all of its pages"));
	ck_assert_uint_eq(kernel_registered(), 0);
}
END_TEST

static const struct {
	uint64_t size;
	uint32_t flags;
	int want;
} sizes[] = {
	{ 0, 0, EINVAL },
	{ UINT64_MAX, 0, EINVAL },
	{ 1ull << 62, 0, EINVAL },
	{ NATIVE_SIZE, REGION_READ_ONLY, EINVAL },
	{ NATIVE_SIZE, REGION_PERSIST, EINVAL },
	{ NATIVE_SIZE, REGION_CREATE, EINVAL },
	{ NATIVE_SIZE, REGION_HUGE, EINVAL },
	{ NATIVE_SIZE, 1u << 31, EINVAL },
	{ 1, 0, 0 },
};

START_TEST(sizes_and_flags_are_checked)
{
	Vsd__NativeRegionRequest request = VSD__NATIVE_REGION_REQUEST__INIT;

	request.has_native = true;
	request.native = native_give(&a, RDMA_DRIVER_RXE);
	request.has_size = true;
	request.size = sizes[_i].size;
	request.flags = sizes[_i].flags;
	ck_assert_int_eq(native_ask(&a, &request).status, sizes[_i].want);
}
END_TEST

static const struct {
	enum slot slot;
	uint64_t limit;
	int want;
} quotas[] = {
	{ SLOT_PINNED_BYTES, 2 * NATIVE_SIZE, ENOMEM },
	{ SLOT_MRS, 2, ENOMEM },
	{ SLOT_REGIONS, 2, EDQUOT },
	{ SLOT_REGION_BYTES, 2 * NATIVE_SIZE, EDQUOT },
};

START_TEST(quotas_hold)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got;

	region_limit(quotas[_i].slot, quotas[_i].limit);
	got = native_make(&a, native, NULL, LOCAL_WRITE, 1);
	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(native_make(&a, native, NULL, LOCAL_WRITE, 1).status, 0);
	ck_assert_int_eq(native_make(&a, native, NULL, LOCAL_WRITE, 1).status, quotas[_i].want);
	ck_assert_uint_eq(fixture_server->regions.count, 2);
	/* What is given back may be had again. */
	ck_assert_int_eq(native_release(&a, got.handle), 0);
	ck_assert_int_eq(native_make(&a, native, NULL, LOCAL_WRITE, 1).status, 0);
}
END_TEST

START_TEST(what_the_kernel_refuses_changes_nothing)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	kernel.fail = -ENOMEM;
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), ENOMEM);
	kernel.fail = -EIO;
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), EIO);
	kernel.fail = 0;
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	/* A window is bound to it, say. */
	kernel.fail_dereg = -EBUSY;
	ck_assert_int_eq(native_release(&a, got.handle), EBUSY);
	kernel.fail_dereg = 0;
	ck_assert_int_eq(native_release(&a, got.handle), 0);
}
END_TEST

START_TEST(what_the_client_deregistered_itself_is_gone)
{
	uint32_t native = native_give(&a, RDMA_DRIVER_RXE);
	struct native_got got = native_make(&a, native, NULL, LOCAL_WRITE, 1);

	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	kernel.there[1] = false;
	kernel.registered--;
	ck_assert_int_eq(native_release(&a, got.handle), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("native-region");
	TCase *t = harness_tcase(suite, "server");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_region_is_registered_and_released);
	tcase_add_test(t, two_clients_have_one_region);
	tcase_add_test(t, it_goes_with_its_device);
	tcase_add_test(t, it_goes_with_its_client);
	tcase_add_test(t, a_region_that_is_released_stays_for_who_has_it);
	tcase_add_test(t, it_is_exported_and_described_like_any);
	tcase_add_loop_test(t, some_drivers_register_themselves, 0, sizeof(drivers) / sizeof(drivers[0]));
	tcase_add_test(t, without_a_device_of_ours_there_is_the_memory_alone);
	tcase_add_test(t, what_is_not_its_own_is_refused);
	tcase_add_test(t, a_pd_that_is_none_registers_nothing);
	tcase_add_loop_test(t, few_rights_are_known, 0, sizeof(accesses) / sizeof(accesses[0]));
	tcase_add_test(t, who_may_read_registers_no_writing);
	tcase_add_test(t, what_is_sealed_is_registered_as_well);
	tcase_add_test(t, what_is_sealed_of_our_own_user_is_refused_by_old_kernels);
	tcase_add_test(t, pages_that_are_not_there_are_not_ours_to_bring);
	tcase_add_loop_test(t, sizes_and_flags_are_checked, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_loop_test(t, quotas_hold, 0, sizeof(quotas) / sizeof(quotas[0]));
	tcase_add_test(t, what_the_kernel_refuses_changes_nothing);
	tcase_add_test(t, what_the_client_deregistered_itself_is_gone);
	return harness_run(suite);
}
