/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking: completions of every CQ, completion events, asynchronous events (all acknowledged), states of QPs.
 */
#include "tests/random/worker.h"

#include <stdlib.h>

static void wc_add(struct worker *w, unsigned i, uint32_t cq, const struct ibv_wc *wc)
{
	w->reply.wcs[w->reply.n_wcs++] = (struct wc_seen){ .cmd = i, .cq = cq, .wc = *wc };
}

static void wc_read(struct ibv_cq_ex *cq, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = cq->wr_id,
		.status = cq->status,
		.opcode = ibv_wc_read_opcode(cq),
		.vendor_err = ibv_wc_read_vendor_err(cq),
		.byte_len = ibv_wc_read_byte_len(cq),
		.qp_num = ibv_wc_read_qp_num(cq),
		.src_qp = ibv_wc_read_src_qp(cq),
		.slid = (uint16_t)ibv_wc_read_slid(cq),
		.wc_flags = ibv_wc_read_wc_flags(cq),
	};
	if (wc->wc_flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = ibv_wc_read_invalidated_rkey(cq);
	else
		wc->imm_data = ibv_wc_read_imm_data(cq);
}

static void poll_ex(struct worker *w, unsigned i, uint32_t id)
{
	struct ibv_cq_ex *cq = w->cqs_ex[id];
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc;
	int err;

	if (w->reply.n_wcs == LINK_WCS)
		return;
	err = ibv_start_poll(cq, &attr);
	if (err)
		return;
	do {
		wc_read(cq, &wc);
		wc_add(w, i, id, &wc);
	} while (w->reply.n_wcs < LINK_WCS && ibv_next_poll(cq) == 0);
	ibv_end_poll(cq);
}

static void poll_plain(struct worker *w, unsigned i, uint32_t id)
{
	struct ibv_wc wcs[16];
	int n;

	do {
		uint32_t room = LINK_WCS - w->reply.n_wcs;

		n = ibv_poll_cq(w->cqs[id], room < 16 ? (int)room : 16, wcs);
		for (int k = 0; k < n; k++)
			wc_add(w, i, id, &wcs[k]);
	} while (n > 0 && w->reply.n_wcs < LINK_WCS);
	if (n < 0)
		w->reply.results[i].error = -n;
}

static void event_add(struct worker *w, int type, const void *context)
{
	w->reply.events[w->reply.n_events++] =
		(struct event_seen){ .type = type, .id = (uint32_t)(uintptr_t)context };
}

static void events_take(struct worker *w)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	while (w->reply.n_events < LINK_EVENTS && ibv_get_cq_event(w->channel, &cq, &context) == 0) {
		event_add(w, -1, context);
		ibv_ack_cq_events(cq, 1);
	}
	while (w->reply.n_events < LINK_EVENTS && ibv_get_async_event(w->ctx, &event) == 0) {
		switch ((int)event.event_type) {
		case IBV_EVENT_CQ_ERR:
			event_add(w, event.event_type, event.element.cq->cq_context);
			break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			event_add(w, event.event_type, event.element.srq->srq_context);
			break;
		default:
			event_add(w, event.event_type, event.element.qp->qp_context);
		}
		ibv_ack_async_event(&event);
	}
}

static void states_take(struct worker *w)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	for (uint32_t id = 0; id < w->qps_top && w->reply.n_states < LINK_STATES; id++) {
		worker_pause(w);
		if (w->qps[id].qp && ibv_query_qp(w->qps[id].qp, &attr, IBV_QP_STATE, &init) == 0)
			w->reply.states[w->reply.n_states++] =
				(struct state_seen){ .qp = id, .state = attr.qp_state | attr.sq_draining << 8 };
	}
}

void worker_poll_shared(struct worker *w, unsigned i)
{
	for (uint32_t id = 0; id < w->cqs_top; id++) {
		if (w->cqs[id] && !w->cq_td[id])
			(w->cqs_ex[id] ? poll_ex : poll_plain)(w, i, id);
	}
}

void worker_poll(struct worker *w, unsigned i)
{
	for (uint32_t id = 0; id < w->cqs_top; id++) {
		if (!w->cqs[id])
			continue;
		worker_pause(w);
		if (w->cqs_ex[id])
			poll_ex(w, i, id);
		else
			poll_plain(w, i, id);
	}
	worker_pause(w);
	events_take(w);
	worker_pause(w);
	if (w->cmds[i].a[0])
		states_take(w);
}
