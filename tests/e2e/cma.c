/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cma engine between two processes with ordinary memory: where the kernel and the policy let it, and where one of them does
 * not. The traffic is the same everywhere: WRITEs, READs, and SENDs of which long ones are fetched, from each end to the other;
 * every byte has to be right and every completion a success. Which way it took, each end proves by its counters.
 */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/map.h"

#define SIZE	(32u << 20)
#define HALF	(SIZE / 2)
#define LONGEST (4u << 20) /* longer SENDs are not fetched */
#define NOBODY	65534
#define OTHER	65533

static const uint32_t lengths[] = { 8, 4096, 16392, 65544, 1u << 20, LONGEST };

#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))
#define N_LONG	  (N_LENGTHS - 2) /* a SEND of that length is fetched */

/* At one address in every process that is forked here. */
static uint8_t memory[SIZE] __attribute__((aligned(4096)));

/* --- an end ------------------------------------------------------------------------------------------------------------- */

struct place {
	struct end end;
	struct ibv_mr *mr;
	uint32_t rkey;	 /* the peer's */
	uint64_t remote; /* where its memory is */
};

/* What this process did itself. */
struct counts {
	uint64_t run, pulled;
};

static struct counts counts_now(void)
{
	return (struct counts){ runs(), counted(VSD_COUNT_PULLED) };
}

static void work(struct place *place, enum ibv_wr_opcode opcode, uint32_t length)
{
	NEED(end_work(&place->end, &(struct work){ opcode, (uintptr_t)memory, length, place->mr->lkey, place->remote, place->rkey,
					   0, 0 }) == IBV_WC_SUCCESS);
}

/* Connected, and the first message, which always takes the lane, is done. */
static void place_open(struct place *place, int fd)
{
	uint64_t where = (uintptr_t)memory;

	end_open(&place->end);
	place->mr = ibv_reg_mr(place->end.pd, memory, SIZE, ALL_ACCESS);
	NEED(place->mr);
	end_meet(&place->end, fd);
	say(fd, &place->mr->rkey, sizeof(place->mr->rkey));
	say(fd, &where, sizeof(where));
	hear(fd, &place->rkey, sizeof(place->rkey));
	hear(fd, &place->remote, sizeof(place->remote));
	work(place, IBV_WR_RDMA_WRITE, 8);
	nod(fd);
	nod_wait(fd);
}

static void place_close(struct place *place)
{
	NEED(ibv_dereg_mr(place->mr) == 0);
	end_close(&place->end);
}

/* --- traffic ------------------------------------------------------------------------------------------------------------ */

static void clear(void)
{
	memset(memory, 0, LONGEST + 1);
}

static void expect_and_clear(uint32_t length, uint64_t seed)
{
	NEED(filled(memory, length, seed));
	NEED(!memory[length]);
	clear();
}

/* Writes to the peer, reads from it, and gets a message, of each length. */
static void ask(struct place *self, int fd)
{
	for (unsigned i = 0; i < N_LENGTHS; i++) {
		uint32_t length = lengths[i];

		nod_wait(fd); /* there is nothing left of what was before */
		clear();
		fill(memory, length, i);
		work(self, IBV_WR_RDMA_WRITE, length);
		clear();
		nod(fd);
		nod_wait(fd);
		work(self, IBV_WR_RDMA_READ, length);
		expect_and_clear(length, i + 100);
		end_recv(&self->end, (uintptr_t)memory, SIZE, self->mr->lkey);
		nod(fd);
		NEED(end_wait(&self->end) == IBV_WC_SUCCESS);
		expect_and_clear(length, i + 200);
	}
}

static void serve(struct place *self, int fd)
{
	for (unsigned i = 0; i < N_LENGTHS; i++) {
		uint32_t length = lengths[i];

		clear();
		nod(fd);
		nod_wait(fd);
		expect_and_clear(length, i);
		fill(memory, length, i + 100);
		nod(fd);
		nod_wait(fd);
		fill(memory, length, i + 200);
		work(self, IBV_WR_SEND, length);
	}
}

