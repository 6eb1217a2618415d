/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is in a multicast group, as a sender asks for it: whole processes, in the order of their ids, in pages. */
#include <string.h>

#include "daemon/context.h"
#include "daemon/multicast.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

enum { UD = 4, LID = 0xc001, PAGE = 32, PEERS = 40 };

static const uint8_t gid[16] = { 0xff, 0x0e, [15] = 1 };
static struct client sender, peers[PEERS];

static void setup(void)
{
	fixture_setup();
	client_open(&sender);
}

static void teardown(void)
{
	client_close(&sender);
	for (unsigned i = 0; i < PEERS; i++)
		if (peers[i].fd > 0)
			client_close(&peers[i]);
	fixture_teardown();
}

static int call(struct client *client, unsigned op, uint32_t qp)
{
	Vsd__McastRequest request = VSD__MCAST_REQUEST__INIT;

	request.context = client->context;
	request.qp = qp;
	request.gid.data = (uint8_t *)(uintptr_t)gid;
	request.gid.len = sizeof(gid);
	request.lid = LID;
	return client_call(client, op, &request.base, NULL, NULL);
}

static uint32_t member(struct client *client, uint32_t n)
{
	uint32_t qp = (uint32_t)client_qp(client, UD, client->qpn + n);

	ck_assert_int_eq(call(client, VSD__OP__OP_MCAST_ATTACH, qp), 0);
	return qp;
}

static void leave(struct client *client, uint32_t qp)
{
	ck_assert_int_eq(call(client, VSD__OP__OP_MCAST_DETACH, qp), 0);
}

/* A page of the answer: straight from the core, since the request comes by the event socket. */
static struct mcast_answer ask(const struct client *client, uint32_t after, uint32_t ids[PAGE])
{
	struct process *process = process_get(fixture_server, client->peer);
	struct mcast_answer answer = { .peers = ids, .max = PAGE };
	const struct attachment *attachment = attachment_get(process->session, client->context);

	ck_assert_int_eq(mcast_resolve(process, attachment->context, gid, LID, after, &answer), 0);
	return answer;
}

/* Each process once, however many QPs it has in the group, and not the one that asks. */
START_TEST(processes_come_once_in_order)
{
	uint32_t ids[PAGE];
	struct mcast_answer answer;

	for (unsigned i = 0; i < 3; i++)
		client_open(&peers[i]);
	member(&sender, 0);
	member(&peers[2], 0);
	member(&peers[0], 0);
	member(&peers[2], 1);
	member(&peers[1], 0);
	member(&peers[0], 1);
	answer = ask(&sender, 0, ids);
	ck_assert_uint_eq(answer.n, 3);
	ck_assert(!answer.more);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(ids[i], peers[i].peer);
	answer = ask(&sender, peers[0].peer, ids);
	ck_assert_uint_eq(answer.n, 2);
	ck_assert_uint_eq(ids[0], peers[1].peer);
	answer = ask(&peers[1], 0, ids);
	ck_assert_uint_eq(answer.n, 3);
	ck_assert_uint_eq(ids[0], sender.peer);
	answer = ask(&sender, UINT32_MAX, ids);
	ck_assert_uint_eq(answer.n, 0);
}
END_TEST

/* A process is in the group until its last QP left. */
START_TEST(a_process_leaves_with_its_last_member)
{
	uint32_t ids[PAGE], first, second;

	for (unsigned i = 0; i < 2; i++)
		client_open(&peers[i]);
	first = member(&peers[0], 0);
	member(&peers[1], 0);
	second = member(&peers[0], 1);
	leave(&peers[0], first);
	ck_assert_uint_eq(ask(&sender, 0, ids).n, 2);
	leave(&peers[0], second);
	ck_assert_uint_eq(ask(&sender, 0, ids).n, 1);
	ck_assert_uint_eq(ids[0], peers[1].peer);
	client_close(&peers[1]);
	ck_assert_uint_eq(ask(&sender, 0, ids).n, 0);
}
END_TEST

START_TEST(a_large_group_comes_in_pages)
{
	struct mcast_answer answer;
	uint32_t ids[PAGE];

	for (unsigned i = 0; i < PEERS; i++) {
		client_open(&peers[i]);
		member(&peers[i], 0);
	}
	answer = ask(&sender, 0, ids);
	ck_assert_uint_eq(answer.n, PAGE);
	ck_assert(answer.more);
	ck_assert_uint_eq(ids[PAGE - 1], peers[PAGE - 1].peer);
	answer = ask(&sender, ids[PAGE - 1], ids);
	ck_assert_uint_eq(answer.n, PEERS - PAGE);
	ck_assert(!answer.more);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mcast");
	TCase *tcase = harness_tcase(suite, "mcast");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, processes_come_once_in_order);
	tcase_add_test(tcase, a_process_leaves_with_its_last_member);
	tcase_add_test(tcase, a_large_group_comes_in_pages);
	return harness_run(suite);
}
