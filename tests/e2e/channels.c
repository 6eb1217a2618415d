/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels between two processes, as programs that know nothing of verbsd use them: blocked in
 * ibv_get_cq_event(), in poll(2), interrupted, cancelled, many threads on one channel. The second process sends when it
 * is told to, over a socket, and otherwise sleeps there. One test a run, named by the first argument; status 0, or a
 * line on stderr that says what was wrong and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/e2e/counted.h"
#include "tests/lib/need.h"

#define DEPTH 64
#define PINGS 1000
#define SPARE (PINGS / 10)

/* One process: two QPs, each with a CQ of its own, both CQs on one channel. */
struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_port_attr port;
	int socket;
	char memory[4096];
};

static struct side side;

/* What one process tells the other. */
struct address {
	uint32_t qpn[2];
	uint16_t lid;
};

enum order { SEND, SEND_SOLICITED, PING, STOP };

static struct ibv_qp *qp_make(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(side.pd, &init);

	NEED(qp);
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	return qp;
}

static void qp_connect(struct ibv_qp *qp, uint32_t qpn, uint16_t lid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = lid, .port_num = 1 },
	};

	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	NEED(ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void receive_post(unsigned i, unsigned n)
{
	struct ibv_sge sge = { (uintptr_t)side.memory, 64, side.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	while (n--)
		NEED(ibv_post_recv(side.qp[i], &wr, &bad) == 0);
}

/* The test wants no fd to be free when the peer's come. */
static bool no_fds;
static struct rlimit fds_before;

static void limit_fds(void)
{
	struct rlimit limit;
	int lowest = dup(0);

	NEED(lowest >= 0 && close(lowest) == 0);
	NEED(getrlimit(RLIMIT_NOFILE, &fds_before) == 0);
	limit = fds_before;
	limit.rlim_cur = (rlim_t)lowest;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void side_make(int socket)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct address mine, peer;

	NEED(list && list[0]);
	side.socket = socket;
	NEED(side.ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	NEED(ibv_query_port(side.ctx, 1, &side.port) == 0);
	NEED(side.pd = ibv_alloc_pd(side.ctx));
	NEED(side.mr = ibv_reg_mr(side.pd, side.memory, sizeof(side.memory), IBV_ACCESS_LOCAL_WRITE));
	NEED(side.channel = ibv_create_comp_channel(side.ctx));
	mine.lid = side.port.lid;
	for (unsigned i = 0; i < 2; i++) {
		NEED(side.cq[i] = ibv_create_cq(side.ctx, 2 * DEPTH, &side.qp[i], side.channel, 0));
		side.qp[i] = qp_make(side.cq[i]);
		mine.qpn[i] = side.qp[i]->qp_num;
		receive_post(i, DEPTH);
	}
	if (no_fds)
		limit_fds();
	NEED(write(socket, &mine, sizeof(mine)) == sizeof(mine));
	NEED(read(socket, &peer, sizeof(peer)) == sizeof(peer));
	for (unsigned i = 0; i < 2; i++)
		qp_connect(side.qp[i], peer.qpn[i], peer.lid);
	/* Both are connected before the first order is given. */
	NEED(write(socket, "c", 1) == 1 && read(socket, &mine, 1) == 1);
}

/* --- the process that sends ------------------------------------------------------------------------------------------- */

static void send_post(unsigned i, bool solicited)
{
	struct ibv_sge sge = { (uintptr_t)side.memory, 8, side.mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (solicited ? IBV_SEND_SOLICITED : 0),
	}, *bad;

	NEED(ibv_post_send(side.qp[i], &wr, &bad) == 0);
}

static void send_one(unsigned i, bool solicited)
{
	struct ibv_wc wc;
	int n;

	send_post(i, solicited);
	while ((n = ibv_poll_cq(side.cq[i], 1, &wc)) == 0)
		;
	NEED(n == 1 && wc.status == IBV_WC_SUCCESS);
}

static unsigned events; /* that were slept for */

/* Takes what came; sleeps for each of what did not. */
static void wait_for(unsigned *sent, unsigned *received)
{
	while (!*sent || !*received) {
		struct ibv_cq *cq;
		struct ibv_wc wc;
		void *context;
		int n;

		NEED(ibv_req_notify_cq(side.cq[0], 0) == 0);
		while ((n = ibv_poll_cq(side.cq[0], 1, &wc)) > 0) {
			NEED(wc.status == IBV_WC_SUCCESS);
			++*(wc.opcode == IBV_WC_RECV ? received : sent);
		}
		NEED(n == 0);
		if (*sent && *received)
			break;
		NEED(ibv_get_cq_event(side.channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
		events++;
	}
	--*sent;
	--*received;
}

/* What this process counted in a ping-pong by events, of which either side waits for the other's message. */
struct counts {
	uint64_t kicks, wakeups, events;
};

/* The peer's thread sleeps, so that it takes a kick to reach it. */
static void await_sleep(void)
{
	static const struct vsd_page *page;
	void *mem;

	if (!page) {
		/* The daemon's word of the peer comes when it comes. */
		while (mappings("memfd:verbsd-process", "r--s", &mem) != 1)
			sched_yield();
		page = mem;
	}
	while (!(atomic_load(&page->state) & 1))
		sched_yield();
}

static struct counts ping_pong(bool first)
{
	struct counts before = { counted(VSD_COUNT_KICKS), counted(VSD_COUNT_WAKEUPS), events };
	unsigned sent = 0, received = 0;

	for (unsigned n = 0; n < PINGS; n++) {
		if (first) {
			await_sleep();
			send_post(0, false);
		} else if (n == 0) {
			sent++; /* nothing to wait for yet */
		}
		wait_for(&sent, &received);
		receive_post(0, 1);
		if (!first) {
			await_sleep();
			send_post(0, false);
		}
	}
	if (!first) {
		received++;
		wait_for(&sent, &received);
	}
	return (struct counts){ counted(VSD_COUNT_KICKS) - before.kicks, counted(VSD_COUNT_WAKEUPS) - before.wakeups,
		events - before.events };
}

static void sender(int socket)
{
	unsigned char order[2];

	side_make(socket);
	while (alarm(60), read(socket, order, 2) == 2 && order[0] != STOP) {
		if (order[0] == PING) {
			struct counts counts = ping_pong(false);

			NEED(write(socket, &counts, sizeof(counts)) == sizeof(counts));
		} else {
			send_one(order[1], order[0] == SEND_SOLICITED);
		}
	}
	_exit(0);
}

static pid_t sender_pid;

static void tell(enum order what, unsigned i)
{
	unsigned char order[2] = { (unsigned char)what, (unsigned char)i };

	NEED(write(side.socket, order, 2) == 2);
}

static void start(void)
{
	int sockets[2];

	NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	sender_pid = fork();
	NEED(sender_pid >= 0);
	if (sender_pid == 0) {
		close(sockets[0]);
		no_fds = false;
		sender(sockets[1]);
	}
	close(sockets[1]);
	side_make(sockets[0]);
}

static void stop(void)
{
	int status;

	tell(STOP, 0);
	NEED(waitpid(sender_pid, &status, 0) == sender_pid && status == 0);
}

/* --- what the tests look at --------------------------------------------------------------------------------------------- */

static void arm(unsigned i)
{
	NEED(ibv_req_notify_cq(side.cq[i], 0) == 0);
}

/* Takes what is in the CQ, and posts as many receives. */
static unsigned drain(unsigned i)
{
	struct ibv_wc wc;
	unsigned got = 0;
	int n;

	while ((n = ibv_poll_cq(side.cq[i], 1, &wc)) > 0) {
		NEED(wc.status == IBV_WC_SUCCESS);
		receive_post(i, 1);
		got++;
	}
	NEED(n == 0);
	return got;
}

static bool readable(int timeout)
{
	struct pollfd p = { .fd = side.channel->fd, .events = POLLIN };
	int n = poll(&p, 1, timeout);

	NEED(n >= 0);
	return n;
}

/* Blocks for one event, which has to be of CQ @i. */
static void take_event(unsigned i)
{
	struct ibv_cq *cq;
	void *context;

	NEED(ibv_get_cq_event(side.channel, &cq, &context) == 0);
	NEED(cq == side.cq[i] && context == &side.qp[i]);
	ibv_ack_cq_events(cq, 1);
}

static unsigned random_state = 12345;

/* Some work between two events, so that they meet every moment of falling asleep. */
static void dawdle(unsigned most)
{
	random_state = random_state * 1103515245 + 12345;
	for (unsigned n = (random_state >> 8) % most; n; n--)
		__asm__ volatile("" ::: "memory");
}

static void blocking(void)
{
	for (unsigned n = 0; n < 3000; n++) {
		arm(0);
		dawdle(100000);
		tell(SEND, 0);
		dawdle(n % 2 ? 200000 : 10);
		take_event(0);
		NEED(drain(0) == 1);
	}
}

static bool is_one_each(const struct counts *of, const struct counts *peer)
{
	printf("%llu events, %llu wake-ups, %llu kicks\n", (unsigned long long)of->events, (unsigned long long)of->wakeups,
		(unsigned long long)peer->kicks);
	fflush(stdout);
	NEED(of->wakeups >= PINGS / 2); /* else nothing is tested */
	return of->wakeups <= of->events + SPARE && peer->kicks <= of->events + SPARE;
}

/*
 * A message takes its receiver, which sleeps, one kick and one wake-up. The acknowledgement comes while its sender is about to
 * sleep, or, on a busy machine, after that: then it takes another one. So it is one in some of several tries.
 */
static void one_wake_up_a_message(void)
{
	bool one = false;

	for (unsigned tries = 0; tries < 10 && !one; tries++) {
		struct counts mine, theirs;

		tell(PING, 0);
		mine = ping_pong(true);
		NEED(read(side.socket, &theirs, sizeof(theirs)) == sizeof(theirs));
		one = is_one_each(&mine, &theirs) && is_one_each(&theirs, &mine);
	}
	NEED(one);
}

static void polling_the_fd(void)
{
	for (unsigned n = 0; n < 2000; n++) {
		arm(0);
		NEED(!readable(0));
		dawdle(100000);
		tell(SEND, 0);
		NEED(readable(20000));
		take_event(0);
		NEED(drain(0) == 1);
	}
	NEED(!readable(0));
}

/* A program that polls its CQ for long, and then goes over to events. */
static void from_polling_to_events(void)
{
	for (unsigned n = 0; n < 200; n++) {
		unsigned got = 0;

		tell(SEND, 0);
		while (!got)
			got = drain(0);
		for (unsigned idle = 0; idle < 3000; idle++)
			NEED(drain(0) == 0);
		arm(0);
		dawdle(100000);
		tell(SEND, 0);
		if (n % 2)
			NEED(readable(20000));
		take_event(0);
		NEED(drain(0) == 1);
	}
}

static void solicited_only(void)
{
	unsigned got = 0;

	NEED(ibv_req_notify_cq(side.cq[0], 1) == 0);
	tell(SEND, 0);
	tell(SEND, 0);
	while (got < 2)
		got += drain(0);
	NEED(got == 2 && !readable(0));
	tell(SEND_SOLICITED, 0);
	take_event(0);
	NEED(drain(0) == 1 && !readable(0));
}

static void two_cqs(void)
{
	for (unsigned n = 0; n < 200; n++) {
		arm(0);
		arm(1);
		tell(SEND, n % 2);
		take_event(n % 2);
		NEED(drain(n % 2) == 1);
		tell(SEND, !(n % 2));
		take_event(!(n % 2));
		NEED(drain(!(n % 2)) == 1);
	}
	NEED(!readable(0));
}

static void nonblocking(void)
{
	struct ibv_cq *cq;
	void *context;

	NEED(fcntl(side.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	arm(0);
	NEED(ibv_get_cq_event(side.channel, &cq, &context) == -1 && errno == EAGAIN);
	tell(SEND, 0);
	NEED(readable(20000));
	take_event(0);
	NEED(ibv_get_cq_event(side.channel, &cq, &context) == -1 && errno == EAGAIN);
	NEED(drain(0) == 1);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	if (++alarms == 3)
		tell(SEND, 0);
}

static void alarm_every_ms(int flags)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } };

	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void alarm_off(void)
{
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void interrupted(void)
{
	struct ibv_cq *cq;
	void *context;

	alarms = -1000000; /* nobody sends */
	arm(0);
	alarm_every_ms(0);
	NEED(ibv_get_cq_event(side.channel, &cq, &context) == -1 && errno == EINTR);
	alarm_off();
	tell(SEND, 0);
	take_event(0);
	NEED(drain(0) == 1);
}

static void restarted(void)
{
	arm(0);
	alarm_every_ms(SA_RESTART);
	take_event(0);
	alarm_off();
	NEED(alarms >= 3);
	NEED(drain(0) == 1);
}

static pthread_barrier_t blocked;

static void *wait_for_event(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	pthread_barrier_wait(&blocked);
	NEED(ibv_get_cq_event(side.channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	return arg;
}

static void cancelled(void)
{
	NEED(pthread_barrier_init(&blocked, NULL, 2) == 0);
	for (unsigned n = 0; n < 200; n++) {
		pthread_t thread;
		void *result;

		arm(0);
		NEED(pthread_create(&thread, NULL, wait_for_event, NULL) == 0);
		pthread_barrier_wait(&blocked);
		dawdle(200000);
		NEED(pthread_cancel(thread) == 0);
		NEED(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		/* It holds nothing: the next event is found. */
		tell(SEND, 0);
		if (n % 2)
			NEED(readable(20000));
		take_event(0);
		NEED(drain(0) == 1);
	}
}

static void *take_many(void *arg)
{
	unsigned *left = arg;

	for (;;) {
		struct ibv_cq *cq;
		void *context;

		if (__atomic_fetch_sub(left, 1, __ATOMIC_RELAXED) - 1 > 1u << 30)
			return NULL;
		NEED(ibv_get_cq_event(side.channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
		while (drain(cq == side.cq[1]) == 0)
			;
		NEED(ibv_req_notify_cq(cq, 0) == 0);
		tell(SEND, cq == side.cq[1]);
	}
}

static void many_threads(void)
{
	unsigned left = 1000;
	pthread_t threads[6];

	arm(0);
	arm(1);
	tell(SEND, 0);
	tell(SEND, 1);
	for (unsigned n = 0; n < 6; n++)
		NEED(pthread_create(&threads[n], NULL, take_many, &left) == 0);
	/* Each event leads to one order, so two are always on their way: those that are left wake nobody any more. */
	for (unsigned n = 0; n < 6; n++)
		NEED(pthread_join(threads[n], NULL) == 0);
}

/* The peer dies while this one is blocked: the flushed receives are an event. */
static void death_is_an_event(void)
{
	struct ibv_wc wc;
	int status, n;

	arm(0);
	NEED(kill(sender_pid, SIGKILL) == 0);
	take_event(0);
	while ((n = ibv_poll_cq(side.cq[0], 1, &wc)) == 0)
		;
	NEED(n == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	NEED(waitpid(sender_pid, &status, 0) == sender_pid);
	_exit(0);
}

/* The fds of the pair were lost: they come again, when there is room. */
static void at_the_fd_limit(void)
{
	arm(0);
	tell(SEND, 0);
	NEED(dup(0) == -1 && errno == EMFILE);
	NEED(setrlimit(RLIMIT_NOFILE, &fds_before) == 0);
	take_event(0);
	NEED(drain(0) == 1);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "blocking", blocking },
	{ "one-wake-up-a-message", one_wake_up_a_message },
	{ "polling-the-fd", polling_the_fd },
	{ "from-polling-to-events", from_polling_to_events },
	{ "solicited-only", solicited_only },
	{ "two-cqs", two_cqs },
	{ "nonblocking", nonblocking },
	{ "interrupted", interrupted },
	{ "restarted", restarted },
	{ "cancelled", cancelled },
	{ "many-threads", many_threads },
	{ "at-the-fd-limit", at_the_fd_limit },
	{ "death-is-an-event", death_is_an_event },
};

#define N_TESTS (sizeof(tests) / sizeof(tests[0]))

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < N_TESTS; i++) {
		if (argc < 2) {
			puts(tests[i].name);
		} else if (strcmp(tests[i].name, argv[1]) == 0) {
			no_fds = tests[i].run == at_the_fd_limit;
			start();
			tests[i].run();
			stop();
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
