/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of objects: what stands on what, whose is whose, what is refused, and that nothing is left when a device
 * fails at any point.
 */
#include "daemon/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backend.h"
#include "daemon/domain.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

static struct client a;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
}

static void teardown(void)
{
	client_close(&a);
	fixture_teardown();
}

static int64_t mr(struct client *client, uint32_t pd, uint32_t key)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = client->context;
	request.pd = pd;
	request.key = key;
	request.addr = 4096;
	request.length = 4096;
	request.iova = 4096;
	request.access = 1;
	return client_object(client, VSD__OP__OP_MR_REG, &request.base);
}

static int64_t mw(struct client *client, uint32_t key)
{
	Vsd__MwAllocRequest request = VSD__MW_ALLOC_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.type = 1;
	request.key = key;
	return client_object(client, VSD__OP__OP_MW_ALLOC, &request.base);
}

static int64_t td(struct client *client)
{
	Vsd__TdAllocRequest request = VSD__TD_ALLOC_REQUEST__INIT;

	request.context = client->context;
	return client_object(client, VSD__OP__OP_TD_ALLOC, &request.base);
}

static int64_t pd(struct client *client)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = client->context;
	return client_object(client, VSD__OP__OP_PD_ALLOC, &request.base);
}

static int64_t parent_domain(struct client *client, uint32_t on_pd, uint32_t on_td)
{
	Vsd__ParentDomainAllocRequest request = VSD__PARENT_DOMAIN_ALLOC_REQUEST__INIT;

	request.context = client->context;
	request.pd = on_pd;
	request.has_td = on_td != 0;
	request.td = on_td;
	return client_object(client, VSD__OP__OP_PARENT_DOMAIN_ALLOC, &request.base);
}

static int64_t cq(struct client *client, uint32_t cqe)
{
	Vsd__CqCreateRequest request = VSD__CQ_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.cqe = cqe;
	return client_object(client, VSD__OP__OP_CQ_CREATE, &request.base);
}

static int64_t srq(struct client *client, uint32_t max_wr, uint32_t type)
{
	Vsd__SrqCreateRequest request = VSD__SRQ_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.max_wr = max_wr;
	request.max_sge = 1;
	request.type = type;
	return client_object(client, VSD__OP__OP_SRQ_CREATE, &request.base);
}

static int64_t ah(struct client *client, uint32_t port)
{
	Vsd__AhCreateRequest request = VSD__AH_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.dlid = 1;
	request.port = port;
	return client_object(client, VSD__OP__OP_AH_CREATE, &request.base);
}

START_TEST(pd_in_use_is_busy)
{
	int64_t handle = mr(&a, a.pd, a.key);

	ck_assert_int_gt(handle, 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, (uint32_t)handle), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EINVAL);
}
END_TEST

START_TEST(cq_in_use_is_busy)
{
	ck_assert_int_gt(client_qp(&a, 2, a.qpn), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_CQ, a.cq), EBUSY);
}
END_TEST

START_TEST(td_and_parent_domain_in_use_are_busy)
{
	int64_t on = td(&a);
	int64_t domain = parent_domain(&a, a.pd, (uint32_t)on);
	int64_t region = mr(&a, (uint32_t)domain, a.key);

	ck_assert_int_gt(region, 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_TD, (uint32_t)on), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PARENT_DOMAIN, (uint32_t)domain), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, (uint32_t)region), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PARENT_DOMAIN, (uint32_t)domain), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_TD, (uint32_t)on), 0);
}
END_TEST

START_TEST(parent_domain_is_no_pd_for_another)
{
	int64_t domain = parent_domain(&a, a.pd, 0);

	ck_assert_int_gt(domain, 0);
	ck_assert_int_eq(parent_domain(&a, (uint32_t)domain, 0), -EINVAL);
	ck_assert_int_eq(parent_domain(&a, a.pd, (uint32_t)domain), -EINVAL);
}
END_TEST

START_TEST(wrong_type_is_absent)
{
	ck_assert_int_eq(client_destroy(&a, (unsigned)_i, a.pd), _i == OBJECT_PD ? 0 : EINVAL);
}
END_TEST

START_TEST(handles_of_another_client_mean_nothing)
{
	struct client b;

	client_open(&b);
	ck_assert_int_gt(pd(&b), 0);
	/* Same numbers, other objects: each context has its own. */
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd + 100), EINVAL);
	ck_assert_int_eq(client_destroy(&b, OBJECT_PD, b.pd), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), 0);
	client_close(&b);
}
END_TEST

