/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long SENDs between two processes, which the receiver fetches from the sender's memory: contents, whoever polls; a sender that
 * may not be read; one that takes its memory back in the middle, or dies; a receiver that dies. The receiver proves by its
 * counter how a message came.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "client/soft/way.h"
#include "tests/e2e/map.h"

#define SIZE (4u << 20) /* what is longer takes the lane */
#define ROUNDS 40u
#define WRITTEN_LATER 0xee

static const uint32_t lengths[] = { 16392, 65536, 65544, 1u << 20, (1u << 20) + 8, SIZE };

#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* --- an end with memory of its own ----------------------------------------------------------------------------------- */

struct place {
	struct end end;
	uint8_t *memory;
	struct ibv_mr *mr;
};

static void place_register(struct place *place, int access)
{
	place->mr = ibv_reg_mr(place->end.pd, place->memory, SIZE, access);
	NEED(place->mr);
}

static void place_open(struct place *place, int fd, int access)
{
	end_open(&place->end);
	place->memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(place->memory != MAP_FAILED);
	place_register(place, access);
	end_meet(&place->end, fd);
}

static void place_close(struct place *place)
{
	NEED(ibv_dereg_mr(place->mr) == 0);
	end_close(&place->end);
	munmap(place->memory, SIZE);
}

static void post(struct place *place, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)place->memory, length, place->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	NEED(ibv_post_send(place->end.qp, &wr, &bad) == 0);
}

static void expect(struct place *place)
{
	end_recv(&place->end, (uintptr_t)place->memory, SIZE, place->mr->lkey);
}

static uint64_t pulled(void)
{
	return counted(VSD_COUNT_PULLED);
}

/* --- contents --------------------------------------------------------------------------------------------------------- */

/* Both ends, whatever they find faster. */
static struct child child_of_fetching(void (*run)(int fd, void *arg))
{
	setenv("VERBSD_ENGINE", "cma", 1);
	return child_start(run, NULL);
}

/* Sends each length, with no right for anybody on its memory, when it is asked to; @arg: it may not be read. */
static void send_all(int fd, void *arg)
{
	struct place self;

	if (arg)
		NEED(prctl(PR_SET_DUMPABLE, 0) == 0);
	place_open(&self, fd, 0);
	for (unsigned i = 0; i < N_LENGTHS; i++) {
		fill(self.memory, lengths[i], i);
		nod_wait(fd);
		post(&self, lengths[i]);
		NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		nod(fd);
	}
	nod_wait(fd);
	place_close(&self);
}

/* @polls: this end; else it does not call a verb until its peer is done. */
static uint64_t receive_all(bool polls, bool hidden)
{
	struct child child = child_start(send_all, hidden ? &child : NULL);
	struct place self;
	uint64_t n;

	place_open(&self, child.fd, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < N_LENGTHS; i++) {
		memset(self.memory, 0, SIZE);
		expect(&self);
		nod(child.fd);
		if (polls)
			NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		nod_wait(child.fd);
		if (!polls)
			NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		NEED(filled(self.memory, lengths[i], i));
		NEED(lengths[i] == SIZE || !self.memory[lengths[i]]);
	}
	n = pulled();
	nod(child.fd);
	child_end(&child);
	place_close(&self);
	return n;
}

static void need_to_read(void)
{
	if (!processes_may_copy())
		end_skip("processes may not read each other here");
}

static void what_comes_is_what_was_sent(void)
{
	need_to_read();
	NEED(receive_all(true, false) == N_LENGTHS);
}

static void the_receiver_does_not_poll(void)
{
	need_to_read();
	NEED(receive_all(false, false) == N_LENGTHS);
}

#define TRIED  65536u
#define MANY   (20 * (WAY_SKIP + WAY_TRIAL))

static void send_many(int fd, void *arg)
{
	struct place self;

	(void)arg;
	place_open(&self, fd, 0);
	for (unsigned i = 0; i < MANY; i++) {
		fill(self.memory, TRIED, i);
		nod_wait(fd);
		post(&self, TRIED);
		NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
	}
	nod_wait(fd);
	place_close(&self);
}

/* Whichever is faster here: some come either way, and all whole. */
static void both_ways_are_tried(void)
{
	struct child child;
	struct place self;
	uint64_t n;

	need_to_read();
	child = child_start(send_many, NULL);
	place_open(&self, child.fd, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < MANY; i++) {
		memset(self.memory, 0, TRIED);
		expect(&self);
		nod(child.fd);
		NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		NEED(filled(self.memory, TRIED, i));
	}
	n = pulled();
	printf("# %u of %u were fetched\n", (unsigned)n, MANY);
	NEED(n > 0 && n < MANY);
	nod(child.fd);
	child_end(&child);
	place_close(&self);
}

static void a_sender_that_may_not_be_read(void)
{
	if (geteuid() == 0)
		end_skip("root may read everybody");
	NEED(receive_all(true, true) == 0);
}

/* --- taken back ---------------------------------------------------------------------------------------------------------- */

static unsigned random_state = 1;

/* Up to @ns, by the clock: it is to be awake at once. */
static void dawdle(long ns)
{
	struct timespec start, now;

	ns = rand_r(&random_state) % ns;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000000l + now.tv_nsec - start.tv_nsec < ns);
}

