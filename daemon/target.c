/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: whoever has an XRC receive QP open may go before the others do, and none of them serves it for the rest.
 * Guarantees: it lives as long as somebody has it open; a wire leads to a process only if that has an SRQ in the target's
 * XRC domain, and only from the QP that the target names.
 */
#include "daemon/target.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/srq.h"
#include "daemon/wire_pair.h"
#include "daemon/xrcd.h"

/* enum SharedField */
enum {
	FIELD_ACCESS = 0,
	FIELD_MAX_DEST_RD_ATOMIC = 4,
	FIELD_MIN_RNR_TIMER = 5,
};

/* enum ibv_event_type, of a QP: each has a bit in qp->events */
enum {
	EVENT_QP_ACCESS_ERR = 3,
	EVENT_COMM_EST = 4,
};

#define ACCESS_KNOWN  0x7fu /* enum ibv_access_flags, as far as QPs have them */
#define RNR_TIMER_MAX 31u

/* ---- life ---- */

static void add_opener(struct xrc_target *target, struct qp *qp)
{
	qp->target = target;
	list_append(&target->openers, &qp->link_target);
}

int target_new(struct xrc_domain *domain, struct qp *qp)
{
	struct xrc_target *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	made->number.kind = NUMBER_TARGET;
	list_init(&made->wires);
	list_init(&made->openers);
	r = xrc_number_take(domain, &made->number.value);
	if (r < 0) {
		free(made);
		return r;
	}
	r = numbers_add(&domain->server->numbers, &made->number);
	if (r < 0) {
		xrc_number_give(domain, made->number.value);
		free(made);
		return r;
	}
	made->life = ++domain->server->last_life;
	made->domain = xrc_domain_ref(domain);
	add_opener(made, qp);
	return 0;
}

static struct xrc_target *target_get(const struct server *server, uint32_t qpn)
{
	struct number *number = numbers_get(&server->numbers, qpn, NUMBER_TARGET);

	return number ? container_of(number, struct xrc_target, number) : NULL;
}

struct xrc_target *target_in_life(const struct server *server, uint32_t qpn, uint64_t life)
{
	struct xrc_target *target = target_get(server, qpn);

	return target && target->life == life && qp_state_connected(target->state) ? target : NULL;
}

int target_open(struct xrc_domain *domain, uint32_t qpn, struct qp *qp)
{
	struct xrc_target *target = target_get(domain->server, qpn);

	if (!target || target->domain != domain)
		return refuse(-EINVAL, "no receive QP 0x%x in this XRCD", qpn);
	add_opener(target, qp);
	return 0;
}

static void leave(struct xrc_target *target)
{
	while (!list_empty(&target->wires))
		wire_leave(container_of(target->wires.next, struct wire_end, link));
}

void target_close(struct qp *qp)
{
	struct xrc_target *target = qp->target;

	if (!target)
		return;
	qp->target = NULL;
	list_remove(&qp->link_target);
	if (!list_empty(&target->openers))
		return;
	target->state = QP_ERR; /* it gets no new wire */
	leave(target);
	numbers_remove(&target->domain->server->numbers, &target->number);
	xrc_number_give(target->domain, target->number.value);
	xrc_domain_unref(target->domain);
	free(target);
}

/* ---- attributes ---- */

uint32_t target_access(const struct xrc_target *target)
{
	return target->values[FIELD_ACCESS];
}

uint32_t target_min_rnr_timer(const struct xrc_target *target)
{
	return target->values[FIELD_MIN_RNR_TIMER];
}

uint32_t target_max_dest_rd_atomic(const struct xrc_target *target)
{
	return target->values[FIELD_MAX_DEST_RD_ATOMIC];
}

static int check_field(const struct xrc_target *target, unsigned field, uint32_t value)
{
	if (field == FIELD_ACCESS && value & ~ACCESS_KNOWN)
		return refuse(-EINVAL, "access 0x%x", value);
	if (field == FIELD_MIN_RNR_TIMER && value > RNR_TIMER_MAX)
		return refuse(-EINVAL, "RNR timer %u", value);
	if (field == FIELD_MAX_DEST_RD_ATOMIC && value > target->domain->device->attr.max_rd_atom)
		return refuse(-EINVAL, "%u reads and atomics at a time", value);
	return 0;
}

static int check_change(const struct xrc_target *target, const struct shared_change *change)
{
	size_t n = 0;
	int r = 0;

	if (change->mask >> SHARED_FIELDS ||
		(size_t)__builtin_popcount(change->mask) != change->n_values)
		return refuse(-EINVAL, "%zu values for the attributes 0x%x", change->n_values,
			change->mask);
	for (unsigned i = 0; i < SHARED_FIELDS && r == 0; i++) {
		if (change->mask & 1u << i)
			r = check_field(target, i, change->values[n++]);
	}
	return r;
}

