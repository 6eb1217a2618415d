/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The revocation protocol against peers that are killed, stopped or exec'd inside their
 * hazard slot, and against peers that forge what they may write. Guarantees: the owner's
 * wait ends when the slot clears or the peer is dead, says who holds it up when its limit
 * is reached (and then leaves the object whole), and waits for no pair but those that
 * were granted the key. Time is injected; nothing sleeps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY	0x11
#define OPEN	((uint64_t)7 << 1 | 1)		/* generation 7, open */
#define LIMIT	10

struct segment {
	_Alignas(64) _Atomic uint64_t entry;	/* the owner's line */
	_Alignas(64) _Atomic uint64_t slot;	/* the peer's line */
	pthread_mutex_t live;			/* robust, held by the peer */
	_Alignas(64) char region[2];		/* what the key gives access to */
};

/* The owner's private record of a peer; none of it can be written by anybody else. */
struct pair {
	bool engines;			/* the daemon's word: this pair has slots */
	bool granted;			/* this pair was told the key */
	pid_t pid;
	int pidfd, kick, go, held;	/* held: EOF once the peer closed or exec'd */
	struct segment *seg;
};

enum mode {
	HONEST,		/* enter, copy, wait for go, copy, clear, kick */
	SPOILED,	/* the same, with the liveness word destroyed */
	FAKE_DEATH,	/* in its slot, says that it is dead */
	EXEC,		/* exec on go, inside the slot */
	EXEC_SPOILED,
};

static struct {
	int now, step;		/* step 0: block for real until somebody reports */
} test_clock;

#define CHECK(x) do { \
	if (!(x)) { \
		fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #x); \
		exit(99); \
	} \
} while (0)

static _Atomic int *live_word(struct segment *s)
{
	return (_Atomic int *)&s->live.__data.__lock;
}

static void peer_main(struct segment *s, enum mode mode, int kick_fd, int go)
{
	char path[32], c = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", kick_fd);
	int kick = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

	CHECK(kick >= 0 && pthread_mutex_lock(&s->live) == 0);
	if (mode == SPOILED || mode == EXEC_SPOILED)
		atomic_store(live_word(s), 0);
	if (mode == FAKE_DEATH)
		atomic_store(live_word(s), FUTEX_OWNER_DIED);
	atomic_store(&s->slot, KEY);
	if (atomic_load(&s->entry) == OPEN)
		s->region[0] = 'a';
	CHECK(write(kick, &c, 1) == 1);
	if (read(go, &c, 1) != 1)
		_exit(0);
	if (mode == EXEC || mode == EXEC_SPOILED) {
		CHECK(dup2(go, 0) == 0);
		execl("/bin/cat", "cat", (char *)NULL);
		_exit(1);
	}
	s->region[1] = 'b';
	atomic_store_explicit(&s->slot, 0, memory_order_release);
	CHECK(write(kick, &c, 1) == 1);
	_exit(read(go, &c, 1) != 0);
}

static void pair_open(struct pair *p, enum mode mode)
{
	int kick[2], go[2], held[2], fd = memfd_create("pair", MFD_CLOEXEC);
	pthread_mutexattr_t a;

	CHECK(fd >= 0 && ftruncate(fd, sizeof(*p->seg)) == 0);
	p->seg = mmap(NULL, sizeof(*p->seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p->seg != MAP_FAILED);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_mutex_init(&p->seg->live, &a) == 0);
	atomic_store(&p->seg->entry, OPEN);
	CHECK(pipe2(kick, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	CHECK(pipe2(held, O_CLOEXEC) == 0 && fcntl(kick[0], F_SETFL, O_NONBLOCK) == 0);
	fflush(NULL);
	p->pid = fork();
	CHECK(p->pid >= 0);
	if (p->pid == 0) {
		struct segment *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
					 MAP_SHARED, fd, 0);

		CHECK(s != MAP_FAILED);
		munmap(p->seg, sizeof(*s));
		close(go[1]);
		peer_main(s, mode, kick[1], go[0]);
	}
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	CHECK(p->pidfd >= 0);
	close(go[0]);
	close(kick[1]);
	close(held[1]);
	close(fd);
	p->kick = kick[0];
	p->go = go[1];
	p->held = held[0];
	p->engines = p->granted = true;

	char c;
	struct pollfd in = { .fd = p->kick, .events = POLLIN };

	CHECK(poll(&in, 1, -1) == 1 && read(p->kick, &c, 1) == 1);	/* it is in its slot */
}

static void pair_close(struct pair *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->pidfd);
	if (p->kick >= 0)
		close(p->kick);
	close(p->go);
	close(p->held);
	munmap(p->seg, sizeof(*p->seg));
}

