/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The map engine between processes: an owner with a shared region, and initiators that write, read and add to it
 * through a connection and run that themselves. That they did is in their process pages. One case a run (see ends.h);
 * the engine is forced, so what is not mapped takes the lane.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/e2e/map.h"

/* --- contents ----------------------------------------------------------------------------------------------------- */

#define ROUNDS 64
#define PIECE  100000u

static void writer(int fd, void *arg)
{
	uint64_t half = *(int *)arg ? REGION_SIZE / 2 : 0, before;
	struct initiator self;

	initiator_open(&self, fd);
	initiator_warm_up(&self, IBV_WR_RDMA_READ);
	before = runs();
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t at = half + i * 1000 % (REGION_SIZE / 4);

		fill(self.memory, PIECE, half + i);
		initiator_run(&self, IBV_WR_RDMA_WRITE, 0, PIECE, at);
		memset(self.memory, 0, PIECE);
		initiator_run(&self, IBV_WR_RDMA_READ, 0, PIECE, at);
		NEED(filled(self.memory, PIECE, half + i));
	}
	fill(self.memory, REGION_SIZE / 4, half + 7);
	initiator_run(&self, IBV_WR_RDMA_WRITE, 0, REGION_SIZE / 4, half);
	NEED(runs() == before + 2 * ROUNDS + 1);
	NEED(regions_mapped("rw-s") == 1);
	nod(fd);
	nod_wait(fd);
	initiator_close(&self);
}

static void two_initiators_write_and_read(void)
{
	struct child children[2];
	struct end ends[2];
	struct ibv_mr *mr;

	for (int i = 0; i < 2; i++)
		children[i] = child_start(writer, &i);
	end_open(&ends[0]);
	ends[1] = ends[0];
	end_qp(&ends[1]);
	mr = region_alloc(ends[0].pd, ALL_ACCESS);
	for (int i = 0; i < 2; i++)
		invite(&ends[i], children[i].fd, mr);
	for (int i = 0; i < 2; i++)
		nod_wait(children[i].fd);
	for (uint64_t half = 0; half < REGION_SIZE; half += REGION_SIZE / 2)
		NEED(filled((uint8_t *)mr->addr + half, REGION_SIZE / 4, half + 7));
	for (int i = 0; i < 2; i++) {
		nod(children[i].fd);
		child_end(&children[i]);
	}
	NEED(runs() == 0);
	end_qp_destroy(&ends[1]);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&ends[0]);
}

/* Who has the region already does not map it twice, and needs its own MR no longer than it likes. */
static void importer(int fd, void *arg)
{
	struct initiator self;
	struct ibv_mr *own;
	int capability;
	uint64_t before;

	(void)arg;
	initiator_open(&self, fd);
	capability = fd_hear(fd);
	own = verbsd_import_mr_fd(self.end.pd, capability, ALL_ACCESS);
	NEED(own);
	close(capability);
	initiator_warm_up(&self, IBV_WR_RDMA_READ);
	fill(self.memory, PIECE, 3);
	initiator_run(&self, IBV_WR_RDMA_WRITE, 0, PIECE, 4096);
	NEED(filled((uint8_t *)own->addr + 4096, PIECE, 3));
	NEED(regions_mapped(NULL) == 1);
	NEED(ibv_dereg_mr(own) == 0);
	before = runs();
	initiator_run(&self, IBV_WR_RDMA_WRITE, 0, PIECE, 8192);
	NEED(runs() == before + 1);
	nod(fd);
	nod_wait(fd);
	initiator_close(&self);
}

