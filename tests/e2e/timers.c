/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a sender waits at least: for a receive, as the other side's RNR timer asks, and for a peer that is not there, as its
 * own timeout and retry count say. Nothing here says how long at most.
 */
#include "duo.h"

#include <time.h>

#define CODES 32u

static uint64_t now(void)
{
	struct timespec t;

	NEED(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One send that fails. */
struct wait {
	struct duo d;
	enum ibv_wc_status status;
	uint64_t least; /* ns that it has to wait */
	uint64_t from;
	bool done;
};

static void wait_post(struct wait *w)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = duo_wr(&w->d, 1, IBV_WR_SEND, &sge, 8);

	w->from = now();
	RETURNS(duo_post(&w->d, &wr), 0);
}

/* Not done yet, or done and not too early. */
static bool wait_look(struct wait *w)
{
	struct ibv_wc wc;
	int n = w->done ? 0 : ibv_poll_cq(w->d.cq[A], 1, &wc);

	NEED(n >= 0);
	if (n == 0)
		return w->done;

	uint64_t waited = now() - w->from;

	if (wc.status != w->status || waited < w->least)
		fprintf(stderr, "%s after %llu ns, not %s after %llu\n", ibv_wc_status_str(wc.status), (unsigned long long)waited,
			ibv_wc_status_str(w->status), (unsigned long long)w->least);
	NEED(wc.status == w->status && waited >= w->least);
	NEED(duo_state(&w->d, A) == IBV_QPS_ERR);
	return w->done = true;
}

/* All together, since each takes its time. */
static void wait_all(struct wait *waits, unsigned n)
{
	for (unsigned left = n; left;) {
		left = n;
		for (unsigned i = 0; i < n; i++)
			left -= wait_look(&waits[i]);
	}
}

static void close_all(struct wait *waits, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		duo_close(&waits[i].d);
}

/* The encoding of RNR NAK timers, in 10 µs: powers of two and what is between them; 0 is the longest. */
static uint64_t rnr_delay(unsigned code)
{
	uint64_t units = code == 0 ? 65536 : code == 1 ? 1 : code & 1 ? 3ull << (code - 3) / 2 : 1ull << code / 2;

	return units * 10000;
}

/* Each refusal but the last is waited for. */
static void rnr_timers(int argc, char **argv)
{
	static struct wait waits[CODES];

	for (unsigned code = 0; code < CODES; code++) {
		struct wait *w = &waits[code];

		duo_open(&w->d, IBV_QPT_RC, code & 1);

		struct ibv_qp_attr a = duo_attr(&w->d, A), b = duo_attr(&w->d, B);

		a.min_rnr_timer = 31 - code; /* it is the receiver's that counts */
		b.min_rnr_timer = (uint8_t)code;
		a.rnr_retry = code >= 1 && code <= 20 ? 6 : 1;
		duo_up(&w->d, A, &a, IBV_QPS_RTS);
		duo_up(&w->d, B, &b, IBV_QPS_RTS);
		w->status = IBV_WC_RNR_RETRY_EXC_ERR;
		w->least = rnr_delay(code) * a.rnr_retry;
	}
	for (unsigned code = 0; code < CODES; code++)
		wait_post(&waits[code]);
	wait_all(waits, CODES);
	for (unsigned code = 0; code < CODES; code++)
		NEED(duo_state(&waits[code].d, B) == IBV_QPS_RTS);
	close_all(waits, CODES);
}

/* A receive that comes meanwhile ends the wait: the send is not lost, and its retries are counted anew for the next one. */
static void rnr_timers_begin_anew(int argc, char **argv)
{
	enum { RETRIES = 6 }; /* of half a second each: a receive comes in time, however busy the machine is */
	struct wait w = { .status = IBV_WC_RNR_RETRY_EXC_ERR, .least = rnr_delay(14) * RETRIES };

	duo_open(&w.d, IBV_QPT_RC, false);

	struct ibv_qp_attr a = duo_attr(&w.d, A), b = duo_attr(&w.d, B);

	a.rnr_retry = RETRIES;
	b.min_rnr_timer = 31;
	duo_up(&w.d, A, &a, IBV_QPS_RTS);
	duo_up(&w.d, B, &b, IBV_QPS_RTS);
	for (unsigned i = 0; i < 2 * RETRIES; i++) {
		wait_post(&w);
		duo_nothing(&w.d, A);
		duo_recv(&w.d, 9, 64, w.d.mr->lkey);
		duo_expect(&w.d, A, 1, IBV_WC_SUCCESS);
		duo_expect(&w.d, B, 9, IBV_WC_SUCCESS);
	}
	b.min_rnr_timer = 14;
	b.qp_state = IBV_QPS_RTS;
	RETURNS(ibv_modify_qp(w.d.qp[B], &b, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), 0);
	wait_post(&w);
	wait_all(&w, 1);
	duo_close(&w.d);
}

struct code {
	uint8_t timeout, retries;
	bool was_there; /* the peer is in error since a message arrived there */
};

/* As long as it may be, for those that end. */
static const struct code ends[] = { { 1, 0, true }, { 8, 7, true }, { 12, 7, true }, { 14, 0, true }, { 14, 3, true }, { 15, 7, true },
	{ 16, 1, true }, { 17, 0, true }, { 1, 0, false }, { 14, 7, false }, { 15, 7, false }, { 18, 0, false } };

static const struct code endless[] = { { 0, 0, true }, { 0, 7, true }, { 0, 0, false }, { 31, 0, true } };

#define ENDS	(sizeof(ends) / sizeof(ends[0]))
#define ENDLESS (sizeof(endless) / sizeof(endless[0]))

static void wait_open(struct wait *w, struct code code)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge sge;

	w->status = IBV_WC_RETRY_EXC_ERR;
	w->least = (4096ull << code.timeout) * (code.retries + 1u);
	duo_open(&w->d, IBV_QPT_RC, false);

	struct ibv_qp_attr a = duo_attr(&w->d, A), b = duo_attr(&w->d, B);

	a.timeout = code.timeout;
	a.retry_cnt = code.retries;
	duo_up(&w->d, A, &a, IBV_QPS_RTS);
	if (!code.was_there)
		return;
	duo_up(&w->d, B, &b, IBV_QPS_RTS);

	struct ibv_send_wr wr = duo_wr(&w->d, 5, IBV_WR_SEND, &sge, 8);

	duo_recv(&w->d, 9, 64, w->d.mr->lkey);
	RETURNS(duo_post(&w->d, &wr), 0);
	duo_expect(&w->d, A, 5, IBV_WC_SUCCESS);
	duo_expect(&w->d, B, 9, IBV_WC_SUCCESS);
	RETURNS(ibv_modify_qp(w->d.qp[B], &error, IBV_QP_STATE), 0);
}

