/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants of the map engine (datapath.md 2). They are kept per pair, in a table with the shape of the peer's: one grant
 * for each slot of its page's keys. What is published there does not change any more; whoever replaces it puts the old
 * one aside until every thread that may have seen it has left its hazard slot.
 */
#include "client/soft/map.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/in_child.h"
#include "client/soft/region.h"
#include "client/soft/rt_private.h"

#define LEAF	  256u
#define LEAVES	  (VSD_PAGE_KEYS / LEAF)
#define ASKED_MAX 64u	/* answers that this process waits for at a time */
#define CHUNK	  65536u /* bytes of a region that are made present at once */

enum grant_state {
	GRANT_ASKED,
	GRANT_GIVEN,
	GRANT_REFUSED,
};

struct map_grant {
	uint64_t number; /* of all grants of this process, from 1 on: no two have the same */
	uint64_t gen;	 /* of the entry, when it was asked for */
	uint32_t key;
	uint32_t wires; /* that the pair had had by then: a refusal may have been for want of one */
	enum grant_state state;
	bool passing; /* of a refusal: it may be over soon */
	bool writable;
	struct soft_region *region;
	uint64_t base, size; /* the region: the address of its first byte in work requests to this key, and its bytes */
	uint64_t iova;	     /* where the key begins */
	struct map_grant *next;
	/* dropped: */
	struct pair *pair; /* whose slots may still use it; NULL: nobody does */
	uint32_t turns[VSD_HAZARDS];
	/* a bit a chunk: its pages were made present */
	_Atomic uint64_t present[];
};

struct map_leaf {
	_Atomic(struct map_grant *) grants[LEAF];
	_Atomic uint64_t given[LEAF / 64]; /* a bit a place, for who only wants to know */
};

struct map_table {
	_Atomic(struct map_leaf *) leaves[LEAVES];
	struct map_grant *live;
};

/* Changes of all tables, and what was dropped. A leaf, but for the queue of requests. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map_grant *dropped;
static unsigned asked;
static _Atomic uint64_t numbers; /* of grants: the last one */
static _Atomic unsigned grants; /* live or dropped */

void map_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	dropped = NULL;
	asked = 0;
	atomic_store(&grants, 0);
}

static uint32_t slot_of(uint32_t rkey)
{
	return (rkey >> 8) % VSD_PAGE_KEYS;
}

static const struct vsd_key *entry_of(const struct pair *pair, uint32_t rkey)
{
	return &pair->page->keys[slot_of(rkey)];
}

static struct map_leaf *leaf_of(const struct pair *pair, uint32_t rkey)
{
	struct map_table *table = atomic_load_explicit(&pair->priv->map, memory_order_acquire);

	if (!table)
		return NULL;
	return atomic_load_explicit(&table->leaves[slot_of(rkey) / LEAF], memory_order_acquire);
}

static struct map_grant *lookup(const struct pair *pair, uint32_t rkey)
{
	struct map_leaf *leaf = leaf_of(pair, rkey);

	return leaf ? atomic_load_explicit(&leaf->grants[slot_of(rkey) % LEAF], memory_order_acquire) : NULL;
}

bool map_hinted(const struct pair *pair, uint32_t rkey)
{
	return atomic_load_explicit(&entry_of(pair, rkey)->region, memory_order_relaxed) != 0;
}

bool map_given(const struct pair *pair, uint32_t rkey)
{
	const struct map_leaf *leaf = leaf_of(pair, rkey);
	uint32_t at = slot_of(rkey) % LEAF;

	return leaf && (atomic_load_explicit(&leaf->given[at / 64], memory_order_relaxed) >> (at % 64) & 1);
}

/* --- pages ------------------------------------------------------------------------------------------------------------ */

static bool is_present(const struct map_grant *grant, uint64_t chunk)
{
	return atomic_load_explicit(&grant->present[chunk / 64], memory_order_relaxed) >> (chunk % 64) & 1;
}

