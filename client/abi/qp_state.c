/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machine of queue pairs: which attributes each transition needs and takes. Pure data and one reader, so
 * that a test can walk the whole product. A transition that is not in the table is not allowed.
 */
#include "client/abi/qp_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

enum kind { KIND_RC, KIND_UC, KIND_UD, KIND_XRC_SEND, KIND_XRC_RECV, KIND_N };

struct masks {
	int required, optional;
};

struct transition {
	bool legal[KIND_N];
	struct masks masks[KIND_N];
};

#define STATES 7 /* RESET to ERR */

#define INIT_CONNECTED (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_UD	       (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define RTR_UC	       (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_RC	       (RTR_UC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_UC	       IBV_QP_SQ_PSN
#define RTS_RC                                                                                    \
	(RTS_UC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_XRC_RECV (RTS_UC | IBV_QP_TIMEOUT)
/* Mean nothing to a QP that only answers, but perftest sets them. */
#define RTS_XRC_RECV_MORE (LIVE_RC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/* What may be changed while a QP sends. */
#define LIVE_UD (IBV_QP_CUR_STATE | IBV_QP_QKEY)
#define LIVE_UC                                                                                   \
	(IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define LIVE_RC (LIVE_UC | IBV_QP_MIN_RNR_TIMER)

/* What may be changed while the send queue is drained. */
#define SQD_UD (IBV_QP_PKEY_INDEX | IBV_QP_QKEY)
#define SQD_UC                                                                                    \
	(IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |                  \
		IBV_QP_PATH_MIG_STATE)
#define SQD_RC                                                                                    \
	(SQD_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |            \
		IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

/* The halves of RC: one sends, the other answers. */
#define SQD_XRC_SEND                                                                              \
	(SQD_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |            \
		IBV_QP_MAX_QP_RD_ATOMIC)
#define SQD_XRC_RECV                                                                              \
	(SQD_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

#define ALL	    { true, true, true, true, true }
#define ANY_TO_HERE { .legal = ALL }

static const struct transition table[STATES][STATES] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_INIT] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .required = INIT_CONNECTED },
				[KIND_UC] = { .required = INIT_CONNECTED },
				[KIND_UD] = { .required = INIT_UD },
				[KIND_XRC_SEND] = { .required = INIT_CONNECTED },
				[KIND_XRC_RECV] = { .required = INIT_CONNECTED },
			},
		},
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_INIT] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .optional = INIT_CONNECTED },
				[KIND_UC] = { .optional = INIT_CONNECTED },
				[KIND_UD] = { .optional = INIT_UD },
				[KIND_XRC_SEND] = { .optional = INIT_CONNECTED },
				[KIND_XRC_RECV] = { .optional = INIT_CONNECTED },
			},
		},
		[IBV_QPS_RTR] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = {
					.required = RTR_RC,
					.optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
						    IBV_QP_PKEY_INDEX,
				},
				[KIND_UC] = {
					.required = RTR_UC,
					.optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
						    IBV_QP_PKEY_INDEX,
				},
				[KIND_UD] = { .optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
				[KIND_XRC_SEND] = {
					.required = RTR_UC,
					/* The first two mean nothing to it, but perftest sets them. */
					.optional = IBV_QP_MAX_DEST_RD_ATOMIC |
						    IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
						    IBV_QP_PKEY_INDEX,
				},
				[KIND_XRC_RECV] = {
					.required = RTR_RC,
					.optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
						    IBV_QP_PKEY_INDEX,
				},
			},
		},
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_RTS] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .required = RTS_RC, .optional = LIVE_RC },
				[KIND_UC] = { .required = RTS_UC, .optional = LIVE_UC },
				[KIND_UD] = { .required = IBV_QP_SQ_PSN, .optional = LIVE_UD },
				[KIND_XRC_SEND] = { .required = RTS_RC, .optional = LIVE_UC },
				[KIND_XRC_RECV] = { .required = RTS_XRC_RECV, .optional = RTS_XRC_RECV_MORE },
			},
		},
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_RTS] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .optional = LIVE_RC },
				[KIND_UC] = { .optional = LIVE_UC },
				[KIND_UD] = { .optional = LIVE_UD },
				[KIND_XRC_SEND] = { .optional = LIVE_UC },
				[KIND_XRC_RECV] = { .optional = LIVE_RC },
			},
		},
		[IBV_QPS_SQD] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .optional = IBV_QP_EN_SQD_ASYNC_NOTIFY },
				[KIND_UC] = { .optional = IBV_QP_EN_SQD_ASYNC_NOTIFY },
				[KIND_UD] = { .optional = IBV_QP_EN_SQD_ASYNC_NOTIFY },
				[KIND_XRC_SEND] = { .optional = IBV_QP_EN_SQD_ASYNC_NOTIFY },
				[KIND_XRC_RECV] = { .optional = IBV_QP_EN_SQD_ASYNC_NOTIFY },
			},
		},
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_RTS] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .optional = LIVE_RC },
				[KIND_UC] = { .optional = LIVE_UC },
				[KIND_UD] = { .optional = LIVE_UD },
				[KIND_XRC_SEND] = { .optional = LIVE_UC },
				[KIND_XRC_RECV] = { .optional = LIVE_RC },
			},
		},
		[IBV_QPS_SQD] = {
			.legal = ALL,
			.masks = {
				[KIND_RC] = { .optional = SQD_RC },
				[KIND_UC] = { .optional = SQD_UC },
				[KIND_UD] = { .optional = SQD_UD },
				[KIND_XRC_SEND] = { .optional = SQD_XRC_SEND },
				[KIND_XRC_RECV] = { .optional = SQD_XRC_RECV },
			},
		},
	},
	/* A send queue in error exists only where a failed send does not end the connection. */
	[IBV_QPS_SQE] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
		[IBV_QPS_RTS] = {
			.legal = { [KIND_UC] = true, [KIND_UD] = true },
			.masks = {
				[KIND_UC] = { .optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
				[KIND_UD] = { .optional = LIVE_UD },
			},
		},
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = ANY_TO_HERE,
		[IBV_QPS_ERR] = ANY_TO_HERE,
	},
};

static int kind_of(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
		return KIND_RC;
	case IBV_QPT_UC:
		return KIND_UC;
	case IBV_QPT_UD:
		return KIND_UD;
	case IBV_QPT_XRC_SEND:
		return KIND_XRC_SEND;
	case IBV_QPT_XRC_RECV:
		return KIND_XRC_RECV;
	}
	return -1;
}

int qp_state_check(
	enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int kind = kind_of(type);

	if (kind < 0 || (unsigned)from >= STATES || (unsigned)to >= STATES)
		return -EINVAL;

	const struct transition *t = &table[from][to];
	const struct masks *m = &t->masks[kind];

	if (!t->legal[kind])
		return -EINVAL;
	if ((mask & m->required) != m->required)
		return -EINVAL;
	if (mask & ~(m->required | m->optional | IBV_QP_STATE))
		return -EINVAL;
	return 0;
}
