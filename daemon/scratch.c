/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: one arena for the loop instead of one per session keeps an idle client cheap, and no answer needs a free.
 */
#include "daemon/scratch.h"

#include <string.h>

void scratch_init(struct scratch *scratch)
{
	frame_arena_init(&scratch->request);
	scratch->used = 0;
}

void scratch_reset(struct scratch *scratch)
{
	scratch->used = 0;
}

void *scratch_alloc(struct scratch *scratch, size_t size)
{
	void *p = scratch->bytes + scratch->used;

	size = (size + 15) & ~(size_t)15;
	if (size > sizeof(scratch->bytes) - scratch->used)
		return NULL;
	scratch->used += size;
	return memset(p, 0, size);
}

char *scratch_strdup(struct scratch *scratch, const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = scratch_alloc(scratch, n);

	return copy ? memcpy(copy, text, n) : NULL;
}
