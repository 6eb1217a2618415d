/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order of destruction over the whole product: each type of object with each type that may stand on it is busy, is free
 * again when that has gone, and never busy by what stands elsewhere. What is in the way is named in the log, in
 * listings and in the answer to IN_USE.
 */
#include "daemon/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/users.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

static struct client a;
static char last_line[1024];

static void keep_line(enum log_level level, const char *id, const char *text)
{
	(void)level;
	(void)id;
	snprintf(last_line, sizeof(last_line), "%s", text);
}

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	log_set_sink(keep_line);
}

static void teardown(void)
{
	client_close(&a);
	log_set_sink(NULL);
	fixture_teardown();
}

/* What a new object shall stand on; 0: nothing of that kind. */
struct on {
	uint32_t pd, td, parent, send_cq, recv_cq, srq, dm, xrcd;
};

static int64_t make_dm(struct client *client)
{
	Vsd__DmAllocRequest request = VSD__DM_ALLOC_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;

	request.context = client->context;
	request.length = 16384;

	int r = client_call(client, VSD__OP__OP_DM_ALLOC, &request.base, &vsd__dm_reply__descriptor, &reply);
	int64_t handle = r ? -r : (int64_t)((const Vsd__DmReply *)reply)->handle;

	protobuf_c_message_free_unpacked(reply, NULL);
	return handle;
}

/* An XRC receive QP stands on its XRCD alone, an XRC SRQ on its CQ too. */
static void make_xrc(Vsd__QpCreateRequest *qp, Vsd__SrqCreateRequest *srq, const struct on *on, uint32_t number)
{
	if (!on->xrcd)
		return;
	*qp = (Vsd__QpCreateRequest){
		.base = qp->base, .context = qp->context, .type = 10, .has_xrcd = 1, .xrcd = on->xrcd,
	};
	srq->type = 1;
	srq->has_xrcd = srq->has_cq = srq->has_number = 1;
	srq->xrcd = on->xrcd;
	srq->cq = on->send_cq;
	srq->number = number;
}

/* Each gets a number of its own out of the client's leases. */
static uint32_t numbers;

static uint32_t make(struct client *client, enum object_type type, const struct on *on)
{
	Vsd__PdAllocRequest pd = VSD__PD_ALLOC_REQUEST__INIT;
	Vsd__TdAllocRequest td = VSD__TD_ALLOC_REQUEST__INIT;
	Vsd__ParentDomainAllocRequest parent = VSD__PARENT_DOMAIN_ALLOC_REQUEST__INIT;
	Vsd__MrRegRequest mr = VSD__MR_REG_REQUEST__INIT;
	Vsd__MwAllocRequest mw = VSD__MW_ALLOC_REQUEST__INIT;
	Vsd__CqCreateRequest cq = VSD__CQ_CREATE_REQUEST__INIT;
	Vsd__SrqCreateRequest srq = VSD__SRQ_CREATE_REQUEST__INIT;
	Vsd__AhCreateRequest ah = VSD__AH_CREATE_REQUEST__INIT;
	Vsd__QpCreateRequest qp = VSD__QP_CREATE_REQUEST__INIT;
	Vsd__XrcdOpenRequest xrcd = VSD__XRCD_OPEN_REQUEST__INIT;
	uint32_t number = numbers++;

	pd.context = td.context = parent.context = mr.context = mw.context = client->context;
	cq.context = srq.context = ah.context = qp.context = client->context;
	parent.pd = mr.pd = mw.pd = srq.pd = ah.pd = qp.pd = on->pd;
	parent.has_td = on->td != 0;
	parent.td = on->td;
	mr.key = mw.key = client->key + (number << 8);
	mr.addr = mr.length = mr.iova = 4096;
	mr.access = mw.type = 1;
	mr.has_dm = on->dm != 0;
	mr.dm = on->dm;
	cq.cqe = srq.max_wr = srq.max_sge = 4;
	cq.has_parent_domain = on->parent != 0;
	cq.parent_domain = on->parent;
	ah.dlid = ah.port = 1;
	qp.type = 2;
	qp.qpn = client->qpn + number;
	qp.has_send_cq = qp.has_recv_cq = 1;
	qp.send_cq = on->send_cq;
	qp.recv_cq = on->recv_cq;
	qp.has_srq = on->srq != 0;
	qp.srq = on->srq;
	xrcd.context = client->context;
	xrcd.create = 1;
	make_xrc(&qp, &srq, on, client->qpn + number);

	const struct {
		unsigned op;
		const ProtobufCMessage *request;
	} requests[OBJECT_TYPES] = {
		[OBJECT_PD] = { VSD__OP__OP_PD_ALLOC, &pd.base },
		[OBJECT_TD] = { VSD__OP__OP_TD_ALLOC, &td.base },
		[OBJECT_PARENT_DOMAIN] = { VSD__OP__OP_PARENT_DOMAIN_ALLOC, &parent.base },
		[OBJECT_MR] = { VSD__OP__OP_MR_REG, &mr.base },
		[OBJECT_MW] = { VSD__OP__OP_MW_ALLOC, &mw.base },
		[OBJECT_CQ] = { VSD__OP__OP_CQ_CREATE, &cq.base },
		[OBJECT_SRQ] = { VSD__OP__OP_SRQ_CREATE, &srq.base },
		[OBJECT_AH] = { VSD__OP__OP_AH_CREATE, &ah.base },
		[OBJECT_QP] = { VSD__OP__OP_QP_CREATE, &qp.base },
		[OBJECT_XRCD] = { VSD__OP__OP_XRCD_OPEN, &xrcd.base },
	};
	int64_t handle = type == OBJECT_DM ? make_dm(client) :
					     client_object(client, requests[type].op, requests[type].request);

	ck_assert_msg(handle > 0, "a %s: %lld", object_type_name(type), (long long)handle);
	return (uint32_t)handle;
}

