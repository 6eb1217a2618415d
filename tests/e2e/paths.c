/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks for a soft device by every function of libc that `verbsctl run` stands in front of. Knows nothing of verbs.
 * Those that may be called in a signal handler must not allocate: malloc is this program's, and says who does.
 */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 0

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int fd, const char *path, int flags);
int __openat64_2(int fd, const char *path, int flags);
ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t size, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int fd, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int fd, const char *path, struct stat64 *st, int flags);

#define AT AT_FDCWD

/* --- a malloc that tells ---------------------------------------------------------------------------------------------- */

static _Alignas(16) uint8_t arena[8 << 20];
static size_t used;
static unsigned allocations;

void *malloc(size_t size)
{
	size_t at = used;

	allocations++;
	size = (size + 31) & ~(size_t)15;
	if (size > sizeof(arena) - used)
		return NULL;
	used += size;
	memcpy(&arena[at], &size, sizeof(size));
	return &arena[at + 16];
}

void free(void *p)
{
}

void *calloc(size_t n, size_t size)
{
	return malloc(n * size);
}

void *realloc(void *p, size_t size)
{
	void *made = malloc(size);
	size_t old = 0;

	if (p)
		memcpy(&old, (uint8_t *)p - 16, sizeof(old));
	if (made && p)
		memcpy(made, p, old - 16 < size ? old - 16 : size);
	return made;
}

/* --- tests ------------------------------------------------------------------------------------------------------------ */

static const char *volatile nowhere; /* for the compiler it might be somewhere */
static char node[PATH_MAX], folder[PATH_MAX], file[PATH_MAX], absent[PATH_MAX];
static int n;

static void check(bool ok, const char *what)
{
	printf("%sok %d - %s\n", ok ? "" : "not ", ++n, what);
}

