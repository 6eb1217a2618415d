/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue buffers. A header before the bytes would break the promise that the program's allocator is asked for the exact
 * size, so the buffers that such a domain left to us are told apart by a list.
 */
#include "client/soft/buf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/objects.h"

#define BUF_ALIGN 64u

/* Buffers that a domain with an allocator left to us (IBV_ALLOCATOR_USE_DEFAULT). Few, and never on the data path. */
struct own_buf {
	struct own_buf *next;
	void *buf;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_buf *own;

static void *alloc_noted(size_t size)
{
	struct own_buf *note = malloc(sizeof(*note));

	if (!note)
		return NULL;
	note->buf = calloc(1, size);
	if (!note->buf) {
		free(note);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	note->next = own;
	own = note;
	pthread_mutex_unlock(&lock);
	return note->buf;
}

static bool forget_note(const void *buf)
{
	struct own_buf *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct own_buf **at = &own; *at; at = &(*at)->next)
		if ((*at)->buf == buf) {
			found = *at;
			*at = found->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	free(found);
	return found;
}

void *buf_alloc(struct soft_pd *pd, size_t size, enum buf_resource resource)
{
	if (!pd || !pd->alloc)
		return calloc(1, size); /* big queues cost nothing before they are touched */

	void *buf = pd->alloc(&pd->pd, pd->pd_context, size, BUF_ALIGN, BUF_DRIVER << 32 | resource);

	if (buf == IBV_ALLOCATOR_USE_DEFAULT)
		return alloc_noted(size);
	if (buf)
		memset(buf, 0, size);
	return buf;
}

void buf_free(struct soft_pd *pd, void *buf, enum buf_resource resource)
{
	if (!buf)
		return;
	if (!pd || !pd->alloc || forget_note(buf))
		free(buf);
	else if (pd->free)
		pd->free(&pd->pd, pd->pd_context, buf, BUF_DRIVER << 32 | resource);
}
