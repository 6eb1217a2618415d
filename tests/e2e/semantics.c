/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What verbs promise besides statuses: what is dropped in silence, what a full completion queue does, events and their
 * acknowledgements, order and fences, shared receive queues between threads.
 */
#include "duo.h"

#include <arpa/inet.h>
#include <pthread.h>

/* --- unreliable: the sender never knows --------------------------------------------------------------------------------------- */

/* Sends @wr, which has to succeed and to reach nobody; then a sound one, which is the next that B sees. */
static void dropped(struct duo *d, struct ibv_send_wr *wr)
{
	struct ibv_sge sge;
	struct ibv_send_wr sound = duo_wr(d, 2, IBV_WR_SEND_WITH_IMM, &sge, 8);

	sound.imm_data = htonl(0x50);
	RETURNS(duo_post(d, wr), 0);
	duo_expect(d, A, wr->wr_id, IBV_WC_SUCCESS);
	RETURNS(duo_post(d, &sound), 0);
	duo_expect(d, A, 2, IBV_WC_SUCCESS);

	struct ibv_wc wc = duo_expect(d, B, 9, IBV_WC_SUCCESS);

	NEED((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == htonl(0x50));
	duo_nothing(d, B);
	NEED(duo_state(d, A) == IBV_QPS_RTS && duo_state(d, B) == IBV_QPS_RTS && duo_no_event(d));
}

static struct ibv_ah *ah_to(const struct duo *d, struct ibv_ah_attr attr)
{
	struct ibv_ah *ah;

	attr.port_num = 1;
	ah = ibv_create_ah(d->pd, &attr);
	NEED(ah);
	return ah;
}

static void datagrams_that_are_dropped(int argc, char **argv)
{
	enum { WRONG_QKEY, WRONG_QPN, WRONG_LID, WRONG_GID, KINDS };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_UD, false);
		duo_connect(&d);
		duo_recv(&d, 9, 4096, d.mr->lkey);

		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 8);
		struct ibv_ah_attr attr = { .dlid = d.here.lid, .is_global = kind == WRONG_GID, .grh.dgid = d.here.gid };

		if (kind == WRONG_QKEY)
			wr.wr.ud.remote_qkey ^= 1;
		if (kind == WRONG_QPN)
			wr.wr.ud.remote_qpn ^= 0x800000;
		if (kind == WRONG_LID)
			attr.dlid ^= 0x4000;
		if (kind == WRONG_GID)
			attr.grh.dgid.raw[15] ^= 0x40;

		struct ibv_ah *ah = ah_to(&d, attr);

		wr.wr.ud.ah = ah;
		dropped(&d, &wr);
		NEED(ibv_destroy_ah(ah) == 0);
		duo_close(&d);
	}
}

/* The key that a WR leaves to its QP, by the highest bit. */
static void datagrams_with_the_qps_own_key(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_UD, false);
	duo_connect(&d);
	duo_recv(&d, 9, 4096, d.mr->lkey);

	struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 8);

	wr.wr.ud.remote_qkey = 0x80000000;
	RETURNS(duo_post(&d, &wr), 0);
	duo_expect(&d, A, 1, IBV_WC_SUCCESS);

	struct ibv_wc wc = duo_expect(&d, B, 9, IBV_WC_SUCCESS);

	NEED(wc.src_qp == d.qp[A]->qp_num && wc.byte_len == 48 && !(wc.wc_flags & IBV_WC_GRH));
	duo_close(&d);
}

static void datagram_without_a_receive(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_UD, false);
	duo_connect(&d);

	struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 8);

	RETURNS(duo_post(&d, &wr), 0);
	duo_expect(&d, A, 1, IBV_WC_SUCCESS);
	duo_nothing(&d, B);
	duo_recv(&d, 9, 64, d.mr->lkey);
	duo_nothing(&d, B);
	duo_close(&d);
}

