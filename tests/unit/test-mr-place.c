/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MRs that their process registers by itself: what stands in its page is what everybody is told, what does not hold is nothing,
 * and nobody has more than it may.
 */
#include "daemon/mr_place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/log.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "proto/limits.h"
#include "proto/ring_abi.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

#define WRITE 1 /* IBV_ACCESS_LOCAL_WRITE */

static struct client a, b;
static uint32_t places[VSD_MR_PLACES], handles[VSD_MR_PLACES];
static uint64_t gen;
static unsigned lines;
static char last_line[1024];

static void keep_line(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	lines++;
	snprintf(last_line, sizeof(last_line), "%s", text);
}

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
	lines = 0;
	log_set_sink(keep_line);
}

static void teardown(void)
{
	backend_fake_fail(0, 0);
	client_close(&a);
	client_close(&b);
	log_set_sink(NULL);
	fixture_teardown();
}

/* ---- what a client does ---- */

static uint32_t more(struct client *client, uint32_t wanted)
{
	Vsd__MrPlacesRequest request = VSD__MR_PLACES_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	const Vsd__MrPlacesReply *reply;
	uint32_t n;

	request.context = client->context;
	request.count = wanted;
	ck_assert_int_eq(
		client_call(client, VSD__OP__OP_MR_PLACES, &request.base, &vsd__mr_places_reply__descriptor, &message), 0);
	reply = (const Vsd__MrPlacesReply *)message;
	ck_assert_uint_eq(reply->n_places, reply->n_handles);
	ck_assert_uint_le(reply->n_places, VSD_MR_PLACES);
	n = (uint32_t)reply->n_places;
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_lt(reply->places[i], VSD_PAGE_MRS);
		places[i] = reply->places[i];
		handles[i] = reply->handles[i];
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return n;
}

static void page_write(const struct client *client, uint32_t place, const struct vsd_mr *line)
{
	static uint64_t changes;

	ck_assert_int_eq(pwrite(client->page, line, sizeof(*line),
				 (off_t)(offsetof(struct vsd_page, mrs) + place * sizeof(*line))),
		(int)sizeof(*line));
	changes++;
	ck_assert_int_eq(pwrite(client->page, &changes, sizeof(changes), offsetof(struct vsd_page, mr_changes)),
		(int)sizeof(changes));
}

static struct vsd_mr line_of(const struct client *client, uint32_t number)
{
	return (struct vsd_mr){ .gen = ++gen,
		.addr = 0x10000,
		.length = 0x2000,
		.iova = 0x10000,
		.key = client->key + (number << 8),
		.access = WRITE,
		.pd = client->pd };
}

static void put(const struct client *client, uint32_t place, uint32_t number)
{
	struct vsd_mr line = line_of(client, number);

	page_write(client, place, &line);
}

static void clear(const struct client *client, uint32_t place)
{
	page_write(client, place, &(struct vsd_mr){ .gen = 0 });
}

/* ---- what others see ---- */

static uint32_t listed[VSD_MR_PLACES], n_listed;

static void list(struct client *viewer)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	bool more_pages = true;

	request.has_type = 1;
	request.type = VSD__OBJECT_TYPE__OBJ_MR;
	for (n_listed = 0; more_pages;) {
		ck_assert_int_eq(
			client_call(viewer, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor, &message), 0);

		const Vsd__ListReply *reply = (const Vsd__ListReply *)message;

		for (size_t i = 0; i < reply->n_items; i++) {
			ck_assert_int_eq(reply->items[i]->type, VSD__OBJECT_TYPE__OBJ_MR);
			ck_assert_uint_lt(n_listed, VSD_MR_PLACES);
			listed[n_listed++] = reply->items[i]->number;
		}
		more_pages = reply->has_next_page;
		request.page = reply->next_page;
		protobuf_c_message_free_unpacked(message, NULL);
	}
}

static bool is_listed(uint32_t key)
{
	for (uint32_t i = 0; i < n_listed; i++)
		if (listed[i] == key)
			return true;
	return false;
}

