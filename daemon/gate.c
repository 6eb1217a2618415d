/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: no method of the daemon takes an fd, since the sender chooses what closing it does. Where there is no way around
 * one, it comes through here. Guarantees: the daemon gets only files that it made the node of itself; it waits for
 * nobody, not even until a process has begun, which a thread does; a process that hangs is left to itself, and there are few
 * of those; each that was begun is waited for, whoever has gone meanwhile.
 */
#include "daemon/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
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
#include "daemon/job.h"
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
gate_spawn_fn *gate_spawn = posix_spawn;

/* A gate's; it outlives that when it hangs. */
struct gate_process {
	struct job job; /* begins it */
	struct list link; /* in ending, once it was told to */
	struct gate *gate; /* NULL: it was told to end */
	uid_t uid;
	uint64_t since; /* when it was told */
	bool begun;	/* the job is over */
	struct gate_want want;
	int client, daemon; /* its two sockets, until it has begun */
	pid_t pid;	    /* a thread's until then, as is */
	int error;	    /* 0: there is a process */
};

static struct list ending = { &ending, &ending };

static struct gate_process *process_free(struct gate_process *process)
{
	list_remove(&process->link);
	free(process);
	return NULL;
}

/* It is no more, or never was. */
static bool is_gone(const struct gate_process *process)
{
	return process->begun && (process->error || waitpid(process->pid, NULL, WNOHANG) != 0);
}

unsigned gate_hung(void)
{
	unsigned n = 0;

	list_for_each_safe (pos, &ending) {
		struct gate_process *process = container_of(pos, struct gate_process, link);

		if (is_gone(process))
			process_free(process);
		else
			n++;
	}
	return n;
}

