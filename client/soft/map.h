/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants of the map engine: which of a peer's keys give access to a shared region that this process may map, and the
 * mapping. A grant is the daemon's word alone; a peer's page says only that it is worth asking.
 *
 * A grant belongs to one generation of one entry in the peer's page. Its lookup takes no lock: it is valid from
 * pair_hazard_enter() to pair_hazard_leave(), and nothing of it is freed before (hazard.c counts turns). Everything else
 * happens under one lock of the process, away from posting and polling, but for a key's first use.
 */
#ifndef SOFT_MAP_H
#define SOFT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "client/control/control.h"
#include "client/soft/wire.h"

struct map_grant;

enum map_result {
	MAP_FOUND,
	MAP_ABSENT, /* not resolved yet: map_ask(), and let another engine run */
	MAP_PASS,	    /* resolved, and not for this: another engine */
	MAP_BAD,    /* no memory behind the range: the owner's verdict counts */
};

/* The peer says that @rkey is of a region. */
bool map_hinted(const struct pair *pair, uint32_t rkey);
/* There is a grant, of this entry or of one before it: a WR may rather wait for its turn than take the lane. */
bool map_given(const struct pair *pair, uint32_t rkey);
/*
 * The address here of [addr, addr+length) of the region that @rkey gives access to, the pages of its first @n bytes
 * present. Inside a hazard that names @rkey; the caller has checked entry and gate with mr_peer_check().
 */
enum map_result map_find(struct pair *pair, uint32_t rkey, uint64_t addr, uint64_t length, uint64_t n, bool write,
			 void **ptr);
/*
 * Notes in wire->view that the peer's entry and gate, as they are now, allow @access, and that there is a grant. Inside the
 * hazard in which mr_peer_check() and map_find() said so.
 */
void map_remember(struct wire *wire, uint32_t rkey, unsigned access);

/*
 * What both would say of [addr, addr+n) of the key of wire->view, inside a hazard that names it: its address here; the window of
 * the view is around it. NULL: ask them.
 */
void *map_again(struct wire *wire, uint64_t addr, uint64_t n, unsigned access);

/* The address here of [addr, addr+n); NULL: not in the window. */
static inline void *map_window_at(const struct map_window *window, uint64_t addr, uint64_t n, unsigned access)
{
	uint64_t off = addr - window->from;

	if (off >= window->length || n > window->length - off || access & ~window->access)
		return NULL;
	return window->at + off;
}
/*
 * Asks the daemon for the key, in the background; once for each generation. @qpn: our QP that leads there. Outside of a
 * hazard, under any lock.
 */
void map_ask(struct pair *pair, uint32_t rkey, uint32_t qpn);

/* --- the progress thread's ------------------------------------------------------------------------------------------ */
/* The answer to what map_ask() asked. @fd is taken over. @reply is NULL when @status is not 0. Progress lock held. */
void map_answer(uint32_t segment, unsigned side, uint32_t rkey, uint64_t gen, int status,
		const Vsd__RegionGrantReply *reply, int fd);
/* Drops what the peer has closed or changed since. Progress lock held. */
void map_look(void);
/* The peer is dead: nothing of it is used any more. Progress lock held. */
void map_drop(struct pair *pair);
/* Unmaps what was dropped and has no user any more. No lock held. */
void map_reap(void);
/* There is something that map_look() or map_reap() has to look at. */
bool map_any(void);
/* The pair goes: no thread is inside any more. Progress lock held. */
void map_free(struct pair *pair);
/* The runtime has stopped, and all pairs are gone. */
void map_stop(void);

#endif
