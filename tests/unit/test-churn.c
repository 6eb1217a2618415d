/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPs and regions that come and go while other threads make the progress: nobody touches what is gone, every WR is
 * completed once, and no byte moves after the verb that forbids it. Worth most under a sanitizer.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

#define THREADS 4
#define SIZE	600000u
#define WRS	12

static struct loop loop;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* the fixture is not for threads */
static int rounds;

struct churn {
	pthread_t thread;
	unsigned seed;
	struct loop_options options;
	struct soft_cq *send_cq, *recv_cq;
	struct soft_qp *a, *b;
	uint8_t *from, *to;
	struct soft_mr *from_mr, *to_mr;
	unsigned posted, completed;
};

static unsigned pick(struct churn *c, unsigned n)
{
	return (unsigned)rand_r(&c->seed) % n;
}

static bool untouched(const uint8_t *bytes, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, SIZE - 1) == 0;
}

static void make(struct churn *c)
{
	static const uint32_t slots[] = { 2, 16, 64 };

	loop_domain_make(&loop);
	pthread_mutex_lock(&making);
	c->options = (struct loop_options)LOOP_OPTIONS;
	c->send_cq = c->options.send_cq = loop_cq(&loop, 128);
	c->recv_cq = c->options.recv_cq = loop_cq(&loop, 128);
	c->a = loop_qp(&loop, &c->options);
	c->b = loop_qp(&loop, &c->options);
	c->from_mr = loop_mr(&loop, c->from, 2 * SIZE, LOOP_ACCESS);
	c->to_mr = loop_mr(&loop, c->to, SIZE, LOOP_ACCESS);
	loop_connect(&loop, c->a, c->b, slots[pick(c, 3)], &c->options);
	pthread_mutex_unlock(&making);
	c->posted = c->completed = 0;
}

static void take(struct churn *c)
{
	struct ibv_wc wc[4];
	int n = soft_poll_cq(&c->send_cq->v.cq, 4, wc);

	for (int i = 0; i < n; i++)
		ck_assert_uint_eq(wc[i].wr_id, c->completed++);
	soft_poll_cq(&c->recv_cq->v.cq, 4, wc);
}

static void work(struct churn *c)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
		IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (unsigned i = 0; i < WRS; i++) {
		enum ibv_wr_opcode opcode = opcodes[pick(c, 4)];
		uint32_t length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : pick(c, SIZE);
		bool comes_back = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_RDMA_READ;
		/* A SEND is read from until it is completed. */
		uint8_t *from = comes_back ? c->from + SIZE : c->from;

		if (pick(c, 4))
			loop_recv(c->b, 1000, c->to_mr, c->to, SIZE);
		ck_assert_int_eq(loop_send(c->a, c->posted, opcode, c->from_mr, from, length, c->to_mr,
			c->to), 0);
		c->posted++;
		if (pick(c, 2))
			take(c);
	}
}

/* The target's region is closed in mid-traffic: from then on its bytes stay as they are. */
static void close_region(struct churn *c)
{
	loop_mr_free(c->to_mr);
	c->to_mr = NULL;
	memset(c->to, 0x33, SIZE);
	for (unsigned i = 0; i < 50; i++)
		take(c);
	ck_assert(untouched(c->to, 0x33));
}

/* Both ends fail: all that was posted comes back, and what was in the lanes is not served any more. */
static void fail_both(struct churn *c)
{
	bool first = pick(c, 2);

	loop_state(first ? c->a : c->b, IBV_QPS_ERR);
	loop_state(first ? c->b : c->a, IBV_QPS_ERR);
	memset(c->to, 0x44, SIZE);
	while (c->completed < c->posted)
		take(c);
	ck_assert(untouched(c->to, 0x44));
}

static void *churn(void *arg)
{
	struct churn *c = arg;

	for (int i = 0; i < rounds; i++) {
		make(c);
		work(c);
		unsigned how = pick(c, 3);

		if (how == 0)
			close_region(c);
		else if (how == 1)
			fail_both(c);
		loop_qp_free(c->a);
		loop_qp_free(c->b);
		memset(c->to, 0x55, SIZE);
		loop_mr_free(c->from_mr);
		if (c->to_mr)
			loop_mr_free(c->to_mr);
		loop_cq_free(c->send_cq);
		loop_cq_free(c->recv_cq);
		loop_domain_free();
		ck_assert(untouched(c->to, 0x55));
	}
	return NULL;
}

START_TEST(objects_come_and_go_under_traffic)
{
	static struct churn threads[THREADS];

	setenv("VERBSD_ENGINE", _i ? "stage" : "auto", 1);
	loop_start(&loop);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].seed = i + 1;
		threads[i].from = calloc(2, SIZE);
		threads[i].to = calloc(1, SIZE);
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, churn, &threads[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		free(threads[i].from);
		free(threads[i].to);
	}
	loop_stop(&loop);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, objects_come_and_go_under_traffic, 0, 2);
}

int main(void)
{
	const char *length = getenv("VERBSD_LENGTH");
	Suite *suite = suite_create("churn");
	TCase *domain = harness_tcase(suite, "churn, a thread domain each");

	rounds = length && strcmp(length, "full") == 0 ? 20000 : 300;
	add_tests(harness_tcase(suite, "churn"));
	tcase_add_checked_fixture(domain, loop_with_domain, NULL);
	add_tests(domain);
	return harness_run(suite);
}
