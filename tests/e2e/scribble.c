/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who shares memory with a peer must not trust it. Three roles, all of them plain verbs programs:
 *
 *	scribble honest DIR ROUNDS    talks to a friend all the time, and to one vandal after the other
 *	scribble friend DIR           checks every byte that the honest one sends, and sends it back
 *	scribble vandal DIR SEED      connects, then writes nonsense over all memory that it shares with its peer
 *
 * The honest one never crashes, hangs, or finds a byte changed beside its regions; work on a wire that is broken ends
 * with completions in error, and what it does with its friend goes on, verified. Status 0 and one line say so.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "proto/ring_abi.h"

enum {
	DEPTH = 16,
	BLOCK = 64 << 10,
	BESIDE = 64 << 10, /* mapped, not registered, before and behind a region */
	REGION = 5 * BLOCK,
	RECV = 1u << 30,
};

#define VANDAL_SECONDS 2 /* of one whose own library does not get over it */
#define PATIENCE 120 /* seconds; only a hang reaches it */
#define CANARY 0xc5

struct address {
	uint32_t qpn, psn, lid, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

struct end {
	const char *name;
	int sock;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *map, *memory; /* what I send; peer writes; what I read; receives; a counter */
	struct address peer;
	unsigned sends, recvs;
	uint64_t n, good;
	enum ibv_wc_status failed;
	uint64_t step; /* of the friend's dialogue */
	bool sent, got;
};

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The vandal's own library has the same nonsense before it: what it makes of it does not count. */
static _Atomic bool scribbling;

static void fail(const char *format, ...)
{
	va_list args;
	int error = errno;

	while (scribbling)
		pause();

	va_start(args, format);
	fprintf(stderr, "scribble: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, " (%s)\n", strerror(error));
	va_end(args);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- meeting ---- */

static int unix_socket(const char *dir, const char *name, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char path[sizeof(address.sun_path)];

	/* The name is there once somebody listens: who sees it connects. */
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
		snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s%s", dir, name, listening ? ".new" : "") >=
			(int)sizeof(address.sun_path))
		fail("%s is too long", dir);
	if (listening ? bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 8) ||
				rename(address.sun_path, path) :
			connect(fd, (struct sockaddr *)&address, sizeof(address)))
		fail("%s", address.sun_path);
	return fd;
}

/* A region between memory that nobody may touch, and that between pages that nobody can. */
static void memory_make(struct end *end)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = REGION + 2 * BESIDE + 2 * page;

	end->map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (end->map == MAP_FAILED || mprotect(end->map + page, size - 2 * page, PROT_READ | PROT_WRITE))
		fail("mmap");
	memset(end->map + page, CANARY, size - 2 * page);
	end->memory = end->map + page + BESIDE;
	memset(end->memory, 0, REGION);
}

static void memory_check(const struct end *end)
{
	for (size_t i = 0; i < BESIDE; i++)
		if (end->memory[-1 - (ptrdiff_t)i] != CANARY || end->memory[REGION + i] != CANARY)
			fail("memory beside the region of %s was changed, %zu bytes from it", end->name, i);
}

static void device_open(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		fail("no device");
	end->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!end->ctx)
		fail("ibv_open_device");
	end->pd = ibv_alloc_pd(end->ctx);
	if (!end->pd)
		fail("ibv_alloc_pd");
}

