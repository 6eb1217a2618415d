/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC across processes: A has the send QP; B makes the receive QP and has an SRQ; C shares B's XRC domain and has another.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "xrc_worker.h"

enum { A, B, C, N };

#define DO(who, ...)  worker_do(&w[who], (struct order){ __VA_ARGS__ })
#define TRY(who, ...) worker_try(&w[who], (struct order){ __VA_ARGS__ })
#define ALL	      (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct worker w[N];
static uint32_t send_qpn, recv_qpn, srqn[N];

static void start(void)
{
	files_make();
	workers_start(w, N);
}

static void end(void)
{
	workers_end(w, N);
}

static void objects_make(void)
{
	start();
	DO(B, XRCD, 1, O_CREAT);
	DO(C, XRCD, 1, 0);
	srqn[B] = DO(B, SRQ).a;
	srqn[C] = DO(C, SRQ).a;
	recv_qpn = DO(B, RECV_NEW).a;
	send_qpn = DO(A, SEND_NEW).a;
}

/* All is made and connected. */
static void connect_all(unsigned access, unsigned rnr_retry)
{
	objects_make();
	DO(B, RECV_UP, send_qpn, access);
	DO(A, SEND_UP, recv_qpn, rnr_retry);
}

static void send_to(unsigned who, uint32_t length, uint8_t fill)
{
	struct answer got;

	DO(A, POST, IBV_WR_SEND, srqn[who], .length = length, .fill = fill);
	got = DO(who, POLL_RECV);
	NEED(got.a == length && got.b == IBV_WC_RECV && got.c == recv_qpn && got.d == send_qpn && got.e == fill);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
}

static void objects(int argc, char **argv)
{
	start();
	NEED(TRY(A, XRCD, 0, 0).r == EINVAL); /* private, but not to be created */
	NEED(TRY(A, XRCD, 1, 0).r == EAGAIN);
	DO(A, XRCD, 1, O_CREAT | O_EXCL);
	NEED(TRY(B, XRCD, 1, O_CREAT | O_EXCL).r == EINVAL);
	DO(B, XRCD, 1, O_CREAT);
	DO(C, XRCD, 2, O_CREAT);
	recv_qpn = DO(A, RECV_NEW).a;
	NEED(TRY(C, RECV_OPEN, recv_qpn).r == EINVAL); /* of another domain */
	NEED(TRY(B, RECV_OPEN, recv_qpn + 1).r == EINVAL);
	NEED(TRY(B, RECV_OPEN, 1 << 24).r == EINVAL);
	NEED(DO(B, RECV_OPEN, recv_qpn).a == recv_qpn);
	DO(B, SRQ);
	NEED(TRY(A, XRCD_CLOSE).r == EBUSY);
	DO(A, RECV_DESTROY);
	DO(A, XRCD_CLOSE);
	NEED(TRY(B, XRCD_CLOSE).r == EBUSY);
	DO(B, RECV_DESTROY);
	NEED(TRY(B, RECV_OPEN, recv_qpn).r == EINVAL); /* it went with the last */
	NEED(TRY(B, XRCD_CLOSE).r == EBUSY);
	DO(B, SRQ_DESTROY);
	DO(B, XRCD_CLOSE);
	NEED(TRY(A, XRCD, 1, 0).r == EAGAIN); /* so did the domain */
	DO(A, XRCD, 0, O_CREAT);
	recv_qpn = DO(A, RECV_NEW).a;
	DO(B, XRCD, 0, O_CREAT);
	NEED(TRY(B, RECV_OPEN, recv_qpn).r == EINVAL); /* two private ones are two */
	end();
}

