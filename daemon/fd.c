/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a memfd is born with mode 0777, so whoever holds it read-only could reopen it for writing; and a daemon that
 * runs out of fds cannot even refuse. Guarantees: what is made here is close-on-exec, 0600, sealed, and below the
 * reserve.
 */
#include "daemon/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x8U
#endif

static unsigned limit;

void fd_limit_init(void)
{
	struct rlimit rlimit;

	if (getrlimit(RLIMIT_NOFILE, &rlimit) < 0) {
		limit = 1024;
		return;
	}
	if (rlimit.rlim_cur < rlimit.rlim_max) {
		rlim_t soft = rlimit.rlim_cur;

		rlimit.rlim_cur = rlimit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rlimit) < 0)
			rlimit.rlim_cur = soft;
	}
	limit = rlimit.rlim_cur > (1u << 30) ? 1u << 30 : (unsigned)rlimit.rlim_cur;
}

unsigned fd_limit(void)
{
	if (limit == 0)
		fd_limit_init();
	return limit;
}

unsigned fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		return 0;
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n ? n - 1 : 0; /* without the one that looked */
}

bool fd_fits(int fd)
{
	return (unsigned)fd + FD_RESERVE < fd_limit() || fd_limit() <= 2 * FD_RESERVE;
}

int fd_admit(int fd)
{
	if (fd < 0)
		return errno ? -errno : -EIO;
	if (!fd_fits(fd)) {
		close(fd);
		return -ENFILE;
	}
	return fd;
}

static int memfd_make(const char *name, unsigned huge)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | huge);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);
	return fd_admit(fd);
}

static int memfd_sized(const char *name, uint64_t size, unsigned huge, int seals)
{
	CLEANUP_CLOSE int fd = memfd_make(name, huge);

	if (fd < 0)
		return fd;
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)size) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | seals) < 0)
		return -errno;
	return fd_steal(&fd);
}

int memfd_new(const char *name, uint64_t size)
{
	return memfd_sized(name, size, 0, F_SEAL_SEAL);
}

int memfd_open(const char *name, uint64_t size, unsigned huge)
{
	return memfd_sized(name, size, huge, 0);
}

int memfd_const(const char *name, const void *bytes, size_t n)
{
	CLEANUP_CLOSE int fd = memfd_make(name, 0);

	if (fd < 0)
		return fd;
	if (fchmod(fd, 0600) < 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) <
			0)
		return errno ? -errno : -EIO;
	return fd_reopen(fd, O_RDONLY);
}

int fd_reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fd_admit(open(path, flags | O_CLOEXEC));
}

int pipe_new(int *read_end, int *write_end)
{
	int fds[2];
	int r, w;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	r = fd_admit(fds[0]);
	w = fd_admit(fds[1]);
	if (r < 0 || w < 0) {
		if (r >= 0)
			close(r);
		if (w >= 0)
			close(w);
		return -ENFILE;
	}
	*read_end = r;
	*write_end = w;
	return 0;
}
