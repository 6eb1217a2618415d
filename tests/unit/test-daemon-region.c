/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions: who gets which memory, with which right, for how long, and who pays for it.
 */
#include "daemon/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/backend.h"
#include "daemon/object.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

#define READ_ONLY VSD__REGION_FLAG__REGION_READ_ONLY
#define PERSIST   VSD__REGION_FLAG__REGION_PERSIST
#define SEAL      VSD__REGION_FLAG__REGION_SEAL
#define CREATE    VSD__REGION_FLAG__REGION_CREATE
#define NAMED     VSD__REGION_FLAG__REGION_NAMED

/* enum ibv_access_flags */
enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, MW_BIND = 16 };

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
	ck_assert_uint_eq(fixture_server->n_objects, 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	ck_assert(list_empty(&fixture_server->domains.domains));
	fixture_teardown();
}

/* An answer about a region; its fd is the client's. */
struct got {
	int status; /* 0 or errno */
	uint32_t mr, key, access, flags, region;
	uint64_t iova, size;
	bool created;
};

static struct got answer(struct client *client, unsigned opcode, const ProtobufCMessage *request)
{
	ProtobufCMessage *message = NULL;
	struct got got = { .status = client_call(
				   client, opcode, request, &vsd__region_reply__descriptor, &message) };
	const Vsd__RegionReply *reply = (const void *)message;

	ck_assert_uint_eq(client->fds.n, got.status == 0);
	if (got.status != 0)
		return got;
	got.mr = reply->handle;
	got.key = reply->key;
	got.access = reply->access;
	got.flags = reply->flags;
	got.region = reply->region;
	got.iova = reply->iova;
	got.size = reply->size;
	got.created = reply->created;
	protobuf_c_message_free_unpacked(message, NULL);
	return got;
}

static struct got create(
	struct client *client, uint64_t size, uint32_t access, uint32_t flags, const char *name)
{
	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.size = size;
	request.access = access;
	request.flags = flags;
	request.name = (char *)name;
	return answer(client, VSD__OP__OP_REGION_CREATE, &request.base);
}

static struct got import_any(struct client *client, const char *name, const uint8_t *nonce,
	uint32_t access, uint32_t flags, uint64_t size)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.access = access;
	request.spare_key = client->key;
	request.name = (char *)name;
	request.has_nonce = nonce != NULL;
	request.nonce.data = (uint8_t *)nonce;
	request.nonce.len = nonce ? VSD_NONCE_SIZE : 0;
	request.has_size = size != 0;
	request.size = size;
	request.flags = flags;
	return answer(client, VSD__OP__OP_REGION_IMPORT, &request.base);
}

static struct got import(struct client *client, const char *name, uint32_t access)
{
	return import_any(client, name, NULL, access, 0, 0);
}

static int export(struct client *client, uint32_t mr, uint32_t flags, const char *name)
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;

	request.context = client->context;
	request.mr = mr;
	request.flags = flags;
	request.name = (char *)name;
	return client_call(client, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL);
}

/* The nonce of a capability. */
static int capability(struct client *client, uint32_t mr, uint32_t flags, uint8_t nonce[VSD_NONCE_SIZE])
{
	int status = export(client, mr, flags, NULL);

	if (status == 0)
		ck_assert_int_eq(pread(client->fds.fds[0], nonce, VSD_NONCE_SIZE, 0), VSD_NONCE_SIZE);
	return status;
}

START_TEST(a_new_region_is_memory_with_a_key)
{
	struct got got = create(&a, 5000, LOCAL_WRITE | REMOTE_READ, 0, NULL);
	int fd = a.fds.fds[0];
	struct stat st;
	char *bytes;

	ck_assert_int_eq(got.status, 0);
	ck_assert(got.created);
	ck_assert_uint_eq(got.size, 8192);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_READ);
	ck_assert_uint_eq(got.flags, 0);
	ck_assert_uint_eq(got.iova % (2 << 20), 0);
	ck_assert_uint_ge(got.iova, 16ull << 40);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 8192);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	bytes[8191] = 1;
	munmap(bytes, 8192);
	ck_assert_int_lt(ftruncate(fd, 4096), 0);
	ck_assert_int_lt(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

START_TEST(a_name_gives_the_same_memory_key_and_address)
{
	struct got made = create(&a, 4096, REMOTE_WRITE, 0, "pool/1"), got;
	char byte = 0;

	ck_assert_int_eq(made.status, 0);
	ck_assert_uint_eq(made.flags, NAMED);
	ck_assert_int_eq(pwrite(a.fds.fds[0], "x", 1, 4095), 1);
	got = import(&b, "pool/1", LOCAL_WRITE | REMOTE_READ);
	ck_assert_int_eq(got.status, 0);
	ck_assert(!got.created);
	ck_assert_uint_eq(got.key, made.key);
	ck_assert_uint_eq(got.iova, made.iova);
	ck_assert_uint_eq(got.size, made.size);
	ck_assert_uint_eq(got.region, made.region);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_READ);
	ck_assert_int_eq(pread(b.fds.fds[0], &byte, 1, 4095), 1);
	ck_assert_int_eq(byte, 'x');
	/* It lives as long as somebody has it. */
	client_close(&a);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	ck_assert_int_eq(import(&b, "pool/1", 0).status, ENOENT);
}
END_TEST

START_TEST(a_second_one_in_a_process_has_the_spare_key)
{
	struct got made = create(&a, 4096, 0, 0, "x"), second, third;

	second = import(&a, "x", 0);
	ck_assert_int_eq(second.status, 0);
	ck_assert_uint_ne(second.key, made.key);
	ck_assert_uint_eq(second.key, a.key);
	/* That one is in use now. */
	ck_assert_int_eq(import(&a, "x", 0).status, EEXIST);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, made.mr), 0);
	third = import(&a, "x", 0);
	ck_assert_uint_eq(third.key, made.key);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, second.mr), 0);
	a.key = 0;
	ck_assert_int_eq(import(&a, "x", 0).status, EINVAL);
}
END_TEST

START_TEST(a_capability_is_as_good_as_its_right)
{
	struct got made = create(&a, 4096, 0, 0, NULL);
	uint8_t reads[VSD_NONCE_SIZE], writes[VSD_NONCE_SIZE];

	ck_assert_int_eq(capability(&a, made.mr, 0, writes), 0);
	ck_assert_int_eq(capability(&a, made.mr, READ_ONLY, reads), 0);
	ck_assert_int_ne(memcmp(reads, writes, sizeof(reads)), 0);
	ck_assert_int_eq(import_any(&b, NULL, reads, LOCAL_WRITE, 0, 0).status, EACCES);
	ck_assert_int_eq(import_any(&b, NULL, reads, REMOTE_READ, 0, 0).status, 0);
	ck_assert_int_eq(fcntl(b.fds.fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_int_eq(import_any(&b, NULL, writes, LOCAL_WRITE, 0, 0).status, 0);
	ck_assert_int_eq(fcntl(b.fds.fds[0], F_GETFL) & O_ACCMODE, O_RDWR);
	writes[31] ^= 1;
	ck_assert_int_eq(import_any(&b, NULL, writes, 0, 0, 0).status, EACCES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = tcase_create("region");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_new_region_is_memory_with_a_key);
	tcase_add_test(tcase, a_name_gives_the_same_memory_key_and_address);
	tcase_add_test(tcase, a_second_one_in_a_process_has_the_spare_key);
	tcase_add_test(tcase, a_capability_is_as_good_as_its_right);
	suite_add_tcase(suite, tcase);
	return harness_run(suite);
}
