/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The randomised tester: random verbs programs of two to four processes, against a model of what verbs promises.
 *
 *	random [--seed N] [--seeds COUNT] [--ops N] [--processes N] [--engine LIST] [--minimise] [--keep DIR]
 *	       [--limit MS] [--tries N] [--total N] [--require] [--kinds LIST] [--verbose] [--print] [--watch WORKER:OFFSET]
 *	       [--jitter N] [--within SECONDS]
 *	random --replay FILE [--engine LIST] [--tries N] [--minimise] ...
 *
 * Each seed is run with one engine of the list (names of VERBSD_ENGINE), one after the other, and, with --processes 0
 * (the default), with two to four processes. A failure is told with its seed and engine; the program is kept as
 * DIR/random-SEED.ops, with --minimise the smallest one that still fails. The first line of a kept program says how many
 * processes it needs. With --total no further seed is begun once so many operations were executed. At the end it says
 * what was reached and what each engine ran; with --require it is an error if something never was, if stage ran anything, or,
 * of the base, if cma ran nothing where the kernel allows it. --kinds says what programs are made of beyond what all are made
 * of (kinds.c). With --jitter (a seed of its own) the workers pause here and there: what depends on the moment is found sooner.
 * With --within nothing is made smaller any more when the tester has run for so long. Status 1 after a failure.
 */
#include "tests/random/by_itself.h"
#include "tests/random/coverage.h"
#include "tests/random/minimise.h"

#include <getopt.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
	uint64_t seed, seeds;
	size_t ops;
	unsigned processes;
	char *engines[8];
	unsigned n_engines;
	size_t total;
	unsigned kinds;
	bool minimise, print, require;
	unsigned within_s;
	uint64_t begun_ms;
	const char *keep, *replay;
	int image; /* of a worker */
	struct setting setting;
};

enum { MINIMISE_MS = 90000 }; /* then it is small enough */

static const struct option long_options[] = {
	{ "seed", required_argument, NULL, 's' },
	{ "seeds", required_argument, NULL, 'c' },
	{ "ops", required_argument, NULL, 'o' },
	{ "processes", required_argument, NULL, 'p' },
	{ "engine", required_argument, NULL, 'e' },
	{ "minimise", no_argument, NULL, 'm' },
	{ "keep", required_argument, NULL, 'k' },
	{ "limit", required_argument, NULL, 'l' },
	{ "tries", required_argument, NULL, 't' },
	{ "replay", required_argument, NULL, 'r' },
	{ "total", required_argument, NULL, 'T' },
	{ "kinds", required_argument, NULL, 'K' },
	{ "require", no_argument, NULL, 'q' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "watch", required_argument, NULL, 'a' },
	{ "print", no_argument, NULL, 'n' },
	{ "within", required_argument, NULL, 'i' },
	{ "jitter", required_argument, NULL, 'j' },
	{ "image", required_argument, NULL, 'I' },
	{ "worker", required_argument, NULL, 'w' },
	{ NULL, 0, NULL, 0 },
};

static void engines_split(struct options *options, char *list)
{
	char *save;

	options->n_engines = 0;
	for (char *name = strtok_r(list, ",", &save); name && options->n_engines < 8; name = strtok_r(NULL, ",", &save))
		options->engines[options->n_engines++] = name;
}

static bool option_take(struct options *options, int c)
{
	switch (c) {
	case 's':
		options->seed = strtoull(optarg, NULL, 10);
		return true;
	case 'c':
		options->seeds = strtoull(optarg, NULL, 10);
		return true;
	case 'o':
		options->ops = strtoull(optarg, NULL, 10);
		return true;
	case 'p':
		options->processes = (unsigned)strtoul(optarg, NULL, 10);
		return options->processes <= WORKERS;
	case 'e':
		engines_split(options, optarg);
		return options->n_engines > 0;
	case 'm':
		options->minimise = true;
		return true;
	case 'k':
		options->keep = optarg;
		return true;
	case 'l':
		options->setting.limit_ms = (unsigned)strtoul(optarg, NULL, 10);
		return true;
	case 't':
		options->setting.tries = (unsigned)strtoul(optarg, NULL, 10);
		return true;
	case 'r':
		options->replay = optarg;
		return true;
	case 'T':
		options->total = strtoull(optarg, NULL, 10);
		return true;
	case 'K':
		return kinds_read(optarg, &options->kinds);
	case 'q':
		options->require = true;
		return true;
	case 'v':
		options->setting.verbose = true;
		return true;
	case 'a':
		return sscanf(optarg, "%u:%x", &options->setting.watch_worker, &options->setting.watch_off) == 2;
	case 'n':
		options->print = true;
		return true;
	case 'i':
		options->within_s = (unsigned)strtoul(optarg, NULL, 10);
		return true;
	case 'j':
		options->setting.jitter = (unsigned)strtoul(optarg, NULL, 10);
		return true;
	case 'I':
		options->image = (int)strtol(optarg, NULL, 10);
		return true;
	case 'w':
		exit(worker_main((int)strtol(optarg, NULL, 10), options->image, options->setting.jitter));
	default:
		return false;
	}
}

