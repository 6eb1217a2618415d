/* SPDX-License-Identifier: BSD-2-Clause */
/* client/control/{conn,call,events}.c: the session, what programs do to its fds, and answers that are none. */
#include "client/control/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;
static int events[2]; /* the daemon's end, the client's end of the event socket */

enum behaviour { ANSWER, REFUSE, REFUSE_FDS, WRONG_SERIAL, WRONG_OP, NOT_A_REPLY, CUT_BODY, HANG_UP };
static _Atomic enum behaviour behaviour;

static bool answer_join(int fd, const struct frame_header *header)
{
	Vsd__JoinReply reply = VSD__JOIN_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events), 0);
	fdlist_consume(&fds, events[1]);
	for (int i = 0; i < 3; i++)
		fdlist_consume(&fds, open("/dev/null", O_RDWR | O_CLOEXEC));
	reply.peer = 7;

	bool sent = fake_reply(fd, header, 0, &reply.base, &fds);

	fdlist_deinit(&fds);
	return sent;
}

static bool answer_object(int fd, const struct frame_header *header)
{
	Vsd__ObjectReply reply = VSD__OBJECT_REPLY__INIT;

	reply.handle = 42;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static bool handle(
	struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	struct frame_header wrong = *header;
	enum behaviour now = behaviour;

	switch (now) {
	case ANSWER:
		break;
	case REFUSE:
		return fake_reply(fd, header, EDQUOT, NULL, NULL);
	case REFUSE_FDS:
		return fake_reply(fd, header, EMFILE, NULL, NULL);
	case WRONG_SERIAL:
		wrong.serial++;
		return answer_object(fd, &wrong);
	case WRONG_OP:
		wrong.opcode++;
		return answer_object(fd, &wrong);
	case NOT_A_REPLY:
		return write(fd, "nonsense", 8) == 8;
	case CUT_BODY:
		return fake_reply(fd, header, 0, NULL, NULL);
	case HANG_UP:
		return false;
	}
	return header->opcode == VSD__OP__OP_JOIN ? answer_join(fd, header)
						  : answer_object(fd, header);
}

static void setup(void)
{
	harness_fds_setup();
	behaviour = ANSWER;
	events[0] = -1;
	fake_start(&fake, handle);
}

static void teardown(void)
{
	control_close();
	fake_stop(&fake);
	if (events[0] >= 0)
		close(events[0]);
	harness_fds_teardown();
}

static int create(uint32_t *handle_out)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = 1;
	return control_create(VSD__OP__OP_PD_ALLOC, &request.base, handle_out);
}

static void join(struct control_process *process)
{
	ck_assert_int_eq(control_join(process), 0);
}

static void process_close(struct control_process *process)
{
	close(process->events);
	close(process->page);
	close(process->kick);
	close(process->map);
}

/* --- session ------------------------------------------------------------------------------------------------------- */

START_TEST(a_call_connects_first)
{
	uint32_t h = 0;

	ck_assert(!control_connected());
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(h, 42);
	ck_assert(control_connected());
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 1);
}
END_TEST

START_TEST(without_a_daemon_the_reason_is_given)
{
	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);
	ck_assert_int_eq(control_connect(), -ENOENT);
	ck_assert(!control_connected());
}
END_TEST

START_TEST(a_refusal_leaves_the_session)
{
	uint32_t h;

	behaviour = REFUSE;
	ck_assert_int_eq(create(&h), -EDQUOT);
	behaviour = ANSWER;
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 1);
}
END_TEST

static const enum behaviour bad[] = { WRONG_SERIAL, WRONG_OP, NOT_A_REPLY, CUT_BODY, HANG_UP };

START_TEST(what_is_no_answer_ends_the_session)
{
	uint32_t h;

	behaviour = bad[_i];
	ck_assert_int_eq(create(&h), -ENOTCONN);
	ck_assert(!control_connected());
	/* Nothing stood on it, so the next call may start anew. */
	behaviour = ANSWER;
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 2);
}
END_TEST

/* --- fds ----------------------------------------------------------------------------------------------------------- */

START_TEST(the_socket_is_high_and_close_on_exec)
{
	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_ge(conn.socket.fd, 512);
	ck_assert_int_eq(fcntl(conn.socket.fd, F_GETFD), FD_CLOEXEC);
}
END_TEST

