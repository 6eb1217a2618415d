/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP states (enum ibv_qp_state) and which follow which.
 */
#ifndef DAEMON_QP_STATE_H
#define DAEMON_QP_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum qp_state {
	QP_RESET, /* as created; takes no work */
	QP_INIT,  /* takes receives */
	QP_RTR,   /* knows its peer, receives */
	QP_RTS,   /* sends as well */
	QP_SQD,   /* sends are drained */
	QP_SQE,   /* sends failed (UC, UD), receives go on */
	QP_ERR,   /* everything is flushed */
	QP_STATES,
};

const char *qp_state_name(enum qp_state state);
/* Whether a client may say that its QP went from @from to @to. What the library does by itself (RTS to SQE) is not told,
 * so the state after it may be told from the state before it. */
bool qp_state_follows(enum qp_state from, enum qp_state to);
/* Whether a connected QP in this state has a wire. */
bool qp_state_connected(enum qp_state state);

#endif