static void keep(const struct options *options, const struct program *program, uint64_t seed,
	const struct outcome_seen *seen)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/random-%llu.ops", options->keep, (unsigned long long)seed);
	file = fopen(path, "w");
	if (!file) {
		perror(path);
		return;
	}
	fprintf(file, "#%u seed %llu engine %s: %s: %s\n", options->setting.workers, (unsigned long long)seed,
		options->setting.engine, seen->kind, seen->what);
	program_print(file, program);
	fclose(file);
	printf("kept as %s, %zu operations\n", path, program->n);
}

static void make_smaller(const struct options *options, struct program *program, const struct outcome_seen *seen)
{
	struct setting quick = options->setting;
	uint64_t end = options->begun_ms + options->within_s * 1000ull;

	quick.verbose = false;
	quick.dump = NULL;
	if (quick.limit_ms > 3000)
		quick.limit_ms = 3000;
	quick.until_ms = clock_ms() + MINIMISE_MS;
	if (options->within_s && quick.until_ms > end)
		quick.until_ms = end;
	minimise(&quick, program, seen->kind);
}

/* The smallest program that fails, and how it does. */
static void failed(const struct options *options, struct program *program, uint64_t seed, struct outcome_seen seen)
{
	printf("seed %llu, engine %s, %u processes: %s: %s\n", (unsigned long long)seed, options->setting.engine,
		options->setting.workers, seen.kind, seen.what);
	program->n = seen.at + 1 < program->n ? seen.at + 1 : program->n;
	/* First as it is: whoever runs this may have less patience than it takes. */
	keep(options, program, seed, &seen);
	fflush(stdout);
	if (options->minimise) {
		make_smaller(options, program, &seen);
		keep(options, program, seed, &seen);
	}
	if (program->n <= 60)
		program_print(stdout, program);
	fflush(stdout);
}

static int replay(struct options *options)
{
	struct program program = { 0 };
	FILE *file = fopen(options->replay, "r");
	struct outcome_seen seen = { .good = true };

	if (!file || fscanf(file, "#%u", &options->setting.workers) != 1 || options->setting.workers > WORKERS ||
		fscanf(file, "%*[^\n]") < 0 || !program_read(file, &program)) {
		fprintf(stderr, "%s cannot be read\n", options->replay);
		return 2;
	}
	fclose(file);
	for (unsigned e = 0; e < options->n_engines; e++) {
		options->setting.engine = options->engines[e];
		for (unsigned i = 0; i < options->setting.tries && seen.good; i++)
			seen = run_once(&options->setting, &program);
		if (seen.good)
			continue;
		failed(options, &program, 0, seen);
		break;
	}
	program_free(&program);
	return seen.good ? 0 : 1;
}

static int seeds(struct options *options)
{
	size_t executed = 0, skipped = 0;

	for (uint64_t i = 0; i < options->seeds && (!options->total || executed < options->total); i++) {
		struct program program = { 0 };
		struct outcome_seen seen = { .good = true };
		uint64_t seed = options->seed + i;
		char dump[512];

		snprintf(dump, sizeof(dump), "%s/random-%llu.dump", options->keep, (unsigned long long)seed);
		options->setting.dump = dump;

		options->setting.engine = options->engines[seed % options->n_engines];
		options->setting.workers = options->processes ? options->processes : 2 + (unsigned)(seed / options->n_engines % 3);
		program_generate(&program, seed, options->ops, options->setting.workers,
			options->kinds);
		if (options->print)
			program_print(stdout, &program);
		else
			seen = run_once(&options->setting, &program);
		executed += seen.executed;
		skipped += seen.skipped;
		if (!seen.good)
			failed(options, &program, seed, seen);
		program_free(&program);
		if (!seen.good)
			return 1;
	}
	if (options->print)
		return 0;
	printf("%zu operations, %zu left out\n", executed, skipped);
	bool reached = coverage_print(options->kinds), ran = by_itself_print(!options->kinds);

	if (!reached)
		printf("something was never reached\n");
	if (!ran)
		printf("an engine ran nothing, or something that is not its\n");
	return options->require && !(reached && ran);
}

/* Nothing of the coordinator, which has one thread and much memory, is for ThreadSanitizer. */
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char *file, int line);

static int coordinate(struct options *options)
{
	int status;

	/* The model's memory is there for the next program. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	if (AnnotateIgnoreReadsBegin) {
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
		AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	}
	status = options->replay ? replay(options) : seeds(options);
	if (AnnotateIgnoreReadsBegin) {
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
		AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	}
	return status;
}

int main(int argc, char **argv)
{
	static char all[] = "auto,stage,cma,direct,map";
	struct options options = {
		.seed = 1,
		.seeds = 1,
		.ops = 1000,
		.keep = ".",
		.begun_ms = clock_ms(),
		.setting = { .limit_ms = 30000, .tries = 3 },
	};
	int c;

	engines_split(&options, all);
	while ((c = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		if (!option_take(&options, c))
			return 2;
	}
	return coordinate(&options);
}