static int chunks_populate(struct map_grant *grant, uint64_t from, uint64_t to, bool write)
{
	uint64_t end = to * CHUNK < grant->size ? to * CHUNK : grant->size;
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	while (madvise(grant->region->addr + from * CHUNK, end - from * CHUNK, advice) < 0) {
		if (errno == EINVAL) /* before Linux 5.14: a fault is all there is */
			break;
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	for (uint64_t chunk = from; chunk < to; chunk++)
		atomic_fetch_or_explicit(&grant->present[chunk / 64], 1ull << (chunk % 64), memory_order_relaxed);
	return 0;
}

/*
 * A region's pages come into being when they are first touched, and where there is no memory for one, or no huge page
 * is left, a touch is a SIGBUS. So the first touch of each chunk is a call that can fail. What remains: somebody who may
 * write the region can punch a hole into it after that, and then the host can run out of memory before it is touched
 * again. A region's users trust each other that much (the SHRINK seal stops truncation, which would be worse).
 */
static int grant_populate(struct map_grant *grant, uint64_t off, uint64_t n, bool write)
{
	uint64_t chunk = off / CHUNK, end = (off + n - 1) / CHUNK + 1;

	while (chunk < end) {
		uint64_t from = chunk;
		int r;

		if (is_present(grant, chunk)) {
			chunk++;
			continue;
		}
		while (chunk < end && !is_present(grant, chunk))
			chunk++;
		r = chunks_populate(grant, from, chunk, write);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- use -------------------------------------------------------------------------------------------------------------- */

/* It speaks of the entry as it is now. A refusal is not for ever: another QP of the peer's may stand on another PD. */
static bool grant_holds(const struct pair *pair, const struct map_grant *grant, uint32_t rkey)
{
	uint64_t gen = atomic_load_explicit(&entry_of(pair, rkey)->gen, memory_order_acquire);

	if (!grant || grant->key != rkey || grant->gen != gen)
		return false;
	return grant->state != GRANT_REFUSED ||
	       grant->wires == atomic_load_explicit(&pair->priv->wires_made, memory_order_relaxed);
}

enum map_result map_find(struct pair *pair, uint32_t rkey, uint64_t addr, uint64_t length, uint64_t n, bool write,
			 void **ptr)
{
	struct map_grant *grant = lookup(pair, rkey);

	if (!grant_holds(pair, grant, rkey))
		return MAP_ABSENT;
	if (grant->state != GRANT_GIVEN || (write && !grant->writable))
		return MAP_PASS;

	/* The owner's translation is the region's own, or it is not for us. */
	uint64_t iova = atomic_load_explicit(&entry_of(pair, rkey)->iova, memory_order_relaxed);
	uint64_t off = addr - grant->base;

	if (iova != grant->iova || off > grant->size || length > grant->size - off || n > length)
		return MAP_BAD;
	if (n && grant_populate(grant, off, n, write) < 0)
		return MAP_BAD;
	*ptr = grant->region->addr + off;
	return MAP_FOUND;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool all_present(const struct map_grant *grant, uint64_t chunk, uint64_t end)
{
	while (chunk < end && is_present(grant, chunk))
		chunk++;
	return chunk == end;
}

/* The window of @view becomes all of the chunks of [addr, addr+n), as far as the key goes. */
static bool window_open(struct wire_view *view, const struct map_grant *grant, uint64_t addr, uint64_t n)
{
	struct map_window *window = &view->window;
	uint64_t off = addr - grant->base, from = addr - view->iova, low, high;

	if (from > view->length || n > view->length - from || grant->iova != view->iova || off > grant->size ||
	    n > grant->size - off)
		return false;
	low = off / CHUNK;
	high = (off + n - 1) / CHUNK + 1;
	if (!all_present(grant, low, high))
		return false;
	low = smaller(off - low * CHUNK, from);
	high = smaller(smaller(high * CHUNK, grant->size) - off, view->length - from);
	window->from = addr - low;
	window->length = low + high;
	window->access = grant->writable ? view->access : view->access & IBV_ACCESS_REMOTE_READ;
	window->at = grant->region->addr + off - low;
	return true;
}

/*
 * The generations stand for all that was checked of entry and gate; the grant may be another one since. Of one and the same
 * grant nothing changes, and what was present once stays so: a window of it is good for as long as it is there.
 */
void *map_again(struct wire *wire, uint64_t addr, uint64_t n, unsigned access)
{
	struct wire_view *view = &wire->view;
	const struct vsd_page *page = wire->pair->page;
	const struct vsd_gate *gate = &page->gates[wire->peer_qpn % VSD_PAGE_GATES];
	const struct map_grant *grant = atomic_load_explicit(view->place, memory_order_acquire);
	void *at;

	if (atomic_load_explicit(&page->keys[slot_of(view->key)].gen, memory_order_acquire) != view->entry ||
	    atomic_load_explicit(&gate->gen, memory_order_acquire) != view->gate || access & ~view->access || !grant || !n)
		return NULL;
	if (grant->number == view->grant) {
		at = map_window_at(&view->window, addr, n, access);
		if (at)
			return at;
	}
	view->grant = 0;
	if (grant->gen != view->entry || grant->key != view->key || grant->state != GRANT_GIVEN ||
	    !window_open(view, grant, addr, n))
		return NULL;
	view->grant = grant->number;
	return map_window_at(&view->window, addr, n, access);
}

void map_remember(struct wire *wire, uint32_t rkey, unsigned access)
{
	struct wire_view *view = &wire->view;
	const struct vsd_key *entry = entry_of(wire->pair, rkey);
	const struct vsd_gate *gate = &wire->pair->page->gates[wire->peer_qpn % VSD_PAGE_GATES];
	struct wire_view now = {
		.key = rkey,
		.entry = atomic_load_explicit(&entry->gen, memory_order_acquire),
		.gate = atomic_load_explicit(&gate->gen, memory_order_acquire),
		.iova = atomic_load_explicit(&entry->iova, memory_order_acquire),
		.length = atomic_load_explicit(&entry->length, memory_order_acquire),
		.access = access,
		.place = &leaf_of(wire->pair, rkey)->grants[slot_of(rkey) % LEAF],
	};

	if (!now.entry || !now.gate)
		return; /* closed just now */
	if (view->key == rkey && view->entry == now.entry && view->gate == now.gate)
		now.access |= view->access;
	*view = now;
}

/* --- changes: lock held ------------------------------------------------------------------------------------------------- */

static struct map_leaf *leaf_make(struct pair *pair, uint32_t rkey)
{
	struct map_table *table = atomic_load(&pair->priv->map);
	struct map_leaf *leaf;

	if (!table) {
		table = calloc(1, sizeof(*table));
		if (!table)
			return NULL;
		atomic_store(&pair->priv->map, table);
	}
	leaf = atomic_load(&table->leaves[slot_of(rkey) / LEAF]);
	if (!leaf) {
		leaf = calloc(1, sizeof(*leaf));
		if (leaf)
			atomic_store(&table->leaves[slot_of(rkey) / LEAF], leaf);
	}
	return leaf;
}

static struct map_grant *grant_new(uint32_t rkey, uint64_t gen, enum grant_state state, uint64_t size)
{
	size_t words = (size_t)(size / CHUNK / 64 + 1);
	struct map_grant *grant = calloc(1, sizeof(*grant) + words * sizeof(grant->present[0]));

	if (!grant)
		return NULL;
	grant->number = atomic_fetch_add(&numbers, 1) + 1;
	grant->key = rkey;
	grant->gen = gen;
	grant->state = state;
	grant->size = size;
	atomic_fetch_add(&grants, 1);
	return grant;
}

static void list_remove(struct map_grant **list, const struct map_grant *grant)
{
	while (*list != grant)
		list = &(*list)->next;
	*list = grant->next;
}

/* It is not published any more: it goes when those have left who may have seen it (@pair NULL: nobody has). */
static void grant_drop(struct map_grant *grant, struct pair *pair)
{
	grant->pair = pair;
	if (pair) {
		atomic_thread_fence(memory_order_seq_cst);
		for (unsigned i = 0; i < VSD_HAZARDS; i++)
			grant->turns[i] = atomic_load_explicit(&pair->priv->turns[i], memory_order_acquire);
	}
	grant->next = dropped;
	dropped = grant;
}

/* Puts @grant (NULL: nothing) into its place; what was there is dropped. */
static void place_set(struct pair *pair, uint32_t rkey, struct map_grant *grant)
{
	struct map_leaf *leaf = leaf_of(pair, rkey);
	uint32_t at = slot_of(rkey) % LEAF;
	uint64_t bit = 1ull << (at % 64);
	struct map_grant *old = atomic_exchange(&leaf->grants[at], grant);

	if (grant && grant->state == GRANT_GIVEN)
		atomic_fetch_or(&leaf->given[at / 64], bit);
	else
		atomic_fetch_and(&leaf->given[at / 64], ~bit);
	if (old) {
		list_remove(&atomic_load(&pair->priv->map)->live, old);
		grant_drop(old, pair);
	}
}

/* @wires: how many the pair had had when it was asked for. The place is there. */
static void grant_publish(struct pair *pair, struct map_grant *grant, uint32_t wires)
{
	struct map_table *table = atomic_load(&pair->priv->map);

	grant->wires = wires;
	place_set(pair, grant->key, grant);
	grant->next = table->live;
	table->live = grant;
}

static bool grant_idle(const struct map_grant *grant)
{
	for (unsigned i = 0; grant->pair && i < VSD_HAZARDS; i++)
		if (grant->turns[i] & 1 &&
		    atomic_load_explicit(&grant->pair->priv->turns[i], memory_order_acquire) == grant->turns[i])
			return false;
	return true;
}

static void grant_free(struct map_grant *grant)
{
	if (grant->region)
		region_put(grant->region);
	free(grant);
	atomic_fetch_sub(&grants, 1);
}

/* --- asking ------------------------------------------------------------------------------------------------------------- */

static void ask_failed(struct pair *pair, const struct map_grant *grant)
{
	pthread_mutex_lock(&lock);
	asked--;
	/* By now the entry may have changed, and another may have asked. */
	if (lookup(pair, grant->key) == grant)
		place_set(pair, grant->key, NULL);
	pthread_mutex_unlock(&lock);
}

void map_ask(struct pair *pair, uint32_t rkey, uint32_t qpn)
{
	uint64_t gen = atomic_load_explicit(&entry_of(pair, rkey)->gen, memory_order_acquire);
	struct map_grant *grant = NULL;

	pthread_mutex_lock(&lock);
	if (gen && asked < ASKED_MAX && leaf_make(pair, rkey) && !grant_holds(pair, lookup(pair, rkey), rkey))
		grant = grant_new(rkey, gen, GRANT_ASKED, 0);
	if (grant) {
		grant_publish(pair, grant, atomic_load(&pair->priv->wires_made));
		asked++;
	}
	pthread_mutex_unlock(&lock);
	if (grant && !events_grant(pair, rkey, qpn, gen))
		ask_failed(pair, grant);
}

static bool is_passing(int status)
{
	return status == EMFILE || status == ENFILE || status == ENOMEM || status == EAGAIN || status == EBUSY;
}

/* What the answer means, published or not. */
static struct map_grant *answer_grant(uint32_t rkey, uint64_t gen, int status, const Vsd__RegionGrantReply *reply,
				      int fd)
{
	struct soft_region *region = NULL;
	struct map_grant *grant;

	if (status == 0 && fd < 0)
		status = EMFILE; /* lost on the way: this process is at its limit */
	if (status == 0 && (!reply || !reply->size))
		status = EPROTO;
	if (status == 0)
		status = -region_map_granted(reply->region, fd, reply->has_offset ? 0 : reply->iova, reply->size,
					     reply->writable, &region);
	else if (fd >= 0)
		close(fd);
	grant = grant_new(rkey, gen, status ? GRANT_REFUSED : GRANT_GIVEN, status ? 0 : reply->size);
	if (!grant) {
		if (region)
			region_put(region);
		return NULL;
	}
	if (status) {
		grant->passing = is_passing(status);
		control_debug("key 0x%x is not mapped: %s", rkey, strerror(status));
		return grant;
	}
	grant->region = region;
	grant->iova = reply->iova;
	grant->base = reply->iova - (reply->has_offset ? reply->offset : 0);
	grant->writable = reply->writable && region->writable;
	control_debug("key 0x%x is region %u, mapped %s", rkey, reply->region, grant->writable ? "for writing" : "read-only");
	return grant;
}

void map_answer(uint32_t segment, unsigned side, uint32_t rkey, uint64_t gen, int status,
		const Vsd__RegionGrantReply *reply, int fd)
{
	struct map_grant *grant = answer_grant(rkey, gen, status, reply, fd);
	struct pair *pair = pair_find(segment, side);
	const struct map_grant *waiting;

	pthread_mutex_lock(&lock);
	asked--;
	waiting = pair ? lookup(pair, rkey) : NULL;
	if (grant && waiting && waiting->state == GRANT_ASKED && waiting->key == rkey && waiting->gen == gen)
		grant_publish(pair, grant, waiting->wires);
	else if (grant)
		grant_drop(grant, NULL);
	pthread_mutex_unlock(&lock);
}

/* --- what is over --------------------------------------------------------------------------------------------------------- */

/* The mapping of a key that its owner closed would keep the memory, and the daemon's charge for it, alive. */
static bool is_stale(const struct pair *pair, const struct map_grant *grant)
{
	const struct vsd_key *entry = entry_of(pair, grant->key);

	if (atomic_load(&pair->dead))
		return true;
	if (grant->state == GRANT_ASKED)
		return false;
	return grant->passing || !pair->priv->attached ||
	       atomic_load_explicit(&entry->gen, memory_order_relaxed) != grant->gen;
}

static void drop_where(struct pair *pair, bool all)
{
	struct map_table *table = atomic_load(&pair->priv->map);

	if (!table)
		return;
	for (struct map_grant *grant = table->live, *next; grant; grant = next) {
		next = grant->next;
		if (all || is_stale(pair, grant))
			place_set(pair, grant->key, NULL);
	}
}

void map_look(void)
{
	if (!map_any())
		return;
	pthread_mutex_lock(&lock);
	for (unsigned side = 0; side < 2; side++)
		if (rt.loop[side].priv)
			drop_where(&rt.loop[side], false);
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		drop_where(pair, false);
	pthread_mutex_unlock(&lock);
}

void map_drop(struct pair *pair)
{
	pthread_mutex_lock(&lock);
	drop_where(pair, true);
	pthread_mutex_unlock(&lock);
}

void map_reap(void)
{
	struct map_grant *idle = NULL;

	pthread_mutex_lock(&lock);
	for (struct map_grant **at = &dropped; *at;) {
		struct map_grant *grant = *at;

		if (!grant_idle(grant)) {
			at = &grant->next;
			continue;
		}
		*at = grant->next;
		grant->next = idle;
		idle = grant;
	}
	pthread_mutex_unlock(&lock);
	/* The last unmapping of a large region takes its time. */
	while (idle) {
		struct map_grant *next = idle->next;

		grant_free(idle);
		idle = next;
	}
}

bool map_any(void)
{
	return atomic_load_explicit(&grants, memory_order_relaxed);
}

void map_stop(void)
{
	asked = 0;
	map_reap();
}

void map_free(struct pair *pair)
{
	struct map_table *table = atomic_load(&pair->priv->map);

	pthread_mutex_lock(&lock);
	drop_where(pair, true);
	for (struct map_grant *grant = dropped; grant; grant = grant->next)
		if (grant->pair == pair)
			grant->pair = NULL;
	pthread_mutex_unlock(&lock);
	if (!table)
		return;
	for (unsigned i = 0; i < LEAVES; i++)
		free(atomic_load(&table->leaves[i]));
	free(table);
	atomic_store(&pair->priv->map, NULL);
}
