/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A QP whose peer's half, pools and every other word of the shared segment are the input's. The input is a list of
 * records (enum record); descriptors can be given without their tags, which are made right, so that what is behind the
 * first check is reached. Whatever comes, only memory that was registered changes, each work request completes at most
 * once, and no receive is longer than its buffer.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/cq.h"
#include "client/soft/mr.h"
#include "client/soft/multicast.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/srq.h"
#include "client/soft/tag.h"
#include "client/soft/xrc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum record {
	RECORD_TURN,	/* nothing but a turn */
	RECORD_REQUEST, /* 60 bytes of a request, its tags made; then its further slots zero */
	RECORD_RESPONSE, /* 60 bytes of a response */
	RECORD_COUNTS,	/* which word of the half; 8 bytes */
	RECORD_WIRE,	/* offset in both halves (2), length (1), bytes */
	RECORD_SIDES,	/* offset before the pools (2), length (1), bytes */
	RECORD_CHUNK,	/* pool and chunk (2), a byte to fill it with */
	RECORD_POST,	/* a kind of work request, and of what length (2) */
	RECORD_STATE,	/* the QP's next state */
	RECORDS
};

enum {
	SEGMENT = VSD_SEGMENT_WIRES + (256 << 10),
	QPN = 0x101, PEER_QPN = 0x201, PEER = 9, TAGGED = 256,
	SRQN = 0x102, PEER_SRQN = 0x202, XRCD = 3, /* of XRC */
	DEPTH = 16, CQES = 256,
	GAP = 4096,
	OPEN = 40960,  /* for everybody's use */
	LOCAL = 40960, /* what we send and receive */
	READ_ONLY = 4096,
	MEMORY = OPEN + LOCAL + READ_ONLY + 4 * GAP,
	STEPS = 200,
};

#define CANARY 0xc5

static struct {
	struct vsd_segment *mem; /* as the peer has it */
	struct vsd_map *map;
	int kick;
	uint32_t generation;
	uint8_t *memory, *open, *local, *read_only;
	struct soft_context ctx;
	struct soft_pd pd;
} f;

/* Of one input. */
struct run {
	const uint8_t *data;
	size_t size;
	struct soft_cq cq;
	struct soft_srq srq; /* with tags, if `tagged`; of XRC, if `leg` */
	bool tagged;
	bool leg; /* the runtime has the QP, not this */
	bool xrc;
	struct soft_qp qp;
	struct soft_mr mr[3];
	uint32_t slots;
	struct vsd_half *half; /* the peer's */
	uint64_t req, resp;    /* positions of what is written with right tags */
	unsigned sends, recvs;
	uint32_t recv_length;
};

static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

/* ---- what stays from input to input ---- */

static int page_new(size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	require(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "memfd");
	return fd;
}

static void *page_map(int fd, size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	require(mem != MAP_FAILED, "mmap");
	return mem;
}

static void pair_set_up(void)
{
	Vsd__EvSegment event = VSD__EV_SEGMENT__INIT;
	int mem = page_new(SEGMENT), page = page_new(VSD_PAGE_SIZE), kick[2], quiet[2];
	const uint32_t header[] = { VSD_PAGE_MAGIC, VSD_ABI_VERSION };

	event.segment = 1;
	event.side = 0;
	event.size = SEGMENT;
	event.peer = PEER;
	event.engines = VSD__ENGINE_RIGHT__ENGINE_STAGE;
	event.wires = 64;
	f.mem = page_map(mem, SEGMENT);
	f.mem->magic = VSD_SEGMENT_MAGIC;
	f.mem->version = VSD_ABI_VERSION;
	require(pwrite(page, header, sizeof(header), 0) == sizeof(header), "page");
	/* A pipe's end is as good as a pidfd here: never readable. */
	require(pipe2(kick, O_NONBLOCK | O_CLOEXEC) == 0 && pipe2(quiet, O_CLOEXEC) == 0, "pipe");
	f.kick = kick[0];
	require(pair_add(&event, mem, quiet[0], kick[1], page) == 0, "no pair");
	/* It is of this domain, so that it may send to groups, and yet runs no engine. */
	rt.pairs->priv->granted |= VSD__ENGINE_RIGHT__ENGINE_MAP;
}

