/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A PD and its parent domains are one for access: the regions of each serve the QPs of all, on both sides, whatever
 * engine runs. Those of another PD serve none of them.
 */
#include "parents.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* The PD, two parent domains on it (one with a TD), and a stranger. */
enum { BASE, FIRST, SECOND, STRANGER, N };

#define SIZE  4096
#define LARGE 2048 /* by another engine than what fits into a descriptor */

struct side {
	struct ibv_context *ctx;
	struct ibv_td *td;
	struct ibv_pd *pd[N];
	struct ibv_cq *cq;
	struct ibv_qp *qp[N];
	struct ibv_srq *srq[N];
	struct ibv_mr *mr[N];
	uint8_t *memory[N];
};

static void side_make(struct side *side)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };

	side->ctx = kit_open();
	side->td = td_make(side->ctx);
	NEED(side->pd[BASE] = ibv_alloc_pd(side->ctx));
	side->pd[FIRST] = parent_make(side->pd[BASE], side->td, NULL);
	side->pd[SECOND] = parent_make(side->pd[BASE], NULL, NULL);
	NEED(side->pd[STRANGER] = ibv_alloc_pd(side->ctx));
	side->cq = kit_cq(side->ctx, 64);
	for (unsigned i = 0; i < N; i++) {
		NEED(side->memory[i] = aligned_alloc(4096, SIZE));
		memset(side->memory[i], (int)i + 1, SIZE);
		NEED(side->mr[i] = ibv_reg_mr(side->pd[i], side->memory[i], SIZE, KIT_ACCESS));
		NEED(side->srq[i] = ibv_create_srq(side->pd[i], &srq));
	}
	/* The first one's SRQ is another's of the family. */
	for (unsigned i = 0; i < N; i++)
		side->qp[i] = kit_qp(side->pd[i], side->cq, i == BASE ? side->srq[SECOND] : NULL);
}

static void side_end(struct side *side)
{
	for (unsigned i = 0; i < N; i++)
		RETURNS(ibv_destroy_qp(side->qp[i]), 0);
	for (unsigned i = N; i--;) {
		RETURNS(ibv_destroy_srq(side->srq[i]), 0);
		RETURNS(ibv_dereg_mr(side->mr[i]), 0);
		RETURNS(ibv_dealloc_pd(side->pd[i]), 0);
		free(side->memory[i]);
	}
	RETURNS(ibv_destroy_cq(side->cq), 0);
	RETURNS(ibv_dealloc_td(side->td), 0);
	RETURNS(ibv_close_device(side->ctx), 0);
}

/* --- the other side: in this process or in another --------------------------------------------------------------------- */

struct order {
	enum { ORDER_CONNECT, ORDER_RECV, ORDER_WAIT, ORDER_END } what;
	unsigned qp, mr;
	uint32_t qpn;
};

struct news {
	struct kit_address address;
	uint32_t qpn[N], rkey[N];
	uint64_t addr[N];
	enum ibv_wc_status status;
};

static void obey(struct side *side, const struct order *order, struct news *news)
{
	switch (order->what) {
	case ORDER_CONNECT:
		kit_connect_to(side->qp[order->qp], order->qpn, &news->address);
		break;
	case ORDER_RECV:
		kit_post_recv(side->qp[order->qp], side->mr[order->mr], side->memory[order->mr], LARGE);
		break;
	case ORDER_WAIT:
		news->status = kit_wait(side->cq).status;
		break;
	case ORDER_END:
		side_end(side);
		break;
	}
}

static void news_make(const struct side *side, struct news *news)
{
	news->address = kit_address(side->ctx);
	for (unsigned i = 0; i < N; i++) {
		news->qpn[i] = side->qp[i]->qp_num;
		news->rkey[i] = side->mr[i]->rkey;
		news->addr[i] = (uintptr_t)side->memory[i];
	}
}

struct other {
	struct side side; /* in this process */
	pid_t pid;	  /* or in that one */
	int orders, answers;
	struct news news;
};

static void serve(int orders, int answers)
{
	struct news news = { .status = 0 };
	struct order order = { .what = ORDER_WAIT };
	struct side side;

	side_make(&side);
	news_make(&side, &news);
	NEED(write(answers, &news, sizeof(news)) == sizeof(news));
	while (order.what != ORDER_END) {
		NEED(read(orders, &order, sizeof(order)) == sizeof(order));
		obey(&side, &order, &news);
		NEED(write(answers, &news, sizeof(news)) == sizeof(news));
	}
	exit(0);
}

static void other_make(struct other *other, bool process)
{
	int orders[2], answers[2];

	if (!process) {
		side_make(&other->side);
		news_make(&other->side, &other->news);
		other->pid = 0;
		return;
	}
	NEED(pipe(orders) == 0 && pipe(answers) == 0);
	other->pid = fork();
	NEED(other->pid >= 0);
	close(orders[other->pid == 0]);
	close(answers[other->pid != 0]);
	if (other->pid == 0)
		serve(orders[0], answers[1]);
	other->orders = orders[1];
	other->answers = answers[0];
	NEED(read(other->answers, &other->news, sizeof(other->news)) == sizeof(other->news));
}

