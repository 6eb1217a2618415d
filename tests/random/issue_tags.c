/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching. A list of tags with its QP, and the QP that sends to it, are by themselves, and each operation on them is
 * awaited; everything else goes on meanwhile. The model is the list: a message takes the first entry that counts and has
 * its tag. One that finds none is unexpected, takes a receive without a tag, and from then on entries that are added do not
 * count until the program has said that it knows of as many.
 */
#include "tests/random/coverage.h"
#include "tests/random/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include <infiniband/tm_types.h>

enum { TMH = sizeof(struct ibv_tmh) };

static bool do_one(struct model *m, unsigned worker, const char *what)
{
	return issue_call(m, worker, what, 0, 0) == 0;
}

static const struct result *result_of(const struct model *m, unsigned worker)
{
	return &m->worker[worker].reply.results[m->worker[worker].reply.n_results - 1];
}

bool issue_tags(struct model *m, const struct op *op)
{
	unsigned client = (unsigned)op->a[TAGS_CLIENT];
	struct m_tags *t = &m->tags[op->id];
	uint32_t qpn[2];

	if (op->a[TAGS_CLIENT] < 0 || client >= m->workers)
		return false;
	*t = (struct m_tags){ .server = op->worker, .client = client };
	issue_command(m, op, CMD_TAG_CLIENT, client);
	if (!do_one(m, client, "making a QP for tags"))
		return true;
	qpn[0] = result_of(m, client)->value[0];
	issue_command(m, op, CMD_TAG_SERVER, op->worker);
	if (!do_one(m, op->worker, "making a list of tags"))
		return true;
	qpn[1] = result_of(m, op->worker)->value[0];
	t->memory = result_of(m, op->worker)->value[1] | (uint64_t)result_of(m, op->worker)->value[2] << 32;
	for (unsigned i = 0; i < 2; i++) {
		struct cmd *cmd = cmd_add(m, i ? client : op->worker, CMD_TAG_UP, op->id);

		cmd->a[0] = i;
		cmd->a[1] = qpn[i];
		if (!do_one(m, i ? client : op->worker, "connecting QPs for tags"))
			return true;
	}
	t->live = true;
	return true;
}

/* --- the list --- */

static bool in_step(const struct m_tags *t)
{
	return (uint16_t)t->unexpected == (uint16_t)t->handled;
}

static void synchronise(struct m_tags *t, uint32_t count)
{
	t->handled = count;
	for (unsigned i = 0; i < t->n && in_step(t); i++)
		t->entries[i].counts = true;
}

static int free_slot(const struct m_tags *t)
{
	for (int slot = 0; slot < TAGS_MAX; slot++) {
		bool taken = false;

		for (unsigned i = 0; i < t->n; i++)
			taken |= t->entries[i].slot == slot;
		if (!taken)
			return slot;
	}
	return 0; /* there is no room in the list either */
}

static void entry_remove(struct m_tags *t, unsigned i)
{
	t->n--;
	memmove(&t->entries[i], &t->entries[i + 1], (t->n - i) * sizeof(t->entries[0]));
}

/* --- what comes of it --- */

static bool await(struct model *m, unsigned worker, enum cmd_kind kind, uint32_t id, struct result *seen)
{
	for (unsigned ms = 0; ms < m->limit_ms; ms++) {
		const struct result *result;

		cmd_add(m, worker, kind, id);
		result = worker_do(m, worker);
		if (!result)
			return false;
		*seen = *result;
		if (result->error == 0)
			return true;
		if (result->error != ENOENT)
			return wrong(m, "tags", "reading completions of tags %u: error %d", id, result->error);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); /* between two looks */
	}
	return wrong(m, "tags", "nothing comes of an operation on tags %u", id);
}

struct due {
	uint32_t id, status, opcode, flags, len, tag, priv;
};

static bool came(struct model *m, uint32_t id, const struct due *due)
{
	struct result seen = { 0 };
	const uint32_t *v = seen.value;
	bool message = due->opcode == IBV_WC_TM_RECV || due->opcode == IBV_WC_TM_NO_TAG;

	if (!await(m, m->tags[id].server, CMD_TAG_POLL, id, &seen))
		return false;
	if (v[SEEN_ID] != due->id || v[SEEN_STATUS] != due->status || (!due->status && v[SEEN_OPCODE] != due->opcode) ||
		(!due->status && v[SEEN_FLAGS] != due->flags) || (!due->status && message && v[SEEN_LEN] != due->len) ||
		(due->flags & IBV_WC_TM_MATCH && (v[SEEN_TAG] != due->tag || v[SEEN_PRIV] != due->priv)))
		return wrong(m, "tags",
			"tags %u: wr %u, status %u, opcode %u, flags 0x%x, %u bytes, tag %u, %u; not wr %u, %u, %u, 0x%x, %u, %u, %u",
			id, v[SEEN_ID], v[SEEN_STATUS], v[SEEN_OPCODE], v[SEEN_FLAGS], v[SEEN_LEN], v[SEEN_TAG], v[SEEN_PRIV],
			due->id, due->status, due->opcode, due->flags, due->len, due->tag, due->priv);
	return true;
}

