/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/soft_pair.h"

#include <stdlib.h>

struct loop loop;
struct loop_options options;
struct soft_cq *send_cq, *recv_cq;
struct soft_qp *a, *b;
uint8_t *from, *to;
struct soft_mr *from_mr, *to_mr;

void pair_start(uint32_t size, uint32_t cqe)
{
	options = (struct loop_options)LOOP_OPTIONS;
	loop_start(&loop);
	send_cq = options.send_cq = loop_cq(&loop, cqe);
	recv_cq = options.recv_cq = loop_cq(&loop, cqe);
	from = calloc(1, size);
	to = calloc(1, size);
	ck_assert(from && to);
	from_mr = loop_mr(&loop, from, size, LOOP_ACCESS);
	to_mr = loop_mr(&loop, to, size, LOOP_ACCESS);
	for (unsigned i = 0; i < size; i++)
		from[i] = (uint8_t)(i + 1);
	a = b = NULL;
}

void pair_stop(void)
{
	if (a)
		loop_qp_free(a);
	if (b)
		loop_qp_free(b);
	loop_mr_free(from_mr);
	loop_mr_free(to_mr);
	loop_cq_free(send_cq);
	loop_cq_free(recv_cq);
	free(from);
	free(to);
	loop_stop(&loop);
}

void pair_make(void)
{
	a = loop_qp(&loop, &options);
	b = loop_qp(&loop, &options);
}

void pair_connect(uint32_t slots)
{
	pair_make();
	loop_connect(&loop, a, b, slots, &options);
}

bool pair_nothing(struct soft_cq *cq)
{
	struct ibv_wc wc;

	return soft_poll_cq(&cq->v.cq, 1, &wc) == 0;
}
