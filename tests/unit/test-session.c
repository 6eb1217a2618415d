/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session's life and death: order of answers and events, clients that do not read, and that nothing is left.
 */
#include "daemon/session.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

static const Vsd__Empty empty = VSD__EMPTY__INIT;

START_TEST(nothing_is_left_of_a_client)
{
	int before = harness_fds_open();
	struct client client;

	client_open(&client);
	ck_assert_int_gt(client_qp(&client, 2, client.qpn), 0);
	client_close(&client);
	ck_assert_int_eq(harness_fds_open(), before);
	ck_assert_uint_eq(fixture_server->n_sessions, 0);
	ck_assert_uint_eq(fixture_server->n_objects, 0);
	ck_assert_uint_eq(fixture_server->processes.count, 0);
	ck_assert(list_empty(&fixture_server->domains.domains));
}
END_TEST

START_TEST(lost_twice_is_lost_once)
{
	struct client client;
	struct session *session;

	client_open(&client);
	session = server_session(fixture_server, client.session);
	session_lost(session, GONE_DEAD);
	session_lost(session, GONE_ADMIN);
	ck_assert_int_eq(session->reason, GONE_DEAD);
	ck_assert_uint_eq(fixture_server->n_sessions, 0);
	ck_assert(client_is_gone(&client));
	client_close(&client);
}
END_TEST

/* Requests without end, answers never read: a bounded number is taken in, and another client is served. */
START_TEST(answers_that_are_not_read_stop_the_requests)
{
	struct frame_header header = {
		.magic = FRAME_MAGIC, .version = 1, .opcode = VSD__OP__OP_STATUS, .serial = 1
	};
	struct client client, other;
	struct session *session;
	unsigned sent = 0, same = 0;

	client_open(&client);
	client_open(&other);
	session = server_session(fixture_server, client.session);
	while (same < 3) {
		if (sock_send(client.fd, &header, sizeof(header), NULL, false) == 0) {
			sent++;
			same = 0;
		} else {
			same++;
			fixture_turn();
		}
		ck_assert_uint_lt(sent, 100000);
	}
	/* One answer waits; nothing else was taken in for it. */
	ck_assert_ptr_eq(session->out.next->next, &session->out);
	ck_assert_int_eq(client_call(&other, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
	client_close(&client);
	client_close(&other);
}
END_TEST

START_TEST(unread_changes_end_the_watcher)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;
	struct client watcher, client;
	bool gone = false;

	client_open(&watcher);
	client_open(&client);
	ck_assert_int_eq(client_call(&watcher, VSD__OP__OP_WATCH, &empty.base, NULL, NULL), 0);
	request.context = client.context;
	for (unsigned i = 0; i < 2000 && !gone; i++) {
		ck_assert_int_gt(client_object(&client, VSD__OP__OP_PD_ALLOC, &request.base), 0);
		gone = !server_session(fixture_server, watcher.session);
	}
	ck_assert(gone);
	client_close(&watcher);
	client_close(&client);
}
END_TEST

START_TEST(watcher_is_told_of_what_comes_and_goes)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;
	struct client watcher, client;
	size_t length;
	int64_t pd;

	client_open(&client);
	client_open(&watcher);
	ck_assert_int_eq(client_call(&watcher, VSD__OP__OP_WATCH, &empty.base, NULL, NULL), 0);
	request.context = client.context;
	pd = client_object(&client, VSD__OP__OP_PD_ALLOC, &request.base);
	ck_assert_int_eq(client_destroy(&client, VSD__OBJECT_TYPE__OBJ_PD, (uint32_t)pd), 0);
	for (int added = 1; added >= 0; added--) {
		struct frame_header header;
		ProtobufCMessage *msg;
		const Vsd__EvChange *change;

		ck_assert_int_eq(
			sock_recv(watcher.fd, frame, sizeof(frame), false, &watcher.fds, &length),
			0);
		ck_assert_int_eq(frame_parse(frame, length, &header), 0);
		ck_assert_uint_eq(header.opcode, VSD__OP__EV_CHANGE);
		ck_assert_int_eq(frame_unpack_heap(&vsd__ev_change__descriptor,
					 frame + sizeof(header), header.length, &msg),
			0);
		change = (const Vsd__EvChange *)msg;
		ck_assert_int_eq(change->added, added);
		ck_assert_int_eq(change->item->type, VSD__OBJECT_TYPE__OBJ_PD);
		ck_assert_uint_eq(change->item->handle, (uint32_t)pd);
		ck_assert_uint_eq(change->item->session, client.session);
		protobuf_c_message_free_unpacked(msg, NULL);
	}
	client_close(&watcher);
	client_close(&client);
}
END_TEST

