/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a wire in one process without a progress thread: over a memfd mapped twice, as two processes have it, or over the
 * heap, as two QPs of one process have it. One per program.
 */
#ifndef TESTS_UNIT_SOFT_TWO_H
#define TESTS_UNIT_SOFT_TWO_H

#include "client/soft/rt_private.h"

extern struct two {
	struct pair *pair[2];
	struct wire *end[2];
	int kick[2]; /* read ends: what end i is kicked by */
} two;
extern struct vsd_page *peer_page[2]; /* of the process at end i, as the other one sees it */

void two_setup(void);
void two_teardown(void);
/* Both sides of a segment. */
void two_segment_pair(void);
/* One side of another one, whose memory and whose peer's page begin so: what pair_add() says. */
int two_try(const uint32_t mem_header[2], const uint32_t page_header[2]);
/* The daemon's word of a wire of such lanes, for one side. */
Vsd__EvWire two_wire_event(unsigned side, uint32_t req, uint32_t resp);
/* Makes both ends. @loop: over the heap. */
void two_make(bool loop, uint32_t req, uint32_t resp);

#endif