static uint32_t objects(struct client *viewer)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;
	ProtobufCMessage *message = NULL;
	uint32_t n;

	ck_assert_int_eq(client_call(viewer, VSD__OP__OP_STATUS, &empty.base, &vsd__status_reply__descriptor, &message), 0);
	n = ((const Vsd__StatusReply *)message)->objects;
	protobuf_c_message_free_unpacked(message, NULL);
	return n;
}

/* ---- tests ---- */

START_TEST(what_is_written_is_there)
{
	uint32_t before = objects(&b);

	ck_assert_uint_eq(more(&a, 3), 3);
	list(&b);
	ck_assert_uint_eq(n_listed, 0);
	ck_assert_uint_eq(objects(&b), before);
	put(&a, places[0], 0);
	put(&a, places[2], 1);
	list(&b);
	ck_assert_uint_eq(n_listed, 2);
	ck_assert(is_listed(a.key) && is_listed(a.key + (1 << 8)));
	ck_assert_uint_eq(objects(&b), before + 2);
	put(&a, places[0], 2); /* at once something else */
	clear(&a, places[2]);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
	ck_assert(is_listed(a.key + (2 << 8)));
	clear(&a, places[0]);
	ck_assert_uint_eq(objects(&b), before);
	ck_assert_uint_eq(lines, 0);
}
END_TEST

/* The daemon looks where the count says that there is something. */
START_TEST(only_places_that_it_was_given)
{
	ck_assert_uint_eq(more(&a, 1), 1);
	put(&a, places[0] + 1, 0);
	put(&a, VSD_PAGE_MRS - 1, 1);
	list(&b);
	ck_assert_uint_eq(n_listed, 0);
	put(&b, 0, 0); /* of a process that has none */
	list(&a);
	ck_assert_uint_eq(n_listed, 0);
}
END_TEST

START_TEST(a_pd_is_busy_as_long)
{
	ck_assert_uint_eq(more(&a, 1), 1);
	put(&a, places[0], 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	ck_assert_ptr_nonnull(strstr(last_line, "mr"));
	clear(&a, places[0]);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), 0);
	/* It cannot come back on that one. */
	put(&a, places[0], 0);
	list(&a);
	ck_assert_uint_eq(n_listed, 0);
}
END_TEST

static void attach(struct client *client)
{
	struct session *session = server_session(fixture_server, a.session);
	struct attachment *attachment = attachment_get(session, a.context);
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	ProtobufCMessage *reply;

	request.nonce.data = attachment->context->nonce;
	request.nonce.len = VSD_NONCE_SIZE;
	ck_assert_int_eq(
		client_call(client, VSD__OP__OP_CONTEXT_ATTACH, &request.base, &vsd__context_reply__descriptor, &reply), 0);
	client->context = ((Vsd__ContextReply *)reply)->context;
	protobuf_c_message_free_unpacked(reply, NULL);
}

static int import(struct client *client, uint32_t handle)
{
	Vsd__MrImportRequest request = VSD__MR_IMPORT_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	request.context = client->context;
	request.pd = a.pd;
	request.handle = handle;
	request.spare_key = client->key;
	r = client_call(client, VSD__OP__OP_MR_IMPORT, &request.base, &vsd__region_reply__descriptor, &reply);
	protobuf_c_message_free_unpacked(reply, NULL);
	fdlist_deinit(&client->fds);
	return r;
}

START_TEST(another_process_of_the_context_needs_no_word)
{
	uint32_t pd = a.pd;

	attach(&b);
	ck_assert_uint_eq(more(&a, 2), 2);
	ck_assert_int_eq(import(&b, handles[0]), EINVAL);
	put(&a, places[0], 0);
	ck_assert_int_eq(import(&b, handles[0]), 0);
	ck_assert_int_eq(import(&b, handles[1]), EINVAL);
	clear(&a, places[0]);
	ck_assert_int_eq(import(&b, handles[0]), EINVAL);
	ck_assert_int_eq(client_destroy(&b, OBJECT_PD, pd), EBUSY); /* by what it imported */
	put(&a, places[1], 1);
	client_close(&b);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, pd), EBUSY);
}
END_TEST

