/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How control calls and connections scale: a plain verbs program. Prints "name<tab>value<tab>unit".
 *
 *	scale control N      N rounds of ibv_alloc_pd and ibv_dealloc_pd: microseconds a call
 *	scale connect N      two processes, N RC QPs each: create to RTS, resident memory of each, a message on each
 *	scale memory N       the same, and the resident memory a second after the messages
 *	scale clients N      N processes in pairs, one RC QP each, a message on each, then idle until stdin ends
 *	scale mesh N         N processes, each with an RC QP for each other one: a message both ways, checked; all is destroyed
 *
 * When one process of a run fails, it says why, and all others end.
 */
#include <linux/futex.h>
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

#include <infiniband/verbs.h>

#include "tests/bench/bench.h"

struct address {
	uint32_t qpn, lid;
};

/* Shared by all processes of a run. */
struct stage {
	_Atomic uint32_t arrived, open; /* a barrier: counts, and a generation to wait for */
	_Atomic uint32_t broken;        /* one of the processes failed */
	_Atomic uint64_t right;         /* messages of the mesh that came as they were sent */
	uint32_t members;
	pid_t maker;
	uint64_t took[2];    /* ns, of the connect run */
	long resident[2][3]; /* KiB before the QPs, with them, and 1 s after their use */
	struct address addresses[];
};

static struct stage *stage;

/* Nobody waits any more. */
static void others_end(void)
{
	stage->broken = 1;
	stage->open++;
	syscall(SYS_futex, &stage->open, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Of the process that made the others: when one of them fails, all end. One that it waits for itself is gone by now. */
static void on_child(int sig)
{
	siginfo_t info = { 0 };
	int saved = errno;

	(void)sig;
	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid && info.si_status)
		others_end();
	errno = saved;
}

static void check_others(void)
{
	if (!stage->broken)
		return;
	if (getpid() == stage->maker)
		fprintf(stderr, "scale: another process failed\n");
	exit(1);
}

/* A process beside this one, which does not outlive it. */
static pid_t another(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		signal(SIGCHLD, SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
}

static void barrier(void)
{
	uint32_t generation = stage->open;

	check_others();

	if (atomic_fetch_add(&stage->arrived, 1) + 1 == stage->members) {
		stage->arrived = 0;
		stage->open = generation + 1;
		syscall(SYS_futex, &stage->open, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		return;
	}
	while (stage->open == generation)
		syscall(SYS_futex, &stage->open, FUTEX_WAIT, generation, NULL, NULL, 0);
	check_others();
}

static long resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, pages;

	if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2)
		fail("/proc/self/statm");
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint64_t word[2];
	uint32_t lid;
};

static void open_end(struct end *e, int depth)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	if (!list || !list[0])
		fail("no device");
	e->ctx = ibv_open_device(list[0]);
	if (!e->ctx)
		fail("ibv_open_device");
	ibv_free_device_list(list);
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = e->pd ? ibv_create_cq(e->ctx, depth, NULL, NULL, 0) : NULL;
	e->mr = e->cq ? ibv_reg_mr(e->pd, e->word, sizeof(e->word), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!e->mr || ibv_query_port(e->ctx, 1, &port))
		fail("set-up");
	e->lid = port.lid;
}

static void close_end(struct end *e)
{
	if (ibv_dereg_mr(e->mr) || ibv_destroy_cq(e->cq) || ibv_dealloc_pd(e->pd) || ibv_close_device(e->ctx))
		fail("close");
}

static struct ibv_qp *make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, struct address peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn, .min_rnr_timer = 12,
		.ah_attr = { .dlid = (uint16_t)peer.lid, .port_num = 1 },
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

