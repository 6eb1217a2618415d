/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: two processes that talk share memory that the daemon makes and then has no part in. Guarantees: one pair per
 * two processes; a memfd is closed soon after both sides got it; when one side dies the other is told once per
 * segment, before it is told of the wires in it.
 */
#include "daemon/pair.h"

#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/fd.h"
#include "daemon/handle.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/target.h"
#include "daemon/wire_pair.h"
#include "daemon/worker.h"
#include "proto/ring_abi.h"

struct segment *notice_segment(struct notice *notice)
{
	return container_of(notice - notice->side, struct segment, notices[0]);
}

static int pair_compare(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	if (x->ids[0] != y->ids[0])
		return x->ids[0] < y->ids[0] ? -1 : 1;
	return x->ids[1] == y->ids[1] ? 0 : x->ids[1] < y->ids[1] ? -1 : 1;
}

static int pair_new(
	struct server *server, struct process *first, struct process *second, struct pair **pair)
{
	struct pair *made = calloc(1, sizeof(*made));

	if (!made)
		return -ENOMEM;
	*made = (struct pair){
		.ids = { first->id, second->id },
		.sides = { { .process = first, .pair = made, .index = 0 },
			{ .process = second, .pair = made, .index = 1 } },
		.engines = ENGINE_STAGE,
		.stranger = -1,
	};
	/* Shared regions are mapped one by one, as their owners let them: REGION_GRANT. */
	if (first->domain == second->domain)
		made->engines |= ENGINE_MAP | (server->config->cma ? ENGINE_CMA : 0);
	list_init(&made->segments);
	if (!tsearch(made, &server->pairs, pair_compare)) {
		free(made);
		return -ENOMEM;
	}
	list_append(&first->pairs, &made->sides[0].link);
	list_append(&second->pairs, &made->sides[1].link);
	*pair = made;
	return 0;
}

int pair_get(struct server *server, struct process *a, struct process *b, bool forced,
	struct pair **pair)
{
	struct process *first = a->id < b->id ? a : b, *second = first == a ? b : a;
	struct pair key = { .ids = { first->id, second->id } };
	bool strangers = a->domain != b->domain;
	void *node = tfind(&key, &server->pairs, pair_compare);
	int r;

	if (node) {
		*pair = *(struct pair **)node;
		return 0;
	}
	if (strangers && !server->config->connect_any)
		return refuse(-EACCES, "the peer is in another domain (connect = domain)");
	if (strangers && forced && b->strangers >= STRANGERS_MAX)
		return refuse(-ENOSPC, "too many strangers send datagrams to process %u", b->id);
	r = pair_new(server, first, second, pair);
	if (r == 0 && strangers && forced) {
		(*pair)->stranger = b == second;
		b->strangers++;
	}
	return r;
}

/* Frees a pair that has lost a side and has no segment left. */
static void pair_check(struct pair *pair)
{
	if (pair->busy || !list_empty(&pair->segments) ||
		(pair->sides[0].process && pair->sides[1].process))
		return;
	for (unsigned i = 0; i < 2; i++)
		list_remove(&pair->sides[i].link);
	free(pair);
}

/* ---- segments ---- */

static void memfd_close(struct segment *segment)
{
	list_remove(&segment->kept);
	if (segment->memfd >= 0) {
		segment->server->n_kept--;
		worker_close(segment->server->worker, segment->memfd);
	}
	segment->memfd = -1;
}

static bool is_needed(const struct segment *segment)
{
	return segment->notices[0].kind == NOTICE_SEGMENT ||
	       segment->notices[1].kind == NOTICE_SEGMENT;
}

bool segments_expire(struct server *server, uint64_t now)
{
	list_for_each_safe (pos, &server->kept) {
		struct segment *segment = container_of(pos, struct segment, kept);

		if (is_needed(segment))
			continue;
		if (segment->keep_until > now && server->n_kept <= SEGMENT_KEEP_MAX)
			break;
		memfd_close(segment);
	}
	return !list_empty(&server->kept);
}

static int charge_segment(
	struct segment *segment, const struct pair *pair, const struct process *payer)
{
	for (unsigned i = 0; i < 2; i++) {
		struct process *process = pair->sides[i].process;
		uint64_t bytes =
			payer ? (payer == process ? VSD_SEGMENT_SIZE : 0) : VSD_SEGMENT_SIZE / 2;
		int r = charge_take(
			&segment->charges[i], &process->domain->account, SLOT_SHARED_BYTES, bytes);

		if (r < 0)
			return r;
	}
	return 0;
}

static int write_header(int memfd)
{
	uint32_t header[2] = { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION };

	return pwrite(memfd, header, sizeof(header), 0) == sizeof(header) ? 0 : -ENOSPC;
}

static void segment_free(struct segment *segment)
{
	struct server *server = segment->server;

	memfd_close(segment);
	if (segment->id) {
		handle_remove(&server->segments, segment->id, HANDLE_SEGMENT);
		list_remove(&segment->link);
	}
	for (unsigned i = 0; i < 2; i++) {
		notice_drop(&segment->notices[i]);
		charge_release(&segment->charges[i]);
	}
	space_deinit(&segment->space);
	free(segment);
}

