/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/soft_list.h"

#define MARK 0xfeedu

uint8_t memory[LIST_MEMORY];
struct soft_mr *read_only;
struct ibv_send_wr wrs[LIST_MOST], *bad;
struct ibv_sge sges[LIST_MOST];
unsigned n_wrs;

static uint64_t then[VSD_COUNT_N];

struct ibv_send_wr *list_add(enum ibv_wr_opcode opcode, uint64_t there, uint64_t here, uint32_t length)
{
	struct ibv_send_wr *wr = &wrs[n_wrs];

	sges[n_wrs] = (struct ibv_sge){ (uintptr_t)memory + here, length, local->key };
	*wr = (struct ibv_send_wr){ .wr_id = LIST_FIRST + n_wrs, .sg_list = &sges[n_wrs], .num_sge = 1, .opcode = opcode };
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = MAPPED_BASE + there;
		wr->wr.atomic.rkey = mr->key;
		wr->wr.atomic.compare_add = 1;
	} else {
		wr->wr.rdma.remote_addr = MAPPED_BASE + there;
		wr->wr.rdma.rkey = mr->key;
	}
	if (n_wrs++)
		wr[-1].next = wr;
	return wr;
}

unsigned list_copied(void)
{
	struct soft_td *td = soft_enter(&a->sq_lock);
	struct requester *req = &a->priv->req;
	unsigned n = 0;

	for (uint32_t i = 0; i <= req->mask; i++) {
		n += req->ring[i].wr_id != MARK;
		req->ring[i].wr_id = MARK;
	}
	soft_leave(&a->sq_lock, td);
	return n;
}

/* A completion may be seen before its bytes are counted, under one lock. */
uint64_t list_counted(enum vsd_counter counter)
{
	soft_leave(&a->sq_lock, soft_enter(&a->sq_lock));
	return loop_counter(counter) - then[counter];
}

int list_post(void)
{
	for (unsigned i = 0; i < VSD_COUNT_N; i++)
		then[i] = loop_counter(i);
	list_copied();
	n_wrs = 0;
	bad = NULL;
	return soft_post_send(&a->v.qp, wrs, &bad);
}

bool list_nothing(void)
{
	struct ibv_wc wc;

	return soft_poll_cq(&a->send_cq->v.cq, 1, &wc) == 0;
}

void list_expect(unsigned from, unsigned to, enum ibv_wc_status status)
{
	for (unsigned i = from; i < to; i++)
		loop_expect(a->send_cq, LIST_FIRST + i, status);
}

void list_signal(unsigned every)
{
	for (unsigned i = every - 1; i < n_wrs; i += every)
		wrs[i].send_flags |= IBV_SEND_SIGNALED;
}

/* The first use of a key takes the lane, and so does the first message of all. */
static void until_mapped(void)
{
	for (uint64_t before = mapped_runs(); mapped_runs() == before;) {
		list_add(IBV_WR_RDMA_READ, 0, 0, 1)->send_flags = IBV_SEND_SIGNALED;
		ck_assert_int_eq(list_post(), 0);
		list_expect(0, 1, IBV_WC_SUCCESS);
	}
}

void list_connect(struct soft_cq *cq)
{
	struct loop_options options = LOOP_OPTIONS;

	loop_qp_free(a);
	loop_qp_free(b);
	options.signal_all = false;
	options.send_wr = LIST_DEPTH;
	options.send_cq = cq;
	options.recv_cq = b_recv;
	a = loop_qp(&loop, &options);
	b = loop_qp(&loop, &options);
	loop_connect(&loop, a, b, MAPPED_SLOTS, &options);
	wire_of(a)->pair->engines |= VSD__ENGINE_RIGHT__ENGINE_MAP;
	until_mapped();
}

void list_fill(void)
{
	for (size_t i = 0; i < LIST_SIZE; i++)
		region[i] = (uint8_t)(i * 11 + (i >> 7));
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 13 + (i >> 8));
}

void list_setup(void)
{
	mapped_start(LIST_SIZE, memory, sizeof(memory));
	read_only = loop_mr(&loop, memory, sizeof(memory), 0);
	mapped_region(MAPPED_BASE, LIST_SIZE, LOOP_ACCESS);
	mapped_grant(LIST_SIZE, true, 0);
	list_connect(a_send);
	list_fill();
}

void list_teardown(void)
{
	loop_mr_free(read_only);
	mapped_stop();
}