/* How one type stands on another. */
static const struct edge {
	enum object_type base, user;
	size_t field; /* of struct on */
} edges[] = {
	{ OBJECT_TD, OBJECT_PARENT_DOMAIN, offsetof(struct on, td) },
	{ OBJECT_PD, OBJECT_PARENT_DOMAIN, offsetof(struct on, pd) },
	{ OBJECT_PD, OBJECT_MR, offsetof(struct on, pd) },
	{ OBJECT_DM, OBJECT_MR, offsetof(struct on, dm) },
	{ OBJECT_PD, OBJECT_MW, offsetof(struct on, pd) },
	{ OBJECT_PD, OBJECT_SRQ, offsetof(struct on, pd) },
	{ OBJECT_PD, OBJECT_AH, offsetof(struct on, pd) },
	{ OBJECT_PD, OBJECT_QP, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_MR, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_MW, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_SRQ, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_AH, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_QP, offsetof(struct on, pd) },
	{ OBJECT_PARENT_DOMAIN, OBJECT_CQ, offsetof(struct on, parent) },
	{ OBJECT_CQ, OBJECT_QP, offsetof(struct on, send_cq) },
	{ OBJECT_CQ, OBJECT_QP, offsetof(struct on, recv_cq) },
	{ OBJECT_SRQ, OBJECT_QP, offsetof(struct on, srq) },
	{ OBJECT_XRCD, OBJECT_SRQ, offsetof(struct on, xrcd) },
};

#define N_EDGES ((int)(sizeof(edges) / sizeof(edges[0])))

static void in_use_by(struct client *client, enum object_type type, uint32_t handle, char *by, size_t size)
{
	Vsd__InUseRequest request = VSD__IN_USE_REQUEST__INIT;
	ProtobufCMessage *reply;

	request.context = client->context;
	request.type = (Vsd__ObjectType)type;
	request.handle = handle;
	ck_assert_int_eq(
		client_call(client, VSD__OP__OP_IN_USE, &request.base, &vsd__in_use_reply__descriptor, &reply),
		0);
	snprintf(by, size, "%s", ((Vsd__InUseReply *)reply)->by);
	protobuf_c_message_free_unpacked(reply, NULL);
}

/* What a listing of the type says of the object. */
static void listed_by(struct client *client, enum object_type type, uint32_t handle, char *by, size_t size)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	ProtobufCMessage *reply;
	bool found = false;

	request.has_type = 1;
	request.type = (Vsd__ObjectType)type;
	ck_assert_int_eq(
		client_call(client, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor, &reply), 0);
	for (size_t i = 0; i < ((Vsd__ListReply *)reply)->n_items; i++) {
		const Vsd__Item *item = ((Vsd__ListReply *)reply)->items[i];

		if (item->handle != handle)
			continue;
		snprintf(by, size, "%s", item->in_use_by ? item->in_use_by : "");
		found = true;
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	ck_assert(found);
}

