/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What children do to their parents: nothing, however they were made, and whatever the parent's threads were doing at that
 * moment. And what they can do for themselves: open the device anew. Reports D11, D13 and D15. One case a run; an argument
 * after the name is the number of rounds.
 */
#include "tests/e2e/fork.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#undef ibv_reg_mr

static unsigned rounds = 1000;

/* A whole life of its own. */
static void own_life(uint8_t byte)
{
	struct things own;

	things_open(&own);
	things_use(&own, byte);
	things_close(&own);
}

/* --- D15: the child and its parent's objects ----------------------------------------------------------------------- */

static pid_t raw_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void inert_in(pid_t (*make)(void))
{
	struct things t;
	pid_t pid;

	things_open(&t);
	things_use(&t, 1);
	pid = make();
	if (pid == 0) {
		child_limit();
		things_inert(&t);
		exit(0); /* with every exit handler */
	}
	child_ends(pid);
	things_use(&t, 2);
	things_close(&t);
}

static void d15_fork(void)
{
	inert_in(fork);
}

static void d15_fork_after_init(void)
{
	NEED(ibv_fork_init() == 0);
	inert_in(fork);
}

static void d15_fork_without_handlers(void)
{
	inert_in(_Fork);
}

static void d15_clone(void)
{
	inert_in(raw_clone);
}

static int in_borrowed_memory(void *arg)
{
	int n;

	REFUSED(ibv_get_device_list(&n), ENOTCONN);
	NEED(ibv_fork_init() == ENOTCONN);
	things_inert_control(arg);
	_exit(0);
}

/* A child that shares its parent's memory: what it does, it does there. */
static void d15_vfork(void)
{
	size_t size = 256 << 10;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	struct things t;

	NEED(stack != MAP_FAILED);
	things_open(&t);
	things_use(&t, 1);
	child_ends(clone(in_borrowed_memory, stack + size, CLONE_VM | CLONE_VFORK | SIGCHLD, &t));
	things_use(&t, 2);
	things_close(&t);
}

/* Its parent goes first, and closes everything: the child's copies stay what they are. */
static void d15_the_parent_goes_first(void)
{
	struct things t;
	int fds[2];
	char byte;

	NEED(pipe(fds) == 0);
	things_open(&t);

	pid_t pid = fork();

	if (pid == 0) {
		child_limit();
		close(fds[1]);
		NEED(read(fds[0], &byte, 1) == 0);
		things_inert(&t);
		own_life(3);
		exit(0);
	}
	things_close(&t);
	close(fds[1]);
	child_ends(pid);
}

/* --- a life of its own --------------------------------------------------------------------------------------------- */

/* Servers look at the device, use it, and fork workers that use it too. */
static void children_open_anew(void)
{
	struct things t;
	pid_t (*const makers[])(void) = { fork, _Fork, raw_clone };

	things_open(&t);
	things_use(&t, 1);
	for (unsigned i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		pid_t pid = makers[i]();

		if (pid == 0) {
			child_limit();

			struct things own;

			things_open(&own);
			things_use(&own, 5);
			things_inert(&t);

			pid_t grandchild = makers[i]();

			if (grandchild == 0) {
				child_limit();
				things_inert(&own);
				things_inert(&t);
				own_life(6);
				exit(0);
			}
			things_use(&own, 7);
			child_ends(grandchild);
			things_use(&own, 8);
			things_close(&own);
			exit(0);
		}
		things_use(&t, 2);
		child_ends(pid);
	}
	things_use(&t, 3);
	things_close(&t);
}

/* The same after everything was closed, with the list and its devices from before. */
static void children_of_one_that_closed(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0]);
	own_life(1);

	pid_t pid = fork();

	if (pid == 0) {
		child_limit();

		struct ibv_context *ctx = ibv_open_device(list[0]);

		NEED(ctx);
		NEED(ibv_close_device(ctx) == 0);
		ibv_free_device_list(list);
		own_life(2);
		exit(0);
	}
	child_ends(pid);
	ibv_free_device_list(list);
	own_life(3);
}

/* A child of a parent that asked for it has it too. */
static void children_inherit_fork_init(void)
{
	struct things t;

	NEED(ibv_fork_init() == 0);
	things_open(&t);

	pid_t pid = fork();

	if (pid == 0) {
		child_limit();

		struct things own;

		NEED(ibv_fork_init() == 0);
		things_open(&own);
		NEED(page_out(own.memory));
		things_use(&own, 1);
		things_close(&own);
		exit(0);
	}
	child_ends(pid);
	things_close(&t);
}

/* Not asked for in the parent, asked for in the child, which has registered nothing. */
static void children_ask_for_themselves(void)
{
	struct things t;

	things_open(&t);
	NEED(ibv_fork_init() == EINVAL);

	pid_t pid = fork();

	if (pid == 0) {
		NEED(ibv_fork_init() == 0);
		own_life(1);
		exit(0);
	}
	child_ends(pid);
	things_close(&t);
}