/* Those that were told to end so long ago. */
static unsigned hung_of(uid_t uid, uint64_t ms)
{
	uint64_t now = loop_now();
	unsigned n = 0;

	list_for_each (pos, &ending) {
		const struct gate_process *process = container_of(pos, struct gate_process, link);

		n += process->uid == uid && now - process->since >= ms;
	}
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

/* --- in a thread ----------------------------------------------------------------------------------------------------- */

/* The process gets these two sockets and no other fd of ours: all are close-on-exec, however many there are by then. */
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
		r = gate_spawn(pid, gate_program, &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static void begin(struct job *job)
{
	struct gate_process *process = container_of(job, struct gate_process, job);

	process->error = spawn(&process->want, process->client, process->daemon, &process->pid);
}

/* --- in the daemon --------------------------------------------------------------------------------------------------- */

/* One that a thread is still at is ended when that is over. */
static void process_end(struct gate_process *process)
{
	if (!process->begun)
		return;
	if (process->error == 0)
		kill(process->pid, SIGKILL);
	/* What dies at once is gone at the next look. */
	if (is_gone(process))
		process_free(process);
}

void gate_end(struct gate *gate)
{
	struct gate_process *process = gate->process;

	if (!process)
		return;
	watch_deinit(&gate->watch);
	close(gate->fd);
	gate->fd = -1;
	gate->process = NULL;
	gate->starting = false;
	process->gate = NULL;
	process->since = loop_now();
	list_append(&ending, &process->link);
	process_end(process);
}

static void begun(struct job *job)
{
	struct gate_process *process = container_of(job, struct gate_process, job);
	struct gate *gate = process->gate;
	int r = job->skipped ? -ECANCELED : process->error;

	/* Not before: that they are closed is not to be seen before the reason is known. */
	close(process->client);
	close(process->daemon);
	process->error = r;
	process->begun = true;
	if (!gate) {
		process_end(process);
		return;
	}
	gate->starting = false;
	gate->error = r;
	if (r < 0)
		gate_end(gate);
	if (gate->returned)
		gate->owner.started(gate->owner.data, r);
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
	gate->owner.done(gate->owner.data, r);
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

static int may_start(uid_t uid)
{
	if (gate_hung() >= HUNG_MAX || hung_of(uid, HANGS_MS) >= GATE_HUNG_USER)
		return refuse(-EBUSY, "%u processes that take fds hang, %u of them this user's", gate_hung(), hung_of(uid, HANGS_MS));
	if (hung_of(uid, 0) >= GATE_ENDING)
		return refuse_quota(-EAGAIN, "processes that take fds and are not gone yet");
	return take_turn(uid);
}

/* In a queue of its own: it waits for nothing else that this client wants. */
static int submit(struct jobs *jobs, struct gate_process *process)
{
	struct job_queue *queue = job_queue_new(process->uid);
	int r = queue ? job_submit(jobs, queue, &process->job) : -ENOMEM;

	job_queue_end(jobs, queue, false);
	return r == -EAGAIN ? refuse_quota(r, "requests that take long") : r;
}

/* Takes over the gate's two sockets. */
static int begin_later(struct gate *gate, int client, int daemon)
{
	struct gate_process *process = calloc(1, sizeof(*process));
	int r = process ? watch_init(&gate->watch, gate->owner.loop, gate->fd, answered, gate) : -ENOMEM;

	if (r == 0)
		r = watch_set(&gate->watch, LOOP_READ);
	if (r < 0)
		goto err_close;
	*process = (struct gate_process){
		.job = { .run = begin, .done = begun },
		.gate = gate,
		.uid = gate->owner.uid,
		.want = gate->want,
		.client = client,
		.daemon = daemon,
	};
	list_init(&process->link);
	gate->process = process;
	gate->starting = true;
	r = submit(gate->owner.jobs, process);
	if (r == 0)
		return gate->error;
	gate->process = NULL;
err_close:
	watch_deinit(&gate->watch);
	free(process);
	close(client);
	close(daemon);
	close(gate->fd);
	*gate = (struct gate)GATE_NULL;
	return r;
}

int gate_start(struct gate *gate, const struct gate_owner *owner, const struct gate_want *want, int *client)
{
	int pairs[2][2] = { { -1, -1 }, { -1, -1 } };
	int r = may_start(owner->uid);

	*gate = (struct gate)GATE_NULL;
	if (r == 0)
		r = sockets_make(pairs);
	if (r < 0) {
		for (unsigned i = 0; i < 2; i++) {
			cleanup_close(&pairs[i][0]);
			cleanup_close(&pairs[i][1]);
		}
		return r;
	}
	*gate = (struct gate){ .owner = *owner, .want = *want, .watch = WATCH_NULL, .fd = pairs[1][0] };
	r = begin_later(gate, pairs[0][1], pairs[1][1]);
	if (r < 0) {
		close(pairs[0][0]);
		return r;
	}
	gate->returned = true;
	*client = pairs[0][0];
	return 0;
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

/*
 * The daemon's end of its socket closes when the daemon is done with it, or dies: that ends this process, even one that hangs.
 * A signal for its parent's death would come for that of the thread which has begun it.
 */
static int end_with(int daemon)
{
	struct pollfd gone = { .fd = daemon };

	signal(SIGIO, SIG_DFL);
	if (fcntl(daemon, F_SETOWN, getpid()) < 0 || fcntl(daemon, F_SETFL, O_ASYNC) < 0)
		return -errno;
	return poll(&gone, 1, 0) == 0 ? 0 : -EPIPE;
}

int gate_main(int argc, char **argv)
{
	struct gate_want want;

	if (argc != 3)
		return 2;
	prctl(PR_SET_NAME, "verbsd-gate", 0, 0, 0);
	if (end_with(GATE_DAEMON) < 0 || drop_rights() < 0)
		return 1;
	want = (struct gate_want){
		.dev = (dev_t)strtoull(argv[0], NULL, 10),
		.ino = (ino_t)strtoull(argv[1], NULL, 10),
		.rdev = (dev_t)strtoull(argv[2], NULL, 10),
	};
	return gate_serve(GATE_CLIENT, GATE_DAEMON, &want);
}