/* @skip: bytes of the message that are not stored there. */
static bool holds(struct model *m, const struct m_tags *t, int slot, uint64_t seed, size_t skip, size_t len)
{
	uint8_t *expected = calloc(2, skip + len + 1), *actual = expected + skip + len + 1;
	struct iovec local = { actual, len }, remote = { (void *)(uintptr_t)(t->memory + (uint64_t)slot * TAG_SLOT), len };
	size_t header = skip ? 0 : TMH; /* of the header that a receive without a tag has */
	bool same;

	if (!expected)
		abort();
	pattern_fill(expected, seed, 0, skip + len);
	same = process_vm_readv(m->worker[t->server].pid, &local, 1, &remote, 1, 0) == (ssize_t)len &&
	       memcmp(expected + skip + header, actual + header, len - header) == 0;
	free(expected);
	return same || wrong(m, "memory", "slot %d of a list of tags is not what was sent", slot);
}

/* --- operations --- */

static uint32_t sync_flag(const struct m_tags *t)
{
	return in_step(t) ? 0 : IBV_WC_TM_SYNC_REQ;
}

static bool op_add(struct model *m, const struct op *op, struct m_tags *t)
{
	struct cmd *cmd = issue_command(m, op, CMD_TAG_OP, t->server);
	bool full = t->n == TAGS_MAX;
	int slot = free_slot(t);

	cmd->a[8] = slot;
	cmd->a[10] = t->next_id += 2;
	if (issue_call(m, t->server, "IBV_WR_TAG_ADD", full ? ENOMEM : 0, full ? ENOMEM : 0) != 0)
		return true;
	if (op->a[TAG_FLAGS] & IBV_OPS_TM_SYNC)
		synchronise(t, (uint32_t)op->a[TAG_COUNT]);
	t->entries[t->n++] = (struct m_tag){
		.counts = in_step(t),
		.tag = (uint64_t)op->a[TAG_TAG],
		.mask = (uint64_t)op->a[TAG_MASK],
		.handle = result_of(m, t->server)->value[0],
		.id = t->next_id + 1,
		.len = (uint32_t)op->a[TAG_LEN],
		.slot = slot,
	};
	return !(op->a[TAG_FLAGS] & IBV_OPS_SIGNALED) ||
	       came(m, op->id, &(struct due){ .id = t->next_id, .opcode = IBV_WC_TM_ADD, .flags = sync_flag(t) });
}

static bool op_del(struct model *m, const struct op *op, struct m_tags *t)
{
	struct cmd *cmd = issue_command(m, op, CMD_TAG_OP, t->server);
	unsigned i = (unsigned)op->a[TAG_N];
	bool found = i < t->n;

	cmd->a[9] = found ? t->entries[i].handle : t->last_handle;
	cmd->a[10] = t->next_id += 2;
	if (!do_one(m, t->server, "IBV_WR_TAG_DEL"))
		return true;
	if (op->a[TAG_FLAGS] & IBV_OPS_TM_SYNC)
		synchronise(t, (uint32_t)op->a[TAG_COUNT]);
	if (found) {
		t->last_handle = t->entries[i].handle;
		entry_remove(t, i);
	}
	if (found && !(op->a[TAG_FLAGS] & IBV_OPS_SIGNALED))
		return true;
	return came(m, op->id, &(struct due){ .id = t->next_id, .opcode = IBV_WC_TM_DEL, .flags = sync_flag(t),
						.status = found ? IBV_WC_SUCCESS : IBV_WC_TM_ERR });
}

static bool op_sync(struct model *m, const struct op *op, struct m_tags *t)
{
	struct cmd *cmd = issue_command(m, op, CMD_TAG_OP, t->server);
	uint32_t count = t->unexpected - (uint32_t)op->a[TAG_COUNT];

	cmd->a[TAG_COUNT] = count;
	cmd->a[10] = t->next_id += 2;
	if (!do_one(m, t->server, "IBV_WR_TAG_SYNC"))
		return true;
	synchronise(t, count);
	return !(op->a[TAG_FLAGS] & IBV_OPS_SIGNALED) ||
	       came(m, op->id, &(struct due){ .id = t->next_id, .opcode = IBV_WC_TM_SYNC, .flags = sync_flag(t) });
}

