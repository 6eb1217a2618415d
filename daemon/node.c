/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: the host's nodes belong to others, and a client that has to open a device itself needs one that is its own for that
 * moment. Guarantees: a node has a name only between two system calls; one that was taken back is not opened again: first
 * it gets another owner, then no permissions, since its old owner could undo the latter.
 */
#include "daemon/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/fd.h"
#include "daemon/log.h"

#define TRIES 16

/* A node of ours by some name; what has that name is left over from a daemon that was killed just then. */
static int make(const char *folder, dev_t rdev, char *path, size_t size)
{
	static _Atomic unsigned number; /* of threads as well */

	for (unsigned i = 0; i < TRIES; i++) {
		snprintf(path, size, "%s/%d.%u", folder, (int)getpid(), atomic_fetch_add(&number, 1));
		if (mknod(path, S_IFCHR | 0600, rdev) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
		unlink(path);
	}
	return -EEXIST;
}

static int make_and_open(const char *folder, dev_t rdev, int flags)
{
	char path[160];
	int r = make(folder, rdev, path, sizeof(path)), fd;

	if (r < 0)
		return r;
	fd = open(path, flags | O_CLOEXEC);
	r = fd < 0 ? -errno : fd_admit(fd);
	unlink(path);
	return r;
}

int node_new(const char *folder, dev_t rdev, uid_t uid, struct node *node)
{
	int fd = make_and_open(folder, rdev, O_PATH), r;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || fchownat(fd, "", uid, (gid_t)-1, AT_EMPTY_PATH) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	*node = (struct node){ .path = fd, .dev = st.st_dev, .rdev = rdev, .ino = st.st_ino };
	return 0;
}

void node_take_back(struct node *node)
{
	char path[32];

	if (node->path < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", node->path);
	if (fchownat(node->path, "", geteuid(), (gid_t)-1, AT_EMPTY_PATH) < 0 || chmod(path, 0) < 0)
		log_error("a device node cannot be taken back: %m");
	close(node->path);
	node->path = -1;
}

int node_open(const char *folder, dev_t rdev)
{
	return make_and_open(folder, rdev, O_RDWR | O_NOCTTY);
}
