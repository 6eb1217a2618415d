/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: numbers, states, whom they name. What they send is none of the daemon's business.
 */
#ifndef DAEMON_QP_H
#define DAEMON_QP_H

#include <stdbool.h>

#include "daemon/device.h"
#include "daemon/notice.h"
#include "daemon/numbers.h"
#include "daemon/object.h"
#include "daemon/qp_state.h"

struct process;
struct server;
struct shared_change;
struct wire;
struct xrc_target;

enum qp_type {
	QP_RC = 2,
	QP_UC = 3,
	QP_UD = 4,
	QP_XRC_SEND = 9,
	QP_XRC_RECV = 10,
};

struct qp_attr {
	enum qp_type type;
	uint32_t qpn;
	uint32_t send_cq, recv_cq;
	uint32_t srq; /* 0: none */
	uint32_t xrcd; /* of XRC_RECV */
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
	struct number number;
	struct qp_attr attr;
	enum qp_state state;
	struct qp_dest dest;
	uint32_t sq_psn;
	uint32_t resets; /* to RESET, so often */
	struct process *process; /* NULL: killed */
	struct list wires;       /* struct wire_end; more than one of XRC_SEND only */
	struct list groups;      /* multicast groups that it is attached to */
	struct notice notice;    /* of the XRC types */
	uint64_t wanted;         /* XRC_SEND: 1 << 32 | number of the SRQ that it waits for, 0: none */
	uint32_t refused;        /* and the one that it was refused last */
	struct xrc_target *target; /* XRC_RECV: what is opened; state, dest and wires are there */
	struct list link_target;
	uint32_t events; /* 1 << enum ibv_event_type, to be told */
};

/* NULL: no QP has it that is one process's. */
struct qp *qp_by_number(const struct server *server, uint32_t qpn);
struct qp *notice_qp(struct notice *notice);
/* Its first wire, or NULL. */
struct wire *qp_wire(const struct qp *qp);

int qp_new(struct attachment *attachment, uint32_t pd, const struct qp_attr *attr,
	struct object **qp);

struct qp_change {
	enum qp_state state;
	const struct qp_dest *dest; /* NULL: not given */
	const uint32_t *sq_psn;
	const struct shared_change *shared; /* of XRC_RECV */
};
/* Another object for an XRC receive QP of this XRCD. */
int qp_open(struct attachment *attachment, uint32_t xrcd, uint32_t qpn, struct object **qp);
/* Whether a QP in @state may be changed so. @connects: its type has a destination. */
int qp_check_change(
	uint32_t qpn, enum qp_state state, const struct qp_change *change, bool connects);
/* On failure the QP is as it was. */
int qp_modify(struct attachment *attachment, uint32_t handle, const struct qp_change *change);
/* Leaves its wire, as if its process had destroyed it. */
void qp_leave(struct qp *qp);
/* The same for good: nobody can connect to it any more. Its process may go. */
void qp_kill(struct qp *qp);
/* A PD or a parent domain. */
const struct object *qp_pd(const struct qp *qp);
/* Whether it is that number's, at an address of @device. */
bool qp_dest_is(const struct qp_dest *dest, uint32_t qpn, const struct device *device);

#endif