static void an_import_is_used(void)
{
	struct child child = child_start(importer, NULL);
	struct ibv_mr *mr;
	struct end end;
	int capability;

	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	capability = verbsd_export_mr_fd(mr, 0);
	NEED(capability >= 0);
	invite(&end, child.fd, mr);
	fd_say(child.fd, capability);
	close(capability);
	nod_wait(child.fd);
	NEED(filled((uint8_t *)mr->addr + 8192, PIECE, 3));
	nod(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* Nothing forced: cma or the lane until the region is mapped. */
static void unforced(int fd, void *arg)
{
	struct initiator self;

	(void)arg;
	NEED(unsetenv("VERBSD_ENGINE") == 0);
	initiator_open(&self, fd);
	alarm(20);
	for (uint64_t i = 0; regions_mapped("rw-s") == 0; i++) {
		fill(self.memory, PIECE, i);
		initiator_run(&self, IBV_WR_RDMA_WRITE, 0, PIECE, 0);
		initiator_run(&self, IBV_WR_RDMA_READ, PIECE, PIECE, 0);
		NEED(filled(self.memory + PIECE, PIECE, i));
	}
	alarm(0);
	nod(fd);
	initiator_close(&self);
}

static void it_is_what_runs_by_itself(void)
{
	struct child child = child_start(unforced, NULL);
	struct ibv_mr *mr;
	struct end end;

	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	invite(&end, child.fd, mr);
	nod_wait(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* --- rights ------------------------------------------------------------------------------------------------------- */

static void reader(int fd, void *arg)
{
	struct initiator self;

	(void)arg;
	initiator_open(&self, fd);
	initiator_warm_up(&self, IBV_WR_RDMA_READ);
	initiator_run(&self, IBV_WR_RDMA_READ, 0, PIECE, 0);
	NEED(filled(self.memory, PIECE, 11));
	NEED(regions_mapped("r--s") == 1);
	NEED(regions_mapped(NULL) == 1);
	NEED(initiator_try(&self, IBV_WR_RDMA_WRITE, 0, 8, 0) == IBV_WC_REM_ACCESS_ERR);
	nod(fd);
	initiator_close(&self);
}

static void a_key_for_reading_is_mapped_read_only(void)
{
	struct child child = child_start(reader, NULL);
	struct ibv_mr *mr;
	struct end end;

	end_open(&end);
	mr = region_alloc(end.pd, IBV_ACCESS_REMOTE_READ);
	fill(mr->addr, PIECE, 11);
	invite(&end, child.fd, mr);
	nod_wait(child.fd);
	child_end(&child);
	NEED(filled(mr->addr, PIECE, 11));
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* Another user: the same keys, and every WR is the owner's. */
static void stranger(int fd, void *arg)
{
	struct initiator self;

	(void)arg;
	NEED(setresuid(65533, 65533, 65533) == 0);
	initiator_open(&self, fd);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		fill(self.memory, PIECE, i);
		initiator_run(&self, IBV_WR_RDMA_WRITE, 0, PIECE, i * 8);
		memset(self.memory, 0, PIECE);
		initiator_run(&self, IBV_WR_RDMA_READ, 0, PIECE, i * 8);
		NEED(filled(self.memory, PIECE, i));
		initiator_run(&self, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, REGION_SIZE - 8);
	}
	NEED(runs() == 0);
	NEED(regions_mapped(NULL) == 0);
	nod(fd);
	initiator_close(&self);
}

static void strangers_take_the_lane(void)
{
	struct child child;
	struct ibv_mr *mr;
	struct end end;
	uint64_t sum;

	if (geteuid() != 0)
		end_skip("two users need root");
	child = child_start(stranger, NULL);
	NEED(setresuid(65534, 65534, 65534) == 0);
	end_open(&end);
	mr = region_alloc(end.pd, ALL_ACCESS);
	invite(&end, child.fd, mr);
	nod_wait(child.fd);
	child_end(&child);
	memcpy(&sum, (uint8_t *)mr->addr + REGION_SIZE - 8, 8);
	NEED(sum == ROUNDS);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* --- atomics ------------------------------------------------------------------------------------------------------ */

#define PROCESSES 4
#define THREADS	  8
#define ADDS	  1500

struct adder {
	struct initiator self;
	pthread_t thread;
};

static void *add(void *arg)
{
	struct adder *adder = arg;
	uint64_t last = 0, got;

	for (unsigned i = 0; i < ADDS; i++) {
		initiator_run(&adder->self, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 64);
		memcpy(&got, adder->self.memory, 8);
		NEED(i == 0 || got > last);
		last = got;
	}
	return NULL;
}

/* The last of the processes has the owner do it, so that both kinds meet. */
static void adders(int fd, void *arg)
{
	struct adder threads[THREADS];
	bool stage = *(int *)arg == PROCESSES - 1;
	uint64_t before;

	NEED(setenv("VERBSD_ENGINE", stage ? "stage" : "map", 1) == 0);
	initiator_open(&threads[0].self, fd);
	for (unsigned i = 1; i < THREADS; i++) {
		threads[i] = threads[0];
		end_qp(&threads[i].self.end);
		end_meet(&threads[i].self.end, fd);
		threads[i].self.memory += i * 4096;
	}
	if (!stage)
		initiator_warm_up(&threads[0].self, IBV_WR_RDMA_READ);
	/* The first message of each goes to the owner. */
	for (unsigned i = 1; i < THREADS; i++)
		initiator_run(&threads[i].self, IBV_WR_RDMA_READ, 0, 8, 64);
	nod(fd);
	nod_wait(fd);
	before = runs();
	for (unsigned i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i].thread, NULL, add, &threads[i]) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i].thread, NULL) == 0);
	NEED(runs() - before == (stage ? 0 : THREADS * ADDS));
	nod(fd);
	nod_wait(fd);
	for (unsigned i = 1; i < THREADS; i++)
		end_qp_destroy(&threads[i].self.end);
	initiator_close(&threads[0].self);
}

static void add_here(uint64_t *counter)
{
	for (unsigned i = 0; i < ADDS; i++)
		__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static void atomics_are_exact(void)
{
	struct child children[PROCESSES];
	struct end ends[PROCESSES][THREADS];
	struct ibv_device_attr attr;
	struct ibv_mr *mr;
	uint64_t *counter;

	for (int i = 0; i < PROCESSES; i++)
		children[i] = child_start(adders, &i);
	end_open(&ends[0][0]);
	NEED(ibv_query_device(ends[0][0].ctx, &attr) == 0);
	NEED(attr.atomic_cap == IBV_ATOMIC_GLOB);
	mr = region_alloc(ends[0][0].pd, ALL_ACCESS);
	counter = (uint64_t *)mr->addr + 8;
	for (unsigned p = 0; p < PROCESSES; p++) {
		for (unsigned t = 0; t < THREADS; t++) {
			if (p || t) {
				ends[p][t] = ends[0][0];
				end_qp(&ends[p][t]);
			}
			if (t == 0)
				invite(&ends[p][t], children[p].fd, mr);
			else
				end_meet(&ends[p][t], children[p].fd);
		}
		nod_wait(children[p].fd);
	}
	for (unsigned p = 0; p < PROCESSES; p++)
		nod(children[p].fd);
	add_here(counter);
	for (unsigned p = 0; p < PROCESSES; p++)
		nod_wait(children[p].fd);
	NEED(*counter == PROCESSES * THREADS * ADDS + ADDS);
	for (unsigned p = 0; p < PROCESSES; p++) {
		nod(children[p].fd);
		child_end(&children[p]);
	}
	for (unsigned i = 1; i < PROCESSES * THREADS; i++)
		end_qp_destroy(&ends[i / THREADS][i % THREADS]);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&ends[0][0]);
}

static const struct end_case cases[] = {
	{ "two-initiators-write-and-read", two_initiators_write_and_read },
	{ "an-import-is-used", an_import_is_used },
	{ "it-is-what-runs-by-itself", it_is_what_runs_by_itself },
	{ "a-key-for-reading-is-mapped-read-only", a_key_for_reading_is_mapped_read_only },
	{ "strangers-take-the-lane", strangers_take_the_lane },
	{ "atomics-are-exact", atomics_are_exact },
	{ "a-write-waits-behind-a-send", a_write_waits_behind_a_send },
	{ "nothing-behind-a-failed-send", nothing_behind_a_failed_send },
	{ "what-is-closed-is-unmapped", what_is_closed_is_unmapped },
	{ "an-initiator-is-killed", an_initiator_is_killed },
	{ "an-owner-is-killed", an_owner_is_killed },
};

int main(int argc, char **argv)
{
	NEED(setenv("VERBSD_ENGINE", "map", 1) == 0);
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
