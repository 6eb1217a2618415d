/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MRs that their process registers by itself. It has some in advance, charged and with handles, each with a place in its
 * page; what it writes there is registered. Whoever needs to know what is (listings, imports, a PD that shall go) looks first.
 * What is written there is checked as a request would be: what does not hold is not there, and one line says why.
 */
#ifndef DAEMON_MR_PLACE_H
#define DAEMON_MR_PLACE_H

#include <stdbool.h>
#include <stdint.h>

struct attachment;
struct context;
struct mr;
struct process;
struct server;

/*
 * At most @wanted more, and no more than a share of what the account and the device have left, so that what one process keeps in
 * advance is never missing for another. Their number; 0: none can be had now.
 */
uint32_t mr_places_new(struct attachment *attachment, uint32_t wanted, struct mr **mrs);
/* At its end: its places are nobody's from now on. */
void mr_places_close(struct attachment *attachment);
/* Frees at most *@budget, which is counted down. True when none is left. */
bool mr_places_reap(struct attachment *attachment, unsigned *budget);

/* Looks at what @process (NULL: none) changed; at most @tell changes are told to those who watch. How many were looked at. */
uint32_t mr_places_look(struct process *process, unsigned tell);
/* At all that have something of @context. */
void mr_places_look_context(struct context *context);
/* At everybody's, but for those who keep it busy. */
void mr_places_look_all(struct server *server);

/* A number for an object: as lease_number_take(), but what its process gave up in its page is free. */
int mr_key_take(struct attachment *attachment, uint32_t key);

#endif
