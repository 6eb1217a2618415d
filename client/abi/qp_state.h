/* SPDX-License-Identifier: BSD-2-Clause */
/* The state machine of a queue pair, as a table. */
#ifndef CLIENT_ABI_QP_STATE_H
#define CLIENT_ABI_QP_STATE_H

#include <infiniband/verbs.h>

/*
 * 0 when a QP of @type may go from @from to @to with the attributes of @mask (enum ibv_qp_attr_mask): all that are
 * required are there, and no other than those that are optional. Else -EINVAL. Types other than RC, UC, UD: -EINVAL.
 */
int qp_state_check(
	enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask);

#endif