static bool op_plain(struct model *m, const struct op *op, struct m_tags *t)
{
	struct cmd *cmd;

	if (t->n_plains == TAG_PLAINS)
		return false;
	cmd = issue_command(m, op, CMD_TAG_OP, t->server);
	cmd->a[8] = (t->first_plain + t->n_plains++) % TAG_PLAINS;
	cmd->a[10] = 1000000 + cmd->a[8];
	do_one(m, t->server, "ibv_post_srq_recv");
	return true;
}

/* --- messages --- */

static int matches(const struct m_tags *t, uint64_t tag)
{
	for (unsigned i = 0; i < t->n; i++) {
		if (t->entries[i].counts && (tag & t->entries[i].mask) == t->entries[i].tag)
			return (int)i;
	}
	return -1;
}

/* A message without a tag, or of one that nobody waits for. */
static bool plain_came(struct model *m, const struct op *op, struct m_tags *t, uint64_t seed)
{
	int slot = (int)t->first_plain;
	struct due due = {
		.id = 1000000 + t->first_plain,
		.opcode = op->a[TAG_WHAT] == WHAT_SEND ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG,
		.len = (uint32_t)(TMH + op->a[TAG_LEN]),
	};

	t->first_plain = (t->first_plain + 1) % TAG_PLAINS;
	t->n_plains--;
	t->unexpected += op->a[TAG_WHAT] == WHAT_SEND;
	coverage_touched(TOUCHED_NO_TAG, op->a[TAG_WHAT] == WHAT_SEND);
	return came(m, op->id, &due) && holds(m, t, TAGS_MAX + slot, seed, 0, due.len);
}

static bool tagged_came(struct model *m, const struct op *op, struct m_tags *t, uint64_t seed, unsigned i)
{
	const struct m_tag entry = t->entries[i];
	struct due due = {
		.id = entry.id,
		.opcode = IBV_WC_TM_RECV,
		.flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
		.len = (uint32_t)op->a[TAG_LEN],
		.tag = (uint32_t)op->a[TAG_TAG],
		.priv = (uint32_t)seed,
	};

	t->last_handle = entry.handle;
	entry_remove(t, i);
	coverage_touched(TOUCHED_TAG, t->server != t->client);
	return came(m, op->id, &due) && holds(m, t, entry.slot, seed, TMH, due.len);
}

static bool message_came(struct model *m, const struct op *op, struct m_tags *t, uint64_t seed)
{
	int i = op->a[TAG_WHAT] == WHAT_SEND ? matches(t, (uint64_t)op->a[TAG_TAG]) : -1;

	return i < 0 ? plain_came(m, op, t, seed) : tagged_came(m, op, t, seed, (unsigned)i);
}

/* Whether each finds room: what is refused ends the connection, and is not a subject here. */
static bool all_fit(const struct m_tags *t, const struct op *op)
{
	if (op->a[TAG_N] < 1 || op->a[TAG_N] > TAG_SENDS || op->a[TAG_LEN] + TMH > TAG_SLOT || op->a[TAG_N] > t->n_plains)
		return false;
	for (unsigned i = 0; i < t->n; i++) {
		if (t->entries[i].len < op->a[TAG_LEN])
			return false;
	}
	return true;
}

static bool op_send(struct model *m, const struct op *op, struct m_tags *t)
{
	if (!all_fit(t, op))
		return false;
	issue_command(m, op, CMD_TAG_OP, t->client);
	if (!do_one(m, t->client, "ibv_post_send"))
		return true;
	for (int64_t i = 0; i < op->a[TAG_N] && !m->failed; i++) {
		struct result seen = { 0 };

		if (message_came(m, op, t, (uint64_t)(op->a[TAG_SEED] + i)) &&
			await(m, t->client, CMD_TAG_SENT, op->id, &seen) &&
			(seen.value[SEEN_ID] != (uint32_t)i || seen.value[SEEN_STATUS] != IBV_WC_SUCCESS))
			wrong(m, "tags", "message %d ended with status %u", (int)i, seen.value[SEEN_STATUS]);
	}
	return true;
}

bool issue_tag(struct model *m, const struct op *op)
{
	struct m_tags *t = &m->tags[op->id];

	if (!t->live || op->a[TAG_LEN] < 0 || op->a[TAG_LEN] > TAG_SLOT)
		return false;
	switch (op->a[TAG_WHAT]) {
	case WHAT_ADD:
		return op_add(m, op, t) || m->failed;
	case WHAT_DEL:
		return op_del(m, op, t) || m->failed;
	case WHAT_SYNC:
		return op_sync(m, op, t) || m->failed;
	case WHAT_PLAIN:
		return op_plain(m, op, t);
	case WHAT_SEND:
	case WHAT_SEND_NO_TAG:
		return op_send(m, op, t);
	default:
		return false;
	}
}
