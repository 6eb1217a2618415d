/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsctl's session against a daemon that answers what the test says: refusals, nonsense, silence cut
 * short, events in between, listings in pages.
 */
#include "client/ctl/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/items.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"

static char dir[64], path[96];

/* One frame of the daemon's. The request's serial and opcode are taken unless something else is said. */
struct answer {
	int32_t status;
	uint16_t flags; /* 0: FRAME_REPLY */
	uint16_t opcode;
	uint32_t serial_off;
	const ProtobufCMessage *body;
	bool unread;         /* sent without another request being read */
	bool hang_up;        /* instead */
	const char *rubbish; /* instead */
};

static void answer_send(int fd, const struct answer *answer, const struct frame_header *request)
{
	static uint8_t buf[sizeof(struct frame_header) + VSD_ANSWER_MAX];
	struct frame_header header = {
		.version = 1,
		.opcode = answer->opcode ? answer->opcode : request->opcode,
		.serial = request->serial + answer->serial_off,
		.flags = answer->flags ? answer->flags : FRAME_REPLY,
		.status = answer->status,
	};
	int n = frame_pack(buf, sizeof(buf), &header, answer->body);

	if (answer->rubbish)
		sock_send(fd, answer->rubbish, strlen(answer->rubbish), NULL, true);
	else
		sock_send(fd, buf, (size_t)n, NULL, true);
}

/* The daemon: HELLO is answered with @version, then come the answers. */
static pid_t daemon_start(uint32_t version, const struct answer *answers, size_t n)
{
	int listener = sock_listen(path, 0600, 1);
	Vsd__HelloReply hello = VSD__HELLO_REPLY__INIT;
	const struct answer greeting = { .body = &hello.base };

	ck_assert_int_ge(listener, 0);
	hello.version = version;
	hello.daemon_version = (char *)"0";

	pid_t pid = fork();

	if (pid != 0) {
		close(listener);
		return pid;
	}

	int fd = accept(listener, NULL, NULL);
	struct frame_header request = { 0 };
	uint8_t buf[VSD_REQUEST_MAX];
	size_t length;

	for (size_t i = 0; i <= n; i++) {
		const struct answer *answer = i ? &answers[i - 1] : &greeting;

		if (!answer->unread) {
			if (sock_recv(fd, buf, sizeof(buf), true, NULL, &length) < 0 ||
				length == 0)
				_exit(1);
			if (frame_parse(buf, length, &request) < 0)
				_exit(2);
		}
		if (answer->hang_up)
			_exit(0);
		answer_send(fd, answer, &request);
	}
	/* Until the client is done. */
	sock_recv(fd, buf, sizeof(buf), true, NULL, &length);
	_exit(0);
}

static pid_t daemon_pid;

static struct conn *conn_to(const struct answer *answers, size_t n)
{
	struct conn *conn;

	daemon_pid = daemon_start(1, answers, n);
	ck_assert_int_eq(conn_open(path, &conn), 0);
	return conn;
}

static void daemon_end(struct conn *conn)
{
	int status;

	conn_close(conn);
	waitpid(daemon_pid, &status, 0);
	ck_assert_int_eq(status, 0);
}

