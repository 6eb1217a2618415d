/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is linked with libverbsd and no libibverbs. With an argument it opens libibverbs as well, and both must be one: QPs of
 * the one talk to QPs of the other, in whichever order they were used.
 */
#include <verbsd.h>

#include "forms_open.h"

int main(int argc, char **argv)
{
#define CALL(name, version) .name = name,
	static const struct calls linked = { CALLS(CALL) };
#undef CALL
	struct calls opened;
	int r;

	if (strcmp(verbsd_version(), "") == 0)
		return 1;
	if (argc < 2)
		return talk(&linked, &linked);
	r = calls_open(&opened);
	if (r)
		return r;
	return strcmp(argv[1], "linked") == 0 ? talk(&linked, &opened) : talk(&opened, &linked);
}
