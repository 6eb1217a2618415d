/* SPDX-License-Identifier: BSD-2-Clause */
#include "xrc_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define FILES	3
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static int files[FILES + 1] = { -1 };

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd, *parent;
	struct ibv_td *td;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr, *other_mr;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *recv, *send;
	struct kit_address here;
	uint8_t memory[2 * HALF];
} me;

void files_make(void)
{
	for (unsigned i = 1; i <= FILES; i++) {
		FILE *file = tmpfile();

		NEED(file);
		files[i] = fileno(file);
	}
}

/* --- objects ---------------------------------------------------------------------------------------------------------- */

static void open_all(void)
{
	if (me.ctx)
		return;
	me.ctx = kit_open();
	me.pd = ibv_alloc_pd(me.ctx);
	me.other_pd = ibv_alloc_pd(me.ctx);
	NEED(me.pd && me.other_pd);
	me.send_cq = kit_cq(me.ctx, 256);
	me.recv_cq = kit_cq(me.ctx, 256);
	me.mr = ibv_reg_mr(me.pd, me.memory, sizeof(me.memory), ACCESS);
	me.other_mr = ibv_reg_mr(me.other_pd, me.memory, sizeof(me.memory), ACCESS);
	NEED(me.mr && me.other_mr);
	me.here = kit_address(me.ctx);
}

static int xrcd_open(const struct order *order)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = files[order->a],
		.oflags = (int)order->b,
	};

	NEED(!me.xrcd);
	me.xrcd = ibv_open_xrcd(me.ctx, &attr);
	return me.xrcd ? 0 : errno;
}

static struct ibv_pd *parent_make(void)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = me.pd };

	me.td = ibv_alloc_td(me.ctx, &td);
	NEED(me.td);
	attr.td = me.td;
	me.parent = ibv_alloc_parent_domain(me.ctx, &attr);
	NEED(me.parent);
	return me.parent;
}

/* With a thread domain the CQ is of it as well, and would be elided. */
static struct ibv_cq *cq_of_parent(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 256,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		.parent_domain = me.parent,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(me.ctx, &attr);

	NEED(cq);
	return ibv_cq_ex_to_cq(cq);
}

static int srq_make(const struct order *order, struct answer *answer)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 128, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = me.pd,
		.xrcd = me.xrcd,
	};

	if (order->a) {
		attr.pd = parent_make();
		NEED(ibv_destroy_cq(me.recv_cq) == 0);
		me.recv_cq = cq_of_parent();
	}
	attr.cq = me.recv_cq;
	me.srq = ibv_create_srq_ex(me.ctx, &attr);
	if (!me.srq)
		return errno;
	return ibv_get_srq_num(me.srq, &answer->a);
}

static int srq_destroy(void)
{
	int r = ibv_destroy_srq(me.srq);

	if (r == 0)
		me.srq = NULL;
	if (r == 0 && me.parent) {
		RETURNS(ibv_dealloc_pd(me.parent), EBUSY); /* its CQ */
		NEED(ibv_destroy_cq(me.recv_cq) == 0);
		RETURNS(ibv_dealloc_td(me.td), EBUSY);
		NEED(ibv_dealloc_pd(me.parent) == 0 && ibv_dealloc_td(me.td) == 0);
		me.parent = NULL;
		me.recv_cq = kit_cq(me.ctx, 256);
	}
	return r;
}

static int recv_make(uint32_t qpn, struct answer *answer)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = me.xrcd, .qp_context = &me,
	};
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn, .xrcd = me.xrcd, .qp_context = &me, .qp_type = IBV_QPT_XRC_RECV,
	};

	me.recv = qpn ? ibv_open_qp(me.ctx, &attr) : ibv_create_qp_ex(me.ctx, &init);
	if (!me.recv)
		return errno;
	NEED(me.recv->qp_context == &me);
	answer->a = me.recv->qp_num;
	return 0;
}

