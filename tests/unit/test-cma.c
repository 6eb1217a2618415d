/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cma engine, between two QPs of this process: which calls of the kernel's it makes of a WR. The calls are made by the functions
 * below, which note what they are given.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/soft/copy.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_pair.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define PIECES	    8u
#define CALLS	    16u

enum { SIZE = 3 * QP_CMA_SLICE, SLOTS = 16, GUARD = 8 };

/* Of the last calls, in their order. */
static struct call {
	bool write;
	size_t local[PIECES], remote[PIECES]; /* lengths */
	unsigned n_local, n_remote;
} calls[CALLS];
static unsigned n_calls;
static bool noting, writes; /* or what is read */

static void note(bool write, const struct iovec *local, unsigned long n_local, const struct iovec *remote, unsigned long n_remote)
{
	struct call *call = &calls[n_calls % CALLS];

	/* The progress thread copies within this process by such calls, too, and who gathers the end of a WRITE. */
	if (rt_in_progress_thread() || !noting || write != writes)
		return;
	n_calls++;
	ck_assert_uint_le(n_local, PIECES);
	ck_assert_uint_le(n_remote, PIECES);
	*call = (struct call){ .write = write, .n_local = (unsigned)n_local, .n_remote = (unsigned)n_remote };
	for (unsigned i = 0; i < n_local; i++)
		call->local[i] = local[i].iov_len;
	for (unsigned i = 0; i < n_remote; i++)
		call->remote[i] = remote[i].iov_len;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local, const struct iovec *remote, unsigned long n_remote,
			 unsigned long flags)
{
	note(false, local, n_local, remote, n_remote);
	return syscall(SYS_process_vm_readv, pid, local, n_local, remote, n_remote, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n_local, const struct iovec *remote, unsigned long n_remote,
			  unsigned long flags)
{
	note(true, local, n_local, remote, n_remote);
	return syscall(SYS_process_vm_writev, pid, local, n_local, remote, n_remote, flags);
}

static void start(void)
{
	setenv("VERBSD_ENGINE", "cma", 1);
	pair_start(SIZE, 16);
	for (unsigned side = 0; side < 2; side++)
		rt.loop[side].engines = rt.loop[side].priv->granted = VSD__ENGINE_RIGHT__ENGINE_CMA;
	for (uint32_t i = 0; i + 4 <= SIZE; i += 4)
		memcpy(from + i, &i, 4);
	pair_connect(SLOTS);
	/* The first message takes the lane. */
	ck_assert_int_eq(loop_send(a, 0, IBV_WR_RDMA_WRITE, from_mr, from, 1, to_mr, to), 0);
	loop_expect(send_cq, 0, IBV_WC_SUCCESS);
	to[0] = 0;
	n_calls = 0;
}

/* One WR, done in turns that are this thread's alone. */
static void run(struct ibv_send_wr *wr)
{
	uint64_t before = loop_counter(VSD_COUNT_INITIATOR_RUN);
	struct ibv_send_wr *bad;
	bool inside = rt_enter();

	writes = wr->opcode == IBV_WR_RDMA_WRITE;
	noting = true;
	ck_assert_int_eq(soft_post_send(&a->v.qp, wr, &bad), 0);
	while (loop_counter(VSD_COUNT_INITIATOR_RUN) == before)
		ck_assert(progress_round(TD_POLL, false));
	noting = false;
	rt_leave(inside);
	if (inside)
		loop_expect(send_cq, wr->wr_id, IBV_WC_SUCCESS);
}

static size_t sum(const size_t *lengths, unsigned n)
{
	size_t all = 0;

	for (unsigned i = 0; i < n; i++)
		all += lengths[i];
	return all;
}

/* --- how much a call copies ------------------------------------------------------------------------------------------- */

static const struct {
	uint32_t length;
	size_t calls[3];
} slices[] = {
	{ QP_COPY_SLICE, { QP_COPY_SLICE } },
	{ QP_COPY_SLICE + 9, { QP_COPY_SLICE + 9 } },
	{ QP_CMA_SLICE, { QP_CMA_SLICE } },
	{ QP_CMA_SLICE + 7, { QP_CMA_SLICE + 7 } }, /* the last eight bytes are whole */
	{ QP_CMA_SLICE + 8, { QP_CMA_SLICE, 8 } },
	{ QP_CMA_SLICE + 9, { QP_CMA_SLICE, 9 } },
	{ 2 * QP_CMA_SLICE + 3, { QP_CMA_SLICE, QP_CMA_SLICE + 3 } },
	{ SIZE, { QP_CMA_SLICE, QP_CMA_SLICE, QP_CMA_SLICE } },
};

/* Another QP has its turn in between, and a call is not longer then than what is copied otherwise. */
START_TEST(others_are_not_kept_waiting)
{
	bool write = _i % 2;
	struct ibv_sge sge = { (uintptr_t)(write ? from : to), SIZE, write ? from_mr->key : to_mr->key };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ };

	wr.wr.rdma.remote_addr = (uintptr_t)(write ? to : from);
	wr.wr.rdma.rkey = write ? to_mr->key : from_mr->key;
	bool inside = rt_enter();

	rt_run_later(b);
	run(&wr);
	rt_leave(inside);
	loop_expect(send_cq, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(sum(calls[0].remote, calls[0].n_remote), QP_COPY_SLICE + (write ? GUARD : 0));
	ck_assert_uint_eq(sum(calls[1].remote, calls[1].n_remote), QP_CMA_SLICE + (write ? GUARD : 0));
	ck_assert(memcmp(to, from, SIZE) == 0);
}
END_TEST

START_TEST(long_ones_are_cut_into_slices)
{
	bool write = _i % 2;
	uint32_t length = slices[_i / 2].length;
	struct ibv_sge sge = { (uintptr_t)(write ? from : to), length, write ? from_mr->key : to_mr->key };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ };
	unsigned n = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)(write ? to : from);
	wr.wr.rdma.rkey = write ? to_mr->key : from_mr->key;
	run(&wr);
	for (; n < COUNT_OF(slices[0].calls) && slices[_i / 2].calls[n]; n++) {
		size_t moved = slices[_i / 2].calls[n] + (write ? GUARD : 0);

		ck_assert(calls[n].write == write);
		ck_assert_uint_eq(sum(calls[n].local, calls[n].n_local), moved);
		ck_assert_uint_eq(sum(calls[n].remote, calls[n].n_remote), moved);
	}
	ck_assert_uint_eq(n_calls, n);
	ck_assert(memcmp(to, from, length) == 0);
	ck_assert(length == SIZE || !to[length]);
}
END_TEST

