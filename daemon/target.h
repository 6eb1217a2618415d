/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC receive QPs ("targets"). A target is no process's: each process that has it open has an object of type QP, and it
 * goes with the last of those. What the QP that names it sends goes to the processes whose SRQs it is for, by one wire to
 * each; that process serves it, whether it has the target open or not.
 */
#ifndef DAEMON_TARGET_H
#define DAEMON_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/list.h"
#include "daemon/numbers.h"
#include "daemon/qp.h"

struct server;
struct xrc_domain;

#define TARGET_EVENT_MAX 4 /* IBV_EVENT_COMM_EST */
#define SHARED_FIELDS	 27 /* enum SharedField of verbsd.proto */

/* What a request says of them: the values of the mask's bits in their order. */
struct shared_change {
	uint32_t mask;
	const uint32_t *values;
	size_t n_values;
};

struct xrc_target {
	struct number number;
	struct xrc_domain *domain;
	enum qp_state state;
	struct qp_dest dest;
	uint32_t mask, values[SHARED_FIELDS];
	uint64_t life; /* another one from each reset on, and for each target */
	bool established;    /* its openers were told: once in a life, however many processes have a wire to it */
	struct list wires;   /* struct wire_end */
	struct list openers; /* struct qp */
};

/* The target of a new QP object, which is its only opener. */
int target_new(struct xrc_domain *domain, struct qp *qp);
/* One that is there. -EINVAL: @domain has no such target. */
int target_open(struct xrc_domain *domain, uint32_t qpn, struct qp *qp);
/* @qp has it no more; the last one takes it with it. */
void target_close(struct qp *qp);
/* On failure it is as it was. */
int target_modify(struct xrc_target *target, const struct qp_change *change);
/* An event for all openers; to the error state with it, but for COMM_EST, the first one counts. @event 0: nobody is told. */
void target_report(struct xrc_target *target, uint32_t event);
/* The target of that number, if it is connected, and has been since it was of that life; or NULL. */
struct xrc_target *target_in_life(const struct server *server, uint32_t qpn, uint64_t life);
/* How requests are to be served. */
uint32_t target_access(const struct xrc_target *target);
uint32_t target_min_rnr_timer(const struct xrc_target *target);
uint32_t target_max_dest_rd_atomic(const struct xrc_target *target);

/*
 * @qp, an XRC send QP, has something for the SRQ with number @srqn: it gets a wire there, or is refused, at once or when it
 * and its target name each other.
 */
int xrc_connect(struct qp *qp, uint32_t srqn);
/* It lost a wire: what it waits for may come by another one now. @qp NULL, or of another type: nothing. */
void xrc_again(struct qp *qp);
/* The notice of a QP went out. */
void qp_noticed(struct process *process, struct notice *notice);

#endif
