/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel makes no folder in sysfs or devtmpfs for us. So the folder above is covered by a small file system that has
 * the same entries, each bound to what it was, and one more. What is mounted is gone with the last process in the
 * namespace.
 */
#include "client/ctl/namespace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/tree.h"

static int text_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		r = -errno;
	close(fd);
	return r;
}

static int map_write(const char *path, unsigned id)
{
	char text[32];

	snprintf(text, sizeof(text), "%u %u 1", id, id);
	return text_write(path, text);
}

/* The daemon sees the ids that we have outside; the program sees the same. */
static int user_enter(void)
{
	unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	r = text_write("/proc/self/setgroups", "deny");
	if (r == 0)
		r = map_write("/proc/self/uid_map", uid);
	if (r == 0)
		r = map_write("/proc/self/gid_map", gid);
	return r;
}

/* One entry of the folder that was covered, @old, in the file system that covers it. */
static int entry_bind(int old, const char *folder, const char *name)
{
	char from[PATH_MAX], to[PATH_MAX], target[PATH_MAX];
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", old, name);
	snprintf(to, sizeof(to), "%s/%s", folder, name);
	if (fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(old, name, target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = 0;
		return symlink(target, to) < 0 ? -errno : 0;
	}
	/* This device finds its file system by the folder that it lies in. */
	if (S_ISCHR(st.st_mode) && strcmp(name, "ptmx") == 0)
		return symlink("pts/ptmx", to) < 0 ? -errno : 0;
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(to, 0755) < 0)
			return -errno;
	} else {
		fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		close(fd);
	}
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 && errno != ENOENT ? -errno : 0;
}

static int entries_bind(int old, const char *folder)
{
	int fd = openat(old, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = entry_bind(old, folder, entry->d_name);
	closedir(dir);
	return r;
}

/* Covers @folder by a file system that shows the same. */
static int cover(const char *folder)
{
	int old = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), r;

	if (old < 0)
		return -errno;
	r = mount("verbsd", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=16m") < 0 ? -errno : 0;
	if (r == 0)
		r = entries_bind(old, folder);
	close(old);
	return r;
}

/* Makes @path, a folder in @parent, one that can be filled, and fills it. */
static int show(const char *parent, const char *path, int (*fill)(const Vsd__DeviceListReply *, int),
	const Vsd__DeviceListReply *devices)
{
	const char *covered = access(path, F_OK) == 0 ? path : parent;
	int folder, r = cover(covered);

	if (r < 0)
		return r;
	if (covered == parent && mkdir(path, 0755) < 0)
		return -errno;
	folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return -errno;
	r = fill(devices, folder);
	close(folder);
	/* What is bound below keeps its own flags. */
	if (r == 0 && mount(NULL, covered, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		r = -errno;
	return r;
}

static int enter(const Vsd__DeviceListReply *devices, const char **what)
{
	int r = 0;

	*what = "a user namespace";
	if (unshare(CLONE_NEWNS) < 0)
		r = user_enter();
	if (r < 0)
		return r;
	*what = "a mount namespace";
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	*what = TREE_SYS;
	r = show("/sys/class", TREE_SYS, tree_sys, devices);
	if (r < 0)
		return r;
	*what = TREE_DEV;
	return show("/dev", TREE_DEV, tree_dev, devices);
}

/* In a child that passes what happened through a pipe. */
static int enter_try(const Vsd__DeviceListReply *devices, const char **what)
{
	struct {
		int error;
		const char *what; /* the same address in parent and child */
	} told = { -EPIPE, "a child" };
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		told.error = enter(devices, &told.what);
		_exit(write(ends[1], &told, sizeof(told)) != sizeof(told));
	}
	close(ends[1]);
	if (pid < 0)
		told.error = -errno;
	else if (read(ends[0], &told, sizeof(told)) != sizeof(told))
		told.error = -EPIPE;
	close(ends[0]);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	*what = told.what;
	return told.error;
}

int namespace_enter(const Vsd__DeviceListReply *devices, const char **what)
{
	int r = enter_try(devices, what);

	return r < 0 ? r : enter(devices, what);
}
