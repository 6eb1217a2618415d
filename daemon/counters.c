/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what an adapter counts is in as many files as there are counters, which come and go with drivers. Guarantees: bounded
 * work; what is not a number of the kernel's form is no counter.
 */
#include "daemon/counters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files in a folder that are looked at. */
#define FILES_MAX 1024

/* As the kernel's drivers name them. lifespan is how long a value is kept, and no counter. */
static bool is_name(const char *name)
{
	return strlen(name) < sizeof(((struct counter *)0)->name) && strcmp(name, "lifespan") != 0 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

static bool read_number(int folder, const char *name, uint64_t *value)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char text[32], *end;
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno == 0 && text[0] >= '0' && text[0] <= '9' && (*end == '\n' || *end == '\0');
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct counter *)a)->name, ((const struct counter *)b)->name);
}

static unsigned read_folder(const char *path, struct counter *list, unsigned max)
{
	DIR *dir = opendir(path);
	unsigned n = 0, seen = 0;

	if (!dir)
		return 0;
	for (struct dirent *entry; n < max && seen < FILES_MAX && (entry = readdir(dir)); seen++) {
		if (!is_name(entry->d_name) || !read_number(dirfd(dir), entry->d_name, &list[n].value))
			continue;
		snprintf(list[n].name, sizeof(list[n].name), "%.*s", (int)sizeof(list[n].name) - 1, entry->d_name);
		n++;
	}
	closedir(dir);
	qsort(list, n, sizeof(list[0]), by_name);
	return n;
}

unsigned counters_read(const char *sysfs, const char *device, uint32_t port, struct counter list[COUNTERS_MAX])
{
	static const char *const folders[] = { "counters", "hw_counters" };
	char path[320];
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, sizeof(path), "%s/infiniband/%s/ports/%u/%s", sysfs, device, port, folders[i]);
		n += read_folder(path, list + n, COUNTERS_MAX - n);
	}
	return n;
}