/* A wrong key, or no receive: the message is lost, the connection is not. */
static void writes_that_are_dropped(int argc, char **argv)
{
	enum { WRONG_KEY, BEHIND, FORBIDDEN, QP_FORBIDS, KINDS };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, IBV_QPT_UC, false);

		struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);

		if (kind == QP_FORBIDS)
			b.qp_access_flags &= ~(unsigned)IBV_ACCESS_REMOTE_WRITE;
		duo_up(&d, A, &a, IBV_QPS_RTS);
		duo_up(&d, B, &b, IBV_QPS_RTS);
		duo_recv(&d, 9, 64, d.mr->lkey);

		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_RDMA_WRITE, &sge, 8);
		struct ibv_mr *mr = ibv_reg_mr(d.pd, d.memory + DUO_HALF, DUO_HALF, IBV_ACCESS_LOCAL_WRITE);

		NEED(mr);
		memset(d.memory, 5, 8);
		if (kind == WRONG_KEY)
			wr.wr.rdma.rkey++;
		if (kind == BEHIND)
			wr.wr.rdma.remote_addr += DUO_HALF;
		if (kind == FORBIDDEN)
			wr.wr.rdma.rkey = mr->rkey;
		/* The sound one is placed at the begin of the half; whatever else is there was to be dropped. */
		wr.wr.rdma.remote_addr += 64;
		dropped(&d, &wr);
		NEED(d.memory[DUO_HALF] == 5 && d.memory[DUO_HALF + 64] == 0);
		NEED(ibv_dereg_mr(mr) == 0);
		duo_close(&d);
	}
}

/* The receive is at fault: that is an error of its QP, whatever the type; the sender does not learn of it. */
static void short_receives(int argc, char **argv)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };

	for (unsigned i = 0; i < 2; i++) {
		struct duo d;
		struct ibv_sge sge;
		uint32_t room = types[i] == IBV_QPT_UD ? 40 + 64 : 64;

		duo_open(&d, types[i], false);
		duo_connect(&d);
		duo_recv(&d, 9, room, d.mr->lkey);
		duo_recv(&d, 10, room, d.mr->lkey);

		struct ibv_send_wr wr = duo_wr(&d, 1, IBV_WR_SEND, &sge, 65);

		RETURNS(duo_post(&d, &wr), 0);
		duo_expect(&d, A, 1, IBV_WC_SUCCESS);
		duo_expect(&d, B, 9, IBV_WC_LOC_LEN_ERR);
		duo_expect(&d, B, 10, IBV_WC_WR_FLUSH_ERR);
		NEED(duo_state(&d, A) == IBV_QPS_RTS);
		duo_state_comes(&d, B, IBV_QPS_ERR);
		duo_close(&d);
	}
}

/* --- a completion queue that is full -------------------------------------------------------------------------------------------- */

/*
 * The completion that has no place is lost, and the CQ is of no use any more: an event says so, what is in it can still be
 * read. A QP that has something to complete there fails, with an event of its own.
 */
static void completion_queue_overrun(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_cq *small = kit_cq(d.ctx, 4);
	struct ibv_qp_init_attr init = kit_qp_init(small, NULL, IBV_QPT_RC);
	int cqe = small->cqe;

	NEED(ibv_destroy_qp(d.qp[A]) == 0);
	d.qp[A] = ibv_create_qp(d.pd, &init);
	NEED(d.qp[A]);
	duo_connect(&d);
	for (int i = 0; i <= cqe; i++) {
		struct ibv_send_wr wr = duo_wr(&d, (uint64_t)i, IBV_WR_RDMA_WRITE, &sge, 8);

		RETURNS(duo_post(&d, &wr), 0);
	}

	struct ibv_cq *own = d.cq[A];

	/* The writes complete in time, whoever looks. */
	duo_event(&d, IBV_EVENT_CQ_ERR, small);
	duo_event(&d, IBV_EVENT_QP_FATAL, d.qp[A]);
	duo_state_comes(&d, A, IBV_QPS_ERR);
	d.cq[A] = small;
	for (int i = 0; i < cqe; i++)
		duo_expect(&d, A, (uint64_t)i, IBV_WC_SUCCESS);
	duo_nothing(&d, A);
	NEED(duo_no_event(&d));
	d.cq[A] = own;
	NEED(ibv_destroy_qp(d.qp[A]) == 0 && ibv_destroy_cq(small) == 0);
	d.qp[A] = NULL;
	duo_close(&d);
}

