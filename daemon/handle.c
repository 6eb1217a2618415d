/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a client's number is never a pointer, an index unchecked or another object by accident. Guarantees: "absent"
 * and "of another type" look the same; a handle that was freed rests until HANDLE_REST others were freed after it.
 */
#include "daemon/handle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void handle_table_init(struct handle_table *table, uint32_t max)
{
	*table = (struct handle_table)HANDLE_TABLE_NULL(max);
}

void handle_table_deinit(struct handle_table *table)
{
	assert(table->count == 0);
	free(table->slots);
	handle_table_init(table, table->max);
}

static int grow(struct handle_table *table)
{
	uint32_t size = table->size ? table->size * 2 : 16;
	struct handle_slot *slots;

	if (size > table->max + HANDLE_REST)
		size = table->max + HANDLE_REST;
	slots = reallocarray(table->slots, size, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	table->slots = slots;
	table->size = size;
	return 0;
}

int handle_insert(struct handle_table *table, uint32_t type, void *object, uint32_t *handle)
{
	uint32_t given;
	int r;

	if (table->count >= table->max)
		return -ENOSPC;
	if (table->resting >= HANDLE_REST) {
		given = table->oldest;
		table->oldest = table->slots[given - 1].next;
		table->resting--;
	} else {
		if (table->used == table->size) {
			r = grow(table);
			if (r < 0)
				return r;
		}
		given = ++table->used;
	}
	table->slots[given - 1] = (struct handle_slot){ .object = object, .type = type };
	table->count++;
	*handle = given;
	return 0;
}

void *handle_get(const struct handle_table *table, uint32_t handle, uint32_t type)
{
	const struct handle_slot *slot;

	if (handle == 0 || handle > table->used)
		return NULL;
	slot = &table->slots[handle - 1];
	return slot->object && slot->type == type ? slot->object : NULL;
}

void handle_remove(struct handle_table *table, uint32_t handle, uint32_t type)
{
	assert(handle_get(table, handle, type));
	table->slots[handle - 1] = (struct handle_slot){ .object = NULL };
	if (table->resting++ == 0)
		table->oldest = handle;
	else
		table->slots[table->newest - 1].next = handle;
	table->newest = handle;
	table->count--;
}

void handle_retype(struct handle_table *table, uint32_t handle, uint32_t from, uint32_t to)
{
	assert(handle_get(table, handle, from));
	table->slots[handle - 1].type = to;
}

void *handle_next(const struct handle_table *table, uint32_t *handle, uint32_t *type)
{
	for (uint32_t i = *handle ? *handle - 1 : 0; i < table->used; i++) {
		if (table->slots[i].object) {
			*handle = i + 1;
			*type = table->slots[i].type;
			return table->slots[i].object;
		}
	}
	return NULL;
}
