/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of thread domains and parent domains: what the parts of the program share.
 */
#ifndef TESTS_E2E_PARENTS_H
#define TESTS_E2E_PARENTS_H

#include <stdbool.h>

#include "kit.h"

/* --- parents_alloc.c: an allocator that remembers, and what it is tested with -------------------------------------------- */

enum answer { ANSWER_MEMORY, ANSWER_DEFAULT, ANSWER_NULL, ANSWER_MISALIGNED };

struct allocator {
	struct ibv_pd *pd; /* whose it is */
	enum answer answer;
	int until_null; /* so many are given before the answer is NULL; -1: it never is */
	unsigned allocs, frees, live;
	uint64_t last_type;
	size_t last_size;
	struct ibv_mr *(*note)(struct allocator *allocator, void *memory, size_t size); /* verbs out of the callback */
	struct allocation *list;
};

struct ibv_pd *parent_make(struct ibv_pd *pd, struct ibv_td *td, struct allocator *allocator);
struct ibv_td *td_make(struct ibv_context *ctx);

typedef void test_fn(int argc, char **argv);
test_fn test_exact, test_garbage, test_default, test_null, test_misaligned, test_second_fails, test_refused, test_resize,
	test_callbacks_call_verbs, test_masks;
/* parents_mix.c */
test_fn test_mix, test_mix_processes, test_windows, test_datagrams;
/* parents_order.c */
test_fn test_every_order, test_random_orders, test_td_limit, test_close, test_named;
/* parents_xrc.c */
test_fn test_xrc_orders;

#endif