static void set_up(void)
{
	int map = page_new(VSD_MAP_SIZE);

	rt.page = page_map(page_new(VSD_PAGE_SIZE), VSD_PAGE_SIZE);
	rt.peer = 7;
	rt.epoll = epoll_create1(EPOLL_CLOEXEC);
	f.map = page_map(map, VSD_MAP_SIZE);
	for (unsigned i = 0; i < 16; i++)
		f.map->owner[i] = i == QPN >> 8 ? rt.peer : PEER;
	rt.map = f.map;
	require(pair_loop_init() == 0, "no loop pair");
	pair_set_up();
	require(soft_async_init(&f.ctx.async) == 0, "no events");
	f.pd.base = &f.pd;
	f.pd.pd.handle = 1;
	f.pd.pd.context = &f.ctx.v.context;
	/* On the heap, so that ASan sees what is beyond the canaries. */
	f.memory = malloc(MEMORY);
	f.open = f.memory + GAP;
	f.local = f.open + OPEN + GAP;
	f.read_only = f.local + LOCAL + GAP;
}

/* ---- what is made for each ---- */

static void mr_make(struct run *run, unsigned i, uint8_t *addr, size_t length, unsigned access)
{
	struct soft_mr *mr = &run->mr[i];

	mr->ctx = &f.ctx;
	mr->pd = &f.pd;
	mr->key = (i + 1) << 8 | 0x5a;
	mr->mr.lkey = mr->mr.rkey = mr->key;
	mr->mr.addr = mr->mem = addr;
	mr->mr.length = length;
	/* Remote addresses that an input can name, wherever the heap is. Our own SGEs name the local one by its address. */
	mr->iova = addr == f.local ? (uintptr_t)addr : 0x10000 * (i + 1);
	mr->access = access;
	mr->mr.pd = &f.pd.pd;
	mr->mr.context = &f.ctx.v.context;
	require(mr_open(mr) == 0, "mr_open");
}

static void memory_make(struct run *run)
{
	memset(f.memory, CANARY, MEMORY);
	mr_make(run, 0, f.open, OPEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC);
	mr_make(run, 1, f.local, LOCAL, IBV_ACCESS_LOCAL_WRITE);
	mr_make(run, 2, f.read_only, READ_ONLY, IBV_ACCESS_REMOTE_READ);
}

static void canary_check(const uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		require(at[i] == CANARY, "memory that was not registered was changed");
}

static void memory_check(void)
{
	canary_check(f.memory, GAP);
	canary_check(f.open + OPEN, GAP);
	canary_check(f.local + LOCAL, GAP);
	/* Nothing may write to this one either. */
	canary_check(f.read_only, READ_ONLY + GAP);
}

static void modify(struct run *run, int state, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .qkey = 0x11, .dest_qp_num = PEER_QPN, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 1, .max_rd_atomic = 4, .retry_cnt = 1, .rnr_retry = 1, .timeout = 20,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	(void)soft_qp_apply(&run->qp, &attr, IBV_QP_STATE | mask);
	soft_qp_kickoff(&run->qp);
}

/* Such that a chunk filled with one byte names it. */
static const struct mcast_name group = {
	.link_layer = IBV_LINK_LAYER_INFINIBAND, .lid = 0xc001, .gid.global = { ~0ull, ~0ull }
};

static void srq_make(struct run *run)
{
	run->srq.ctx = &f.ctx;
	run->srq.pd = &f.pd;
	run->srq.srq.context = &f.ctx.v.context;
	require(soft_srq_init(&run->srq, TAGGED, 2, false) == 0, "no SRQ");
	require(soft_tag_init(&run->srq, &run->cq, TAGGED, 4) == 0, "no tags");
	run->qp.srq = &run->srq;
}

static void leg_make(struct run *run)
{
	run->srq.ctx = &f.ctx;
	run->srq.pd = &f.pd;
	run->srq.srq.context = &f.ctx.v.context;
	run->srq.cq = &run->cq;
	run->srq.number = SRQN;
	run->srq.xrcd = XRCD;
	require(soft_srq_init(&run->srq, DEPTH, 2, false) == 0, "no SRQ");
	xrc_srq_insert(&run->srq);
}

static void leg_end(struct run *run)
{
	bool entered = rt_enter();

	xrc_srq_remove(&run->srq);
	xrc_silence(QPN);
	xrc_reap();
	rt_leave(entered);
	soft_srq_deinit(&run->srq);
}

static const Vsd__XrcTarget *target(uint32_t access)
{
	static Vsd__XrcTarget of;

	vsd__xrc_target__init(&of);
	of.xrcd = XRCD;
	of.access = access;
	of.min_rnr_timer = 1;
	of.max_dest_rd_atomic = 4;
	of.state = IBV_QPS_RTS;
	return &of;
}