static void end_make(struct end *end, const struct end *device)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (device) {
		end->ctx = device->ctx;
		end->pd = device->pd;
	} else {
		device_open(end);
	}
	memory_make(end);
	end->mr = ibv_reg_mr(end->pd, end->memory, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	end->cq = ibv_create_cq(end->ctx, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = end->mr && end->cq ? ibv_create_qp(end->pd, &init) : NULL;
	if (!end->qp)
		fail("objects for %s", end->name);
}

static void end_free(struct end *end)
{
	memory_check(end);
	if ((errno = ibv_destroy_qp(end->qp)) || (errno = ibv_destroy_cq(end->cq)) || (errno = ibv_dereg_mr(end->mr)))
		fail("destroying what was for %s", end->name);
	memory_check(end);
	munmap(end->map, REGION + 2 * BESIDE + 2 * (size_t)sysconf(_SC_PAGESIZE));
	close(end->sock);
}

/* Nobody waits for a peer that is not there for longer than its timeout says. False when the other end left. */
static bool both_are_there(const struct end *end)
{
	char byte = 'c';

	return send(end->sock, &byte, 1, MSG_NOSIGNAL) == 1 && recv(end->sock, &byte, 1, MSG_WAITALL) == 1;
}

/* False when the other end left. */
static bool end_connect(struct end *end)
{
	struct ibv_port_attr port;
	struct address mine = { .qpn = end->qp->qp_num, .psn = 7, .rkey = end->mr->rkey, .addr = (uintptr_t)end->memory };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

	if (ibv_query_port(end->ctx, 1, &port) || ibv_query_gid(end->ctx, 1, 0, &mine.gid))
		fail("ibv_query_port");
	mine.lid = port.lid;
	if (send(end->sock, &mine, sizeof(mine), MSG_NOSIGNAL) != sizeof(mine) ||
		recv(end->sock, &end->peer, sizeof(end->peer), MSG_WAITALL) != sizeof(end->peer))
		return false;
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = end->peer.qpn,
		.rq_psn = end->peer.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = { .dlid = (uint16_t)end->peer.lid, .port_num = 1, .is_global = 1,
			     .grh = { .dgid = end->peer.gid, .hop_limit = 1 } },
	};
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .sq_psn = mine.psn, .max_rd_atomic = 4 };
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
	return both_are_there(end);
}

/* ---- work ---- */

static void post_recv(struct end *end)
{
	struct ibv_sge sge = { .addr = (uintptr_t)(end->memory + 3 * BLOCK), .length = BLOCK, .lkey = end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV, .sg_list = &sge, .num_sge = 1 }, *bad;

	if ((errno = ibv_post_recv(end->qp, &wr, &bad)))
		fail("ibv_post_recv");
	end->recvs++;
}

static void post_send(struct end *end, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t local, uint32_t size)
{
	struct ibv_sge sge = { .addr = (uintptr_t)(end->memory + local), .length = size, .lkey = end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(size) }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = end->peer.addr + remote;
		wr.wr.atomic.rkey = end->peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = end->peer.addr + remote;
		wr.wr.rdma.rkey = end->peer.rkey;
	}
	if ((errno = ibv_post_send(end->qp, &wr, &bad)))
		fail("ibv_post_send");
	end->sends++;
}

/* Everything in turn, in sizes that go inline, in one chunk and in several. */
static void post_mixed(struct end *end)
{
	static const uint32_t sizes[] = { 8, 200, 3000, BLOCK };
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_IMM,
						    IBV_WR_RDMA_WRITE_WITH_IMM };
	enum ibv_wr_opcode kind = kinds[end->n % 6];
	uint32_t size = sizes[end->n++ / 6 % 4];

	if (kind == IBV_WR_ATOMIC_FETCH_AND_ADD)
		post_send(end, kind, 4 * BLOCK, 2 * BLOCK, 8);
	else
		post_send(end, kind, BLOCK, kind == IBV_WR_RDMA_READ ? 2 * BLOCK : 0, size);
}

/* A completion is believed by programs: it must be of this QP, and no longer than the receive. */
static void completion_check(struct end *end, const struct ibv_wc *wc)
{
	if (wc->qp_num != end->qp->qp_num)
		fail("a completion of QP %#x on the CQ of %s", wc->qp_num, end->name);
	if (wc->wr_id == RECV ? !end->recvs : !end->sends || wc->wr_id > IBV_WR_ATOMIC_FETCH_AND_ADD)
		fail("a completion of WR %#llx of %s that was not outstanding", (unsigned long long)wc->wr_id, end->name);
	if (wc->status == IBV_WC_SUCCESS && wc->wr_id == RECV && wc->byte_len > BLOCK)
		fail("a receive of %u bytes into %u", wc->byte_len, BLOCK);
}

