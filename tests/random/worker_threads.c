/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several threads in one process. Posts that follow each other are done at once: those of one QP or SRQ, and all of one
 * thread domain, by one thread, in their order; polls among them by a thread of its own; and the first thread makes and
 * destroys objects meanwhile. Everything else waits for them, and they for it.
 */
#include "tests/random/worker.h"

#include <stdlib.h>

struct part {
	struct worker *w;
	unsigned from, to, number; /* number: w->threads polls */
	pthread_t thread;
};

static bool is_shared(const struct worker *w, unsigned i)
{
	const struct cmd *cmd = &w->cmds[i];

	switch (cmd->kind) {
	case CMD_SEND:
		/* The key of a window of type 1 is read from it afterwards. */
		return cmd->send.opcode != IBV_WR_BIND_MW || cmd->send.is_mw != IBV_MW_TYPE_1;
	case CMD_RECV:
		return true;
	case CMD_POLL:
		return !cmd->a[0];
	default:
		return false;
	}
}

static unsigned thread_of(const struct worker *w, unsigned i)
{
	const struct cmd *cmd = &w->cmds[i];
	bool srq = cmd->kind == CMD_RECV && cmd->a[RECV_IS_SRQ];
	uint32_t td = srq ? w->srq_td[cmd->id] : w->qp_td[cmd->id];

	if (cmd->kind == CMD_POLL)
		return w->threads;
	return (td ? td : srq ? cmd->id * 5 + 1 : cmd->id) % w->threads;
}

static void *part_run(void *arg)
{
	struct part *part = arg;
	struct worker *w = part->w;

	for (unsigned i = part->from; i < part->to;) {
		unsigned n = w->cmds[i].kind == CMD_POLL ? 1 : worker_chain(w, i, part->to);

		if (thread_of(w, i) != part->number)
			;
		else if (w->cmds[i].kind == CMD_POLL)
			worker_poll_shared(w, i);
		else
			(w->cmds[i].kind == CMD_SEND ? worker_send : worker_recv)(w, i, part->to);
		i += n;
	}
	return NULL;
}

/* What concerns nobody. */
static void stir(struct worker *w)
{
	struct ibv_pd *pd = ibv_alloc_pd(w->ctx);
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, w->arena, 4096, IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 8, NULL, NULL, 0);

	if (!mr || !cq || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd))
		abort();
}

unsigned worker_parallel(struct worker *w, unsigned i, unsigned n)
{
	struct part parts[THREADS_MAX + 1];
	unsigned end = i;

	while (end < n && is_shared(w, end))
		end++;
	if (end - i < 2)
		return 0;
	for (unsigned k = 0; k <= w->threads; k++) {
		parts[k] = (struct part){ .w = w, .from = i, .to = end, .number = k };
		if (pthread_create(&parts[k].thread, NULL, part_run, &parts[k]))
			abort();
	}
	if (end - i > 8)
		stir(w);
	for (unsigned k = 0; k <= w->threads; k++)
		pthread_join(parts[k].thread, NULL);
	return end - i;
}
