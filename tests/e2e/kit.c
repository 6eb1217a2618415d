/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs, the everyday part.
 */
#include "kit.h"

#include <stdbool.h>
#include <stdlib.h>

/* A sanitizer starts its symbolizer with our environment, and that program cannot load an instrumented library. */
__attribute__((constructor)) static void preload_ends_here(void)
{
	(void)unsetenv("LD_PRELOAD");
}

struct ibv_context *kit_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0]);

	struct ibv_context *ctx = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	NEED(ctx);
	return ctx;
}

struct ibv_cq *kit_cq(struct ibv_context *ctx, int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, cqe, NULL, NULL, 0);

	NEED(cq);
	return cq;
}

struct ibv_qp_init_attr kit_qp_init(struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
		.qp_type = type,
	};
}

struct ibv_qp *kit_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = kit_qp_init(cq, srq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	return qp;
}

struct kit_address kit_address(struct ibv_context *ctx)
{
	struct kit_address address;
	struct ibv_port_attr port;

	NEED(ibv_query_port(ctx, 1, &port) == 0);
	NEED(ibv_query_gid(ctx, 1, 0, &address.gid) == 0);
	address.lid = port.lid;
	return address;
}

static void to_rtr(struct ibv_qp *qp, uint32_t qpn, const struct kit_address *address)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .dlid = address->lid, .port_num = 1, .is_global = 1, .grh.dgid = address->gid },
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	RETURNS(ibv_modify_qp(qp, &attr, mask), 0);
}

void kit_connect_to(struct ibv_qp *qp, uint32_t qpn, const struct kit_address *address)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET, .port_num = 1, .qkey = KIT_QKEY };
	int mask = IBV_QP_STATE;

	RETURNS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_INIT;
	attr.qp_access_flags = KIT_ACCESS & ~IBV_ACCESS_MW_BIND;
	RETURNS(ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
				(qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
		0);
	to_rtr(qp, qpn, address);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask |= IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	RETURNS(ibv_modify_qp(qp, &attr, mask), 0);
}

void kit_connect(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct kit_address address = kit_address(qp->context);

	kit_connect_to(qp, peer->qp_num, &address);
	if (peer != qp)
		kit_connect_to(peer, qp->qp_num, &address);
}

struct ibv_wc kit_wait(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	NEED(n == 1);
	return wc;
}

void kit_post_recv(struct ibv_qp *qp, struct ibv_mr *mr, void *addr, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)addr, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	RETURNS(qp->srq ? ibv_post_srq_recv(qp->srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad), 0);
}

enum ibv_wc_status kit_run(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *addr, uint32_t length,
	uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)addr, length, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	RETURNS(ibv_post_send(qp, &wr, &bad), 0);
	wc = kit_wait(qp->send_cq);
	NEED(wc.wr_id == 2);
	return wc.status;
}

enum ibv_wc_status kit_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = { .mr = mr,
				.addr = (uintptr_t)mr->addr,
				.length = mr->length,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ } },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	RETURNS(ibv_post_send(qp, &wr, &bad), 0);
	wc = kit_wait(qp->send_cq);
	if (wc.status == IBV_WC_SUCCESS)
		mw->rkey = wr.bind_mw.rkey;
	return wc.status;
}

struct ibv_wc kit_message(struct ibv_qp *qp, struct ibv_qp *peer, struct ibv_mr *mr, void *from, void *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from, length, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc, received = { .wr_id = 0 };
	bool sent = false;

	kit_post_recv(peer, mr, to, length);
	RETURNS(ibv_post_send(qp, &wr, &bad), 0);
	while (!sent || received.wr_id != 1) {
		wc = kit_wait(!sent ? qp->send_cq : peer->recv_cq);
		NEED(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == 1)
			received = wc;
		else
			sent = true;
	}
	return received;
}

int kit_main(const struct kit_test *tests, int argc, char **argv)
{
	for (; tests->name; tests++) {
		if (argc < 2) {
			puts(tests->name);
		} else if (strcmp(argv[1], tests->name) == 0) {
			tests->run(argc - 2, argv + 2);
			return 0;
		}
	}
	if (argc < 2)
		return 0;
	fprintf(stderr, "no test %s\n", argv[1]);
	return 2;
}
