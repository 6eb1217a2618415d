/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random mixes of everything that an RC QP can send, with every engine forced in turn, lanes down to two slots, and
 * receives that come late or never: what verbs promises of order, completions and memory is checked for each WR.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_grants.h"
#include "tests/unit/soft_loop.h"

#define WRS	 120
#define UNTOUCHED 0xee
#define MAX_SIZE 300000u

static const uint32_t sizes[] = { 0, 1, 8, 24, 25, 36, 37, 84, 200, 256, 264, 265, 4096, 16383, 16384,
				  16385, 32767, 32768, 32769, 70001, MAX_SIZE };
#define ENGINES 5
static const char *const engine_names[ENGINES] = { "stage", "direct", "cma", "map", "auto" };
static const uint32_t slot_counts[] = { 2, 16, 64 };

struct op {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	bool signaled, inlined, fence;
	size_t at;    /* in the target's memory */
	unsigned source; /* READ: the WRITE that it reads */
	uint64_t before; /* atomic: additions before it */
};

struct mix {
	struct loop loop;
	unsigned seed;
	struct soft_cq *a_send, *b_recv, *other;
	struct soft_qp *a, *b;
	struct op ops[WRS];
	uint8_t *source, *result, *target, *receives;
	uint64_t *counter, *fetched;
	uint64_t target_at, counter_at; /* in WRs */
	struct fake_grants grants;
	bool map, warm; /* map's grants are there from the start */
	uint64_t runs_before;
	struct soft_mr *source_mr, *result_mr, *target_mr, *receive_mr, *counter_mr, *fetched_mr;
	size_t size;
	unsigned n_receives, first_bad; /* receives that will come; the WR that finds none */
	unsigned posted, completed, recvs_posted, received;
	unsigned order[WRS]; /* which WR takes which receive */
};

static uint8_t pattern(unsigned i, size_t k)
{
	return (uint8_t)(i * 31 + k * 7 + (k >> 8) + 1);
}

static unsigned pick(struct mix *m, unsigned n)
{
	return (unsigned)rand_r(&m->seed) % n;
}

static bool takes_receive(const struct op *op)
{
	return op->opcode == IBV_WR_SEND || op->opcode == IBV_WR_SEND_WITH_IMM ||
	       op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool writes(const struct op *op)
{
	return op->opcode == IBV_WR_RDMA_WRITE || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* It reads the source buffer after the post. */
static bool uses_source(const struct op *op)
{
	return !op->inlined && op->opcode != IBV_WR_RDMA_READ &&
	       op->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void plan_one(struct mix *m, unsigned i, uint64_t *additions)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct op *op = &m->ops[i];

	op->opcode = opcodes[pick(m, 7)];
	op->length = sizes[pick(m, pick(m, 4) ? 14 : 18)];
	op->at = m->size;
	if (op->opcode == IBV_WR_RDMA_READ) {
		op->source = pick(m, i + 1);
		if (op->source == i || !writes(&m->ops[op->source]))
			op->opcode = IBV_WR_RDMA_WRITE;
		else
			op->length = m->ops[op->source].length;
	}
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		op->length = 8;
		op->before = (*additions)++;
	}
	op->inlined = op->length <= 256 && op->opcode != IBV_WR_RDMA_READ &&
		      op->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && pick(m, 2);
	op->fence = !pick(m, 8);
	op->signaled = i % 8 == 7 || i + 1 == WRS || uses_source(op) || pick(m, 2);
	if (writes(op))
		m->size += op->length + 8;
	if (takes_receive(op))
		m->order[m->n_receives++] = i;
}

/* @fail: not all receives will come. */
static void plan(struct mix *m, bool fail)
{
	uint64_t additions = 0;

	for (unsigned i = 0; i < WRS; i++)
		plan_one(m, i, &additions);
	m->first_bad = WRS;
	if (fail && m->n_receives) {
		m->n_receives = pick(m, m->n_receives);
		m->first_bad = m->order[m->n_receives];
	}
}

/* A region of its own when map is to run: the initiator's mapping is not the owner's. */
static void *target_memory(const struct mix *m, size_t size, int *fd)
{
	if (!m->map)
		return malloc(size);
	*fd = fake_region_file(size);

	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);

	ck_assert_ptr_ne(mem, MAP_FAILED);
	return mem;
}

static struct soft_mr *target_register(struct mix *m, void *mem, size_t size, int fd, uint64_t *at)
{
	struct soft_mr *mr;

