/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client that means harm, and one that behaves: hostile.py runs the attacks one after the other while the other one
 * asks whether it is still served.
 *
 *	hostile [OPTION]... ATTACK...
 *	hostile --list
 *	hostile --socket PATH polite
 *
 * An attack prints one line with what it did. The status is 0 if the daemon did everything that the protocol promises,
 * else 1 with the findings on stderr; a daemon that hangs or dies is a finding too.
 */
#include "hostile.h"

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINDINGS_SHOWN 20
#define COUNTS 32

struct setting setting = { .scale = 1 };

static const struct attack *const attacks[] = {
	attacks_frames, attacks_requests, attacks_objects, attacks_wires, attacks_floods, attacks_fds,
	attacks_regions, attacks_xrc, attacks_places,
};

static unsigned findings;
static uint64_t random_state = 1;

static struct {
	const char *what;
	unsigned long n;
} counts[COUNTS];

void complain(const char *format, ...)
{
	va_list args;

	if (++findings > FINDINGS_SHOWN)
		return;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

void count(const char *what)
{
	for (unsigned i = 0; i < COUNTS; i++) {
		if (!counts[i].what)
			counts[i].what = what;
		if (strcmp(counts[i].what, what) == 0) {
			counts[i].n++;
			return;
		}
	}
}

/* xorshift64* */
uint64_t chance(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dull;
}

static const struct attack *attack_find(const char *name)
{
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
		for (const struct attack *attack = attacks[i]; attack->name; attack++)
			if (strcmp(attack->name, name) == 0)
				return attack;
	return NULL;
}

static int list(void)
{
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
		for (const struct attack *attack = attacks[i]; attack->name; attack++)
			puts(attack->name);
	return 0;
}

static void run(const struct attack *attack)
{
	memset(counts, 0, sizeof(counts));
	attack->run();
	regions_clean();
	printf("%s:", attack->name);
	for (unsigned i = 0; i < COUNTS && counts[i].what; i++)
		printf(" %lu %s", counts[i].n, counts[i].what);
	putchar('\n');
	fflush(stdout);
}

static int usage(void)
{
	fputs("usage: hostile --socket PATH --admin PATH --daemon PID [--seed N] [--scale N] [--limited] ATTACK...\n",
		stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' }, { "admin", required_argument, NULL, 'a' },
		{ "daemon", required_argument, NULL, 'd' }, { "seed", required_argument, NULL, 'r' },
		{ "scale", required_argument, NULL, 'n' },  { "limited", no_argument, NULL, 'q' },
		{ "list", no_argument, NULL, 'l' },	    { NULL, 0, NULL, 0 },
	};

	signal(SIGPIPE, SIG_IGN);
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 's')
			setting.socket = optarg;
		else if (c == 'a')
			setting.admin = optarg;
		else if (c == 'd')
			setting.daemon = atoi(optarg);
		else if (c == 'r')
			random_state = strtoull(optarg, NULL, 0) * 2 + 1;
		else if (c == 'n')
			setting.scale = (unsigned)atoi(optarg);
		else if (c == 'q')
			setting.limited = true;
		else
			return c == 'l' ? list() : usage();
	}
	if (optind == argc || !setting.socket)
		return usage();
	if (strcmp(argv[optind], "polite") == 0)
		return polite();
	for (int i = optind; i < argc; i++) {
		const struct attack *attack = attack_find(argv[i]);

		if (!attack || !setting.admin || !setting.daemon)
			return usage();
		run(attack);
	}
	if (findings > FINDINGS_SHOWN)
		fprintf(stderr, "and %u findings more\n", findings - FINDINGS_SHOWN);
	return findings != 0;
}
