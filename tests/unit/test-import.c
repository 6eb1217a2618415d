/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Imports of PDs and MRs in the daemon: who may have what of another process of the context, by which key, and that nothing of
 * it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/domain.h"
#include "daemon/mr.h"
#include "daemon/object.h"
#include "daemon/session.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

static struct client a, b;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
}

static void teardown(void)
{
	backend_fake_fail(0, 0);
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

/* ---- PDs ---- */

static int pd_call(struct client *client, unsigned opcode, const ProtobufCMessage *request,
	uint32_t *handle, uint32_t *number)
{
	ProtobufCMessage *message;
	int status =
		client_call(client, opcode, request, &vsd__object_reply__descriptor, &message);
	const Vsd__ObjectReply *reply = (const void *)message;

	if (status != 0)
		return status;
	ck_assert(reply->has_number && reply->number > 0);
	*handle = reply->handle;
	*number = reply->number;
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}

static int pd_alloc(struct client *client, uint32_t *handle, uint32_t *number)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = client->context;
	return pd_call(client, VSD__OP__OP_PD_ALLOC, &request.base, handle, number);
}

static int pd_import(struct client *client, uint32_t pd, uint32_t *number)
{
	Vsd__PdImportRequest request = VSD__PD_IMPORT_REQUEST__INIT;
	uint32_t handle;
	int status;

	request.context = client->context;
	request.handle = pd;
	status = pd_call(client, VSD__OP__OP_PD_IMPORT, &request.base, &handle, number);
	if (status == 0)
		ck_assert_uint_eq(handle, pd);
	return status;
}

/* @client attaches to a's context. */
static void attach(struct client *client)
{
	struct session *session = server_session(fixture_server, a.session);
	struct attachment *attachment = attachment_get(session, a.context);
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	ProtobufCMessage *reply;

	request.nonce.data = attachment->context->nonce;
	request.nonce.len = VSD_NONCE_SIZE;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_CONTEXT_ATTACH, &request.base,
				 &vsd__context_reply__descriptor, &reply),
		0);
	client->context = ((Vsd__ContextReply *)reply)->context;
	protobuf_c_message_free_unpacked(reply, NULL);
}

START_TEST(a_pd_has_the_same_number_for_all)
{
	uint32_t pd, number, other_pd, other, imported;

	ck_assert_int_eq(pd_alloc(&a, &pd, &number), 0);
	ck_assert_int_eq(pd_alloc(&b, &other_pd, &other), 0);
	ck_assert_uint_ne(number, other);
	attach(&b);
	ck_assert_int_eq(pd_import(&b, pd, &imported), 0);
	ck_assert_uint_eq(imported, number);
	ck_assert_int_eq(pd_import(&a, pd, &imported), 0);
	ck_assert_uint_eq(imported, number);
	ck_assert_int_eq(pd_import(&b, a.cq, &imported), EINVAL);
	ck_assert_int_eq(pd_import(&b, 0, &imported), EINVAL);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, pd), 0);
	ck_assert_int_eq(pd_import(&b, pd, &imported), EINVAL);
	b.context = 99;
	ck_assert_int_eq(pd_import(&b, pd, &imported), EINVAL);
}
END_TEST

/* ---- MRs on regions ---- */

static struct region_got mr_import(
	struct client *client, uint32_t pd, uint32_t handle, uint32_t spare)
{
	Vsd__MrImportRequest request = VSD__MR_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.pd = pd;
	request.handle = handle;
	request.spare_key = spare;
	return region_answer(client, VSD__OP__OP_MR_IMPORT, &request.base);
}

