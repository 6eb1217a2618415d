/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration without a request: places in our page that the daemon gave us in advance, with handles. It looks there when
 * somebody wants to know. Thread-safe.
 */
#ifndef SOFT_MR_PLACE_H
#define SOFT_MR_PLACE_H

#include <stdint.h>

#include "client/soft/mr.h"

struct mr_places *mr_places_new(uint32_t context);
struct mr_places *mr_places_free(struct mr_places *places);

/*
 * Gives @mr, which is filled in, a handle and a place, and writes it there. -EAGAIN: it takes a request, since there is no place
 * to be had now, or the daemon is too old, or gone, or somebody watches.
 */
int mr_place_take(struct mr_places *places, struct soft_mr *mr);
/* What it is from now on. */
void mr_place_change(const struct soft_mr *mr);
/* It is nothing any more, and nobody needs it. */
void mr_place_put(struct mr_places *places, struct soft_mr *mr);

#endif