static void setup(void)
{
	harness_fds_setup();
	strcpy(dir, "/tmp/test-ctl-conn.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
}

static void teardown(void)
{
	unlink(path);
	rmdir(dir);
	harness_fds_teardown();
}

START_TEST(no_daemon_is_an_errno)
{
	struct conn *conn = NULL;

	ck_assert_int_eq(conn_open(path, &conn), -ENOENT);
	close(sock_listen(path, 0600, 1));
	ck_assert_int_eq(conn_open(path, &conn), -ECONNREFUSED);
	ck_assert_ptr_null(conn);
}
END_TEST

START_TEST(version_out_of_range_is_refused)
{
	struct conn *conn = NULL;
	int status;

	daemon_pid = daemon_start(VSD_VERSION_MAX + 1, NULL, 0);
	ck_assert_int_eq(conn_open(path, &conn), -EPROTONOSUPPORT);
	ck_assert_ptr_null(conn);
	waitpid(daemon_pid, &status, 0);
}
END_TEST

static Vsd__StatusReply status_reply = VSD__STATUS_REPLY__INIT;
static Vsd__EvChange change = VSD__EV_CHANGE__INIT;
static Vsd__Item item = VSD__ITEM__INIT;

static void replies_fill(void)
{
	status_reply.version = status_reply.socket = status_reply.config = (char *)"x";
	status_reply.pid = 7;
	item.type = VSD__OBJECT_TYPE__OBJ_QP;
	item.command = item.cgroup = item.device = (char *)"";
	change.item = &item;
	change.added = 1;
}

static const struct {
	const char *name;
	struct answer answer;
	int want;
} wrong[] = {
	{ "refusal", { .status = EBUSY }, -EBUSY },
	{ "negative status", { .status = -5 }, -EBADMSG },
	{ "serial of another", { .body = &status_reply.base, .serial_off = 1 }, -EBADMSG },
	{ "opcode of another", { .body = &status_reply.base, .opcode = VSD__OP__OP_LIST },
		-EBADMSG },
	{ "neither answer nor event", { .body = &status_reply.base, .flags = 64 }, -EBADMSG },
	{ "body of another type", { .body = &item.base }, -EBADMSG },
	{ "no body", { 0 }, -EBADMSG },
	{ "no frame", { .rubbish = "HTTP/1.1 400 Bad Request" }, -EBADMSG },
	{ "half a header", { .rubbish = "VSD1" }, -EBADMSG },
	{ "end", { .hang_up = true }, -ENOTCONN },
};

START_TEST(wrong_answers_are_errors)
{
	ProtobufCMessage *reply = NULL;

	replies_fill();

	struct conn *conn = conn_to(&wrong[_i].answer, 1);
	int r = conn_call(conn, VSD__OP__OP_STATUS, NULL, &vsd__status_reply__descriptor, &reply);

	ck_assert_msg(r == wrong[_i].want, "%s: %d", wrong[_i].name, r);
	ck_assert_ptr_null(reply);
	daemon_end(conn);
}
END_TEST

START_TEST(answer_is_found_behind_events)
{
	const struct answer answers[] = {
		{ .body = &change.base, .flags = FRAME_EVENT, .opcode = VSD__OP__EV_CHANGE },
		{ .body = &status_reply.base, .unread = true },
	};
	ProtobufCMessage *reply;

	replies_fill();

	struct conn *conn = conn_to(answers, 2);

	ck_assert_int_eq(
		conn_call(conn, VSD__OP__OP_STATUS, NULL, &vsd__status_reply__descriptor, &reply),
		0);
	ck_assert_uint_eq(((Vsd__StatusReply *)reply)->pid, 7);
	conn_reply_free(reply);
	daemon_end(conn);
}
END_TEST

START_TEST(events_of_other_kinds_are_passed_over)
{
	const struct answer answers[] = {
		{ 0 },
		{ .flags = FRAME_EVENT, .opcode = VSD__OP__EV_ASYNC, .unread = true },
		{ .body = &change.base,
			.flags = FRAME_EVENT,
			.opcode = VSD__OP__EV_CHANGE,
			.unread = true },
	};
	ProtobufCMessage *event;

	replies_fill();

	struct conn *conn = conn_to(answers, 3);

	ck_assert_int_eq(conn_call(conn, VSD__OP__OP_WATCH, NULL, NULL, NULL), 0);
	ck_assert_int_eq(
		conn_event(conn, VSD__OP__EV_CHANGE, &vsd__ev_change__descriptor, &event), 0);
	ck_assert_int_eq(((Vsd__EvChange *)event)->item->type, VSD__OBJECT_TYPE__OBJ_QP);
	conn_reply_free(event);
	daemon_end(conn);
}
END_TEST

/* How many rows a listing of @n answers gives. */
static int rows_of(const struct answer *answers, size_t n, int *error)
{
	struct conn *conn = conn_to(answers, n);
	struct table *table = items_table("t", ITEMS_ALL, true, true);
	int rows = 0;

	*error = items_list(conn, table, ITEMS_ALL, true, false);

	char *line = table_line(table);

	for (const char *at = line; (at = strstr(at, "\"type\"")); at++)
		rows++;
	free(line);
	table_free(table);
	daemon_end(conn);
	return rows;
}

START_TEST(pages_are_put_together)
{
	Vsd__ListReply first = VSD__LIST_REPLY__INIT, last = VSD__LIST_REPLY__INIT;
	Vsd__Item *items[] = { &item, &item };
	const struct answer answers[] = { { .body = &first.base }, { .body = &last.base } };
	int error;

	replies_fill();
	first.items = last.items = items;
	first.n_items = 2;
	last.n_items = 1;
	first.has_next_page = 1;
	first.next_page = 9;
	ck_assert_int_eq(rows_of(answers, 2, &error), 3);
	ck_assert_int_eq(error, 0);
}
END_TEST

START_TEST(pages_in_a_circle_end)
{
	Vsd__ListReply page = VSD__LIST_REPLY__INIT;
	Vsd__Item *items[] = { &item };
	const struct answer answers[] = { { .body = &page.base }, { .body = &page.base } };
	int error;

	replies_fill();
	page.items = items;
	page.n_items = 1;
	page.has_next_page = 1;
	page.next_page = 1;
	ck_assert_int_eq(rows_of(answers, 2, &error), 2);
	ck_assert_int_eq(error, 0);
}
END_TEST

START_TEST(listing_that_fails_midway_is_an_error)
{
	Vsd__ListReply first = VSD__LIST_REPLY__INIT;
	const struct answer answers[] = { { .body = &first.base }, { .status = ENOMEM } };
	int error;

	first.has_next_page = 1;
	first.next_page = 1;
	rows_of(answers, 2, &error);
	ck_assert_int_eq(error, -ENOMEM);
}
END_TEST

START_TEST(request_that_is_too_long_is_not_sent)
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	char *name = calloc(1, VSD_REQUEST_MAX);

	memset(name, 'a', VSD_REQUEST_MAX - 1);
	request.device = name;

	struct conn *conn = conn_to(NULL, 0);

	ck_assert_int_eq(
		conn_call(conn, VSD__OP__OP_CONTEXT_OPEN, &request.base, NULL, NULL), -EMSGSIZE);
	free(name);
	daemon_end(conn);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl-conn");
	TCase *tcase = tcase_create("conn");

	tcase_add_checked_fixture(tcase, setup, teardown);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, no_daemon_is_an_errno);
	tcase_add_test(tcase, version_out_of_range_is_refused);
	tcase_add_loop_test(
		tcase, wrong_answers_are_errors, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(tcase, answer_is_found_behind_events);
	tcase_add_test(tcase, events_of_other_kinds_are_passed_over);
	tcase_add_test(tcase, pages_are_put_together);
	tcase_add_test(tcase, pages_in_a_circle_end);
	tcase_add_test(tcase, listing_that_fails_midway_is_an_error);
	tcase_add_test(tcase, request_that_is_too_long_is_not_sent);
	return harness_run(suite);
}
