/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapping of a region's memory from the time before it was sealed. Older kernels (Linux 6.1) pin memory for a device through
 * mappings alone that can be written, whatever the device may do with it, and once sealed the memory is not mapped so any more.
 * Nobody reads or writes in it.
 */
#ifndef DAEMON_WINDOW_H
#define DAEMON_WINDOW_H

#include <stddef.h>

struct window;

/* NULL: there is no room for one. */
struct window *window_new(int memfd, size_t size);
/* Both may be done by any thread, and with NULL. */
struct window *window_ref(struct window *window);
struct window *window_unref(struct window *window);
/* NULL for NULL. */
void *window_at(const struct window *window);

#endif
