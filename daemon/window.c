/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what is sealed is to be registered as well. Guarantees: the mapping is there as long as anybody who uses it, so that its
 * addresses are nobody else's meanwhile.
 */
#include "daemon/window.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

struct window {
	_Atomic unsigned refs;
	void *at;
	size_t size;
};

struct window *window_new(int memfd, size_t size)
{
	struct window *window = malloc(sizeof(*window));
	void *at;

	if (!window)
		return NULL;
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
	if (at == MAP_FAILED) {
		free(window);
		return NULL;
	}
	*window = (struct window){ .refs = 1, .at = at, .size = size };
	return window;
}

struct window *window_ref(struct window *window)
{
	if (window)
		atomic_fetch_add(&window->refs, 1);
	return window;
}

struct window *window_unref(struct window *window)
{
	if (!window || atomic_fetch_sub(&window->refs, 1) > 1)
		return NULL;
	munmap(window->at, window->size);
	free(window);
	return NULL;
}

void *window_at(const struct window *window)
{
	return window ? window->at : NULL;
}