START_TEST(a_closed_socket_is_noticed)
{
	uint32_t h;

	ck_assert_int_eq(control_connect(), 0);
	close(conn.socket.fd);
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 2);
}
END_TEST

START_TEST(a_number_that_is_anothers_now_is_left_alone)
{
	uint32_t h;
	int pipe_fds[2];

	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(pipe(pipe_fds), 0);

	int fd = conn.socket.fd;

	ck_assert_int_eq(dup2(pipe_fds[1], fd), fd);
	ck_assert_int_eq(create(&h), 0);
	ck_assert_int_eq(write(fd, "x", 1), 1); /* open still, and the program's */
	close(fd);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
END_TEST

START_TEST(after_join_a_lost_session_is_not_made_again)
{
	struct control_process process;
	uint32_t h;

	join(&process);
	ck_assert_uint_eq(process.peer, 7);
	close(conn.socket.fd);
	ck_assert_int_eq(create(&h), -ENOTCONN);
	ck_assert_int_eq(create(&h), -ENOTCONN);
	ck_assert_int_eq(control_connect(), -ENOTCONN);
	ck_assert_uint_eq(fake.sessions, 1);
	process_close(&process);
}
END_TEST

START_TEST(a_refused_join_can_be_tried_again)
{
	struct control_process process;

	behaviour = REFUSE_FDS;
	ck_assert_int_eq(control_join(&process), -EMFILE);
	behaviour = ANSWER;
	join(&process);
	process_close(&process);
}
END_TEST

START_TEST(destroying_without_a_daemon_succeeds)
{
	struct control_process process;

	join(&process);
	control_lost();
	ck_assert_int_eq(control_destroy(1, VSD__OBJECT_TYPE__OBJ_PD, 42), 0);
	process_close(&process);
}
END_TEST

START_TEST(once_closed_it_can_be_opened_again)
{
	struct control_process process;
	uint32_t h;

	join(&process);
	process_close(&process);
	close(events[0]);
	events[0] = -1;
	control_close();
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 2);
}
END_TEST

/* --- fork ---------------------------------------------------------------------------------------------------------- */

START_TEST(a_child_does_not_use_its_parents_session)
{
	uint32_t h;

	ck_assert_int_eq(create(&h), 0);

	pid_t pid = fork();

	if (pid == 0)
		_exit(control_connected() ? 1 : 0);

	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(create(&h), 0);
	ck_assert_uint_eq(fake.sessions, 1);
}
END_TEST

/* --- events -------------------------------------------------------------------------------------------------------- */

START_TEST(events_are_read_without_waiting)
{
	struct control_process process;
	struct control_event event;
	Vsd__EvWireGone gone = VSD__EV_WIRE_GONE__INIT;

	join(&process);
	ck_assert_int_eq(control_event_read(process.events, &event), 0);
	gone.wire = 5;
	gone.reason = VSD__GONE_REASON__GONE_DEAD;
	ck_assert(fake_event(events[0], VSD__OP__EV_WIRE_GONE, &gone.base));
	ck_assert_int_eq(control_event_read(process.events, &event), 1);
	ck_assert_int_eq(event.kind, CONTROL_WIRE_GONE);
	ck_assert_uint_eq(((Vsd__EvWireGone *)event.message)->wire, 5);
	control_event_deinit(&event);
	process_close(&process);
}
END_TEST

START_TEST(an_unknown_event_has_no_message)
{
	struct control_process process;
	struct control_event event;

	join(&process);
	ck_assert(fake_event(events[0], 200, NULL));
	ck_assert_int_eq(control_event_read(process.events, &event), 1);
	ck_assert_int_eq(event.kind, 200);
	ck_assert_ptr_null(event.message);
	control_event_deinit(&event);
	process_close(&process);
}
END_TEST

