/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests about shared regions that mean harm or are mistaken, grants to map engines, and what is seen of regions from
 * outside.
 */
#include "daemon/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/domain.h"
#include "daemon/mr.h"
#include "daemon/object.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "proto/sock.h"
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
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

/* ---- what is refused ---- */

static const uint64_t sizes[] = { 0, UINT64_MAX, UINT64_MAX - 4095, UINT64_MAX - 4096, 1ull << 63,
	1ull << 47, REGION_SPACE_END - REGION_SPACE_FIRST + 1 };

START_TEST(sizes_that_cannot_be_are_refused)
{
	static const uint32_t flags[] = { 0, REGION_HUGE_2M, REGION_HUGE_1G };

	region_limit(SLOT_REGION_BYTES, UINT64_MAX);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(region_create(&a, sizes[_i], 0, flags[i], NULL).status, EINVAL);
		ck_assert_int_eq(region_attach(&a, "x", sizes[_i], flags[i]).status, EINVAL);
	}
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

START_TEST(a_size_at_the_limit_is_a_matter_of_quota)
{
	ck_assert_int_eq(region_create(&a, 1ull << 45, 0, 0, NULL).status, EDQUOT);
	region_limit(SLOT_REGION_BYTES, UINT64_MAX);
	ck_assert_int_eq(region_create(&a, 1ull << 45, 0, 0, "big").status, 0);
	ck_assert_int_eq(region_create(&a, 1ull << 45, 0, 0, NULL).status, ENOMEM);
	ck_assert_int_eq(region_import(&b, "big", 0).status, 0);
}
END_TEST

static const struct {
	uint32_t flags;
	const char *name;
} create_flags[] = {
	{ REGION_SEAL, "x" },
	{ REGION_CREATE, "x" },
	{ REGION_NAMED, "x" },
	{ 128, NULL },
	{ 1u << 31, "x" },
	{ UINT32_MAX, "x" },
	{ REGION_HUGE_2M | REGION_HUGE_1G, NULL },
	{ REGION_READ_ONLY, NULL },
	{ REGION_PERSIST, NULL },
};

START_TEST(flags_that_mean_nothing_are_refused)
{
	ck_assert_int_eq(
		region_create(&a, 1, 0, create_flags[_i].flags, create_flags[_i].name).status,
		EINVAL);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
}
END_TEST

/* Imports that contradict themselves. */
static const struct {
	const char *name;
	bool nonce;
	uint32_t flags;
	uint64_t size;
} imports[] = {
	{ NULL, false, 0, 0 },
	{ NULL, false, REGION_CREATE, 4096 },
	{ "x", true, 0, 0 },
	{ NULL, true, REGION_CREATE, 4096 },
	{ NULL, true, REGION_READ_ONLY, 0 },
	{ NULL, true, 0, 4096 },
	{ "x", false, 0, 4096 },
	{ "x", false, REGION_PERSIST, 0 },
	{ "x", false, REGION_CREATE, 0 },
	{ "x", false, REGION_CREATE | REGION_SEAL, 4096 },
	{ "x", false, REGION_CREATE | 128, 4096 },
};

START_TEST(imports_that_contradict_themselves_are_refused)
{
	struct region_got made = region_create(&a, 4096, 0, 0, "x");
	uint8_t nonce[VSD_NONCE_SIZE];

	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, nonce), 0);
	ck_assert_int_eq(region_import_any(&b, imports[_i].name, imports[_i].nonce ? nonce : NULL,
				 0, imports[_i].flags, imports[_i].size)
				 .status,
		EINVAL);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
}
END_TEST

START_TEST(nonces_have_one_length)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;
	uint8_t nonce[VSD_NONCE_SIZE + 1] = { 0 };

	request.context = a.context;
	request.pd = a.pd;
	request.has_nonce = 1;
	request.nonce.data = nonce;
	for (request.nonce.len = 0; request.nonce.len <= sizeof(nonce); request.nonce.len++)
		ck_assert_int_eq(
			region_answer(&a, VSD__OP__OP_REGION_IMPORT, &request.base).status,
			request.nonce.len == VSD_NONCE_SIZE ? EACCES : EINVAL);
}
END_TEST