static int send_make(struct answer *answer)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = me.send_cq,
		.cap = { .max_send_wr = 128, .max_send_sge = 2, .max_inline_data = 64 },
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		.pd = me.pd,
	};
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	me.send = ibv_create_qp_ex(me.ctx, &init);
	if (!me.send)
		return errno;
	NEED(ibv_post_recv(me.send, &wr, &bad) != 0);
	answer->a = me.send->qp_num;
	return 0;
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	return ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
}

static int up(struct ibv_qp *qp, const struct order *order)
{
	bool sends = qp == me.send;
	struct ibv_qp_attr attr = {
		.port_num = 1, .path_mtu = IBV_MTU_4096, .dest_qp_num = order->a, .rq_psn = 7, .sq_psn = 7, .timeout = 10,
		.qp_access_flags = sends ? 0 : order->b, .retry_cnt = 3, .rnr_retry = sends ? (uint8_t)order->b : 0,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = { .dlid = me.here.lid, .port_num = 1, .is_global = 1, .grh.dgid = me.here.gid },
	};
	int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, rts = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;

	if (sends)
		rts |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	else
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	int r = modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (r == 0)
		r = modify(qp, &attr, IBV_QPS_RTR, rtr);
	return r ? r : modify(qp, &attr, IBV_QPS_RTS, rts);
}

static int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	return modify(qp, &(struct ibv_qp_attr){ .port_num = 1 }, state, 0);
}

static int recv_state(struct answer *answer)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int r = ibv_query_qp(me.recv, &attr, IBV_QP_STATE, &init);

	answer->a = attr.qp_state;
	answer->b = attr.dest_qp_num;
	answer->c = attr.qp_access_flags;
	answer->d = init.qp_type;
	return r;
}

/* --- traffic ------------------------------------------------------------------------------------------------------------ */

static int post_recv(const struct order *order)
{
	int r = 0;

	for (uint32_t i = 0; i < order->a && r == 0; i++) {
		/* In turn, so that what two messages bring can be told apart. */
		uint8_t *at = me.memory + HALF + (order->b <= 1024 ? (i % 128) * 1024 : 0);
		struct ibv_sge sge = { (uintptr_t)at, order->b, me.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = (uintptr_t)at, .sg_list = &sge, .num_sge = 1 }, *bad;

		r = ibv_post_srq_recv(me.srq, &wr, &bad);
	}
	return r;
}

static int post(const struct order *order)
{
	static unsigned sends;
	/* What is not sent yet is not overwritten. */
	uint8_t *from = me.memory + (order->a == IBV_WR_SEND && order->length <= 1024 ? (sends++ % 64) * 1024 : 0);
	struct ibv_sge sge = { (uintptr_t)from, order->length, me.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = (enum ibv_wr_opcode)order->a,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(order->rkey ? order->rkey : 4711),
		.qp_type.xrc.remote_srqn = order->b,
	}, *bad;

	if (wr.opcode != IBV_WR_RDMA_READ)
		memset(from, order->fill, order->length);
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = order->remote;
		wr.wr.atomic.rkey = order->rkey;
		wr.wr.atomic.compare_add = order->fill;
	} else {
		wr.wr.rdma.remote_addr = order->remote;
		wr.wr.rdma.rkey = order->rkey;
	}
	return ibv_post_send(me.send, &wr, &bad);
}

static int post_ex(const struct order *order)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(me.send);

	NEED(qpx);
	memset(me.memory, order->fill, order->length);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qpx);
	ibv_wr_set_xrc_srqn(qpx, order->b);
	ibv_wr_set_sge(qpx, me.mr->lkey, (uintptr_t)me.memory, order->length);
	return ibv_wr_complete(qpx);
}

