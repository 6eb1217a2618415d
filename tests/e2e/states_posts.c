/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a queue pair does in each of its states: what may be posted, what is held, what is flushed, and what a reset or the
 * end of the QP takes with it.
 */
#include "states.h"

#include <fcntl.h>

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

#define TYPES (sizeof(types) / sizeof(types[0]))

static void nothing_more(struct subject *s)
{
	struct ibv_wc wc;

	for (int i = 0; i < 100; i++)
		NEED(ibv_poll_cq(s->cq, 1, &wc) == 0);
}

/* A message to itself: which of its two completions comes first depends on who serves it. */
static void message_done(struct subject *s, uint64_t send, uint64_t recv)
{
	for (unsigned seen = 0; seen != 3;) {
		struct ibv_wc wc = kit_wait(s->cq);

		NEED(wc.status == IBV_WC_SUCCESS && (wc.wr_id == send || wc.wr_id == recv));
		seen |= wc.wr_id == send ? 1 : 2;
	}
}

static int to(struct subject *s, int state, int mask, int notify)
{
	struct ibv_qp_attr attr = subject_values(s);

	attr.qp_state = (enum ibv_qp_state)state;
	attr.en_sqd_async_notify = (uint8_t)notify;
	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | mask);
}

static void posts_in_each_state(int argc, char **argv)
{
	struct subject s;

	for (size_t t = 0; t < TYPES; t++) {
		NEED(subject_open(&s, types[t]));
		for (int state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++) {
			bool flushes = state == IBV_QPS_ERR || state == IBV_QPS_SQE;

			if (!subject_to(&s, state))
				continue;
			RETURNS(subject_recv(&s, 2, 64), state == IBV_QPS_RESET ? EINVAL : 0);
			if (state == IBV_QPS_ERR)
				subject_expect(&s, 2, IBV_WC_WR_FLUSH_ERR);
			RETURNS(subject_send(&s, 1, 8, s.mr->lkey), state < IBV_QPS_RTS ? EINVAL : 0);
			if (flushes)
				subject_expect(&s, 1, IBV_WC_WR_FLUSH_ERR);
			/* What is held in SQD is sent once more is allowed. */
			if (state == IBV_QPS_SQD) {
				nothing_more(&s);
				RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
			}
			if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
				message_done(&s, 1, 2);
		}
		subject_close(&s);
	}
}

static void posts_of_rc(struct subject *s, uint64_t first, unsigned n)
{
	for (uint64_t i = first; i < first + n; i++)
		RETURNS(subject_send(s, i, 8, s->mr->lkey), 0);
}

static bool event_is(struct ibv_context *ctx, enum ibv_event_type type, const struct ibv_qp *qp)
{
	struct ibv_async_event event;

	NEED(ibv_get_async_event(ctx, &event) == 0);

	bool is = event.event_type == type && event.element.qp == qp;

	ibv_ack_async_event(&event);
	return is;
}

static bool no_event(struct ibv_context *ctx)
{
	struct ibv_async_event event;
	int flags = fcntl(ctx->async_fd, F_GETFL);

	NEED(fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);

	int r = ibv_get_async_event(ctx, &event);

	NEED(fcntl(ctx->async_fd, F_SETFL, flags) == 0);
	return r == -1 && errno == EAGAIN;
}

static int draining(const struct subject *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.sq_draining;
}

/* A send that waits for its receive keeps the queue from being drained; the event comes with its acknowledgement. */
static void drained_when_the_last_is_done(int argc, char **argv)
{
	struct subject s;

	NEED(subject_open(&s, IBV_QPT_RC));
	subject_to(&s, IBV_QPS_RTS);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1, .rnr_retry = 7 };

	/* Patient, so that it waits for its receive in SQD. */
	RETURNS(to(&s, IBV_QPS_SQD, 0, 0), 0);
	RETURNS(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_RNR_RETRY), 0);
	RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
	NEED(no_event(s.ctx));
	/* One completes, so that the wire is there; the next is on its way when the queue is to be drained. */
	RETURNS(subject_recv(&s, 100, 64), 0);
	posts_of_rc(&s, 1, 1);
	message_done(&s, 1, 100);
	posts_of_rc(&s, 2, 1);
	RETURNS(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	posts_of_rc(&s, 3, 1);
	NEED(draining(&s) == 1 && no_event(s.ctx));
	RETURNS(subject_recv(&s, 101, 64), 0);
	message_done(&s, 2, 101);
	NEED(event_is(s.ctx, IBV_EVENT_SQ_DRAINED, s.qp));
	NEED(draining(&s) == 0);
	/* The third is held until the QP sends again. */
	RETURNS(subject_recv(&s, 102, 64), 0);
	nothing_more(&s);
	/* Staying in SQD is no new draining. */
	RETURNS(to(&s, IBV_QPS_SQD, 0, 0), 0);
	NEED(no_event(s.ctx));
	RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
	message_done(&s, 3, 102);
	subject_close(&s);
}

/* Who asks for the event gets it, also of a queue that is empty; that is asked anew each time. */
static void drained_event_is_asked_for_each_time(int argc, char **argv)
{
	struct subject s;

	for (size_t t = 0; t < TYPES; t++) {
		NEED(subject_open(&s, types[t]));
		subject_to(&s, IBV_QPS_RTS);
		RETURNS(to(&s, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), 0);
		NEED(event_is(s.ctx, IBV_EVENT_SQ_DRAINED, s.qp));
		RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
		RETURNS(to(&s, IBV_QPS_SQD, 0, 0), 0);
		NEED(no_event(s.ctx));
		RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
		RETURNS(to(&s, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0), 0);
		NEED(no_event(s.ctx));
		subject_close(&s);
	}
}

