/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places are a queue, as keys are: a handle comes back as late as possible. Who writes a place has it to itself; the daemon
 * may look at any moment, and knows by the generation whether what it read is whole (proto/ring_abi.h).
 */
#include "client/soft/mr_place.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/control/control.h"
#include "client/soft/rt_private.h"
#include "proto/limits.h"

#define FIRST 16
/* So many registrations go by request before it is asked again for what was not to be had. */
#define PAUSE 64
#define LINES (4096 / sizeof(struct vsd_mr)) /* of a page of memory */

struct place {
	uint32_t at, handle;
};

struct mr_places {
	pthread_mutex_t lock;
	uint32_t context;
	struct place *ring;
	uint32_t size, head, count; /* size: all that were given */
	unsigned pause;
};

static _Atomic uint64_t last_gen;

struct mr_places *mr_places_new(uint32_t context)
{
	struct mr_places *places = calloc(1, sizeof(*places));

	if (!places)
		return NULL;
	pthread_mutex_init(&places->lock, NULL);
	places->context = context;
	return places;
}

struct mr_places *mr_places_free(struct mr_places *places)
{
	if (!places)
		return NULL;
	pthread_mutex_destroy(&places->lock);
	free(places->ring);
	free(places);
	return NULL;
}

/* --- what the daemon sees ------------------------------------------------------------------------------------------ */

static void changed(void)
{
	atomic_fetch_add_explicit(&rt.page->mr_changes, 1, memory_order_release);
}

static void line_clear(struct vsd_mr *line)
{
	atomic_store_explicit(&line->gen, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void line_store(struct vsd_mr *line, const struct soft_mr *mr)
{
	line_clear(line);
	atomic_store_explicit(&line->addr, (uint64_t)(uintptr_t)mr->mem, memory_order_relaxed);
	atomic_store_explicit(&line->length, mr->mr.length, memory_order_relaxed);
	atomic_store_explicit(&line->iova, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&line->key, mr->key, memory_order_relaxed);
	atomic_store_explicit(&line->access, mr->access, memory_order_relaxed);
	atomic_store_explicit(&line->pd, mr->pd->pd.handle, memory_order_relaxed);
	atomic_store_explicit(&line->gen, atomic_fetch_add(&last_gen, 1) + 1, memory_order_release);
	changed();
}

/* --- having places ------------------------------------------------------------------------------------------------- */

static int ring_grow(struct mr_places *places, const Vsd__MrPlacesReply *reply)
{
	uint32_t size = places->size + (uint32_t)reply->n_places;
	struct place *ring = calloc(size, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < places->count; i++)
		ring[i] = places->ring[(places->head + i) % places->size];
	for (size_t i = 0; i < reply->n_places; i++)
		ring[places->count++] = (struct place){ reply->places[i], reply->handles[i] };
	free(places->ring);
	places->ring = ring;
	places->size = size;
	places->head = 0;
	return 0;
}

/* A page of the table that is not there, and cannot be had, would be a SIGBUS later. */
static int check(const Vsd__MrPlacesReply *reply)
{
	if (reply->n_places != reply->n_handles || reply->n_places > VSD_MR_PLACES)
		return -EPROTO;
	for (size_t i = 0; i < reply->n_places; i++) {
		uint32_t page = reply->places[i] / LINES;
		int r = 0;

		if (reply->places[i] >= VSD_PAGE_MRS)
			return -EPROTO;
		if (i == 0 || page != reply->places[i - 1] / LINES)
			r = rt_populate(&rt.page->mrs[(size_t)page * LINES], 4096);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Asks the daemon for as many again. 0 or a negative errno; there may be none all the same. */
static int more(struct mr_places *places)
{
	Vsd__MrPlacesRequest request = VSD__MR_PLACES_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	request.context = places->context;
	request.count = places->size ? places->size : FIRST;
	r = control_call(VSD__OP__OP_MR_PLACES, &request.base, &vsd__mr_places_reply__descriptor, &reply, NULL);
	if (r == 0)
		r = check((const Vsd__MrPlacesReply *)reply);
	if (r == 0 && ((const Vsd__MrPlacesReply *)reply)->n_places)
		r = ring_grow(places, (const Vsd__MrPlacesReply *)reply);
	protobuf_c_message_free_unpacked(reply, NULL);
	return r;
}

static bool have_one(struct mr_places *places)
{
	if (places->count)
		return true;
	if (places->pause) {
		places->pause--;
		return false;
	}
	if (more(places) < 0 || !places->count)
		places->pause = PAUSE;
	return places->count;
}

int mr_place_take(struct mr_places *places, struct soft_mr *mr)
{
	struct place place;
	bool have;

	if (!rt.page || !control_offers(VSD_FEATURE_MR_PLACES) || rt_watched())
		return -EAGAIN;
	pthread_mutex_lock(&places->lock);
	have = have_one(places);
	if (have) {
		place = places->ring[places->head];
		places->head = (places->head + 1) % places->size;
		places->count--;
	}
	pthread_mutex_unlock(&places->lock);
	if (!have)
		return -EAGAIN;
	mr->handle = place.handle;
	mr->place = place.at + 1;
	line_store(&rt.page->mrs[place.at], mr);
	return 0;
}

void mr_place_change(const struct soft_mr *mr)
{
	if (rt.page)
		line_store(&rt.page->mrs[mr->place - 1], mr);
}

/* Whoever watches is told by the daemon, and that when it looks. */
static void show(const struct mr_places *places)
{
	Vsd__MrPlacesRequest request = VSD__MR_PLACES_REQUEST__INIT;

	request.context = places->context;
	control_call(VSD__OP__OP_MR_PLACES, &request.base, NULL, NULL, NULL);
}

void mr_place_put(struct mr_places *places, struct soft_mr *mr)
{
	struct place place = { mr->place - 1, mr->handle };

	if (rt.page) { /* it goes before its process does */
		line_clear(&rt.page->mrs[place.at]);
		changed();
		if (rt_watched())
			show(places);
	}
	mr->place = 0;
	pthread_mutex_lock(&places->lock);
	places->ring[(places->head + places->count++) % places->size] = place;
	pthread_mutex_unlock(&places->lock);
}
