/* SPDX-License-Identifier: BSD-2-Clause */
/* The fake daemon gives what JOIN gives: pages and pipes of the right sizes, and the events that the test asks for. */
#include "tests/unit/soft_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/rt_private.h"
#include "proto/ring_abi.h"

#define PEER 7u
#define FIRST_QPN 0x100u

static struct loop *current;
static bool with_domain;
static __thread struct soft_pd *domain; /* the parent domain of this thread */

void loop_with_domain(void)
{
	with_domain = true;
}

bool loop_has_domain(void)
{
	return with_domain;
}

void loop_domain_make(struct loop *loop)
{
	if (!with_domain)
		return;
	domain = calloc(1, sizeof(*domain));
	domain->base = &loop->pd;
	domain->pd.context = &loop->ctx.v.context;
	domain->td = td_new();
	ck_assert_ptr_nonnull(domain->td);
}

void loop_domain_free(void)
{
	if (!domain)
		return;
	td_free(domain->td);
	free(domain);
	domain = NULL;
}

static struct soft_pd *pd_of(struct loop *loop)
{
	return domain ? domain : &loop->pd;
}

static int page_new(size_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

/* The QP numbers of this process, and those of the other. */
static int map_new(void)
{
	int fd = page_new(VSD_MAP_SIZE);
	struct vsd_map *map = mmap(NULL, VSD_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert(map != MAP_FAILED);
	map->magic = VSD_MAP_MAGIC;
	map->version = VSD_ABI_VERSION;
	for (uint32_t i = 0; i < 16; i++)
		atomic_store(&map->owner[i], PEER);
	for (uint32_t i = 16; i < 32; i++)
		atomic_store(&map->owner[i], LOOP_PEER);
	munmap(map, VSD_MAP_SIZE);
	return fd;
}

static bool join(int fd, const struct frame_header *header)
{
	Vsd__JoinReply reply = VSD__JOIN_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;
	int events[2], kick[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events), 0);
	ck_assert_int_eq(pipe2(kick, O_CLOEXEC | O_NONBLOCK), 0);
	fdlist_consume(&fds, events[1]);
	fdlist_consume(&fds, page_new(VSD_PAGE_SIZE));
	fdlist_consume(&fds, kick[0]);
	fdlist_consume(&fds, map_new());
	current->events = events[0];
	current->kick = kick[1];
	reply.peer = PEER;
	reply.page_size = VSD_PAGE_SIZE;
	reply.map_size = VSD_MAP_SIZE;

	bool sent = fake_reply(fd, header, 0, &reply.base, &fds);

	fdlist_deinit(&fds);
	return sent;
}

static bool handle(struct fake_daemon *fake, int fd, const struct frame_header *header, const void *body)
{
	if (header->opcode == VSD__OP__OP_JOIN)
		return join(fd, header);
	return fake_reply(fd, header, EOPNOTSUPP, NULL, NULL);
}

const union ibv_gid loop_gid = { .raw = { 0xfe, 0x80, [15] = 5 } };

void loop_start(struct loop *loop)
{
	static Vsd__Port port = VSD__PORT__INIT;
	static Vsd__Port *ports[] = { &port };
	static Vsd__Gid gid = VSD__GID__INIT;
	static Vsd__Gid *gids[] = { &gid };
	static Vsd__Device device = VSD__DEVICE__INIT;

	memset(loop, 0, sizeof(*loop));
	current = loop;
	loop->events = loop->kick = -1;
	loop->fake.features = VSD_FEATURE_SHARDS;
	fake_start(&loop->fake, handle);
	ck_assert_int_eq(rt_start(), 0);
	loop->ctx.epoch = process_epoch();
	ck_assert_int_eq(soft_async_init(&loop->ctx.async), 0);
	port.number = 1;
	port.lid = 5;
	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	gid.raw.data = (uint8_t *)(uintptr_t)loop_gid.raw;
	gid.raw.len = sizeof(loop_gid);
	port.gids = gids;
	port.n_gids = 1;
	device.ports = ports;
	device.n_ports = 1;
	loop->ctx.info = &device;
	loop->pd.base = &loop->pd;
	loop->pd.pd.handle = 1;
	loop->pd.number = 1;
	loop->pd.pd.context = &loop->ctx.v.context;
	loop_domain_make(loop);
}

void loop_stop(struct loop *loop)
{
	loop_domain_free();
	rt_stop();
	control_close();
	soft_async_deinit(&loop->ctx.async);
	fake_stop(&loop->fake);
	close(loop->events);
	close(loop->kick);
}

/* --- objects ------------------------------------------------------------------------------------------------------------ */

struct soft_cq *loop_cq(struct loop *loop, uint32_t cqe)
{
	struct soft_cq *cq = calloc(1, sizeof(*cq));

	cq->ctx = &loop->ctx;
	cq->v.cq.context = &loop->ctx.v.context;
	cq->parent_domain = domain;
	ck_assert_int_eq(soft_cq_init(cq, cqe, domain != NULL), 0);
	return cq;
}

void loop_cq_free(struct soft_cq *cq)
{
	soft_cq_deinit(cq);
	free(cq);
}

struct soft_mr *loop_mr(struct loop *loop, void *addr, size_t length, unsigned access)
{
	return loop_mr_iova(loop, addr, length, (uintptr_t)addr, access);
}

struct soft_mr *loop_mr_iova(struct loop *loop, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct soft_mr *mr = calloc(1, sizeof(*mr));

	mr->ctx = &loop->ctx;
	mr->pd = &loop->pd;
	mr->key = ++loop->keys << 8 | 0x5a;
	mr->mr.lkey = mr->mr.rkey = mr->key;
	mr->mr.addr = mr->mem = addr;
	mr->mr.length = length;
	mr->iova = iova;
	mr->access = access;
	mr->mr.pd = &loop->pd.pd;
	mr->mr.context = &loop->ctx.v.context;
	ck_assert_int_eq(mr_open(mr), 0);
	return mr;
}

void loop_mr_free(struct soft_mr *mr)
{
	ck_assert_int_eq(mr_close(mr), 0);
	free(mr);
}

struct soft_srq *loop_srq(struct loop *loop, uint32_t max_wr, uint32_t max_sge)
{
	struct soft_srq *srq = calloc(1, sizeof(*srq));

	srq->ctx = &loop->ctx;
	srq->pd = pd_of(loop);
	srq->srq.context = &loop->ctx.v.context;
	ck_assert_int_eq(soft_srq_init(srq, max_wr, max_sge, domain != NULL), 0);
	return srq;
}

void loop_srq_free(struct soft_srq *srq)
{
	soft_srq_deinit(srq);
	free(srq);
}

/* --- QPs ---------------------------------------------------------------------------------------------------------------- */

struct soft_qp *loop_qp(struct loop *loop, const struct loop_options *options)
{
	struct soft_qp *qp = calloc(1, sizeof(*qp));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11 };

	attr.qp_access_flags = options->no_access ? 0 : options->access ? options->access : LOOP_ACCESS;
	qp->ctx = &loop->ctx;
	qp->pd = pd_of(loop);
	qp->send_cq = options->send_cq;
	qp->recv_cq = options->recv_cq;
	qp->srq = options->srq;
	qp->v.qp.context = &loop->ctx.v.context;
	qp->v.qp.qp_num = options->qpn ? options->qpn : FIRST_QPN + loop->qpns++;
	qp->v.qp.qp_type = options->type;
	qp->init.qp_type = options->type;
	qp->init.sq_sig_all = options->signal_all;
	qp->init.cap = (struct ibv_qp_cap){
		.max_send_wr = options->send_wr,
		.max_recv_wr = options->recv_wr,
		.max_send_sge = 4,
		.max_recv_sge = 4,
		.max_inline_data = 256,
	};
	ck_assert_int_eq(soft_qp_init(qp), 0);
	ck_assert_int_eq(soft_qp_start(qp), 0);
	ck_assert_int_eq(soft_qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
							IBV_QP_QKEY), 0);
	return qp;
}

