/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of things that a program can be made of, beyond those that every program is made of. */
#include "tests/random/program.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned kinds;
} names[] = {
	{ "base", 0 },
	{ "atomic-write", KIND_ATOMIC_WRITE },
	{ "dm", KIND_DM },
	{ "odp", KIND_ODP },
	{ "multicast", KIND_MCAST },
	{ "xrc", KIND_XRC },
	{ "overrun", KIND_OVERRUN },
	{ "threads", KIND_THREADS },
	{ "tags", KIND_TAGS },
	{ "all", KINDS_ALL },
};

bool kinds_read(char *list, unsigned *kinds)
{
	char *save;

	*kinds = 0;
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		size_t i = 0, n = sizeof(names) / sizeof(names[0]);

		while (i < n && strcmp(names[i].name, word) != 0)
			i++;
		if (i == n)
			return false;
		*kinds |= names[i].kinds;
	}
	return true;
}

unsigned op_needs(enum op_kind kind)
{
	switch ((int)kind) {
	case OP_DM:
	case OP_DM_COPY:
		return KIND_DM;
	case OP_TAGS:
	case OP_TAG:
		return KIND_TAGS;
	case OP_THREADS:
		return KIND_THREADS;
	case OP_XRCD:
		return KIND_XRC;
	case OP_GROUP:
		return KIND_MCAST;
	case OP_PAGES:
	case OP_ADVISE:
		return KIND_ODP;
	default:
		return 0;
	}
}
