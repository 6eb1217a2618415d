/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What sending to one QP (datagram.c) and to a multicast group (multicast.c) have in common: the peers, each with its
 * datagram wire, and those who wait for something of them. All of it is guarded by datagram_lock, which is taken under sq
 * locks.
 */
#ifndef SOFT_DATAGRAM_PRIVATE_H
#define SOFT_DATAGRAM_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/soft/qp_private.h"

#define DATAGRAM_RESOLVE_NS 2000000000ull /* the daemon's time to answer */

enum peer_state {
	PEER_NONE,	/* nobody asked yet */
	PEER_RESOLVING,
	PEER_READY,
	PEER_FAILED,	/* of a group: the daemon would not, datagrams are dropped until `until` */
};

struct datagram_peer {
	struct datagram_peer *next;
	uint32_t peer;
	enum peer_state state;
	uint32_t asked, refused; /* QP numbers; the daemon did not find that one: datagrams to it are dropped until `until` */
	uint64_t until;
	struct wire *wire;
	uint64_t sent;
	struct soft_qp *waiters;
	/* It took nothing since then (0: it did), and had taken that much: one that is stuck holds its senders up once. */
	uint64_t since, seen;
};

extern pthread_mutex_t datagram_lock;

/* Made when it is not there; NULL: no memory. */
struct datagram_peer *datagram_peer_get(uint32_t id);
/* 1: the WR is in the peer's lane; 0: there is no room, or no lane; negative: an error of this side's memory. */
int datagram_put(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer);

/* A QP waits in one list at most, and is woken by whoever the list is of. */
void datagram_wait(struct soft_qp *qp, struct soft_qp **list);
void datagram_unwait(struct soft_qp *qp);
void datagram_wake_all(struct soft_qp **list);

/* The WR is done, sent or dropped. 1. */
int datagram_sent(struct soft_qp *qp, struct swqe *w, bool dropped);
/* Whether it is to wait on, while @taken moves; @patience without that, and it is not. */
bool datagram_patient(struct soft_qp *qp, uint64_t taken, uint64_t patience);
/* Whether a datagram that found no room is to wait for it, in the peer's list; or it is dropped. The peer is READY. */
bool datagram_hold(struct soft_qp *qp, struct datagram_peer *peer);

void datagram_head(const struct soft_qp *qp, const struct swqe *w, struct vsd_req *head);
/* The payload of a WR, behind its GRH. */
int datagram_payload(struct soft_qp *qp, const struct swqe *w, uint8_t *to);
const Vsd__Port *datagram_port(const struct soft_qp *qp);

#endif
