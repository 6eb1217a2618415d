/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domain contexts, with a kernel of our own.
 */
#include "daemon/native_domain.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <string.h>

#include "daemon/config.h"
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

/* Two devices, and a grant to all of both. */
static void devices_give(bool domain_contexts)
{
	struct real_devices *real = &fixture_server->real;
	struct config *config = fixture_server->config;

	real->list[0] = (struct real_device){ .name = "dev0", .node = "uverbs0", .rdev = 1, .driver = RDMA_DRIVER_MLX5 };
	real->list[1] = (struct real_device){ .name = "dev1", .node = "uverbs1", .rdev = 2, .driver = RDMA_DRIVER_RXE };
	real->n = 2;
	config_grants_drop(config);
	grant_default(&config->grants[0], "test");
	config->grants[0].users.any = true;
	config->grants[0].domain_contexts = domain_contexts;
	config->n_grants = 1;
}

/* Offers @native and @pd when @native is not 0. @joined: the native that the client has now. */
static int domain(struct client *client, const char *node, uint32_t native, uint32_t pd, uint32_t *joined)
{
	Vsd__NativeDomainRequest request = VSD__NATIVE_DOMAIN_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.node = (char *)(uintptr_t)node;
	request.has_native = request.has_pd = native != 0;
	request.native = native;
	request.pd = pd;
	r = client_call(client, VSD__OP__OP_NATIVE_DOMAIN, &request.base,
		native ? NULL : &vsd__native_domain_reply__descriptor, &message);
	if (message) {
		ck_assert_uint_eq(((const Vsd__NativeDomainReply *)message)->pd, KERNEL_PD);
		ck_assert_uint_eq(client->fds.n, 1);
		*joined = ((const Vsd__NativeDomainReply *)message)->native;
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return r;
}

START_TEST(a_region_is_registered_once_for_a_domain)
{
	uint32_t own, one = 0, other = 0, rkey = 0, same_rkey = 1;
	struct native_got got, same;

	devices_give(true);
	own = native_give(&a, RDMA_DRIVER_MLX5);
	ck_assert_int_eq(domain(&a, "uverbs0", 0, 0, &one), ENOENT);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), EEXIST);
	ck_assert_int_eq(domain(&a, "uverbs0", 0, 0, &one), 0);
	ck_assert_int_eq(native_end(&a, own), 0);
	ck_assert_int_eq(domain(&b, "uverbs0", 0, 0, &other), 0);
	got = native_make(&a, one, "pool", LOCAL_WRITE, 1);
	same = native_import(&b, other, "pool", LOCAL_WRITE);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD + 1, NULL), EINVAL);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, &rkey), 0);
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, &same_rkey), 0);
	ck_assert_uint_eq(rkey, same_rkey);
	ck_assert_uint_eq(kernel_registered(), 1);
	/* Other rights are another registration. */
	same = native_import(&b, other, "pool", 0);
	ck_assert_int_eq(native_reg(&b, same.handle, KERNEL_PD, &same_rkey), 0);
	ck_assert_uint_ne(rkey, same_rkey);
	ck_assert_uint_eq(kernel_registered(), 2);
	ck_assert_int_eq(native_release(&b, same.handle), 0);
	ck_assert_uint_eq(kernel_registered(), 1);
	/* Whoever registered it goes; it stays for the other, and goes with him. */
	client_close(&a);
	ck_assert_uint_eq(kernel_registered(), 1);
	client_close(&b);
	ck_assert_uint_eq(kernel_registered(), 0);
	ck_assert(list_empty(&fixture_server->native_domains));
}
END_TEST

