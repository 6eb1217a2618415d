/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of the map engine: an owner with a shared region, and initiators in other processes.
 */
#ifndef TESTS_E2E_MAP_H
#define TESTS_E2E_MAP_H

#include "client/verbsd.h"
#include "tests/e2e/counted.h"
#include "tests/e2e/ends.h"

#define REGION_SIZE ((size_t)8 << 20)

struct target {
	uint64_t base;
	uint32_t rkey;
};

/* How many regions this process has mapped: "rw-s", "r--s"; NULL: either way. */
unsigned regions_mapped(const char *mode);
/* WRs that this process ran itself. */
uint64_t runs(void);

/*
 * Why the kernel does not let this process read and write that one, which was forked from it or with it: an errno. 0: it does, as
 * it did when this returned.
 */
int copy_refused(pid_t pid);
/* It lets two processes of this user's, either with the other. To be asked before this process opens a device. */
bool processes_may_copy(void);

struct ibv_mr *region_alloc(struct ibv_pd *pd, unsigned access);
struct target target_of(struct ibv_mr *mr);
/* The owner's side of a meeting: connects @end and says where @mr is. */
void invite(struct end *end, int fd, struct ibv_mr *mr);

/* An initiator: its end, memory of its own, and where the region is. */
struct initiator {
	struct end end;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct target to;
};

void initiator_open(struct initiator *self, int fd);
void initiator_close(struct initiator *self);
/* @from: in its memory; @at: in the region. */
enum ibv_wc_status initiator_try(
	struct initiator *self, enum ibv_wr_opcode opcode, size_t from, uint32_t length, uint64_t at);
void initiator_run(struct initiator *self, enum ibv_wr_opcode opcode, size_t from, uint32_t length, uint64_t at);
/* Until the engine runs what takes the lane at first. */
void initiator_warm_up(struct initiator *self, enum ibv_wr_opcode opcode);

/* Bytes that say where they are and whose. */
void fill(uint8_t *memory, size_t n, uint64_t seed);
bool filled(const uint8_t *memory, size_t n, uint64_t seed);

/* map_ends.c */
void a_write_waits_behind_a_send(void);
void nothing_behind_a_failed_send(void);
void what_is_closed_is_unmapped(void);
void an_initiator_is_killed(void);
void an_owner_is_killed(void);

#endif
