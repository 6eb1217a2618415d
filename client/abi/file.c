/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a region on a memfd can be had by another process of the context, if that has the file. It takes it from /proc of the
 * process that registered the region, with the rights of its user: who may do that could as well read that memory. Guarantees:
 * what it gets is the file that is mapped there, of that very process; nothing but memfds is ever opened.
 */
#include "client/abi/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/abi/abi.h"
#include "client/soft/pidfd.h"

/* --- keeping -------------------------------------------------------------------------------------------------------- */

struct abi_file {
	struct conn_fd fd;
	unsigned users;
	struct abi_file *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct abi_file *files;

static struct abi_file *file_known(int fd)
{
	struct abi_file *file = files;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	while (file && !(file->fd.dev == st.st_dev && file->fd.ino == st.st_ino && conn_fd_ours(&file->fd)))
		file = file->next;
	return file;
}

static int file_new(int fd, struct abi_file **file)
{
	struct abi_file *made = calloc(1, sizeof(*made));
	int kept = made ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	int r = !made ? -ENOMEM : kept < 0 ? -errno : conn_fd_note(&made->fd, control_fd_high(kept));

	if (r < 0) {
		if (kept >= 0)
			conn_fd_close(&made->fd);
		free(made);
		return r;
	}
	made->next = files;
	files = made;
	*file = made;
	return 0;
}

int abi_file_keep(int fd, struct abi_file **file)
{
	int r = 0;

	pthread_mutex_lock(&lock);

	struct abi_file *known = file_known(fd);

	if (!known)
		r = file_new(fd, &known);
	if (r == 0) {
		known->users++;
		*file = known;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void abi_file_put(struct abi_file *file)
{
	if (!file)
		return;
	pthread_mutex_lock(&lock);
	if (--file->users == 0) {
		struct abi_file **at = &files;

		while (*at && *at != file)
			at = &(*at)->next;
		if (*at)
			*at = file->next;
		conn_fd_close(&file->fd);
		free(file);
	}
	pthread_mutex_unlock(&lock);
}

void abi_file_prepare(void)
{
	pthread_mutex_lock(&lock);
}

void abi_file_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child does not hold its parent's memory. */
void abi_file_child(void)
{
	for (struct abi_file *file = files; file; file = file->next)
		conn_fd_close(&file->fd);
	pthread_mutex_unlock(&lock);
}

void abi_file_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	files = NULL;
}

/* --- finding -------------------------------------------------------------------------------------------------------- */

/* What is mapped where. */
struct place {
	uint64_t start, end, offset;
	dev_t dev;
	ino_t ino;
};

/* A line of maps: false when it is no shared mapping of a file. */
static bool place_parse(const char *line, struct place *place)
{
	unsigned long long start, end, offset, ino;
	unsigned dev_major, dev_minor;
	char rights[5];

	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &end, rights, &offset, &dev_major, &dev_minor, &ino) != 7)
		return false;
	*place = (struct place){ start, end, offset, makedev(dev_major, dev_minor), (ino_t)ino };
	return rights[3] == 's' && ino != 0;
}

/* @next goes on where @place ends, in the same file: what is kept from children is a mapping of its own. */
static bool place_follows(const struct place *place, const struct place *next)
{
	return next->start == place->end && next->dev == place->dev && next->ino == place->ino &&
	       next->offset == place->offset + (place->end - place->start);
}

/* The stretch of one file that [@addr, @end) lies in. */
static bool place_find(FILE *maps, uint64_t addr, uint64_t end, struct place *place)
{
	struct place at;
	bool found = false;
	char *line = NULL;
	size_t size = 0;

	while (!(found && place->end >= end) && getline(&line, &size, maps) >= 0) {
		if (!found) {
			found = place_parse(line, place) && place->start <= addr && addr < place->end;
		} else if (place_parse(line, &at) && place_follows(place, &at)) {
			place->end = at.end;
		} else {
			break;
		}
	}
	free(line);
	return found && place->end >= end;
}

/* Whether there was no room for it, whatever it is. */
static bool is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* The fd of that name, if it is the file that is mapped at @place; -EBADF: it is another. */
static int fd_open(int folder, const char *name, const struct place *place, bool write)
{
	static const char memfd[] = "/memfd:";
	char target[sizeof(memfd)] = "";
	struct stat st;

	/* Other files may be anything: opening one may do something, or take for ever. */
	if (readlinkat(folder, name, target, sizeof(target) - 1) < 0 || strcmp(target, memfd) != 0)
		return -EBADF;

	int fd = openat(folder, name, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && st.st_dev == place->dev && st.st_ino == place->ino)
		return fd;
	close(fd);
	return -EBADF;
}

static int fd_search(DIR *folder, const struct place *place, bool write)
{
	const struct dirent *entry;
	int fd = -EBADF;

	while (fd < 0 && !is_shortage(-fd) && (entry = readdir(folder)))
		fd = fd_open(dirfd(folder), entry->d_name, place, write);
	return fd;
}

/* Its number is its own until it is waited for, and nobody waits for a process that lives. */
static bool lives(int pidfd)
{
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 0;
}

static int refused(const char *why)
{
	control_debug("import of an mr: %s", why);
	return -EOPNOTSUPP;
}

static int place_of(pid_t pid, uint64_t addr, uint64_t end, struct place *place)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);

	FILE *maps = fopen(path, "re");

	if (!maps)
		return is_shortage(errno) ? -errno : refused("this process may not look where its memory is");

	bool found = place_find(maps, addr, end, place);

	fclose(maps);
	return found ? 0 : refused("its memory is no shared mapping of a file");
}

static int fd_of(pid_t pid, const struct place *place, bool write)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);

	DIR *folder = opendir(path);
	int fd = folder ? fd_search(folder, place, write) : -errno;

	if (folder)
		closedir(folder);
	return fd >= 0 || is_shortage(-fd) ? fd : refused("its process has no memfd open that is there, or this one may not open it");
}

int abi_file_find(int pidfd, uint64_t addr, uint64_t length, bool write, int *fd, uint64_t *offset)
{
	pid_t pid = pidfd_pid(pidfd);
	struct place place = { 0 };

	if (pid < 0)
		return pid;
	if (pid == 0)
		return refused("its process is not to be seen from here");
	if (!length || addr + length < addr)
		return refused("it has no memory");

	int r = place_of(pid, addr, addr + length, &place);

	if (r == 0)
		r = fd_of(pid, &place, write);
	if (r < 0)
		return r;
	if (!lives(pidfd)) {
		close(r);
		return refused("its process has ended");
	}
	*fd = r;
	*offset = place.offset + (addr - place.start);
	return 0;
}