/* The socket stays open in a child that forked: the death of the process itself counts. */
START_TEST(death_counts_though_the_socket_lives)
{
	static struct listener listener;
	struct peer_cred cred = { .pidns = 1 };
	struct session *session;
	struct client client = CLIENT_NULL;
	int pair[2], hold[2], pidfd;
	pid_t child;

	listener.server = fixture_server;
	ck_assert_int_eq(pipe(hold), 0);
	child = fork();
	if (child == 0) {
		char byte;

		close(hold[1]);
		_exit(read(hold[0], &byte, 1) < 0);
	}
	close(hold[0]);
	pidfd = (int)syscall(434 /* pidfd_open */, child, 0);
	ck_assert_int_ge(pidfd, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	client.fd = pair[1];
	cred.pid = child;
	ck_assert_int_eq(
		session_new(fixture_server, &listener, pair[0], pidfd, &cred, &session), 0);
	fixture_turn();
	ck_assert_uint_eq(fixture_server->n_sessions, 1);
	close(hold[1]);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	fixture_turn();
	ck_assert_uint_eq(fixture_server->n_sessions, 0);
	client_close(&client);
}
END_TEST

static uint64_t later;

static uint64_t clock_later(void)
{
	return later;
}

START_TEST(log_lines_are_limited_then_counted)
{
	struct log_limit limit = { 0 };
	unsigned dropped = 99;

	for (unsigned i = 0; i < LOG_LIMIT_LINES; i++)
		ck_assert(log_limit_take(&limit, 1000 + i, &dropped));
	ck_assert_uint_eq(dropped, 0);
	for (unsigned i = 0; i < 7; i++)
		ck_assert(!log_limit_take(&limit, 2000, &dropped));
	ck_assert(log_limit_take(&limit, 1000 + LOG_LIMIT_MS, &dropped));
	ck_assert_uint_eq(dropped, 7);
}
END_TEST

START_TEST(what_clients_chose_is_escaped)
{
	char buf[16];

	ck_assert_str_eq(log_escape(buf, sizeof(buf), "a\n\x1b\\b", 5), "a\\x0a\\x1b\\x5cb");
	ck_assert_str_eq(log_escape(buf, 6, "ab\n", 3), "ab");
	ck_assert_str_eq(log_escape(buf, 1, "ab", 2), "");
}
END_TEST

START_TEST(listings_are_for_ones_own_domain)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	struct client client;
	ProtobufCMessage *reply;

	client_open(&client);
	request.all = 1;
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_LIST, &request.base, NULL, NULL), EPERM);
	request.all = 0;
	request.page = 3;
	ck_assert_int_eq(
		client_call(&client, VSD__OP__OP_LIST, &request.base, NULL, NULL), EINVAL);
	request.page = 0;
	ck_assert_int_eq(client_call(&client, VSD__OP__OP_LIST, &request.base,
				 &vsd__list_reply__descriptor, &reply),
		0);
	/* The client, its context, a PD and a CQ. */
	ck_assert_uint_eq(((Vsd__ListReply *)reply)->n_items, 4);
	ck_assert(!((Vsd__ListReply *)reply)->has_next_page);
	protobuf_c_message_free_unpacked(reply, NULL);
	client_close(&client);
}
END_TEST

