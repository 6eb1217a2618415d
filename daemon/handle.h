/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The typed handle table. A handle is a small number, never 0, and is not given again before many others were.
 */
#ifndef DAEMON_HANDLE_H
#define DAEMON_HANDLE_H

#include <stdint.h>

/* This many handles rest before the first of them is given again. */
#define HANDLE_REST 1024u

struct handle_slot {
	void *object;  /* NULL: free */
	uint32_t next; /* of a free one */
	uint32_t type;
};

struct handle_table {
	struct handle_slot *slots; /* slot i has handle i + 1 */
	uint32_t size;             /* allocated */
	uint32_t used;             /* ever given */
	uint32_t count;            /* in use now */
	uint32_t oldest, newest;   /* free ones, first in, first out; handles, 0: none */
	uint32_t resting;
	uint32_t max;
};

#define HANDLE_TABLE_NULL(limit)                                                                  \
	{                                                                                         \
		.max = (limit)                                                                    \
	}

void handle_table_init(struct handle_table *table, uint32_t max);
/* The table must be empty. */
void handle_table_deinit(struct handle_table *table);

/* 0, -ENOSPC when @max objects are there, -ENOMEM. */
int handle_insert(struct handle_table *table, uint32_t type, void *object, uint32_t *handle);
/* The only lookup: NULL when there is none, or when it is of another type. */
void *handle_get(const struct handle_table *table, uint32_t handle, uint32_t type);
void handle_remove(struct handle_table *table, uint32_t handle, uint32_t type);
/* @from becomes @to, with the same handle. */
void handle_retype(struct handle_table *table, uint32_t handle, uint32_t from, uint32_t to);
/* The first object in use with a handle >= *@handle, which is written; NULL: no more. */
void *handle_next(const struct handle_table *table, uint32_t *handle, uint32_t *type);

#endif
