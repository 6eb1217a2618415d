/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs in the place of the daemon, under verbsd.service's own lines: what the daemon will ask of the kernel for real
 * devices and foreign clients has to work there, and what it has no business with has to fail.
 *
 * usage: sandbox PID [NODE]    PID: a process of another user; NODE: a uverbs node, where there is one
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define NODES "/run/verbsd-nodes"

static pid_t client;
static const char *node;

static int done(long r)
{
	return r < 0 ? -errno : 0;
}

static int read_link(const char *what)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/%s", client, what);
	return done(readlink(path, text, sizeof(text)));
}

static int read_namespace(void)
{
	return read_link("ns/pid");
}

static int read_exe(void)
{
	return read_link("exe");
}

static int read_cgroup(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", client);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* What a name for memory that is kept takes. */
static int hold_namespace(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", client);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* Everything that a shared region takes, but for its pages. */
static int make_region(unsigned huge)
{
	int fd = memfd_create("sandbox", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge), reader, r;
	char path[64];

	if (fd < 0)
		return -errno;
	r = done(ftruncate(fd, 4 << 20));
	if (r == 0)
		r = done(fchmod(fd, 0600));
	if (r == 0)
		r = done(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = r == 0 ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
	if (r == 0)
		r = done(reader);
	if (reader >= 0)
		close(reader);
	close(fd);
	return r;
}

static int make_small_region(void)
{
	return make_region(0);
}

static int make_huge_region(void)
{
	return make_region(MFD_HUGETLB | 21u << 26);
}

static int open_pidfd(void)
{
	int fd = (int)syscall(SYS_pidfd_open, client, 0);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int raise_memlock(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	return done(prlimit(client, RLIMIT_MEMLOCK, &limit, NULL));
}

/* 100 MiB: more than a user may lock by default. */
static int lock_memory(void)
{
	size_t n = 100u << 20;
	void *at = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -errno;

	int r = done(mlock(at, n));

	munmap(at, n);
	return r;
}

/* A node of our own with @rdev, given to a client's user and opened by way of an O_PATH fd, as a client does. */
static int use_node(dev_t rdev)
{
	char self[32];
	int fd, path, r;

	if (mknod(NODES "/n", S_IFCHR | 0600, rdev) < 0)
		return -errno;
	fd = open(NODES "/n", O_RDWR | O_CLOEXEC);
	r = done(fd);
	path = open(NODES "/n", O_PATH | O_CLOEXEC);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
	if (r == 0)
		r = done(chown(self, 65534, 65534));
	if (r == 0)
		r = done(chown(self, geteuid(), getegid()));
	if (r == 0)
		r = done(chmod(self, 0));
	close(fd);
	close(path);
	unlink(NODES "/n");
	return r;
}

static int use_null(void)
{
	return use_node(makedev(1, 3));
}

static int use_uverbs(void)
{
	struct stat st;

	return stat(node, &st) < 0 ? -errno : use_node(st.st_rdev);
}

static int open_uverbs(void)
{
	int fd = open(node, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* /dev/mem: a device that is none of ours. */
static int use_memory(void)
{
	return use_node(makedev(1, 1));
}

static int open_rdma_cm(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int socket_of(int family, int type, int protocol)
{
	int fd = socket(family, type | SOCK_CLOEXEC, protocol);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int socket_netlink(void)
{
	return socket_of(AF_NETLINK, SOCK_RAW, 20 /* NETLINK_RDMA */);
}

static int socket_inet(void)
{
	return socket_of(AF_INET, SOCK_STREAM, 0);
}

static int write_run(void)
{
	return done(open("/run/verbsd/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int write_etc(void)
{
	return done(open("/etc/verbsd/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int set_policy(void)
{
	return done(syscall(SYS_set_mempolicy, 0, NULL, 0));
}

static int add_key(void)
{
	return done(syscall(SYS_add_key, "user", "x", "x", 1, -3));
}

static int new_namespace(void)
{
	return done(unshare(CLONE_NEWUSER));
}

static int map_code(void)
{
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? -errno : 0;
}

static int become_root(void)
{
	return done(setresuid(0, 0, 0));
}

static const struct check {
	const char *name;
	int (*run)(void);
	bool allowed;
	bool needs_node;
} checks[] = {
	{ "read a client's namespaces", read_namespace, true, false },
	{ "hold a client's pid namespace", hold_namespace, true, false },
	{ "make a shared region", make_small_region, true, false },
	{ "make a shared region of huge pages", make_huge_region, true, false },
	{ "read a client's program", read_exe, true, false },
	{ "read a client's cgroup", read_cgroup, true, false },
	{ "open a client's pidfd", open_pidfd, true, false },
	{ "raise a client's memory lock limit", raise_memlock, true, false },
	{ "lock memory", lock_memory, true, false },
	{ "make a node and give it away", use_null, true, false },
	{ "make a uverbs node and give it away", use_uverbs, true, true },
	{ "open a uverbs node", open_uverbs, true, true },
	{ "open rdma_cm", open_rdma_cm, true, true },
	{ "talk to the kernel's RDMA over netlink", socket_netlink, true, false },
	{ "open another device", use_memory, false, false },
	{ "make an internet socket", socket_inet, false, false },
	{ "write in /run", write_run, false, false },
	{ "write in /etc", write_etc, false, false },
	{ "set a memory policy", set_policy, false, false },
	{ "add a key", add_key, false, false },
	{ "make a namespace", new_namespace, false, false },
	{ "map writable code", map_code, false, false },
	{ "become root", become_root, false, false },
};

int main(int argc, char **argv)
{
	client = argc > 1 ? atoi(argv[1]) : 0;
	node = argc > 2 ? argv[2] : NULL;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		const struct check *check = &checks[i];

		if (check->needs_node && !node)
			continue;

		int r = check->run();

		printf("%s\tsandbox: %s %s\t%s\n", (r == 0) == check->allowed ? "ok" : "not ok",
			check->allowed ? "may" : "may not", check->name, r ? strerror(-r) : "it did");
	}
	return fflush(stdout) ? 1 : 0;
}
