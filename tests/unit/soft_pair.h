/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What most tests of the data path begin with: two QPs of one process, a CQ for what is sent and one for what is received,
 * and registered memory at either end. One per program; a test changes @options before it makes its QPs.
 */
#ifndef TESTS_UNIT_SOFT_PAIR_H
#define TESTS_UNIT_SOFT_PAIR_H

#include "tests/unit/soft_loop.h"

extern struct loop loop;
extern struct loop_options options; /* LOOP_OPTIONS and the CQs */
extern struct soft_cq *send_cq, *recv_cq;
extern struct soft_qp *a, *b;	    /* NULL until they are made */
extern uint8_t *from, *to;	    /* bytes that differ from their neighbours; zeros */
extern struct soft_mr *from_mr, *to_mr;

/* @size: of the memory at either end, in bytes. @cqe: of either CQ. */
void pair_start(uint32_t size, uint32_t cqe);
/* Ends the QPs that were made, and the rest. */
void pair_stop(void);

/* Makes both, in INIT. */
void pair_make(void);
/* The same, and connects them by lanes of @slots. */
void pair_connect(uint32_t slots);

bool pair_nothing(struct soft_cq *cq);

#endif
