/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that children never have, memory that is none of the library's business, and pages of another size (D6, D7). One case
 * a run.
 */
#include "tests/e2e/fork.h"

#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#undef ibv_reg_mr

#define HUGE (2u << 20)

static void begin(void)
{
	struct ibv_context *ctx = end_device();

	NEED(case_pd = ibv_alloc_pd(ctx));
}

/* --- the library's own --------------------------------------------------------------------------------------------- */

/*
 * Mappings of files of the daemon's: wires, pages, regions. How many there are, and in *@out how many of them are out of
 * children (the progress thread may be in the middle of making one).
 */
static unsigned own_mappings(unsigned *out)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	bool own = false;
	unsigned n = 0, kept_out = 0;
	char line[1024];

	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		uintptr_t from, to;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
			own = strstr(line, "/memfd:verbsd");
			n += own;
		} else if (own && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dc ")) {
			kept_out++;
		}
	}
	fclose(file);
	if (out)
		*out = kept_out;
	return n;
}

static void peer_of_own(int fd, void *arg)
{
	struct end end;

	end_open(&end);
	end_meet(&end, fd);
	nod_wait(fd);
	end_close(&end);
}

/* Whether ibv_fork_init() was called or not. */
static void own_memory(void)
{
	struct child peer = child_start(peer_of_own, NULL);
	struct things t;
	struct end end;
	unsigned n, out;

	things_open(&t);
	end_open(&end);
	end_meet(&end, peer.fd);

	struct ibv_mr *region = verbsd_alloc_mr(t.end.pd, &(struct verbsd_mr_attr){ .size = 1 << 20 });

	NEED(region);
	/* Page, map, segment, the peer's page, two regions: the daemon's word of the peer comes when it comes. */
	while ((n = own_mappings(&out)) < 6 || out < 6)
		sched_yield();
	NEED(out == n);

	pid_t pid = fork();

	if (pid == 0)
		_exit(own_mappings(NULL) != 0);
	child_ends(pid);
	/* One that is made without the handlers of fork(). */
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		_exit(own_mappings(NULL) != 0);
	child_ends(pid);
	NEED(ibv_dereg_mr(region) == 0);
	nod(peer.fd);
	child_end(&peer);
	end_close(&end);
	things_close(&t);
}

static void own_memory_after_init(void)
{
	NEED(ibv_fork_init() == 0);
	own_memory();
}

struct arena {
	uint8_t *at, *end;
};

static void *arena_alloc(struct ibv_pd *domain, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct arena *arena = context;
	uint8_t *buf = (uint8_t *)(((uintptr_t)arena->at + alignment - 1) & ~(uintptr_t)(alignment - 1));

	if (size > (size_t)(arena->end - buf))
		return NULL;
	arena->at = buf + size;
	return buf;
}

static void arena_free(struct ibv_pd *domain, void *context, void *buf, uint64_t type)
{
}