START_TEST(pages_show_everything_once)
{
	enum { PDS = 1000 };
	static bool seen[PDS * 2 + 10];
	Vsd__PdAllocRequest make = VSD__PD_ALLOC_REQUEST__INIT;
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	struct client client;
	unsigned items = 0, pages = 0;

	client_open(&client);
	make.context = client.context;
	for (unsigned i = 0; i < PDS; i++)
		ck_assert_int_gt(client_object(&client, VSD__OP__OP_PD_ALLOC, &make.base), 0);
	request.has_type = 1;
	request.type = VSD__OBJECT_TYPE__OBJ_PD;
	do {
		ProtobufCMessage *msg;
		Vsd__ListReply *reply;

		ck_assert_int_eq(client_call(&client, VSD__OP__OP_LIST, &request.base,
					 &vsd__list_reply__descriptor, &msg),
			0);
		reply = (Vsd__ListReply *)msg;
		for (size_t i = 0; i < reply->n_items; i++) {
			ck_assert_uint_lt(reply->items[i]->handle, sizeof(seen));
			ck_assert(!seen[reply->items[i]->handle]);
			seen[reply->items[i]->handle] = true;
			items++;
		}
		request.page = reply->has_next_page ? reply->next_page : 0;
		pages++;
		/* What goes meanwhile does no harm. */
		ck_assert_int_eq(
			client_destroy(&client, VSD__OBJECT_TYPE__OBJ_PD, PDS + 3 - pages), 0);
		protobuf_c_message_free_unpacked(msg, NULL);
	} while (request.page);
	ck_assert_uint_gt(pages, 1);
	ck_assert_uint_ge(items, PDS + 1 - pages);
	ck_assert_uint_le(items, PDS + 1);
	client_close(&client);
}
END_TEST

START_TEST(silent_clients_are_ended)
{
	struct client client, joined;

	client_connect(&client, false);
	client_join(&joined);
	later = loop_now() + 3600000;
	loop_set_clock(clock_later);
	server_end_silent(fixture_server);
	ck_assert(client_is_gone(&client));
	ck_assert_uint_eq(fixture_server->n_sessions, 1);
	loop_set_clock(NULL);
	client_close(&client);
	client_close(&joined);
}
END_TEST

START_TEST(connections_have_a_quota)
{
	static struct listener listener;
	struct client client;
	struct session *session;
	int pair[2];

	listener.server = fixture_server;
	client_join(&client);
	fixture_server->config->limit[SLOT_SESSIONS] = 1;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fixture_server->config->max_connections = 1;
	ck_assert_int_eq(server_adopt(fixture_server, &listener, pair[0], &session), -EAGAIN);
	ck_assert_uint_eq(fixture_server->refused, 1);
	close(pair[1]);
	client_close(&client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session");
	TCase *tcase = harness_tcase(suite, "session");
	TCase *slow = harness_tcase(suite, "slow");

	tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
	tcase_add_test(tcase, nothing_is_left_of_a_client);
	tcase_add_test(tcase, lost_twice_is_lost_once);
	tcase_add_test(tcase, watcher_is_told_of_what_comes_and_goes);
	tcase_add_test(tcase, death_counts_though_the_socket_lives);
	tcase_add_test(tcase, log_lines_are_limited_then_counted);
	tcase_add_test(tcase, what_clients_chose_is_escaped);
	tcase_add_test(tcase, listings_are_for_ones_own_domain);
	tcase_add_test(tcase, silent_clients_are_ended);
	tcase_add_test(tcase, connections_have_a_quota);
	tcase_set_timeout(slow, 30);
	tcase_add_checked_fixture(slow, fixture_setup, fixture_teardown);
	tcase_add_test(slow, answers_that_are_not_read_stop_the_requests);
	tcase_add_test(slow, unread_changes_end_the_watcher);
	tcase_add_test(slow, pages_show_everything_once);
	return harness_run(suite);
}
