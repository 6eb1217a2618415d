/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory in the daemon: how much there is, who has it, what stands on it, and that nothing of it is left.
 */
#include "daemon/dm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/domain.h"
#include "daemon/session.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

#define MAX (4u << 20) /* of the soft device */

static struct client a, b;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	backend_fake_fail(0, 0);
	fixture_teardown();
}

struct dm_got {
	int status;
	uint32_t handle;
	uint64_t length, size;
};

static struct dm_got answer(struct client *client, unsigned op, const ProtobufCMessage *request)
{
	ProtobufCMessage *message = NULL;
	struct dm_got got = { .status = client_call(client, op, request, &vsd__dm_reply__descriptor, &message) };

	if (got.status == 0) {
		const Vsd__DmReply *reply = (const Vsd__DmReply *)message;

		ck_assert_int_eq(client->fds.n, 1);
		got.handle = reply->handle;
		got.length = reply->length;
		got.size = reply->size;
		protobuf_c_message_free_unpacked(message, NULL);
	} else {
		ck_assert_int_eq(client->fds.n, 0);
	}
	return got;
}

static struct dm_got dm_alloc(struct client *client, uint64_t length)
{
	Vsd__DmAllocRequest request = VSD__DM_ALLOC_REQUEST__INIT;

	request.context = client->context;
	request.length = length;
	return answer(client, VSD__OP__OP_DM_ALLOC, &request.base);
}

static struct dm_got dm_import(struct client *client, uint32_t handle)
{
	Vsd__DmImportRequest request = VSD__DM_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.handle = handle;
	return answer(client, VSD__OP__OP_DM_IMPORT, &request.base);
}

static uint32_t keys;

static Vsd__MrRegRequest reg_request(const struct client *client, uint32_t dm, uint64_t offset, uint64_t length)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.key = client->key + (keys++ << 8);
	request.addr = offset;
	request.length = length;
	request.access = 1 | 32; /* local write, zero-based */
	request.has_dm = true;
	request.dm = dm;
	return request;
}

static int64_t reg(struct client *client, uint32_t dm, uint64_t offset, uint64_t length)
{
	Vsd__MrRegRequest request = reg_request(client, dm, offset, length);

	return client_object(client, VSD__OP__OP_MR_REG, &request.base);
}

static void limit(enum slot slot, uint64_t value)
{
	fixture_server->config->limit[slot] = value;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
}

START_TEST(it_is_memory_that_cannot_shrink)
{
	struct dm_got got = dm_alloc(&a, 5000);
	struct stat st;

	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.length, 5000);
	ck_assert_uint_eq(got.size, 8192);
	ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
	ck_assert_int_eq(st.st_size, 8192);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(fcntl(a.fds.fds[0], F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
	ck_assert_int_eq(pwrite(a.fds.fds[0], "x", 1, 4999), 1);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), EINVAL);
}
END_TEST

static const uint64_t bad_lengths[] = { 0, MAX + 1, UINT64_MAX, UINT64_MAX - 4095, 1ull << 63 };

START_TEST(lengths_that_no_device_has)
{
	ck_assert_int_eq(dm_alloc(&a, bad_lengths[_i]).status, EINVAL);
}
END_TEST

START_TEST(a_context_has_so_much_and_no_more)
{
	struct dm_got all = dm_alloc(&a, MAX - 1), rest;

	ck_assert_int_eq(all.status, 0);
	ck_assert_int_eq(dm_alloc(&a, 2).status, ENOMEM);
	rest = dm_alloc(&a, 1);
	ck_assert_int_eq(rest.status, 0);
	ck_assert_int_eq(dm_alloc(&a, 1).status, ENOMEM);
	/* Another context has its own. */
	ck_assert_int_eq(dm_alloc(&b, MAX).status, 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, all.handle), 0);
	ck_assert_int_eq(dm_alloc(&a, MAX).status, ENOMEM);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, rest.handle), 0);
	ck_assert_int_eq(dm_alloc(&a, MAX).status, 0);
}
END_TEST

START_TEST(it_is_paid_for)
{
	limit(SLOT_DM_BYTES, 8192);
	ck_assert_int_eq(dm_alloc(&a, 8193).status, ENOMEM);

	struct dm_got got = dm_alloc(&a, 1);

	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(dm_alloc(&a, 4097).status, ENOMEM);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), 0);
	limit(SLOT_DM_BYTES, UINT64_MAX);
	limit(SLOT_DMS, 1);
	ck_assert_int_eq(dm_alloc(&a, 1).status, 0);
	ck_assert_int_eq(dm_alloc(&b, 1).status, ENOMEM);
}
END_TEST