START_TEST(a_request_on_the_event_socket_gets_its_answer_there)
{
	struct control_process process;
	struct control_event event;
	struct frame_header header = { .opcode = VSD__OP__OP_PEER_RESOLVE };
	Vsd__PeerResolveRequest request = VSD__PEER_RESOLVE_REQUEST__INIT;
	Vsd__PeerResolveReply reply = VSD__PEER_RESOLVE_REPLY__INIT;
	uint8_t buf[VSD_REQUEST_MAX];

	join(&process);
	ck_assert_int_eq(control_event_send(process.events, VSD__OP__OP_PEER_RESOLVE,
				 &request.base, &header.serial),
		0);
	ck_assert_int_gt(read(events[0], buf, sizeof(buf)), 0);
	reply.peer = 9;
	ck_assert(fake_reply(events[0], &header, 0, &reply.base, NULL));
	ck_assert_int_eq(control_event_read(process.events, &event), 1);
	ck_assert_int_eq(event.kind, CONTROL_ANSWER);
	ck_assert_uint_eq(event.serial, header.serial);
	ck_assert_int_eq(event.status, 0);
	ck_assert_uint_eq(((Vsd__PeerResolveReply *)event.message)->peer, 9);
	control_event_deinit(&event);
	process_close(&process);
}
END_TEST

START_TEST(a_refused_request_has_its_status)
{
	struct control_process process;
	struct control_event event;
	struct frame_header header = { .opcode = VSD__OP__OP_PEER_RESOLVE, .serial = 1 };

	join(&process);
	ck_assert(fake_reply(events[0], &header, ENOENT, NULL, NULL));
	ck_assert_int_eq(control_event_read(process.events, &event), 1);
	ck_assert_int_eq(event.status, ENOENT);
	ck_assert_ptr_null(event.message);
	control_event_deinit(&event);
	process_close(&process);
}
END_TEST

START_TEST(the_end_of_the_event_socket_is_an_error)
{
	struct control_process process;
	struct control_event event;

	join(&process);
	shutdown(events[0], SHUT_RDWR);
	ck_assert_int_eq(control_event_read(process.events, &event), -ENOTCONN);
	process_close(&process);
}
END_TEST

START_TEST(an_event_fd_that_is_anothers_now_is_not_read)
{
	struct control_process process;
	struct control_event event;
	uint8_t byte;
	int pair[2];

	join(&process);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	ck_assert_int_eq(write(pair[1], "x", 1), 1);
	ck_assert_int_eq(dup2(pair[0], process.events), process.events);
	ck_assert_int_eq(control_event_read(process.events, &event), -ENOTCONN);
	ck_assert_int_eq(control_event_send(process.events, VSD__OP__OP_PEER_RESOLVE, NULL, NULL),
		-ENOTCONN);
	ck_assert_int_eq(read(pair[0], &byte, 1), 1); /* still there */
	close(pair[0]);
	close(pair[1]);
	process_close(&process);
}
END_TEST

static TCase *tcase_new(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, teardown);
	suite_add_tcase(suite, tcase);
	return tcase;
}

int main(void)
{
	Suite *suite = suite_create("conn");
	TCase *session = tcase_new(suite, "session"), *fds = tcase_new(suite, "fds");
	TCase *event = tcase_new(suite, "events");

	tcase_add_test(session, a_call_connects_first);
	tcase_add_test(session, without_a_daemon_the_reason_is_given);
	tcase_add_test(session, a_refusal_leaves_the_session);
	tcase_add_loop_test(session, what_is_no_answer_ends_the_session, 0,
		sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(session, a_child_does_not_use_its_parents_session);
	tcase_add_test(fds, the_socket_is_high_and_close_on_exec);
	tcase_add_test(fds, a_closed_socket_is_noticed);
	tcase_add_test(fds, a_number_that_is_anothers_now_is_left_alone);
	tcase_add_test(fds, after_join_a_lost_session_is_not_made_again);
	tcase_add_test(fds, a_refused_join_can_be_tried_again);
	tcase_add_test(fds, destroying_without_a_daemon_succeeds);
	tcase_add_test(fds, once_closed_it_can_be_opened_again);
	tcase_add_test(event, events_are_read_without_waiting);
	tcase_add_test(event, an_unknown_event_has_no_message);
	tcase_add_test(event, a_request_on_the_event_socket_gets_its_answer_there);
	tcase_add_test(event, a_refused_request_has_its_status);
	tcase_add_test(event, the_end_of_the_event_socket_is_an_error);
	tcase_add_test(event, an_event_fd_that_is_anothers_now_is_not_read);
	return harness_run(suite);
}