/* The same of receives, of each type: the receiver fails; that of datagrams has but one lock held when it happens. */
static void receives_overrun_their_queue(int argc, char **argv)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (unsigned t = 0; t < 3; t++) {
		struct duo d;
		struct ibv_sge sge;

		duo_open(&d, types[t], false);

		struct ibv_cq *small = kit_cq(d.ctx, 2), *own = d.cq[B];
		struct ibv_qp_init_attr init = kit_qp_init(small, NULL, types[t]);
		int cqe = small->cqe;

		NEED(ibv_destroy_qp(d.qp[B]) == 0);
		d.qp[B] = ibv_create_qp(d.pd, &init);
		NEED(d.qp[B]);
		duo_connect(&d);
		for (int i = 0; i <= cqe; i++)
			duo_recv(&d, (uint64_t)i, 64, d.mr->lkey);
		for (int i = 0; i <= cqe; i++) {
			struct ibv_send_wr wr = duo_wr(&d, (uint64_t)i, IBV_WR_SEND, &sge, 8);

			RETURNS(duo_post(&d, &wr), 0);
		}
		duo_event(&d, IBV_EVENT_CQ_ERR, small);
		duo_event(&d, IBV_EVENT_QP_FATAL, d.qp[B]);
		duo_state_comes(&d, B, IBV_QPS_ERR);
		d.cq[B] = small;
		for (int i = 0; i < cqe; i++)
			duo_expect(&d, B, (uint64_t)i, IBV_WC_SUCCESS);
		duo_nothing(&d, B);
		NEED(duo_no_event(&d));
		NEED(ibv_destroy_qp(d.qp[B]) == 0 && ibv_destroy_cq(small) == 0);
		d.qp[B] = NULL;
		d.cq[B] = own;
		duo_close(&d);
	}
}

/* --- events ------------------------------------------------------------------------------------------------------------------------ */

/* The first message, whatever it is, reaches a QP that is not told yet that the connection stands. */
static void established_by(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct duo d;
	struct ibv_sge sge;

	duo_open(&d, type, false);

	struct ibv_qp_attr a = duo_attr(&d, A), b = duo_attr(&d, B);

	duo_up(&d, B, &b, IBV_QPS_RTR);
	duo_recv(&d, 9, 64, d.mr->lkey);
	duo_recv(&d, 10, 64, d.mr->lkey);
	duo_up(&d, A, &a, IBV_QPS_RTS);
	NEED(duo_no_event(&d));
	for (uint64_t i = 1; i <= 2; i++) {
		struct ibv_send_wr wr = duo_wr(&d, i, opcode, &sge, 8);

		RETURNS(duo_post(&d, &wr), 0);
		duo_expect(&d, A, i, IBV_WC_SUCCESS);
		if (opcode == IBV_WR_SEND)
			duo_expect(&d, B, 8 + i, IBV_WC_SUCCESS);
		if (i == 1)
			duo_event(&d, IBV_EVENT_COMM_EST, d.qp[B]);
	}
	NEED(duo_no_event(&d) && duo_state(&d, B) == IBV_QPS_RTR);
	duo_close(&d);
}

static void communication_established(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		established_by(IBV_QPT_RC, opcodes[i]);
	for (size_t i = 0; i < 2; i++)
		established_by(IBV_QPT_UC, opcodes[i]);
}

#define READERS 4u

static void *event_read(void *arg)
{
	static struct ibv_async_event events[READERS];
	static _Atomic unsigned n;
	struct ibv_async_event *event = &events[n++];

	NEED(ibv_get_async_event(arg, event) == 0);
	return event;
}