static void need_used(struct counts before, struct counts after, bool used)
{
	if (used) {
		NEED(after.run == before.run + 2 * N_LENGTHS);
		NEED(after.pulled >= before.pulled + N_LONG);
	} else {
		NEED(after.run == before.run);
		NEED(after.pulled == before.pulled);
	}
}

/* Both ways; @used: this end is to copy by itself, and else not once. @first: it asks first. */
static void talk(struct place *self, int fd, bool first, bool used)
{
	struct counts before = counts_now();

	if (first)
		ask(self, fd);
	serve(self, fd);
	if (!first)
		ask(self, fd);
	need_used(before, counts_now(), used);
}

/* --- settings ----------------------------------------------------------------------------------------------------------- */

/* No thread of this process, and no child, may have the kernel copy: it is told @error. */
static void forbid(int error)
{
#define REFUSE(number) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		REFUSE(SYS_process_vm_readv),
		REFUSE(SYS_process_vm_writev),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
		end_skip("no seccomp filter here");
	NEED(copy_refused(getpid()) == error);
}

/* The kernel asks for more than the same user, as it does within a ptrace scope. */
static void hide(void)
{
	NEED(prctl(PR_SET_DUMPABLE, 0) == 0);
}

/* A process that changes its user cannot be read by others any more, which is not what is tested then. */
static void become(uid_t uid)
{
	NEED(setgroups(0, NULL) == 0);
	NEED(setresgid(uid, uid, uid) == 0);
	NEED(setresuid(uid, uid, uid) == 0);
	NEED(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static void need_copies(void)
{
	if (!processes_may_copy())
		end_skip("processes may not read and write each other here");
}

static void need_root(void)
{
	if (geteuid() != 0)
		end_skip("several users and namespaces need root");
}

struct peer {
	void (*before)(void); /* it knows the daemon */
	void (*then)(void);   /* it is connected */
	bool used;
};

static void peer_main(int fd, void *arg)
{
	const struct peer *peer = arg;
	struct place self;

	if (peer->before)
		peer->before();
	place_open(&self, fd);
	if (peer->then)
		peer->then();
	nod(fd);
	talk(&self, fd, false, peer->used);
	nod(fd);
	nod_wait(fd);
	place_close(&self);
}

/* @refused: what the kernel has to say to this process. */
static void talk_to(struct child *child, int refused, bool used)
{
	struct place self;

	place_open(&self, child->fd);
	nod_wait(child->fd);
	NEED(copy_refused(child->pid) == refused);
	talk(&self, child->fd, true, used);
	nod_wait(child->fd);
	nod(child->fd);
	child_end(child);
	place_close(&self);
}

static void it_is_what_runs_by_itself(void)
{
	struct child child;

	need_copies();
	child = child_start(peer_main, &(struct peer){ .used = true });
	talk_to(&child, 0, true);
}

static void it_is_what_runs_when_forced(void)
{
	struct child child;

	need_copies();
	NEED(setenv("VERBSD_ENGINE", "cma", 1) == 0);
	child = child_start(peer_main, &(struct peer){ .used = true });
	talk_to(&child, 0, true);
}

/* The other way round it is allowed. */
static void a_peer_that_may_not_be_read(void)
{
	struct child child;

	if (geteuid() == 0)
		end_skip("root may read everybody");
	need_copies();
	child = child_start(peer_main, &(struct peer){ .then = hide, .used = true });
	talk_to(&child, EPERM, false);
}

/* Nor by the daemon, which then takes it for a domain of its own. */
static void a_peer_that_nobody_may_read(void)
{
	struct child child;

	if (geteuid() == 0)
		end_skip("root may read everybody");
	need_copies();
	child = child_start(peer_main, &(struct peer){ .before = hide });
	talk_to(&child, EPERM, false);
}

static void under_a_filter(int says)
{
	struct child child;

	need_copies();
	forbid(says);
	child = child_start(peer_main, &(struct peer){ .used = false });
	talk_to(&child, says, false);
}

static void a_filter_says_not_permitted(void)
{
	under_a_filter(EPERM);
}

static void a_filter_says_no_such_call(void)
{
	under_a_filter(ENOSYS);
}

static void a_filter_when_forced(void)
{
	NEED(setenv("VERBSD_ENGINE", "cma", 1) == 0);
	a_filter_says_not_permitted();
}

/* What one end may not do the other one does. */
static void a_filter_at_one_end(void)
{
	struct child child;

	need_copies();
	child = child_start(peer_main, &(struct peer){ .used = true });
	forbid(EPERM);
	talk_to(&child, EPERM, false);
}

static void switched_off(void)
{
	struct child child;

	need_copies();
	child = child_start(peer_main, &(struct peer){ .used = false });
	talk_to(&child, 0, false);
}

/* --- in the middle of traffic ------------------------------------------------------------------------------------------- */

#define SENDS  8u
#define WRITES 2u
#define PIECE  (HALF / SENDS)

static void post(struct place *self, enum ibv_wr_opcode opcode, uint32_t off, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + off, length, self->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	if (opcode == IBV_WR_RDMA_WRITE) {
		wr.wr.rdma.remote_addr = self->remote + off;
		wr.wr.rdma.rkey = self->rkey;
	}
	NEED(ibv_post_send(self->end.qp, &wr, &bad) == 0);
}

static void wait_for(struct place *self, unsigned n)
{
	while (n--)
		NEED(end_wait(&self->end) == IBV_WC_SUCCESS);
}

/* Is written to in the lower half of its memory, and sends the upper one. */
static void unfiltered(int fd, void *arg)
{
	struct place self;

	(void)arg;
	place_open(&self, fd);
	talk(&self, fd, false, true);
	memset(memory, 0, HALF);
	fill(memory + HALF, HALF, 2);
	nod(fd);
	nod_wait(fd);
	for (unsigned i = 0; i < SENDS; i++)
		post(&self, IBV_WR_SEND, HALF + i * PIECE, PIECE);
	wait_for(&self, SENDS);
	nod_wait(fd);
	NEED(filled(memory, HALF, 1) && filled(memory + HALF, HALF, 2));
	talk(&self, fd, false, true);
	nod(fd);
	nod_wait(fd);
	place_close(&self);
}

/*
 * A post does not copy all of the first WRITE, so the rest is refused, most likely, and the lane begins anew with it. At least one
 * SEND was fetched by then.
 */
static void filter_in_between(struct place *self, int fd)
{
	struct counts before = counts_now(), after;

	nod(fd);
	wait_for(self, 1);
	post(self, IBV_WR_RDMA_WRITE, 0, HALF);
	post(self, IBV_WR_RDMA_WRITE, PIECE, PIECE);
	forbid(EPERM);
	wait_for(self, SENDS - 1 + WRITES);
	after = counts_now();
	NEED(after.pulled > before.pulled);
	printf("# until then: %u of %u WRITEs, %u of %u SENDs\n", (unsigned)(after.run - before.run), WRITES,
		(unsigned)(after.pulled - before.pulled), SENDS);
}

static void a_filter_in_the_middle(void)
{
	struct child child;
	struct place self;

	need_copies();
	child = child_start(unfiltered, NULL);
	place_open(&self, child.fd);
	talk(&self, child.fd, true, true);
	nod_wait(child.fd);
	memset(memory, 0, SIZE);
	fill(memory, HALF, 1);
	for (unsigned i = 0; i < SENDS; i++)
		end_recv(&self.end, (uintptr_t)memory + HALF + i * PIECE, PIECE, self.mr->lkey);
	filter_in_between(&self, child.fd);
	NEED(filled(memory, HALF, 1) && filled(memory + HALF, HALF, 2));
	nod(child.fd);
	talk(&self, child.fd, true, false);
	nod_wait(child.fd);
	nod(child.fd);
	child_end(&child);
	place_close(&self);
}

/* --- other users and namespaces ------------------------------------------------------------------------------------------- */

static void become_other(void)
{
	become(OTHER);
}

static void another_user(void)
{
	struct child child;

	need_root();
	child = child_start(peer_main, &(struct peer){ .before = become_other });
	become(NOBODY);
	talk_to(&child, EPERM, false);
}

static void ends_well(pid_t pid)
{
	int status;

	NEED(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void namespace_begin(void)
{
	if (unshare(CLONE_NEWPID) < 0)
		end_skip("no pid namespaces here");
}

/* Its child is the peer, alone in a namespace. */
static void elsewhere(int fd, void *arg)
{
	pid_t pid;

	(void)arg;
	namespace_begin();
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		nod_wait(fd);
		become(NOBODY);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		nod(fd);
		peer_main(fd, &(struct peer){ .used = false });
		exit(0);
	}
	say(fd, &pid, sizeof(pid));
	ends_well(pid);
}

static void another_pid_namespace(void)
{
	struct child child;
	struct place self;
	pid_t pid;

	need_root();
	child = child_start(elsewhere, NULL);
	become(NOBODY);
	hear(child.fd, &pid, sizeof(pid));
	nod(child.fd);
	nod_wait(child.fd);
	/* The kernel would. */
	NEED(copy_refused(pid) == 0);
	place_open(&self, child.fd);
	nod_wait(child.fd);
	talk(&self, child.fd, true, false);
	nod_wait(child.fd);
	nod(child.fd);
	child_end(&child);
	place_close(&self);
}

/*
 * A namespace that sees the /proc of the one above: what that says is the number of another process here, with memory of its own
 * at the same address.
 */
static pid_t stranger_start(pid_t number)
{
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
	int fds[2];
	long pid;

	NEED(pipe(fds) == 0);
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		end_skip("no process gets a number of its choice here");
	if (pid == 0) {
		become(NOBODY);
		memset(memory, 0xdd, SIZE);
		nod(fds[1]);
		for (;;)
			pause();
	}
	NEED(read(fds[0], &(char){ 0 }, 1) == 1);
	close(fds[0]);
	close(fds[1]);
	return (pid_t)pid;
}

static pid_t number_in_proc(void)
{
	char text[32] = "";

	NEED(readlink("/proc/self", text, sizeof(text) - 1) > 0);
	return (pid_t)atoi(text);
}

static void numbered_peer(int fd, void *arg)
{
	pid_t number = number_in_proc();

	become(NOBODY);
	say(fd, &number, sizeof(number));
	nod_wait(fd);
	peer_main(fd, arg);
}

static void below(void)
{
	struct child child = child_start(numbered_peer, &(struct peer){ .used = false });
	pid_t number;

	hear(child.fd, &number, sizeof(number));
	NEED(number != child.pid);
	number = stranger_start(number);
	become(NOBODY);
	NEED(copy_refused(number) == 0);
	nod(child.fd);
	talk_to(&child, 0, false);
}

static void another_number_in_proc(void)
{
	pid_t pid;

	need_root();
	namespace_begin();
	fflush(NULL);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		below();
		exit(0);
	}
	ends_well(pid);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "it-is-what-runs-by-itself", it_is_what_runs_by_itself },
		{ "it-is-what-runs-when-forced", it_is_what_runs_when_forced },
		{ "a-peer-that-may-not-be-read", a_peer_that_may_not_be_read },
		{ "a-peer-that-nobody-may-read", a_peer_that_nobody_may_read },
		{ "a-filter-says-not-permitted", a_filter_says_not_permitted },
		{ "a-filter-says-no-such-call", a_filter_says_no_such_call },
		{ "a-filter-when-forced", a_filter_when_forced },
		{ "a-filter-at-one-end", a_filter_at_one_end },
		{ "a-filter-in-the-middle", a_filter_in_the_middle },
		{ "switched-off", switched_off },
		{ "another-user", another_user },
		{ "another-pid-namespace", another_pid_namespace },
		{ "another-number-in-proc", another_number_in_proc },
	};

	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