START_TEST(context_must_be_ones_own)
{
	uint32_t own = a.context;

	a.context = own + 1;
	ck_assert_int_eq(pd(&a), -EINVAL);
	a.context = 0;
	ck_assert_int_eq(pd(&a), -EINVAL);
	a.context = own;
}
END_TEST

START_TEST(numbers_must_be_leased_and_free)
{
	ck_assert_int_eq(client_qp(&a, 2, a.qpn - 1), -EINVAL);
	ck_assert_int_eq(client_qp(&a, 2, 0), -EINVAL);
	ck_assert_int_eq(client_qp(&a, 2, 1), -EINVAL);
	ck_assert_int_gt(client_qp(&a, 2, a.qpn), 0);
	ck_assert_int_eq(client_qp(&a, 2, a.qpn), -EEXIST);
	ck_assert_int_eq(mr(&a, a.pd, 0), -EINVAL);
	ck_assert_int_gt(mr(&a, a.pd, a.key | 7), 0);
	ck_assert_int_eq(mr(&a, a.pd, a.key | 9), -EEXIST);
	ck_assert_int_eq(mw(&a, a.key), -EEXIST);
	ck_assert_int_gt(mw(&a, a.key + 256), 0);
}
END_TEST

START_TEST(sizes_are_bounded)
{
	ck_assert_int_eq(cq(&a, 0), -EINVAL);
	ck_assert_int_eq(cq(&a, 4194304), -EINVAL);
	ck_assert_int_eq(cq(&a, UINT32_MAX), -EINVAL);
	ck_assert_int_gt(cq(&a, 4194303), 0);
	ck_assert_int_eq(srq(&a, 0, 0), -EINVAL);
	ck_assert_int_eq(srq(&a, 32769, 0), -EINVAL);
	ck_assert_int_eq(srq(&a, 16, 1), -EINVAL); /* of XRC, but without an XRCD */
	ck_assert_int_eq(srq(&a, 16, 3), -EOPNOTSUPP);
	ck_assert_int_gt(srq(&a, 16, 0), 0);
	ck_assert_int_eq(ah(&a, 2), -EINVAL);
	ck_assert_int_gt(ah(&a, 1), 0);
	ck_assert_int_eq(client_qp(&a, 99, a.qpn), -EOPNOTSUPP);
}
END_TEST

START_TEST(regions_with_impossible_bounds_are_refused)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = a.context;
	request.pd = a.pd;
	request.key = a.key;
	request.addr = UINT64_MAX - 10;
	request.length = 4096;
	ck_assert_int_eq(client_object(&a, VSD__OP__OP_MR_REG, &request.base), -EINVAL);
	request.addr = 0;
	request.length = UINT64_MAX - 1;
	ck_assert_int_eq(client_object(&a, VSD__OP__OP_MR_REG, &request.base), -EINVAL);
	request.length = 1;
	request.access = 2; /* remote write without local write */
	ck_assert_int_eq(client_object(&a, VSD__OP__OP_MR_REG, &request.base), -EINVAL);
	request.access = 1u << 15;
	ck_assert_int_eq(client_object(&a, VSD__OP__OP_MR_REG, &request.base), -EINVAL);
	request.access = 1;
	ck_assert_int_gt(client_object(&a, VSD__OP__OP_MR_REG, &request.base), 0);
}
END_TEST

START_TEST(failed_rereg_changes_nothing)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;
	int64_t region = mr(&a, a.pd, a.key), other = pd(&a);

	request.context = a.context;
	request.handle = (uint32_t)region;
	request.has_pd = 1;
	request.pd = (uint32_t)other;
	request.has_access = 1;
	request.access = 2;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), EINVAL);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, (uint32_t)other), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), EBUSY);
}
END_TEST

START_TEST(rereg_moves_the_region)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;
	int64_t region = mr(&a, a.pd, a.key), other = pd(&a);

	request.context = a.context;
	request.handle = (uint32_t)region;
	request.has_pd = 1;
	request.pd = (uint32_t)other;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_MR_REREG, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, (uint32_t)other), EBUSY);
	ck_assert_int_eq(client_destroy(&a, OBJECT_PD, a.pd), 0);
}
END_TEST

/* One object of each type, as many as the calls of the backend that this takes. */
static int make_all(void)
{
	int64_t made[] = {
		pd(&a),
		td(&a),
		parent_domain(&a, a.pd, 0),
		mr(&a, a.pd, a.key),
		mw(&a, a.key + 256),
		cq(&a, 8),
		srq(&a, 8, 0),
		ah(&a, 1),
		client_qp(&a, 2, a.qpn),
	};
	int failed = 0;

	for (unsigned i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		if (made[i] < 0) {
			ck_assert_int_eq(made[i], -ENXIO);
			failed++;
		}
	}
	return failed;
}

