/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the dynamic linker would find a library of which the process has another one by that name already: the folders
 * of LD_LIBRARY_PATH, its cache, and its own folders.
 */
#include "client/abi/real.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE	    "/etc/ld.so.cache"
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

/* What the cache says of a library for this machine. */
#if defined(__x86_64__)
#define CACHE_FLAGS 0x0303
#elif defined(__aarch64__)
#define CACHE_FLAGS 0x0a03
#else
#define CACHE_FLAGS 0x0003
#endif

struct cache_head {
	char magic[20];
	uint32_t n, strings;
	uint8_t flags, pad[3];
	uint32_t extension, unused[3];
};

struct cache_entry {
	int32_t flags;
	uint32_t key, value; /* offsets from the head */
	uint32_t osversion;
	uint64_t hwcap;
};

_Static_assert(sizeof(struct cache_head) == 48 && sizeof(struct cache_entry) == 24, "as ldconfig writes them");

typedef bool use_fn(const char *path, void *arg);

static bool folder_use(const char *folder, size_t n, const char *name, use_fn *use, void *arg)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%.*s/%s", (int)n, folder, name);

	return length > 0 && (size_t)length < sizeof(path) && access(path, R_OK) == 0 && use(path, arg);
}

static bool list_use(const char *list, const char *name, use_fn *use, void *arg)
{
	while (list && *list) {
		size_t n = strcspn(list, ":;");

		if (n && folder_use(list, n, name, use, arg))
			return true;
		list += n + (list[n] != 0);
	}
	return false;
}

/* A string of the cache, which ends in it. */
static const char *cache_text(const char *cache, size_t size, uint32_t at)
{
	return at < size && memchr(cache + at, 0, size - at) ? cache + at : NULL;
}

static bool cache_use(const char *cache, size_t size, const char *name, use_fn *use, void *arg)
{
	const struct cache_head *head = (const void *)cache;
	const struct cache_entry *entries = (const void *)(cache + sizeof(*head));

	if (size < sizeof(*head) || memcmp(head->magic, CACHE_MAGIC, sizeof(head->magic)) != 0 ||
		head->n > (size - sizeof(*head)) / sizeof(*entries))
		return false;
	for (uint32_t i = 0; i < head->n; i++) {
		const char *key = cache_text(cache, size, entries[i].key),
			   *value = cache_text(cache, size, entries[i].value);

		if (entries[i].flags == CACHE_FLAGS && key && value && strcmp(key, name) == 0 &&
			use(value, arg))
			return true;
	}
	return false;
}

static bool cache_file_use(const char *name, use_fn *use, void *arg)
{
	int fd = open(CACHE, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *cache = MAP_FAILED;
	bool found = false;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
		cache = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (cache == MAP_FAILED)
		return false;
	found = cache_use(cache, (size_t)st.st_size, name, use, arg);
	munmap(cache, (size_t)st.st_size);
	return found;
}

/* The folders that are searched for what this library needs: the linker's own are among them. */
static bool linker_use(const char *name, use_fn *use, void *arg)
{
	Dl_info self;
	Dl_serinfo size, *info = NULL;
	void *library = dladdr(CACHE, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
	bool found = false;

	if (library && dlinfo(library, RTLD_DI_SERINFOSIZE, &size) == 0)
		info = malloc(size.dls_size);
	if (info && dlinfo(library, RTLD_DI_SERINFOSIZE, info) == 0 && dlinfo(library, RTLD_DI_SERINFO, info) == 0)
		for (unsigned i = 0; i < info->dls_cnt && !found; i++)
			found = folder_use(info->dls_serpath[i].dls_name, strlen(info->dls_serpath[i].dls_name), name, use, arg);
	free(info);
	if (library)
		dlclose(library);
	return found;
}

void real_find(const char *name, use_fn *use, void *arg)
{
	if (!list_use(secure_getenv("LD_LIBRARY_PATH"), name, use, arg) && !cache_file_use(name, use, arg))
		linker_use(name, use, arg);
}
