/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a registration of ordinary memory must not cost a request. Guarantees: nobody has more MRs than its account and its
 * device allow, whether they are there or not; what a client writes is read with pread, copied, read again to see that it is
 * whole, and then checked; looking takes time in proportion to the places of one process.
 */
#include "daemon/mr_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/log.h"
#include "daemon/mr.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/limits.h"
#include "proto/ring_abi.h"

/* What is kept in advance is at most this part of what is left. */
#define SHARE 64
/* Places that are read at once. */
#define BLOCK 64
/* A key that moved from one place to another between two reads is taken twice: then it is looked at again. */
#define ROUNDS 3
/* Places that one look at everybody's may take. */
#define LOOK_ALL 65536

/* --- having them --------------------------------------------------------------------------------------------------- */

static uint64_t share_of_left(const struct attachment *attachment)
{
	const struct context *context = attachment->context;
	uint64_t most = context->device->attr.max_mr, left = 0;

	if (context->count[OBJECT_MR] < most)
		left = most - context->count[OBJECT_MR];
	for (const struct account *a = &attachment->domain->account; a; a = a->parent) {
		uint64_t limit = a->limit[SLOT_MRS], used = a->used[SLOT_MRS];

		if (used >= limit)
			left = 0;
		else if (limit - used < left)
			left = limit - used;
	}
	return left / SHARE;
}

static int places_grow(struct process *process, uint32_t more)
{
	uint32_t n = process->n_places;
	struct mr **places;

	if (more > VSD_PAGE_MRS - n)
		more = VSD_PAGE_MRS - n;
	if (more == 0)
		return 0;
	places = reallocarray(process->places, n + more, sizeof(struct mr *));
	if (!places)
		return -ENOMEM;
	memset(places + n, 0, more * sizeof(struct mr *));
	process->places = places;
	process->n_places += more;
	return 0;
}

/* The next free one from @at on; n_places: none. */
static uint32_t place_free(const struct process *process, uint32_t at)
{
	while (at < process->n_places && process->places[at])
		at++;
	return at;
}

static uint32_t count_free(const struct process *process)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < process->n_places; i++)
		n += !process->places[i];
	return n;
}

static struct mr *mr_vacant(struct attachment *attachment)
{
	struct object *object;

	if (object_new(attachment, OBJECT_MR, 0, &object) < 0 || object_set_aside(object) < 0)
		return NULL;
	return (struct mr *)object;
}

uint32_t mr_places_new(struct attachment *attachment, uint32_t wanted, struct mr **mrs)
{
	struct process *process = attachment->session->process;
	uint64_t share = share_of_left(attachment);
	uint32_t at = 0, free = count_free(process), n = 0;

	if (wanted > VSD_MR_PLACES)
		wanted = VSD_MR_PLACES;
	if (wanted > share)
		wanted = (uint32_t)share;
	if (free < wanted && places_grow(process, wanted - free) < 0)
		return 0;
	for (; n < wanted; n++) {
		at = place_free(process, at);
		if (at == process->n_places)
			break;
		mrs[n] = mr_vacant(attachment);
		if (!mrs[n])
			break;
		mrs[n]->place = at + 1;
		process->places[at] = mrs[n];
		list_append(&attachment->places, &mrs[n]->link_place);
	}
	return n;
}

void mr_places_close(struct attachment *attachment)
{
	struct process *process = attachment->session->process;

	if (!process)
		return;
	list_for_each (pos, &attachment->places)
		process->places[container_of(pos, struct mr, link_place)->place - 1] = NULL;
}

/* --- coming and going ---------------------------------------------------------------------------------------------- */

static void go(struct mr *mr, bool tell)
{
	lease_number_give(&mr->object.owner->leases[LEASE_KIND_KEY], mr->key >> 8);
	object_go(&mr->object, tell);
	mr->there = false;
}

static int come(struct mr *mr, const struct vsd_mr *line, bool tell)
{
	struct attachment *attachment = mr->object.owner;
	struct object *pd = pd_get(attachment, line->pd);
	const struct mr_attr attr = {
		.addr = line->addr, .length = line->length, .iova = line->iova, .access = line->access
	};
	int r = pd ? mr_check(attachment->context, &attr) : -EINVAL;

	if (r == 0)
		r = lease_number_take(&attachment->leases[LEASE_KIND_KEY], line->key >> 8);
	if (r < 0)
		return r;
	mr->attr = attr;
	mr->key = line->key;
	mr->there = true;
	object_refer(&mr->object, MR_REF_PD, pd);
	object_come(&mr->object, tell);
	return 0;
}

bool mr_places_reap(struct attachment *attachment, unsigned *budget)
{
	while (!list_empty(&attachment->places)) {
		struct mr *mr = container_of(attachment->places.next, struct mr, link_place);

		if (*budget == 0)
			return false;
		--*budget;
		if (mr->there)
			go(mr, false);
		list_remove(&mr->link_place);
		object_drop(&mr->object);
	}
	return true;
}

