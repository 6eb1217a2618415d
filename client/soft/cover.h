/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which bytes of the address space ranges lie over, and how many of them: each range may be added many times, and overlap
 * others. Everything takes time in proportion to the logarithm of the number of ranges. No locking.
 */
#ifndef SOFT_COVER_H
#define SOFT_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cover_node;

struct cover {
	struct cover_node *nodes; /* [0] stands for "none" */
	uint32_t size, used, spare, root;
	uint32_t edges;	 /* where the number changes: two for each stretch, where nothing overlaps */
	uint32_t ranges; /* added and not taken away */
	uint32_t seed;
};

/* Adds [start, end), which is not empty. -ENOMEM: nothing changed. */
int cover_add(struct cover *cover, uintptr_t start, uintptr_t end);
/* Takes away what was added, once. Needs no memory. -EINVAL: there is a hole in it, so it was not added. */
int cover_del(struct cover *cover, uintptr_t start, uintptr_t end);
/* As a set: all of [start, end) has one range over it, or none. Not to be mixed with the two above. -ENOMEM: part of it. */
int cover_fill(struct cover *cover, uintptr_t start, uintptr_t end);
int cover_cut(struct cover *cover, uintptr_t start, uintptr_t end);
/* The first stretch of [from, to) that no range lies over; false: there is none. */
bool cover_hole(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end);
/* The first one that ranges lie over. */
bool cover_part(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end);
/* Takes everything away. */
void cover_clear(struct cover *cover);

#endif