/* Each event wakes one of those who wait for any. */
static void several_wait_for_events(int argc, char **argv)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct ibv_context *ctx = kit_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq *srqs[READERS];
	pthread_t threads[READERS];
	unsigned seen[READERS] = { 0 };

	NEED(pd);
	for (unsigned i = 0; i < READERS; i++) {
		NEED(pthread_create(&threads[i], NULL, event_read, ctx) == 0);
		srqs[i] = ibv_create_srq(pd, &init);
		NEED(srqs[i]);
	}
	for (unsigned i = 0; i < READERS; i++)
		RETURNS(ibv_modify_srq(srqs[i], &attr, IBV_SRQ_LIMIT), 0); /* there are fewer already */
	for (unsigned i = 0; i < READERS; i++) {
		void *event;

		NEED(pthread_join(threads[i], &event) == 0);

		struct ibv_async_event *got = event;

		NEED(got->event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
		for (unsigned k = 0; k < READERS; k++)
			seen[k] += got->element.srq == srqs[k];
		ibv_ack_async_event(got);
	}
	for (unsigned i = 0; i < READERS; i++)
		NEED(seen[i] == 1 && ibv_destroy_srq(srqs[i]) == 0);
	NEED(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

/* Once for each time that it was armed, when fewer are left than the limit. */
static void shared_receive_queue_limit(int argc, char **argv)
{
	struct duo d;
	struct ibv_sge sge;
	struct ibv_srq_attr attr = { .srq_limit = 2 };

	duo_open(&d, IBV_QPT_RC, true);
	duo_connect(&d);
	for (unsigned round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < 3; i++)
			duo_recv(&d, i, 64, d.mr->lkey);
		RETURNS(ibv_modify_srq(d.srq, &attr, IBV_SRQ_LIMIT), 0);
		RETURNS(ibv_query_srq(d.srq, &attr), 0);
		NEED(attr.srq_limit == 2);
		for (uint64_t i = 0; i < 3; i++) {
			struct ibv_send_wr wr = duo_wr(&d, i, IBV_WR_SEND, &sge, 8);

			RETURNS(duo_post(&d, &wr), 0);
			duo_expect(&d, A, i, IBV_WC_SUCCESS);
			duo_expect(&d, B, i, IBV_WC_SUCCESS);
			if (i == 0)
				NEED(duo_no_event(&d));
			if (i == 1)
				duo_event(&d, IBV_EVENT_SRQ_LIMIT_REACHED, d.srq);
		}
		NEED(duo_no_event(&d));
		RETURNS(ibv_query_srq(d.srq, &attr), 0);
		NEED(attr.srq_limit == 0);
		attr.srq_limit = 2;
	}
	duo_close(&d);
}

/* The QP is in error and has all its receives back. */
static void last_of_a_shared_receive_queue(int argc, char **argv)
{
	struct duo d;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	duo_open(&d, IBV_QPT_RC, true);
	duo_connect(&d);
	duo_recv(&d, 9, 64, d.mr->lkey);
	RETURNS(ibv_modify_qp(d.qp[B], &error, IBV_QP_STATE), 0);
	duo_event(&d, IBV_EVENT_QP_LAST_WQE_REACHED, d.qp[B]);
	/* What nobody took stays the SRQ's. */
	duo_nothing(&d, B);
	NEED(duo_no_event(&d));
	duo_close(&d);
}

/* --- destroying waits ----------------------------------------------------------------------------------------------------- */

struct destroyer {
	void *object;
	int (*destroy)(void *object);
	_Atomic bool done;
};

static int qp_destroy(void *qp)
{
	return ibv_destroy_qp(qp);
}

static int cq_destroy(void *cq)
{
	return ibv_destroy_cq(cq);
}

static int srq_destroy(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	NEED(d->destroy(d->object) == 0);
	d->done = true;
	return NULL;
}

/* The object is there until its event is acknowledged: @event, or with NULL the CQ's completion event. */
static void waits_for(struct duo *d, void *object, int (*end)(void *object), struct ibv_async_event *event)
{
	struct destroyer destroyer = { .object = object, .destroy = end };
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, destroy, &destroyer) == 0);
	/* Give it every chance to be wrong. */
	for (unsigned i = 0; i < 200; i++) {
		duo_nothing(d, A);
		NEED(!destroyer.done);
	}
	if (event)
		ibv_ack_async_event(event);
	else
		ibv_ack_cq_events(object, 1);
	NEED(pthread_join(thread, NULL) == 0 && destroyer.done);
}

static struct ibv_async_event delivered(struct duo *d, enum ibv_event_type type)
{
	struct ibv_async_event event;

	NEED(ibv_get_async_event(d->ctx, &event) == 0 && event.event_type == type);
	return event;
}

/* What was delivered is waited for; what nobody read goes with its object. */
static void destroy_waits_for_acknowledgements(int argc, char **argv)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct duo d;

	duo_open(&d, IBV_QPT_RC, true);
	duo_connect(&d);
	RETURNS(ibv_modify_qp(d.qp[B], &error, IBV_QP_STATE), 0);
	event = delivered(&d, IBV_EVENT_QP_LAST_WQE_REACHED);
	waits_for(&d, d.qp[B], qp_destroy, &event);
	d.qp[B] = NULL;
	duo_close(&d);

	duo_open(&d, IBV_QPT_RC, true);
	duo_connect(&d);
	RETURNS(ibv_modify_qp(d.qp[B], &error, IBV_QP_STATE), 0);
	NEED(ibv_destroy_qp(d.qp[B]) == 0);
	d.qp[B] = NULL;
	NEED(duo_no_event(&d));
	duo_close(&d);
}

