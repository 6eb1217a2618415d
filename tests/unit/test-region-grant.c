/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * REGION_GRANT: who gets a peer's region to copy into, and that nobody else does.
 */
#include "daemon/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/object.h"
#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

enum { RC = 2, RESET = 0, ERR = 6 };
#define ALL (LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)

/* a initiates, b owns the region. */
static struct client a, b;
static uint32_t a_qp, b_qp;

struct grant {
	int status;
	uint32_t region;
	uint64_t iova, size;
	bool writable;
};

static void connect_qps(struct client *x, uint32_t qp, uint32_t qpn, struct client *y,
	uint32_t other, uint32_t other_qpn)
{
	ck_assert_int_eq(client_qp_connect(x, qp, other_qpn, 1), 0);
	ck_assert_int_eq(client_qp_connect(y, other, qpn, 1), 0);
}

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
	a_qp = (uint32_t)client_qp(&a, RC, a.qpn);
	b_qp = (uint32_t)client_qp(&b, RC, b.qpn);
	connect_qps(&a, a_qp, a.qpn, &b, b_qp, b.qpn);
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

static Vsd__RegionGrantRequest request_of(uint32_t peer, uint32_t key, uint32_t qpn)
{
	Vsd__RegionGrantRequest request = VSD__REGION_GRANT_REQUEST__INIT;

	request.peer = peer;
	request.key = key;
	request.qpn = qpn;
	return request;
}

static struct grant grant_by(struct client *client, uint32_t peer, uint32_t key, uint32_t qpn)
{
	Vsd__RegionGrantRequest request = request_of(peer, key, qpn);
	ProtobufCMessage *message = NULL;
	struct grant got = { .status = client_call(client, VSD__OP__OP_REGION_GRANT, &request.base,
				     &vsd__region_grant_reply__descriptor, &message) };
	const Vsd__RegionGrantReply *reply = (const void *)message;

	ck_assert_uint_eq(client->fds.n, got.status == 0);
	if (got.status != 0)
		return got;
	got.region = reply->region;
	got.iova = reply->iova;
	got.size = reply->size;
	got.writable = reply->writable;
	ck_assert_int_eq(region_fd_writes(client), got.writable);
	protobuf_c_message_free_unpacked(message, NULL);
	return got;
}

static struct grant grant(uint32_t key)
{
	return grant_by(&a, b.peer, key, a.qpn);
}

START_TEST(a_connected_peer_gets_the_region)
{
	struct region_got made = region_create(&b, 10000, ALL, 0, NULL);
	struct grant got;

	ck_assert_int_eq(pwrite(b.fds.fds[0], "r", 1, 9999), 1);
	got = grant(made.key);
	ck_assert_int_eq(got.status, 0);
	ck_assert(got.writable);
	ck_assert_uint_eq(got.region, made.region);
	ck_assert_uint_eq(got.iova, made.iova);
	ck_assert_uint_eq(got.size, made.size);
	ck_assert_int_eq(pwrite(a.fds.fds[0], "w", 1, 0), 1);
	/* Asked for again, and the other way. */
	ck_assert_int_eq(grant(made.key).status, 0);
	made = region_create(&a, 4096, ALL, 0, NULL);
	ck_assert_int_eq(grant_by(&b, a.peer, made.key, b.qpn).status, 0);
}
END_TEST

/* Rights of the peer's MR, and whether the grant writes: -1 is no grant. */
static const struct {
	uint32_t access;
	int writes;
} rights[] = {
	{ 0, -1 },
	{ LOCAL_WRITE, -1 },
	{ LOCAL_WRITE | MW_BIND, -1 },
	{ REMOTE_READ, 0 },
	{ LOCAL_WRITE | REMOTE_READ, 0 },
	{ LOCAL_WRITE | REMOTE_WRITE, 1 },
	{ LOCAL_WRITE | REMOTE_ATOMIC, 1 },
	{ ALL, 1 },
};

