/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds a shared region until its standard input ends, for tests of what is seen of one from outside.
 *
 *	holder NAME SIZE [ro|reads|persist|huge]...    attaches to it, or creates it; NAME "-" leaves it unnamed
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/verbsd.h"

static int fail(const char *what)
{
	fprintf(stderr, "holder: %s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	struct verbsd_mr_attr attr = { .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	unsigned flags = 0;
	bool created = true;
	struct ibv_mr *mr;
	char byte;

	if (argc < 3 || !pd)
		return fail("device");
	attr.size = strtoull(argv[2], NULL, 0);
	for (int i = 3; i < argc; i++) {
		if (strcmp(argv[i], "ro") == 0)
			flags |= VERBSD_EXPORT_READ_ONLY;
		else if (strcmp(argv[i], "reads") == 0)
			attr.access = IBV_ACCESS_REMOTE_READ;
		else if (strcmp(argv[i], "persist") == 0)
			flags |= VERBSD_EXPORT_PERSIST;
		else if (strcmp(argv[i], "huge") == 0)
			attr.flags |= VERBSD_MR_HUGE_2M;
	}
	mr = strcmp(argv[1], "-") == 0 ? verbsd_alloc_mr(pd, &attr)
				       : verbsd_attach_mr(pd, argv[1], &attr, flags, &created);
	if (!mr)
		return fail(argv[1]);
	printf("%s %u\n", created ? "created" : "found", mr->rkey);
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
