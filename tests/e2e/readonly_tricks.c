/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tricks themselves. Each is a way to get bytes into a file that one has open for reading only, or to become able
 * to. A trick that is allowed is a finding; so is one after which the file has other contents.
 */
#include "tests/e2e/readonly.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int fd;	      /* the prey */
static size_t size;
static uint8_t *map;  /* of it, read-only */
static uint8_t bytes[4096];

/* 0 when the call failed, as it has to. */
static bool allowed(long r)
{
	return r >= 0;
}

static bool reopen_at(const char *directory, const char *name, int flags)
{
	char path[128];
	int again;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	again = open(path, flags | O_CLOEXEC);
	if (again < 0)
		return false;
	/* For the record of what it leads to. */
	(void)!pwrite(again, "X", 1, 0);
	close(again);
	return true;
}

static bool reopen(int flags)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", fd);
	return reopen_at("/proc/self/fd", name, flags) || reopen_at("/dev/fd", name, flags) ||
	       reopen_at("/proc/thread-self/fd", name, flags);
}

/* --- the fd ------------------------------------------------------------------------------------------------------- */

static bool write_it(void)
{
	struct iovec iov = { bytes, 1 };

	return allowed(write(fd, bytes, 1)) || allowed(pwrite(fd, bytes, 1, 0)) || allowed(pwritev(fd, &iov, 1, 0));
}

static bool copy_into_it(void)
{
	int pipes[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	loff_t at = 0;
	bool did;

	if (pipe(pipes) < 0)
		return true;
	did = allowed(sendfile(fd, zero, NULL, 1));
	(void)!write(pipes[1], "X", 1);
	did |= allowed(splice(pipes[0], NULL, fd, &at, 1, 0));
	did |= allowed(copy_file_range(zero, NULL, fd, &at, 1, 0));
	did |= allowed(ioctl(fd, FICLONE, zero));
	close(pipes[0]);
	close(pipes[1]);
	close(zero);
	return did;
}

static bool reopen_for_writing(void)
{
	return reopen(O_WRONLY) || reopen(O_RDWR) || reopen(O_RDWR | O_APPEND) || reopen(O_RDONLY | O_TRUNC);
}

static bool reopen_through_o_path(void)
{
	char name[64];
	int path, r;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	path = open(name, O_PATH | O_CLOEXEC);
	if (path < 0)
		return false;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", path);
	r = open(name, O_RDWR | O_CLOEXEC);
	close(path);
	return allowed(r);
}

static bool link_it(void)
{
	char name[64], to[64];
	bool did;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	snprintf(to, sizeof(to), "/dev/shm/verbsd-readonly-%d", getpid());
	did = allowed(linkat(fd, "", AT_FDCWD, to, AT_EMPTY_PATH)) ||
	      allowed(linkat(AT_FDCWD, name, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
	unlink(to);
	return did;
}

static bool open_by_handle(void)
{
	struct file_handle *handle = calloc(1, sizeof(*handle) + MAX_HANDLE_SZ);
	int mount, again = -1;

	handle->handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) == 0)
		again = open_by_handle_at(fd, handle, O_RDWR);
	free(handle);
	return allowed(again);
}

static bool set_flags(void)
{
	int flags = fcntl(fd, F_GETFL);

	/* Allowed, and of no effect on the access mode. */
	(void)fcntl(fd, F_SETFL, O_RDWR | O_APPEND);
	(void)fcntl(fd, F_SETFL, flags);
	return (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || write_it();
}

/* --- the inode ---------------------------------------------------------------------------------------------------- */

static bool change_size(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return allowed(ftruncate(fd, 0)) || allowed(truncate(name, 0)) || allowed(ftruncate(fd, (off_t)size * 2));
}

static bool punch_a_hole(void)
{
	return allowed(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)) ||
	       allowed(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096)) ||
	       allowed(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096)) || allowed(fallocate(fd, 0, 0, (off_t)size));
}

static bool change_mode(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return allowed(fchmod(fd, 0777)) || allowed(chmod(name, 0777)) || allowed(fchown(fd, getuid(), getgid())) ||
	       allowed(chown(name, getuid(), getgid()));
}

static bool add_seals(void)
{
	return allowed(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)) || allowed(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL)) ||
	       allowed(fcntl(fd, F_ADD_SEALS, 0x10 /* F_SEAL_FUTURE_WRITE */));
}

static bool change_attributes(void)
{
	int flags = 0x10; /* FS_IMMUTABLE_FL */

	return allowed(futimens(fd, NULL)) || allowed(fsetxattr(fd, "user.x", "1", 1, 0)) ||
	       allowed(ioctl(fd, FS_IOC_SETFLAGS, &flags)) || allowed(fcntl(fd, F_SETLEASE, F_WRLCK));
}

