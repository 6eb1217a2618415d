/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wires: what joins two QPs that name each other, or all datagrams between two processes.
 *
 * A wire has two ends. An end goes through: not told yet (its notice waits), told, released. The wire's memory is free
 * again when both ends are released. A process that dies releases all its ends.
 */
#ifndef DAEMON_WIRE_PAIR_H
#define DAEMON_WIRE_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/notice.h"
#include "daemon/segment.h"

struct process;
struct qp;
struct segment;
struct server;
struct xrc_target;

#define HANDLE_LOOP 1 /* type in a process's table of loops */

enum wire_kind {
	WIRE_RC = 1, /* as in verbsd.proto */
	WIRE_UC = 2,
	WIRE_DGRAM = 3,
	WIRE_XRC = 4,
};

struct wire_end {
	struct process *process; /* NULL: dead */
	struct qp *qp;           /* NULL: left, or a datagram wire, or: */
	struct xrc_target *target; /* what the end is of at the SRQ's process */
	struct list link;        /* of their wires */
	struct notice notice;
	struct charge charge;
	uint64_t life; /* the target's, whose number is `qpn`: it may be told of after the sender has left */
	uint32_t qpn, peer_qpn, peer_rq_psn, resets;
	bool released;
};

struct wire {
	struct segment *segment; /* NULL: both ends in one process */
	struct place place;
	enum wire_kind kind;
	uint32_t req_slots, resp_slots;
	struct wire_end ends[2];
};

/* Joins two QPs that name each other; both processes are notified. On failure nothing happened. */
int wire_connect(struct server *server, struct qp *a, struct qp *b);
/* The datagram wire between two processes, made when it is not there. @from pays. */
int wire_datagram(struct server *server, struct process *from, struct process *to);
/* Joins an XRC send QP and @process, which serves the target's requests for its SRQs. */
int wire_connect_xrc(
	struct server *server, struct qp *qp, struct xrc_target *target, struct process *process);
/*
 * What the end is of leaves: the other end is told, and the process of a target's; whoever was not told of the wire never
 * will be.
 */
void wire_leave(struct wire_end *end);
/* The target's attributes are others now: its process is told. */
void wire_changed(struct wire_end *end);
/* The target that a wire in @process is of, or was until the sender left; NULL: there is none, or it has ended. */
struct xrc_target *wire_target(struct server *server, struct process *process, uint32_t segment,
	uint32_t index, uint32_t generation);
/*
 * A client has let go of its end. A loopback wire (segment 0) has two, each is let go by one call; of a QP that is joined
 * with itself it has one.
 * -ENOENT: no such wire, or it was released already.
 */
int wire_release(struct server *server, struct process *process, uint32_t segment, uint32_t index,
	uint32_t generation);
/* The process of this end is gone: it is released, the other one is told. */
void wire_end_died(struct wire *wire, unsigned side, enum gone_reason reason);
/* All wires inside @process are gone. */
void loops_break(struct process *process);

struct wire *notice_wire(struct notice *notice);
struct wire *wire_of_end(const struct wire_end *end);
const struct wire_end *wire_other_end(const struct wire_end *end);
pid_t wire_peer_pid(const struct wire *wire, const struct qp *qp);
/* The QP at the other end; NULL: it has left. */
struct qp *wire_peer_qp(const struct wire *wire, const struct qp *qp);

#endif