static void qp_make(struct run *run, enum ibv_qp_type type)
{
	struct soft_qp *qp = &run->qp;

	qp->ctx = &f.ctx;
	qp->pd = &f.pd;
	qp->send_cq = &run->cq;
	qp->recv_cq = run->xrc ? NULL : &run->cq;
	qp->v.qp.context = &f.ctx.v.context;
	qp->v.qp.qp_num = QPN;
	qp->v.qp.qp_type = type;
	qp->init.qp_type = type;
	qp->init.sq_sig_all = 1;
	qp->init.cap = (struct ibv_qp_cap){ .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2,
					    .max_recv_sge = 2, .max_inline_data = 64 };
	if (run->xrc)
		qp->init.cap.max_recv_wr = qp->init.cap.max_recv_sge = 0;
	require(soft_qp_init(qp) == 0 && soft_qp_start(qp) == 0, "no QP");
	modify(run, IBV_QPS_INIT, IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (type == IBV_QPT_UD) {
		modify(run, IBV_QPS_RTR, 0);
		modify(run, IBV_QPS_RTS, IBV_QP_SQ_PSN);
		require(soft_mcast_attach(qp, &group) == 0, "no group");
		return;
	}
	modify(run, IBV_QPS_RTR, IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(run, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC);
}

static void wire_make_for(struct run *run, enum ibv_qp_type type)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;
	bool entered = rt_enter();

	event.segment = 1;
	event.wire = 1;
	event.generation = f.generation = f.generation % 1000 + 1;
	event.offset = VSD_SEGMENT_WIRES;
	event.kind = type == IBV_QPT_UD ? VSD__WIRE_KIND__WIRE_DGRAM :
		     type == IBV_QPT_UC ? VSD__WIRE_KIND__WIRE_UC :
					  VSD__WIRE_KIND__WIRE_RC;
	event.local_qpn = type == IBV_QPT_UD ? 0 : QPN;
	event.peer_qpn = type == IBV_QPT_UD ? 0 : PEER_QPN;
	event.req_slots = event.resp_slots = run->slots;
	event.peer = PEER;
	if (run->xrc)
		event.kind = VSD__WIRE_KIND__WIRE_XRC;
	if (run->leg)
		event.target = (Vsd__XrcTarget *)(uintptr_t)target(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
								   IBV_ACCESS_REMOTE_ATOMIC);
	memset(f.mem->sides, 0, sizeof(f.mem->sides));
	run->half = (void *)((uint8_t *)f.mem + VSD_SEGMENT_WIRES + VSD_HALF_SIZE(run->slots, run->slots));
	memset(run->half, 0, VSD_HALF_SIZE(run->slots, run->slots));
	require(wire_attach(&event) == 0, "no wire");
	atomic_store(&run->half->state, (uint64_t)f.generation << 2 | VSD_HALF_OPEN);
	rt_leave(entered);
}

/* ---- the program ---- */

static void post_recv(struct run *run)
{
	struct ibv_sge sge[2] = { { (uintptr_t)f.local, run->recv_length / 2, run->mr[1].key },
				  { (uintptr_t)f.local + 16384, run->recv_length - run->recv_length / 2,
				    run->mr[1].key } };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = sge, .num_sge = 2 }, *bad;
	struct ibv_ops_wr *bad_op, op = {
		.opcode = IBV_WR_TAG_ADD,
		.tm.add = { .recv_wr_id = 1, .sg_list = sge, .num_sge = 2, .tag = run->recvs & 1, .mask = 1 },
	};

	if (run->tagged) {
		if (run->recvs < TAGGED && soft_post_srq_recv(&run->srq.srq, &wr, &bad) == 0)
			run->recvs++;
		if (run->recvs < TAGGED && soft_post_srq_ops(&run->srq.srq, &op, &bad_op) == 0)
			run->recvs += 2; /* a rendezvous completes twice */
		return;
	}

	if (run->leg && run->recvs < DEPTH / 2 && soft_post_srq_recv(&run->srq.srq, &wr, &bad) == 0)
		run->recvs++;
	if (run->xrc)
		return;
	if (run->recvs < DEPTH / 2 && soft_post_recv(&run->qp.v.qp, &wr, &bad) == 0)
		run->recvs++;
}

