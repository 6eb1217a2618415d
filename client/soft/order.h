/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order between what two QPs complete. A program answers by another QP than the one it was asked by (by XRC there is no
 * other way), and who asked expects the completion of its question before that of the answer. So whatever the peer had
 * acknowledged before it posted a message is completed before that message is received:
 *
 * - the receiver reads the message's tag, then looks at the acknowledgements of its other wires, then serves the message;
 * - the sender posts nothing while another thread is in a turn that completed a receive, where the program may see it, and has
 *   not yet published the acknowledgement.
 *
 * The other wires are those of the same hot set, and, to the same peer, those that are in none although something of theirs
 * is on its way: they are *awaited*. Wires of a thread domain are compared with those of the same domain only.
 */
#ifndef SOFT_ORDER_H
#define SOFT_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/soft/hot.h"

struct soft_qp;
struct soft_td;
struct wire;

/* Completes what was acknowledged before the message that @wire has was posted. False: not now, its QP has a turn soon. */
bool order_keep(struct wire *wire);

/* A wire that is in no hot set: if something of it is on its way. Nothing is any more, or it is hot. */
void order_await(struct wire *wire);
void order_forget(struct wire *wire);

#endif
