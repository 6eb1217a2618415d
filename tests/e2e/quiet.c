/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls of a thread that polls, while its peer polls as well: there are none. A filter on that thread alone hands each call
 * to another thread, which counts it and lets it go on; nor is anybody kicked. One way to move data a run; rounds of 100 messages
 * each way, until each process had ten rounds without a call and a kick: in one in which a process lost its processor for long,
 * the other one kicks it, as it is to. Whatever makes a call for each operation, or for one of a hundred, has no such round.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/e2e/map.h"

enum { ROUND = 100, CLEAN = 10, ROUNDS = 1000, DEPTH = 8, PATIENCE = 200, PLACE = 65536 };
enum { SENT, RECEIVED, DONE };

struct way {
	const char *name;
	enum ibv_wr_opcode op; /* before each message; a SEND: nothing */
	uint32_t length;       /* of that, or of the message */
	bool map;	       /* in a shared region, which the initiator reaches itself */
	bool domain;	       /* objects stand under a thread domain */
};

static const struct way ways[] = {
	{ "sends", IBV_WR_SEND, 8, .map = false },
	{ "sends-in-slots", IBV_WR_SEND, 200, .map = false },
	{ "sends-in-chunks", IBV_WR_SEND, 4096, .map = false },
	{ "writes-by-stage", IBV_WR_RDMA_WRITE, 8, .map = false },
	{ "reads-by-stage", IBV_WR_RDMA_READ, 4096, .map = false },
	{ "atomics-by-stage", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, .map = false },
	{ "writes-by-map", IBV_WR_RDMA_WRITE, 8, .map = true },
	{ "long-writes-by-map", IBV_WR_RDMA_WRITE, PLACE, .map = true },
	{ "reads-by-map", IBV_WR_RDMA_READ, 4096, .map = true },
	{ "atomics-by-map", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, .map = true },
	{ "sends-in-a-domain", IBV_WR_SEND, 8, .domain = true },
	{ "writes-by-map-in-a-domain", IBV_WR_RDMA_WRITE, 8, .map = true, .domain = true },
};

static const struct way *way;
static struct end end;
static struct ibv_mr *mr;
static uint8_t *memory; /* to send, to receive, what is written or read, and where the peer gets it: a place each */
static struct target peer;
static unsigned done[DONE + 1]; /* completions that nobody waited for yet */

/* --- calls ------------------------------------------------------------------------------------------------------------------ */

static _Atomic int listener = -1;
static _Atomic uint64_t calls;
static _Atomic int last_call;

static void *count_calls(void *arg)
{
	int fd;

	while ((fd = atomic_load(&listener)) < 0)
		sched_yield();
	for (;;) {
		struct seccomp_notif call = { .id = 0 };
		struct seccomp_notif_resp answer = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

		if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0) {
			NEED(errno == EINTR || errno == ENOENT);
			continue;
		}
		atomic_store(&last_call, call.data.nr);
		atomic_fetch_add(&calls, 1);
		answer.id = call.id;
		NEED(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0 || errno == ENOENT);
	}
	return arg;
}

/* From here on calls of this thread are counted, but for leaving the processor to others, and for a clock that is not mapped. */
static void watch_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	pthread_t thread;
	uint64_t before;
	long fd;

	NEED(pthread_create(&thread, NULL, count_calls, NULL) == 0);
	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (fd < 0)
		end_skip("no seccomp filter that another thread answers for here");
	atomic_store(&listener, (int)fd);
	before = atomic_load(&calls);
	NEED(syscall(SYS_getppid) > 0 && syscall(SYS_getppid) > 0);
	NEED(atomic_load(&calls) == before + 2);
}

/* --- set-up ----------------------------------------------------------------------------------------------------------------- */

/* The same as end_open(), under a domain. */
static void open_in_domain(void)
{
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = { .comp_mask = 0 };
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 64,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };
	struct ibv_pd *in_it;
	struct ibv_cq_ex *made;

	end.ctx = end_device();
	NEED(end.pd = parent.pd = ibv_alloc_pd(end.ctx));
	NEED(parent.td = ibv_alloc_td(end.ctx, &td));
	NEED(in_it = cq.parent_domain = ibv_alloc_parent_domain(end.ctx, &parent));
	NEED(made = ibv_create_cq_ex(end.ctx, &cq));
	end.cq = init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(made);
	NEED(end.qp = ibv_create_qp(in_it, &init));
	NEED(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
}