START_TEST(failing_device_leaves_nothing)
{
	unsigned before = backend_fake_objects();

	backend_fake_fail((unsigned)_i, ENXIO);
	ck_assert_int_eq(make_all(), _i > 0);
	ck_assert_uint_eq(backend_fake_objects(), before + 9 - (_i > 0));
	ck_assert_uint_eq(fixture_server->n_objects, backend_fake_objects());
	/* The numbers of what failed are free again. */
	if (_i == 4)
		ck_assert_int_gt(mr(&a, a.pd, a.key), 0);
	if (_i == 9)
		ck_assert_int_gt(client_qp(&a, 2, a.qpn), 0);
}
END_TEST

START_TEST(quota_is_refused_with_nothing_taken)
{
	for (unsigned slot = SLOT_PDS; slot <= SLOT_AHS; slot++)
		fixture_server->config->limit[slot] = 0;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
	ck_assert_int_eq(pd(&a), -ENOMEM);
	ck_assert_int_eq(mr(&a, a.pd, a.key), -ENOMEM);
	ck_assert_int_eq(client_qp(&a, 2, a.qpn), -ENOMEM);
	ck_assert_uint_eq(fixture_server->n_objects, 2);
}
END_TEST

static int attach(struct client *client, const void *nonce, size_t n)
{
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	ProtobufCMessage *reply;
	int status;

	request.nonce.data = (uint8_t *)(uintptr_t)nonce;
	request.nonce.len = n;
	status = client_call(client, VSD__OP__OP_CONTEXT_ATTACH, &request.base,
		&vsd__context_reply__descriptor, &reply);
	if (status == 0) {
		client->context = ((Vsd__ContextReply *)reply)->context;
		protobuf_c_message_free_unpacked(reply, NULL);
	}
	return status;
}

static void open_again(struct client *client, uint8_t nonce[32])
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	ProtobufCMessage *reply;
	char name[] = "soft0";

	request.device = name;
	ck_assert_int_eq(client_call(client, VSD__OP__OP_CONTEXT_OPEN, &request.base,
				 &vsd__context_reply__descriptor, &reply),
		0);
	client->context = ((Vsd__ContextReply *)reply)->context;
	protobuf_c_message_free_unpacked(reply, NULL);
	ck_assert_int_eq(pread(client->fds.fds[0], nonce, 32, 0), 32);
}

START_TEST(capability_opens_the_context_for_another)
{
	uint8_t nonce[32];
	struct client b;
	int64_t shared, own;

	open_again(&a, nonce);
	shared = pd(&a);
	a.pd = (uint32_t)shared;
	own = ah(&a, 1);
	client_join(&b);
	ck_assert_int_eq(attach(&b, nonce, 32), 0);
	b.pd = a.pd;
	ck_assert_int_gt(ah(&b, 1), 0);
	/* What is its process's is not for others; what is the context's is. */
	ck_assert_int_eq(client_destroy(&b, OBJECT_AH, (uint32_t)own), EINVAL);
	ck_assert_int_eq(client_destroy(&b, OBJECT_PD, a.pd), EBUSY);
	client_close(&a);
	/* The PD outlives its maker while another one is attached. */
	ck_assert_int_gt(ah(&b, 1), 0);
	client_close(&b);
	ck_assert_uint_eq(fixture_server->n_contexts, 0);
	client_open(&a);
}
END_TEST

/* What is left of it is taken down later, when nobody waits. */
START_TEST(closed_context_is_nobodys)
{
	Vsd__ContextCloseRequest close = VSD__CONTEXT_CLOSE_REQUEST__INIT;
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	uint8_t nonce[32];

	open_again(&a, nonce);
	close.context = a.context;
	request.nonce.data = nonce;
	request.nonce.len = sizeof(nonce);
	client_request(&a, VSD__OP__OP_CONTEXT_CLOSE, &close.base);
	client_request(&a, VSD__OP__OP_CONTEXT_ATTACH, &request.base);
	a.serial--;
	ck_assert_int_eq(client_answer(&a, NULL, NULL), 0);
	a.serial++;
	ck_assert_int_eq(client_answer(&a, NULL, NULL), EACCES);
	client_close(&a);
	client_open(&a);
}
END_TEST

