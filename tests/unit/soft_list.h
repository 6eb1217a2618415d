/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of lists of WRs, beside soft_mapped.h: the list that is built next, what its post did to the counters and to the
 * queue, and QPs of which the first may run the map engine at once. One per program.
 */
#ifndef TESTS_UNIT_SOFT_LIST_H
#define TESTS_UNIT_SOFT_LIST_H

#include "tests/unit/soft_kept.h"

#define LIST_SIZE   (1u << 20)	/* the region's */
#define LIST_MEMORY (512u << 10)
#define LIST_DEPTH  200u /* of the SQ */
#define LIST_MOST   256u /* WRs of a list */
#define LIST_FIRST  100u /* the wr_id of the first one */

extern uint8_t memory[LIST_MEMORY]; /* what `local` is on */
extern struct soft_mr *read_only;   /* on the same */
extern struct ibv_send_wr wrs[LIST_MOST], *bad;
extern struct ibv_sge sges[LIST_MOST];
extern unsigned n_wrs;

/* Nothing is signalled but what is told so. */
void list_setup(void);
void list_teardown(void);
/* Both memories have bytes that differ from their neighbours. */
void list_fill(void);
/* Two new QPs; the first one completes its sends in @cq. */
void list_connect(struct soft_cq *cq);

/* One more, from or to byte @there of the region and byte @here of the memory. */
struct ibv_send_wr *list_add(enum ibv_wr_opcode opcode, uint64_t there, uint64_t here, uint32_t length);
/* Every @every'th one, so far. */
void list_signal(unsigned every);
/* Posts and forgets it, while nothing else is in the queue: 0 or the errno. */
int list_post(void);
/* What has been counted since. */
uint64_t list_counted(enum vsd_counter counter);
/* How many places of the queue a WR was copied into since. */
unsigned list_copied(void);
/* Completions of those from @from on, up to @to. */
void list_expect(unsigned from, unsigned to, enum ibv_wc_status status);
bool list_nothing(void);

#endif