static void tell(struct other *other, struct order order)
{
	if (!other->pid) {
		obey(&other->side, &order, &other->news);
		return;
	}
	NEED(write(other->orders, &order, sizeof(order)) == sizeof(order));
	NEED(read(other->answers, &other->news, sizeof(other->news)) == sizeof(other->news));
}

static void other_end(struct other *other)
{
	int status;

	tell(other, (struct order){ .what = ORDER_END });
	if (!other->pid)
		return;
	NEED(waitpid(other->pid, &status, 0) == other->pid && status == 0);
	close(other->orders);
	close(other->answers);
}

/* --- every combination ------------------------------------------------------------------------------------------------- */

static void join(struct side *side, struct other *other, unsigned qp, unsigned peer)
{
	tell(other, (struct order){ .what = ORDER_CONNECT, .qp = peer, .qpn = side->qp[qp]->qp_num });
	kit_connect_to(side->qp[qp], other->news.qpn[peer], &other->news.address);
}

/* All of one QP to one other: local region of @mine, remote one of @theirs. */
static void works(struct side *side, struct other *other, unsigned qp, unsigned peer, unsigned mine, unsigned theirs)
{
	struct ibv_qp *q = side->qp[qp];
	struct ibv_mr *mr = side->mr[mine];
	uint64_t remote = other->news.addr[theirs];
	uint32_t rkey = other->news.rkey[theirs];
	uint8_t *at = side->memory[mine];

	memset(at, (int)(0x10 * mine + theirs + 1), SIZE);
	NEED(kit_run(q, IBV_WR_RDMA_WRITE, mr, at, LARGE, remote, rkey) == IBV_WC_SUCCESS);
	NEED(kit_run(q, IBV_WR_RDMA_READ, mr, at + LARGE, LARGE, remote, rkey) == IBV_WC_SUCCESS);
	NEED(memcmp(at, at + LARGE, LARGE) == 0);
	NEED(kit_run(q, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, at + LARGE, 8, remote, rkey) == IBV_WC_SUCCESS);
	NEED(memcmp(at, at + LARGE, LARGE) == 0);
	NEED(kit_run(q, IBV_WR_RDMA_READ, mr, at + LARGE, 8, remote, rkey) == IBV_WC_SUCCESS);
	NEED(at[LARGE] == at[0] + 1);
	for (unsigned length = 8; length <= LARGE; length *= 16) {
		tell(other, (struct order){ .what = ORDER_RECV, .qp = peer, .mr = theirs });
		memset(at, 0x77, length);
		NEED(kit_run(q, IBV_WR_SEND, mr, at, length, 0, 0) == IBV_WC_SUCCESS);
		tell(other, (struct order){ .what = ORDER_WAIT });
		NEED(other->news.status == IBV_WC_SUCCESS);
		NEED(kit_run(q, IBV_WR_RDMA_READ, mr, at + LARGE, length, remote, rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(at, at + LARGE, length) == 0);
	}
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* A region of another PD: locally a protection error, remotely an access error; then the QP is joined anew. */
static void fails(struct side *side, struct other *other, unsigned qp, unsigned peer, unsigned mine, unsigned theirs)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	bool local = (qp == STRANGER) != (mine == STRANGER);

	for (unsigned i = 0; i < 3; i++) {
		enum ibv_wc_status status = kit_run(side->qp[qp], opcodes[i], side->mr[mine], side->memory[mine], 8,
			other->news.addr[theirs], other->news.rkey[theirs]);

		if (opcodes[i] == IBV_WR_RDMA_WRITE || !local)
			NEED(status == (local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR));
		else
			NEED(status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_REM_ACCESS_ERR);
		join(side, other, qp, peer);
		drain(side->cq);
	}
}

static void mix(bool process)
{
	struct other other;
	struct side side;

	other_make(&other, process); /* first: it forks */
	side_make(&side);
	for (unsigned qp = 0; qp < N; qp++) {
		for (unsigned peer = 0; peer < N; peer++) {
			join(&side, &other, qp, peer);
			for (unsigned mine = 0; mine < N; mine++) {
				for (unsigned theirs = 0; theirs < N; theirs++) {
					bool good = (qp == STRANGER) == (mine == STRANGER) &&
						    (peer == STRANGER) == (theirs == STRANGER);

					(good ? works : fails)(&side, &other, qp, peer, mine, theirs);
				}
			}
		}
	}
	other_end(&other);
	side_end(&side);
}

void test_mix(int argc, char **argv)
{
	(void)argc, (void)argv;
	mix(false);
}

void test_mix_processes(int argc, char **argv)
{
	(void)argc, (void)argv;
	mix(true);
}

/* --- windows ---------------------------------------------------------------------------------------------------------- */

/* By the header itself a window of type 1 and its region have the same PD, not only equal ones. */
static bool bind1(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_mw_bind bind = {
		.wr_id = 3,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			.addr = (uintptr_t)mr->addr,
			.length = mr->length,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ },
	};

	RETURNS(ibv_bind_mw(qp, mw, &bind), mw->pd == mr->pd ? 0 : EPERM);
	return mw->pd == mr->pd && kit_wait(qp->send_cq).status == IBV_WC_SUCCESS;
}