START_TEST(a_grant_writes_only_what_may_be_written_from_afar)
{
	struct region_got made;
	struct grant got;

	ck_assert_int_eq(region_create(&a, 4096, 0, 0, "x").status, 0);
	made = region_import(&b, "x", rights[_i].access);
	got = grant(made.key);
	ck_assert_int_eq(got.status, rights[_i].writes < 0 ? EACCES : 0);
	ck_assert_int_eq(got.writable, rights[_i].writes == 1);
}
END_TEST

START_TEST(who_may_only_read_grants_no_more)
{
	struct region_got made = region_create(&a, 4096, ALL, REGION_READ_ONLY, "ro"),
			  got = region_import(&b, "ro", REMOTE_READ);
	struct grant granted = grant(got.key);

	ck_assert_uint_eq(got.key, made.key);
	ck_assert_int_eq(granted.status, 0);
	ck_assert(!granted.writable);
	/* The process that made it writes, and says so. */
	ck_assert(grant_by(&b, a.peer, made.key, b.qpn).writable);
}
END_TEST

START_TEST(what_is_sealed_is_granted_for_reading)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	struct grant got;

	ck_assert_int_eq(region_export_as(&b, made.mr, REGION_SEAL, "sealed"), 0);
	got = grant(made.key);
	ck_assert_int_eq(got.status, 0);
	ck_assert(!got.writable);
}
END_TEST

START_TEST(a_grant_shares_the_region)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);

	ck_assert(grant(made.key).writable);
	/* Its seals are nobody's from now on. */
	ck_assert_int_eq(region_export_as(&b, made.mr, REGION_SEAL, NULL), EBUSY);
}
END_TEST

START_TEST(a_key_must_be_the_peers_and_of_a_region)
{
	Vsd__MrRegRequest plain = VSD__MR_REG_REQUEST__INIT;
	struct region_got made = region_create(&b, 4096, ALL, 0, "x"), second;

	plain.context = b.context;
	plain.pd = b.pd;
	plain.key = b.key + 256;
	plain.addr = plain.iova = 65536;
	plain.length = 4096;
	plain.access = ALL;
	ck_assert_int_gt(client_object(&b, VSD__OP__OP_MR_REG, &plain.base), 0);
	ck_assert_int_eq(grant(plain.key).status, EACCES);
	ck_assert_int_eq(grant(0).status, EACCES);
	ck_assert_int_eq(grant(made.key ^ 1).status, EACCES);
	ck_assert_int_eq(grant(UINT32_MAX).status, EACCES);
	/* The region is there, but this process has no MR on it. */
	ck_assert_int_eq(grant_by(&b, a.peer, made.key, b.qpn).status, EACCES);
	second = region_import(&b, "x", REMOTE_READ);
	ck_assert_uint_eq(second.key, b.key);
	ck_assert(!grant(second.key).writable);
	ck_assert_int_eq(grant(second.key).status, 0);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, made.mr), 0);
	ck_assert_int_eq(grant(made.key).status, EACCES);
	ck_assert_int_eq(grant(second.key).status, 0);
}
END_TEST

START_TEST(without_a_wire_there_is_none)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	uint32_t idle = (uint32_t)client_qp(&a, RC, a.qpn + 1);

	ck_assert_int_gt(idle, 0);
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, a.qpn + 1).status, EACCES);
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, a.qpn + 2).status, EACCES);
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, 0).status, EACCES);
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, UINT32_MAX).status, EACCES);
	/* Nor through a QP that is another's. */
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, b.qpn).status, EACCES);
	ck_assert_int_eq(client_qp_state(&b, b_qp, ERR), 0);
	ck_assert_int_eq(grant(made.key).status, EACCES);
	ck_assert_int_eq(grant_by(&a, 0, made.key, a.qpn).status, EACCES);
	ck_assert_int_eq(grant_by(&a, b.peer + 1, made.key, a.qpn).status, EACCES);
}
END_TEST

