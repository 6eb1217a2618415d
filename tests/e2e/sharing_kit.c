/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/e2e/sharing.h"

#include <sched.h>
#include <stdio.h>

const struct verbsd_mr_attr usual = { .size = SIZE, .access = ALL_ACCESS };

const char *name_of(const char *what)
{
	static char names[4][65];
	static unsigned next;
	char *name = names[next++ % 4];

	snprintf(name, sizeof(names[0]), "e2e/%s.%d", what, (int)getpgrp());
	return name;
}

struct verbsd_mr_info query(struct ibv_mr *mr)
{
	struct verbsd_mr_info info;

	NEED(verbsd_query_mr(mr, &info) == 0);
	return info;
}

void users_wait(struct ibv_mr *mr, unsigned users)
{
	while (query(mr).users != users)
		sched_yield();
}

void gone_wait(struct ibv_pd *pd, const char *name)
{
	struct ibv_mr *mr;

	while ((mr = verbsd_import_mr(pd, name, 0))) {
		NEED(ibv_dereg_mr(mr) == 0);
		sched_yield();
	}
	NEED(errno == ENOENT);
}

struct ibv_mr *named(struct ibv_pd *pd, const char *name, unsigned flags)
{
	struct ibv_mr *mr = verbsd_alloc_mr(pd, &usual);

	NEED(mr);
	NEED(verbsd_export_mr(mr, name, flags) == 0);
	return mr;
}