static int poll_recv(struct answer *answer)
{
	struct ibv_wc wc = { 0 };
	struct ibv_cq *cq;
	void *context;

	if (me.channel) {
		NEED(ibv_req_notify_cq(me.recv_cq, 0) == 0);
		if (ibv_poll_cq(me.recv_cq, 1, &wc) == 0) {
			NEED(ibv_get_cq_event(me.channel, &cq, &context) == 0 && cq == me.recv_cq);
			ibv_ack_cq_events(cq, 1);
			wc = kit_wait(me.recv_cq);
		}
	} else {
		wc = kit_wait(me.recv_cq);
	}
	answer->a = wc.byte_len;
	answer->b = wc.opcode;
	answer->c = wc.qp_num;
	answer->d = wc.src_qp;
	answer->e = wc.wr_id ? *(uint8_t *)(uintptr_t)wc.wr_id : 0;
	answer->address = wc.wc_flags & IBV_WC_WITH_IMM ? be32toh(wc.imm_data) : 0;
	return wc.status;
}

static int wait_event(const struct order *order)
{
	struct ibv_async_event event;

	NEED(ibv_get_async_event(me.ctx, &event) == 0);
	NEED((uint32_t)event.event_type == order->a);
	NEED(order->b ? event.element.srq == me.srq : event.element.qp == me.recv);
	ibv_ack_async_event(&event);
	return 0;
}

static int events_on(void)
{
	NEED(ibv_destroy_cq(me.recv_cq) == 0);
	me.channel = ibv_create_comp_channel(me.ctx);
	NEED(me.channel);
	me.recv_cq = ibv_create_cq(me.ctx, 256, NULL, me.channel, 0);
	NEED(me.recv_cq);
	return 0;
}

static int in_child(void)
{
	pid_t pid = fork();
	int status;

	NEED(pid >= 0);
	if (pid == 0) {
		struct ibv_xrcd_init_attr attr = { .comp_mask = 3, .fd = -1, .oflags = O_CREAT };
		struct ibv_qp_attr qp;
		struct ibv_qp_init_attr init;
		uint32_t number;

		REFUSED(ibv_open_xrcd(me.ctx, &attr), ENOTCONN);
		RETURNS(ibv_close_xrcd(me.xrcd), ENOTCONN);
		RETURNS(ibv_get_srq_num(me.srq, &number), ENOTCONN);
		RETURNS(ibv_destroy_srq(me.srq), ENOTCONN);
		RETURNS(ibv_query_qp(me.recv, &qp, 0, &init), ENOTCONN);
		RETURNS(ibv_destroy_qp(me.recv), ENOTCONN);
		_exit(0);
	}
	NEED(waitpid(pid, &status, 0) == pid);
	return status ? EIO : 0;
}

static void byte_at(const struct order *order, struct answer *answer)
{
	answer->a = __atomic_load_n(&me.memory[HALF + order->a], __ATOMIC_ACQUIRE);
	answer->b = me.memory[order->a];
}

static int destroy_qp(struct ibv_qp **qp)
{
	int r = ibv_destroy_qp(*qp);

	if (r == 0)
		*qp = NULL;
	return r;
}

static int close_xrcd(void)
{
	int r = ibv_close_xrcd(me.xrcd);

	if (r == 0)
		me.xrcd = NULL;
	return r;
}

/* What is left of it. */
static void quit(void)
{
	NEED(!me.send || ibv_destroy_qp(me.send) == 0);
	NEED(!me.recv || ibv_destroy_qp(me.recv) == 0);
	NEED(!me.srq || srq_destroy() == 0);
	NEED(!me.xrcd || ibv_close_xrcd(me.xrcd) == 0);
	NEED(ibv_dereg_mr(me.mr) == 0 && ibv_dereg_mr(me.other_mr) == 0);
	NEED(ibv_destroy_cq(me.send_cq) == 0 && ibv_destroy_cq(me.recv_cq) == 0);
	NEED(!me.channel || ibv_destroy_comp_channel(me.channel) == 0);
	NEED(ibv_dealloc_pd(me.pd) == 0 && ibv_dealloc_pd(me.other_pd) == 0);
	NEED(ibv_close_device(me.ctx) == 0);
}