/* It was asked for too often to have an end, and the peer comes back to see the message. */
static void wait_is_over(struct wait *w)
{
	struct ibv_qp_attr b = duo_attr(&w->d, B);

	NEED(!wait_look(w) && duo_state(&w->d, A) == IBV_QPS_RTS);
	duo_up(&w->d, B, &b, IBV_QPS_RTS);
	duo_recv(&w->d, 9, 64, w->d.mr->lkey);
	duo_expect(&w->d, A, 1, IBV_WC_SUCCESS);
	duo_expect(&w->d, B, 9, IBV_WC_SUCCESS);
}

static void transport_timers(int argc, char **argv)
{
	static struct wait waits[ENDS + ENDLESS];

	for (unsigned i = 0; i < ENDS + ENDLESS; i++)
		wait_open(&waits[i], i < ENDS ? ends[i] : endless[i - ENDS]);
	for (unsigned i = 0; i < ENDS + ENDLESS; i++)
		wait_post(&waits[i]);
	wait_all(waits, ENDS);
	/* A timeout of 0 is none; what is there only now is not too late. */
	for (unsigned i = ENDS; i < ENDS + ENDLESS; i++)
		if (!endless[i - ENDS].was_there)
			wait_is_over(&waits[i]);
		else
			NEED(!wait_look(&waits[i]) && duo_state(&waits[i].d, A) == IBV_QPS_RTS);
	close_all(waits, ENDS + ENDLESS);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "rnr-timers", rnr_timers },
		{ "rnr-timers-begin-anew", rnr_timers_begin_anew },
		{ "transport-timers", transport_timers },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
