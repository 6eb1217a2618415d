/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file comes into being under another name and is complete when it gets its own, so that whoever reads the tree while
 * somebody else makes it sees nothing half-done. Names of devices are the daemon's, which has checked them; one that
 * is no name of a file is passed over all the same.
 */
#include "client/ctl/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/attributes.h"

#define PATHS_NAME "verbsd-paths"

static bool is_shown(const Vsd__Device *device)
{
	return device->soft && *device->name && !strchr(device->name, '/') && strcmp(device->name, ".") != 0 &&
	       strcmp(device->name, "..") != 0;
}

int tree_devices(const Vsd__DeviceListReply *devices)
{
	int n = 0;

	for (size_t i = 0; i < devices->n_devices; i++)
		n += is_shown(devices->devices[i]);
	return n;
}

/* --- files ----------------------------------------------------------------------------------------------------------- */

/* The folders that lead to @path. */
static int parents_make(int folder, const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(folder, part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int file_write(int folder, const char *name, const char *text)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0444), r = 0;

	if (fd < 0)
		return -errno;
	if (dprintf(fd, "%s\n", text) < 0)
		r = -errno;
	close(fd);
	return r;
}

/* A file that is there is right; that it is wanted still is what a cleaner of old files looks at. */
static int file_make(int folder, const char *path, const char *text)
{
	char temporary[32];
	int r;

	if (utimensat(folder, path, NULL, 0) == 0)
		return 0;
	r = parents_make(folder, path);
	snprintf(temporary, sizeof(temporary), ".new-%d", (int)getpid());
	if (r == 0)
		r = file_write(folder, temporary, text);
	if (r == 0 && renameat(folder, temporary, folder, path) < 0) {
		r = -errno;
		unlinkat(folder, temporary, 0);
	}
	return r;
}

static int link_make(int folder, const char *path, const char *target)
{
	int r = parents_make(folder, path);

	if (r == 0 && symlinkat(target, folder, path) < 0 && errno != EEXIST)
		r = -errno;
	return r;
}

/* --- devices --------------------------------------------------------------------------------------------------------- */

struct place {
	int folder;
	const char *device;
};

static int attribute_make(const char *file, const char *text, void *arg)
{
	const struct place *place = arg;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", place->device, file);
	return file_make(place->folder, path, text);
}

int tree_sys(const Vsd__DeviceListReply *devices, int folder)
{
	int r = 0;

	for (size_t i = 0; i < devices->n_devices && r == 0; i++) {
		struct place place = { .folder = folder, .device = devices->devices[i]->name };

		if (is_shown(devices->devices[i]))
			r = device_attributes(devices->devices[i], attribute_make, &place);
	}
	return r;
}

/* Programs want a character device that they may read and write; none of them does. */
int tree_dev(const Vsd__DeviceListReply *devices, int folder)
{
	int r = 0;

	for (size_t i = 0; i < devices->n_devices && r == 0; i++)
		if (is_shown(devices->devices[i]))
			r = link_make(folder, devices->devices[i]->name, "/dev/null");
	return r;
}

/* Calls @use with each entry of a folder of the system's, which need not be there. */
static int real_walk(const char *folder, int (*use)(const char *path, const char *name, void *arg), void *arg)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return 0;
	while (r == 0 && (entry = readdir(dir))) {
		char path[PATH_MAX], real[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		/* Of sysfs the folder behind the link: that has not got another view. */
		if (entry->d_name[0] != '.' && realpath(path, real))
			r = use(real, entry->d_name, arg);
	}
	closedir(dir);
	return r;
}

static int real_link(const char *path, const char *name, void *arg)
{
	return link_make(*(int *)arg, name, path);
}

static int below(int folder, const char *path, int *fd)
{
	int r = parents_make(folder, path);

	if (r < 0)
		return r;
	*fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *fd < 0 ? -errno : 0;
}

int tree_make(const Vsd__DeviceListReply *devices, int folder)
{
	int dev = -1, sys = -1;
	int r = below(folder, &TREE_DEV "/"[1], &dev);

	if (r == 0)
		r = below(folder, &TREE_SYS "/"[1], &sys);
	if (r == 0)
		r = tree_dev(devices, dev);
	if (r == 0)
		r = tree_sys(devices, sys);
	if (r == 0)
		r = real_walk(TREE_DEV, real_link, &dev);
	if (r == 0)
		r = real_walk(TREE_SYS, real_link, &sys);
	if (dev >= 0)
		close(dev);
	if (sys >= 0)
		close(sys);
	return r;
}

/* --- the cache ------------------------------------------------------------------------------------------------------- */

static int hash_text(const char *path, const char *text, void *arg)
{
	uint64_t *hash = arg;

	/* FNV-1a; the zeros at the ends of the strings keep them apart. */
	for (size_t i = 0; i <= strlen(path); i++)
		*hash = (*hash ^ (uint8_t)path[i]) * 0x100000001b3;
	for (size_t i = 0; i <= strlen(text); i++)
		*hash = (*hash ^ (uint8_t)text[i]) * 0x100000001b3;
	return 0;
}

static uint64_t tree_hash(const Vsd__DeviceListReply *devices)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < devices->n_devices; i++)
		if (is_shown(devices->devices[i])) {
			hash_text(devices->devices[i]->name, "", &hash);
			device_attributes(devices->devices[i], hash_text, &hash);
		}
	real_walk(TREE_DEV, hash_text, &hash);
	real_walk(TREE_SYS, hash_text, &hash);
	return hash;
}

/* The folder of that name: a fd, if it is ours and nobody else may write to it. */
static int own_folder(const char *path)
{
	struct stat st;
	int fd;

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

static int cache_folder(const char *parent, const char *suffix, char *path, size_t size)
{
	if (!parent || *parent != '/')
		return -ENOENT;
	if (snprintf(path, size, "%s/" PATHS_NAME "%s", parent, suffix) >= (int)size)
		return -ENAMETOOLONG;
	return own_folder(path);
}

int tree_cached(const Vsd__DeviceListReply *devices, char *path, size_t size)
{
	const char *temporary = getenv("TMPDIR");
	char user[16], name[24];
	int cache, folder, r;

	snprintf(user, sizeof(user), "-%u", (unsigned)geteuid());
	cache = cache_folder(getenv("XDG_RUNTIME_DIR"), "", path, size);
	if (cache < 0)
		cache = cache_folder(temporary && *temporary ? temporary : "/tmp", user, path, size);
	if (cache < 0)
		return cache;
	snprintf(name, sizeof(name), "/%016" PRIx64, tree_hash(devices));
	r = strlen(path) + strlen(name) < size ? 0 : -ENAMETOOLONG;
	if (r == 0 && mkdirat(cache, &name[1], 0755) < 0 && errno != EEXIST)
		r = -errno;
	folder = r == 0 ? openat(cache, &name[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : r;
	if (r == 0 && folder < 0)
		r = -errno;
	if (r == 0)
		r = tree_make(devices, folder);
	if (r == 0)
		memcpy(path + strlen(path), name, strlen(name) + 1);
	if (folder >= 0)
		close(folder);
	close(cache);
	return r;
}

static int entry_remove(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	remove(path);
	return 0;
}

void tree_remove(const char *path)
{
	nftw(path, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}
