/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/soft_mapped.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/qp_private.h"

struct loop loop;
struct fake_grants grants;
struct soft_cq *a_send, *b_recv;
struct soft_qp *a, *b;
uint8_t *region;
struct soft_mr *mr, *local;

static struct soft_cq *other;
static uint32_t region_size;
static uint64_t region_base;
static int file;

void mapped_connect(void)
{
	struct loop_options options = LOOP_OPTIONS;

	options.send_cq = a_send;
	options.recv_cq = other;
	a = loop_qp(&loop, &options);
	options.send_cq = other;
	options.recv_cq = b_recv;
	b = loop_qp(&loop, &options);
	loop_connect(&loop, a, b, MAPPED_SLOTS, &options);
	atomic_load(&a->wire)->pair->engines |= VSD__ENGINE_RIGHT__ENGINE_MAP;
}

void mapped_start(uint32_t size, void *memory, uint32_t memory_size)
{
	setenv("VERBSD_ENGINE", "map", 1);
	loop_start(&loop);
	grants_start(&grants, loop.events);
	region_size = size;
	file = fake_region_file(size);
	region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ck_assert_ptr_ne(region, MAP_FAILED);
	a_send = loop_cq(&loop, 256);
	b_recv = loop_cq(&loop, 256);
	other = loop_cq(&loop, 256);
	mapped_connect();
	local = loop_mr(&loop, memory, memory_size, LOOP_ACCESS);
}

void mapped_stop(void)
{
	loop_qp_free(a);
	loop_qp_free(b);
	loop_mr_free(mr);
	loop_mr_free(local);
	loop_cq_free(a_send);
	loop_cq_free(b_recv);
	loop_cq_free(other);
	grants_hold(&grants, false);
	loop_stop(&loop);
	grants_stop(&grants);
	munmap(region, region_size);
	close(file);
}

void mapped_region(uint64_t base, uint64_t length, unsigned access)
{
	region_base = base;
	mr = loop_mr_iova(&loop, region, length, base, access);
	mapped_entry()->region = MAPPED_NUMBER;
}

void mapped_grant(uint64_t size, bool writable, int status)
{
	grants_set(&grants, &(struct fake_region){ mr->key, MAPPED_NUMBER, file, region_base, size, writable, status });
}

struct vsd_key *mapped_entry(void)
{
	return &rt_page()->keys[(mr->key >> 8) % VSD_PAGE_KEYS];
}

uint64_t mapped_runs(void)
{
	return loop_counter(VSD_COUNT_INITIATOR_RUN);
}
