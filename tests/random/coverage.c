/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs of a run have reached: kinds of operations, opcodes that succeeded, ways to complete, events, types
 * of QPs. A run that is long enough reaches all of them; one that does not has lost its sense.
 */
#include "tests/random/coverage.h"

#include <infiniband/verbs.h>

#define NAMED(value, name)	      { value, name, 0, 0 }
#define NAMED_OF(kind, value, name) { value, name, 0, kind }

struct counted {
	int value;
	const char *name;
	size_t n;
	unsigned kind; /* without which it is never reached */
};

static struct counted opcodes[] = {
	NAMED(IBV_WR_RDMA_WRITE, "write"),
	NAMED(IBV_WR_RDMA_WRITE_WITH_IMM, "write-imm"),
	NAMED(IBV_WR_SEND, "send"),
	NAMED(IBV_WR_SEND_WITH_IMM, "send-imm"),
	NAMED(IBV_WR_SEND_WITH_INV, "send-inv"),
	NAMED(IBV_WR_RDMA_READ, "read"),
	NAMED(IBV_WR_ATOMIC_CMP_AND_SWP, "compare-swap"),
	NAMED(IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch-add"),
	NAMED(IBV_WR_LOCAL_INV, "local-inv"),
	NAMED(IBV_WR_BIND_MW, "bind"),
	NAMED_OF(KIND_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE, "atomic-write"),
	{ 0, NULL, 0, 0 },
};

static struct counted statuses[] = {
	NAMED(IBV_WC_SUCCESS, "success"),
	NAMED(IBV_WC_LOC_LEN_ERR, "local-length"),
	NAMED(IBV_WC_LOC_QP_OP_ERR, "local-qp-op"),
	NAMED(IBV_WC_LOC_PROT_ERR, "local-protection"),
	NAMED(IBV_WC_WR_FLUSH_ERR, "flush"),
	NAMED(IBV_WC_MW_BIND_ERR, "bind-error"),
	NAMED(IBV_WC_REM_INV_REQ_ERR, "remote-invalid"),
	NAMED(IBV_WC_REM_ACCESS_ERR, "remote-access"),
	NAMED(IBV_WC_REM_OP_ERR, "remote-operation"),
	NAMED(IBV_WC_RETRY_EXC_ERR, "retries"),
	NAMED(IBV_WC_RNR_RETRY_EXC_ERR, "rnr-retries"),
	{ 0, NULL, 0, 0 },
};

static struct counted events[] = {
	NAMED(-1, "completion"),
	NAMED(IBV_EVENT_QP_REQ_ERR, "qp-req-err"),
	NAMED(IBV_EVENT_QP_ACCESS_ERR, "qp-access-err"),
	NAMED(IBV_EVENT_COMM_EST, "comm-est"),
	NAMED(IBV_EVENT_SQ_DRAINED, "sq-drained"),
	NAMED(IBV_EVENT_SRQ_LIMIT_REACHED, "srq-limit"),
	NAMED(IBV_EVENT_QP_LAST_WQE_REACHED, "last-wqe"),
	NAMED_OF(KIND_OVERRUN, IBV_EVENT_CQ_ERR, "cq-err"),
	NAMED_OF(KIND_OVERRUN, IBV_EVENT_QP_FATAL, "qp-fatal"),
	{ 0, NULL, 0, 0 },
};

static struct counted types[] = {
	NAMED(IBV_QPT_RC, "rc"),
	NAMED(IBV_QPT_UC, "uc"),
	NAMED(IBV_QPT_UD, "ud"),
	NAMED_OF(KIND_XRC, IBV_QPT_XRC_SEND, "xrc"),
	{ 0, NULL, 0, 0 },
};

static struct counted touched[] = {
	NAMED_OF(KIND_DM, 2 * TOUCHED_DM, "device"),
	NAMED_OF(KIND_DM, 2 * TOUCHED_DM + 1, "remote-device"),
	NAMED_OF(KIND_ODP, 2 * TOUCHED_PAGED, "on-demand"),
	NAMED_OF(KIND_ODP, 2 * TOUCHED_PAGED + 1, "remote-on-demand"),
	NAMED_OF(KIND_ODP, 2 * TOUCHED_ALL_MEMORY, "implicit"),
	NAMED_OF(KIND_ODP, 2 * TOUCHED_ALL_MEMORY + 1, "remote-implicit"),
	NAMED_OF(KIND_TAGS, 2 * TOUCHED_TAG, "own-tag"),
	NAMED_OF(KIND_TAGS, 2 * TOUCHED_TAG + 1, "tag"),
	NAMED_OF(KIND_TAGS, 2 * TOUCHED_NO_TAG, "no-tag"),
	NAMED_OF(KIND_TAGS, 2 * TOUCHED_NO_TAG + 1, "unexpected"),
	NAMED_OF(KIND_MCAST, 2 * TOUCHED_GROUP, "own-group"),
	NAMED_OF(KIND_MCAST, 2 * TOUCHED_GROUP + 1, "group"),
	{ 0, NULL, 0, 0 },
};

static size_t operations[OP_KINDS];

static void count(struct counted *list, int value)
{
	for (; list->name; list++)
		list->n += list->value == value;
}

void coverage_operation(enum op_kind kind)
{
	operations[kind]++;
}

void coverage_send(int type, int opcode, int status)
{
	count(statuses, status);
	if (status != IBV_WC_SUCCESS)
		return;
	count(opcodes, opcode);
	count(types, type);
}

void coverage_receive(int status)
{
	count(statuses, status);
}

void coverage_event(int event)
{
	count(events, event);
}

void coverage_touched(enum touched what, bool remote)
{
	count(touched, 2 * (int)what + remote);
}

static bool in_kinds(unsigned kind, unsigned kinds)
{
	return !kind || (kind & kinds);
}

/* Runs with more than the base are asked for what they have more. */
static bool is_required(unsigned kind, unsigned kinds)
{
	return !kinds || kind;
}

/* How many were never reached. */
static unsigned list_print(const char *what, const struct counted *list, unsigned kinds)
{
	unsigned missing = 0;

	printf("%s:", what);
	for (; list->name; list++) {
		if (!in_kinds(list->kind, kinds))
			continue;
		printf(" %s %zu", list->name, list->n);
		missing += !list->n && is_required(list->kind, kinds);
	}
	putchar('\n');
	return missing;
}

bool coverage_print(unsigned kinds)
{
	unsigned missing = 0;

	printf("operations:");
	for (unsigned kind = 0; kind < OP_KINDS; kind++) {
		if (!in_kinds(op_needs((enum op_kind)kind), kinds))
			continue;
		printf(" %s %zu", op_name((enum op_kind)kind), operations[kind]);
		missing += !operations[kind] && is_required(op_needs((enum op_kind)kind), kinds);
	}
	putchar('\n');
	missing += list_print("opcodes that succeeded", opcodes, kinds);
	missing += list_print("types of QPs", types, kinds);
	missing += list_print("statuses", statuses, kinds);
	missing += list_print("events", events, kinds);
	if (kinds & (KIND_DM | KIND_ODP | KIND_MCAST | KIND_TAGS))
		missing += list_print("reached", touched, kinds);
	return missing == 0;
}