void loop_qp_free(struct soft_qp *qp)
{
	ck_assert_int_eq(soft_qp_stop(qp), 0);
	soft_async_drop(&qp->ctx->async, &qp->v.qp);
	soft_qp_deinit(qp);
	free(qp);
}

void loop_state(struct soft_qp *qp, int state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	ck_assert_int_eq(soft_qp_apply(qp, &attr, IBV_QP_STATE), 0);
}

void loop_rtr(struct soft_qp *qp, uint32_t dest, const struct loop_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = options->rd_atomic,
		.min_rnr_timer = options->rnr_timer,
	};

	ck_assert_int_eq(soft_qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
							IBV_QP_MAX_DEST_RD_ATOMIC |
							IBV_QP_MIN_RNR_TIMER), 0);
	soft_qp_kickoff(qp);
}

void loop_rts(struct soft_qp *qp, const struct loop_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = options->timeout,
		.retry_cnt = options->retry_cnt,
		.rnr_retry = options->rnr_retry,
		.max_rd_atomic = options->rd_atomic,
	};

	ck_assert_int_eq(soft_qp_apply(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
							IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							IBV_QP_MAX_QP_RD_ATOMIC), 0);
	soft_qp_kickoff(qp);
}

static void wire_event(struct loop *loop, struct soft_qp *qp, struct soft_qp *peer, uint32_t slots,
	unsigned side, uint32_t resets)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;

	event.wire = loop->wires;
	event.generation = 1;
	event.kind = qp->init.qp_type == IBV_QPT_UC ? VSD__WIRE_KIND__WIRE_UC : VSD__WIRE_KIND__WIRE_RC;
	event.local_qpn = qp->v.qp.qp_num;
	event.peer_qpn = peer->v.qp.qp_num;
	event.req_slots = event.resp_slots = slots;
	event.peer = PEER;
	event.side = side;
	event.has_resets = true;
	event.resets = resets;
	ck_assert(fake_event(loop->events, VSD__OP__EV_WIRE, &event.base));
}