START_TEST(an_mr_on_a_region_is_imported_with_its_rights)
{
	struct region_got made = region_create(&a, 4096, REMOTE_WRITE, 0, NULL), got;
	uint32_t pd, number;

	attach(&b);
	got = mr_import(&b, a.pd, made.mr, 0);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.key, made.key);
	ck_assert_uint_eq(got.iova, made.iova);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_WRITE);
	ck_assert_uint_ne(got.mr, made.mr);
	ck_assert(region_fd_writes(&b));
	/* The one that came of it is as good; in the process that has it already it needs another key. */
	ck_assert_int_eq(mr_import(&a, a.pd, got.mr, 0).status, EINVAL);
	ck_assert_uint_eq(mr_import(&a, a.pd, got.mr, a.key).key, a.key);
	ck_assert_int_eq(pd_alloc(&a, &pd, &number), 0);
	ck_assert_int_eq(mr_import(&b, pd, made.mr, 0).status, EINVAL);
	ck_assert_int_eq(mr_import(&b, a.cq, made.mr, 0).status, EINVAL);
	ck_assert_int_eq(mr_import(&b, a.pd, 0, 0).status, EINVAL);
	ck_assert_int_eq(mr_import(&b, a.pd, a.pd, 0).status, EINVAL);
	/* It outlives what it came from. */
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, made.mr), 0);
	ck_assert_int_eq(mr_import(&b, a.pd, made.mr, 0).status, EINVAL);
	client_close(&a);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
}
END_TEST

START_TEST(reading_is_all_that_an_importer_of_a_readers_mr_may_do)
{
	struct region_got made, got;

	ck_assert_int_eq(region_create(&b, 4096, 0, REGION_READ_ONLY, "ro").status, 0);
	made = region_import(&a, "ro", REMOTE_READ);
	attach(&b);
	b.key += 256;
	got = mr_import(&b, a.pd, made.mr, b.key);
	/* Keys are leased to a context's attachment. */
	ck_assert_int_eq(got.status, EINVAL);
	client_close(&b);
	client_open(&b);
	attach(&b);
	got = mr_import(&b, a.pd, made.mr, 0);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.access, REMOTE_READ);
	ck_assert_uint_eq(got.flags & REGION_READ_ONLY, REGION_READ_ONLY);
	ck_assert(!region_fd_writes(&b));
}
END_TEST

/* ---- MRs on a process's own memory ---- */

static int64_t plain_mr(const struct client *client, uint32_t key, uint64_t addr, uint64_t length, uint32_t access)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = client->context;
	request.pd = a.pd;
	request.key = key;
	request.addr = addr;
	request.iova = addr + 0x100000;
	request.length = length;
	request.access = access;
	return client_object((struct client *)(uintptr_t)client, VSD__OP__OP_MR_REG, &request.base);
}

/* The process that a pidfd is of; 0: it is none. */
static int pid_behind(int pidfd)
{
	char path[64], line[128];
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);

	FILE *file = fopen(path, "r");

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	fclose(file);
	return pid;
}

START_TEST(an_mr_on_a_processs_memory_comes_with_the_process)
{
	uint32_t plain = (uint32_t)plain_mr(&a, a.key + 256, 65536, 8192, LOCAL_WRITE | REMOTE_READ);
	struct region_got got, again;

	attach(&b);
	got = mr_import(&b, a.pd, plain, b.key);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.key, a.key + 256);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_READ);
	ck_assert_uint_eq(got.iova, 65536 + 0x100000);
	ck_assert_uint_eq(got.memory, VSD__MR_MEMORY__MR_ON_PROCESS);
	ck_assert_uint_eq(got.at, 65536);
	ck_assert_uint_eq(got.length, 8192);
	ck_assert_int_eq(pid_behind(b.fds.fds[0]), getpid());
	/* Once more it has a key of its own, which is of its lease. */
	ck_assert_int_eq(mr_import(&b, a.pd, plain, a.key + 512).status, EINVAL);
	again = mr_import(&b, a.pd, plain, b.key);
	ck_assert_int_eq(again.status, EINVAL); /* leases are an attachment's */
	/* What is imported is nothing to import from, and stays where it is. */
	ck_assert_int_eq(mr_import(&a, a.pd, got.mr, 0).status, EOPNOTSUPP);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	got = mr_import(&b, a.pd, plain, 0);
	ck_assert_uint_eq(got.key, a.key + 256);
	/* It outlives what it came from, and its process. */
	client_close(&a);
	ck_assert_int_eq(mr_import(&b, a.pd, plain, 0).status, EINVAL);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
}
END_TEST

static uint32_t lease(struct client *client)
{
	Vsd__LeaseRequest request = VSD__LEASE_REQUEST__INIT;
	ProtobufCMessage *reply;
	uint32_t first;

	request.context = client->context;
	request.kind = VSD__LEASE_KIND__LEASE_KEY;
	request.count = 1;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_LEASE, &request.base, &vsd__lease_reply__descriptor, &reply), 0);
	first = ((Vsd__LeaseReply *)reply)->first;
	protobuf_c_message_free_unpacked(reply, NULL);
	return first << 8;
}

