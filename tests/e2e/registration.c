/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration of ordinary memory, as the daemon sees it (registration.sh): one test a run, named by the first argument. Those
 * that "say" something wait for a line on stdin after each line that they print.
 */
#include "kit.h"

#include <pthread.h>
#include <stdlib.h>

#define SIZE 4096
#define LIVE 600 /* more than are had in advance at first */
#define THREADS 4

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t *memory;

static void begin(void)
{
	ctx = kit_open();
	NEED(pd = ibv_alloc_pd(ctx));
	NEED(memory = aligned_alloc(SIZE, (size_t)LIVE * SIZE));
	memset(memory, 1, (size_t)LIVE * SIZE);
}

static void end(void)
{
	RETURNS(ibv_dealloc_pd(pd), 0);
	RETURNS(ibv_close_device(ctx), 0);
	free(memory);
}

static struct ibv_mr *reg(unsigned i)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory + (size_t)i * SIZE, SIZE, KIT_ACCESS);

	NEED(mr);
	return mr;
}

static void churn(unsigned rounds)
{
	begin();
	for (unsigned i = 0; i < rounds; i++)
		RETURNS(ibv_dereg_mr(reg(i % LIVE)), 0);
	end();
}

static void once(void)
{
	churn(1);
}

static void often(void)
{
	churn(10000);
}

/* Two calls of the daemon's after each other. */
static void calls(void)
{
	begin();
	for (unsigned i = 0; i < 500; i++) {
		struct ibv_pd *other;

		NEED(other = ibv_alloc_pd(ctx));
		RETURNS(ibv_dealloc_pd(other), 0);
	}
	end();
}

static void say(const char *what)
{
	char line[16];

	printf("%s\n", what);
	fflush(stdout);
	NEED(fgets(line, sizeof(line), stdin));
}

/* Each of them is seen as it is, though nobody was told. */
static void shown(void)
{
	struct ibv_mr *a, *b, *some[LIVE];

	begin();
	a = reg(0);
	b = ibv_reg_mr_iova(pd, memory + SIZE, SIZE, 0x7000, IBV_ACCESS_LOCAL_WRITE);
	NEED(b);
	printf("%u %u\n", a->rkey, b->lkey);
	say("two");
	RETURNS(ibv_rereg_mr(b, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + SIZE, 100, 0), 0);
	RETURNS(ibv_dealloc_pd(pd), EBUSY);
	say("changed");
	RETURNS(ibv_dereg_mr(a), 0);
	say("one");
	for (unsigned i = 0; i < LIVE; i++)
		some[i] = reg(i);
	say("many");
	for (unsigned i = 0; i < LIVE; i++)
		RETURNS(ibv_dereg_mr(some[i]), 0);
	RETURNS(ibv_dereg_mr(b), 0);
	say("none");
	end();
}

/* Whoever watches sees one go that was there before, and one come and go. */
static void watched(void)
{
	struct ibv_mr *mr;

	begin();
	mr = reg(0);
	printf("%u\n", mr->rkey);
	say("registered");
	RETURNS(ibv_dereg_mr(mr), 0);
	mr = reg(1);
	printf("%u\n", mr->rkey);
	RETURNS(ibv_dereg_mr(mr), 0);
	say("gone");
	end();
}

static void *thread(void *arg)
{
	unsigned first = *(unsigned *)arg;
	struct ibv_mr *some[16];

	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 16; i++)
			some[i] = reg(first + i);
		for (unsigned i = 0; i < 16; i++)
			for (unsigned j = 0; j < i; j++)
				NEED(some[i]->rkey != some[j]->rkey && some[i]->handle != some[j]->handle);
		for (unsigned i = 0; i < 16; i++)
			RETURNS(ibv_dereg_mr(some[i]), 0);
	}
	return NULL;
}

static void threads(void)
{
	unsigned first[THREADS];
	pthread_t id[THREADS];

	begin();
	for (unsigned i = 0; i < THREADS; i++) {
		first[i] = 16 * i;
		NEED(pthread_create(&id[i], NULL, thread, &first[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		NEED(pthread_join(id[i], NULL) == 0);
	end();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "once", once }, { "often", often }, { "shown", shown }, { "watched", watched }, { "threads", threads },
		{ "calls", calls },
	};

	for (size_t i = 0; argc == 2 && i < sizeof(tests) / sizeof(tests[0]); i++)
		if (strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "usage: registration TEST\n");
	return 2;
}