static int reap(struct end *end, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(end->cq, 1, wc);

	if (n < 0)
		fail("ibv_poll_cq");
	if (n == 0)
		return 0;
	completion_check(end, wc);
	if (wc->wr_id == RECV)
		end->recvs--;
	else
		end->sends--;
	if (wc->status != IBV_WC_SUCCESS && (!end->failed || end->failed == IBV_WC_WR_FLUSH_ERR))
		end->failed = wc->status;
	end->good += wc->status == IBV_WC_SUCCESS;
	return 1;
}

/* Keeps both queues full; after a failure only takes what comes. */
static void pump(struct end *end)
{
	struct ibv_wc wc;

	while (reap(end, &wc) > 0)
		;
	while (!end->failed && end->recvs < DEPTH)
		post_recv(end);
	while (!end->failed && end->sends < DEPTH)
		post_mixed(end);
}

/* ---- the friend ---- */

static uint32_t step_size(uint64_t step)
{
	static const uint32_t sizes[] = { 8, 64, 300, 5000, 50000, BLOCK };

	return sizes[step % 6];
}

static void pattern(uint8_t *memory, uint64_t step, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++)
		memory[i] = (uint8_t)(i * 31 + step * 7 + (i >> 8));
}

static void pattern_check(const struct end *end, uint32_t at, uint64_t step, uint32_t size, const char *what)
{
	for (uint32_t i = 0; i < size; i++)
		if (end->memory[at + i] != (uint8_t)(i * 31 + step * 7 + (i >> 8)))
			fail("byte %u of %s %llu with the friend is wrong", i, what, (unsigned long long)step);
}

static void dialogue_next(struct end *end)
{
	uint32_t size = step_size(end->step);

	end->sent = end->got = false;
	pattern(end->memory, end->step, size);
	post_recv(end);
	post_send(end, IBV_WR_RDMA_WRITE, BLOCK, 0, size);
	post_send(end, IBV_WR_SEND, 0, 0, size);
}