START_TEST(a_second_import_has_the_spare_key)
{
	uint32_t plain = (uint32_t)plain_mr(&a, a.key + 256, 65536, 8192, 0), spare;
	struct region_got got;

	attach(&b);
	spare = lease(&b);
	ck_assert_uint_eq(mr_import(&b, a.pd, plain, spare).key, a.key + 256);
	got = mr_import(&b, a.pd, plain, spare);
	ck_assert_uint_eq(got.key, spare);
	ck_assert_int_eq(mr_import(&b, a.pd, plain, spare).status, EEXIST);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(mr_import(&b, a.pd, plain, spare).key, spare);
}
END_TEST

START_TEST(nobody_else_can_have_it)
{
	const uint32_t on_demand = 1 << 6;
	uint32_t plain = (uint32_t)plain_mr(&a, a.key + 256, 65536, 8192, 0), pd, number;
	int64_t whole = plain_mr(&a, a.key + 512, 0, UINT64_MAX, LOCAL_WRITE),
		paged = plain_mr(&a, a.key + 768, 65536, 4096, on_demand);
	struct client stranger;

	ck_assert_int_gt(whole, 0);
	ck_assert_int_gt(paged, 0);
	/* The one that has it imports nothing. */
	ck_assert_int_eq(mr_import(&a, a.pd, plain, 0).status, EOPNOTSUPP);
	/* Without the context there is no such MR. */
	ck_assert_int_eq(mr_import(&b, a.pd, plain, 0).status, EINVAL);
	attach(&b);
	ck_assert_int_eq(mr_import(&b, a.pd, (uint32_t)whole, 0).status, EOPNOTSUPP);
	ck_assert_int_eq(mr_import(&b, a.pd, (uint32_t)paged, 0).status, EOPNOTSUPP);
	ck_assert_int_eq(pd_alloc(&b, &pd, &number), 0);
	ck_assert_int_eq(mr_import(&b, pd, plain, 0).status, EINVAL);
	/* Who was handed the context, but is of another domain. */
	client_open_stranger(&stranger);
	attach(&stranger);
	ck_assert_int_eq(mr_import(&stranger, a.pd, plain, 0).status, EOPNOTSUPP);
	client_close(&stranger);
}
END_TEST

static int rereg(struct client *client, uint32_t mr, const uint64_t *length, const uint32_t *access)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	request.context = client->context;
	request.handle = mr;
	request.has_length = length != NULL;
	request.length = length ? *length : 0;
	request.has_access = access != NULL;
	request.access = access ? *access : 0;
	return client_call(client, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL);
}

START_TEST(it_does_not_move)
{
	uint32_t plain = (uint32_t)plain_mr(&a, a.key + 256, 65536, 8192, LOCAL_WRITE), access = REMOTE_READ;
	uint64_t length = 4096;
	struct region_got got;

	attach(&b);
	got = mr_import(&b, a.pd, plain, 0);
	ck_assert_int_eq(rereg(&b, got.mr, &length, NULL), EINVAL);
	ck_assert_int_eq(rereg(&b, got.mr, NULL, &access), 0);
	/* The original does, and that is what is imported next. */
	ck_assert_int_eq(rereg(&a, plain, &length, NULL), 0);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	got = mr_import(&b, a.pd, plain, 0);
	ck_assert_uint_eq(got.length, 4096);
	ck_assert_uint_eq(got.access, LOCAL_WRITE);
}
END_TEST

/* ---- MRs on device memory ---- */

static uint32_t dm_alloc(uint64_t length)
{
	Vsd__DmAllocRequest request = VSD__DM_ALLOC_REQUEST__INIT;
	ProtobufCMessage *reply;
	uint32_t handle;

	request.context = a.context;
	request.length = length;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_DM_ALLOC, &request.base, &vsd__dm_reply__descriptor, &reply), 0);
	handle = ((Vsd__DmReply *)reply)->handle;
	protobuf_c_message_free_unpacked(reply, NULL);
	return handle;
}