void loop_wire_end(struct loop *loop, struct soft_qp *qp, struct soft_qp *peer, uint32_t slots, unsigned side)
{
	wire_event(loop, qp, peer, slots, side, qp->resets);
	loop->wires += side;
}

void loop_wire_tell(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots)
{
	loop_wire_end(loop, a, b, slots, 0);
	loop_wire_end(loop, b, a, slots, 1);
}

void loop_wire(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots)
{
	loop_wire_tell(loop, a, b, slots);
	while (!atomic_load(&a->wire) || !atomic_load(&b->wire))
		sched_yield();
}

void loop_wire_late(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots)
{
	wire_event(loop, a, b, slots, 0, a->resets - 1);
	wire_event(loop, b, a, slots, 1, b->resets - 1);
	loop->wires++;
}

void loop_datagram_end(struct loop *loop, uint32_t slots, uint32_t side)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;

	event.wire = loop->wires;
	event.generation = 1;
	event.kind = VSD__WIRE_KIND__WIRE_DGRAM;
	event.req_slots = event.resp_slots = slots;
	event.side = side;
	event.peer = side ? PEER : LOOP_PEER;
	ck_assert(fake_event(loop->events, VSD__OP__EV_WIRE, &event.base));
}

void loop_datagram_wire(struct loop *loop, uint32_t slots)
{
	loop_datagram_end(loop, slots, 0);
	loop_datagram_end(loop, slots, 1);
	loop->wires++;
}

void loop_connect(struct loop *loop, struct soft_qp *a, struct soft_qp *b, uint32_t slots,
	const struct loop_options *options)
{
	loop_rtr(a, b->v.qp.qp_num, options);
	loop_rtr(b, a->v.qp.qp_num, options);
	loop_wire(loop, a, b, slots);
	loop_rts(a, options);
	loop_rts(b, options);
	if (!rt_inside())
		while (atomic_load(&a->run_queued) || atomic_load(&b->run_queued))
			sched_yield(); /* the turn that the new state is due: a test that counts turns begins without one */
}

uint64_t loop_counter(enum vsd_counter counter)
{
	if (domain) {
		bool entered = rt_enter();

		td_park_wait(domain->td);
		td_flush_counts(domain->td);
		rt_leave(entered);
	}
	return vsd_page_counter(rt_page(), counter);
}

/* --- work -------------------------------------------------------------------------------------------------------------- */

struct ibv_wc loop_wait(struct soft_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = soft_poll_cq(&cq->v.cq, 1, &wc)) == 0)
		sched_yield();
	ck_assert_int_eq(n, 1);
	return wc;
}

void loop_expect(struct soft_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = loop_wait(cq);

	ck_assert_msg(wc.wr_id == wr_id && wc.status == status, "completion %d of WR %d, not %d of %d",
		wc.status, (int)wc.wr_id, status, (int)wr_id);
}

void loop_event(struct loop *loop, enum ibv_event_type type)
{
	struct ibv_async_event event;

	ck_assert_int_eq(soft_async_get(&loop->ctx.async, &event), 0);
	ck_assert_int_eq(event.event_type, type);
	soft_async_ack(&loop->ctx.async, &event);
}

int loop_send(struct soft_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode, struct soft_mr *mr,
	const void *addr, uint32_t length, struct soft_mr *remote, const void *raddr)
{
	struct ibv_sge sge = { .addr = (uintptr_t)addr, .length = length, .lkey = mr ? mr->key : 0 };
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)raddr;
		wr.wr.atomic.rkey = remote->key;
		wr.wr.atomic.compare_add = 1;
	} else if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)raddr;
		wr.wr.rdma.rkey = remote->key;
	}
	return soft_post_send(&qp->v.qp, &wr, &bad);
}

int loop_recv(struct soft_qp *qp, uint64_t wr_id, struct soft_mr *mr, void *addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)addr, .length = length, .lkey = mr ? mr->key : 0 };
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0 };

	return soft_post_recv(&qp->v.qp, &wr, &bad);
}