static void srq_destroy_waits_for_acknowledgements(int argc, char **argv)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct duo d;

	duo_open(&d, IBV_QPT_RC, false);
	for (unsigned read = 0; read < 2; read++) {
		struct ibv_srq *srq = ibv_create_srq(d.pd, &init);

		/* There are fewer already. */
		NEED(srq && ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
		if (read) {
			struct ibv_async_event event = delivered(&d, IBV_EVENT_SRQ_LIMIT_REACHED);

			waits_for(&d, srq, srq_destroy, &event);
		} else {
			NEED(ibv_destroy_srq(srq) == 0);
		}
		NEED(duo_no_event(&d));
	}
	duo_close(&d);
}

/* Of both kinds of events that a CQ has. */
static void cq_destroy_waits_for_acknowledgements(int argc, char **argv)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct duo d;

	duo_open(&d, IBV_QPT_RC, false);

	struct ibv_comp_channel *channel = ibv_create_comp_channel(d.ctx);

	NEED(channel);
	for (unsigned overrun = 0; overrun < 2; overrun++) {
		struct ibv_cq *cq = ibv_create_cq(d.ctx, 1, NULL, channel, 0), *from;
		struct ibv_qp_init_attr init = kit_qp_init(cq, NULL, IBV_QPT_RC);
		struct ibv_qp *qp = cq ? ibv_create_qp(d.pd, &init) : NULL;
		void *context;

		NEED(qp && ibv_req_notify_cq(cq, 0) == 0);
		kit_connect(qp, qp);
		for (int i = 0; i < (overrun ? cq->cqe + 1 : 1); i++)
			RETURNS(ibv_post_recv(qp, &recv, &bad), 0);
		RETURNS(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
		NEED(ibv_get_cq_event(channel, &from, &context) == 0 && from == cq);
		NEED(ibv_destroy_qp(qp) == 0);
		if (overrun) {
			struct ibv_async_event event = delivered(&d, IBV_EVENT_CQ_ERR);

			ibv_ack_cq_events(cq, 1);
			waits_for(&d, cq, cq_destroy, &event);
		} else {
			waits_for(&d, cq, cq_destroy, NULL);
		}
		NEED(duo_no_event(&d));
	}
	NEED(ibv_destroy_comp_channel(channel) == 0);
	duo_close(&d);
}

extern const struct kit_test semantics_order[], semantics_windows[];

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "datagrams-that-are-dropped", datagrams_that_are_dropped },
		{ "datagrams-with-the-qps-own-key", datagrams_with_the_qps_own_key },
		{ "datagram-without-a-receive", datagram_without_a_receive },
		{ "writes-that-are-dropped", writes_that_are_dropped },
		{ "short-receives", short_receives },
		{ "completion-queue-overrun", completion_queue_overrun },
		{ "receives-overrun-their-queue", receives_overrun_their_queue },
		{ "communication-established", communication_established },
		{ "several-wait-for-events", several_wait_for_events },
		{ "shared-receive-queue-limit", shared_receive_queue_limit },
		{ "last-of-a-shared-receive-queue", last_of_a_shared_receive_queue },
		{ "destroy-waits-for-acknowledgements", destroy_waits_for_acknowledgements },
		{ "srq-destroy-waits-for-acknowledgements", srq_destroy_waits_for_acknowledgements },
		{ "cq-destroy-waits-for-acknowledgements", cq_destroy_waits_for_acknowledgements },
		{ NULL, NULL },
	};

	static const struct kit_test *const others[] = { semantics_order, semantics_windows };

	for (size_t i = 0; i < 2; i++) {
		if (argc < 2)
			kit_main(others[i], argc, argv);
		for (const struct kit_test *t = others[i]; argc > 1 && t->name; t++)
			if (strcmp(t->name, argv[1]) == 0)
				return kit_main(others[i], argc, argv);
	}
	return kit_main(tests, argc, argv);
}
