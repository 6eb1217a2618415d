/* SPDX-License-Identifier: BSD-2-Clause */
/* How a program is run, and made smaller while it fails. */
#ifndef RANDOM_MINIMISE_H
#define RANDOM_MINIMISE_H

#include "tests/random/model.h"

struct setting {
	unsigned workers, limit_ms, tries, jitter;
	uint64_t until_ms; /* a run that is not done by then (of clock_ms()) has found nothing; 0: it takes its time */
	const char *engine;
	const char *dump; /* a file that gets what the model knows at a failure, or NULL */
	bool verbose;
	unsigned watch_worker;
	uint32_t watch_off;
};

/* What came of a run. */
struct outcome_seen {
	bool good;
	char kind[32], what[512];
	size_t at, executed, skipped;
};

struct outcome_seen run_once(const struct setting *setting, const struct program *program);
/* Leaves out all operations without which it fails in the same way all the same. */
void minimise(const struct setting *setting, struct program *program, const char *kind);

#endif
