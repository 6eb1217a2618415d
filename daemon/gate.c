/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: no method of the daemon takes an fd, since the sender chooses what closing it does. Where there is no way around
 * one, it comes through here. Guarantees: the daemon gets only files that it made the node of itself; it waits for
 * nobody; a process that hangs is left to itself, and there are few of those.
 */
#include "daemon/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/fd.h"
#include "daemon/refuse.h"
#include "proto/fdlist.h"
#include "proto/sock.h"

#define HUNG_MAX 512
#define BUCKETS	 256 /* users that are remembered */
/* A process that was killed and is not gone by then hangs. */
#define HANGS_MS 1000
/* Where a gate finds its two sockets. */
#define GATE_CLIENT 3
#define GATE_DAEMON 4

const char *gate_program = "/proc/self/exe";

/* Those that were told to end. */
static struct {
	pid_t pid;
	uid_t uid;
	uint64_t since;
} *hung;
static unsigned n_hung, running, room;

unsigned gate_hung(void)
{
	for (unsigned i = 0; i < n_hung;) {
		if (waitpid(hung[i].pid, NULL, WNOHANG) != 0)
			hung[i] = hung[--n_hung];
		else
			i++;
	}
	return n_hung;
}

/* Those that were told to end so long ago. */
static unsigned hung_of(uid_t uid, uint64_t ms)
{
	uint64_t now = loop_now();
	unsigned n = 0;

	for (unsigned i = 0; i < n_hung; i++)
		n += hung[i].uid == uid && now - hung[i].since >= ms;
	return n;
}

/* What a user may still start, in thousandths. */
static struct bucket {
	uid_t uid;
	uint64_t at; /* when that was so; 0: nobody's */
	uint64_t level;
} buckets[BUCKETS];

static uint64_t level_at(const struct bucket *bucket, uint64_t now)
{
	uint64_t level = bucket->level + (now - bucket->at) * GATE_RATE;

	return bucket->at == 0 || level > GATE_BURST * 1000 ? GATE_BURST * 1000 : level;
}

/* The user's, or that of the one who has been quiet for longest. */
static struct bucket *bucket_of(uid_t uid, uint64_t now)
{
	struct bucket *best = &buckets[0];

	for (unsigned i = 0; i < BUCKETS; i++) {
		if (buckets[i].at && buckets[i].uid == uid)
			return &buckets[i];
		if (level_at(&buckets[i], now) > level_at(best, now))
			best = &buckets[i];
	}
	*best = (struct bucket){ .uid = uid, .at = now, .level = GATE_BURST * 1000 };
	return best;
}

static int take_turn(uid_t uid)
{
	uint64_t now = loop_now();
	struct bucket *bucket = bucket_of(uid, now ? now : 1);

	bucket->level = level_at(bucket, now);
	bucket->at = now ? now : 1;
	if (bucket->level < 1000)
		return refuse_quota(-EAGAIN, "nodes in a short time");
	bucket->level -= 1000;
	return 0;
}

/* --- in the daemon --------------------------------------------------------------------------------------------------- */

