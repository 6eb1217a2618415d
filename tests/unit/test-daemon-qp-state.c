/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the daemon accepts of QP states, over the full product, in words instead of a table.
 */
#include "daemon/qp_state.h"

#include <string.h>

#include "tests/lib/harness.h"

static bool follows(enum qp_state from, enum qp_state to)
{
	/* Anything may be reset or fail, and may be said again, ... */
	if (to == QP_RESET || to == QP_ERR || to == from)
		return true;
	/* ... and otherwise there is one way up, */
	if (from < QP_RTS && to == from + 1)
		return true;
	/* ... a way aside that leads back, and a fall of the send side that does. */
	if (from == QP_RTS)
		return to == QP_SQD || to == QP_SQE;
	return (from == QP_SQD || from == QP_SQE) && to == QP_RTS;
}

START_TEST(transitions)
{
	enum qp_state from = (enum qp_state)(_i / QP_STATES), to = (enum qp_state)(_i % QP_STATES);

	ck_assert_msg(qp_state_follows(from, to) == follows(from, to), "%s to %s",
		qp_state_name(from), qp_state_name(to));
}
END_TEST

START_TEST(numbers_that_are_no_state)
{
	ck_assert(!qp_state_follows(QP_STATES, QP_RESET));
	ck_assert(!qp_state_follows(QP_RESET, QP_STATES));
	ck_assert(!qp_state_follows(QP_RESET, (enum qp_state)UINT32_MAX));
	ck_assert(!qp_state_connected(QP_STATES));
	ck_assert_str_eq(qp_state_name(QP_STATES), "?");
}
END_TEST

START_TEST(connected_from_rtr_to_the_end)
{
	for (unsigned i = 0; i < QP_STATES; i++)
		ck_assert_int_eq(qp_state_connected((enum qp_state)i), i >= QP_RTR && i != QP_ERR);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon-qp-state");
	TCase *tcase = harness_tcase(suite, "daemon-qp-state");

	tcase_add_loop_test(tcase, transitions, 0, QP_STATES * QP_STATES);
	tcase_add_test(tcase, numbers_that_are_no_state);
	tcase_add_test(tcase, connected_from_rtr_to_the_end);
	return harness_run(suite);
}
