/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/e2e/map.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

unsigned regions_mapped(const char *mode)
{
	return mappings("memfd:verbsd-region", mode, NULL);
}

uint64_t runs(void)
{
	return counted(VSD_COUNT_INITIATOR_RUN);
}

/* --- what the kernel allows --------------------------------------------------------------------------------------- */

int copy_refused(pid_t pid)
{
	static uint64_t word = 1;
	uint64_t mine = 1;
	struct iovec here = { &mine, sizeof(mine) }, there = { &word, sizeof(word) };

	if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof(word))
		return errno;
	return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof(word) ? 0 : errno;
}

/* A ptrace scope may let a parent, and not its child. */
static void copy_from_parent(int fd, void *arg)
{
	int refused = copy_refused(getppid());

	(void)arg;
	say(fd, &refused, sizeof(refused));
	nod_wait(fd);
}

bool processes_may_copy(void)
{
	struct child child = child_start(copy_from_parent, NULL);
	int refused;

	hear(child.fd, &refused, sizeof(refused));
	if (!refused)
		refused = copy_refused(child.pid);
	nod(child.fd);
	child_end(&child);
	return !refused;
}

/* --- an owner and initiators -------------------------------------------------------------------------------------- */

struct ibv_mr *region_alloc(struct ibv_pd *pd, unsigned access)
{
	struct verbsd_mr_attr attr = { .size = REGION_SIZE, .access = access };
	struct ibv_mr *mr = verbsd_alloc_mr(pd, &attr);

	NEED(mr);
	return mr;
}

struct target target_of(struct ibv_mr *mr)
{
	struct verbsd_mr_info info;

	NEED(verbsd_query_mr(mr, &info) == 0);
	return (struct target){ info.base, info.rkey };
}

void initiator_open(struct initiator *self, int fd)
{
	end_open(&self->end);
	self->memory = calloc(1, REGION_SIZE);
	NEED(self->memory);
	self->mr = ibv_reg_mr(self->end.pd, self->memory, REGION_SIZE, ALL_ACCESS);
	NEED(self->mr);
	end_meet(&self->end, fd);
	hear(fd, &self->to, sizeof(self->to));
}

void initiator_close(struct initiator *self)
{
	NEED(ibv_destroy_qp(self->end.qp) == 0);
	NEED(ibv_destroy_cq(self->end.cq) == 0);
	NEED(ibv_dereg_mr(self->mr) == 0);
	NEED(ibv_dealloc_pd(self->end.pd) == 0);
	NEED(ibv_close_device(self->end.ctx) == 0);
	free(self->memory);
}

enum ibv_wc_status initiator_try(
	struct initiator *self, enum ibv_wr_opcode opcode, size_t from, uint32_t length, uint64_t at)
{
	return end_work(&self->end, &(struct work){ opcode, (uintptr_t)self->memory + from, length, self->mr->lkey,
					    self->to.base + at, self->to.rkey, 1, 0 });
}

void initiator_run(struct initiator *self, enum ibv_wr_opcode opcode, size_t from, uint32_t length, uint64_t at)
{
	NEED(initiator_try(self, opcode, from, length, at) == IBV_WC_SUCCESS);
}

void initiator_warm_up(struct initiator *self, enum ibv_wr_opcode opcode)
{
	for (uint64_t before = runs(); runs() == before;)
		initiator_run(self, opcode, REGION_SIZE - 8, 8, REGION_SIZE - 8);
}

void invite(struct end *end, int fd, struct ibv_mr *mr)
{
	struct target to = target_of(mr);

	end_meet(end, fd);
	say(fd, &to, sizeof(to));
}

void fill(uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		memcpy(memory + i, &word, 8);
	}
}

bool filled(const uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		if (memcmp(memory + i, &word, 8) != 0)
			return false;
	}
	return true;
}