static void post_recv(struct end *e, struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e->word[1], .length = 8, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static void post_send(struct end *e, struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&e->word[0], .length = 8, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

static void reap(struct end *e, int n)
{
	struct ibv_wc wc;

	while (n > 0) {
		int got = ibv_poll_cq(e->cq, 1, &wc);
		if (got < 0 || (got && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "scale: completion: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		n -= got;
		if (!got) {
			check_others();
			sched_yield();
		}
	}
}

static void share(size_t addresses, unsigned members)
{
	stage = mmap(NULL, sizeof(*stage) + addresses * sizeof(struct address), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (stage == MAP_FAILED)
		fail("mmap");
	stage->members = members;
	stage->maker = getpid();
	signal(SIGCHLD, on_child);
}

static int control(unsigned n)
{
	struct end e;
	uint64_t start;

	open_end(&e, 16);
	start = now();
	for (unsigned i = 0; i < n; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(e.ctx);
		if (!pd || ibv_dealloc_pd(pd))
			fail("ibv_alloc_pd");
	}
	printf("control_rtt\t%.2f\tus\n", (double)(now() - start) / n / 2 / 1000);
	close_end(&e);
	return 0;
}

static void connect_side(unsigned side, unsigned n, bool rest)
{
	struct ibv_qp **qps = calloc(n, sizeof(struct ibv_qp *));
	struct end e;
	uint64_t start;

	open_end(&e, 2 * (int)n + 16);
	barrier();
	stage->resident[side][0] = resident();
	start = now();
	for (unsigned i = 0; i < n; i++) {
		qps[i] = make_qp(&e);
		stage->addresses[side * n + i] = (struct address){ qps[i]->qp_num, e.lid };
	}
	barrier();
	for (unsigned i = 0; i < n; i++)
		connect_qp(qps[i], stage->addresses[(1 - side) * n + i]);
	barrier();
	stage->took[side] = now() - start;
	stage->resident[side][1] = resident();
	for (unsigned i = 0; i < n; i++)
		post_recv(&e, qps[i]);
	barrier();
	for (unsigned i = 0; i < n; i++)
		post_send(&e, qps[i]);
	reap(&e, 2 * (int)n);
	barrier();
	if (rest)
		usleep(1100000);
	stage->resident[side][2] = resident();
	barrier();
	for (unsigned i = 0; i < n; i++)
		if (ibv_destroy_qp(qps[i]))
			fail("ibv_destroy_qp");
	close_end(&e);
	free(qps);
}

static int connects(unsigned n, bool rest)
{
	int status;
	pid_t child;

	share(2 * (size_t)n, 2);
	child = another();
	if (child == 0) {
		connect_side(1, n, rest);
		exit(0);
	}
	connect_side(0, n, rest);
	if (waitpid(child, &status, 0) != child || status)
		fail("the other side");
	printf("connect_%u\t%.2f\tus\n", n, (double)(stage->took[0] > stage->took[1] ? stage->took[0] : stage->took[1])
	       / n / 1000);
	for (unsigned side = 0; side < 2; side++) {
		printf("resident_qp_%u_side%u\t%.1f\tKiB\n", n, side,
		       (double)(stage->resident[side][1] - stage->resident[side][0]) / n);
		if (rest)
			printf("resident_used_qp_%u_side%u\t%.1f\tKiB\n", n, side,
			       (double)(stage->resident[side][2] - stage->resident[side][0]) / n);
	}
	return 0;
}

static int connect_run(unsigned n)
{
	return connects(n, false);
}

static int memory_run(unsigned n)
{
	return connects(n, true);
}

static void client(unsigned i)
{
	struct end e;
	struct ibv_qp *qp;

	open_end(&e, 16);
	qp = make_qp(&e);
	stage->addresses[i] = (struct address){ qp->qp_num, e.lid };
	barrier();
	connect_qp(qp, stage->addresses[i ^ 1]);
	post_recv(&e, qp);
	barrier();
	post_send(&e, qp);
	reap(&e, 2);
	barrier(); /* all messages are there: the parent measures between this one */
	barrier(); /* and this one */
	if (ibv_destroy_qp(qp))
		fail("ibv_destroy_qp");
	close_end(&e);
}

static int clients(unsigned n)
{
	unsigned bad = 0;

	n &= ~1u;
	share(n, n + 1);
	for (unsigned i = 0; i < n; i++)
		if (another() == 0) {
			client(i);
			exit(0);
		}
	barrier();
	barrier();
	barrier();
	printf("clients\t%u\tconnected\n", n);
	fflush(stdout);
	while (getchar() != EOF)
		;
	barrier();
	for (unsigned i = 0; i < n; i++) {
		int status;
		wait(&status);
		bad += status != 0;
	}
	return bad != 0;
}

/* What the process `from` sends to `to`. */
static uint64_t message(unsigned from, unsigned to)
{
	return 0x5ca1e00000000000u | (uint64_t)from << 20 | to;
}

/* Takes both completions of each of the n QPs, each once, by their numbers. */
static void reap_mesh(struct end *e, struct ibv_qp **qps, unsigned n)
{
	uint8_t *seen = calloc(n, 1);
	struct ibv_wc wc;

	for (unsigned left = 2 * n - 2; left > 0;) {
		int got = ibv_poll_cq(e->cq, 1, &wc);
		unsigned i, bit;

		if (got < 0)
			fail("ibv_poll_cq");
		if (got == 0) {
			check_others();
			sched_yield();
			continue;
		}
		i = (unsigned)(wc.wr_id >> 1);
		bit = 1u << (wc.wr_id & 1);
		if (wc.status != IBV_WC_SUCCESS || i >= n || !qps[i] || wc.qp_num != qps[i]->qp_num || seen[i] & bit) {
			fprintf(stderr, "scale: completion %llu of QP %#x: %s\n", (unsigned long long)wc.wr_id, wc.qp_num,
				wc.status == IBV_WC_SUCCESS ? "not one that is awaited" : ibv_wc_status_str(wc.status));
			exit(1);
		}
		seen[i] |= (uint8_t)bit;
		left--;
	}
	free(seen);
}

/* One process of the mesh. Words of `words`: what comes from each other one, then what goes there. */
static void mesh_member(unsigned me, unsigned n)
{
	struct ibv_qp **qps = calloc(n, sizeof(struct ibv_qp *));
	uint64_t *words = calloc(2 * (size_t)n, sizeof(uint64_t));
	struct ibv_mr *mr;
	struct end e;

	open_end(&e, 2 * (int)n);
	mr = ibv_reg_mr(e.pd, words, 2 * n * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		fail("ibv_reg_mr");
	for (unsigned i = 0; i < n; i++) {
		if (i == me)
			continue;
		qps[i] = make_qp(&e);
		stage->addresses[me * n + i] = (struct address){ qps[i]->qp_num, e.lid };
	}
	barrier();
	for (unsigned i = 0; i < n; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)&words[i], .length = 8, .lkey = mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 2 * i, .sg_list = &sge, .num_sge = 1 }, *bad;

		if (i == me)
			continue;
		connect_qp(qps[i], stage->addresses[i * n + me]);
		errno = ibv_post_recv(qps[i], &wr, &bad);
		if (errno)
			fail("ibv_post_recv");
	}
	barrier();
	for (unsigned i = 0; i < n; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)&words[n + i], .length = 8, .lkey = mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 2 * i + 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;

		if (i == me)
			continue;
		words[n + i] = message(me, i);
		errno = ibv_post_send(qps[i], &wr, &bad);
		if (errno)
			fail("ibv_post_send");
	}
	reap_mesh(&e, qps, n);
	for (unsigned i = 0; i < n; i++)
		stage->right += i != me && words[i] == message(i, me);
	barrier();
	for (unsigned i = 0; i < n; i++)
		if (qps[i] && ibv_destroy_qp(qps[i]))
			fail("ibv_destroy_qp");
	if (ibv_dereg_mr(mr))
		fail("ibv_dereg_mr");
	close_end(&e);
	free(words);
	free(qps);
}

static int mesh(unsigned n)
{
	unsigned bad = 0;

	if (n < 2 || n > 1024) {
		fprintf(stderr, "scale: a mesh has 2 to 1024 processes\n");
		return 2;
	}
	share((size_t)n * n, n);
	for (unsigned i = 0; i < n; i++)
		if (another() == 0) {
			mesh_member(i, n);
			exit(0);
		}
	for (unsigned i = 0; i < n; i++) {
		int status;

		while (wait(&status) < 0)
			if (errno != EINTR)
				fail("wait");
		if (status) {
			bad++;
			others_end();
		}
	}
	if (bad || stage->right != n * (n - 1)) {
		fprintf(stderr, "scale: %u of %u processes failed, %llu of %u messages came as they were sent\n", bad, n,
			(unsigned long long)stage->right, n * (n - 1));
		return 1;
	}
	printf("mesh\t%u\tprocesses\nmesh_connections\t%u\tconnections\nmesh_messages\t%u\tmessages\n", n, n * (n - 1) / 2,
	       n * (n - 1));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(unsigned n);
	} modes[] = { { "control", control }, { "connect", connect_run }, { "memory", memory_run },
		    { "clients", clients }, { "mesh", mesh } };

	for (size_t i = 0; argc == 3 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			return modes[i].run((unsigned)strtoul(argv[2], NULL, 10));
	fprintf(stderr, "usage: scale control|connect|memory|clients|mesh N\n");
	return 2;
}