/* A window of one on a region of another, bound by a QP of a third, used through a fourth. */
void test_windows(int argc, char **argv)
{
	struct other other = { .pid = 0 };
	struct side side;

	(void)argc, (void)argv;
	side_make(&side);
	other_make(&other, false);
	for (unsigned i = 0; i < 2 * 3 * 3 * 3; i++) {
		unsigned of = i % 3, on = i / 3 % 3, by = i / 9 % 3;
		bool first = i < 27;
		struct ibv_pd *pd = other.side.pd[of];
		struct ibv_mw *mw = ibv_alloc_mw(pd, first ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		struct ibv_mr *mr = other.side.mr[on];

		NEED(mw && mw->pd == pd);
		join(&side, &other, by, by);
		if (first && !bind1(other.side.qp[by], mw, mr)) {
			NEED(of != on);
			RETURNS(ibv_dealloc_mw(mw), 0);
			continue;
		}
		NEED(first || kit_bind(other.side.qp[by], mw, mr) == IBV_WC_SUCCESS);
		/* The region has a window: it stays, and says which. */
		RETURNS(ibv_dereg_mr(mr), EBUSY);
		NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, KIT_ACCESS) != 0 && errno == EBUSY);
		memset(side.memory[BASE], (int)i + 1, SIZE);
		NEED(kit_run(side.qp[by], IBV_WR_RDMA_WRITE, side.mr[BASE], side.memory[BASE], LARGE,
			     other.news.addr[on], mw->rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(side.memory[BASE], other.side.memory[on], LARGE) == 0);

		uint32_t stale = mw->rkey;

		RETURNS(ibv_dealloc_mw(mw), 0);
		NEED(kit_run(side.qp[by], IBV_WR_RDMA_WRITE, side.mr[BASE], side.memory[BASE], LARGE,
			     other.news.addr[on], stale) != IBV_WC_SUCCESS);
		drain(side.cq);
		drain(other.side.cq);
	}
	other_end(&other);
	side_end(&side);
}

/* --- datagrams -------------------------------------------------------------------------------------------------------- */

/* AHs of each domain with the UD QPs of each, answers through an AH made from the completion too. */
void test_datagrams(int argc, char **argv)
{
	enum { GRH = 40 };
	struct side side;
	struct ibv_qp *qp[3];
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };
	struct kit_address address;

	(void)argc, (void)argv;
	side_make(&side);
	address = kit_address(side.ctx);
	attr.dlid = address.lid;
	attr.grh.dgid = address.gid;
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_qp_init_attr init = kit_qp_init(side.cq, NULL, IBV_QPT_UD);

		init.cap.max_send_wr = 200; /* none of them is signalled */
		NEED(qp[i] = ibv_create_qp(side.pd[i], &init));
		kit_connect_to(qp[i], 0, &address);
	}
	for (unsigned i = 0; i < 3 * 3 * 3 * 3; i++) {
		unsigned from = i % 3, to = i / 3 % 3, of = i / 9 % 3, on = i / 27;
		struct ibv_ah *ah = ibv_create_ah(side.pd[of], &attr);
		struct ibv_sge sge = { (uintptr_t)side.memory[on], 64, side.mr[on]->lkey };
		struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
		struct ibv_wc wc;

		NEED(ah && ah->pd == side.pd[of]);
		wr.wr.ud.remote_qpn = qp[to]->qp_num;
		wr.wr.ud.remote_qkey = KIT_QKEY;
		/* There, and back by an AH out of the completion. */
		for (unsigned turn = 0; turn < 2; turn++) {
			struct ibv_mr *mr = side.mr[(on + 1) % 3];
			struct ibv_ah *back;

			memset(side.memory[on], (int)(i + turn + 1), 64);
			kit_post_recv(qp[turn ? from : to], mr, mr->addr, 64 + GRH);
			wr.wr.ud.ah = ah;
			RETURNS(ibv_post_send(qp[turn ? to : from], &wr, &bad), 0);
			wc = kit_wait(side.cq);
			NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1 && wc.wc_flags & IBV_WC_GRH);
			NEED(memcmp((uint8_t *)mr->addr + GRH, side.memory[on], 64) == 0);
			NEED(back = ibv_create_ah_from_wc(side.pd[(of + 1) % 3], &wc, mr->addr, 1));
			NEED(back->pd == side.pd[(of + 1) % 3]);
			RETURNS(ibv_destroy_ah(ah), 0);
			ah = back;
			wr.wr.ud.remote_qpn = wc.src_qp;
		}
		RETURNS(ibv_destroy_ah(ah), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		RETURNS(ibv_destroy_qp(qp[i]), 0);
	side_end(&side);
}