/* The send queue alone is in error: what was posted behind is flushed, receives stay, and it can come back. */
static void send_queue_error_and_back(int argc, char **argv)
{
	struct subject s;

	for (size_t t = 0; t < TYPES; t++) {
		NEED(subject_open(&s, types[t]));
		subject_to(&s, IBV_QPS_RTS);
		RETURNS(subject_recv(&s, 10, 64), 0);
		RETURNS(subject_send(&s, 1, 8, s.mr->lkey + 1), 0);
		if (types[t] == IBV_QPT_RC) {
			subject_expect(&s, 1, IBV_WC_LOC_PROT_ERR);
			subject_expect(&s, 10, IBV_WC_WR_FLUSH_ERR);
			NEED(subject_state(&s) == IBV_QPS_ERR);
			RETURNS(to(&s, IBV_QPS_RTS, 0, 0), EINVAL);
			subject_close(&s);
			continue;
		}
		subject_expect(&s, 1, IBV_WC_LOC_PROT_ERR);
		NEED(subject_state(&s) == IBV_QPS_SQE);
		RETURNS(subject_send(&s, 2, 8, s.mr->lkey), 0);
		subject_expect(&s, 2, IBV_WC_WR_FLUSH_ERR);
		nothing_more(&s);
		NEED(no_event(s.ctx));
		RETURNS(to(&s, IBV_QPS_RTS, 0, 0), 0);
		RETURNS(subject_send(&s, 3, 8, s.mr->lkey), 0);
		message_done(&s, 3, 10);
		subject_close(&s);
	}
}

/* All that is outstanding, signalled or not, in order, once. */
static void error_flushes_everything(int argc, char **argv)
{
	struct subject s;

	for (size_t t = 0; t < TYPES; t++) {
		NEED(subject_open(&s, types[t]));
		subject_to(&s, IBV_QPS_SQD);
		for (uint64_t i = 1; i <= 8; i++)
			RETURNS(subject_send(&s, i, 8, s.mr->lkey), 0);
		for (uint64_t i = 11; i <= 18; i++)
			RETURNS(subject_recv(&s, i, 64), 0);
		RETURNS(to(&s, IBV_QPS_ERR, 0, 0), 0);
		for (uint64_t i = 1; i <= 8; i++)
			subject_expect(&s, i, IBV_WC_WR_FLUSH_ERR);
		for (uint64_t i = 11; i <= 18; i++)
			subject_expect(&s, i, IBV_WC_WR_FLUSH_ERR);
		nothing_more(&s);
		/* Asked for: that is no event. */
		NEED(no_event(s.ctx));
		subject_close(&s);
	}
}

/* From RESET too, as the kernel's table has it; receives are refused until then and flushed from then on. */
static void reset_to_error(int argc, char **argv)
{
	struct subject s;

	NEED(subject_open(&s, IBV_QPT_RC));
	RETURNS(subject_recv(&s, 1, 64), EINVAL);
	RETURNS(to(&s, IBV_QPS_ERR, 0, 0), 0);
	RETURNS(subject_recv(&s, 2, 64), 0);
	subject_expect(&s, 2, IBV_WC_WR_FLUSH_ERR);
	RETURNS(to(&s, IBV_QPS_INIT, spec_required(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT), 0), EINVAL);
	RETURNS(to(&s, IBV_QPS_RESET, 0, 0), 0);
	subject_close(&s);
}

static struct ibv_wc flushed(struct ibv_cq *cq, const struct ibv_qp *qp)
{
	struct ibv_wc wc = kit_wait(cq);

	NEED(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qp->qp_num);
	return wc;
}

/* Completions that nobody read go with their QP; those of another on the same CQ do not. */
static void unread_completions_go(bool destroy)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
	struct subject s;

	NEED(subject_open(&s, IBV_QPT_RC));

	struct ibv_qp *other = kit_qp(s.pd, s.cq, NULL);

	kit_connect(s.qp, other);
	for (unsigned i = 0; i < 4; i++) {
		kit_post_recv(s.qp, s.mr, s.memory, 64);
		kit_post_recv(other, s.mr, s.memory, 64);
	}
	RETURNS(ibv_modify_qp(other, &error, IBV_QP_STATE), 0);
	RETURNS(ibv_modify_qp(s.qp, &error, IBV_QP_STATE), 0);
	if (destroy) {
		RETURNS(ibv_destroy_qp(s.qp), 0);
		s.qp = NULL;
	} else {
		RETURNS(ibv_modify_qp(s.qp, &reset, IBV_QP_STATE), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		flushed(s.cq, other);
	nothing_more(&s);
	if (!destroy) {
		/* And it begins anew. */
		subject_to(&s, IBV_QPS_RTS);
		RETURNS(subject_recv(&s, 5, 64), 0);
		RETURNS(subject_send(&s, 6, 8, s.mr->lkey), 0);
		message_done(&s, 6, 5);
	}
	RETURNS(ibv_destroy_qp(other), 0);
	subject_close(&s);
}

static void reset_drops_unread_completions(int argc, char **argv)
{
	unread_completions_go(false);
}

static void destroy_drops_unread_completions(int argc, char **argv)
{
	unread_completions_go(true);
}

const struct kit_test states_posts[] = {
	{ "posts-in-each-state", posts_in_each_state },
	{ "drained-when-the-last-is-done", drained_when_the_last_is_done },
	{ "drained-event-is-asked-for-each-time", drained_event_is_asked_for_each_time },
	{ "send-queue-error-and-back", send_queue_error_and_back },
	{ "error-flushes-everything", error_flushes_everything },
	{ "reset-to-error", reset_to_error },
	{ "reset-drops-unread-completions", reset_drops_unread_completions },
	{ "destroy-drops-unread-completions", destroy_drops_unread_completions },
	{ NULL, NULL },
};
