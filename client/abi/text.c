/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of enum values, and rates. The real library answers where it is there, so that a program prints what it always
 * printed; without it these tables do.
 */
#include "client/abi/abi.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *name_of(const char *const *names, size_t n, int value)
{
	return value >= 0 && (size_t)value < n && names[value] ? names[value] : "unknown";
}

static const char *const node_types[] = {
	[IBV_NODE_CA] = "channel adapter",
	[IBV_NODE_SWITCH] = "switch",
	[IBV_NODE_ROUTER] = "router",
	[IBV_NODE_RNIC] = "iWARP adapter",
	[IBV_NODE_USNIC] = "usNIC",
	[IBV_NODE_USNIC_UDP] = "usNIC over UDP",
	[IBV_NODE_UNSPECIFIED] = "unspecified",
};

static const char *const port_states[] = {
	[IBV_PORT_NOP] = "no change",
	[IBV_PORT_DOWN] = "down",
	[IBV_PORT_INIT] = "initialising",
	[IBV_PORT_ARMED] = "armed",
	[IBV_PORT_ACTIVE] = "active",
	[IBV_PORT_ACTIVE_DEFER] = "active, deferred",
};

static const char *const event_types[] = {
	[IBV_EVENT_CQ_ERR] = "CQ in error",
	[IBV_EVENT_QP_FATAL] = "QP in error",
	[IBV_EVENT_QP_REQ_ERR] = "QP refused a request",
	[IBV_EVENT_QP_ACCESS_ERR] = "QP refused an access",
	[IBV_EVENT_COMM_EST] = "first message arrived",
	[IBV_EVENT_SQ_DRAINED] = "send queue drained",
	[IBV_EVENT_PATH_MIG] = "path migrated",
	[IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
	[IBV_EVENT_DEVICE_FATAL] = "device in error",
	[IBV_EVENT_PORT_ACTIVE] = "port active",
	[IBV_EVENT_PORT_ERR] = "port in error",
	[IBV_EVENT_LID_CHANGE] = "LID changed",
	[IBV_EVENT_PKEY_CHANGE] = "P_Keys changed",
	[IBV_EVENT_SM_CHANGE] = "subnet manager changed",
	[IBV_EVENT_SRQ_ERR] = "SRQ in error",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ at its limit",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "last receive of the QP taken",
	[IBV_EVENT_CLIENT_REREGISTER] = "clients shall register anew",
	[IBV_EVENT_GID_CHANGE] = "GIDs changed",
	[IBV_EVENT_WQ_FATAL] = "WQ in error",
};

static const char *const wc_statuses[] = {
	[IBV_WC_SUCCESS] = "done",
	[IBV_WC_LOC_LEN_ERR] = "message longer than its receive buffer",
	[IBV_WC_LOC_QP_OP_ERR] = "work request that this QP cannot do",
	[IBV_WC_LOC_EEC_OP_ERR] = "work request that this EE context cannot do",
	[IBV_WC_LOC_PROT_ERR] = "local buffer not covered by its key",
	[IBV_WC_WR_FLUSH_ERR] = "flushed",
	[IBV_WC_MW_BIND_ERR] = "memory window could not be bound",
	[IBV_WC_BAD_RESP_ERR] = "unexpected response",
	[IBV_WC_LOC_ACCESS_ERR] = "local buffer may not be written",
	[IBV_WC_REM_INV_REQ_ERR] = "peer found the request invalid",
	[IBV_WC_REM_ACCESS_ERR] = "peer's key does not allow it",
	[IBV_WC_REM_OP_ERR] = "peer could not complete the operation",
	[IBV_WC_RETRY_EXC_ERR] = "peer does not answer",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "peer has no receive posted",
	[IBV_WC_LOC_RDD_VIOL_ERR] = "RD domains differ",
	[IBV_WC_REM_INV_RD_REQ_ERR] = "peer found the RD request invalid",
	[IBV_WC_REM_ABORT_ERR] = "peer aborted the operation",
	[IBV_WC_INV_EECN_ERR] = "no such EE context",
	[IBV_WC_INV_EEC_STATE_ERR] = "EE context in the wrong state",
	[IBV_WC_FATAL_ERR] = "fatal error",
	[IBV_WC_RESP_TIMEOUT_ERR] = "response timed out",
	[IBV_WC_GENERAL_ERR] = "error",
	[IBV_WC_TM_ERR] = "tag matching failed",
	[IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching rendezvous incomplete",
};

#define TEXT(function, version, type, names)                                                      \
	VERBS_API const char *function(type value)                                                \
	{                                                                                         \
		return REAL_INT(name_of(names, COUNT(names), (int)value), function, version,      \
			value);                                                                   \
	}

TEXT(ibv_node_type_str, "IBVERBS_1.1", enum ibv_node_type, node_types)
TEXT(ibv_port_state_str, "IBVERBS_1.1", enum ibv_port_state, port_states)
TEXT(ibv_event_type_str, "IBVERBS_1.1", enum ibv_event_type, event_types)
TEXT(ibv_wc_status_str, "IBVERBS_1.1", enum ibv_wc_status, wc_statuses)

/* --- rates --------------------------------------------------------------------------------------------------------- */

/* A rate as a multiple of 2.5 Gb/s (0: none) and in Mb/s. */
static const struct rate {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
	{ IBV_RATE_2_5_GBPS, 1, 2500 },
	{ IBV_RATE_5_GBPS, 2, 5000 },
	{ IBV_RATE_10_GBPS, 4, 10000 },
	{ IBV_RATE_20_GBPS, 8, 20000 },
	{ IBV_RATE_30_GBPS, 12, 30000 },
	{ IBV_RATE_40_GBPS, 16, 40000 },
	{ IBV_RATE_60_GBPS, 24, 60000 },
	{ IBV_RATE_80_GBPS, 32, 80000 },
	{ IBV_RATE_120_GBPS, 48, 120000 },
	{ IBV_RATE_28_GBPS, 11, 28125 },
	{ IBV_RATE_50_GBPS, 20, 53125 },
	{ IBV_RATE_400_GBPS, 160, 425000 },
	{ IBV_RATE_600_GBPS, 240, 637500 },
	{ IBV_RATE_800_GBPS, 320, 850000 },
	{ IBV_RATE_1200_GBPS, 480, 1275000 },
	{ IBV_RATE_14_GBPS, 0, 14062 },
	{ IBV_RATE_56_GBPS, 0, 56250 },
	{ IBV_RATE_112_GBPS, 0, 112500 },
	{ IBV_RATE_168_GBPS, 0, 168750 },
	{ IBV_RATE_25_GBPS, 0, 25781 },
	{ IBV_RATE_100_GBPS, 0, 103125 },
	{ IBV_RATE_200_GBPS, 0, 206250 },
	{ IBV_RATE_300_GBPS, 0, 309375 },
};

VERBS_API int ibv_rate_to_mult(enum ibv_rate rate)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate && rates[i].mult)
			return rates[i].mult;
	return -1;
}

VERBS_API enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (mult > 0 && rates[i].mult == mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

VERBS_API int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

VERBS_API enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}