START_TEST(a_third_process_gets_nothing)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	struct client c;
	uint32_t c_qp;

	client_open(&c);
	ck_assert_int_eq(grant_by(&c, b.peer, made.key, a.qpn).status, EACCES);
	/* Connected to a, it has no way to b. */
	c_qp = (uint32_t)client_qp(&c, RC, c.qpn);
	connect_qps(&c, c_qp, c.qpn, &a, (uint32_t)client_qp(&a, RC, a.qpn + 1), a.qpn + 1);
	ck_assert_int_eq(grant_by(&c, b.peer, made.key, c.qpn).status, EACCES);
	client_close(&c);
	ck_assert_int_eq(grant(made.key).status, 0);
}
END_TEST

START_TEST(another_domain_gets_nothing)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	struct client stranger;
	uint32_t qp;

	client_open_stranger(&stranger);
	qp = (uint32_t)client_qp(&stranger, RC, stranger.qpn);
	connect_qps(&stranger, qp, stranger.qpn, &b, (uint32_t)client_qp(&b, RC, b.qpn + 1),
		b.qpn + 1);
	ck_assert_int_eq(grant_by(&stranger, b.peer, made.key, stranger.qpn).status, EACCES);
	client_close(&stranger);
}
END_TEST

static uint32_t object_on(struct client *client, unsigned opcode, uint32_t pd)
{
	Vsd__PdAllocRequest alloc = VSD__PD_ALLOC_REQUEST__INIT;
	Vsd__ParentDomainAllocRequest parent = VSD__PARENT_DOMAIN_ALLOC_REQUEST__INIT;
	int64_t handle;

	alloc.context = parent.context = client->context;
	parent.pd = pd;
	handle = client_object(client, opcode, pd ? &parent.base : &alloc.base);
	ck_assert_int_gt(handle, 0);
	return (uint32_t)handle;
}

START_TEST(the_peers_qp_stands_on_the_mrs_pd)
{
	uint32_t pd = b.pd, other = object_on(&b, VSD__OP__OP_PD_ALLOC, 0),
		 parent = object_on(&b, VSD__OP__OP_PARENT_DOMAIN_ALLOC, pd),
		 other_parent = object_on(&b, VSD__OP__OP_PARENT_DOMAIN_ALLOC, other);
	struct region_got made;

	b.pd = other;
	made = region_create(&b, 4096, ALL, 0, NULL);
	ck_assert_int_eq(grant(made.key).status, EACCES);
	b.pd = other_parent;
	made = region_create(&b, 4096, ALL, 0, NULL);
	ck_assert_int_eq(grant(made.key).status, EACCES);
	/* A parent domain is its PD, of the MR and of the QP. */
	b.pd = parent;
	made = region_create(&b, 4096, ALL, 0, NULL);
	ck_assert_int_eq(grant(made.key).status, 0);
	connect_qps(&a, (uint32_t)client_qp(&a, RC, a.qpn + 1), a.qpn + 1, &b,
		(uint32_t)client_qp(&b, RC, b.qpn + 1), b.qpn + 1);
	b.pd = pd;
	made = region_create(&b, 4096, ALL, 0, NULL);
	ck_assert_int_eq(grant_by(&a, b.peer, made.key, a.qpn + 1).status, 0);
}
END_TEST

START_TEST(a_process_grants_itself)
{
	struct region_got made = region_create(&a, 4096, ALL, 0, NULL);

	connect_qps(&a, (uint32_t)client_qp(&a, RC, a.qpn + 1), a.qpn + 1, &a,
		(uint32_t)client_qp(&a, RC, a.qpn + 2), a.qpn + 2);
	ck_assert_int_eq(grant_by(&a, a.peer, made.key, a.qpn + 1).status, 0);
	ck_assert_int_eq(grant_by(&a, a.peer, made.key, a.qpn).status, EACCES);
}
END_TEST

/* ---- on the event socket ---- */

static void send_on_events(struct client *client, uint32_t serial, uint32_t key)
{
	Vsd__RegionGrantRequest request = request_of(b.peer, key, a.qpn);
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = VSD__OP__OP_REGION_GRANT,
		.serial = serial,
	};
	uint8_t frame[128];
	int n = frame_pack(frame, sizeof(frame), &header, &request.base);

	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(sock_send(client->events, frame, (size_t)n, NULL, false), 0);
}

