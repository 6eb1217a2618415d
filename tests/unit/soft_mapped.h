/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tests of the map engine begin with: two QPs of one process that are made to use it, a region that its owner has mapped
 * at one address and the initiator at another, and a daemon that is the test. One per program.
 */
#ifndef TESTS_UNIT_SOFT_MAPPED_H
#define TESTS_UNIT_SOFT_MAPPED_H

#include "tests/lib/harness.h"
#include "tests/unit/fake_grants.h"
#include "tests/unit/soft_loop.h"

#define MAPPED_BASE   HARNESS_BASE /* where the region's MR begins in most tests */
#define MAPPED_NUMBER 5u	   /* the region's */
#define MAPPED_SLOTS  16u	   /* of a lane */

struct vsd_key;

extern struct loop loop;
extern struct fake_grants grants;
extern struct soft_cq *a_send, *b_recv; /* the other two queues complete elsewhere */
extern struct soft_qp *a, *b;
extern uint8_t *region; /* as its owner sees it */
extern struct soft_mr *mr, *local;

/* All but the region's MR and its grant. @memory: what @local is on. Sizes in bytes. */
void mapped_start(uint32_t size, void *memory, uint32_t memory_size);
/* Once the test has freed what it made itself. */
void mapped_stop(void);

/* Both QPs, joined; mapped_start() has done so. */
void mapped_connect(void);
/* The MR on the first @length bytes of the region, which it calls @base. */
void mapped_region(uint64_t base, uint64_t length, unsigned access);
/* What the daemon says of the MR's key; @status is 0 or an errno. */
void mapped_grant(uint64_t size, bool writable, int status);
/* The MR's entry in the page of keys. */
struct vsd_key *mapped_entry(void);
/* WRs that the initiator has run. */
uint64_t mapped_runs(void);

#endif
