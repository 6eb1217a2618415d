/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What end-to-end programs do again and again with verbs: open the device, join QPs, wait for a completion.
 */
#ifndef TESTS_E2E_KIT_H
#define TESTS_E2E_KIT_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "tests/lib/need.h"

/* The call returns that errno (0: none). */
#define RETURNS(call, error)                                                                                            \
	do {                                                                                                            \
		int kit_r = (call);                                                                                     \
		if (kit_r != (error)) {                                                                                 \
			fprintf(stderr, "%s:%d: %s: %s, not %s\n", __func__, __LINE__, #call, strerror(kit_r),          \
				strerror(error));                                                                       \
			_exit(1);                                                                                       \
		}                                                                                                       \
	} while (0)

/* Of regions, and of QPs that kit_connect() joins. */
#define KIT_ACCESS                                                                                                      \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |         \
		IBV_ACCESS_MW_BIND)
#define KIT_QKEY 0x11111111

/* The first device. */
struct ibv_context *kit_open(void);
/* A CQ of @cqe entries, and an RC QP with 16 of everything and 64 bytes of inline data. */
struct ibv_cq *kit_cq(struct ibv_context *ctx, int cqe);
struct ibv_qp_init_attr kit_qp_init(struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type);
struct ibv_qp *kit_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq);
/* Where others find a port, by LID and GID. */
struct kit_address {
	uint16_t lid;
	union ibv_gid gid;
};
struct kit_address kit_address(struct ibv_context *ctx);
/* Takes a QP from wherever it is to RTS; a UD QP needs no peer. */
void kit_connect_to(struct ibv_qp *qp, uint32_t qpn, const struct kit_address *address);
/* The same of two QPs of this process, with each other (or one with itself). */
void kit_connect(struct ibv_qp *qp, struct ibv_qp *peer);
/* Waits for one completion. */
struct ibv_wc kit_wait(struct ibv_cq *cq);
/* Posts one receive. */
void kit_post_recv(struct ibv_qp *qp, struct ibv_mr *mr, void *addr, uint32_t length);
/* Posts one signalled WR with one SGE, waits for it: its status. @remote and @rkey are for RDMA and atomics. */
enum ibv_wc_status kit_run(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *addr, uint32_t length,
	uint64_t remote, uint32_t rkey);

/* Binds a window of type 2 to the whole region for reading and writing: the bind's status. */
enum ibv_wc_status kit_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr);
/* A message from @qp to @peer, which may use one CQ: receives @to, sends @from, waits for both. Each must succeed. */
struct ibv_wc kit_message(struct ibv_qp *qp, struct ibv_qp *peer, struct ibv_mr *mr, void *from, void *to, uint32_t length);

/* For main(): runs the test that argv[1] names, or prints the names. */
struct kit_test {
	const char *name;
	void (*run)(int argc, char **argv);
};
int kit_main(const struct kit_test *tests, int argc, char **argv);

#endif