/* What the context's fd gives a right to, a child has by inheritance. */
static void children_import(void)
{
	struct things t;

	things_open(&t);

	pid_t pid = fork();

	if (pid == 0) {
		child_limit();

		struct ibv_context *ctx = ibv_import_device(t.end.ctx->cmd_fd);

		NEED(ctx);

		struct ibv_pd *pd = ibv_import_pd(ctx, t.end.pd->handle);

		NEED(pd);

		struct ibv_mr *mr = ibv_import_mr(pd, t.region->handle);

		NEED(mr && mr->rkey == t.region->rkey);
		ibv_unimport_mr(mr);
		ibv_unimport_pd(pd);
		NEED(ibv_close_device(ctx) == 0);
		exit(0);
	}
	child_ends(pid);
	things_use(&t, 4);
	things_close(&t);
}

/* --- other children ------------------------------------------------------------------------------------------------ */

static void ways(struct things *t)
{
	char name[] = "true", *argv[] = { name, NULL };
	pid_t pid;
	FILE *pipe;

	NEED(system("true") == 0);
	things_use(t, 1);
	pipe = popen("true", "r");
	NEED(pipe && pclose(pipe) == 0);
	things_use(t, 2);
	NEED(posix_spawnp(&pid, name, NULL, NULL, argv, environ) == 0);
	child_ends(pid);
	things_use(t, 3);
	/* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): it is what is tested */
	pid = vfork();
	if (pid == 0) {
		execvp(name, argv);
		_exit(1);
	}
	child_ends(pid);
	things_use(t, 4);
	pid = fork();
	if (pid == 0) {
		execvp(name, argv);
		_exit(1);
	}
	child_ends(pid);
	things_use(t, 5);
}

static void ways_to_make_children(void)
{
	struct things t;

	things_open(&t);
	ways(&t);
	things_close(&t);
}

static void ways_after_init(void)
{
	NEED(ibv_fork_init() == 0);
	ways_to_make_children();
}

/* --- D13 ----------------------------------------------------------------------------------------------------------- */

static void daemon_says(const char *what, int fd)
{
	NEED(write(fd, what, strlen(what)) == (ssize_t)strlen(what));
}

static void becomes_a_daemon(void)
{
	struct things t;
	int fds[2];
	char text[8] = "";

	things_open(&t);
	things_use(&t, 1);
	NEED(pipe(fds) == 0);

	pid_t pid = fork();

	if (pid == 0) {
		/* In this one everything is opened, and then it becomes a daemon, whose parent ends. */
		struct things own;

		child_limit();
		things_open(&own);
		NEED(daemon(1, 1) == 0);
		child_limit();
		things_inert(&own);
		things_inert(&t);
		own_life(2);
		daemon_says("works", fds[1]);
		exit(0);
	}
	close(fds[1]);
	child_ends(pid);
	NEED(read(fds[0], text, sizeof(text)) == 5 && strcmp(text, "works") == 0);
	things_use(&t, 3);
	things_close(&t);
}

static void d13_daemon(void)
{
	becomes_a_daemon();
}

static void d13_daemon_after_init(void)
{
	NEED(ibv_fork_init() == 0);
	becomes_a_daemon();
}

/* --- D11: traffic while children come and go ----------------------------------------------------------------------- */

struct target {
	uint64_t addr;
	uint32_t rkey;
};

static _Atomic bool stop;

static void peer_of_traffic(int fd, void *arg)
{
	uint8_t *mem = aligned_alloc(PAGE, MEMORY);
	struct end end;

	NEED(mem);
	end_open(&end);

	struct ibv_mr *mr = ibv_reg_mr(end.pd, mem, MEMORY, ALL_ACCESS);
	struct target target = { (uintptr_t)mem, mr ? mr->rkey : 0 };

	NEED(mr);
	end_meet(&end, fd);
	say(fd, &target, sizeof(target));
	nod_wait(fd);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

struct sender {
	struct end end;
	struct target target;
	uint8_t *mem; /* MEMORY to send from, MEMORY to read into */
	struct ibv_mr *mr;
	_Atomic unsigned n;
};

static void *sender_run(void *arg)
{
	struct sender *s = arg;

	for (unsigned n = 0; !stop; n++) {
		uint32_t length = 1 + n * 7919 % MEMORY;
		struct work work = { IBV_WR_RDMA_WRITE, (uintptr_t)s->mem, length, s->mr->lkey, s->target.addr,
				     s->target.rkey, 0, 0 };

		for (uint32_t i = 0; i < length; i++)
			s->mem[i] = (uint8_t)(n + i * 31);
		NEED(end_work(&s->end, &work) == IBV_WC_SUCCESS);
		memset(s->mem + MEMORY, 0, length);
		work.opcode = IBV_WR_RDMA_READ;
		work.addr = (uintptr_t)s->mem + MEMORY;
		NEED(end_work(&s->end, &work) == IBV_WC_SUCCESS);
		NEED(memcmp(s->mem, s->mem + MEMORY, length) == 0);
		s->n = n + 1;
	}
	return NULL;
}

static void traffic_while_forking(void)
{
	struct child peer = child_start(peer_of_traffic, NULL);
	struct sender s = { .mem = aligned_alloc(PAGE, 2 * MEMORY) };
	pthread_t thread;

	NEED(s.mem);
	end_open(&s.end);
	NEED(s.mr = ibv_reg_mr(s.end.pd, s.mem, 2 * MEMORY, ALL_ACCESS));
	end_meet(&s.end, peer.fd);
	hear(peer.fd, &s.target, sizeof(s.target));
	NEED(pthread_create(&thread, NULL, sender_run, &s) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			/* What workers do first. */
			free(malloc(5000));
			if (i % 2)
				_exit(0);
			exit(0);
		}
		child_ends(pid);
	}
	/* All of it was in mid-traffic. */
	while (s.n < 100)
		sched_yield();
	stop = true;
	pthread_join(thread, NULL);
	nod(peer.fd);
	child_end(&peer);
	NEED(ibv_dereg_mr(s.mr) == 0);
	end_close(&s.end);
}

