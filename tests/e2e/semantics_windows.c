/* SPDX-License-Identifier: BSD-2-Clause */
/* What a memory window lets a peer do, and until when: both types, each right, its bounds, whose connection it is. */
#include "duo.h"

#define LENGTH 64u
#define AT     128u /* in B's half; the window ends well before the region does */

static const struct {
	unsigned access;
	enum ibv_wr_opcode opcode;
} rights[] = {
	{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE },
	{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ },
	{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD },
};

#define RIGHTS (sizeof(rights) / sizeof(rights[0]))

struct window {
	struct duo d;
	struct ibv_mw *mw;
	uint8_t *there; /* where it begins */
};

static void window_open(struct window *w, enum ibv_mw_type type)
{
	duo_open(&w->d, IBV_QPT_RC, false);
	duo_connect(&w->d);
	w->mw = ibv_alloc_mw(w->d.pd, type);
	w->there = w->d.memory + DUO_HALF + AT;
	NEED(w->mw && w->mw->type == type);
}

static void window_close(struct window *w)
{
	NEED(ibv_dealloc_mw(w->mw) == 0);
	duo_close(&w->d);
}

/* Each type in its own way, through B's QP; the key that peers have to name then. */
static uint32_t window_bind(struct window *w, unsigned access, uint64_t length)
{
	struct ibv_mw_bind_info info = { .mr = w->d.mr, .addr = (uintptr_t)w->there, .length = length, .mw_access_flags = access };
	struct ibv_mw_bind one = { .wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	struct ibv_send_wr two = { .wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = w->mw, .rkey = ibv_inc_rkey(w->mw->rkey), .bind_info = info } }, *bad;

	if (w->mw->type == IBV_MW_TYPE_1)
		RETURNS(ibv_bind_mw(w->d.qp[B], w->mw, &one), 0);
	else
		RETURNS(ibv_post_send(w->d.qp[B], &two, &bad), 0);
	NEED(duo_expect(&w->d, B, 3, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
	return w->mw->type == IBV_MW_TYPE_1 ? w->mw->rkey : two.bind_mw.rkey;
}

/* Eight bytes at @at. After an error the connection is made anew. */
static enum ibv_wc_status use(struct window *w, enum ibv_wr_opcode opcode, const uint8_t *at, uint32_t rkey)
{
	enum ibv_wc_status status = kit_run(w->d.qp[A], opcode, w->d.mr, w->d.memory, 8, (uintptr_t)at, rkey);

	if (status != IBV_WC_SUCCESS) {
		duo_event(&w->d, IBV_EVENT_QP_ACCESS_ERR, w->d.qp[B]);
		duo_connect(&w->d);
	}
	return status;
}

static void rights_of(enum ibv_mw_type type)
{
	for (size_t r = 0; r < RIGHTS; r++)
		for (size_t i = 0; i < RIGHTS; i++) {
			struct window w;
			uint32_t rkey;

			window_open(&w, type);
			rkey = window_bind(&w, rights[r].access, LENGTH);
			w.d.memory[0] = 7;
			w.there[LENGTH - 8] = 3;
			NEED(use(&w, rights[i].opcode, w.there + LENGTH - 8, rkey) ==
				(i == r ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
			NEED(w.there[LENGTH - 8] == (i != r || i == 1 ? 3 : i == 0 ? 7 : 4));
			NEED(w.d.memory[0] == (i != r || i == 0 ? 7 : 3));
			window_close(&w);
		}
}

static void windows_have_rights(int argc, char **argv)
{
	rights_of(IBV_MW_TYPE_1);
	rights_of(IBV_MW_TYPE_2);
}

/* All around it is the region, which the window's key does not open. */
static void windows_have_bounds(int argc, char **argv)
{
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++)
		for (unsigned behind = 0; behind < 2; behind++)
			for (size_t i = 0; i < RIGHTS; i++) {
				struct window w;
				uint32_t rkey;

				window_open(&w, (enum ibv_mw_type)type);
				rkey = window_bind(&w, rights[i].access, LENGTH);
				NEED(use(&w, rights[i].opcode, behind ? w.there + LENGTH : w.there - 8, rkey) ==
					IBV_WC_REM_ACCESS_ERR);
				window_close(&w);
			}
}

/* Bound anew a window of type 1 has another key, and the former one opens nothing; bound to nothing neither does. */
static void windows_are_bound_anew(int argc, char **argv)
{
	struct window w;
	uint32_t first, second;

	window_open(&w, IBV_MW_TYPE_1);
	first = window_bind(&w, IBV_ACCESS_REMOTE_WRITE, LENGTH);
	NEED(use(&w, IBV_WR_RDMA_WRITE, w.there, first) == IBV_WC_SUCCESS);
	second = window_bind(&w, IBV_ACCESS_REMOTE_READ, LENGTH);
	NEED(first != second);
	NEED(use(&w, IBV_WR_RDMA_WRITE, w.there, first) == IBV_WC_REM_ACCESS_ERR);
	NEED(use(&w, IBV_WR_RDMA_READ, w.there, second) == IBV_WC_SUCCESS);
	window_bind(&w, IBV_ACCESS_REMOTE_READ, 0);
	NEED(use(&w, IBV_WR_RDMA_READ, w.there, second) == IBV_WC_REM_ACCESS_ERR);
	window_close(&w);
}

/* Type 1 is its PD's, and any connection of that may use it; type 2 is that of the QP which bound it. */
static void windows_of_another_connection(int argc, char **argv)
{
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct window w;
		struct ibv_qp *from, *to;
		uint32_t rkey;

		window_open(&w, (enum ibv_mw_type)type);
		from = kit_qp(w.d.pd, w.d.cq[A], NULL);
		to = kit_qp(w.d.pd, w.d.cq[B], NULL);
		kit_connect(from, to);
		rkey = window_bind(&w, IBV_ACCESS_REMOTE_WRITE, LENGTH);
		NEED(kit_run(from, IBV_WR_RDMA_WRITE, w.d.mr, w.d.memory, 8, (uintptr_t)w.there, rkey) ==
			(type == IBV_MW_TYPE_1 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
		if (type == IBV_MW_TYPE_2)
			duo_event(&w.d, IBV_EVENT_QP_ACCESS_ERR, to);
		NEED(use(&w, IBV_WR_RDMA_WRITE, w.there, rkey) == IBV_WC_SUCCESS);
		NEED(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
		window_close(&w);
	}
}

/* Its own QP's request, a peer's send, its end: the key opens nothing any more. */
static void windows_are_invalidated(int argc, char **argv)
{
	enum { LOCALLY, BY_A_SEND, DEALLOCATED, KINDS };

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct window w;
		struct ibv_send_wr wr = { .wr_id = 4, .send_flags = IBV_SEND_SIGNALED }, *bad;

		window_open(&w, IBV_MW_TYPE_2);
		wr.invalidate_rkey = window_bind(&w, IBV_ACCESS_REMOTE_WRITE, LENGTH);
		NEED(use(&w, IBV_WR_RDMA_WRITE, w.there, wr.invalidate_rkey) == IBV_WC_SUCCESS);
		if (kind == LOCALLY) {
			wr.opcode = IBV_WR_LOCAL_INV;
			RETURNS(ibv_post_send(w.d.qp[B], &wr, &bad), 0);
			duo_expect(&w.d, B, 4, IBV_WC_SUCCESS);
		} else if (kind == BY_A_SEND) {
			wr.opcode = IBV_WR_SEND_WITH_INV;
			duo_recv(&w.d, 9, 64, w.d.mr->lkey);
			RETURNS(ibv_post_send(w.d.qp[A], &wr, &bad), 0);
			duo_expect(&w.d, A, 4, IBV_WC_SUCCESS);
			NEED(duo_expect(&w.d, B, 9, IBV_WC_SUCCESS).invalidated_rkey == wr.invalidate_rkey);
		} else {
			NEED(ibv_dealloc_mw(w.mw) == 0);
			w.mw = ibv_alloc_mw(w.d.pd, IBV_MW_TYPE_2);
			NEED(w.mw);
		}
		w.there[0] = 0;
		w.d.memory[0] = 9;
		NEED(use(&w, IBV_WR_RDMA_WRITE, w.there, wr.invalidate_rkey) == IBV_WC_REM_ACCESS_ERR && w.there[0] == 0);
		window_close(&w);
	}
}

const struct kit_test semantics_windows[] = {
	{ "windows-have-rights", windows_have_rights },
	{ "windows-have-bounds", windows_have_bounds },
	{ "windows-are-bound-anew", windows_are_bound_anew },
	{ "windows-of-another-connection", windows_of_another_connection },
	{ "windows-are-invalidated", windows_are_invalidated },
	{ NULL, NULL },
};
