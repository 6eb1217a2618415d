/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delta debugging: chunks of operations are left out, from large to small, as long as the program still fails with the
 * same kind of failure. A failure that depends on timing gets several tries.
 */
#include "tests/random/minimise.h"

#include "tests/random/by_itself.h"

#include <stdlib.h>
#include <string.h>

static void dump_to(struct model *m, const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file) {
		perror(path);
		return;
	}
	fprintf(file, "%s: %s\n", m->kind, m->what);
	model_dump(m, file);
	fclose(file);
}

struct outcome_seen run_once(const struct setting *setting, const struct program *program)
{
	struct model *m = model_new(setting->workers);
	struct outcome_seen seen = { 0 };

	m->limit_ms = setting->limit_ms;
	m->jitter = setting->jitter;
	m->until_ms = setting->until_ms;
	m->verbose = setting->verbose;
	m->watch_worker = setting->watch_worker;
	m->watch_off = setting->watch_off;
	if (workers_start(m, setting->engine))
		program_run(m, program);
	if (m->failed && m->verbose)
		model_dump(m, stderr);
	if (m->failed && setting->dump)
		dump_to(m, setting->dump);
	if (!m->failed && setting->engine)
		by_itself_count(setting->engine, m);
	workers_stop(m);
	seen.good = !m->failed;
	snprintf(seen.kind, sizeof(seen.kind), "%s", m->kind);
	snprintf(seen.what, sizeof(seen.what), "%s", m->what);
	seen.at = m->failed_op;
	seen.executed = m->executed;
	seen.skipped = m->skipped;
	model_free(m);
	return seen;
}

/* A run of which nothing is to be known any more ends at once. */
static bool time_is_over(const struct setting *setting)
{
	return setting->until_ms && clock_ms() >= setting->until_ms;
}

static bool still_fails(const struct setting *setting, struct program *program, const char *kind)
{
	for (unsigned i = 0; i < setting->tries && !time_is_over(setting); i++) {
		struct outcome_seen seen = run_once(setting, program);

		if (!seen.good && strcmp(seen.kind, kind) == 0) {
			/* What stands behind had no part in it. */
			if (seen.at + 1 < program->n)
				program->n = seen.at + 1;
			return true;
		}
	}
	return false;
}

static void without(const struct program *from, size_t at, size_t n, struct program *to)
{
	to->n = from->n - n;
	memcpy(to->ops, from->ops, at * sizeof(*to->ops));
	memcpy(to->ops + at, from->ops + at + n, (from->n - at - n) * sizeof(*to->ops));
}

void minimise(const struct setting *setting, struct program *program, const char *kind)
{
	struct program less = { .ops = calloc(program->n + 1, sizeof(*less.ops)), .room = program->n + 1 };
	bool shrunk;

	if (!less.ops)
		abort();
	do {
		shrunk = false;
		for (size_t chunk = (program->n + 1) / 2; chunk; chunk = chunk == 1 ? 0 : (chunk + 1) / 2) {
			for (size_t at = 0; at < program->n && !time_is_over(setting);) {
				size_t n = chunk < program->n - at ? chunk : program->n - at;

				without(program, at, n, &less);
				if (!still_fails(setting, &less, kind)) {
					at += n;
					continue;
				}
				memcpy(program->ops, less.ops, less.n * sizeof(*less.ops));
				program->n = less.n;
				shrunk = true;
				fprintf(stderr, "\r%zu operations  ", program->n);
			}
		}
	} while (shrunk && program->n > 4 && !time_is_over(setting));
	fprintf(stderr, "\n");
	free(less.ops);
}
