/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What InfiniBand's specification (volume 1, 10.3 and 11.2.5.2) says about modifying a queue pair, written down the other
 * way round from the library's table: by attribute, so that one of the two can be wrong. The library's source is not used.
 */
#include "states.h"

/* The transitions that take attributes, as one bit each; RESET and ERR are open to all, with none. */
enum {
	RESET_INIT = 1 << 0,
	INIT_INIT = 1 << 1,
	INIT_RTR = 1 << 2,
	RTR_RTS = 1 << 3,
	RTS_RTS = 1 << 4,
	RTS_SQD = 1 << 5,
	SQD_RTS = 1 << 6,
	SQD_SQD = 1 << 7,
	SQE_RTS = 1 << 8,
};

/* Sending or about to: what may be changed at any time may be changed in these. */
#define LIVE (RTR_RTS | RTS_RTS | SQD_RTS)

enum {
	RC = 1 << 0,
	UC = 1 << 1,
	UD = 1 << 2,
	XS = 1 << 3, /* the XRC initiator */
	XR = 1 << 4, /* the XRC target */
	CONNECTED = RC | UC | XS | XR,
	ANY = CONNECTED | UD,
};

static const struct row {
	int attribute;
	unsigned types, required, optional;
} rows[] = {
	{ IBV_QP_PKEY_INDEX, ANY, RESET_INIT, INIT_INIT | INIT_RTR | SQD_SQD },
	{ IBV_QP_PORT, RC | XS | XR, RESET_INIT, INIT_INIT | SQD_SQD },
	{ IBV_QP_PORT, UC | UD, RESET_INIT, INIT_INIT },
	{ IBV_QP_QKEY, UD, RESET_INIT, INIT_INIT | INIT_RTR | LIVE | SQD_SQD | SQE_RTS },
	{ IBV_QP_ACCESS_FLAGS, RC | XS | XR, RESET_INIT, INIT_INIT | INIT_RTR | LIVE | SQD_SQD },
	{ IBV_QP_ACCESS_FLAGS, UC, RESET_INIT, INIT_INIT | INIT_RTR | LIVE | SQD_SQD | SQE_RTS },
	{ IBV_QP_AV, CONNECTED, INIT_RTR, SQD_SQD },
	{ IBV_QP_PATH_MTU, CONNECTED, INIT_RTR, 0 },
	{ IBV_QP_DEST_QPN, CONNECTED, INIT_RTR, 0 },
	{ IBV_QP_RQ_PSN, CONNECTED, INIT_RTR, 0 },
	/* The responder's. */
	{ IBV_QP_MAX_DEST_RD_ATOMIC, RC | XR, INIT_RTR, SQD_SQD },
	{ IBV_QP_MIN_RNR_TIMER, RC | XR, INIT_RTR, LIVE | SQD_SQD },
	/* They mean nothing to the initiator, but perftest sets them. */
	{ IBV_QP_MAX_DEST_RD_ATOMIC, XS, 0, INIT_RTR },
	{ IBV_QP_MIN_RNR_TIMER, XS, 0, INIT_RTR },
	/* The requester's. The target of XRC sends acknowledgements alone, but has a timeout all the same. */
	{ IBV_QP_SQ_PSN, ANY, RTR_RTS, 0 },
	{ IBV_QP_TIMEOUT, RC | XS | XR, RTR_RTS, SQD_SQD },
	{ IBV_QP_RETRY_CNT, RC | XS, RTR_RTS, SQD_SQD },
	{ IBV_QP_RNR_RETRY, RC | XS, RTR_RTS, SQD_SQD },
	{ IBV_QP_MAX_QP_RD_ATOMIC, RC | XS, RTR_RTS, SQD_SQD },
	/* Nor do these to the target. */
	{ IBV_QP_RETRY_CNT, XR, 0, RTR_RTS },
	{ IBV_QP_RNR_RETRY, XR, 0, RTR_RTS },
	{ IBV_QP_MAX_QP_RD_ATOMIC, XR, 0, RTR_RTS },
	{ IBV_QP_CUR_STATE, RC | XS | XR, 0, LIVE },
	{ IBV_QP_CUR_STATE, UC | UD, 0, LIVE | SQE_RTS },
	{ IBV_QP_ALT_PATH, CONNECTED, 0, INIT_RTR | LIVE | SQD_SQD },
	{ IBV_QP_PATH_MIG_STATE, CONNECTED, 0, LIVE | SQD_SQD },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, ANY, 0, RTS_SQD },
	/* IBV_QP_CAP needs IBV_DEVICE_RESIZE_MAX_WR, IBV_QP_RATE_LIMIT a raw packet QP: nowhere. */
};

static unsigned type_bit(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_XRC_SEND:
		return XS;
	case IBV_QPT_XRC_RECV:
		return XR;
	}
	return 0;
}

static unsigned transition(enum ibv_qp_type type, int from, int to)
{
	static const struct {
		int from, to;
		unsigned bit;
	} known[] = {
		{ IBV_QPS_RESET, IBV_QPS_INIT, RESET_INIT }, { IBV_QPS_INIT, IBV_QPS_INIT, INIT_INIT },
		{ IBV_QPS_INIT, IBV_QPS_RTR, INIT_RTR },     { IBV_QPS_RTR, IBV_QPS_RTS, RTR_RTS },
		{ IBV_QPS_RTS, IBV_QPS_RTS, RTS_RTS },	     { IBV_QPS_RTS, IBV_QPS_SQD, RTS_SQD },
		{ IBV_QPS_SQD, IBV_QPS_RTS, SQD_RTS },	     { IBV_QPS_SQD, IBV_QPS_SQD, SQD_SQD },
		{ IBV_QPS_SQE, IBV_QPS_RTS, SQE_RTS },
	};

	/* A failed send of a reliable QP ends the connection: there is no SQE to come back from. */
	if (from == IBV_QPS_SQE && !(type_bit(type) & (UC | UD)))
		return 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].from == from && known[i].to == to)
			return known[i].bit;
	return 0;
}

bool spec_legal(enum ibv_qp_type type, int from, int to)
{
	return to == IBV_QPS_RESET || to == IBV_QPS_ERR || transition(type, from, to);
}

static int masks(enum ibv_qp_type type, int from, int to, bool required)
{
	unsigned bit = transition(type, from, to);
	int mask = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((rows[i].types & type_bit(type)) && ((required ? rows[i].required : rows[i].optional) & bit))
			mask |= rows[i].attribute;
	return mask;
}

int spec_required(enum ibv_qp_type type, int from, int to)
{
	return masks(type, from, to, true);
}

int spec_optional(enum ibv_qp_type type, int from, int to)
{
	return masks(type, from, to, false);
}

int spec_errno(enum ibv_qp_type type, int from, int to, int mask)
{
	int required = spec_required(type, from, to);

	if (!spec_legal(type, from, to) || (~mask & required))
		return EINVAL;
	if (mask & ~(IBV_QP_STATE | required | spec_optional(type, from, to)))
		return EINVAL;
	return mask & SPEC_MIGRATION ? EOPNOTSUPP : 0;
}