static void must_name(struct client *client, enum object_type type, uint32_t handle, const char *names)
{
	char by[USERS_TEXT], line[USERS_TEXT + 128];

	in_use_by(client, type, handle, by, sizeof(by));
	ck_assert_str_eq(by, names);
	listed_by(client, type, handle, by, sizeof(by));
	ck_assert_str_eq(by, names);
	if (!*names)
		return;
	snprintf(line, sizeof(line), ": destroy: Device or resource busy: %s %u: in use by %s",
		object_type_name(type), handle, names);
	ck_assert_msg(strstr(last_line, line), "'%s' not in '%s'", line, last_line);
	last_line[0] = '\0';
}

START_TEST(what_stands_on_it_is_in_the_way)
{
	const struct edge *edge = &edges[_i];
	struct on on = { .pd = a.pd, .send_cq = a.cq, .recv_cq = a.cq };
	char names[USERS_TEXT];
	uint32_t base, user;

	base = make(&a, edge->base, &on);
	*(uint32_t *)(void *)((char *)&on + edge->field) = base;
	must_name(&a, edge->base, base, "");
	user = make(&a, edge->user, &on);
	snprintf(names, sizeof(names), "%s %u", object_type_name(edge->user), user);
	if (edge->user == OBJECT_QP)
		sprintf(names + strlen(names), " (QPN 0x%x)", a.qpn + numbers - 1);
	if (edge->user == OBJECT_MR || edge->user == OBJECT_MW)
		sprintf(names + strlen(names), " (key 0x%x)", a.key + ((numbers - 1) << 8));
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(client_destroy(&a, edge->base, base), EBUSY);
		must_name(&a, edge->base, base, names);
	}
	ck_assert_int_eq(client_destroy(&a, edge->user, user), 0);
	must_name(&a, edge->base, base, "");
	ck_assert_int_eq(client_destroy(&a, edge->base, base), 0);
	ck_assert_int_eq(client_destroy(&a, edge->base, base), EINVAL);
}
END_TEST

/* The rest of the product: two objects that know nothing of each other go in any order. */
START_TEST(what_stands_elsewhere_is_not)
{
	const struct on on = { .pd = a.pd, .send_cq = a.cq, .recv_cq = a.cq };

	if (!object_class((enum object_type)_i))
		return; /* only in listings */
	for (unsigned second = OBJECT_QP; second < OBJECT_TYPES; second++) {
		if (!object_class((enum object_type)second))
			continue;

		uint32_t one = make(&a, (enum object_type)_i, &on);
		uint32_t other = make(&a, (enum object_type)second, &on);

		must_name(&a, (enum object_type)_i, one, "");
		ck_assert_int_eq(client_destroy(&a, (unsigned)_i, one), 0);
		ck_assert_int_eq(client_destroy(&a, second, other), 0);
	}
}
END_TEST

static void two_users(const struct edge *first, const struct edge *second)
{
	struct on plain = { .pd = a.pd, .send_cq = a.cq, .recv_cq = a.cq }, on = plain;
	uint32_t base = make(&a, first->base, &plain), one, other;

	*(uint32_t *)(void *)((char *)&on + first->field) = base;
	one = make(&a, first->user, &on);
	on = plain;
	*(uint32_t *)(void *)((char *)&on + second->field) = base;
	other = make(&a, second->user, &on);
	ck_assert_int_eq(client_destroy(&a, first->base, base), EBUSY);
	ck_assert_int_eq(client_destroy(&a, first->user, one), 0);
	ck_assert_int_eq(client_destroy(&a, first->base, base), EBUSY);
	ck_assert_int_eq(client_destroy(&a, second->user, other), 0);
	ck_assert_int_eq(client_destroy(&a, first->base, base), 0);
}

/* With each other user of the same object, in both orders of going: it is busy until the second has gone. */
START_TEST(busy_until_the_last_has_gone)
{
	for (int i = 0; i < N_EDGES; i++)
		if (edges[i].base == edges[_i].base)
			two_users(&edges[_i], &edges[i]);
}
END_TEST

START_TEST(many_are_counted)
{
	const struct on on = { .pd = a.pd };
	char names[USERS_TEXT];
	uint32_t mr[7];

	for (unsigned i = 0; i < 7; i++)
		mr[i] = make(&a, OBJECT_AH, &on);
	snprintf(names, sizeof(names), "ah %u, ah %u, ah %u, ah %u and 3 more", mr[0], mr[1], mr[2], mr[3]);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	must_name(&a, OBJECT_PD, a.pd, names);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(client_destroy(&a, OBJECT_AH, mr[i]), 0);
	snprintf(names, sizeof(names), "ah %u, ah %u, ah %u, ah %u", mr[3], mr[4], mr[5], mr[6]);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	must_name(&a, OBJECT_PD, a.pd, names);
}
END_TEST