/* --- looking ------------------------------------------------------------------------------------------------------- */

struct look {
	struct process *process;
	unsigned tell;
	bool last;  /* nothing is put off any more */
	bool again; /* something was */
};

static bool tell(struct look *look)
{
	if (look->tell == 0)
		return false;
	look->tell--;
	return true;
}

static bool read_block(const struct process *process, uint32_t first, struct vsd_mr lines[BLOCK])
{
	size_t size = BLOCK * sizeof(struct vsd_mr);

	return pread(process->page, lines, size,
		       (off_t)(offsetof(struct vsd_page, mrs) + first * sizeof(struct vsd_mr))) == (ssize_t)size;
}

static struct mr *mr_at(const struct process *process, uint32_t at)
{
	return at < process->n_places ? process->places[at] : NULL;
}

/* What was there and is not any more. */
static void block_go(struct look *look, uint32_t first)
{
	struct vsd_mr lines[BLOCK];

	if (!read_block(look->process, first, lines))
		return;
	for (uint32_t i = 0; i < BLOCK; i++) {
		struct mr *mr = mr_at(look->process, first + i);

		if (!mr || mr->gen == lines[i].gen)
			continue;
		if (mr->there)
			go(mr, tell(look));
		mr->gen = 0;
	}
}

static void refused(const struct process *process, const struct mr *mr, int r)
{
	session_log(process->session, LOG_LEVEL_INFO, NULL, "place %u of its page: mr with key 0x%x: %s%s%s", mr->place - 1,
		mr->key, strerror(-r), refuse_reason()[0] ? ": " : "", refuse_reason());
}

static void mr_come(struct look *look, struct mr *mr, const struct vsd_mr *line)
{
	int r;

	refuse_clear();
	r = come(mr, line, look->tell > 0);
	if (r == 0)
		(void)tell(look);
	if (r == -EEXIST && !look->last) {
		look->again = true;
		return;
	}
	mr->gen = line->gen;
	if (r < 0) {
		mr->key = line->key;
		refused(look->process, mr, r);
	}
}

static bool same(const struct vsd_mr *a, const struct vsd_mr *b)
{
	return a->gen == b->gen && a->addr == b->addr && a->length == b->length && a->iova == b->iova && a->key == b->key &&
	       a->access == b->access && a->pd == b->pd;
}

/* What is there now. What two reads say alike was so between them: each registration has a generation of its own. */
static void block_come(struct look *look, uint32_t first)
{
	struct vsd_mr lines[BLOCK], again[BLOCK];
	bool any = false;

	if (!read_block(look->process, first, lines))
		return;
	for (uint32_t i = 0; i < BLOCK && !any; i++) {
		const struct mr *mr = mr_at(look->process, first + i);

		any = mr && mr->gen == 0 && lines[i].gen;
	}
	if (!any || !read_block(look->process, first, again))
		return;
	for (uint32_t i = 0; i < BLOCK; i++) {
		struct mr *mr = mr_at(look->process, first + i);

		if (mr && mr->gen == 0 && lines[i].gen && same(&lines[i], &again[i]))
			mr_come(look, mr, &lines[i]);
	}
}

uint32_t mr_places_look(struct process *process, unsigned tell)
{
	struct look look = { .process = process, .tell = tell };
	uint64_t changes;

	if (!process || process->n_places == 0 || process->session->state == SESSION_LOST)
		return 0;
	if (pread(process->page, &changes, sizeof(changes), offsetof(struct vsd_page, mr_changes)) != sizeof(changes) ||
		changes == process->places_seen)
		return 0;
	process->places_seen = changes;
	for (unsigned round = 0; round < ROUNDS; round++) {
		look.again = false;
		look.last = round == ROUNDS - 1;
		for (uint32_t i = 0; i < process->n_places; i += BLOCK)
			block_go(&look, i);
		for (uint32_t i = 0; i < process->n_places; i += BLOCK)
			block_come(&look, i);
		if (!look.again)
			break;
	}
	return process->n_places;
}

void mr_places_look_context(struct context *context)
{
	list_for_each (pos, &context->attachments) {
		const struct attachment *attachment =
			container_of(pos, struct attachment, link_context);

		if (attachment->session && !list_empty(&attachment->places))
			mr_places_look(attachment->session->process, 0);
	}
}

void mr_places_look_all(struct server *server)
{
	uint32_t looked = 0;

	list_for_each (pos, &server->sessions) {
		looked += mr_places_look(container_of(pos, struct session, link)->process, 0);
		if (looked > LOOK_ALL)
			return;
	}
}

int mr_key_take(struct attachment *attachment, uint32_t key)
{
	int r = lease_number_take(&attachment->leases[LEASE_KIND_KEY], key >> 8);

	if (r != -EEXIST || list_empty(&attachment->places))
		return r;
	mr_places_look(attachment->session->process, 0);
	return lease_number_take(&attachment->leases[LEASE_KIND_KEY], key >> 8);
}
