/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two QPs of one process on a loopback wire, for tests of the data path: the library's own runtime, and a fake daemon
 * that answers JOIN and sends the wire. The test says how many slots the lanes have.
 */
#ifndef TESTS_UNIT_SOFT_LOOP_H
#define TESTS_UNIT_SOFT_LOOP_H

#include <check.h>

#include "client/soft/cq.h"
#include "client/soft/mr.h"
#include "client/soft/qp.h"
#include "client/soft/srq.h"
#include "client/soft/td.h"
#include "tests/unit/fake_daemon.h"

#define LOOP_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		     IBV_ACCESS_REMOTE_ATOMIC)

struct loop {
	struct fake_daemon fake;
	_Atomic int events, kick; /* the daemon's ends */
	struct soft_context ctx;
	struct soft_pd pd;
	uint32_t keys, qpns, wires;
};

struct loop_options {
	enum ibv_qp_type type;
	uint32_t send_wr, recv_wr;
	struct soft_srq *srq;
	struct soft_cq *send_cq, *recv_cq;
	unsigned access; /* LOOP_ACCESS when 0 */
	uint8_t rnr_retry, rnr_timer, timeout, retry_cnt, rd_atomic;
	bool signal_all;
	bool no_access; /* access is meant to be 0 */
	uint32_t qpn;	/* 0: the next one */
};

/* QP numbers from here on belong to another process, LOOP_PEER. */
#define LOOP_FOREIGN_QPN 0x1000u
#define LOOP_PEER	 9u

/* What most tests want. */
#define LOOP_OPTIONS                                                                             \
	{                                                                                         \
		.type = IBV_QPT_RC, .send_wr = 64, .recv_wr = 64, .rnr_retry = 7, .rnr_timer = 1, \
		.timeout = 14, .retry_cnt = 7, .rd_atomic = 4, .signal_all = true                 \
	}

/*
 * From here on loop_start() makes a thread domain, and the objects of its thread stand under that: a fixture, to be added
 * before the test's own. Other threads make theirs themselves.
 */
void loop_with_domain(void);
bool loop_has_domain(void);
void loop_domain_make(struct loop *loop);
void loop_domain_free(void);

/* The port has LID 5 and this GID. */
extern const union ibv_gid loop_gid;
void loop_start(struct loop *loop);
void loop_stop(struct loop *loop);

struct soft_cq *loop_cq(struct loop *loop, uint32_t cqe);
void loop_cq_free(struct soft_cq *cq);
struct soft_mr *loop_mr(struct loop *loop, void *addr, size_t length, unsigned access);
struct soft_mr *loop_mr_iova(struct loop *loop, void *addr, size_t length, uint64_t iova, unsigned access);
void loop_mr_free(struct soft_mr *mr);
struct soft_srq *loop_srq(struct loop *loop, uint32_t max_wr, uint32_t max_sge);
void loop_srq_free(struct soft_srq *srq);

/* In INIT. */
struct soft_qp *loop_qp(struct loop *loop, const struct loop_options *options);
void loop_qp_free(struct soft_qp *qp);
void loop_state(struct soft_qp *qp, int state);
/* INIT to RTR, to RTS; as @options say. */
void loop_rtr(struct soft_qp *qp, uint32_t dest, const struct loop_options *options);
void loop_rts(struct soft_qp *qp, const struct loop_options *options);
/* Sends the wire to both ends and waits until they have it. */
void loop_wire(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots);
/* Sends it to both ends, or to the one of @side alone; the next one that goes to both ends, or to side 1, is another wire. */
void loop_wire_tell(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots);
void loop_wire_end(struct loop *loop, struct soft_qp *qp, struct soft_qp *peer, uint32_t slots, unsigned side);
/* Sends one of their last connection, which they are not to take. */
void loop_wire_late(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots);
/* A datagram wire to LOOP_PEER, which is this process too. */
void loop_datagram_wire(struct loop *loop, uint32_t slots);
/* One end of it alone; the next one of the same wire is the other. */
void loop_datagram_end(struct loop *loop, uint32_t slots, uint32_t side);
/* All of it: both RTS, with a wire of @slots slots. */
void loop_connect(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots,
	const struct loop_options *options);

/* A counter of the process, with what the domain of this thread has counted. */
uint64_t loop_counter(enum vsd_counter counter);
/* The next completion, waited for. */
struct ibv_wc loop_wait(struct soft_cq *cq);
/* Asserts the next completion. */
void loop_expect(struct soft_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
/* The next asynchronous event, waited for and acknowledged. */
void loop_event(struct loop *loop, enum ibv_event_type type);

/* One WR with one SGE: 0 or the errno of the post. */
int loop_send(struct soft_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode, struct soft_mr *mr,
	const void *addr, uint32_t length, struct soft_mr *remote, const void *raddr);
int loop_recv(struct soft_qp *qp, uint64_t wr_id, struct soft_mr *mr, void *addr, uint32_t length);

#endif