static uint32_t dm_mr(uint32_t dm, uint64_t offset, uint64_t length)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;
	int64_t handle;

	request.context = a.context;
	request.pd = a.pd;
	request.key = a.key + 256;
	request.addr = offset;
	request.length = length;
	request.access = LOCAL_WRITE | 32;
	request.has_dm = true;
	request.dm = dm;
	handle = client_object(&a, VSD__OP__OP_MR_REG, &request.base);
	ck_assert_int_gt(handle, 0);
	return (uint32_t)handle;
}

START_TEST(an_mr_on_device_memory_comes_with_its_file)
{
	uint32_t dm = dm_alloc(5000), mr = dm_mr(dm, 4096, 900);
	struct region_got got;
	struct stat st;

	attach(&b);
	got = mr_import(&b, a.pd, mr, 0);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.key, a.key + 256);
	ck_assert_uint_eq(got.memory, VSD__MR_MEMORY__MR_ON_DM);
	ck_assert_uint_eq(got.at, 4096);
	ck_assert_uint_eq(got.length, 900);
	ck_assert_uint_eq(got.size, 8192);
	ck_assert_int_eq(fstat(b.fds.fds[0], &st), 0);
	ck_assert_int_eq(st.st_size, 8192);
	ck_assert_int_eq(pwrite(b.fds.fds[0], "x", 1, 0), 1);
	/* The memory stays until nobody is on it. */
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, mr), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_DM, dm), EBUSY);
	client_close(&a);
	ck_assert_int_eq(client_destroy(&b, OBJECT_DM, dm), EBUSY);
	/* So it can be handed on. */
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	ck_assert_int_eq(client_destroy(&b, OBJECT_DM, dm), 0);
}
END_TEST

START_TEST(a_stranger_with_the_context_has_its_device_memory)
{
	uint32_t mr = dm_mr(dm_alloc(4096), 0, 4096);
	struct client stranger;

	client_open_stranger(&stranger);
	attach(&stranger);
	ck_assert_int_eq(mr_import(&stranger, a.pd, mr, 0).status, 0);
	client_close(&stranger);
}
END_TEST

START_TEST(a_failure_leaves_nothing)
{
	const char *const what = _i ? "device memory" : "a process's memory";
	uint32_t mr = _i ? dm_mr(dm_alloc(4096), 0, 4096) : (uint32_t)plain_mr(&a, a.key + 256, 65536, 4096, 0);
	uint32_t objects, spare;

	attach(&b);
	spare = lease(&b);
	objects = fixture_server->n_objects;
	for (unsigned twice = 0; twice < 2; twice++) {
		backend_fake_fail(1, ENOMEM);
		ck_assert_msg(mr_import(&b, a.pd, mr, spare).status == ENOMEM, "%s", what);
		backend_fake_fail(0, 0);
		ck_assert_uint_eq(fixture_server->n_objects, objects + twice);
		region_limit(SLOT_MRS, 1 + twice);
		ck_assert_int_eq(mr_import(&b, a.pd, mr, spare).status, ENOMEM);
		region_limit(SLOT_MRS, UINT64_MAX);
		ck_assert_uint_eq(fixture_server->n_objects, objects + twice);
		/* Its key, and after that the spare one, is free still. */
		ck_assert_uint_eq(mr_import(&b, a.pd, mr, spare).key, twice ? spare : a.key + 256);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("import");
	TCase *tcase = harness_tcase(suite, "import");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_pd_has_the_same_number_for_all);
	tcase_add_test(tcase, an_mr_on_a_region_is_imported_with_its_rights);
	tcase_add_test(tcase, reading_is_all_that_an_importer_of_a_readers_mr_may_do);
	tcase_add_test(tcase, an_mr_on_a_processs_memory_comes_with_the_process);
	tcase_add_test(tcase, a_second_import_has_the_spare_key);
	tcase_add_test(tcase, nobody_else_can_have_it);
	tcase_add_test(tcase, it_does_not_move);
	tcase_add_test(tcase, an_mr_on_device_memory_comes_with_its_file);
	tcase_add_test(tcase, a_stranger_with_the_context_has_its_device_memory);
	tcase_add_loop_test(tcase, a_failure_leaves_nothing, 0, 2);
	return harness_run(suite);
}