static void operations(int argc, char **argv)
{
	struct answer memory, got;

	connect_all(ALL, 7);
	DO(B, POST_RECV, 8, 1024);
	memory = DO(B, MEMORY);
	send_to(B, 1, 11);
	send_to(B, 1024, 12);
	DO(A, POST_EX, .b = srqn[B], .length = 100, .fill = 13);
	got = DO(B, POLL_RECV);
	NEED(got.a == 100 && got.e == 13 && DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
	DO(A, POST, IBV_WR_SEND_WITH_IMM, srqn[B], .length = 8, .fill = 14);
	got = DO(B, POLL_RECV);
	NEED(got.address == 4711 && got.e == 14 && DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
	DO(A, POST, IBV_WR_RDMA_WRITE, srqn[B], .length = HALF, .fill = 15, .remote = memory.address, .rkey = memory.a);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(B, BYTE, HALF - 1).a == 15);
	DO(A, POST, IBV_WR_RDMA_WRITE_WITH_IMM, srqn[B], .length = 64, .fill = 16, .remote = memory.address, .rkey = memory.a);
	got = DO(B, POLL_RECV);
	NEED(got.b == IBV_WC_RECV_RDMA_WITH_IMM && got.address == memory.a && got.c == recv_qpn && got.d == send_qpn);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(B, BYTE, 63).a == 16);
	DO(A, POST, IBV_WR_RDMA_READ, srqn[B], .length = HALF, .remote = memory.address, .rkey = memory.a);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(A, BYTE, HALF - 1).b == 15 && DO(A, BYTE, 0).b == 16);
	DO(A, POST, IBV_WR_ATOMIC_FETCH_AND_ADD, srqn[B], .length = 8, .fill = 3, .remote = memory.address, .rkey = memory.a);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(B, BYTE, 0).a == 19 && DO(A, BYTE, 0).b == 16);
	DO(A, POST, IBV_WR_ATOMIC_CMP_AND_SWP, srqn[B], .length = 8, .fill = 3, .remote = memory.address, .rkey = memory.a);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(A, BYTE, 0).b == 19);
	end();
}

/* One receive QP, SRQs of two processes, of which one does not even have the QP open. */
static void two_owners(int argc, char **argv)
{
	connect_all(ALL, 7);
	for (unsigned i = 0; i < 64; i++) {
		unsigned who = i % 3 ? B : C;
		uint32_t length = i % 8 == 7 ? HALF : i * 16 + 1;

		DO(who, POST_RECV, 1, length);
		send_to(who, length, (uint8_t)i + 1);
	}
	end();
}

/* Posted at once, for two processes in turn: they complete in order. */
static void in_order(int argc, char **argv)
{
	connect_all(ALL, 7);
	DO(B, POST_RECV, 64, 16);
	DO(C, POST_RECV, 64, 16);
	for (unsigned i = 0; i < 96; i++)
		DO(A, POST, IBV_WR_SEND, srqn[i & 2 ? B : C], .length = 8, .fill = 1);
	for (unsigned i = 0; i < 96; i++) {
		NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
		NEED(DO(i & 2 ? B : C, POLL_RECV).a == 8);
	}
	end();
}