/* --- the end of a message ---------------------------------------------------------------------------------------------- */

static const uint32_t lengths[] = { 1, 7, 8, 9, 16, 100, 4096, 65536, QP_COPY_SLICE + 100 };
static const uint32_t offsets[] = { 0, 3 };			     /* of the destination */
static const uint32_t ends[][2] = { { 0, 0 }, { 8, 0 }, { 3, 0 }, { 5, 2 }, { 20, 4 } }; /* lengths of the last pieces, last first */

/* As many pieces as @end says, as far as @length reaches; the number of them. */
static int cut(struct ibv_sge sge[3], uint32_t length, const uint32_t end[2])
{
	uint32_t last[3] = { length };
	int n = 1;

	for (unsigned i = 0; i < 2 && end[i] && end[i] < last[0]; i++) {
		memmove(last + 2, last + 1, sizeof(last[0]));
		last[1] = end[i];
		last[0] -= end[i];
		n++;
	}
	for (uint32_t i = 0, at = 0; i < (uint32_t)n; at += last[i++])
		sge[i] = (struct ibv_sge){ (uintptr_t)from + at, last[i], from_mr->key };
	return n;
}

/* One piece begins with the last bytes of what is written; the guard word goes before all, and costs the only other walk there. */
static void expect_write(uint32_t length, size_t tail)
{
	const struct call *call = &calls[0];
	size_t at = GUARD;
	bool found = false;

	ck_assert_uint_eq(n_calls, 1);
	ck_assert(call->write);
	ck_assert_uint_eq(call->n_remote, 2);
	ck_assert_uint_eq(call->remote[0], GUARD);
	ck_assert_uint_eq(call->remote[1], length);
	ck_assert_uint_eq(call->local[0], GUARD);
	for (unsigned i = 1; i < call->n_local; at += call->local[i++]) {
		ck_assert_uint_gt(call->local[i], 0);
		found |= at == GUARD + length - tail && call->local[i] == tail;
	}
	ck_assert(found); /* in one store, if it is aligned */
	ck_assert_uint_eq(at, GUARD + length);
}

START_TEST(the_last_bytes_of_a_write_go_last)
{
	uint32_t length = lengths[_i / COUNT_OF(offsets) % COUNT_OF(lengths)], offset = offsets[_i % COUNT_OF(offsets)];
	const uint32_t *end = ends[_i / COUNT_OF(offsets) / COUNT_OF(lengths)];
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = sge, .opcode = IBV_WR_RDMA_WRITE };

	wr.num_sge = cut(sge, length, end);
	wr.wr.rdma.remote_addr = (uintptr_t)to + offset;
	wr.wr.rdma.rkey = to_mr->key;
	run(&wr);
	expect_write(length, copy_tail((uintptr_t)to + offset + length, length));
	ck_assert(memcmp(to + offset, from, length) == 0);
	ck_assert(!to[offset + length]);
}
END_TEST

START_TEST(those_of_inline_bytes_as_well)
{
	struct ibv_sge sge = { (uintptr_t)from, 60, 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE };

	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = to_mr->key;
	run(&wr);
	expect_write(60, 4);
	ck_assert(memcmp(to, from, 60) == 0);
}
END_TEST

/* Of what is read the kernel walks no page of the peer's twice. */
START_TEST(a_read_is_one_piece_of_the_peers)
{
	uint32_t length = lengths[_i];
	struct ibv_sge sge = { (uintptr_t)to + 3, length, to_mr->key };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ };

	wr.wr.rdma.remote_addr = (uintptr_t)from;
	wr.wr.rdma.rkey = from_mr->key;
	run(&wr);
	ck_assert_uint_eq(n_calls, 1);
	ck_assert(!calls[0].write);
	ck_assert_uint_eq(calls[0].n_remote, 1);
	ck_assert_uint_eq(sum(calls[0].local, calls[0].n_local), length);
	ck_assert(memcmp(to + 3, from, length) == 0);
	ck_assert(!to[3 + length] && !to[2]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cma");
	TCase *t = harness_tcase(suite, "cma");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, start, pair_stop);
	tcase_add_loop_test(t, long_ones_are_cut_into_slices, 0, 2 * COUNT_OF(slices));
	tcase_add_loop_test(t, others_are_not_kept_waiting, 0, 2);
	tcase_add_loop_test(t, the_last_bytes_of_a_write_go_last, 0, COUNT_OF(offsets) * COUNT_OF(lengths) * COUNT_OF(ends));
	tcase_add_test(t, those_of_inline_bytes_as_well);
	tcase_add_loop_test(t, a_read_is_one_piece_of_the_peers, 0, COUNT_OF(lengths));
	return harness_run(suite);
}
