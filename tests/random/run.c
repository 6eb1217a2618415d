/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a program: operations go out, and at each quiet point everything is awaited, then compared with the model.
 */
#include "tests/random/coverage.h"
#include "tests/random/model.h"

#include <string.h>
#include <time.h>

enum { COMPARE_ALL_EVERY = 16 };
/* Time alone says nothing where hundreds of others want the processor: each process has to have had its turn so often. */
enum { STUCK_LOOKS = 500 };

uint64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A pause between two looks, once there was nothing new to see for a while. */
static void breathe(unsigned looks)
{
	if (looks > 3)
		nanosleep(&(struct timespec){ .tv_nsec = looks > 50 ? 1000000 : 50000 }, NULL); /* see above */
}

/* Minimising has no time for this one. */
static bool time_is_left(struct model *m)
{
	return !m->until_ms || clock_ms() < m->until_ms || wrong(m, "time", "it takes too long");
}

static bool look(struct model *m)
{
	m->now_ms = clock_ms();
	m->looks++;
	for (unsigned i = 0; i < m->workers; i++)
		cmd_add(m, i, CMD_POLL, 0)->a[0] = 1;
	return workers_sync(m);
}

static bool await(struct model *m)
{
	uint64_t end = clock_ms() + m->limit_ms;
	char why[200] = "";

	for (unsigned looks = 0;; looks++) {
		if (!time_is_left(m) || !look(m))
			return false;
		if (model_settled(m, why, sizeof(why)))
			return true;
		if (clock_ms() > end && looks > STUCK_LOOKS)
			return wrong(m, "stuck", "%s", why);
		breathe(looks);
	}
}

/* What was posted without a completion may still be on its way. */
static bool compare(struct model *m)
{
	uint64_t end = clock_ms() + m->limit_ms;
	bool everything = m->verbose || m->batch % COMPARE_ALL_EVERY == 0;

	for (unsigned looks = 0;; looks++) {
		if (memory_look(m) && atomics_explain(m) && memory_compare(m, everything))
			return true;
		if (!m->in_flight || (clock_ms() > end && looks > STUCK_LOOKS))
			return false;
		/* Without polls: the programs' own threads have to do it, and no completion comes in between. */
		m->failed = false;
		breathe(looks + 4);
	}
}

static bool settle(struct model *m)
{
	if (!await(m) || !model_check(m))
		return false;
	if (m->verbose)
		model_dump_wrs(m, stderr);
	memory_apply(m);
	model_watch(m, stderr);
	if (!compare(m))
		return false;
	model_next_batch(m);
	return true;
}

bool program_run(struct model *m, const struct program *program)
{
	for (size_t i = 0; i < program->n && !m->failed && time_is_left(m); i++) {
		const struct op *op = &program->ops[i];

		m->failed_op = (unsigned)i;
		if (m->verbose)
			op_print(stderr, op);
		if (op->kind == OP_SETTLE ? settle(m) : issue(m, op)) {
			coverage_operation((enum op_kind)op->kind);
			m->executed += op->kind != OP_SETTLE;
		} else {
			m->skipped++;
		}
	}
	return !m->failed && settle(m);
}