/* Who has it open too sees it, changes it, and keeps it when its maker is killed. */
static void maker_killed(int argc, char **argv)
{
	struct answer state;

	connect_all(IBV_ACCESS_REMOTE_WRITE, 7);
	NEED(DO(C, RECV_OPEN, recv_qpn).a == recv_qpn);
	state = DO(C, RECV_STATE);
	NEED(state.a == IBV_QPS_RTS && state.b == send_qpn && state.c == IBV_ACCESS_REMOTE_WRITE && state.d == IBV_QPT_XRC_RECV);
	DO(C, POST_RECV, 4, 64);
	send_to(C, 64, 1);
	worker_kill(&w[B]);
	send_to(C, 64, 2);
	NEED(DO(C, RECV_STATE).a == IBV_QPS_RTS);
	DO(C, RECV_MODIFY, IBV_QPS_RESET);
	DO(A, SEND_RESET);
	DO(C, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	send_to(C, 64, 3);
	DO(C, RECV_DESTROY);
	DO(A, POST, IBV_WR_SEND, srqn[C], .length = 8, .fill = 4);
	NEED(DO(A, POLL_SEND).a == IBV_WC_RETRY_EXC_ERR);
	end();
}

/* The SRQ goes with its process, the receive QP does not; what is sent to that SRQ is refused. */
static void owner_killed(int argc, char **argv)
{
	connect_all(ALL, 7);
	DO(C, POST_RECV, 4, 64);
	DO(B, POST_RECV, 4, 64);
	send_to(C, 64, 1);
	worker_kill(&w[C]);
	send_to(B, 64, 2);
	DO(A, POST, IBV_WR_SEND, srqn[C], .length = 8, .fill = 3);
	NEED(DO(A, POLL_SEND).a == IBV_WC_REM_INV_REQ_ERR);
	DO(B, EVENT, IBV_EVENT_QP_ACCESS_ERR);
	NEED(DO(B, RECV_STATE).a == IBV_QPS_ERR);
	end();
}

/* A killed sender is no news to who receives; another takes its place. */
static void sender_killed(int argc, char **argv)
{
	connect_all(ALL, 7);
	DO(B, POST_RECV, 8, 64);
	send_to(B, 64, 1);
	worker_kill(&w[A]);
	send_qpn = DO(C, SEND_NEW).a;
	NEED(DO(B, RECV_STATE).a == IBV_QPS_RTS);
	DO(B, RECV_MODIFY, IBV_QPS_RESET);
	DO(B, RECV_UP, send_qpn, ALL);
	DO(C, SEND_UP, recv_qpn, 7);
	DO(C, POST, IBV_WR_SEND, srqn[B], .length = 8, .fill = 5);
	NEED(DO(B, POLL_RECV).e == 5 && DO(C, POLL_SEND).a == IBV_WC_SUCCESS);
	end();
}

/* The request that fails, what its sender gets, and what all get who have the receive QP open. */
static void refused(struct order order, enum ibv_wc_status status, int event)
{
	NEED(DO(C, RECV_OPEN, recv_qpn).a == recv_qpn);
	DO(B, POST_RECV, 4, 64);
	send_to(B, 64, 1);
	worker_do(&w[A], order);
	NEED(DO(A, POLL_SEND).a == status);
	if (event) {
		DO(B, EVENT, (uint32_t)event);
		DO(C, EVENT, (uint32_t)event);
	}
	if (status == IBV_WC_REM_INV_REQ_ERR && !event)
		NEED(TRY(B, POLL_RECV).r == IBV_WC_LOC_LEN_ERR);
	while (DO(B, RECV_STATE).a != IBV_QPS_ERR) /* without an event, it comes when it comes */
		;
	NEED(DO(C, RECV_STATE).a == IBV_QPS_ERR);
	/* Both begin anew. */
	DO(A, SEND_RESET);
	DO(C, RECV_MODIFY, IBV_QPS_RESET);
	DO(B, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	send_to(B, 64, 2);
	DO(C, RECV_DESTROY);
}

static void wrong_numbers(int argc, char **argv)
{
	const uint32_t none[] = { 0, 1, 0xffffff, 0xffffffffu };

	connect_all(ALL, 7);
	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		refused((struct order){ POST, IBV_WR_SEND, none[i], .length = 8 }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
	refused((struct order){ POST, IBV_WR_SEND, send_qpn, .length = 8 }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
	refused((struct order){ POST, IBV_WR_RDMA_WRITE, recv_qpn, .length = 8 }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
	/* Of the right process, but not there any more; of another domain. */
	DO(C, SRQ_DESTROY);
	refused((struct order){ POST, IBV_WR_SEND, srqn[C], .length = 8 }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
	DO(A, XRCD, 2, O_CREAT);
	srqn[A] = DO(A, SRQ).a;
	refused((struct order){ POST, IBV_WR_SEND, srqn[A], .length = 8 }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
	end();
}

static void rights(int argc, char **argv)
{
	struct answer memory;

	connect_all(IBV_ACCESS_REMOTE_READ, 7);
	memory = DO(B, MEMORY);
	/* What the receive QP is not set up for. */
	refused((struct order){ POST, IBV_WR_RDMA_WRITE, srqn[B], .length = 8, .remote = memory.address, .rkey = memory.a },
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	/* A key of another protection domain than the SRQ's. */
	refused((struct order){ POST, IBV_WR_RDMA_WRITE, srqn[B], .length = 8, .remote = memory.address, .rkey = memory.b },
		IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	refused((struct order){ POST, IBV_WR_RDMA_READ, srqn[B], .length = 8, .remote = memory.address + HALF, .rkey = memory.a },
		IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	refused((struct order){ POST, IBV_WR_ATOMIC_FETCH_AND_ADD, srqn[B], .length = 8, .remote = memory.address + 4,
			.rkey = memory.a }, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	/* Longer than the receive. */
	refused((struct order){ POST, IBV_WR_SEND, srqn[B], .length = 65 }, IBV_WC_REM_INV_REQ_ERR, 0);
	end();
}

static void receives(int argc, char **argv)
{
	connect_all(ALL, 0);
	DO(C, POST_RECV, 1, 64);
	send_to(C, 8, 1);
	DO(A, POST, IBV_WR_SEND, srqn[C], .length = 8);
	NEED(DO(A, POLL_SEND).a == IBV_WC_RNR_RETRY_EXC_ERR); /* the receive QP is as it was */
	NEED(DO(B, RECV_STATE).a == IBV_QPS_RTS);
	DO(A, SEND_RESET);
	DO(B, RECV_MODIFY, IBV_QPS_RESET);
	DO(B, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	/* Those behind it are for another SRQ, which has receives: they wait. */
	DO(B, POST_RECV, 2, 64);
	DO(A, POST, IBV_WR_SEND, srqn[C], .length = 8, .fill = 2);
	DO(A, POST, IBV_WR_SEND, srqn[B], .length = 8, .fill = 3);
	DO(C, SRQ_LIMIT, 2);
	DO(C, EVENT, IBV_EVENT_SRQ_LIMIT_REACHED, 1);
	DO(C, POST_RECV, 3, 64);
	NEED(DO(C, POLL_RECV).e == 2 && DO(B, POLL_RECV).e == 3);
	NEED(DO(A, POLL_SEND).a == IBV_WC_SUCCESS && DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
	DO(C, SRQ_LIMIT, 2);
	DO(A, POST, IBV_WR_SEND, srqn[C], .length = 8, .fill = 4);
	NEED(DO(C, POLL_RECV).e == 4 && DO(A, POLL_SEND).a == IBV_WC_SUCCESS);
	DO(C, EVENT, IBV_EVENT_SRQ_LIMIT_REACHED, 1);
	end();
}

/* All in one process, which is another's peer as well. */
static void one_process(int argc, char **argv)
{
	start();
	DO(A, XRCD, 1, O_CREAT);
	DO(B, XRCD, 1, O_CREAT);
	srqn[A] = DO(A, SRQ).a;
	srqn[B] = DO(B, SRQ).a;
	recv_qpn = DO(A, RECV_NEW).a;
	send_qpn = DO(A, SEND_NEW).a;
	DO(A, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	DO(A, POST_RECV, 8, 256);
	DO(B, POST_RECV, 8, 256);
	for (uint8_t i = 1; i < 9; i++) {
		send_to(A, 200, i);
		send_to(B, 200, i);
	}
	end();
}

/* Field report F5: an SRQ under a parent domain with a thread domain can be destroyed, in the legal orders. */
static void parent_domain(int argc, char **argv)
{
	start();
	DO(B, XRCD, 1, O_CREAT);
	srqn[B] = DO(B, SRQ, 1).a;
	recv_qpn = DO(B, RECV_NEW).a;
	send_qpn = DO(A, SEND_NEW).a;
	DO(B, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	DO(B, POST_RECV, 4, 64);
	send_to(B, 64, 1);
	DO(B, SRQ_DESTROY);
	DO(B, RECV_DESTROY);
	DO(B, XRCD_CLOSE);
	DO(B, XRCD, 1, O_CREAT);
	DO(B, SRQ, 1);
	end();
}

static void channels(int argc, char **argv)
{
	start();
	DO(B, XRCD, 1, O_CREAT);
	DO(B, EVENTS_ON);
	srqn[B] = DO(B, SRQ).a;
	recv_qpn = DO(B, RECV_NEW).a;
	send_qpn = DO(A, SEND_NEW).a;
	DO(B, RECV_UP, send_qpn, ALL);
	DO(A, SEND_UP, recv_qpn, 7);
	DO(B, POST_RECV, 64, 64);
	for (uint8_t i = 1; i < 64; i++)
		send_to(B, 64, i);
	end();
}

static void forked(int argc, char **argv)
{
	connect_all(ALL, 7);
	DO(B, POST_RECV, 4, 64);
	send_to(B, 64, 1);
	DO(B, CHILD);
	send_to(B, 64, 2);
	end();
}

/* Connected again and again, by either end alone; receive QPs that come and go. */
static void again(int argc, char **argv)
{
	connect_all(ALL, 7);
	DO(B, POST_RECV, 100, 64);
	DO(C, POST_RECV, 100, 64);
	for (uint8_t i = 1; i < 25; i++) {
		send_to(B, 64, i);
		send_to(C, 64, i);
		DO(A, SEND_RESET);
		if (i % 2) {
			DO(B, RECV_MODIFY, i % 4 == 1 ? IBV_QPS_RESET : IBV_QPS_ERR);
			DO(B, RECV_MODIFY, IBV_QPS_RESET);
		} else {
			DO(B, RECV_DESTROY);
			recv_qpn = DO(B, RECV_NEW).a;
		}
		DO(B, RECV_UP, send_qpn, ALL);
		DO(A, SEND_UP, recv_qpn, 7);
	}
	end();
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "objects", objects },
		{ "operations", operations },
		{ "two-owners", two_owners },
		{ "in-order", in_order },
		{ "maker-killed", maker_killed },
		{ "owner-killed", owner_killed },
		{ "sender-killed", sender_killed },
		{ "wrong-numbers", wrong_numbers },
		{ "rights", rights },
		{ "receives", receives },
		{ "one-process", one_process },
		{ "parent-domain", parent_domain },
		{ "channels", channels },
		{ "forked", forked },
		{ "again", again },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
