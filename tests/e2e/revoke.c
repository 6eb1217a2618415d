/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * After ibv_dereg_mr(), ibv_destroy_qp() or a move to the error state returned, no byte of the peer's lands any more.
 * The peer writes all the time; the verb is called at a random moment, most likely in the middle of a copy. In every
 * other round the peer is stopped before the verb is called, and goes on a little later. The third argument is the engine: with
 * `map` the memory is a shared region, and the peer has it mapped when the verb is called; with `map` and `cma` the peer's counter
 * has shown by then that the engine runs, and with `stage` that none did. Status 0, or a line on stderr that says what was
 * wrong and status 1, or one on stdout that says why there is nothing to test and status 77.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/e2e/map.h"

#define SIZE (256u << 10)

struct address {
	uint32_t qpn, rkey;
	uint64_t addr;
	uint16_t lid;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint8_t *memory;
static uint64_t address; /* of the memory in WRs */
static uint16_t lid;
static int link_fd;
static int capability = -1; /* of the region */
static const char *engine;

static bool is_engine(const char *name)
{
	return strcmp(engine, name) == 0;
}

static void device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	NEED(list && list[0]);
	NEED(ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	NEED(ibv_query_port(ctx, 1, &port) == 0);
	lid = port.lid;
	NEED(pd = ibv_alloc_pd(ctx));
	NEED(cq = ibv_create_cq(ctx, 64, NULL, NULL, 0));
}

static void plain_make(void)
{
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	address = (uintptr_t)memory;
}

/* A region that this process keeps, whatever becomes of the keys that it gives to the peer. */
static void region_make(void)
{
	struct verbsd_mr_attr attr = { .size = SIZE };
	struct ibv_mr *keeper = verbsd_alloc_mr(pd, &attr);

	NEED(keeper);
	memory = keeper->addr;
	address = target_of(keeper).base;
	capability = verbsd_export_mr_fd(keeper, 0);
	NEED(capability >= 0);
}

static void qp_make(struct address *mine)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	if (capability >= 0)
		mr = verbsd_import_mr_fd(pd, capability, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	else
		mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	NEED(mr);
	NEED(qp = ibv_create_qp(pd, &init));
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	*mine = (struct address){ qp->qp_num, mr->rkey, address, lid };
}

static void qp_connect(const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = peer->lid, .port_num = 1 },
	};

	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 13; /* 34 ms */
	attr.retry_cnt = 3;
	attr.max_rd_atomic = 1;
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static bool swap_addresses(const struct address *mine, struct address *peer)
{
	if (write(link_fd, mine, sizeof(*mine)) != sizeof(*mine))
		return false;
	return read(link_fd, peer, sizeof(*peer)) == sizeof(*peer);
}

static void drain_cq(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* --- the peer ------------------------------------------------------------------------------------------------------------ */

/* Writes until it is told no. Each write is of another byte, so none that lands goes unseen. */
static void write_on(const struct address *to)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { to->addr, to->rkey },
	}, *bad;

	uint64_t before = runs();
	bool told = false;

	for (unsigned n = 0;; n++) {
		struct ibv_wc wc;

		memory[0] = memory[SIZE - 1] = (uint8_t)(1 + n % 100);
		NEED(ibv_post_send(qp, &wr, &bad) == 0);
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			;
		if (wc.status != IBV_WC_SUCCESS)
			return;
		if (is_engine("stage"))
			NEED(runs() == before);
		else if (runs() == before)
			continue;
		if (!told)
			NEED(write(link_fd, "w", 1) == 1);
		told = true;
	}
}

static void writer(void)
{
	struct address mine, peer;
	char byte;

	alarm(290);
	device_open();
	plain_make();
	memset(memory, 0x55, SIZE);
	for (;;) {
		qp_make(&mine);
		if (!swap_addresses(&mine, &peer))
			_exit(0);
		qp_connect(&peer);
		NEED(write(link_fd, "c", 1) == 1 && read(link_fd, &byte, 1) == 1);
		write_on(&peer);
		NEED(write(link_fd, "e", 1) == 1);
		NEED(ibv_destroy_qp(qp) == 0);
		NEED(ibv_dereg_mr(mr) == 0);
		drain_cq();
	}
}

/* --- the owner ------------------------------------------------------------------------------------------------------------- */

static unsigned random_state;

static unsigned dice(unsigned most)
{
	random_state = random_state * 1103515245 + 12345;
	return (random_state >> 8) % most;
}

static void dawdle(unsigned most)
{
	for (unsigned n = dice(most); n; n--)
		__asm__ volatile("" ::: "memory");
}

static pid_t peer_pid;

/* The peer goes on after some milliseconds, in which the verb waits if it has to. */
static void *wake_peer(void *arg)
{
	struct timespec pause = { .tv_nsec = 3000000 };

	nanosleep(&pause, NULL); /* the verb may have to wait for the stopped peer */
	NEED(kill(peer_pid, SIGCONT) == 0);
	return arg;
}

static void deregister(void)
{
	NEED(ibv_dereg_mr(mr) == 0);
	mr = NULL;
}

static void destroy(void)
{
	NEED(ibv_destroy_qp(qp) == 0);
	qp = NULL;
}

static void to_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

static void reregister(void)
{
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
}

static void (*const verbs[])(void) = { deregister, destroy, to_error, reregister };

static void round_of(unsigned n)
{
	struct address mine, peer;
	bool stop = n & 1;
	pthread_t waker;
	int status;
	char byte;

	memset(memory, 0, SIZE);
	qp_make(&mine);
	NEED(swap_addresses(&mine, &peer));
	qp_connect(&peer);
	NEED(read(link_fd, &byte, 1) == 1 && byte == 'c' && write(link_fd, "g", 1) == 1);
	NEED(read(link_fd, &byte, 1) == 1 && byte == 'w');
	dawdle(300000);
	if (stop) {
		NEED(kill(peer_pid, SIGSTOP) == 0);
		NEED(waitpid(peer_pid, &status, WUNTRACED) == peer_pid && WIFSTOPPED(status));
		NEED(pthread_create(&waker, NULL, wake_peer, NULL) == 0);
	}
	verbs[n / 2 % (sizeof(verbs) / sizeof(verbs[0]))]();
	memset(memory, 0xaa, SIZE);
	if (stop)
		NEED(pthread_join(waker, NULL) == 0);
	NEED(read(link_fd, &byte, 1) == 1 && byte == 'e');
	for (unsigned i = 0; i < SIZE; i++)
		NEED(memory[i] == 0xaa);
	if (qp)
		NEED(ibv_destroy_qp(qp) == 0);
	if (mr)
		NEED(ibv_dereg_mr(mr) == 0);
	drain_cq();
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 60;
	int sockets[2], status;

	random_state = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	engine = argc > 3 ? argv[3] : "stage";
	NEED(setenv("VERBSD_ENGINE", engine, 1) == 0);
	if (is_engine("cma") && !processes_may_copy())
		end_skip("processes may not read and write each other here");
	NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	peer_pid = fork();
	NEED(peer_pid >= 0);
	link_fd = sockets[!peer_pid];
	close(sockets[peer_pid != 0]);
	if (peer_pid == 0)
		writer();
	device_open();
	if (is_engine("map"))
		region_make();
	else
		plain_make();
	for (unsigned n = 0; n < rounds; n++)
		round_of(n);
	close(link_fd);
	NEED(waitpid(peer_pid, &status, 0) == peer_pid && status == 0);
	return 0;
}
