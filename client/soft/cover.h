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
/* The same in two steps: room for a range, which cannot fail to be added then; or is not wanted any more. -ENOMEM. */
int cover_promise(struct cover *cover);
void cover_keep(struct cover *cover, uintptr_t start, uintptr_t end);
void cover_break(struct cover *cover);
/* Takes away what was added, once. Needs no memory. -EINVAL: there is a hole in it, so it was not added. */
int cover_del(struct cover *cover, uintptr_t start, uintptr_t end);
/* As a set: all of [start, end) has one range over it, or none. Not to be mixed with the two above. -ENOMEM: part of it. */
int cover_fill(struct cover *cover, uintptr_t start, uintptr_t end);
int cover_cut(struct cover *cover, uintptr_t start, uintptr_t end);
/* The first stretch of [from, to) that no range lies over; false: there is none. */
bool cover_hole(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end);
/* The first one that ranges lie over. */
bool cover_part(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end);
/*
 * No range lies over any of [from, to), which is not empty: makes [*lo, *hi) no larger than the stretch around it that none
 * lies over.
 */
bool cover_gap(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *lo, uintptr_t *hi);
/* Takes everything away. */
void cover_clear(struct cover *cover);

#endif