/* Queues in memory of the program's are the program's. Shared memory, here: what a child does must not get there. */
static void the_programs_queues(void)
{
	size_t size = 1 << 20;
	uint8_t *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *copy = malloc(size);
	struct arena arena = { mem, mem + size };
	struct ibv_parent_domain_init_attr attr = {
		.alloc = arena_alloc, .free = arena_free, .pd_context = &arena,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct things t, in_it;

	NEED(ibv_fork_init() == 0);
	NEED(mem != MAP_FAILED && copy);
	things_open(&t);
	attr.pd = t.end.pd;
	in_it = t;
	NEED(in_it.end.pd = ibv_alloc_parent_domain(t.end.ctx, &attr));

	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
		.send_cq = t.end.cq, .recv_cq = t.end.cq, .qp_type = IBV_QPT_RC, .pd = in_it.end.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp_attr to_init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };
	struct end a = { .ctx = t.end.ctx, .pd = in_it.end.pd, .cq = t.end.cq }, b = { .ctx = t.end.ctx, .pd = t.end.pd };

	NEED(a.qp = ibv_create_qp_ex(t.end.ctx, &init));
	NEED(ibv_modify_qp(a.qp, &to_init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	end_qp(&b);
	end_connect(&a, end_here(&b));
	end_connect(&b, end_here(&a));
	NEED(arena.at > mem);
	NEED(!page_out(mem));
	in_it.end.qp = a.qp;

	/* A batch that is open when the process forks: the child cannot go on with it, the parent does. */
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(a.qp);

	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qpx, t.mr->rkey, (uintptr_t)t.memory + 8);
	memcpy(copy, mem, size);

	pid_t pid = fork();

	if (pid == 0) {
		child_limit();
		ibv_wr_set_sge(qpx, 1, 2, 3);
		NEED(ibv_wr_complete(qpx) != 0);
		things_inert(&in_it);
		_exit(0);
	}
	child_ends(pid);
	NEED(memcmp(copy, mem, size) == 0);
	t.memory[0] = 0x5a;
	ibv_wr_set_sge(qpx, t.mr->lkey, (uintptr_t)t.memory, 1);
	NEED(ibv_wr_complete(qpx) == 0);
	NEED(end_wait(&a) == IBV_WC_SUCCESS);
	NEED(t.memory[8] == 0x5a);
	NEED(ibv_destroy_qp(a.qp) == 0);
	end_qp_destroy(&b);
	NEED(ibv_dealloc_pd(in_it.end.pd) == 0);
	things_close(&t);
}

/* --- D6, D7: huge pages -------------------------------------------------------------------------------------------- */

static uint8_t *huge_pages(unsigned n)
{
	uint8_t *mem = mmap(NULL, (size_t)n * HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

	if (mem == MAP_FAILED)
		end_skip("no huge page is free, and who runs this cannot ask for some");
	memset(mem, 1, (size_t)n * HUGE);
	return mem;
}

static void d6_huge_pages(void)
{
	uint8_t *mem = huge_pages(3);

	NEED(ibv_fork_init() == 0);
	begin();

	struct ibv_mr *whole = reg(mem, 2 * HUGE), *part = reg(mem + 8192, 4096), *beyond = reg(mem + HUGE, HUGE + 4096);

	NEED(page_out(mem) && page_out(mem + HUGE) && !page_out(mem + 2 * HUGE));
	dereg(whole);
	NEED(!page_out(mem) && page_out(mem + HUGE) && !page_out(mem + 2 * HUGE));

	pid_t pid = fork();

	if (pid == 0) {
		memset(mem, 2, 8192);
		_exit(readable(mem + HUGE));
	}
	child_ends(pid);
	dereg(part);
	dereg(beyond);
	NEED(!page_out(mem) && !page_out(mem + HUGE));
	munmap(mem, 3 * HUGE);
}

static void on_open(int signal)
{
	static const char text[] = "a registration opened a file\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

/* From here on this process cannot open a file: it ends. */
static void forbid_open(void)
{
#define STOP(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		STOP(SYS_openat),
#ifdef SYS_open
		STOP(SYS_open),
#endif
		STOP(SYS_openat2),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	NEED(signal(SIGSYS, on_open) != SIG_ERR);
	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		end_skip("no seccomp filter here");
}

/* The reported cost was that of reading smaps: no registration opens it. */
static void d7_no_file_is_opened(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(4);

	dereg(reg(mem, PAGE)); /* whatever is done once */
	forbid_open();
	for (unsigned i = 0; i < 1000; i++)
		dereg(reg(mem + i, 2 * PAGE));
}

static void d7_no_file_is_opened_for_huge_pages(void)
{
	uint8_t *mem = huge_pages(2);

	NEED(ibv_fork_init() == 0);
	begin();
	dereg(reg(mem, PAGE));
	forbid_open();
	for (unsigned i = 0; i < 1000; i++) {
		struct ibv_mr *whole = reg(mem, HUGE), *part = reg(mem + 8192 + i, HUGE);

		dereg(i % 2 ? whole : part);
		dereg(i % 2 ? part : whole);
	}
}

static const struct end_case cases[] = {
	{ "own-memory", own_memory },
	{ "own-memory-after-init", own_memory_after_init },
	{ "the-programs-queues", the_programs_queues },
	{ "d6-huge-pages", d6_huge_pages },
	{ "d7-no-file-is-opened", d7_no_file_is_opened },
	{ "d7-no-file-is-opened-for-huge-pages", d7_no_file_is_opened_for_huge_pages },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