static void d11_traffic(void)
{
	traffic_while_forking();
}

static void d11_traffic_after_init(void)
{
	NEED(ibv_fork_init() == 0);
	traffic_while_forking();
}

/* --- many threads -------------------------------------------------------------------------------------------------- */

static void *list_run(void *arg)
{
	while (!stop) {
		struct ibv_device **list = ibv_get_device_list(NULL);

		NEED(list);
		ibv_free_device_list(list);
	}
	return NULL;
}

static void *register_run(void *arg)
{
	struct things *t = arg;
	uint8_t *mem = aligned_alloc(PAGE, 16 * PAGE);

	NEED(mem);
	for (unsigned i = 0; !stop; i++) {
		struct ibv_mr *mr = ibv_reg_mr(t->end.pd, mem + i % PAGE, 8 * PAGE, ALL_ACCESS);

		NEED(mr && ibv_dereg_mr(mr) == 0);
	}
	free(mem);
	return NULL;
}

static void *use_run(void *arg)
{
	for (uint8_t i = 0; !stop; i++)
		things_use(arg, i);
	return NULL;
}

static void *open_run(void *arg)
{
	while (!stop) {
		struct end end;

		end_open(&end);
		end_close(&end);
	}
	return NULL;
}

static void *sleep_run(void *arg)
{
	struct things *t = arg;
	struct ibv_cq *cq;
	void *context;

	/* For ever: no completion comes there. */
	ibv_get_cq_event(t->channel, &cq, &context);
	return NULL;
}

/* Threads are everywhere in the library when their process forks. */
static void children_of_many_threads(void)
{
	void *(*const runs[])(void *) = { list_run, register_run, use_run, open_run };
	pthread_t threads[sizeof(runs) / sizeof(runs[0])], sleeper;
	static struct things t; /* the sleeper has it until the end of the process */

	NEED(ibv_fork_init() == 0);
	things_open(&t);
	NEED(pthread_create(&sleeper, NULL, sleep_run, &t) == 0);
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		NEED(pthread_create(&threads[i], NULL, runs[i], &t) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			child_limit();
			things_inert(&t);
#ifndef VERBSD_SANITIZED
			/* AddressSanitizer's allocator may be locked for ever in the child of a process with threads. */
			if (i % 4 == 0)
				own_life((uint8_t)i);
#endif
			if (i % 2)
				_exit(0);
			exit(0);
		}
		child_ends(pid);
	}
	stop = true;
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		pthread_join(threads[i], NULL);
	things_use(&t, 9);
}

static const struct end_case cases[] = {
	{ "d15-fork", d15_fork },
	{ "d15-fork-after-init", d15_fork_after_init },
	{ "d15-fork-without-handlers", d15_fork_without_handlers },
	{ "d15-clone", d15_clone },
	{ "d15-vfork", d15_vfork },
	{ "d15-the-parent-goes-first", d15_the_parent_goes_first },
	{ "children-open-anew", children_open_anew },
	{ "children-of-one-that-closed", children_of_one_that_closed },
	{ "children-inherit-fork-init", children_inherit_fork_init },
	{ "children-ask-for-themselves", children_ask_for_themselves },
	{ "children-import", children_import },
	{ "ways-to-make-children", ways_to_make_children },
	{ "ways-after-init", ways_after_init },
	{ "d13-daemon", d13_daemon },
	{ "d13-daemon-after-init", d13_daemon_after_init },
	{ "d11-traffic", d11_traffic },
	{ "d11-traffic-after-init", d11_traffic_after_init },
	{ "children-of-many-threads", children_of_many_threads },
};

int main(int argc, char **argv)
{
	/* A sanitizer starts its symbolizer with our environment, and that program cannot load an instrumented library. */
	unsetenv("LD_PRELOAD");
	if (argc == 3)
		rounds = (unsigned)strtoul(argv[2], NULL, 10);
	return end_main(argc == 3 ? 2 : argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