START_TEST(wrong_pd_or_access_leaves_nothing)
{
	uint32_t pd = a.pd;

	ck_assert_int_eq(region_create(&b, 4096, 0, 0, "there").status, 0);
	a.pd = a.cq;
	ck_assert_int_eq(region_create(&a, 4096, 0, REGION_PERSIST, "x").status, EINVAL);
	ck_assert_int_eq(region_attach(&a, "x", 4096, REGION_PERSIST).status, EINVAL);
	ck_assert_int_eq(region_import(&a, "there", 0).status, EINVAL);
	a.pd = 0;
	ck_assert_int_eq(region_create(&a, 4096, 0, 0, NULL).status, EINVAL);
	a.pd = pd;
	ck_assert_int_eq(region_create(&a, 4096, 1u << 11, 0, "x").status, EINVAL);
	ck_assert_int_eq(region_import(&a, "there", REMOTE_WRITE).status, EINVAL);
	ck_assert_uint_eq(fixture_server->regions.count, 1);
	ck_assert_int_eq(region_import(&a, "x", 0).status, ENOENT);
	ck_assert_int_eq(region_create(&a, 4096, 0, 0, "x").status, 0);
}
END_TEST

static int64_t plain_mr(struct client *client)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.key = client->key + 256;
	request.addr = request.iova = 65536;
	request.length = 4096;
	request.access = LOCAL_WRITE | REMOTE_WRITE;
	return client_object(client, VSD__OP__OP_MR_REG, &request.base);
}

START_TEST(only_mrs_of_ones_own_on_regions_are_exported)
{
	struct region_got made = region_create(&a, 4096, 0, 0, "x");
	int64_t plain = plain_mr(&b);
	const uint32_t handles[] = { 0, made.mr, (uint32_t)plain, b.pd, b.cq, UINT32_MAX };

	ck_assert_int_gt(plain, 0);
	/* The same number may be another object in b's context; make sure that it is no region's. */
	for (unsigned i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		ck_assert_int_eq(region_export_as(&b, handles[i], 0, "y"), EINVAL);
		ck_assert_int_eq(region_export_as(&b, handles[i], 0, NULL), EINVAL);
		ck_assert_int_eq(region_persist_mr(&b, handles[i], true), EINVAL);
	}
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_CREATE, "x"), EINVAL);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_HUGE_2M, NULL), EINVAL);
	b.context = 77;
	ck_assert_int_eq(region_export_as(&b, made.mr, 0, "y"), EINVAL);
	ck_assert_int_eq(region_persist_mr(&b, made.mr, true), EINVAL);
	ck_assert_int_eq(region_create(&b, 1, 0, 0, NULL).status, EINVAL);
	ck_assert_int_eq(region_import(&b, "x", 0).status, EINVAL);
}
END_TEST

START_TEST(a_closed_context_has_no_regions)
{
	Vsd__ContextCloseRequest request = VSD__CONTEXT_CLOSE_REQUEST__INIT;
	struct region_got made = region_create(&a, 4096, 0, REGION_PERSIST, "kept");

	ck_assert_int_eq(region_create(&a, 4096, 0, 0, "gone").status, 0);
	request.context = a.context;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_CONTEXT_CLOSE, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(region_export_as(&a, made.mr, 0, "y"), EINVAL);
	ck_assert_int_eq(region_import(&a, "kept", 0).status, EINVAL);
	fixture_turn();
	ck_assert_int_eq(region_import(&b, "gone", 0).status, ENOENT);
	ck_assert_int_eq(region_import(&b, "kept", 0).status, 0);
	ck_assert_int_eq(region_release_as(&a, "kept"), 0);
}
END_TEST

START_TEST(a_region_does_not_move)
{
	struct region_got made = region_create(&a, 4096, 0, REGION_READ_ONLY, "x"),
			  got = region_import(&b, "x", REMOTE_READ);
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	request.context = a.context;
	request.handle = made.mr;
	request.has_access = 1;
	request.access = LOCAL_WRITE | REMOTE_WRITE;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	request.has_addr = request.has_length = request.has_iova = 1;
	request.addr = request.iova = made.iova;
	request.length = made.size;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	request.length--;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EINVAL);
	request.length++;
	request.addr = request.iova = 4096;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EINVAL);
	request.has_addr = request.has_length = request.has_iova = 0;
	request.context = b.context;
	request.handle = got.mr;
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EACCES);
	request.access = 0;
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
}
END_TEST

/* ---- names given back ---- */