	*at = (uintptr_t)mem;
	if (!m->map)
		return loop_mr(&m->loop, mem, size, LOOP_ACCESS);
	*at = HARNESS_BASE + ((uint64_t)fd << 30);
	mr = loop_mr_iova(&m->loop, mem, size, *at, LOOP_ACCESS);
	rt_page()->keys[(mr->key >> 8) % VSD_PAGE_KEYS].region = mr->key;
	grants_set(&m->grants, &(struct fake_region){ mr->key, mr->key, fd, *at, size, true, 0 });
	return mr;
}

static void targets_make(struct mix *m)
{
	int target = -1, counter = -1;

	m->target = target_memory(m, m->size + 8, &target);
	m->counter = target_memory(m, sizeof(*m->counter), &counter);
	*m->counter = 0;
	memset(m->target, UNTOUCHED, m->size + 8);
	m->target_mr = target_register(m, m->target, m->size + 8, target, &m->target_at);
	m->counter_mr = target_register(m, m->counter, 8, counter, &m->counter_at);
}

static void target_free(const struct mix *m, void *mem, size_t size)
{
	if (m->map)
		munmap(mem, size);
	else
		free(mem);
}

static void connect_two(struct mix *m, const char *engine, uint32_t slots, bool fail)
{
	struct loop_options options = LOOP_OPTIONS;

	options.signal_all = false;
	options.send_wr = 32;
	options.recv_wr = WRS;
	if (fail)
		options.rnr_retry = pick(m, 3);
	options.send_cq = m->a_send;
	options.recv_cq = m->other;
	m->a = loop_qp(&m->loop, &options);
	options.send_cq = m->other;
	options.recv_cq = m->b_recv;
	m->b = loop_qp(&m->loop, &options);
	loop_connect(&m->loop, m->a, m->b, slots, &options);
	for (unsigned side = 0; side < 2 && strcmp(engine, "cma") == 0; side++) /* what a sends b fetches */
		rt.loop[side].engines = rt.loop[side].priv->granted |= VSD__ENGINE_RIGHT__ENGINE_CMA;
	if (m->map)
		atomic_load(&m->a->wire)->pair->engines |= VSD__ENGINE_RIGHT__ENGINE_MAP;
}

/* READs of one byte until the engine runs one. */
static void warm_up(struct mix *m, struct soft_mr *mr, uint64_t at)
{
	struct ibv_sge sge = { (uintptr_t)m->result, 1, m->result_mr->key };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = at;
	wr.wr.rdma.rkey = mr->key;
	for (uint64_t before = loop_counter(VSD_COUNT_INITIATOR_RUN); loop_counter(VSD_COUNT_INITIATOR_RUN) == before;) {
		ck_assert_int_eq(soft_post_send(&m->a->v.qp, &wr, &bad), 0);
		loop_expect(m->a_send, 0, IBV_WC_SUCCESS);
	}
}

static void build(struct mix *m, const char *engine, uint32_t slots, bool fail)
{
	setenv("VERBSD_ENGINE", engine, 1);
	loop_start(&m->loop);
	plan(m, fail);
	m->map = strcmp(engine, "map") == 0;
	m->warm = !m->map || pick(m, 2);
	grants_start(&m->grants, m->loop.events);
	m->a_send = loop_cq(&m->loop, 256);
	m->b_recv = loop_cq(&m->loop, 256);
	m->other = loop_cq(&m->loop, 256);
	connect_two(m, engine, slots, fail);
	m->source = malloc(MAX_SIZE);
	m->result = calloc(WRS, MAX_SIZE);
	m->receives = calloc(WRS, MAX_SIZE);
	m->fetched = calloc(WRS, sizeof(*m->fetched));
	m->source_mr = loop_mr(&m->loop, m->source, MAX_SIZE, 0);
	m->result_mr = loop_mr(&m->loop, m->result, (size_t)WRS * MAX_SIZE, LOOP_ACCESS);
	m->receive_mr = loop_mr(&m->loop, m->receives, (size_t)WRS * MAX_SIZE, LOOP_ACCESS);
	m->fetched_mr = loop_mr(&m->loop, m->fetched, WRS * 8, LOOP_ACCESS);
	targets_make(m);
	if (m->map && m->warm) {
		warm_up(m, m->target_mr, m->target_at);
		warm_up(m, m->counter_mr, m->counter_at);
	}
	m->runs_before = loop_counter(VSD_COUNT_INITIATOR_RUN);
}

