/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/e2e/counted.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/need.h"

unsigned mappings(const char *name, const char *mode, void **first)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512], perms[8], path[256];
	unsigned long start;
	unsigned n = 0;

	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		path[0] = '\0';
		if (sscanf(line, "%lx-%*x %7s %*s %*s %*s %255s", &start, perms, path) < 2 || !strstr(path, name) ||
			(mode && strcmp(perms, mode) != 0))
			continue;
		if (first)
			*first = (void *)start;
		n++;
	}
	fclose(file);
	return n;
}

uint64_t counted(enum vsd_counter counter)
{
	static const struct vsd_page *page;
	void *mem = NULL;

	if (!page) {
		NEED(mappings("memfd:verbsd-process", "rw-s", &mem) == 1);
		page = mem;
	}
	return vsd_page_counter(page, counter);
}

unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	NEED(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
