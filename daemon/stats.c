/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an operator wants names, not numbers. Guarantees: nothing that a client can write is mapped here, pages are
 * read with pread; what is read in /proc counts only when the pidfd says that the process still lived after it, so it
 * is never another process's.
 */
#include "daemon/stats.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/fd.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/process.h"
#include "daemon/server.h"
#include "daemon/session.h"

#define FDS_FRESH_MS 1000

static const char *const counter_names[VSD_COUNT_N] = {
	[VSD_COUNT_POSTS] = "posts",
	[VSD_COUNT_RECVS] = "recvs",
	[VSD_COUNT_COMPLETIONS] = "completions",
	[VSD_COUNT_ERRORS] = "errors",
	[VSD_COUNT_BYTES_SENT] = "bytes_sent",
	[VSD_COUNT_BYTES_RECEIVED] = "bytes_received",
	[VSD_COUNT_RNR] = "rnr",
	[VSD_COUNT_KICKS] = "kicks",
	[VSD_COUNT_WAKEUPS] = "wakeups",
	[VSD_COUNT_DROPPED] = "dropped",
	[VSD_COUNT_INITIATOR_RUN] = "initiator_run",
	[VSD_COUNT_PULLED] = "pulled",
};

const char *stats_counter_name(unsigned counter)
{
	return counter < VSD_COUNT_N ? counter_names[counter] : NULL;
}

static bool is_alive(const struct session *session)
{
	struct pollfd pollfd = { .fd = session->pidfd, .events = POLLIN };

	return session->pidfd >= 0 && poll(&pollfd, 1, 0) == 0;
}

static ssize_t read_bytes(const char *path, char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, bytes, size);
	close(fd);
	return n;
}

/* A file of /proc/PID, escaped, without the end of its last line. */
static void read_proc(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64], bytes[512];
	ssize_t n;

	text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	n = read_bytes(path, bytes, sizeof(bytes));
	if (n <= 0)
		return;
	if (bytes[n - 1] == '\n')
		n--;
	log_escape(text, size, bytes, (size_t)n);
}

void stats_container(const char *cgroup, char *container, unsigned size)
{
	unsigned digits = 0;

	container[0] = '\0';
	for (const char *p = cgroup;; p++) {
		if (isxdigit((unsigned char)*p)) {
			digits++;
			continue;
		}
		if (digits == 64)
			snprintf(container, size, "%.12s", p - 64);
		digits = 0;
		if (!*p)
			return;
	}
}

void stats_who(const struct session *session, struct stats_who *who)
{
	char *path;

	memset(who, 0, sizeof(*who));
	if (session->pid <= 0)
		return;
	read_proc(session->pid, "comm", who->command, sizeof(who->command));
	read_proc(session->pid, "cgroup", who->cgroup, sizeof(who->cgroup));
	if (!is_alive(session)) {
		memset(who, 0, sizeof(*who));
		return;
	}
	/* "0::/path", or the first of several lines in a hybrid hierarchy. */
	path = strstr(who->cgroup, "0::");
	if (path)
		memmove(who->cgroup, path + 3, strlen(path + 3) + 1);
	path = strstr(who->cgroup, "\\x0a");
	if (path)
		*path = '\0';
	stats_container(who->cgroup, who->container, sizeof(who->container));
}

bool stats_counters(const struct process *process, uint64_t counters[VSD_COUNT_N])
{
	static const size_t from = offsetof(struct vsd_page, counters);
	static const size_t first = (offsetof(struct vsd_page, shards) - offsetof(struct vsd_page, counters)) / sizeof(uint64_t);
	uint64_t read[(offsetof(struct vsd_page, pad) - offsetof(struct vsd_page, counters)) / sizeof(uint64_t)];

	if (!process || pread(process->page, read, sizeof(read), (off_t)from) != (ssize_t)sizeof(read))
		return false;
	for (unsigned i = 0; i < VSD_COUNT_N; i++) {
		counters[i] = read[i];
		for (unsigned shard = 0; shard < VSD_PAGE_SHARDS; shard++)
			counters[i] += read[first + shard * VSD_COUNT_N + i];
	}
	return true;
}

void stats_total(struct server *server, struct stats_total *total)
{
	static uint64_t counted;
	static unsigned fds;
	uint64_t now = loop_now();

	/* Counting takes time in proportion to the fds, and anybody may ask. */
	if (counted == 0 || now - counted > FDS_FRESH_MS) {
		fds = fd_count();
		counted = now ? now : 1;
	}
	total->segments = server->segments.count;
	total->shared_bytes = (uint64_t)server->segments.count * VSD_SEGMENT_SIZE +
			      (uint64_t)server->processes.count * VSD_PAGE_SIZE;
	total->fds = fds;
	total->regions = server->regions.count;
	total->region_bytes = server->regions.bytes;
}
