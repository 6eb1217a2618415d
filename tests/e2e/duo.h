/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of what fails: two QPs of one process, each with its CQ, and what is expected of both when one errs. */
#ifndef TESTS_E2E_DUO_H
#define TESTS_E2E_DUO_H

#include <stdbool.h>

#include "kit.h"

#define DUO_HALF 8192u /* each side has half of the memory */

enum side { A, B };

struct duo {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_srq *srq; /* of B, when it was asked for */
	struct ibv_qp *qp[2];
	struct ibv_ah *ah; /* to B */
	struct ibv_mr *mr;
	struct kit_address here;
	uint8_t memory[2 * DUO_HALF];
};

/* Not connected yet. */
void duo_open(struct duo *d, enum ibv_qp_type type, bool srq);
void duo_close(struct duo *d);
/* All attributes that connect a side to the other one, to be changed before duo_up(). */
struct ibv_qp_attr duo_attr(const struct duo *d, enum side side);
/* RESET to RTS, or to RTR. */
void duo_up(struct duo *d, enum side side, const struct ibv_qp_attr *attr, enum ibv_qp_state state);
/* Both, as duo_attr() has it. */
void duo_connect(struct duo *d);

/* A's half, at its begin, to B's half. */
struct ibv_send_wr duo_wr(struct duo *d, uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint32_t length);
int duo_post(struct duo *d, struct ibv_send_wr *wr);
/* A receive of B's, which it must take. */
void duo_recv(struct duo *d, uint64_t wr_id, uint32_t length, uint32_t lkey);

/* Waits for a completion: this WR, this status, this QP; an error says something in vendor_err. */
struct ibv_wc duo_expect(struct duo *d, enum side side, uint64_t wr_id, enum ibv_wc_status status);
void duo_nothing(struct duo *d, enum side side);
enum ibv_qp_state duo_state(const struct duo *d, enum side side);
/* Waits until it is there. */
void duo_state_comes(const struct duo *d, enum side side, enum ibv_qp_state state);
/* Waits for the event, which names this object; acknowledged. */
void duo_event(struct duo *d, enum ibv_event_type type, const void *object);
bool duo_no_event(struct duo *d);

#endif