/* 0: no byte of this peer can move any more. -EBUSY: it holds its slot, and lives. */
static int pair_wait(struct pair *p, int start)
{
	char buf[16];

	while (atomic_load(&p->seg->slot) == KEY) {
		struct pollfd fds[] = { { p->pidfd, POLLIN, 0 }, { p->kick, POLLIN, 0 } };

		if (atomic_load(live_word(p->seg)) & FUTEX_OWNER_DIED)
			return 0;
		CHECK(poll(fds, 2, test_clock.step ? 0 : -1) >= 0);
		if (fds[0].revents)
			return 0;
		if (fds[1].revents & POLLIN)
			CHECK(read(p->kick, buf, sizeof(buf)) > 0);
		else if (fds[1].revents) {	/* hung up is not dead: fds can be closed */
			close(p->kick);
			p->kick = -1;
		}
		test_clock.now += test_clock.step;
		if (test_clock.now - start >= LIMIT)
			return -EBUSY;
	}
	return 0;
}

/* dereg: on failure *holder is the pair that held it up, and every entry is open again. */
static int key_revoke(struct pair *pairs, int n, int *holder)
{
	int r = 0, start = test_clock.now;

	for (int i = 0; i < n; i++)
		atomic_store(&pairs[i].seg->entry, OPEN & ~(uint64_t)1);
	for (int i = 0; i < n && r == 0; i++) {
		if (!pairs[i].engines || !pairs[i].granted)
			continue;
		r = pair_wait(&pairs[i], start);
		if (r)
			*holder = i;
	}
	for (int i = 0; i < n && r; i++)
		atomic_store(&pairs[i].seg->entry, OPEN);
	return r;
}

static int failures;

static void report(bool good, const char *what)
{
	printf("%sok - %s\n", good ? "" : "not ", what);
	failures += !good;
}

static int revoke_at(struct pair *p, int n, int step, int *holder)
{
	test_clock.now = 0;
	test_clock.step = step;
	*holder = -1;
	return key_revoke(p, n, holder);
}

static void await_exit(struct pair *p, int what)
{
	siginfo_t si;

	CHECK(waitid(P_PID, (id_t)p->pid, &si, what | WNOWAIT) == 0);
}

static bool exited(struct pair *p)
{
	struct pollfd fd = { p->pidfd, POLLIN, 0 };

	return poll(&fd, 1, 0) == 1;
}

static void test_leaves(void)
{
	struct pair p;
	int h;

	pair_open(&p, HONEST);
	CHECK(write(p.go, "", 1) == 1);
	int r = revoke_at(&p, 1, 0, &h);

	report(r == 0 && p.seg->region[0] == 'a' && p.seg->region[1] == 'b' && !exited(&p),
	       "the wait ends when the peer leaves its slot");
	pair_close(&p);
}

