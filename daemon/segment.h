/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where wires lie in a pair segment. A slot keeps its place and size for as long as the segment lives, so that a half
 * of an old wire is never under another part of a new one; it rests behind all slots of its size freed before it.
 */
#ifndef DAEMON_SEGMENT_H
#define DAEMON_SEGMENT_H

#include <stdint.h>

#define SPACE_CLASSES 8

struct space_slot {
	void *wire;      /* NULL: free */
	uint32_t offset; /* KiB */
	uint16_t next;   /* free slot of the same class */
	uint16_t class;
};

struct space_class {
	uint32_t kib;            /* 0: not used yet */
	uint16_t oldest, newest; /* 0: none */
};

struct space {
	struct space_slot *slots; /* [0] is the segment itself */
	uint32_t size, used;      /* slots allocated, slots ever given + 1 */
	uint32_t count;           /* wires in it now */
	uint32_t top;             /* KiB, the first byte never given */
	uint32_t generation;
	struct space_class classes[SPACE_CLASSES];
};

struct place {
	uint32_t index, generation;
	uint64_t offset;
};

void space_init(struct space *space);
void space_deinit(struct space *space);
/* Room for a wire with lanes of these sizes. 0, -ENOSPC: full, -ENOMEM. */
int space_take(struct space *space, uint32_t req_slots, uint32_t resp_slots, void *wire,
	struct place *place);
void space_give(struct space *space, uint32_t index);
/* The wire at @index, NULL when there is none. */
void *space_get(const struct space *space, uint32_t index);

#endif
