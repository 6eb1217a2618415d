/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of the common case, beside soft_mapped.h: nothing but the test moves the two QPs, what it spoils of them and of
 * what they stand on is put right again, so that they can go on and be freed.
 */
#ifndef TESTS_UNIT_SOFT_KEPT_H
#define TESTS_UNIT_SOFT_KEPT_H

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/unit/soft_mapped.h"

/* The progress lock, and what of both QPs a turn of either and a post by the first take. */
void kept_hold(void);
void kept_let_go(void);

/* Notes what stands; puts it right. Locks held. */
void kept_save(void);
void kept_put_right(void);

/* The gate of the second QP. */
struct vsd_gate *kept_gate(void);

static inline struct wire *wire_of(const struct soft_qp *qp)
{
	return atomic_load(&qp->wire);
}

/* One thing that is not common, of a QP. @w: the WR that is queued, if there is one. */
#define SPOIL_OF(qp, name, statement)                           \
	static void name(struct swqe *w)                        \
	{                                                       \
		struct requester *req = &(qp)->priv->req;       \
		struct responder *resp = &(qp)->priv->resp;     \
		struct wire *wire = wire_of(qp);                \
                                                                \
		(void)w;                                        \
		(void)req;                                      \
		(void)resp;                                     \
		(void)wire;                                     \
		statement;                                      \
	}
#define SPOIL(name, statement) SPOIL_OF(a, name, statement)
#define COUNT_OF(table)	       ((int)(sizeof(table) / sizeof((table)[0])))

#endif
