/* SPDX-License-Identifier: BSD-2-Clause */
/* For the tests of queue pair states: what the specification says, and a QP that is taken to any state. */
#ifndef TESTS_E2E_STATES_H
#define TESTS_E2E_STATES_H

#include <stdbool.h>

#include "kit.h"

/* --- states_table.c: the specification -------------------------------------------------------------------------------- */

/* Of alternate paths, which a device without IBV_DEVICE_AUTO_PATH_MIG does not have. */
#define SPEC_MIGRATION (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)

bool spec_legal(enum ibv_qp_type type, int from, int to);
int spec_required(enum ibv_qp_type type, int from, int to);
int spec_optional(enum ibv_qp_type type, int from, int to);
/* What ibv_modify_qp() returns for @mask with sound values. */
int spec_errno(enum ibv_qp_type type, int from, int to, int mask);

/* --- states.c: a QP --------------------------------------------------------------------------------------------------- */

struct subject {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_xrcd *xrcd;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct kit_address here;
	uint8_t memory[4096];
};

/* False: the device does not have that type, and says EOPNOTSUPP. */
bool subject_open(struct subject *s, enum ibv_qp_type type);
void subject_close(struct subject *s);
/* Sound values for every attribute, for a QP that is connected to itself. */
struct ibv_qp_attr subject_values(const struct subject *s);
int subject_state(const struct subject *s);
/* Takes the QP to @state by way of RESET; false where its type has no such state. */
bool subject_to(struct subject *s, int state);
/* Posts a signalled send of @length bytes to itself: what ibv_post_send() returns. */
int subject_send(struct subject *s, uint64_t wr_id, uint32_t length, uint32_t lkey);
int subject_recv(struct subject *s, uint64_t wr_id, uint32_t length);
/* Waits for a completion, which has to be this one. */
void subject_expect(struct subject *s, uint64_t wr_id, enum ibv_wc_status status);

extern const struct kit_test states_posts[];

#endif
