/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HEAP_CREATE, HEAP_DESTROY, and registrations of parts of a heap: who may do what, how long it lasts, what peers get.
 */
#include "daemon/region.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/account.h"
#include "daemon/mr.h"
#include "daemon/object.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

enum { RC = 2, PAGE = 4096, SIZE = 16 * PAGE };
#define ALL (LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)

/* a initiates; b owns the heap, by a session of its own (heap), and registers parts of it. */
static struct client a, b, heap;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
	client_join(&heap);
	uint32_t a_qp = (uint32_t)client_qp(&a, RC, a.qpn), b_qp = (uint32_t)client_qp(&b, RC, b.qpn);

	ck_assert_int_eq(client_qp_connect(&a, a_qp, b.qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(&b, b_qp, a.qpn, 1), 0);
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	client_close(&heap);
	fixture_teardown();
}

static int heap_create(struct client *client, uint64_t size, uint32_t *region)
{
	Vsd__HeapCreateRequest request = VSD__HEAP_CREATE_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.size = size;
	r = client_call(client, VSD__OP__OP_HEAP_CREATE, &request.base, &vsd__heap_reply__descriptor, &message);
	ck_assert_uint_eq(client->fds.n, r == 0);
	if (r != 0)
		return r;
	*region = ((Vsd__HeapReply *)message)->region;
	ck_assert_uint_ge(((Vsd__HeapReply *)message)->size, size);
	ck_assert(region_fd_writes(client));
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}

static int heap_destroy(struct client *client, uint32_t region)
{
	Vsd__HeapDestroyRequest request = VSD__HEAP_DESTROY_REQUEST__INIT;

	request.region = region;
	return client_call(client, VSD__OP__OP_HEAP_DESTROY, &request.base, NULL, NULL);
}

static struct region *region_of(uint32_t number)
{
	list_for_each (pos, &fixture_server->regions.all) {
		struct region *region = container_of(pos, struct region, link);

		if (region->number == number)
			return region;
	}
	return NULL;
}

/* @length bytes at @offset of the heap, as if it were mapped at 0x100000. */
static int part_register(struct client *client, uint32_t region, uint64_t offset, uint64_t length, uint32_t key,
	uint32_t *mr)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.context = client->context;
	request.pd = client->pd;
	request.key = key;
	request.addr = request.iova = 0x100000 + offset;
	request.length = length;
	request.access = ALL;
	request.has_region = request.has_offset = true;
	request.region = region;
	request.offset = offset;
	r = client_call(client, VSD__OP__OP_MR_REG, &request.base, &vsd__object_reply__descriptor, &message);
	if (r != 0)
		return r;
	*mr = ((Vsd__ObjectReply *)message)->handle;
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}

static int mr_destroy(struct client *client, uint32_t mr)
{
	Vsd__DestroyRequest request = VSD__DESTROY_REQUEST__INIT;

	request.context = client->context;
	request.type = VSD__OBJECT_TYPE__OBJ_MR;
	request.handle = mr;
	return client_call(client, VSD__OP__OP_DESTROY, &request.base, NULL, NULL);
}