static void test_killed(void)
{
	struct pair p;
	int h, pidfd;

	pair_open(&p, SPOILED);
	kill(p.pid, SIGKILL);
	report(revoke_at(&p, 1, 0, &h) == 0 && exited(&p) && atomic_load(&p.seg->slot) == KEY,
	       "killed in its slot with a spoiled liveness word: the pidfd ends the wait");
	pair_close(&p);

	pair_open(&p, HONEST);
	report(revoke_at(&p, 1, 1, &h) == -EBUSY, "alive in its slot: busy");
	kill(p.pid, SIGKILL);
	await_exit(&p, WEXITED);
	pidfd = p.pidfd;
	p.pidfd = -1;
	report(revoke_at(&p, 1, 1, &h) == 0 && test_clock.now == 0,
	       "killed in its slot: the liveness word alone ends the wait");
	p.pidfd = pidfd;
	pair_close(&p);
}

static void exec_in_slot(struct pair *p, enum mode mode)
{
	char c;

	pair_open(p, mode);
	CHECK(write(p->go, "", 1) == 1);
	CHECK(read(p->held, &c, 1) == 0);
}

static void test_exec(void)
{
	struct pair p;
	int h;

	exec_in_slot(&p, EXEC);
	report(revoke_at(&p, 1, 1, &h) == 0 && test_clock.now == 0 && !exited(&p),
	       "exec in its slot: the liveness word says dead, the pidfd does not");
	pair_close(&p);

	exec_in_slot(&p, EXEC_SPOILED);
	report(revoke_at(&p, 1, 1, &h) == -EBUSY && h == 0,
	       "exec in its slot with a spoiled liveness word: busy until it exits");
	kill(p.pid, SIGKILL);
	report(revoke_at(&p, 1, 0, &h) == 0, "... and then free");
	pair_close(&p);
}

static void test_stopped(void)
{
	struct pair p;
	int h;

	pair_open(&p, HONEST);
	kill(p.pid, SIGSTOP);
	await_exit(&p, WSTOPPED);
	CHECK(write(p.go, "", 1) == 1);
	report(revoke_at(&p, 1, 1, &h) == -EBUSY && h == 0 && test_clock.now == LIMIT,
	       "stopped in its slot: busy at the limit, and the holder is named");
	report(atomic_load(&p.seg->entry) == OPEN && p.seg->region[1] == 0,
	       "... the object is whole");
	kill(p.pid, SIGCONT);
	report(revoke_at(&p, 1, 0, &h) == 0 && p.seg->region[1] == 'b',
	       "... and goes once the peer ran on and left");
	pair_close(&p);

	pair_open(&p, HONEST);
	kill(p.pid, SIGSTOP);
	await_exit(&p, WSTOPPED);
	kill(p.pid, SIGKILL);
	report(revoke_at(&p, 1, 0, &h) == 0, "stopped, then killed: the wait ends");
	pair_close(&p);
}

static void test_forged(void)
{
	struct pair p[2];
	int h;

	pair_open(&p[0], SPOILED);	/* never leaves: nobody says go */
	pair_open(&p[1], HONEST);
	CHECK(write(p[1].go, "", 1) == 1);
	CHECK(revoke_at(&p[1], 1, 0, &h) == 0);
	report(revoke_at(p, 2, 1, &h) == -EBUSY && h == 0,
	       "a slot that names the key for ever delays a key that its pair was told");
	p[0].granted = false;
	report(revoke_at(p, 2, 1, &h) == 0 && test_clock.now == 0,
	       "... and no key that only another pair was told");
	p[0].granted = true;
	p[0].engines = false;
	report(revoke_at(p, 2, 1, &h) == 0 && test_clock.now == 0,
	       "a stranger's forged slot is not looked at");
	pair_close(&p[0]);
	pair_close(&p[1]);

	pair_open(&p[0], FAKE_DEATH);
	report(revoke_at(p, 1, 1, &h) == 0 && test_clock.now == 0,
	       "a peer that says it is dead is taken at its word");
	pair_close(&p[0]);
}

int main(void)
{
	alarm(30);
	test_leaves();
	test_killed();
	test_exec();
	test_stopped();
	test_forged();
	return failures != 0;
}