/* --- a mapping ---------------------------------------------------------------------------------------------------- */

static bool map_for_writing(void)
{
	void *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (mem == MAP_FAILED)
		mem = mmap(NULL, 4096, PROT_WRITE, MAP_SHARED_VALIDATE, fd, 0);
	return mem != MAP_FAILED;
}

static bool protect(void)
{
	return allowed(mprotect(map, 4096, PROT_READ | PROT_WRITE)) ||
	       allowed(mprotect(map, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
}

static bool protect_a_moved_mapping(void)
{
	uint8_t *mem = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0), *moved;
	bool did = true;

	if (mem == MAP_FAILED)
		return false;
	/* An old size of 0 asks for a second mapping of the same pages. */
	moved = mremap(mem, 0, 8192, MREMAP_MAYMOVE);
	did = (moved != MAP_FAILED && allowed(mprotect(moved, 8192, PROT_READ | PROT_WRITE))) ||
	      allowed(mprotect(mem, 8192, PROT_READ | PROT_WRITE));
	munmap(mem, 8192);
	if (moved != MAP_FAILED)
		munmap(moved, 8192);
	return did;
}

static bool read_into_it(void)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	struct iovec local = { bytes, 1 }, remote = { map, 1 };
	bool did = allowed(read(zero, map, 1)) || allowed(process_vm_writev(getpid(), &local, 1, &remote, 1, 0));

	close(zero);
	return did;
}

static bool write_through_proc_mem(void)
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	bool did = mem >= 0 && allowed(pwrite(mem, bytes, 1, (off_t)(uintptr_t)map));

	if (mem >= 0)
		close(mem);
	return did;
}

static bool open_map_files(void)
{
	char name[64];

	snprintf(name, sizeof(name), "%lx-%lx", (unsigned long)map, (unsigned long)map + size);
	return reopen_at("/proc/self/map_files", name, O_RDWR);
}

static bool advise(void)
{
	return allowed(madvise(map, 4096, MADV_REMOVE)) || allowed(madvise(map, 4096, 23 /* MADV_POPULATE_WRITE */));
}

/* A page of our choice where the file has a hole. */
static bool fill_a_hole_by_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uintptr_t)map, size }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	bool did;

	if (uffd < 0)
		return false;
	did = ioctl(uffd, UFFDIO_API, &api) == 0 && allowed(ioctl(uffd, UFFDIO_REGISTER, &range));
	for (size_t at = 0; did && at < size; at += 4096) {
		struct uffdio_copy copy = { .dst = (uintptr_t)map + at, .src = (uintptr_t)bytes, .len = 4096 };

		(void)ioctl(uffd, UFFDIO_COPY, &copy);
	}
	close(uffd);
	return did;
}

static bool write_a_private_copy(void)
{
	uint8_t *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	if (mem != MAP_FAILED) {
		memset(mem, 'X', 4096);
		(void)msync(mem, 4096, MS_SYNC);
		munmap(mem, 4096);
	}
	return false; /* it is one's own */
}

/* --- other ways --------------------------------------------------------------------------------------------------- */

/* In a child: uid 0 with all capabilities, in a user namespace of its own. */
static void in_namespace(void)
{
	char line[32];
	int file;
	uid_t uid = getuid();

	if (unshare(CLONE_NEWUSER) < 0)
		_exit(0);
	snprintf(line, sizeof(line), "0 %u 1", uid);
	file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	if (file >= 0)
		(void)!write(file, line, strlen(line));
	_exit(reopen_for_writing() || change_mode() || map_for_writing() || open_map_files() || protect());
}

static bool become_root_in_a_namespace(void)
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0)
		in_namespace();
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

static const struct trick {
	const char *name;
	bool (*run)(void); /* whether it was allowed */
} tricks[] = {
	{ "write", write_it },
	{ "sendfile, splice, clone", copy_into_it },
	{ "/proc/self/fd", reopen_for_writing },
	{ "O_PATH", reopen_through_o_path },
	{ "linkat", link_it },
	{ "open_by_handle_at", open_by_handle },
	{ "F_SETFL", set_flags },
	{ "ftruncate", change_size },
	{ "fallocate", punch_a_hole },
	{ "fchmod", change_mode },
	{ "F_ADD_SEALS", add_seals },
	{ "times, attributes, leases", change_attributes },
	{ "mmap", map_for_writing },
	{ "mprotect", protect },
	{ "mremap", protect_a_moved_mapping },
	{ "read into it", read_into_it },
	{ "/proc/self/mem", write_through_proc_mem },
	{ "/proc/self/map_files", open_map_files },
	{ "madvise", advise },
	{ "userfaultfd", fill_a_hole_by_userfaultfd },
	{ "MAP_PRIVATE", write_a_private_copy },
	{ "a user namespace", become_root_in_a_namespace },
};