START_TEST(a_busy_one_may_be_had_again)
{
	uint32_t own, one = 0;
	struct native_got got, same;

	devices_give(true);
	own = native_give(&a, RDMA_DRIVER_MLX5);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(domain(&a, "uverbs0", 0, 0, &one), 0);
	got = native_make(&a, one, "pool", LOCAL_WRITE, 1);
	ck_assert_int_eq(native_reg(&a, got.handle, KERNEL_PD, NULL), 0);
	kernel.fail_dereg = -EBUSY;
	ck_assert_int_eq(native_release(&a, got.handle), EBUSY);
	kernel.fail_dereg = 0;
	same = native_import(&a, one, "pool", LOCAL_WRITE);
	ck_assert_int_eq(native_reg(&a, same.handle, KERNEL_PD, NULL), 0);
	ck_assert_uint_eq(kernel_registered(), 1);
	ck_assert_int_eq(native_release(&a, got.handle), 0);
	ck_assert_uint_eq(kernel_registered(), 1);
	ck_assert_int_eq(native_release(&a, same.handle), 0);
	ck_assert_uint_eq(kernel_registered(), 0);
}
END_TEST

/* Everybody's things are in one file, and the kernel does not say whose what is. */
START_TEST(what_a_dead_member_left_there_is_not_touched)
{
	uint32_t own, one = 0;

	devices_give(true);
	own = native_give(&a, RDMA_DRIVER_MLX5);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), 0);
	ck_assert_int_eq(domain(&b, "uverbs0", 0, 0, &one), 0);
	session_lost(client_session(&b), GONE_ADMIN);
	fixture_turn();
	ck_assert_uint_eq(kernel.lists, 0);
	session_lost(client_session(&a), GONE_ADMIN);
	fixture_turn();
	ck_assert_uint_eq(kernel.lists, 0);
	ck_assert(list_empty(&fixture_server->native_domains));
}
END_TEST

START_TEST(what_a_dead_client_left_in_its_own_is_destroyed)
{
	native_give(&a, RDMA_DRIVER_MLX5);
	session_lost(client_session(&a), GONE_ADMIN);
	fixture_turn();
	ck_assert_uint_gt(kernel.lists, 0);
}
END_TEST

START_TEST(domain_contexts_are_opted_into_and_for_few_providers)
{
	uint32_t own = native_give(&a, RDMA_DRIVER_MLX5), none = 0;
	struct client stranger;

	devices_give(false);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), EACCES);
	ck_assert_ptr_nonnull(strstr(native_logged, "grant test has no domain contexts"));
	devices_give(true);
	ck_assert_int_eq(domain(&a, "uverbs1", 0, 0, &none), EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(native_logged, "uverbs1: provider rxe cannot import"));
	ck_assert_int_eq(domain(&a, "rdma_cm", 0, 0, &none), ENOENT);
	ck_assert_int_eq(domain(&a, "uverbs7", 0, 0, &none), ENOENT);
	/* What is not its own, or of another device, or has no PD. */
	ck_assert_int_eq(domain(&b, "uverbs0", own, KERNEL_PD, NULL), EINVAL);
	ck_assert_int_eq(domain(&a, "uverbs0", own + 1, KERNEL_PD, NULL), EINVAL);
	ck_assert_int_eq(native_make(&a, own, NULL, LOCAL_WRITE, 1).status, 0);
	ck_assert_int_eq(domain(&a, "uverbs0", own, KERNEL_PD, NULL), EBUSY);
	own = native_give(&b, RDMA_DRIVER_MLX5);
	ck_assert_int_eq(domain(&b, "uverbs0", own, KERNEL_PD, NULL), 0);
	/* Another domain has none. */
	client_open_stranger(&stranger);
	ck_assert_int_eq(domain(&stranger, "uverbs0", 0, 0, &none), ENOENT);
	client_close(&stranger);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("native-domain");
	TCase *t = harness_tcase(suite, "domain");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_region_is_registered_once_for_a_domain);
	tcase_add_test(t, a_busy_one_may_be_had_again);
	tcase_add_test(t, what_a_dead_member_left_there_is_not_touched);
	tcase_add_test(t, what_a_dead_client_left_in_its_own_is_destroyed);
	tcase_add_test(t, domain_contexts_are_opted_into_and_for_few_providers);
	return harness_run(suite);
}