static void tear_down(struct mix *m)
{
	struct soft_mr *mrs[] = { m->source_mr, m->result_mr, m->target_mr, m->receive_mr,
		m->counter_mr, m->fetched_mr };

	loop_qp_free(m->a);
	loop_qp_free(m->b);
	for (size_t i = 0; i < sizeof(mrs) / sizeof(mrs[0]); i++)
		loop_mr_free(mrs[i]);
	loop_cq_free(m->a_send);
	loop_cq_free(m->b_recv);
	loop_cq_free(m->other);
	free(m->source);
	free(m->result);
	free(m->receives);
	free(m->fetched);
	target_free(m, m->target, m->size + 8);
	target_free(m, m->counter, sizeof(*m->counter));
	for (unsigned i = 0; i < m->grants.n; i++)
		close(m->grants.regions[i].fd);
	loop_stop(&m->loop);
	grants_stop(&m->grants);
}

/* Splits [addr, addr+length) into up to three SGEs. */
static int split(struct mix *m, struct ibv_sge *sge, const void *addr, uint32_t length, uint32_t lkey)
{
	uint32_t cut = length > 2 ? pick(m, length) : length;
	int n = 1 + (cut < length);

	sge[0] = (struct ibv_sge){ (uintptr_t)addr, cut, lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)addr + cut, length - cut, lkey };
	return n;
}

static void local_of(struct mix *m, unsigned i, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct op *op = &m->ops[i];

	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr->num_sge = split(m, sge, &m->fetched[i], 8, m->fetched_mr->key);
	else if (op->opcode == IBV_WR_RDMA_READ)
		wr->num_sge = split(m, sge, m->result + (size_t)i * MAX_SIZE, op->length, m->result_mr->key);
	else
		wr->num_sge = split(m, sge, m->source, op->length, m->source_mr->key);
}

static int post(struct mix *m, unsigned i)
{
	const struct op *op = &m->ops[i];
	struct ibv_sge sge[2];
	struct ibv_send_wr *bad, wr = { .wr_id = i, .sg_list = sge, .opcode = op->opcode,
				 .imm_data = i * 3 };

	local_of(m, i, &wr, sge);
	wr.send_flags = (op->signaled ? IBV_SEND_SIGNALED : 0) | (op->inlined ? IBV_SEND_INLINE : 0) |
			(op->fence ? IBV_SEND_FENCE : 0);
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = m->counter_at;
		wr.wr.atomic.rkey = m->counter_mr->key;
		wr.wr.atomic.compare_add = 1;
	} else {
		size_t at = op->opcode == IBV_WR_RDMA_READ ? m->ops[op->source].at : op->at;

		wr.wr.rdma.remote_addr = m->target_at + at;
		wr.wr.rdma.rkey = m->target_mr->key;
	}
	return soft_post_send(&m->a->v.qp, &wr, &bad);
}

/*
 * One source buffer serves all: it is not overwritten before a WR that reads it has completed. That leaves inline WRs,
 * READs and atomics in flight in front of one that reads the buffer.
 */
