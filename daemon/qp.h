/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: numbers, states, whom they name. What they send is none of the daemon's business.
 */
#ifndef DAEMON_QP_H
#define DAEMON_QP_H

#include <stdbool.h>

#include "daemon/device.h"
#include "daemon/object.h"
#include "daemon/qp_state.h"

struct process;
struct wire;

enum qp_type {
	QP_RC = 2,
	QP_UC = 3,
	QP_UD = 4,
};

struct qp_attr {
	enum qp_type type;
	uint32_t qpn;
	uint32_t send_cq, recv_cq;
	uint32_t srq; /* 0: none */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
};

/* Whom it names, and its receive PSN. Comes with RTR. */
struct qp_dest {
	uint32_t qpn, lid;
	bool has_gid;
	uint8_t gid[GID_SIZE];
	uint32_t rq_psn;
};

struct qp {
	struct object object;
	struct qp_attr attr;
	enum qp_state state;
	struct qp_dest dest;
	uint32_t sq_psn;
	uint32_t resets; /* to RESET, so often */
	struct process *process; /* NULL: killed */
	struct wire *wire;       /* NULL: none; unused by UD */
};

/* QPs by number. */
#define QPN_RANGES     (1u << 16)
#define QPN_RANGE_SIZE 256u

struct qpn_range {
	uint32_t count;
	struct qp *qps[QPN_RANGE_SIZE];
};

struct qpn_table {
	struct qpn_range **ranges;
};

int qpn_table_init(struct qpn_table *table);
void qpn_table_deinit(struct qpn_table *table);
struct qp *qpn_table_get(const struct qpn_table *table, uint32_t qpn);

int qp_new(struct attachment *attachment, uint32_t pd, const struct qp_attr *attr,
	struct object **qp);

struct qp_change {
	enum qp_state state;
	const struct qp_dest *dest; /* NULL: not given */
	const uint32_t *sq_psn;
};
/* On failure the QP is as it was. */
int qp_modify(struct attachment *attachment, uint32_t handle, const struct qp_change *change);
/* Leaves its wire, as if its process had destroyed it. */
void qp_leave(struct qp *qp);
/* The same for good: nobody can connect to it any more. Its process may go. */
void qp_kill(struct qp *qp);
/* A PD or a parent domain. */
const struct object *qp_pd(const struct qp *qp);
/* Whether @qp names @other: number and address. */
bool qp_names(const struct qp *qp, const struct qp *other);

#endif
