/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs as a table of pointers, wherever they come from, and a test of two such tables: the QP that one made sends to the
 * QP that the other made, in one process.
 */
#ifndef TESTS_E2E_FORMS_TALK_H
#define TESTS_E2E_FORMS_TALK_H

#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_query_port
#undef ibv_get_device_list

/* Each with the version under which programs ask for it. */
#define CALLS(X)                                                                                                      \
	X(ibv_get_device_list, "IBVERBS_1.1")                                                                         \
	X(ibv_free_device_list, "IBVERBS_1.1")                                                                        \
	X(ibv_get_device_name, "IBVERBS_1.1")                                                                         \
	X(ibv_open_device, "IBVERBS_1.1")                                                                             \
	X(ibv_close_device, "IBVERBS_1.1")                                                                            \
	X(ibv_query_gid, "IBVERBS_1.1")                                                                               \
	X(ibv_alloc_pd, "IBVERBS_1.1")                                                                                \
	X(ibv_dealloc_pd, "IBVERBS_1.1")                                                                              \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8")                                                                            \
	X(ibv_dereg_mr, "IBVERBS_1.1")                                                                                \
	X(ibv_create_cq, "IBVERBS_1.1")                                                                               \
	X(ibv_destroy_cq, "IBVERBS_1.1")                                                                              \
	X(ibv_create_qp, "IBVERBS_1.1")                                                                               \
	X(ibv_modify_qp, "IBVERBS_1.1")                                                                               \
	X(ibv_destroy_qp, "IBVERBS_1.1")

struct calls {
#define CALL(name, version) __typeof__(&name) name;
	CALLS(CALL)
#undef CALL
};

#define TALK_NO_DEVICE 3 /* exit status: no soft device is listed */
#define TALK_BYTES     4096

struct end {
	const struct calls *calls;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	char buffer[TALK_BYTES];
};

/* NULL: no soft device. */
static inline struct ibv_context *soft_open(const struct calls *calls)
{
	int n = 0;
	struct ibv_device **list = calls->ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	for (int i = 0; list && i < n && !context; i++)
		if (strcmp(calls->ibv_get_device_name(list[i]), "soft0") == 0)
			context = calls->ibv_open_device(list[i]);
	if (list)
		calls->ibv_free_device_list(list);
	return context;
}

static inline int end_open(struct end *end, const struct calls *calls)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	end->calls = calls;
	end->context = soft_open(calls);
	if (!end->context)
		return TALK_NO_DEVICE;
	end->pd = calls->ibv_alloc_pd(end->context);
	end->cq = calls->ibv_create_cq(end->context, 16, NULL, NULL, 0);
	if (!end->pd || !end->cq || calls->ibv_query_gid(end->context, 1, 0, &end->gid))
		return 1;
	end->mr = calls->ibv_reg_mr_iova2(
		end->pd, end->buffer, TALK_BYTES, (uint64_t)(uintptr_t)end->buffer, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = calls->ibv_create_qp(end->pd, &init);
	if (!end->mr || !end->qp)
		return 1;
	return calls->ibv_modify_qp(end->qp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static inline int end_connect(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .dlid = 1 } };

	attr.ah_attr.grh.dgid = peer->gid;
	if (end->calls->ibv_modify_qp(end->qp, &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return 1;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	return end->calls->ibv_modify_qp(end->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline int end_wait(struct end *end)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		;
	return n != 1 || wc.status != IBV_WC_SUCCESS;
}

static inline int end_send(struct end *from, struct end *to)
{
	struct ibv_sge from_sge = { (uintptr_t)from->buffer, TALK_BYTES, from->mr->lkey },
		       to_sge = { (uintptr_t)to->buffer, TALK_BYTES, to->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to_sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &from_sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad_send;

	memset(from->buffer, 0x5a, TALK_BYTES);
	memset(to->buffer, 0, TALK_BYTES);
	if (ibv_post_recv(to->qp, &recv, &bad_recv) || ibv_post_send(from->qp, &send, &bad_send) ||
		end_wait(from) || end_wait(to))
		return 1;
	return memcmp(from->buffer, to->buffer, TALK_BYTES) != 0;
}

static inline int end_close(struct end *end)
{
	const struct calls *c = end->calls;

	return c->ibv_destroy_qp(end->qp) || c->ibv_dereg_mr(end->mr) || c->ibv_destroy_cq(end->cq) ||
	       c->ibv_dealloc_pd(end->pd) || c->ibv_close_device(end->context);
}

/* An exit status. */
static inline int talk(const struct calls *a, const struct calls *b)
{
	static struct end one, two;
	int r = end_open(&one, a);

	if (r == 0)
		r = end_open(&two, b);
	if (r == TALK_NO_DEVICE)
		return r;
	if (r || end_connect(&one, &two) || end_connect(&two, &one)) {
		fprintf(stderr, "the QPs cannot be connected\n");
		return 1;
	}
	if (end_send(&one, &two) || end_send(&two, &one)) {
		fprintf(stderr, "the message did not arrive\n");
		return 1;
	}
	if (end_close(&one) || end_close(&two)) {
		fprintf(stderr, "closing failed\n");
		return 1;
	}
	return 0;
}

#endif