START_TEST(a_failure_leaves_nothing)
{
	uint64_t fds = server_session(fixture_server, a.session)->domain->account.used[SLOT_FDS];

	backend_fake_fail(1, ENOMEM);
	ck_assert_int_eq(dm_alloc(&a, MAX).status, ENOMEM);
	limit(SLOT_FDS, fds);
	ck_assert_int_eq(dm_alloc(&a, MAX).status, ENFILE);
	limit(SLOT_FDS, fds + 1);
	ck_assert_int_eq(dm_alloc(&a, MAX).status, 0);
}
END_TEST

/* A second attachment of the same session, by the context's capability. */
static uint32_t attach(struct client *client)
{
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	struct attachment *attachment = attachment_get(server_session(fixture_server, a.session), a.context);
	ProtobufCMessage *reply = NULL;
	uint32_t id;

	request.nonce.data = attachment->context->nonce;
	request.nonce.len = VSD_NONCE_SIZE;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_CONTEXT_ATTACH, &request.base,
				 &vsd__context_reply__descriptor, &reply), 0);
	id = ((const Vsd__ContextReply *)reply)->context;
	protobuf_c_message_free_unpacked(reply, NULL);
	return id;
}

START_TEST(who_has_the_context_has_its_memory)
{
	struct dm_got got = dm_alloc(&a, 4096), again;

	ck_assert_int_eq(pwrite(a.fds.fds[0], "hello", 5, 0), 5);
	/* Not by another context. */
	ck_assert_int_eq(dm_import(&b, got.handle).status, EINVAL);
	ck_assert_int_eq(dm_import(&a, got.handle + 1).status, EINVAL);
	ck_assert_int_eq(dm_import(&a, a.pd).status, EINVAL);
	b.context = attach(&b);
	again = dm_import(&b, got.handle);
	ck_assert_int_eq(again.status, 0);
	ck_assert_uint_eq(again.handle, got.handle);
	ck_assert_uint_eq(again.length, 4096);

	char bytes[5];

	ck_assert_int_eq(pread(b.fds.fds[0], bytes, 5, 0), 5);
	ck_assert_mem_eq(bytes, "hello", 5);
	/* It outlives who made it, and is counted still. */
	client_close(&a);
	fixture_turn();
	ck_assert_int_eq(dm_import(&b, got.handle).status, 0);
	ck_assert_int_eq(dm_alloc(&b, MAX).status, ENOMEM);
	ck_assert_int_eq(client_destroy(&b, OBJECT_DM, got.handle), 0);
	ck_assert_int_eq(dm_alloc(&b, MAX).status, 0);
	client_open(&a);
}
END_TEST

static const struct {
	uint64_t offset, length;
	int want;
} ranges[] = {
	{ 0, 5000, 0 },	   { 4999, 1, 0 },	 { 5000, 0, 0 },
	{ 0, 5001, EINVAL }, { 4999, 2, EINVAL }, { 5001, 0, EINVAL },
	{ 1, UINT64_MAX, EINVAL }, { UINT64_MAX, 1, EINVAL }, { 0, UINT64_MAX, EINVAL },
};

START_TEST(a_region_lies_within_it)
{
	struct dm_got got = dm_alloc(&a, 5000);
	int64_t mr = reg(&a, got.handle, ranges[_i].offset, ranges[_i].length);

	if (ranges[_i].want) {
		ck_assert_int_eq(mr, -ranges[_i].want);
		ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), 0);
		return;
	}
	ck_assert_int_gt(mr, 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, (uint32_t)mr), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, got.handle), 0);
}
END_TEST

START_TEST(a_region_on_it_does_not_move)
{
	struct dm_got got = dm_alloc(&a, 5000);
	int64_t mr = reg(&a, got.handle, 0, 100);
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	ck_assert_int_gt(mr, 0);
	ck_assert_int_eq(reg(&a, 0, 0, 100), -EINVAL);
	ck_assert_int_eq(reg(&a, a.pd, 0, 100), -EINVAL);
	ck_assert_int_eq(reg(&b, got.handle, 0, 100), -EINVAL);
	request.context = a.context;
	request.handle = (uint32_t)mr;
	request.has_length = true;
	request.length = 1 << 20;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EINVAL);
	request.has_length = false;
	request.has_access = true;
	request.access = 32;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dm");
	TCase *t = harness_tcase(suite, "dm");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, it_is_memory_that_cannot_shrink);
	tcase_add_loop_test(t, lengths_that_no_device_has, 0, sizeof(bad_lengths) / sizeof(bad_lengths[0]));
	tcase_add_test(t, a_context_has_so_much_and_no_more);
	tcase_add_test(t, it_is_paid_for);
	tcase_add_test(t, a_failure_leaves_nothing);
	tcase_add_test(t, who_has_the_context_has_its_memory);
	tcase_add_loop_test(t, a_region_lies_within_it, 0, sizeof(ranges) / sizeof(ranges[0]));
	tcase_add_test(t, a_region_on_it_does_not_move);
	return harness_run(suite);
}
