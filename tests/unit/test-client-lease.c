/* SPDX-License-Identifier: BSD-2-Clause */
/* client/control/lease.c: numbers come back as late as possible, and an empty lease asks for more. */
#include "client/control/control.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;
static struct lease *lease;

/* What the next answers are; the fake daemon is a thread, and a socket orders nothing for ThreadSanitizer. */
static struct {
	_Atomic int status;
	_Atomic uint32_t first, count;
} answer;
static _Atomic uint32_t asked; /* by the last request */

static bool handle(
	struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	Vsd__LeaseReply reply = VSD__LEASE_REPLY__INIT;
	Vsd__LeaseRequest *request =
		vsd__lease_request__unpack(NULL, header->length, body);

	asked = request->count;
	vsd__lease_request__free_unpacked(request, NULL);
	reply.first = answer.first;
	reply.count = answer.count;
	answer.first += answer.count;
	int status = answer.status;

	return fake_reply(fd, header, status, status ? NULL : &reply.base, NULL);
}

static void setup(void)
{
	harness_fds_setup();
	answer.status = 0;
	answer.first = 256;
	answer.count = 4;
	fake_start(&fake, handle);
	lease = lease_new(1, VSD__LEASE_KIND__LEASE_QPN);
	ck_assert_ptr_nonnull(lease);
}

static void teardown(void)
{
	lease_free(lease);
	control_close();
	fake_stop(&fake);
	harness_fds_teardown();
}

static uint32_t take(void)
{
	uint32_t number = 0;

	ck_assert_int_eq(lease_take(lease, &number), 0);
	return number;
}

START_TEST(numbers_are_given_in_order)
{
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(take(), 256 + i);
	ck_assert_uint_eq(fake.requests, 2); /* HELLO and one LEASE */
}
END_TEST

START_TEST(a_number_comes_back_after_all_others)
{
	uint32_t first = take();

	lease_put(lease, first);
	ck_assert_uint_eq(take(), 257);
	ck_assert_uint_eq(take(), 258);
	ck_assert_uint_eq(take(), 259);
	ck_assert_uint_eq(take(), first);
}
END_TEST

START_TEST(an_empty_lease_asks_for_as_many_again)
{
	for (int i = 0; i < 5; i++)
		take();
	ck_assert_uint_eq(asked, 4);
	for (int i = 0; i < 4; i++)
		take();
	ck_assert_uint_eq(asked, 8);
}
END_TEST

START_TEST(order_holds_across_growth)
{
	uint32_t a = take(), b = take();

	take();
	lease_put(lease, b);
	lease_put(lease, a);
	ck_assert_uint_eq(take(), 259);
	ck_assert_uint_eq(take(), b);
	ck_assert_uint_eq(take(), a);
	ck_assert_uint_eq(take(), 260);
	lease_put(lease, b);
	ck_assert_uint_eq(take(), 261);
}
END_TEST

START_TEST(a_refusal_is_the_daemons_errno)
{
	uint32_t number;

	answer.status = ENOSPC;
	ck_assert_int_eq(lease_take(lease, &number), -ENOSPC);
	answer.status = 0;
	take();
}
END_TEST

static const struct {
	uint32_t first, count;
} nonsense[] = {
	{ 0, 4 },
	{ 256, 0 },
	{ 256, UINT32_MAX },
	{ 0xffffff, 4 },
	{ UINT32_MAX, 2 },
};

START_TEST(a_range_that_is_none_is_refused)
{
	uint32_t number;

	answer.first = nonsense[_i].first;
	answer.count = nonsense[_i].count;
	ck_assert_int_eq(lease_take(lease, &number), -EPROTO);
}
END_TEST

START_TEST(no_daemon_no_number)
{
	uint32_t number;

	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);
	ck_assert_int_eq(lease_take(lease, &number), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client-lease");
	TCase *tcase = tcase_create("lease");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, numbers_are_given_in_order);
	tcase_add_test(tcase, a_number_comes_back_after_all_others);
	tcase_add_test(tcase, an_empty_lease_asks_for_as_many_again);
	tcase_add_test(tcase, order_holds_across_growth);
	tcase_add_test(tcase, a_refusal_is_the_daemons_errno);
	tcase_add_loop_test(tcase, a_range_that_is_none_is_refused, 0,
		sizeof(nonsense) / sizeof(nonsense[0]));
	tcase_add_test(tcase, no_daemon_no_number);
	suite_add_tcase(suite, tcase);
	return harness_run(suite);
}
