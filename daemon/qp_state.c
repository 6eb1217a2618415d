/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: the state machine is data, so that a test can walk all of it.
 */
#include "daemon/qp_state.h"

#define TO(state) (1u << QP_##state)

static const struct {
	const char *name;
	unsigned next;
	bool connected;
} states[QP_STATES] = {
	[QP_RESET] = { "RESET", TO(RESET) | TO(INIT) | TO(ERR), false },
	[QP_INIT] = { "INIT", TO(RESET) | TO(INIT) | TO(RTR) | TO(ERR), false },
	[QP_RTR] = { "RTR", TO(RESET) | TO(RTR) | TO(RTS) | TO(ERR), true },
	[QP_RTS] = { "RTS", TO(RESET) | TO(RTS) | TO(SQD) | TO(SQE) | TO(ERR), true },
	[QP_SQD] = { "SQD", TO(RESET) | TO(RTS) | TO(SQD) | TO(ERR), true },
	[QP_SQE] = { "SQE", TO(RESET) | TO(RTS) | TO(SQE) | TO(ERR), true },
	[QP_ERR] = { "ERR", TO(RESET) | TO(ERR), false },
};

const char *qp_state_name(enum qp_state state)
{
	return state < QP_STATES ? states[state].name : "?";
}

bool qp_state_follows(enum qp_state from, enum qp_state to)
{
	return from < QP_STATES && to < QP_STATES && states[from].next & 1u << to;
}

bool qp_state_connected(enum qp_state state)
{
	return state < QP_STATES && states[state].connected;
}