static int spawn(const struct gate_want *want, int client, int daemon, pid_t *pid)
{
	char dev[24], ino[24], rdev[24];
	char *argv[] = { (char *)(uintptr_t)"verbsd-gate", (char *)(uintptr_t)"--gate", dev, ino, rdev, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	snprintf(dev, sizeof(dev), "%llu", (unsigned long long)want->dev);
	snprintf(ino, sizeof(ino), "%llu", (unsigned long long)want->ino);
	snprintf(rdev, sizeof(rdev), "%llu", (unsigned long long)want->rdev);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn_file_actions_adddup2(&actions, client, GATE_CLIENT);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, daemon, GATE_DAEMON);
	if (r == 0)
		r = posix_spawn(pid, gate_program, &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

void gate_end(struct gate *gate)
{
	if (gate->fd < 0)
		return;
	watch_deinit(&gate->watch);
	close(gate->fd);
	gate->fd = -1;
	kill(gate->pid, SIGKILL);
	/* There is room: gate_start() has made it. What dies at once is gone at the next look. */
	if (waitpid(gate->pid, NULL, WNOHANG) == 0) {
		hung[n_hung].pid = gate->pid;
		hung[n_hung].since = loop_now();
		hung[n_hung++].uid = gate->uid;
	}
	running--;
}

static void answered(void *data, unsigned ready)
{
	struct gate *gate = data;
	struct fdlist fds = FDLIST_NULL;
	int32_t verdict = -EPIPE;
	size_t length;
	int r = sock_recv(gate->fd, &verdict, sizeof(verdict), false, &fds, &length);

	(void)ready;
	if (r == -EAGAIN || r == -EINTR)
		return;
	if (r == 0 && length == sizeof(verdict))
		r = verdict;
	else
		r = r < 0 ? r : -EPIPE;
	if (r == 0)
		r = fds.n == 1 ? gate_check(fds.fds[0], &gate->want) : -EPROTO;
	if (r == 0)
		r = fd_admit(fdlist_steal(&fds, 0));
	fdlist_deinit(&fds);
	gate_end(gate);
	gate->done(gate->data, r);
}

/* Two pairs of sockets, above the numbers that the gate has them under. */
static int sockets_make(int pairs[2][2])
{
	for (unsigned i = 0; i < 2; i++) {
		int made[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, made) < 0)
			return -errno;
		for (unsigned j = 0; j < 2; j++) {
			pairs[i][j] = fcntl(made[j], F_DUPFD_CLOEXEC, GATE_DAEMON + 1);
			close(made[j]);
		}
		if (pairs[i][0] < 0 || pairs[i][1] < 0)
			return -EMFILE;
		if (!fd_fits(pairs[i][0]) || !fd_fits(pairs[i][1]))
			return -ENFILE;
	}
	return 0;
}

/* Each that runs may hang later. */
static int make_room(void)
{
	unsigned more = room ? room * 2 : 64;
	void *more_hung;

	if (running + n_hung < room)
		return 0;
	more_hung = reallocarray(hung, more, sizeof(*hung));
	if (!more_hung)
		return -ENOMEM;
	hung = more_hung;
	room = more;
	return 0;
}

int gate_start(struct gate *gate, struct loop *loop, uid_t uid, const struct gate_want *want,
	void (*done)(void *data, int fd), void *data, int *client)
{
	int pairs[2][2] = { { -1, -1 }, { -1, -1 } };
	int r;

	*gate = (struct gate)GATE_NULL;
	if (gate_hung() >= HUNG_MAX || hung_of(uid, HANGS_MS) >= GATE_HUNG_USER)
		return refuse(-EBUSY, "%u processes that take fds hang, %u of them this user's", n_hung, hung_of(uid, HANGS_MS));
	if (hung_of(uid, 0) >= GATE_ENDING)
		return refuse_quota(-EAGAIN, "processes that take fds and are not gone yet");
	r = take_turn(uid);
	if (r == 0)
		r = make_room();
	if (r == 0)
		r = sockets_make(pairs);
	if (r == 0)
		r = spawn(want, pairs[0][1], pairs[1][1], &gate->pid);
	cleanup_close(&pairs[0][1]);
	cleanup_close(&pairs[1][1]);
	if (r < 0)
		goto err_close;
	running++;
	*gate = (struct gate){ .loop = loop,
		.watch = WATCH_NULL,
		.fd = pairs[1][0],
		.pid = gate->pid,
		.uid = uid,
		.want = *want,
		.done = done,
		.data = data };
	r = watch_init(&gate->watch, loop, gate->fd, answered, gate);
	if (r == 0)
		r = watch_set(&gate->watch, LOOP_READ);
	if (r < 0) {
		gate_end(gate);
		cleanup_close(&pairs[0][0]);
		return r;
	}
	*client = pairs[0][0];
	return 0;

err_close:
	cleanup_close(&pairs[0][0]);
	cleanup_close(&pairs[1][0]);
	return r;
}

/* --- in the gate ----------------------------------------------------------------------------------------------------- */

int gate_check(int fd, const struct gate_want *want)
{
	struct statx st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) != O_RDWR || flags & O_PATH)
		return -EBADF;
	/* A file system in user space would be asked by a plain stat(), and may not answer. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st) < 0)
		return -errno;
	if (!S_ISCHR(st.stx_mode) || makedev(st.stx_rdev_major, st.stx_rdev_minor) != want->rdev ||
		makedev(st.stx_dev_major, st.stx_dev_minor) != want->dev || st.stx_ino != want->ino)
		return -EACCES;
	return 0;
}

int gate_serve(int client, int daemon, const struct gate_want *want)
{
	struct fdlist fds = FDLIST_NULL;
	uint8_t byte;
	size_t length = 0;
	int32_t verdict = sock_recv(client, &byte, sizeof(byte), true, &fds, &length);

	if (verdict == 0 && length == 0)
		verdict = -ECONNRESET;
	if (verdict == 0)
		verdict = fds.n == 1 ? gate_check(fds.fds[0], want) : -EPROTO;
	(void)sock_send(daemon, &verdict, sizeof(verdict), verdict == 0 ? &fds : NULL, true);
	/* The answer is out; this may take as long as it likes. */
	fdlist_deinit(&fds);
	return verdict != 0;
}

static int drop_rights(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
		syscall(SYS_capset, &head, none) < 0)
		return -errno;
	/* Nobody's user would be better than the daemon's; root's is worse. */
	if (geteuid() == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return 0;
}

int gate_main(int argc, char **argv)
{
	struct gate_want want;

	if (argc != 3)
		return 2;
	prctl(PR_SET_NAME, "verbsd-gate", 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (drop_rights() < 0)
		return 1;
	want = (struct gate_want){
		.dev = (dev_t)strtoull(argv[0], NULL, 10),
		.ino = (ino_t)strtoull(argv[1], NULL, 10),
		.rdev = (dev_t)strtoull(argv[2], NULL, 10),
	};
	return gate_serve(GATE_CLIENT, GATE_DAEMON, &want);
}