START_TEST(names_are_released_by_the_domain_or_the_administrator)
{
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;
	struct client admin, stranger;

	ck_assert_int_eq(region_create(&a, 4096, 0, REGION_PERSIST, "x").status, 0);
	client_open_stranger(&stranger);
	ck_assert_int_eq(region_create(&stranger, 4096, 0, REGION_PERSIST, "x").status, 0);
	client_close(&a);
	client_close(&stranger);
	client_connect(&admin, true);
	hello.min_version = hello.max_version = VSD_VERSION_MAX;
	ck_assert_int_eq(client_call(&admin, VSD__OP__OP_HELLO, &hello.base, NULL, NULL), 0);
	ck_assert_int_eq(region_release_as(&admin, "x"), EINVAL);
	ck_assert_int_eq(region_release_of(&admin, "x", getuid() + 1), ENOENT);
	ck_assert_int_eq(region_release_of(&admin, "y", getuid()), ENOENT);
	ck_assert_int_eq(region_release_of(&admin, "", getuid()), EINVAL);
	ck_assert_int_eq(region_release_of(&b, "x", getuid()), EPERM);
	ck_assert_uint_eq(fixture_server->regions.count, 2);
	/* All domains of that user. */
	ck_assert_int_eq(region_release_of(&admin, "x", getuid()), 0);
	ck_assert_uint_eq(fixture_server->regions.count, 0);
	client_close(&admin);
}
END_TEST

/* ---- what is seen ---- */

START_TEST(regions_are_listed_for_their_domain)
{
	Vsd__Item *item = NULL;
	struct region_got made;
	struct client stranger;

	client_open_stranger(&stranger);
	ck_assert_uint_eq(region_list(&a, OBJECT_REGION, false, NULL), 0);
	ck_assert_int_eq(region_create(&stranger, 4096, 0, 0, "theirs").status, 0);
	ck_assert_int_eq(region_create(&b, 4096, 0, 0, NULL).status, 0);
	made = region_create(&a, 4097, REMOTE_READ, REGION_READ_ONLY | REGION_PERSIST, "mine");
	ck_assert_int_eq(region_import(&b, "mine", 0).status, 0);
	ck_assert_uint_eq(region_list(&a, OBJECT_REGION, false, &item), 2);
	ck_assert_str_eq(item->name, "mine");
	ck_assert_uint_eq(item->handle, made.region);
	ck_assert_uint_eq(item->region, made.region);
	ck_assert_uint_eq(item->number, made.key);
	ck_assert_uint_eq(item->addr, made.iova);
	ck_assert_uint_eq(item->length, 8192);
	ck_assert_uint_eq(item->users, 2);
	ck_assert_uint_eq(item->flags, REGION_READ_ONLY | REGION_PERSIST | REGION_NAMED);
	ck_assert(!item->has_huge);
	ck_assert_uint_eq(item->uid, getuid());
	ck_assert_uint_eq(item->session, 0);
	vsd__item__free_unpacked(item, NULL);
	/* And on the MRs. */
	ck_assert_uint_eq(region_list(&a, OBJECT_MR, false, &item), 3);
	ck_assert_str_eq(item->name, "mine");
	ck_assert_uint_eq(item->region, made.region);
	ck_assert_uint_eq(item->flags, REGION_READ_ONLY | REGION_PERSIST | REGION_NAMED);
	vsd__item__free_unpacked(item, NULL);
	/* Without users it is there still. */
	client_close(&a);
	client_close(&b);
	client_open(&a);
	ck_assert_uint_eq(region_list(&a, OBJECT_REGION, false, &item), 1);
	ck_assert_uint_eq(item->users, 0);
	vsd__item__free_unpacked(item, NULL);
	ck_assert_int_eq(region_release_as(&a, "mine"), 0);
	ck_assert_uint_eq(region_list(&a, OBJECT_REGION, false, NULL), 0);
	client_close(&stranger);
}
END_TEST

START_TEST(many_are_listed_in_pages)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	struct client stranger;
	ProtobufCMessage *reply;

	client_open_stranger(&stranger);
	for (unsigned i = 0; i < 300; i++) {
		ck_assert_int_eq(region_create(&a, 4096, 0, 0, NULL).status, 0);
		ck_assert_int_eq(region_create(&stranger, 4096, 0, 0, NULL).status, 0);
	}
	ck_assert_uint_eq(region_list(&a, OBJECT_REGION, false, NULL), 300);
	ck_assert_uint_eq(region_list(&stranger, OBJECT_REGION, false, NULL), 300);
	/* One that goes between two pages takes no other with it. */
	request.has_type = 1;
	request.type = VSD__OBJECT_TYPE__OBJ_REGION;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_LIST, &request.base,
				 &vsd__list_reply__descriptor, &reply),
		0);
	ck_assert_uint_eq(((Vsd__ListReply *)reply)->n_items, 256);
	request.page = ((Vsd__ListReply *)reply)->next_page;
	protobuf_c_message_free_unpacked(reply, NULL);
	client_close(&stranger);
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_LIST, &request.base,
				 &vsd__list_reply__descriptor, &reply),
		0);
	ck_assert_uint_eq(((Vsd__ListReply *)reply)->n_items, 44);
	ck_assert(!((Vsd__ListReply *)reply)->has_next_page);
	protobuf_c_message_free_unpacked(reply, NULL);
}
END_TEST