static int grant(uint32_t key, Vsd__RegionGrantReply *got)
{
	Vsd__RegionGrantRequest request = VSD__REGION_GRANT_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.peer = b.peer;
	request.key = key;
	request.qpn = a.qpn;
	r = client_call(&a, VSD__OP__OP_REGION_GRANT, &request.base, &vsd__region_grant_reply__descriptor, &message);
	if (r == 0 && got)
		*got = *(Vsd__RegionGrantReply *)message;
	if (message)
		protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

START_TEST(a_part_is_granted_as_the_region_it_is_in)
{
	Vsd__RegionGrantReply got;
	uint32_t region, mr;
	char word[4] = "";

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(pwrite(heap.fds.fds[0], "word", 4, 3 * PAGE), 4);
	ck_assert_int_eq(part_register(&b, region, 3 * PAGE, PAGE, b.key, &mr), 0);
	ck_assert_int_eq(grant(b.key, &got), 0);
	ck_assert_uint_eq(got.region, region);
	ck_assert_uint_eq(got.size, SIZE);
	ck_assert_uint_eq(got.iova, 0x100000 + 3 * PAGE);
	ck_assert(got.has_offset);
	ck_assert_uint_eq(got.offset, 3 * PAGE);
	ck_assert(got.writable);
	ck_assert_int_eq(pread(a.fds.fds[0], word, 4, 3 * PAGE), 4);
	ck_assert_mem_eq(word, "word", 4);
}
END_TEST

START_TEST(a_part_lies_within)
{
	uint32_t region, mr;

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(part_register(&b, region, 0, SIZE + 1, b.key, &mr), EINVAL);
	ck_assert_int_eq(part_register(&b, region, SIZE - 8, 9, b.key, &mr), EINVAL);
	ck_assert_int_eq(part_register(&b, region, UINT64_MAX - 8, 16, b.key, &mr), EINVAL);
	ck_assert_int_eq(part_register(&b, region, SIZE + PAGE, 0, b.key, &mr), EINVAL);
	ck_assert_int_eq(part_register(&b, region + 1, 0, PAGE, b.key, &mr), EINVAL);
	ck_assert_int_eq(part_register(&b, 0, 0, PAGE, b.key, &mr), EINVAL);
	/* The key was never taken. */
	ck_assert_int_eq(part_register(&b, region, 0, SIZE, b.key, &mr), 0);
	ck_assert_int_eq(part_register(&b, region, 0, SIZE, b.key, &mr), EEXIST);
}
END_TEST

START_TEST(only_its_process_has_it)
{
	uint32_t region, mr;
	struct region_got made = region_create(&b, PAGE, ALL, 0, NULL);

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	/* An ordinary region is no heap. */
	ck_assert_int_eq(part_register(&b, made.region, 0, PAGE, b.key, &mr), EINVAL);
	ck_assert_int_eq(heap_destroy(&heap, made.region), EINVAL);
	/* Another session of the process registers, but does not give it back. */
	ck_assert_int_eq(heap_destroy(&b, region), EINVAL);
	region_of(region)->heap_pid++;
	ck_assert_int_eq(part_register(&b, region, 0, PAGE, b.key, &mr), EINVAL);
	ck_assert_int_eq(heap_destroy(&heap, region), EINVAL);
}
END_TEST

START_TEST(it_cannot_be_exported_or_imported)
{
	Vsd__MrImportRequest request = VSD__MR_IMPORT_REQUEST__INIT;
	uint32_t region, mr;

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(part_register(&b, region, 0, PAGE, b.key, &mr), 0);
	ck_assert_int_eq(region_export_as(&b, mr, 0, "heap"), EINVAL);
	ck_assert_int_eq(region_persist_mr(&b, mr, true), EINVAL);
	request.context = b.context;
	request.pd = b.pd;
	request.handle = mr;
	request.spare_key = b.key + 0x100;
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_MR_IMPORT, &request.base, NULL, NULL), EOPNOTSUPP);
}
END_TEST

START_TEST(it_goes_with_its_last_registration)
{
	uint32_t region, mr;

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(part_register(&b, region, 0, PAGE, b.key, &mr), 0);
	ck_assert_int_eq(heap_destroy(&heap, region), 0);
	ck_assert_ptr_nonnull(region_of(region));
	ck_assert_int_eq(heap_destroy(&heap, region), EINVAL);
	ck_assert_int_eq(grant(b.key, NULL), 0);
	ck_assert_int_eq(mr_destroy(&b, mr), 0);
	ck_assert_ptr_null(region_of(region));
	ck_assert_int_eq(grant(b.key, NULL), EACCES);
}
END_TEST

START_TEST(it_goes_with_its_session)
{
	uint32_t region, other, mr;

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(heap_create(&heap, SIZE, &other), 0);
	ck_assert_int_eq(part_register(&b, region, 0, PAGE, b.key, &mr), 0);
	client_close(&heap);
	ck_assert_ptr_nonnull(region_of(region));
	ck_assert_ptr_null(region_of(other));
	ck_assert_int_eq(mr_destroy(&b, mr), 0);
	ck_assert_ptr_null(region_of(region));
	client_join(&heap);
}
END_TEST

START_TEST(a_part_that_moves_is_ordinary)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;
	uint32_t region, mr;

	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(part_register(&b, region, PAGE, PAGE, b.key, &mr), 0);
	request.context = b.context;
	request.handle = mr;
	request.has_access = true;
	request.access = ALL;
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(grant(b.key, NULL), 0);
	request.has_addr = request.has_length = request.has_iova = true;
	request.addr = request.iova = 0x900000;
	request.length = PAGE;
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(grant(b.key, NULL), EACCES);
	ck_assert_int_eq(heap_destroy(&heap, region), 0);
	ck_assert_ptr_null(region_of(region));
	ck_assert_int_eq(mr_destroy(&b, mr), 0);
}
END_TEST

START_TEST(it_is_charged)
{
	uint32_t region;

	region_limit(SLOT_REGION_BYTES, SIZE);
	ck_assert_int_eq(heap_create(&heap, SIZE + PAGE, &region), EDQUOT);
	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(heap_create(&heap, PAGE, &region), EDQUOT);
	ck_assert_int_eq(heap_destroy(&heap, region), 0);
	ck_assert_int_eq(heap_create(&heap, SIZE, &region), 0);
	ck_assert_int_eq(heap_create(&heap, 0, &region), EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tcase = harness_tcase(suite, "heap");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_part_is_granted_as_the_region_it_is_in);
	tcase_add_test(tcase, a_part_lies_within);
	tcase_add_test(tcase, only_its_process_has_it);
	tcase_add_test(tcase, it_cannot_be_exported_or_imported);
	tcase_add_test(tcase, it_goes_with_its_last_registration);
	tcase_add_test(tcase, it_goes_with_its_session);
	tcase_add_test(tcase, a_part_that_moves_is_ordinary);
	tcase_add_test(tcase, it_is_charged);
	return harness_run(suite);
}