static int segment_new(struct server *server, struct pair *pair, const struct process *payer,
	struct segment **segment)
{
	struct segment *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	*made = (struct segment){ .server = server, .pair = pair, .memfd = -1 };
	list_init(&made->link);
	list_init(&made->kept);
	space_init(&made->space);
	for (unsigned i = 0; i < 2; i++)
		notice_init(&made->notices[i], i);
	r = charge_segment(made, pair, payer);
	if (r == 0) {
		r = memfd_new("verbsd-segment", VSD_SEGMENT_SIZE);
		if (r >= 0) {
			made->memfd = r;
			server->n_kept++;
			r = write_header(made->memfd);
		}
	}
	if (r == 0)
		r = handle_insert(&server->segments, HANDLE_SEGMENT, made, &made->id);
	if (r < 0) {
		segment_free(made);
		return r;
	}
	list_append(&pair->segments, &made->link);
	made->keep_until = loop_now() + SEGMENT_KEEP_MS;
	list_append(&server->kept, &made->kept);
	server_keep(server);
	for (unsigned i = 0; i < 2; i++)
		process_notify(pair->sides[i].process, &made->notices[i], NOTICE_SEGMENT, 0);
	*segment = made;
	return 0;
}

static int place_in(struct segment *segment, struct wire *wire)
{
	int r = space_take(&segment->space, wire->req_slots, wire->resp_slots, wire, &wire->place);

	if (r == 0)
		wire->segment = segment;
	return r;
}

int pair_place(struct server *server, struct pair *pair, struct process *payer, struct wire *wire)
{
	struct segment *segment;
	int r;

	list_for_each (pos, &pair->segments) {
		r = place_in(container_of(pos, struct segment, link), wire);
		if (r != -ENOSPC)
			return r;
	}
	r = segment_new(server, pair, payer, &segment);
	if (r < 0)
		return r;
	/* When this fails the segment stays, empty, for the next one. */
	return place_in(segment, wire);
}

void segment_check(struct segment *segment)
{
	struct pair *pair = segment->pair;

	if (segment->busy || (pair->sides[0].process && pair->sides[1].process))
		return;
	if (segment->space.count > 0 || segment->notices[0].kind != NOTICE_NONE ||
		segment->notices[1].kind != NOTICE_NONE)
		return;
	segment_free(segment);
	pair_check(pair);
}

void pair_noticed(struct process *process, struct notice *notice)
{
	enum notice_kind kind = notice->kind;

	if (kind == NOTICE_XRC_EVENT || kind == NOTICE_XRC_REFUSED) {
		qp_noticed(process, notice);
		return;
	}
	notice_drop(notice);
	if (kind == NOTICE_SEGMENT)
		notice_segment(notice)->told[notice->side] = true;
	if (kind == NOTICE_PEER_GONE)
		segment_check(notice_segment(notice));
}

static void segment_break(struct segment *segment, unsigned side, enum gone_reason reason)
{
	struct process *other = segment->pair->sides[!side].process;
	struct notice *notice = &segment->notices[!side];

	segment->busy = true;
	notice_drop(&segment->notices[side]);
	charge_release(&segment->charges[side]);
	notice_drop(notice);
	if (other && segment->told[!side])
		process_notify(other, notice, NOTICE_PEER_GONE, reason);
	for (uint32_t i = 1; i < segment->space.used; i++) {
		struct wire *wire = space_get(&segment->space, i);

		if (wire)
			wire_end_died(wire, side, reason);
	}
	if (other)
		process_flush(other);
	segment->busy = false;
	segment_check(segment);
}

static void pair_break(
	struct server *server, struct pair *pair, unsigned side, enum gone_reason reason)
{
	if (pair->sides[!side].process)
		tdelete(pair, &server->pairs, pair_compare);
	if (pair->stranger == (int)!side && pair->sides[!side].process)
		pair->sides[!side].process->strangers--;
	pair->busy = true;
	pair->sides[side].process = NULL;
	list_remove(&pair->sides[side].link);
	list_for_each_safe (pos, &pair->segments)
		segment_break(container_of(pos, struct segment, link), side, reason);
	pair->busy = false;
	pair_check(pair);
}

void pairs_break(struct process *process, enum gone_reason reason)
{
	loops_break(process);
	while (!list_empty(&process->pairs)) {
		struct pair_side *side = container_of(process->pairs.next, struct pair_side, link);

		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		pair_break(process->server, side->pair, side->index, reason);
	}
}

struct segment *segment_get(
	const struct server *server, const struct process *process, uint32_t id)
{
	struct segment *segment = handle_get(&server->segments, id, HANDLE_SEGMENT);

	if (!segment || (segment->pair->sides[0].process != process &&
				segment->pair->sides[1].process != process))
		return NULL;
	return segment;
}

int segment_send_again(struct server *server, struct process *process, uint32_t id)
{
	struct segment *segment = segment_get(server, process, id);
	struct notice *notice;

	if (!segment)
		return refuse(-ENOENT, "no segment %u of this process", id);
	notice = &segment->notices[segment_side(segment, process)];
	if (notice->kind != NOTICE_NONE)
		return 0;
	if (segment->memfd < 0 || !segment->pair->sides[!notice->side].process)
		return refuse(-ESTALE, "segment %u cannot be sent again", id);
	process_notify(process, notice, NOTICE_SEGMENT, 0);
	process_flush(process);
	return 0;
}