static void apply_change(struct xrc_target *target, const struct shared_change *change)
{
	size_t n = 0;

	for (unsigned i = 0; i < SHARED_FIELDS; i++) {
		if (change->mask & 1u << i)
			target->values[i] = change->values[n++];
	}
	target->mask |= change->mask;
	list_for_each (pos, &target->wires)
		wire_changed(container_of(pos, struct wire_end, link));
}

/* ---- states ---- */

static void reset(struct xrc_target *target)
{
	target->life = ++target->domain->server->last_life;
	target->mask = 0;
	memset(target->values, 0, sizeof(target->values));
	target->dest = (struct qp_dest){ .qpn = 0 };
	target->established = false;
}

/* The QP that it names may wait for it. */
static void wake(struct xrc_target *target)
{
	xrc_again(qp_by_number(target->domain->server, target->dest.qpn));
}

int target_modify(struct xrc_target *target, const struct qp_change *change)
{
	int r = change->shared ? check_change(target, change->shared) : 0;

	if (r < 0)
		return r;
	r = qp_check_change(target->number.value, target->state, change, true);
	if (r < 0)
		return r;
	target->state = change->state;
	if (change->dest)
		target->dest = *change->dest;
	if (change->shared)
		apply_change(target, change->shared);
	if (!qp_state_connected(target->state))
		leave(target);
	if (target->state == QP_RESET)
		reset(target);
	if (qp_state_connected(target->state))
		wake(target);
	return 0;
}

/* ---- events ---- */

static void tell(struct qp *qp, uint32_t event)
{
	qp->events |= 1u << event;
	if (!qp->process || qp->notice.kind != NOTICE_NONE)
		return;
	process_notify(qp->process, &qp->notice, NOTICE_XRC_EVENT, 0);
	process_flush(qp->process);
}

void qp_noticed(struct process *process, struct notice *notice)
{
	struct qp *qp = notice_qp(notice);
	enum notice_kind kind = notice->kind;

	notice_drop(notice);
	if (kind == NOTICE_XRC_EVENT) {
		qp->events &= qp->events - 1;
		if (qp->events)
			process_notify(process, notice, NOTICE_XRC_EVENT, 0);
	}
}

void target_report(struct xrc_target *target, uint32_t event)
{
	if (!qp_state_connected(target->state))
		return;
	if (event != EVENT_COMM_EST) {
		target->state = QP_ERR;
		leave(target);
	}
	if (event == 0 || (event == EVENT_COMM_EST && target->established))
		return;
	target->established |= event == EVENT_COMM_EST;
	list_for_each (pos, &target->openers)
		tell(container_of(pos, struct qp, link_target), event);
}

/* ---- connecting ---- */

static struct xrc_target *target_of(struct qp *qp)
{
	struct server *server = qp->object.context->server;
	struct xrc_target *target = target_get(server, qp->dest.qpn);

	if (!target || !qp_state_connected(qp->state) || !qp_state_connected(target->state) ||
		!qp_dest_is(&qp->dest, target->number.value, target->domain->device) ||
		!qp_dest_is(&target->dest, qp->attr.qpn, qp->object.context->device))
		return NULL;
	return target;
}

static void refuse_qp(struct qp *qp, uint32_t srqn)
{
	if (!qp->process)
		return;
	qp->refused = srqn;
	process_notify(qp->process, &qp->notice, NOTICE_XRC_REFUSED, 0);
	process_flush(qp->process);
}

static bool has_wire_to(const struct qp *qp, const struct process *process)
{
	list_for_each (pos, &qp->wires) {
		const struct wire_end *end = container_of(pos, struct wire_end, link);

		if (wire_other_end(end)->process == process)
			return true;
	}
	return false;
}

int xrc_connect(struct qp *qp, uint32_t srqn)
{
	struct server *server = qp->object.context->server;
	struct xrc_target *target = target_of(qp);
	struct process *process;
	int r;

	qp->wanted = 1ull << 32 | srqn;
	if (!target)
		return 0;
	qp->wanted = 0;
	process = srq_process(server, srqn, target->domain);
	if (!process) {
		refuse_qp(qp, srqn);
		target_report(target, EVENT_QP_ACCESS_ERR);
		return 0;
	}
	/* One that it has let go of, perhaps, or whose other end is dead, which we are not told of yet. */
	if (has_wire_to(qp, process)) {
		qp->wanted = 1ull << 32 | srqn;
		return 0;
	}
	r = wire_connect_xrc(server, qp, target, process);
	if (r < 0)
		qp->wanted = 1ull << 32 | srqn;
	return r;
}

void xrc_again(struct qp *qp)
{
	/* What becomes of it is told to that QP's process. */
	if (qp && qp->attr.type == QP_XRC_SEND && qp->wanted && qp->process)
		(void)xrc_connect(qp, (uint32_t)qp->wanted);
}