#define CHECK(condition) check(condition, #condition)
/* The same without an allocation in it. */
#define CHECK_BARE(condition)                                                                                         \
	do {                                                                                                          \
		unsigned before = allocations;                                                                        \
		bool held = condition;                                                                                \
                                                                                                                      \
		check(held && allocations == before, #condition);                                                     \
	} while (0)

/* Whether it is the text of the node type. */
static bool reads(int fd)
{
	char text[8] = "";
	bool ok = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, "1: CA", 5) == 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool reads_file(FILE *stream)
{
	char text[8] = "";
	bool ok = stream && fread(text, 1, 5, stream) == 5 && strcmp(text, "1: CA") == 0;

	if (stream)
		fclose(stream);
	return ok;
}

static struct stat st;
static struct stat64 st64;
static struct statx stx;
static char text[PATH_MAX];

static bool is_null(void)
{
	return S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

static bool is_null64(void)
{
	return S_ISCHR(st64.st_mode) && st64.st_rdev == makedev(1, 3);
}

static void opens(void)
{
	CHECK_BARE(reads(open(file, O_RDONLY)));
	CHECK_BARE(reads(open64(file, O_RDONLY)));
	CHECK_BARE(reads(openat(AT, file, O_RDONLY)));
	CHECK_BARE(reads(openat64(AT, file, O_RDONLY)));
	CHECK_BARE(reads(__open_2(file, O_RDONLY)));
	CHECK_BARE(reads(__open64_2(file, O_RDONLY)));
	CHECK_BARE(reads(__openat_2(AT, file, O_RDONLY)));
	CHECK_BARE(reads(__openat64_2(AT, file, O_RDONLY)));
	CHECK(reads_file(fopen(file, "r")));
	CHECK(reads_file(fopen64(file, "r")));
	CHECK_BARE(close(open(node, O_RDWR)) == 0);
	CHECK_BARE(open(absent, O_RDONLY) == -1 && errno == ENOENT);
	CHECK_BARE(open(nowhere, O_RDONLY) == -1 && errno == EFAULT);
	CHECK_BARE(close(open("/dev/null", O_RDONLY)) == 0);
	CHECK_BARE(open("/dev/infinibandage", O_RDONLY) == -1 && errno == ENOENT);
}

static void stats(void)
{
	CHECK_BARE(stat(node, &st) == 0 && is_null());
	CHECK_BARE(stat64(node, &st64) == 0 && is_null64());
	CHECK_BARE(lstat(node, &st) == 0);
	CHECK_BARE(lstat64(node, &st64) == 0);
	CHECK_BARE(fstatat(AT, node, &st, 0) == 0 && is_null());
	CHECK_BARE(fstatat64(AT, node, &st64, 0) == 0 && is_null64());
	CHECK_BARE(statx(AT, node, 0, STATX_TYPE, &stx) == 0 && S_ISCHR(stx.stx_mode));
	CHECK_BARE(__xstat(1, node, &st) == 0 && is_null());
	CHECK_BARE(__xstat64(1, node, &st64) == 0 && is_null64());
	CHECK_BARE(__lxstat(1, node, &st) == 0);
	CHECK_BARE(__lxstat64(1, node, &st64) == 0);
	CHECK_BARE(__fxstatat(1, AT, node, &st, 0) == 0 && is_null());
	CHECK_BARE(__fxstatat64(1, AT, node, &st64, 0) == 0 && is_null64());
	CHECK_BARE(stat(folder, &st) == 0 && S_ISDIR(st.st_mode));
	CHECK_BARE(stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK_BARE(stat("/sys/class/infiniband/", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK_BARE(stat(absent, &st) == -1 && errno == ENOENT);
	/* A way up is not taken within the view. */
	CHECK_BARE(stat("/sys/class/infiniband/../infiniband_no", &st) == -1);
	CHECK_BARE(stat("/dev/null", &st) == 0 && is_null());
}

static void accesses(void)
{
	CHECK_BARE(access(node, R_OK | W_OK) == 0);
	CHECK_BARE(faccessat(AT, node, R_OK | W_OK, 0) == 0);
	CHECK_BARE(eaccess(node, R_OK | W_OK) == 0);
	CHECK_BARE(euidaccess(node, R_OK | W_OK) == 0);
	CHECK_BARE(access(absent, F_OK) == -1 && errno == ENOENT);
	CHECK_BARE(getxattr(file, "user.none", text, sizeof(text)) == -1 && errno != ENOENT);
	CHECK_BARE(lgetxattr(file, "user.none", text, sizeof(text)) == -1 && errno != ENOENT);
}

static void links(void)
{
	memset(text, 0, sizeof(text));
	CHECK_BARE(readlink(node, text, sizeof(text)) == 9 && strcmp(text, "/dev/null") == 0);
	CHECK_BARE(readlinkat(AT, node, text, sizeof(text)) == 9);
	CHECK_BARE(__readlink_chk(node, text, sizeof(text), sizeof(text)) == 9);
	CHECK_BARE(__readlinkat_chk(AT, node, text, sizeof(text), sizeof(text)) == 9);
	CHECK(realpath(node, text) && strcmp(text, "/dev/null") == 0);
	CHECK(__realpath_chk(node, text, PATH_MAX) && strcmp(text, "/dev/null") == 0);
	CHECK(strcmp(canonicalize_file_name(node), "/dev/null") == 0);
	CHECK(!realpath(absent, text) && errno == ENOENT);
}

static bool lists(DIR *dir, const char *name)
{
	struct dirent *entry;
	bool found = false;

	while (dir && (entry = readdir(dir)))
		found |= strcmp(entry->d_name, name) == 0;
	if (dir)
		closedir(dir);
	return found;
}

static void folders(const char *device)
{
	struct dirent **entries;
	struct dirent64 **entries64;
	glob_t found = { 0 };
	glob64_t found64 = { 0 };
	int fd;

	CHECK(lists(opendir("/dev/infiniband"), device));
	CHECK(lists(opendir("/sys/class/infiniband"), device));
	CHECK(lists(opendir(folder), "ports"));
	CHECK(!opendir(absent) && errno == ENOENT);
	CHECK(scandir(folder, &entries, NULL, alphasort) > 4);
	CHECK(scandir64(folder, &entries64, NULL, alphasort64) > 4);
	CHECK(glob("/sys/class/infiniband/*/node_type", 0, NULL, &found) == 0 && found.gl_pathc >= 1);
	CHECK(found.gl_pathc && strncmp(found.gl_pathv[0], "/sys/class/infiniband/", 22) == 0);
	CHECK(glob64("/sys/class/infiniband/*/node_type", 0, NULL, &found64) == 0 && found64.gl_pathc >= 1);
	/* What is relative to a folder that was found is found. */
	fd = open(folder, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && reads(openat(fd, "node_type", O_RDONLY)));
	CHECK(chdir(folder) == 0 && reads(open("node_type", O_RDONLY)));
}

int main(int argc, char **argv)
{
	const char *device = argv[argc - 1];

	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	snprintf(node, sizeof(node), "/dev/infiniband/%s", device);
	snprintf(folder, sizeof(folder), "/sys/class/infiniband/%s", device);
	snprintf(file, sizeof(file), "/sys/class/infiniband/%s/node_type", device);
	snprintf(absent, sizeof(absent), "/sys/class/infiniband/%s/absent", device);
	opens();
	stats();
	accesses();
	links();
	folders(device);
	printf("1..%d\n", n);
	return 0;
}