static struct target memory_make(void)
{
	if (way->map) {
		mr = region_alloc(end.pd, ALL_ACCESS);
		memory = mr->addr;
		return target_of(mr);
	}
	NEED(memory = calloc(4, PLACE));
	NEED(mr = ibv_reg_mr(end.pd, memory, 4 * PLACE, ALL_ACCESS));
	return (struct target){ (uintptr_t)memory, mr->rkey };
}

static void post_recv(void)
{
	end_recv(&end, (uintptr_t)memory + PLACE, PLACE, mr->lkey);
}

static void meet(int fd)
{
	struct target mine;

	if (way->domain)
		open_in_domain();
	else
		end_open(&end);
	mine = memory_make();
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv();
	end_meet(&end, fd);
	say(fd, &mine, sizeof(mine));
	hear(fd, &peer, sizeof(peer));
}

/* --- rounds ----------------------------------------------------------------------------------------------------------------- */

static void post(enum ibv_wr_opcode op, uint8_t *from, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = op == IBV_WR_SEND ? SENT : DONE, .sg_list = &sge, .num_sge = 1, .opcode = op }, *bad;
	uint64_t there = peer.base + 3 * PLACE;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = there;
		wr.wr.atomic.rkey = peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = there;
		wr.wr.rdma.rkey = peer.rkey;
	}
	NEED(ibv_post_send(end.qp, &wr, &bad) == 0);
}

/* On a machine that is busy the peer may be waiting for the processor that this thread polls on. */
static void reap(unsigned kind)
{
	for (unsigned polls = 0; !done[kind];) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(end.cq, 1, &wc);

		NEED(n >= 0);
		if (n) {
			NEED(wc.status == IBV_WC_SUCCESS);
			done[wc.opcode == IBV_WC_RECV ? (unsigned)RECEIVED : (unsigned)wc.wr_id]++;
		} else if (++polls % PATIENCE == 0) {
			sched_yield();
		}
	}
	done[kind]--;
}

static void messages(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (way->op != IBV_WR_SEND) {
			post(way->op, memory + 2 * PLACE, way->length);
			reap(DONE);
		}
		post(IBV_WR_SEND, memory, way->op == IBV_WR_SEND ? way->length : 8);
		reap(SENT);
		reap(RECEIVED);
		post_recv();
	}
}

/* Both go on until both have had enough. */
static bool agree(int fd, bool more)
{
	bool theirs;

	say(fd, &more, 1);
	hear(fd, &theirs, 1);
	return more || theirs;
}

/*
 * A round went the way that is meant: the first ones by map ask for the region, and go another one. What a domain's owner counts is
 * published with a tick, so it is enough that something was before the round.
 */
static bool went_as_meant(uint64_t ran_before, uint64_t ran_after)
{
	if (way->map && way->domain)
		return ran_before > 0;
	return ran_after - ran_before == (way->map ? ROUND : 0);
}

static void side(int fd, void *arg)
{
	uint64_t least_calls = UINT64_MAX, least_kicks = UINT64_MAX;
	unsigned clean = 0, n = 0;

	meet(fd);
	counted(VSD_COUNT_KICKS); /* it has read where the page is */
	watch_calls();
	do {
		uint64_t before = atomic_load(&calls), kicks = counted(VSD_COUNT_KICKS), ran_before = runs();

		messages(ROUND);
		before = atomic_load(&calls) - before;
		kicks = counted(VSD_COUNT_KICKS) - kicks;
		least_calls = before < least_calls ? before : least_calls;
		least_kicks = kicks < least_kicks ? kicks : least_kicks;
		clean += before + kicks == 0 && went_as_meant(ran_before, runs());
		n++;
	} while (agree(fd, clean < CLEAN && n < ROUNDS));
	printf("# %s: of %u rounds %u as meant, without a call and a kick; at least %llu calls, %llu kicks; the last call was %d\n",
		arg ? "a" : "b", n, clean, (unsigned long long)least_calls, (unsigned long long)least_kicks, atomic_load(&last_call));
	fflush(stdout);
	NEED(clean >= CLEAN);
	NEED(way->map == (runs() != 0));
}

static void play(void)
{
	struct child other;

	if (!way->map)
		NEED(setenv("VERBSD_ENGINE", "stage", 1) == 0);
	other = child_start(side, NULL);
	side(other.fd, &way);
	child_end(&other);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		way = &ways[i];
		if (argc == 1)
			puts(way->name);
		if (argc == 2 && strcmp(argv[1], way->name) == 0) {
			play();
			return 0;
		}
	}
	return argc != 1;
}
