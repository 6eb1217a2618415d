/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of a post that the list form (wr.c) and the ibv_wr_* form (wr_ex.c) share. All return 0 or an errno; sq lock
 * held.
 */
#ifndef SOFT_POST_H
#define SOFT_POST_H

#include "client/soft/qp_private.h"

/* EINVAL in a state that takes no sends. */
int post_state(const struct soft_qp *qp);
/* The cleared WQE at position @pos: EINVAL for an operation that this kind of QP has not, ENOMEM when the SQ is full. */
int post_slot(struct soft_qp *qp, uint64_t pos, enum ibv_wr_opcode opcode, struct swqe **slot);
int post_sges(struct soft_qp *qp, struct swqe *w, const struct ibv_sge *sge, size_t n);
/* Appends inline bytes. */
int post_inline(struct soft_qp *qp, struct swqe *w, const void *data, size_t n);
/* The eight bytes of an ATOMIC WRITE; they need no inline room. */
void post_word(struct swqe *w, const void *data);
int post_address(struct swqe *w, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
/* What can only be checked once all of the WR is known. */
int post_check(const struct soft_qp *qp, struct swqe *w);

#endif
