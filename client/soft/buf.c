/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue buffers. A header before the bytes would break the promise that the program's allocator is asked for the exact
 * size, so the buffers that such a domain left to us are told apart by a table of their addresses.
 */
#include "client/soft/buf.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "client/control/control.h"
#include "client/soft/in_child.h"
#include "client/soft/objects.h"

#define BUCKETS 1024u

/* A buffer that a domain with an allocator left to us (IBV_ALLOCATOR_USE_DEFAULT). Never looked up on the data path. */
struct own_buf {
	struct own_buf *next;
	void *buf;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_buf *own[BUCKETS];

/* Buffers are far apart, so the low bits say little. */
static struct own_buf **bucket_of(const void *buf)
{
	uintptr_t n = (uintptr_t)buf;

	return &own[(n >> 6 ^ n >> 16) % BUCKETS];
}

void buf_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (size_t i = 0; i < BUCKETS; i++)
		if (own[i])
			own[i] = NULL;
}

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

	struct own_buf **at = bucket_of(note->buf);

	note->next = *at;
	*at = note;
	pthread_mutex_unlock(&lock);
	return note->buf;
}

static bool forget_note(const void *buf)
{
	struct own_buf *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct own_buf **at = bucket_of(buf); *at; at = &(*at)->next)
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

	uint64_t type = BUF_DRIVER << 32 | resource;
	void *buf = pd->alloc(&pd->pd, pd->pd_context, size, BUF_ALIGN, type);

	if (buf == IBV_ALLOCATOR_USE_DEFAULT)
		return alloc_noted(size);
	if ((uintptr_t)buf % BUF_ALIGN == 0)
		return buf;
	control_debug("the allocator of parent domain %u gave %p, which is not aligned to %u", pd->pd.handle, buf,
		BUF_ALIGN);
	pd->free(&pd->pd, pd->pd_context, buf, type);
	return NULL;
}

void buf_free(struct soft_pd *pd, void *buf, enum buf_resource resource)
{
	if (!buf)
		return;
	if (!pd || !pd->alloc || forget_note(buf))
		free(buf);
	else
		pd->free(&pd->pd, pd->pd_context, buf, BUF_DRIVER << 32 | resource);
}