/* A QP both sends and receives there, and still is one. */
START_TEST(a_qp_counts_once)
{
	struct on on = { .pd = a.pd, .send_cq = a.cq, .recv_cq = a.cq };
	uint32_t qp = make(&a, OBJECT_QP, &on), other;
	char names[USERS_TEXT];

	snprintf(names, sizeof(names), "qp %u (QPN 0x%x)", qp, a.qpn + numbers - 1);
	ck_assert_int_eq(client_destroy(&a, OBJECT_CQ, a.cq), EBUSY);
	must_name(&a, OBJECT_CQ, a.cq, names);
	other = make(&a, OBJECT_QP, &on);
	sprintf(names + strlen(names), ", qp %u (QPN 0x%x)", other, a.qpn + numbers - 1);
	ck_assert_int_eq(client_destroy(&a, OBJECT_CQ, a.cq), EBUSY);
	must_name(&a, OBJECT_CQ, a.cq, names);
	ck_assert_int_eq(client_destroy(&a, OBJECT_QP, qp), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_CQ, a.cq), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_QP, other), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_CQ, a.cq), 0);
}
END_TEST

/* A region that was moved to another PD is in the way of that one, and no more of the first. */
START_TEST(rereg_moves_what_is_in_the_way)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;
	struct on on = { .pd = a.pd };
	uint32_t parent = make(&a, OBJECT_PARENT_DOMAIN, &on), mr;
	char names[USERS_TEXT];

	on.pd = parent;
	mr = make(&a, OBJECT_MR, &on);
	snprintf(names, sizeof(names), "mr %u (key 0x%x)", mr, a.key + ((numbers - 1) << 8));
	request.context = a.context;
	request.handle = mr;
	request.has_pd = 1;
	request.pd = a.pd;
	ck_assert_int_eq(client_destroy(&a, OBJECT_PARENT_DOMAIN, parent), EBUSY);
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PARENT_DOMAIN, parent), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	must_name(&a, OBJECT_PD, a.pd, names);
}
END_TEST

START_TEST(what_is_left_in_a_context_is_named)
{
	const struct on on = { .pd = a.pd };
	char by[USERS_TEXT], names[USERS_TEXT];
	uint32_t ah;

	in_use_by(&a, OBJECT_CONTEXT, a.context, by, sizeof(by));
	snprintf(names, sizeof(names), "cq %u, pd %u", a.cq, a.pd);
	ck_assert_str_eq(by, names);
	ah = make(&a, OBJECT_AH, &on);
	make(&a, OBJECT_TD, &on);
	make(&a, OBJECT_PARENT_DOMAIN, &on);
	in_use_by(&a, OBJECT_CONTEXT, a.context, by, sizeof(by));
	snprintf(names, sizeof(names), "ah %u, cq %u, parent_domain %u, td %u", ah, a.cq, ah + 2, ah + 1);
	ck_assert_str_eq(by, names);
}
END_TEST

START_TEST(asking_after_nothing_is_refused)
{
	Vsd__InUseRequest request = VSD__IN_USE_REQUEST__INIT;

	request.context = a.context;
	for (unsigned type = 0; type < 20; type++) {
		request.type = (Vsd__ObjectType)type;
		request.handle = type == OBJECT_CONTEXT ? a.context + 1 : a.pd;
		if (type != OBJECT_PD)
			ck_assert_int_eq(client_call(&a, VSD__OP__OP_IN_USE, &request.base, NULL, NULL), EINVAL);
		request.handle = 1000;
		ck_assert_int_eq(client_call(&a, VSD__OP__OP_IN_USE, &request.base, NULL, NULL), EINVAL);
	}
	request.type = (Vsd__ObjectType)OBJECT_PD;
	request.handle = a.pd;
	request.context++;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_IN_USE, &request.base, NULL, NULL), EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("in-use");
	TCase *tcase = harness_tcase(suite, "in-use");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, what_stands_on_it_is_in_the_way, 0, N_EDGES);
	tcase_add_loop_test(tcase, what_stands_elsewhere_is_not, OBJECT_QP, OBJECT_TYPES);
	tcase_add_loop_test(tcase, busy_until_the_last_has_gone, 0, N_EDGES);
	tcase_add_test(tcase, many_are_counted);
	tcase_add_test(tcase, a_qp_counts_once);
	tcase_add_test(tcase, rereg_moves_what_is_in_the_way);
	tcase_add_test(tcase, what_is_left_in_a_context_is_named);
	tcase_add_test(tcase, asking_after_nothing_is_refused);
	return harness_run(suite);
}