/* For who may open it for writing: what F_SEAL_FUTURE_WRITE alone stops. */
static bool write_a_new_fd(void)
{
	char name[64];
	int again;
	bool did;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	again = open(name, O_RDWR | O_CLOEXEC);
	if (again < 0)
		return false;
	did = allowed(pwrite(again, "X", 1, 0)) || allowed(ftruncate(again, 0)) ||
	      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED ||
	      allowed(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)) ||
	      allowed(fcntl(again, F_ADD_SEALS, F_SEAL_WRITE));
	close(again);
	return did;
}

static bool write_map_files(void)
{
	char name[64];
	int again;
	bool did;

	snprintf(name, sizeof(name), "/proc/self/map_files/%lx-%lx", (unsigned long)map, (unsigned long)map + size);
	again = open(name, O_RDWR | O_CLOEXEC);
	did = again >= 0 && (allowed(pwrite(again, "X", 1, 0)) ||
				    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED);
	if (again >= 0)
		close(again);
	return did;
}

static const struct trick sealed_tricks[] = {
	{ "write", write_it },
	{ "/proc/self/fd", write_a_new_fd },
	{ "/proc/self/map_files", write_map_files },
	{ "ftruncate", change_size },
	{ "fallocate", punch_a_hole },
	{ "F_ADD_SEALS", add_seals },
	{ "mmap", map_for_writing },
	{ "mprotect", protect },
	{ "mremap", protect_a_moved_mapping },
	{ "read into it", read_into_it },
	{ "/proc/self/mem", write_through_proc_mem },
	{ "madvise", advise },
	{ "userfaultfd", fill_a_hole_by_userfaultfd },
};

/* --- the daemon's own --------------------------------------------------------------------------------------------- */

static bool open_proc(pid_t pid, const char *what, int flags)
{
	char name[64];
	int opened;

	snprintf(name, sizeof(name), "/proc/%d/%s", (int)pid, what);
	opened = open(name, flags | O_CLOEXEC);
	if (opened >= 0)
		close(opened);
	return opened >= 0;
}

static bool take_its_fds(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool did = pidfd < 0;

	for (int n = 0; n < 256 && !did; n++)
		did = allowed(syscall(SYS_pidfd_getfd, pidfd, n, 0));
	if (pidfd >= 0)
		close(pidfd);
	return did;
}

void tricks_with_daemon(pid_t pid)
{
	struct iovec local = { bytes, 1 }, remote = { bytes, 1 };

	finding(!open_proc(pid, "fd", O_RDONLY | O_DIRECTORY) && !open_proc(pid, "fd/3", O_RDWR), "the daemon: its fds",
		"opened");
	finding(!open_proc(pid, "map_files", O_RDONLY | O_DIRECTORY), "the daemon: its mappings", "opened");
	finding(!open_proc(pid, "mem", O_RDWR), "the daemon: its memory", "opened");
	finding(!allowed(process_vm_readv(pid, &local, 1, &remote, 1, 0)) && errno == EPERM, "the daemon: process_vm_readv",
		"%s", strerror(errno));
	finding(!take_its_fds(pid), "the daemon: pidfd_getfd", "allowed");
	finding(!allowed(ptrace(PTRACE_SEIZE, pid, NULL, NULL)), "the daemon: ptrace", "allowed");
}

static void run_all(const struct prey *prey, const struct trick *list, size_t n)
{
	uint8_t *before = malloc(prey->size);
	struct stat st;
	char name[128];

	fd = prey->fd;
	size = prey->size;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	memset(bytes, 'X', sizeof(bytes));
	if (map == MAP_FAILED || !before) {
		finding(false, prey->name, "it cannot be mapped: %s", strerror(errno));
		free(before);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(before, prey->truth ? prey->truth : map, size); /* whatever one did, the next starts anew */

		bool did = list[i].run();
		bool changed = memcmp(prey->truth ? prey->truth : map, before, size) != 0 || fstat(fd, &st) < 0 ||
			       (size_t)st.st_size != size;

		snprintf(name, sizeof(name), "%s: %s", prey->name, list[i].name);
		finding(!did && !changed, name, "%s%s", did ? "allowed" : "", changed ? " and changed" : "");
	}
	munmap(map, size);
	free(before);
}

void tricks_run(const struct prey *prey)
{
	run_all(prey, tricks, sizeof(tricks) / sizeof(tricks[0]));
}

void tricks_run_sealed(const struct prey *prey)
{
	run_all(prey, sealed_tricks, sizeof(sealed_tricks) / sizeof(sealed_tricks[0]));
}