/* The next EV_CHANGE about a region on @client's own socket: whether it came; 2 when there is none. */
static int change(struct client *client, char *name, size_t size)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	int added = 2;

	fixture_turn();
	while (added == 2) {
		struct fdlist fds = FDLIST_NULL;
		struct frame_header header;
		ProtobufCMessage *message;
		size_t length = 0;
		const Vsd__EvChange *event;

		if (sock_recv(client->fd, frame, sizeof(frame), false, &fds, &length) < 0)
			return 2;
		ck_assert_int_eq(frame_parse(frame, length, &header), 0);
		ck_assert_uint_eq(header.opcode, VSD__OP__EV_CHANGE);
		ck_assert_int_eq(frame_unpack_heap(&vsd__ev_change__descriptor,
					 frame + sizeof(header), header.length, &message),
			0);
		event = (const void *)message;
		if (event->item->type == VSD__OBJECT_TYPE__OBJ_REGION) {
			added = event->added;
			snprintf(name, size, "%s", event->item->name ? event->item->name : "");
		}
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return added;
}

START_TEST(watchers_see_regions_come_and_go)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;
	struct client watcher, stranger;
	struct region_got got;
	char name[80];

	client_join(&watcher);
	client_open_stranger(&stranger);
	ck_assert_int_eq(client_call(&watcher, VSD__OP__OP_WATCH, &empty.base, NULL, NULL), 0);
	ck_assert_int_eq(region_create(&stranger, 4096, 0, 0, "theirs").status, 0);
	got = region_create(&a, 4096, 0, REGION_PERSIST, "seen");
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), true);
	ck_assert_str_eq(name, "seen");
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, got.mr), 0);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), 2);
	ck_assert_int_eq(region_release_as(&b, "seen"), 0);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), false);
	client_close(&stranger);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), 2);
	client_close(&watcher);
}
END_TEST

START_TEST(watchers_see_names_come_and_go)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;
	struct client watcher;
	struct region_got got;
	char name[80] = "?";

	client_join(&watcher);
	ck_assert_int_eq(client_call(&watcher, VSD__OP__OP_WATCH, &empty.base, NULL, NULL), 0);
	got = region_create(&a, 4096, 0, 0, NULL);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), true);
	ck_assert_str_eq(name, "");
	ck_assert_int_eq(region_export_as(&a, got.mr, 0, "given"), 0);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), true);
	ck_assert_str_eq(name, "given");
	/* It has it already, and what is refused is not told. */
	ck_assert_int_eq(region_export_as(&a, got.mr, REGION_READ_ONLY, "given"), 0);
	ck_assert_int_eq(region_export_as(&a, got.mr, 0, "other"), EBUSY);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), 2);
	ck_assert_int_eq(region_release_as(&a, "given"), 0);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), true);
	ck_assert_str_eq(name, "");
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, got.mr), 0);
	ck_assert_int_eq(change(&watcher, name, sizeof(name)), false);
	client_close(&watcher);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region-ops");
	TCase *tcase = harness_tcase(suite, "region-ops");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, sizes_that_cannot_be_are_refused, 0, COUNT(sizes));
	tcase_add_test(tcase, a_size_at_the_limit_is_a_matter_of_quota);
	tcase_add_loop_test(tcase, flags_that_mean_nothing_are_refused, 0, COUNT(create_flags));
	tcase_add_loop_test(
		tcase, imports_that_contradict_themselves_are_refused, 0, COUNT(imports));
	tcase_add_test(tcase, nonces_have_one_length);
	tcase_add_test(tcase, wrong_pd_or_access_leaves_nothing);
	tcase_add_test(tcase, only_mrs_of_ones_own_on_regions_are_exported);
	tcase_add_test(tcase, a_closed_context_has_no_regions);
	tcase_add_test(tcase, a_region_does_not_move);
	tcase_add_test(tcase, names_are_released_by_the_domain_or_the_administrator);
	tcase_add_test(tcase, regions_are_listed_for_their_domain);
	tcase_add_test(tcase, many_are_listed_in_pages);
	tcase_add_test(tcase, watchers_see_regions_come_and_go);
	tcase_add_test(tcase, watchers_see_names_come_and_go);
	return harness_run(suite);
}