START_TEST(wrong_nonce_opens_nothing)
{
	uint8_t nonce[32];
	struct client b;

	open_again(&a, nonce);
	client_join(&b);
	ck_assert_int_eq(attach(&b, nonce, 31), EINVAL);
	nonce[_i] ^= 1;
	ck_assert_int_eq(attach(&b, nonce, 32), EACCES);
	client_close(&b);
}
END_TEST

START_TEST(capability_cannot_be_written)
{
	uint8_t nonce[32];

	open_again(&a, nonce);
	ck_assert_int_lt(pwrite(a.fds.fds[0], nonce, 1, 0), 0);
}
END_TEST

START_TEST(closed_context_takes_its_objects)
{
	Vsd__ContextCloseRequest request = VSD__CONTEXT_CLOSE_REQUEST__INIT;

	ck_assert_int_eq(make_all(), 0);
	request.context = a.context;
	ck_assert_int_eq(client_call(&a, VSD__OP__OP_CONTEXT_CLOSE, &request.base, NULL, NULL), 0);
	ck_assert_int_eq(
		client_call(&a, VSD__OP__OP_CONTEXT_CLOSE, &request.base, NULL, NULL), EINVAL);
	fixture_turn();
	ck_assert_uint_eq(fixture_server->n_objects, 0);
	ck_assert_uint_eq(fixture_server->n_contexts, 0);
}
END_TEST

START_TEST(unknown_device_is_refused)
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	char name[] = "soft\n\x01";

	request.device = name;
	ck_assert_int_eq(
		client_call(&a, VSD__OP__OP_CONTEXT_OPEN, &request.base, NULL, NULL), ENODEV);
}
END_TEST

START_TEST(qp_states_follow_the_table)
{
	uint32_t qp = (uint32_t)client_qp(&a, 4, a.qpn);

	ck_assert_int_eq(client_qp_state(&a, qp, 2), EINVAL);
	ck_assert_int_eq(client_qp_state(&a, qp, 7), EINVAL);
	ck_assert_int_eq(client_qp_state(&a, qp, UINT32_MAX), EINVAL);
	ck_assert_int_eq(client_qp_state(&a, qp, 1), 0);
	ck_assert_int_eq(client_qp_state(&a, qp, 2), 0);
	ck_assert_int_eq(client_qp_state(&a, qp, 3), 0);
	ck_assert_int_eq(client_qp_state(&a, qp, 6), 0);
	ck_assert_int_eq(client_qp_state(&a, qp, 3), EINVAL);
	ck_assert_int_eq(client_qp_state(&a, qp, 0), 0);
}
END_TEST

START_TEST(connected_types_need_a_destination)
{
	uint32_t qp = (uint32_t)client_qp(&a, 2, a.qpn);

	ck_assert_int_eq(client_qp_state(&a, qp, 1), 0);
	ck_assert_int_eq(client_qp_state(&a, qp, 2), EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("object");
	TCase *tcase = harness_tcase(suite, "object");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, pd_in_use_is_busy);
	tcase_add_test(tcase, cq_in_use_is_busy);
	tcase_add_test(tcase, td_and_parent_domain_in_use_are_busy);
	tcase_add_test(tcase, parent_domain_is_no_pd_for_another);
	tcase_add_loop_test(tcase, wrong_type_is_absent, OBJECT_QP, OBJECT_CLIENT + 1);
	tcase_add_test(tcase, handles_of_another_client_mean_nothing);
	tcase_add_test(tcase, context_must_be_ones_own);
	tcase_add_test(tcase, numbers_must_be_leased_and_free);
	tcase_add_test(tcase, sizes_are_bounded);
	tcase_add_test(tcase, regions_with_impossible_bounds_are_refused);
	tcase_add_test(tcase, failed_rereg_changes_nothing);
	tcase_add_test(tcase, rereg_moves_the_region);
	tcase_add_loop_test(tcase, failing_device_leaves_nothing, 0, 10);
	tcase_add_test(tcase, quota_is_refused_with_nothing_taken);
	tcase_add_test(tcase, capability_opens_the_context_for_another);
	tcase_add_test(tcase, closed_context_is_nobodys);
	tcase_add_loop_test(tcase, wrong_nonce_opens_nothing, 0, 32);
	tcase_add_test(tcase, capability_cannot_be_written);
	tcase_add_test(tcase, closed_context_takes_its_objects);
	tcase_add_test(tcase, unknown_device_is_refused);
	tcase_add_test(tcase, qp_states_follow_the_table);
	tcase_add_test(tcase, connected_types_need_a_destination);
	return harness_run(suite);
}
