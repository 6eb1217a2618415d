/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may be asked on the event socket: by the thread of a client that waits for events there, and by one that means
 * no good.
 */
#include "daemon/process.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

enum { UD = 4 };
enum { INIT = 1, RTR = 2 };

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

static int ask(struct client *client, unsigned opcode, uint32_t serial, const ProtobufCMessage *request)
{
	struct frame_header header = { .version = VSD_VERSION_MAX, .opcode = (uint16_t)opcode, .serial = serial };
	uint8_t frame[VSD_REQUEST_MAX];
	int n = frame_pack(frame, sizeof(frame), &header, request);

	ck_assert_int_gt(n, 0);
	return sock_send(client->events, frame, (size_t)n, NULL, false);
}

static int ask_resolve(struct client *client, uint32_t serial, uint32_t qpn)
{
	Vsd__PeerResolveRequest request = VSD__PEER_RESOLVE_REQUEST__INIT;

	request.context = client->context;
	request.qpn = qpn;
	request.dlid = 1;
	return ask(client, VSD__OP__OP_PEER_RESOLVE, serial, &request.base);
}

static int ask_release(struct client *client, uint32_t serial, uint32_t segment, uint32_t wire, uint32_t generation)
{
	Vsd__WireReleaseRequest request = VSD__WIRE_RELEASE_REQUEST__INIT;

	request.segment = segment;
	request.wire = wire;
	request.generation = generation;
	return ask(client, VSD__OP__OP_WIRE_RELEASE, serial, &request.base);
}

/* The next frame of the event socket; false when there is none. */
static bool next(struct client *client, struct frame_header *header)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	struct fdlist fds = FDLIST_NULL;
	size_t length = 0;

	fixture_turn();

	int r = sock_recv(client->events, frame, sizeof(frame), false, &fds, &length);

	fdlist_deinit(&fds);
	if (r < 0 || length == 0)
		return false;
	ck_assert_int_eq(frame_parse(frame, length, header), 0);
	return true;
}

START_TEST(refusal_is_answered_there_and_ends_nothing)
{
	struct frame_header header;

	ck_assert_int_eq(ask_release(&a, 4711, 1, 1, 1), 0);
	ck_assert(next(&a, &header));
	ck_assert_uint_eq(header.flags, FRAME_REPLY);
	ck_assert_uint_eq(header.opcode, VSD__OP__OP_WIRE_RELEASE);
	ck_assert_uint_eq(header.serial, 4711);
	ck_assert_int_eq(header.status, ENOENT);
	ck_assert(!client_is_gone(&a));
}
END_TEST

START_TEST(answer_comes_behind_the_events_it_caused)
{
	static const unsigned want[] = { VSD__OP__EV_SEGMENT, VSD__OP__EV_WIRE, VSD__OP__OP_PEER_RESOLVE };
	struct frame_header header;
	uint32_t ud = (uint32_t)client_qp(&b, UD, b.qpn);

	ck_assert_int_eq(client_qp_state(&b, ud, INIT), 0);
	ck_assert_int_eq(client_qp_state(&b, ud, RTR), 0);
	ck_assert_int_eq(ask_resolve(&a, 1, b.qpn), 0);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(next(&a, &header));
		ck_assert_uint_eq(header.opcode, want[i]);
	}
	ck_assert_uint_eq(header.flags, FRAME_REPLY);
	ck_assert_int_eq(header.status, 0);
	ck_assert(!next(&a, &header));
}
END_TEST

START_TEST(both_sockets_have_serials_of_their_own)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;
	struct frame_header header;

	ck_assert_int_eq(ask_release(&a, a.serial + 1, 1, 1, 1), 0);
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
	ck_assert(next(&a, &header));
	ck_assert_uint_eq(header.serial, a.serial);
}
END_TEST

/* Requests without end, nothing read: the daemon stops to take them in, and serves others. */
START_TEST(answers_that_are_not_read_stop_the_requests)
{
	struct process *process = process_get(fixture_server, a.peer);
	Vsd__Empty empty = VSD__EMPTY__INIT;
	struct frame_header header;
	unsigned sent = 0, same = 0, answered = 0;

	while (same < 3) {
		if (ask_release(&a, sent + 1, 1, 1, 1) == 0) {
			sent++;
			same = 0;
		} else {
			same++;
			fixture_turn();
		}
		ck_assert_uint_lt(sent, 100000);
	}
	ck_assert(process->blocked);
	ck_assert_int_eq(client_call(&b, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
	/* And all of them are answered, in order, once somebody reads. */
	while (next(&a, &header))
		ck_assert_uint_eq(header.serial, ++answered);
	ck_assert_uint_eq(answered, sent);
}
END_TEST

START_TEST(other_requests_end_the_session)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;

	ck_assert_int_eq(ask(&a, VSD__OP__OP_STATUS, 1, &empty.base), 0);
	ck_assert(client_is_gone(&a));
	ck_assert(!client_is_gone(&b));
}
END_TEST

START_TEST(no_frame_ends_the_session)
{
	ck_assert_int_eq(sock_send(a.events, "hello", 5, NULL, false), 0);
	ck_assert(client_is_gone(&a));
}
END_TEST

START_TEST(frame_too_long_ends_the_session)
{
	static const uint8_t frame[VSD_REQUEST_MAX + 1];

	ck_assert_int_eq(sock_send(a.events, frame, sizeof(frame), NULL, false), 0);
	ck_assert(client_is_gone(&a));
}
END_TEST

/* A kernel with SO_PASSRIGHTS does not even send them. */
START_TEST(fds_end_the_session)
{
	struct fdlist fds = FDLIST_NULL;

	fdlist_dup(&fds, 0);

	int r = sock_send(a.events, "x", 1, &fds, false);

	fdlist_deinit(&fds);
	ck_assert_msg(r == 0 || r == -EPERM, "%d", r);
	ck_assert(client_is_gone(&a) || r == -EPERM);
}
END_TEST

START_TEST(end_of_the_event_socket_is_not_the_end)
{
	Vsd__Empty empty = VSD__EMPTY__INIT;

	close(a.events);
	a.events = -1;
	fixture_turn();
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_STATUS, &empty.base, NULL, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tcase = tcase_create("requests");

	tcase_add_checked_fixture(tcase, harness_fds_setup, harness_fds_teardown);
	tcase_add_checked_fixture(tcase, setup, teardown);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, refusal_is_answered_there_and_ends_nothing);
	tcase_add_test(tcase, answer_comes_behind_the_events_it_caused);
	tcase_add_test(tcase, both_sockets_have_serials_of_their_own);
	tcase_add_test(tcase, answers_that_are_not_read_stop_the_requests);
	tcase_add_test(tcase, other_requests_end_the_session);
	tcase_add_test(tcase, no_frame_ends_the_session);
	tcase_add_test(tcase, frame_too_long_ends_the_session);
	tcase_add_test(tcase, fds_end_the_session);
	tcase_add_test(tcase, end_of_the_event_socket_is_not_the_end);
	return harness_run(suite);
}
