/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: one memfd holds thousands of wires, and their memory is used again while both ends may still be mapped.
 * Guarantees: two wires never overlap; a generation is never given twice in one segment; nothing here touches the
 * segment's memory.
 */
#include "daemon/segment.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/ring_abi.h"

#define SEGMENT_KIB    (VSD_SEGMENT_SIZE >> 10)
#define GENERATION_MAX (UINT32_MAX >> 2)

void space_init(struct space *space)
{
	*space = (struct space){ .used = 1, .top = VSD_SEGMENT_WIRES >> 10 };
}

void space_deinit(struct space *space)
{
	free(space->slots);
	space_init(space);
}

static struct space_class *class_find(struct space *space, uint32_t kib)
{
	for (unsigned i = 0; i < SPACE_CLASSES; i++) {
		struct space_class *class = &space->classes[i];

		if (class->kib == 0)
			class->kib = kib;
		if (class->kib == kib)
			return class;
	}
	return NULL;
}

static int grow(struct space *space)
{
	uint32_t size = space->size ? space->size * 2 : 8;
	struct space_slot *slots;

	if (size > VSD_WIRES)
		size = VSD_WIRES;
	slots = reallocarray(space->slots, size, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	space->slots = slots;
	space->size = size;
	return 0;
}

static int slot_new(struct space *space, struct space_class *class, uint32_t *index)
{
	int r;

	if (space->used == VSD_WIRES || space->top + class->kib > SEGMENT_KIB)
		return -ENOSPC;
	if (space->used >= space->size) {
		r = grow(space);
		if (r < 0)
			return r;
	}
	space->slots[space->used] = (struct space_slot){
		.offset = space->top,
		.class = (uint16_t)(class - space->classes),
	};
	space->top += class->kib;
	*index = space->used++;
	return 0;
}

int space_take(struct space *space, uint32_t req_slots, uint32_t resp_slots, void *wire,
	struct place *place)
{
	uint32_t kib = (uint32_t)((VSD_WIRE_SIZE(req_slots, resp_slots) + 1023) >> 10);
	struct space_class *class = class_find(space, kib);
	uint32_t index;
	int r;

	if (!class || space->generation == GENERATION_MAX)
		return -ENOSPC;
	if (class->oldest) {
		index = class->oldest;
		class->oldest = space->slots[index].next;
	} else {
		r = slot_new(space, class, &index);
		if (r < 0)
			return r;
	}
	space->slots[index].wire = wire;
	space->count++;
	*place = (struct place){
		.index = index,
		.generation = ++space->generation,
		.offset = (uint64_t)space->slots[index].offset << 10,
	};
	return 0;
}

void space_give(struct space *space, uint32_t index)
{
	struct space_class *class = &space->classes[space->slots[index].class];

	assert(space_get(space, index));
	space->slots[index].wire = NULL;
	space->slots[index].next = 0;
	if (class->oldest)
		space->slots[class->newest].next = (uint16_t)index;
	else
		class->oldest = (uint16_t)index;
	class->newest = (uint16_t)index;
	space->count--;
}

void *space_get(const struct space *space, uint32_t index)
{
	return index > 0 && index < space->used ? space->slots[index].wire : NULL;
}
