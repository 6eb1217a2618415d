/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for one request: its unpacked message and its answer. Reset before each.
 */
#ifndef DAEMON_SCRATCH_H
#define DAEMON_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct scratch {
	struct frame_arena request;
	size_t used;
	_Alignas(16) uint8_t bytes[192 << 10];
};

void scratch_init(struct scratch *scratch);
void scratch_reset(struct scratch *scratch);
/* Zeroed. NULL when there is no room: an answer that large is a bug or a listing that must end its page. */
void *scratch_alloc(struct scratch *scratch, size_t size);
char *scratch_strdup(struct scratch *scratch, const char *text);

#endif