static int limit(const struct order *order)
{
	return ibv_modify_srq(me.srq, &(struct ibv_srq_attr){ .srq_limit = order->a }, IBV_SRQ_LIMIT);
}

static int work(const struct order *order, struct answer *answer)
{
	open_all();
	switch (order->step) {
	case XRCD: return xrcd_open(order);
	case XRCD_CLOSE: return close_xrcd();
	case SRQ: return srq_make(order, answer);
	case SRQ_DESTROY: return srq_destroy();
	case SRQ_LIMIT: return limit(order);
	case RECV_NEW: return recv_make(0, answer);
	case RECV_OPEN: return recv_make(order->a, answer);
	case RECV_UP: return up(me.recv, order);
	case RECV_STATE: return recv_state(answer);
	case RECV_MODIFY: return to_state(me.recv, (enum ibv_qp_state)order->a);
	case RECV_DESTROY: return destroy_qp(&me.recv);
	case SEND_NEW: return send_make(answer);
	case SEND_UP: return up(me.send, order);
	case SEND_RESET: return to_state(me.send, IBV_QPS_RESET);
	case SEND_DESTROY: return destroy_qp(&me.send);
	case POST_RECV: return post_recv(order);
	case POST: return post(order);
	case POST_EX: return post_ex(order);
	case POLL_SEND: answer->a = kit_wait(me.send_cq).status; return 0;
	case POLL_RECV: return poll_recv(answer);
	case EVENT: return wait_event(order);
	case EVENTS_ON: return events_on();
	case MEMORY:
		answer->address = (uintptr_t)me.memory + HALF;
		answer->a = me.mr->rkey;
		answer->b = me.other_mr->rkey;
		return 0;
	case BYTE: byte_at(order, answer); return 0;
	case CHILD: return in_child();
	case QUIT: quit(); return 0;
	}
	return EINVAL;
}

/* --- orders ----------------------------------------------------------------------------------------------------------------- */

static void serve(int socket)
{
	struct order order;

	while (read(socket, &order, sizeof(order)) == sizeof(order)) {
		struct answer answer = { 0 };

		answer.r = work(&order, &answer);
		NEED(write(socket, &answer, sizeof(answer)) == sizeof(answer));
		if (order.step == QUIT)
			_exit(0);
	}
	_exit(1);
}

void workers_start(struct worker *workers, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int ends[2];

		NEED(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
		workers[i] = (struct worker){ fork(), ends[0] };
		NEED(workers[i].pid >= 0);
		if (workers[i].pid == 0) {
			close(ends[0]);
			serve(ends[1]);
		}
		close(ends[1]);
	}
}

void worker_kill(struct worker *worker)
{
	NEED(kill(worker->pid, SIGKILL) == 0 && waitpid(worker->pid, NULL, 0) == worker->pid);
	close(worker->socket);
	worker->pid = 0;
}

struct answer worker_try(const struct worker *worker, struct order order)
{
	struct answer answer;

	NEED(write(worker->socket, &order, sizeof(order)) == sizeof(order));
	NEED(read(worker->socket, &answer, sizeof(answer)) == sizeof(answer));
	return answer;
}

struct answer worker_do(const struct worker *worker, struct order order)
{
	struct answer answer = worker_try(worker, order);

	if (answer.r)
		fprintf(stderr, "step %d: %s\n", order.step, strerror(answer.r));
	NEED(answer.r == 0);
	return answer;
}

void workers_end(struct worker *workers, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int status;

		if (!workers[i].pid)
			continue;
		worker_do(&workers[i], (struct order){ .step = QUIT });
		NEED(waitpid(workers[i].pid, &status, 0) == workers[i].pid && status == 0);
		close(workers[i].socket);
	}
}