/* The next frame there: its header, and how many fds came. */
static bool recv_on_events(struct client *client, struct frame_header *header)
{
	static uint8_t frame[VSD_ANSWER_MAX];
	struct fdlist fds = FDLIST_NULL;
	size_t length = 0;

	fixture_turn();
	if (sock_recv(client->events, frame, sizeof(frame), false, &fds, &length) < 0)
		return false;
	ck_assert_int_eq(frame_parse(frame, length, header), 0);
	ck_assert_uint_eq(header->fds, fds.n);
	fdlist_deinit(&fds);
	return true;
}

START_TEST(the_progress_thread_asks_on_the_event_socket)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	struct frame_header header;
	int before;

	/* Segment and wire. */
	while (recv_on_events(&a, &header))
		ck_assert_uint_eq(header.flags, FRAME_EVENT);
	before = harness_fds_open();
	send_on_events(&a, 7, made.key);
	ck_assert(recv_on_events(&a, &header));
	ck_assert_uint_eq(header.opcode, VSD__OP__OP_REGION_GRANT);
	ck_assert_uint_eq(header.flags, FRAME_REPLY);
	ck_assert_uint_eq(header.serial, 7);
	ck_assert_int_eq(header.status, 0);
	ck_assert_uint_eq(header.fds, 1);
	send_on_events(&a, 8, made.key + 1);
	ck_assert(recv_on_events(&a, &header));
	ck_assert_uint_eq(header.serial, 8);
	ck_assert_int_eq(header.status, EACCES);
	ck_assert_uint_eq(header.fds, 0);
	ck_assert_int_eq(harness_fds_open(), before);
}
END_TEST

START_TEST(answers_left_unread_hold_few_fds)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);
	struct frame_header header;
	unsigned answers = 0;
	int before;

	while (recv_on_events(&a, &header))
		;
	before = harness_fds_open();
	for (uint32_t i = 0; i < 40; i++)
		send_on_events(&a, i + 1, made.key);
	fixture_turn();
	/* One answer is made and waits; the rest are in flight, and few. */
	ck_assert_int_le(harness_fds_open(), before + 1);
	while (answers < 40) {
		if (!recv_on_events(&a, &header)) {
			/* What could not be sent is tried again by a timer. */
			loop_turn(fixture_loop, true);
			continue;
		}
		ck_assert_uint_eq(header.serial, ++answers);
		ck_assert_int_eq(header.status, 0);
		ck_assert_uint_eq(header.fds, 1);
	}
	ck_assert_uint_eq(answers, 40);
	ck_assert_int_eq(harness_fds_open(), before);
}
END_TEST

START_TEST(an_answer_that_waits_goes_with_its_client)
{
	struct region_got made = region_create(&b, 4096, ALL, 0, NULL);

	for (uint32_t i = 0; i < 40; i++)
		send_on_events(&a, i + 1, made.key);
	fixture_turn();
	client_close(&a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region-grant");
	TCase *tcase = harness_tcase(suite, "region-grant");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_connected_peer_gets_the_region);
	tcase_add_loop_test(tcase, a_grant_writes_only_what_may_be_written_from_afar, 0,
		sizeof(rights) / sizeof(rights[0]));
	tcase_add_test(tcase, who_may_only_read_grants_no_more);
	tcase_add_test(tcase, what_is_sealed_is_granted_for_reading);
	tcase_add_test(tcase, a_grant_shares_the_region);
	tcase_add_test(tcase, a_key_must_be_the_peers_and_of_a_region);
	tcase_add_test(tcase, without_a_wire_there_is_none);
	tcase_add_test(tcase, a_third_process_gets_nothing);
	tcase_add_test(tcase, another_domain_gets_nothing);
	tcase_add_test(tcase, the_peers_qp_stands_on_the_mrs_pd);
	tcase_add_test(tcase, a_process_grants_itself);
	tcase_add_test(tcase, the_progress_thread_asks_on_the_event_socket);
	tcase_add_test(tcase, answers_left_unread_hold_few_fds);
	tcase_add_test(tcase, an_answer_that_waits_goes_with_its_client);
	return harness_run(suite);
}
