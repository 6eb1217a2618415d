/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/abi/qp_state.c over the full product of types, states and states. What is legal is written down here a
 * second time, in the words of the specification rather than as its table.
 */
#include "client/abi/qp_state.h"

#include <errno.h>
#include <stdbool.h>

#include "tests/lib/harness.h"

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
	IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR };

#define TYPES  3
#define STATES 7
#define ALL    (TYPES * STATES * STATES)

struct cell {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
};

static struct cell cell_of(int i)
{
	return (struct cell){ types[i / (STATES * STATES)], states[i / STATES % STATES],
		states[i % STATES] };
}

static bool legal(struct cell c)
{
	if (c.to == IBV_QPS_RESET || c.to == IBV_QPS_ERR)
		return true;
	switch (c.from) {
	case IBV_QPS_RESET:
		return c.to == IBV_QPS_INIT;
	case IBV_QPS_INIT:
		return c.to == IBV_QPS_INIT || c.to == IBV_QPS_RTR;
	case IBV_QPS_RTR:
		return c.to == IBV_QPS_RTS;
	case IBV_QPS_RTS:
		return c.to == IBV_QPS_RTS || c.to == IBV_QPS_SQD;
	case IBV_QPS_SQD:
		return c.to == IBV_QPS_RTS || c.to == IBV_QPS_SQD;
	case IBV_QPS_SQE:
		return c.to == IBV_QPS_RTS && c.type != IBV_QPT_RC;
	default:
		return false;
	}
}

/* The attributes without which a legal transition is refused. */
static int required(struct cell c)
{
	bool rc = c.type == IBV_QPT_RC, ud = c.type == IBV_QPT_UD;
	int mask = 0;

	if (c.from == IBV_QPS_RESET && c.to == IBV_QPS_INIT)
		mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (c.from == IBV_QPS_INIT && c.to == IBV_QPS_RTR && !ud)
		mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (c.from == IBV_QPS_INIT && c.to == IBV_QPS_RTR && rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (c.from == IBV_QPS_RTR && c.to == IBV_QPS_RTS)
		mask = IBV_QP_SQ_PSN;
	if (c.from == IBV_QPS_RTR && c.to == IBV_QPS_RTS && rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return mask;
}

START_TEST(exactly_the_legal_transitions_pass)
{
	struct cell c = cell_of(_i);
	int want = legal(c) ? 0 : -EINVAL;

	ck_assert_msg(qp_state_check(c.type, c.from, c.to, IBV_QP_STATE | required(c)) == want,
		"type %d: %d -> %d", c.type, c.from, c.to);
}
END_TEST

START_TEST(each_required_attribute_is_required)
{
	struct cell c = cell_of(_i);
	int mask = required(c);

	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (mask & bit)
			ck_assert_msg(qp_state_check(c.type, c.from, c.to,
					      (IBV_QP_STATE | mask) & ~bit) == -EINVAL,
				"type %d: %d -> %d without 0x%x", c.type, c.from, c.to, bit);
}
END_TEST

/* Attributes that mean nothing for a type are refused in every transition. */
START_TEST(attributes_of_other_types_are_refused)
{
	struct cell c = cell_of(_i);
	int foreign = 0;

	if (c.type != IBV_QPT_UD)
		foreign |= IBV_QP_QKEY;
	if (c.type == IBV_QPT_UD)
		foreign |= IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_ALT_PATH;
	if (c.type != IBV_QPT_RC)
		foreign |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			   IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC |
			   IBV_QP_MAX_DEST_RD_ATOMIC;
	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (foreign & bit)
			ck_assert_msg(qp_state_check(c.type, c.from, c.to,
					      IBV_QP_STATE | required(c) | bit) == -EINVAL,
				"type %d: %d -> %d with 0x%x", c.type, c.from, c.to, bit);
}
END_TEST

/* On the way down nothing but the state may be given. */
START_TEST(reset_and_error_take_no_attributes)
{
	struct cell c = cell_of(_i);

	if (c.to != IBV_QPS_RESET && c.to != IBV_QPS_ERR)
		return;
	for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		ck_assert_int_eq(
			qp_state_check(c.type, c.from, c.to, IBV_QP_STATE | bit), -EINVAL);
}
END_TEST

/* A queue cannot be resized, and bits that nobody knows are nobody's attribute. */
START_TEST(what_we_do_not_have_is_refused_everywhere)
{
	struct cell c = cell_of(_i);
	int mask = IBV_QP_STATE | required(c);

	ck_assert_int_eq(qp_state_check(c.type, c.from, c.to, mask | IBV_QP_CAP), -EINVAL);
	ck_assert_int_eq(qp_state_check(c.type, c.from, c.to, mask | IBV_QP_RATE_LIMIT), -EINVAL);
	ck_assert_int_eq(qp_state_check(c.type, c.from, c.to, mask | 1 << 30), -EINVAL);
}
END_TEST

static const struct {
	struct cell cell;
	int mask;
} optional[] = {
	{ { IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT }, IBV_QP_PORT },
	{ { IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR }, IBV_QP_QKEY | IBV_QP_PKEY_INDEX },
	{ { IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS }, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ { IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS }, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ { IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS }, IBV_QP_QKEY },
	{ { IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD }, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ { IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD }, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_PORT },
	{ { IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD }, IBV_QP_AV | IBV_QP_PKEY_INDEX },
	{ { IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS }, IBV_QP_ACCESS_FLAGS },
};

START_TEST(optional_attributes_are_taken)
{
	struct cell c = optional[_i].cell;

	ck_assert_int_eq(
		qp_state_check(c.type, c.from, c.to, IBV_QP_STATE | optional[_i].mask), 0);
	/* IBV_QP_STATE itself may be left out where the state stays. */
	if (c.from == c.to)
		ck_assert_int_eq(qp_state_check(c.type, c.from, c.to, optional[_i].mask), 0);
}
END_TEST

START_TEST(other_types_and_states_have_no_transitions)
{
	ck_assert_int_eq(
		qp_state_check(IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_RESET, 0), -EINVAL);
	ck_assert_int_eq(
		qp_state_check(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, 0), -EINVAL);
	ck_assert_int_eq(
		qp_state_check(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, 0), -EINVAL);
	ck_assert_int_eq(
		qp_state_check(IBV_QPT_RC, (enum ibv_qp_state)-1, IBV_QPS_RESET, 0), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("qp-state");
	TCase *tcase = harness_tcase(suite, "table");

	tcase_add_loop_test(tcase, exactly_the_legal_transitions_pass, 0, ALL);
	tcase_add_loop_test(tcase, each_required_attribute_is_required, 0, ALL);
	tcase_add_loop_test(tcase, attributes_of_other_types_are_refused, 0, ALL);
	tcase_add_loop_test(tcase, reset_and_error_take_no_attributes, 0, ALL);
	tcase_add_loop_test(tcase, what_we_do_not_have_is_refused_everywhere, 0, ALL);
	tcase_add_loop_test(tcase, optional_attributes_are_taken, 0,
		sizeof(optional) / sizeof(optional[0]));
	tcase_add_test(tcase, other_types_and_states_have_no_transitions);
	return harness_run(suite);
}