static void post_send(struct run *run, unsigned kind, uint32_t length)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM };
	enum ibv_wr_opcode opcode = opcodes[kind % (sizeof(opcodes) / sizeof(opcodes[0]))];
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = { (uintptr_t)f.local, atomic ? 8 : length % LOCAL, run->mr[1].key };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	if (run->qp.init.qp_type == IBV_QPT_UD || run->leg)
		return;
	/* One that it has a wire to, and now and then one that nobody has. */
	if (run->xrc)
		wr.qp_type.xrc.remote_srqn = kind & 0x80 ? 0xf00000 | kind : PEER_SRQN;
	if (atomic) {
		wr.wr.atomic.remote_addr = 0x1000;
		wr.wr.atomic.rkey = 0x77;
	} else {
		wr.wr.rdma.remote_addr = 0x1000;
		wr.wr.rdma.rkey = 0x77;
	}
	if (run->sends < DEPTH && soft_post_send(&run->qp.v.qp, &wr, &bad) == 0)
		run->sends++;
}

static void completions(struct run *run)
{
	struct ibv_wc wc[8];
	int n;

	while ((n = soft_poll_cq(&run->cq.v.cq, 8, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			unsigned *posted = wc[i].wr_id == 1 ? &run->recvs : &run->sends;

			require(wc[i].wr_id == 1 || wc[i].wr_id == 2, "a completion of nothing");
			require(*posted > 0, "a work request completed twice");
			--*posted;
			require(wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != 1 ||
					!(wc[i].opcode == IBV_WC_RECV) || wc[i].byte_len <= run->recv_length,
				"a receive that is longer than its buffer");
		}
	}
}

static void turn(struct run *run)
{
	char kicks[64];
	bool entered = rt_enter();

	for (unsigned i = 0; i < 4; i++)
		progress_round(TD_POLL, false);
	rt_leave(entered);
	completions(run);
	while (read(f.kick, kicks, sizeof(kicks)) > 0)
		;
}

/* ---- the peer ---- */

/* The next @n bytes of the input, zeros behind its end. */
static void take(struct run *run, void *to, size_t n)
{
	size_t have = n < run->size ? n : run->size;

	memset(to, 0, n);
	if (have)
		memcpy(to, run->data, have);
	run->data += have;
	run->size -= have;
}

static uint16_t take16(struct run *run)
{
	uint16_t value;

	take(run, &value, sizeof(value));
	return value;
}

static uint8_t take8(struct run *run)
{
	uint8_t value;

	take(run, &value, sizeof(value));
	return value;
}

static void slot_write(struct run *run, unsigned lane, uint64_t pos, const uint8_t *bytes)
{
	uint8_t *slot = (uint8_t *)(run->half + 1) + (lane * run->slots + pos % run->slots) * VSD_LINE;

	memcpy(slot + 4, bytes, VSD_LINE - 4);
	*(uint32_t *)(void *)slot = (uint32_t)(pos / run->slots) + 1;
}

static void write_request(struct run *run)
{
	static const uint8_t more[VSD_LINE - 4] = "more";
	uint8_t bytes[VSD_LINE - 4];
	unsigned n;

	take(run, bytes, sizeof(bytes));
	n = bytes[2]; /* vsd_req.slots */
	for (unsigned i = 1; i < n && i < VSD_SPAN_MAX; i++)
		slot_write(run, 0, run->req + i, more);
	slot_write(run, 0, run->req, bytes);
	run->req += n >= 1 && n <= VSD_SPAN_MAX ? n : 1;
}

static void write_response(struct run *run)
{
	uint8_t bytes[VSD_LINE - 4];

	take(run, bytes, sizeof(bytes));
	slot_write(run, 1, run->resp++, bytes);
}

static void write_count(struct run *run)
{
	uint8_t which = take8(run);
	uint64_t value;

	take(run, &value, sizeof(value));
	switch (which % 6) {
	case 0:
		atomic_store(&run->half->req_taken, value);
		break;
	case 1:
		atomic_store(&run->half->acked, value);
		break;
	case 2:
		atomic_store(&run->half->resp_taken, value);
		break;
	case 3:
		/* Closed, or of another generation. */
		atomic_store(&run->half->state, value % 4 ? value : (uint64_t)f.generation << 2 | VSD_HALF_CLOSED);
		break;
	case 4:
		atomic_store(&run->half->want_space, (uint32_t)value);
		break;
	default:
		atomic_store(&run->half->recvs, (uint32_t)value);
	}
}

static void write_bytes(struct run *run, void *base, size_t size)
{
	size_t at = take16(run) % size, n = take8(run);
	uint8_t bytes[256];

	take(run, bytes, n);
	memcpy((uint8_t *)base + at, bytes, n < size - at ? n : size - at);
}

static void write_chunk(struct run *run)
{
	uint16_t which = take16(run);
	struct vsd_pool *pool = which & 1 ? &f.mem->pools[which >> 1 & 1].req : &f.mem->pools[which >> 1 & 1].resp;

	memset(pool->chunks[(which >> 2) % VSD_POOL_CHUNKS], take8(run), VSD_CHUNK);
}

/* Up again it would need a new wire. */
static void state(struct run *run, unsigned kind)
{
	struct soft_qp *leg = run->leg ? rt_qp_get(QPN) : NULL;

	if (leg) {
		xrc_leg_changed(leg, target(kind));
		rt_qp_put(leg);
	}
	if (run->leg)
		return;
	if (kind % 4 == 0)
		modify(run, IBV_QPS_ERR, 0);
	else if (kind % 4 == 1)
		modify(run, IBV_QPS_SQD, 0);
}

static void record(struct run *run)
{
	unsigned kind;
	uint16_t length;

	switch ((enum record)(take8(run) % RECORDS)) {
	case RECORD_REQUEST:
		write_request(run);
		break;
	case RECORD_RESPONSE:
		write_response(run);
		break;
	case RECORD_COUNTS:
		write_count(run);
		break;
	case RECORD_WIRE:
		write_bytes(run, (uint8_t *)f.mem + VSD_SEGMENT_WIRES, VSD_WIRE_SIZE(run->slots, run->slots));
		break;
	case RECORD_SIDES:
		write_bytes(run, f.mem, offsetof(struct vsd_segment, pools));
		break;
	case RECORD_CHUNK:
		write_chunk(run);
		break;
	case RECORD_POST:
		kind = take8(run);
		length = take16(run);
		post_send(run, kind, length);
		break;
	case RECORD_STATE:
		state(run, take8(run));
		break;
	default:
		break;
	}
}

static void finish(struct run *run)
{
	bool entered;

	/* A hazard of a living peer is waited for; here nobody would ever take it away. */
	memset(f.mem->sides, 0, sizeof(f.mem->sides));
	if (run->leg) {
		leg_end(run);
	} else {
		soft_mcast_detach(&run->qp, &group);
		require(soft_qp_stop(&run->qp) == 0, "a QP that does not stop");
		soft_async_drop(&f.ctx.async, &run->qp.v.qp);
		soft_qp_deinit(&run->qp);
	}
	if (run->tagged) {
		soft_tag_deinit(&run->srq);
		soft_srq_deinit(&run->srq);
	}
	soft_cq_deinit(&run->cq);
	for (unsigned i = 0; i < 3; i++)
		require(mr_close(&run->mr[i]) == 0, "a region that does not close");
	entered = rt_enter();
	datagram_stop();
	wire_collect();
	events_deinit(); /* what it wanted to tell the daemon */
	rt_leave(entered);
	memory_check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC };
	static const uint32_t slots[] = { 16, 2, 64, 4 };
	static struct run run;
	enum ibv_qp_type type;
	unsigned how;

	if (!f.memory)
		set_up();
	memset(&run, 0, sizeof(run));
	run.data = data;
	run.size = size;
	how = take8(&run);
	run.slots = slots[how >> 2 & 3];
	run.recv_length = how & 0x10 ? 100 : 40000;
	run.cq.ctx = &f.ctx;
	run.cq.v.cq.context = &f.ctx.v.context;
	require(soft_cq_init(&run.cq, CQES, false) == 0, "no CQ");
	memory_make(&run);
	run.xrc = how & 0x80;
	run.leg = run.xrc && !(how & 1);
	type = run.xrc ? IBV_QPT_XRC_SEND : types[how & 3];
	run.tagged = how & 0x40 && type == IBV_QPT_RC;
	if (run.tagged)
		srq_make(&run);
	if (run.leg)
		leg_make(&run);
	else
		qp_make(&run, type);
	wire_make_for(&run, type);
	turn(&run);
	for (unsigned i = 0; i < STEPS && run.size > 0; i++) {
		if (!(how & 0x20))
			post_recv(&run);
		record(&run);
		turn(&run);
	}
	memory_check();
	finish(&run);
	return 0;
}