static bool may_post(struct mix *m)
{
	const struct op *op = &m->ops[m->posted];

	if (op->opcode == IBV_WR_RDMA_READ || op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return true;
	for (unsigned i = m->completed; i < m->posted; i++) {
		if (uses_source(&m->ops[i]))
			return false;
	}
	return true;
}

static void step_post(struct mix *m)
{
	const struct op *op = &m->ops[m->posted];

	if (m->posted == WRS || !may_post(m))
		return;
	if (op->opcode != IBV_WR_RDMA_READ && op->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
		for (size_t k = 0; k < op->length; k++)
			m->source[k] = pattern(m->posted, k);
	int err = post(m, m->posted);

	if (err) {
		ck_assert_int_eq(err, 12); /* full */
		return;
	}
	m->posted++;
	if (op->inlined)
		memset(m->source, 0x11, op->length);
}

static void step_receive(struct mix *m)
{
	struct ibv_sge sge[2];
	struct ibv_recv_wr *bad, wr = { .wr_id = 1000 + m->recvs_posted, .sg_list = sge };

	if (m->recvs_posted == m->n_receives)
		return;
	wr.num_sge = split(m, sge, m->receives + (size_t)m->recvs_posted * MAX_SIZE, MAX_SIZE,
		m->receive_mr->key);
	ck_assert_int_eq(soft_post_recv(&m->b->v.qp, &wr, &bad), 0);
	m->recvs_posted++;
}

static void check_bytes(const uint8_t *bytes, unsigned i, uint32_t length)
{
	for (uint32_t k = 0; k < length; k++)
		if (bytes[k] != pattern(i, k))
			ck_abort_msg("byte %u of WR %u is %u, not %u", k, i, bytes[k], pattern(i, k));
}

static void check_done(struct mix *m, unsigned i)
{
	const struct op *op = &m->ops[i];

	if (op->opcode == IBV_WR_RDMA_READ)
		check_bytes(m->result + (size_t)i * MAX_SIZE, op->source, op->length);
	else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		ck_assert_uint_eq(m->fetched[i], op->before);
	else if (writes(op))
		check_bytes(m->target + op->at, i, op->length);
}

static void step_completion(struct mix *m)
{
	struct ibv_wc wc;

	if (soft_poll_cq(&m->a_send->v.cq, 1, &wc) != 1)
		return;
	while (m->completed < m->first_bad && !m->ops[m->completed].signaled)
		m->completed++; /* said nothing, and is done before this one */
	unsigned i = m->completed++;

	ck_assert_uint_eq(wc.wr_id, i);
	if (i < m->first_bad) {
		ck_assert_msg(wc.status == IBV_WC_SUCCESS, "WR %u (opcode %d, %u bytes): %d", i,
			m->ops[i].opcode, m->ops[i].length, wc.status);
		check_done(m, i);
	} else {
		ck_assert_int_eq(wc.status, i == m->first_bad ? IBV_WC_RNR_RETRY_EXC_ERR :
								IBV_WC_WR_FLUSH_ERR);
	}
}

static void step_received(struct mix *m)
{
	struct ibv_wc wc;

	if (m->received == m->n_receives || soft_poll_cq(&m->b_recv->v.cq, 1, &wc) != 1)
		return;
	unsigned i = m->order[m->received];
	const struct op *op = &m->ops[i];

	ck_assert_uint_eq(wc.wr_id, 1000 + m->received);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, op->length);
	ck_assert_int_eq(!(wc.wc_flags & IBV_WC_WITH_IMM), op->opcode == IBV_WR_SEND);
	if (wc.wc_flags & IBV_WC_WITH_IMM)
		ck_assert_uint_eq(wc.imm_data, i * 3);
	if (writes(op))
		check_bytes(m->target + op->at, i, op->length);
	else
		check_bytes(m->receives + (size_t)m->received * MAX_SIZE, i, op->length);
	m->received++;
}

static void check_untouched(struct mix *m)
{
	uint64_t additions = 0;

	for (unsigned i = 0; i < WRS; i++) {
		const struct op *op = &m->ops[i];

		if (i < m->first_bad && op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			additions++;
		if (i < m->first_bad || !writes(op))
			continue;
		for (uint32_t k = 0; k < op->length; k++)
			if (m->target[op->at + k] != UNTOUCHED)
				ck_abort_msg("WR %u is behind the failed %u and was stored", i, m->first_bad);
	}
	ck_assert_uint_eq(*m->counter, additions);
}

static void run(struct mix *m)
{
	static void (*const steps[])(struct mix *m) = { step_post, step_post, step_receive,
		step_completion, step_received };

	while (m->completed < WRS || m->received < m->n_receives)
		steps[pick(m, 5)](m);
	check_untouched(m);
}

/* The engine that was forced did run, and `stage` ran none. */
static void check_engine(const struct mix *m, const char *engine)
{
	uint64_t run = loop_counter(VSD_COUNT_INITIATOR_RUN) - m->runs_before;

	if (strcmp(engine, "stage") == 0)
		ck_assert_uint_eq(run, 0);
	else if (m->first_bad == WRS && m->warm)
		ck_assert_msg(run > 0, "%s never ran", engine);
}

static void combination(int i, bool fail)
{
	struct mix m = { .seed = (unsigned)i * 2654435761u + 1 };

	build(&m, engine_names[i % ENGINES], slot_counts[i / ENGINES % 3], fail);
	/* Who is to fail at one receive must not fail at an earlier one that only came late. */
	while (fail && m.recvs_posted < m.n_receives)
		step_receive(&m);
	run(&m);
	check_engine(&m, engine_names[i % ENGINES]);
	tear_down(&m);
}

START_TEST(order_and_completions_are_exact)
{
	combination(_i, false);
}
END_TEST

START_TEST(nothing_behind_a_failed_wr_happens)
{
	combination(_i, true);
}
END_TEST

static void add_tests(TCase *tcase, int rounds)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, order_and_completions_are_exact, 0, rounds);
	tcase_add_loop_test(tcase, nothing_behind_a_failed_wr_happens, 0, rounds);
}

int main(void)
{
	const char *length = getenv("VERBSD_LENGTH");
	int rounds = length && strcmp(length, "full") == 0 ? 1500 : 45;
	Suite *suite = suite_create("mix");
	TCase *domain = harness_tcase(suite, "mix in a thread domain");

	add_tests(harness_tcase(suite, "mix"), rounds);
	tcase_add_checked_fixture(domain, loop_with_domain, NULL);
	add_tests(domain, rounds);
	return harness_run(suite);
}