/* Writes and sends a pattern; when it comes back, reads what was written. Each step is checked. */
static void dialogue_pump(struct end *end)
{
	struct ibv_wc wc;

	while (reap(end, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			fail("work with the friend: %s", ibv_wc_status_str(wc.status));
		if (wc.wr_id == IBV_WR_SEND)
			end->sent = true;
		if (wc.wr_id == RECV) {
			if (wc.byte_len != step_size(end->step))
				fail("the friend sent %u bytes", wc.byte_len);
			pattern_check(end, 3 * BLOCK, end->step, wc.byte_len, "echo");
			memset(end->memory + 2 * BLOCK, 0, wc.byte_len);
			post_send(end, IBV_WR_RDMA_READ, BLOCK, 2 * BLOCK, wc.byte_len);
		}
		if (wc.wr_id == IBV_WR_RDMA_READ) {
			pattern_check(end, 2 * BLOCK, end->step, step_size(end->step), "read");
			end->got = true;
		}
	}
	if (end->sent && end->got) {
		end->step++;
		dialogue_next(end);
	}
}

static int friend_run(const char *dir)
{
	struct end end = { .name = "honest", .sock = unix_socket(dir, "friend", false) };
	struct pollfd left = { .fd = end.sock, .events = POLLIN };
	struct ibv_wc wc;

	end_make(&end, NULL);
	if (!end_connect(&end))
		fail("the honest one left");
	post_recv(&end);
	if (send(end.sock, "r", 1, MSG_NOSIGNAL) != 1)
		fail("the honest one left");
	for (;;) {
		if (reap(&end, &wc) == 0) {
			if (poll(&left, 1, 0) > 0)
				break;
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			break;
		if (wc.wr_id != RECV)
			continue;
		pattern_check(&end, 3 * BLOCK, end.step, wc.byte_len, "message");
		pattern_check(&end, BLOCK, end.step, wc.byte_len, "write");
		memcpy(end.memory, end.memory + 3 * BLOCK, wc.byte_len);
		end.step++;
		post_recv(&end);
		post_send(&end, IBV_WR_SEND, 0, 0, wc.byte_len);
	}
	printf("friend: %llu messages\n", (unsigned long long)end.step);
	return 0;
}

/* ---- the honest one ---- */

static int wait_for(int listener, struct end *friend)
{
	struct pollfd poll_fd = { .fd = listener, .events = POLLIN };
	double until = now() + PATIENCE;

	while (poll(&poll_fd, 1, 0) == 0) {
		if (friend)
			dialogue_pump(friend);
		if (now() > until)
			fail("nobody came");
	}
	return accept(listener, NULL, NULL);
}

static bool has_left(int sock)
{
	char byte;

	return recv(sock, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

/* One vandal, from its connection to its end. Counts how its work ended. */
static void meet_vandal(int listener, struct end *friend, unsigned *by_wire, unsigned *by_death)
{
	struct end end = { .name = "vandal", .sock = wait_for(listener, friend) };
	bool left = false, broke = false;
	double since = 0;
	uint64_t step = friend->step;

	end_make(&end, friend);
	if (!end_connect(&end))
		fail("the vandal left at once");
	do {
		pump(&end);
		dialogue_pump(friend);
		if (!left && end.failed)
			broke = true;
		if (!left && has_left(end.sock)) {
			left = true;
			since = now();
		}
		/* Dead or broken: all of it must come back. */
		if (left && now() - since > PATIENCE)
			fail("%u sends and %u receives never completed", end.sends, end.recvs);
	} while (!left || !end.failed || end.sends || end.recvs);
	++*(broke ? by_wire : by_death);
	if (end.good == 0)
		fail("nothing worked with the vandal before it started");
	end_free(&end);
	for (step = friend->step + 2; friend->step < step;)
		dialogue_pump(friend);
	memory_check(friend);
}

static int honest_run(const char *dir, unsigned rounds)
{
	struct end friend = { .name = "friend" };
	int friends = unix_socket(dir, "friend", true), vandals = unix_socket(dir, "vandal", true);
	unsigned by_wire = 0, by_death = 0;
	char byte;

	friend.sock = wait_for(friends, NULL);
	end_make(&friend, NULL);
	if (!end_connect(&friend) || recv(friend.sock, &byte, 1, MSG_WAITALL) != 1)
		fail("the friend left");
	dialogue_next(&friend);
	for (unsigned i = 0; i < rounds; i++)
		meet_vandal(vandals, &friend, &by_wire, &by_death);
	printf("honest: %u vandals, %u broke their wire, %u were outlived, %llu exchanges with the friend\n", rounds,
		by_wire, by_death, (unsigned long long)friend.step);
	return 0;
}

/* ---- the vandal ---- */

static uint64_t random_state;

static uint64_t chance(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dull;
}

struct victim {
	uint8_t *memory;
	size_t size;
	bool segment;
} victims[16];

static unsigned n_victims;

/* The mappings that are shared with others: segments, and the own process page. */
static void victims_find(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512], rights[8];

	while (maps && fgets(line, sizeof(line), maps) && n_victims < 16) {
		if (!strstr(line, "memfd:") || sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w')
			continue;
		size_t size = to - from;

		if (size != VSD_SEGMENT_SIZE && size != VSD_PAGE_SIZE)
			continue;
		victims[n_victims++] = (struct victim){
			.memory = (uint8_t *)from, .size = size, .segment = size == VSD_SEGMENT_SIZE };
	}
	if (maps)
		fclose(maps);
}

static const uint64_t spells[] = {
	0, 1, 2, 3, 5, 0x7f, 0xff, 0x3fff, 0x4000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000ull, 1ull << 63,
	~0ull, 0x101ull << 32, 0x0101010101010101ull,
};

static uint64_t spell(void)
{
	return chance() % 3 ? spells[chance() % (sizeof(spells) / sizeof(spells[0]))] : chance();
}

/* A place in what is in use: both sides' lines, the first wires, now and then a pool. */
static size_t place(const struct victim *victim)
{
	if (!victim->segment)
		return chance() % 2 ? chance() % 4096 : chance() % victim->size;
	switch (chance() % 8) {
	case 0:
		return chance() % offsetof(struct vsd_segment, pools);
	case 1:
		return chance() % victim->size;
	default:
		return VSD_SEGMENT_WIRES + chance() % (32 << 10);
	}
}

enum style { WORDS, BITS, LINES, BYTES, STEPS, FLOOD, STYLES };

static void scribble_once(const struct victim *victim, enum style style)
{
	uint8_t *at = victim->memory + (place(victim) & ~7ul);

	switch (style) {
	case WORDS:
		*(volatile uint64_t *)at = spell();
		break;
	case BITS:
		/* What is there stays nearly right, which goes further than noise does. */
		if (*(volatile uint64_t *)at)
			*(volatile uint64_t *)at ^= 1ull << chance() % 64;
		break;
	case LINES:
		at = victim->memory + ((size_t)(at - victim->memory) & ~63ul);
		for (unsigned i = 0; i < 8; i++)
			((volatile uint64_t *)at)[i] = spell();
		break;
	case BYTES:
		*(volatile uint8_t *)(at + chance() % 8) = (uint8_t)chance();
		break;
	case STEPS:
		/* Positions and lengths, a little off. */
		if (*(volatile uint32_t *)at)
			*(volatile uint32_t *)at += (uint32_t)(chance() % 7) - 3;
		break;
	default:
		memset(at, (int)chance(), 64);
	}
}

/* Over every line of both halves, one after the other. */
static void scribble_all(const struct victim *victim)
{
	for (size_t at = 0; at < victim->size; at += 8)
		*(volatile uint64_t *)(victim->memory + at) = spell();
}

static void *scribble(void *seed)
{
	enum style style = (enum style)(*(uint64_t *)seed % STYLES);
	bool pages = *(uint64_t *)seed / STYLES % 2;
	double until;

	random_state = *(uint64_t *)seed * 0x9e3779b97f4a7c15ull + 1;
	until = now() + 0.3;
	while (now() < until) {
		/* Few at a time first, so that traffic goes on over what was hit. */
		for (unsigned i = 0; i < 1 + chance() % 64; i++) {
			const struct victim *victim = &victims[chance() % n_victims];

			if (victim->segment || pages)
				scribble_once(victim, style);
		}
		if (chance() % 4 == 0)
			usleep((useconds_t)(chance() % 200)); /* its peer gets a chance to look */
	}
	if (style == FLOOD || chance() % 4 == 0)
		for (unsigned i = 0; i < n_victims; i++)
			if (victims[i].segment || pages)
				scribble_all(&victims[i]);
	/* What it did is for its peer; itself it would only crash. */
	usleep(50000); /* its peer sees the last of it */
	_exit(0);
}

static int vandal_run(const char *dir, uint64_t seed)
{
	struct end end = { .name = "honest", .sock = unix_socket(dir, "vandal", false) };
	pthread_t thread;

	alarm(PATIENCE);
	end_make(&end, NULL);
	if (!end_connect(&end))
		fail("the honest one left");
	while (end.good < 200 && !end.failed)
		pump(&end);
	victims_find();
	if (end.failed || n_victims == 0 || !victims[0].memory)
		fail("%u good completions, %u mappings", (unsigned)end.good, n_victims);
	alarm(VANDAL_SECONDS);
	scribbling = true;
	if (pthread_create(&thread, NULL, scribble, &seed))
		fail("pthread_create");
	for (;;)
		pump(&end);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "honest") == 0)
		return honest_run(argv[2], (unsigned)atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "friend") == 0)
		return friend_run(argv[2]);
	if (argc == 4 && strcmp(argv[1], "vandal") == 0)
		return vandal_run(argv[2], strtoull(argv[3], NULL, 0));
	fprintf(stderr, "usage: scribble honest DIR ROUNDS | friend DIR | vandal DIR SEED\n");
	return 2;
}