static const struct {
	const char *name;
	struct vsd_mr change; /* what is not 0 */
	const char *why;
} refusals[] = {
	{ "a key of nobody's", { .key = 0xfffffe00 }, "not leased" },
	{ "a PD that is none", { .pd = 4711 }, "no" },
	{ "access that is none", { .access = 1u << 15 }, "access" },
	{ "remote write without local", { .access = 2 }, "local write" },
	{ "round the end of memory", { .addr = UINT64_MAX - 10 }, "bytes at" },
	{ "too long", { .length = UINT64_MAX - 1 }, "bytes at" },
};

START_TEST(what_does_not_hold_is_not_there)
{
	struct vsd_mr line = line_of(&a, 0), change = refusals[_i].change;

	ck_assert_uint_eq(more(&a, 1), 1);
	line.key = change.key ? change.key : line.key;
	line.pd = change.pd ? change.pd : line.pd;
	line.access = change.access ? change.access : line.access;
	line.addr = change.addr ? change.addr : line.addr;
	line.length = change.length ? change.length : line.length;
	page_write(&a, places[0], &line);
	list(&b);
	ck_assert_msg(n_listed == 0, "%s", refusals[_i].name);
	ck_assert_msg(lines == 1 && strstr(last_line, refusals[_i].why), "%s: %s", refusals[_i].name, last_line);
	page_write(&a, places[0], &line); /* said once */
	list(&b);
	ck_assert_uint_eq(lines, 1);
	ck_assert(!client_is_gone(&a));
	put(&a, places[0], 0);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
}
END_TEST

START_TEST(a_key_is_had_once)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = a.context;
	request.pd = a.pd;
	request.key = a.key;
	ck_assert_int_gt(client_object(&a, VSD__OP__OP_MR_REG, &request.base), 0);
	ck_assert_uint_eq(more(&a, 3), 3);
	put(&a, places[0], 0); /* the request's */
	put(&a, places[1], 1);
	put(&a, places[2], 1);
	list(&b);
	ck_assert_uint_eq(n_listed, 2);
	ck_assert(is_listed(a.key) && is_listed(a.key + (1 << 8)));
	ck_assert_uint_eq(lines, 2);
	request.key = a.key + (1 << 8);
	ck_assert_int_eq(client_object(&a, VSD__OP__OP_MR_REG, &request.base), -EEXIST);
	/* What was given up in the page is free for a request, though nobody looked meanwhile. */
	clear(&a, places[1]);
	clear(&a, places[2]);
	ck_assert_int_gt(client_object(&a, VSD__OP__OP_MR_REG, &request.base), 0);
}
END_TEST

START_TEST(a_key_moves_up_and_down)
{
	ck_assert_uint_eq(more(&a, 200), 200);
	put(&a, places[100], 7);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
	clear(&a, places[100]);
	put(&a, places[3], 7);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
	clear(&a, places[3]);
	put(&a, places[190], 7);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
	ck_assert_uint_eq(lines, 0);
}
END_TEST

START_TEST(requests_do_not_name_it)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	ck_assert_uint_eq(more(&a, 1), 1);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, handles[0]), EINVAL);
	ck_assert_int_eq(client_destroy(&a, OBJECT_VACANT, handles[0]), EINVAL);
	put(&a, places[0], 0);
	list(&b);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, handles[0]), EINVAL);
	request.context = a.context;
	request.handle = handles[0];
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EINVAL);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
}
END_TEST

/* ---- how many ---- */

static struct account *account(const struct client *client)
{
	return &server_session(fixture_server, client->session)->domain->account;
}

START_TEST(no_more_than_a_share)
{
	uint32_t n, sum = 0;

	account(&a)->limit[SLOT_MRS] = 640;
	ck_assert_uint_eq(more(&a, UINT32_MAX), 10);
	while ((n = more(&a, UINT32_MAX)) > 0)
		sum += n;
	ck_assert_uint_lt(sum, 640);
	ck_assert_uint_gt(640 - account(&a)->used[SLOT_MRS], 60); /* for others, and for requests */
	account(&a)->limit[SLOT_MRS] = 1;
	ck_assert_uint_eq(more(&a, 1), 0);
	client_close(&a);
	ck_assert_uint_eq(account(&b)->used[SLOT_MRS], 0);
}
END_TEST