static void deregister(struct place *self)
{
	NEED(ibv_dereg_mr(self->mr) == 0);
}

static void to_error(struct place *self)
{
	NEED(ibv_modify_qp(self->end.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == 0);
}

/* Of the rounds of each, one waits until the message is there, and one does not wait at all; the others do for a while. */
enum { AWAITED, AT_ONCE, WAYS = 5 };

/* Sends, takes back, and uses its memory for something else, at once. */
static void send_and_take_back(int fd, void *arg)
{
	struct place self;

	(void)arg;
	place_open(&self, fd, 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(self.memory, 1, SIZE);
		nod_wait(fd);
		post(&self, SIZE);

		enum ibv_wc_status status = i % WAYS == AWAITED ? end_wait(&self.end) : IBV_WC_GENERAL_ERR;

		if (i % WAYS > AT_ONCE)
			dawdle(4000000);
		(i % 2 ? deregister : to_error)(&self);
		memset(self.memory, WRITTEN_LATER, SIZE);
		if (i % WAYS != AWAITED)
			status = end_wait(&self.end);
		NEED(status == IBV_WC_SUCCESS || status == (i % 2 ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
		say(fd, &status, sizeof(status));
		nod_wait(fd);
		end_qp_destroy(&self.end);
		if (i % 2)
			place_register(&self, 0);
		end_qp(&self.end);
		end_meet(&self.end, fd);
	}
	place_close(&self);
}

static void look_at(const uint8_t *memory, bool whole)
{
	for (unsigned i = 0; i < SIZE; i++)
		NEED(memory[i] == 1 || (!whole && memory[i] == 0));
}

static void what_was_taken_back(void)
{
	bool may_read = processes_may_copy();
	struct child child = child_of_fetching(send_and_take_back);
	struct place self;
	unsigned failed = 0;

	place_open(&self, child.fd, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		enum ibv_wc_status status;
		struct ibv_wc wc;

		memset(self.memory, 0, SIZE);
		expect(&self);
		nod(child.fd);
		hear(child.fd, &status, sizeof(status));
		if (status == IBV_WC_SUCCESS)
			NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		else if (ibv_poll_cq(self.end.cq, 1, &wc) == 1) /* what the sender did not hear of any more */
			NEED(status == IBV_WC_WR_FLUSH_ERR);
		failed += status != IBV_WC_SUCCESS;
		look_at(self.memory, status == IBV_WC_SUCCESS);
		nod(child.fd);
		end_qp_destroy(&self.end);
		end_qp(&self.end);
		end_meet(&self.end, child.fd);
	}
	printf("# %u of %u were taken back in time, %u fetched whole\n", failed, ROUNDS, (unsigned)pulled());
	/* Of those that were taken back none need have come whole. */
	NEED(failed);
	NEED(!may_read || pulled() >= ROUNDS / WAYS);
	child_end(&child);
	place_close(&self);
}

/* --- deaths --------------------------------------------------------------------------------------------------------------- */

static void send_for_ever(int fd, void *arg)
{
	struct place self;

	(void)arg;
	place_open(&self, fd, 0);
	for (;;) {
		post(&self, SIZE);
		end_wait(&self.end);
	}
}

static void receive_for_ever(int fd, void *arg)
{
	struct place self;

	(void)arg;
	place_open(&self, fd, IBV_ACCESS_LOCAL_WRITE);
	for (;;) {
		expect(&self);
		end_wait(&self.end);
	}
}

static void the_sender_is_killed(void)
{
	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		struct child child = child_of_fetching(send_for_ever);
		struct place self;
		enum ibv_wc_status status;

		place_open(&self, child.fd, IBV_ACCESS_LOCAL_WRITE);
		expect(&self);
		NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		expect(&self);
		dawdle(1000000);
		child_kill(&child);
		do {
			status = end_wait(&self.end);
			if (status == IBV_WC_SUCCESS)
				expect(&self);
		} while (status == IBV_WC_SUCCESS);
		NEED(status == IBV_WC_WR_FLUSH_ERR);
		place_close(&self);
	}
}

static void the_receiver_is_killed(void)
{
	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		struct child child = child_of_fetching(receive_for_ever);
		struct place self;
		enum ibv_wc_status status;

		place_open(&self, child.fd, 0);
		post(&self, SIZE);
		NEED(end_wait(&self.end) == IBV_WC_SUCCESS);
		post(&self, SIZE);
		dawdle(1000000);
		child_kill(&child);
		do {
			status = end_wait(&self.end);
			if (status == IBV_WC_SUCCESS)
				post(&self, SIZE);
		} while (status == IBV_WC_SUCCESS);
		/* Flushed: it died with nothing on its way. */
		NEED(status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR);
		place_close(&self);
	}
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "what-comes-is-what-was-sent", what_comes_is_what_was_sent },
		{ "the-receiver-does-not-poll", the_receiver_does_not_poll },
		{ "both-ways-are-tried", both_ways_are_tried },
		{ "a-sender-that-may-not-be-read", a_sender_that_may_not_be_read },
		{ "what-was-taken-back", what_was_taken_back },
		{ "the-sender-is-killed", the_sender_is_killed },
		{ "the-receiver-is-killed", the_receiver_is_killed },
	};

	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
