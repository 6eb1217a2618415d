/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For the tests of fork: one of everything that a program can have, what a child may do with it (nothing), and what the
 * kernel says of a page.
 */
#ifndef TESTS_E2E_FORK_H
#define TESTS_E2E_FORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

#define PAGE 4096u

struct things {
	struct end end; /* qp has a qp_ex */
	struct end peer; /* of the same process */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;    /* with the channel */
	struct ibv_cq_ex *cq_ex;
	struct ibv_srq *srq;
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_mr *mr;    /* of `memory` */
	struct ibv_mr *region;
	uint8_t *memory;
	void *buffer;	      /* of ibv_alloc_buf() */
};

#define MEMORY (64u << 10)

void things_open(struct things *t);
/* Writes one half of the memory over the other, and looks. */
void things_use(struct things *t, uint8_t byte);
void things_close(struct things *t);
/* D15: whatever a child does to its copies fails, and has no effect. */
void things_inert(struct things *t);
/* The control verbs of those: a child of vfork is told apart there. */
void things_inert_control(struct things *t);

/* The PD of the case, which it allocates, and regions in it. */
extern struct ibv_pd *case_pd;
struct ibv_mr *reg(void *addr, size_t length);
void dereg(struct ibv_mr *mr);
/* @n pages that were touched; whether the page of @at is there. */
uint8_t *pages(unsigned n);
bool readable(const void *at);

/* Whether the page at @at is not there in children, and how many mappings [base, base + size) is in. */
bool page_out(const void *at);
unsigned mappings(const uint8_t *base, size_t size);
/* The child ends well, within a time that only a deadlock reaches. */
void child_ends(pid_t pid);
void child_limit(void);

/* Of IBVERBS_1.17, which the installed headers do not have. */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf);
void ibv_free_buf(void *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr, size_t length, int access);

#endif