START_TEST(no_more_than_the_page_has)
{
	uint32_t n, sum = 0;

	account(&a)->limit[SLOT_MRS] = account(&a)->parent->limit[SLOT_MRS] = 1u << 24;
	while ((n = more(&a, UINT32_MAX)) > 0)
		sum += n;
	ck_assert_uint_eq(sum, VSD_PAGE_MRS);
	put(&a, VSD_PAGE_MRS - 1, 0);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
}
END_TEST

START_TEST(a_device_that_fails)
{
	backend_fake_fail(3, ENOMEM);
	ck_assert_uint_eq(more(&a, 8), 2);
	ck_assert_uint_eq(account(&a)->used[SLOT_MRS], 2);
	put(&a, places[1], 0);
	list(&b);
	ck_assert_uint_eq(n_listed, 1);
}
END_TEST

static int context_close(struct client *client)
{
	Vsd__ContextCloseRequest request = VSD__CONTEXT_CLOSE_REQUEST__INIT;

	request.context = client->context;
	return client_call(client, VSD__OP__OP_CONTEXT_CLOSE, &request.base, NULL, NULL);
}

START_TEST(places_go_with_their_context)
{
	ck_assert_uint_eq(more(&a, 5), 5);
	put(&a, places[0], 0);
	list(&b);
	ck_assert_int_eq(context_close(&a), 0);
	fixture_turn();
	list(&b);
	ck_assert_uint_eq(n_listed, 0);
	ck_assert_uint_eq(account(&a)->used[SLOT_MRS], 0);
	put(&a, places[1], 0); /* nobody's now */
	list(&b);
	ck_assert_uint_eq(n_listed, 0);
}
END_TEST

/* ---- those who watch ---- */

static unsigned changes_of(const struct client *watcher)
{
	char byte;
	unsigned n = 0;

	while (recv(watcher->fd, &byte, 1, MSG_DONTWAIT) > 0)
		n++;
	return n;
}

START_TEST(who_watches_is_told_a_little_at_a_time)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;

	ck_assert_uint_eq(more(&a, 100), 100);
	put(&a, places[0], 0);
	ck_assert_uint_eq(fixture_server->map.map->watched, 0);
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_WATCH, &empty.base, NULL, NULL), 0);
	ck_assert_uint_eq(fixture_server->map.map->watched, 1);
	ck_assert_uint_eq(changes_of(&b), 0);
	clear(&a, places[0]);
	ck_assert_uint_eq(more(&a, 0), 0);
	ck_assert_uint_eq(changes_of(&b), 1);
	for (uint32_t i = 0; i < 100; i++)
		put(&a, i, i);
	ck_assert_uint_eq(more(&a, 0), 0);
	ck_assert_uint_eq(changes_of(&b), 2);
	ck_assert(!client_is_gone(&b));
	list(&b);
	ck_assert_uint_eq(n_listed, 100);
	client_close(&b);
	ck_assert_uint_eq(fixture_server->map.map->watched, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mr_place");
	TCase *t = harness_tcase(suite, "places");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_written_is_there);
	tcase_add_test(t, only_places_that_it_was_given);
	tcase_add_test(t, a_pd_is_busy_as_long);
	tcase_add_test(t, another_process_of_the_context_needs_no_word);
	tcase_add_loop_test(t, what_does_not_hold_is_not_there, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(t, a_key_is_had_once);
	tcase_add_test(t, a_key_moves_up_and_down);
	tcase_add_test(t, requests_do_not_name_it);
	tcase_add_test(t, no_more_than_a_share);
	tcase_add_test(t, no_more_than_the_page_has);
	tcase_add_test(t, a_device_that_fails);
	tcase_add_test(t, places_go_with_their_context);
	tcase_add_test(t, who_watches_is_told_a_little_at_a_time);
	return harness_run(suite);
}
