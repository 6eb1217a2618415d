/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching: an SRQ with a list of tags and a QP that receives by it, or the QP that sends to it. Each end has its own
 * memory, by slots.
 */
#include "tests/random/worker.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/tm_types.h>

struct tag_world {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_cq_ex *tag_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint8_t *memory;
};

static uint8_t *slot(const struct tag_world *t, int64_t i)
{
	return t->memory + i * TAG_SLOT;
}

static struct tag_world *world_new(struct worker *w, unsigned slots)
{
	struct tag_world *t = calloc(1, sizeof(*t));

	if (!t || !(t->memory = calloc(slots, TAG_SLOT)))
		abort();
	worker_races_in(t->memory, (size_t)slots * TAG_SLOT);
	t->pd = ibv_alloc_pd(w->ctx);
	t->cq = ibv_create_cq(w->ctx, 64, NULL, NULL, 0);
	t->mr = t->pd ? ibv_reg_mr(t->pd, t->memory, (size_t)slots * TAG_SLOT, IBV_ACCESS_LOCAL_WRITE) : NULL;
	return t->cq && t->mr ? t : NULL;
}

static int qp_make(struct tag_world *t, struct result *result)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.srq = t->srq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	t->qp = ibv_create_qp(t->pd, &attr);
	if (!t->qp)
		return errno;
	result->value[0] = t->qp->qp_num;
	result->value[1] = (uint32_t)(uintptr_t)t->memory;
	result->value[2] = (uint32_t)((uintptr_t)t->memory >> 32);
	return 0;
}

int worker_tag_client(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct tag_world *t = world_new(w, TAG_SENDS);

	w->tag_clients[cmd->id] = t;
	return t ? qp_make(t, result) : errno;
}

int worker_tag_server(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct tag_world *t = world_new(w, TAGS_MAX + TAG_PLAINS);
	struct ibv_cq_init_attr_ex cq = { .cqe = 256, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.tm_cap = { .max_num_tags = TAGS_MAX, .max_ops = 16 },
	};

	w->tag_servers[cmd->id] = t;
	if (!t || !(t->tag_cq = ibv_create_cq_ex(w->ctx, &cq)))
		return errno;
	init.pd = t->pd;
	init.cq = ibv_cq_ex_to_cq(t->tag_cq);
	t->srq = ibv_create_srq_ex(w->ctx, &init);
	return t->srq ? qp_make(t, result) : errno;
}

int worker_tag_up(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_qp *qp = (cmd->a[0] ? w->tag_clients : w->tag_servers)[cmd->id]->qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = (uint32_t)cmd->a[1],
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .dlid = (uint16_t)w->hello.lid, .port_num = 1, .is_global = 1,
			     .grh = { .dgid = w->hello.gid, .hop_limit = 1 } },
	};
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	(void)result;
	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return err;
}

/* --- operations; a[8]: the slot, a[9]: a handle, a[10]: an id --- */

static int add(struct tag_world *t, const struct cmd *cmd, struct result *result)
{
	uint32_t len = (uint32_t)cmd->a[TAG_LEN];
	struct ibv_sge sge[2] = { { (uintptr_t)slot(t, cmd->a[8]), len / 3, t->mr->lkey },
		{ (uintptr_t)slot(t, cmd->a[8]) + len / 3, len - len / 3, t->mr->lkey } };
	struct ibv_ops_wr wr = {
		.wr_id = (uint64_t)cmd->a[10],
		.opcode = IBV_WR_TAG_ADD,
		.flags = (int)cmd->a[TAG_FLAGS],
		.tm = { .unexpected_cnt = (uint32_t)cmd->a[TAG_COUNT],
			.add = { .recv_wr_id = (uint64_t)cmd->a[10] + 1, .sg_list = sge, .num_sge = 2,
				.tag = (uint64_t)cmd->a[TAG_TAG], .mask = (uint64_t)cmd->a[TAG_MASK] } },
	};
	struct ibv_ops_wr *bad;
	int err = ibv_post_srq_ops(t->srq, &wr, &bad);

	result->value[0] = wr.tm.handle;
	return err;
}

static int operation(struct tag_world *t, const struct cmd *cmd)
{
	struct ibv_ops_wr wr = { .wr_id = (uint64_t)cmd->a[10], .flags = (int)cmd->a[TAG_FLAGS] }, *bad;

	wr.opcode = cmd->a[TAG_WHAT] == WHAT_DEL ? IBV_WR_TAG_DEL : IBV_WR_TAG_SYNC;
	if (wr.opcode == IBV_WR_TAG_DEL)
		wr.tm.handle = (uint32_t)cmd->a[9];
	wr.tm.unexpected_cnt = (uint32_t)cmd->a[TAG_COUNT];
	return ibv_post_srq_ops(t->srq, &wr, &bad);
}

static int plain(struct tag_world *t, const struct cmd *cmd)
{
	struct ibv_sge sge = { (uintptr_t)slot(t, TAGS_MAX + cmd->a[8]), TAG_SLOT, t->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)cmd->a[10], .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(t->srq, &wr, &bad);
}

/* One or more at once: each says its tag, and is its own pattern behind that. */
static int messages(struct tag_world *t, const struct cmd *cmd)
{
	struct ibv_send_wr wrs[TAG_SENDS] = { 0 }, *bad;
	struct ibv_sge sges[TAG_SENDS];

	for (int64_t i = 0; i < cmd->a[TAG_N]; i++) {
		struct ibv_tmh tmh = {
			.opcode = cmd->a[TAG_WHAT] == WHAT_SEND ? IBV_TMH_EAGER : IBV_TMH_NO_TAG,
			.app_ctx = htobe32((uint32_t)(cmd->a[TAG_SEED] + i)),
			.tag = htobe64((uint64_t)cmd->a[TAG_TAG]),
		};
		uint8_t *to = slot(t, i);

		pattern_fill(to, (uint64_t)(cmd->a[TAG_SEED] + i), 0, sizeof(tmh) + (size_t)cmd->a[TAG_LEN]);
		memcpy(to, &tmh, sizeof(tmh));
		sges[i] = (struct ibv_sge){ (uintptr_t)to, (uint32_t)(sizeof(tmh) + (size_t)cmd->a[TAG_LEN]), t->mr->lkey };
		wrs[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i, .sg_list = &sges[i], .num_sge = 1, .opcode = IBV_WR_SEND,
			.next = i + 1 < cmd->a[TAG_N] ? &wrs[i + 1] : NULL };
	}
	return ibv_post_send(t->qp, wrs, &bad);
}

int worker_tag_op(struct worker *w, const struct cmd *cmd, struct result *result)
{
	switch ((enum tag_what)cmd->a[TAG_WHAT]) {
	case WHAT_ADD:
		return add(w->tag_servers[cmd->id], cmd, result);
	case WHAT_DEL:
	case WHAT_SYNC:
		return operation(w->tag_servers[cmd->id], cmd);
	case WHAT_PLAIN:
		return plain(w->tag_servers[cmd->id], cmd);
	case WHAT_SEND:
	case WHAT_SEND_NO_TAG:
		return messages(w->tag_clients[cmd->id], cmd);
	}
	return -EINVAL;
}

/* The next completion of the list's CQ; ENOENT: none. */
int worker_tag_poll(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_cq_ex *cq = w->tag_servers[cmd->id]->tag_cq;
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc_tm_info info;
	int err = ibv_start_poll(cq, &attr);

	if (err)
		return err;
	ibv_wc_read_tm_info(cq, &info);
	result->value[SEEN_ID] = (uint32_t)cq->wr_id;
	result->value[SEEN_STATUS] = cq->status;
	result->value[SEEN_OPCODE] = ibv_wc_read_opcode(cq);
	result->value[SEEN_FLAGS] = ibv_wc_read_wc_flags(cq);
	result->value[SEEN_LEN] = ibv_wc_read_byte_len(cq);
	result->value[SEEN_TAG] = (uint32_t)info.tag;
	result->value[SEEN_PRIV] = info.priv;
	ibv_end_poll(cq);
	return 0;
}

/* The same of what was sent. */
int worker_tag_sent(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(w->tag_clients[cmd->id]->cq, 1, &wc);

	if (n < 1)
		return n < 0 ? -n : ENOENT;
	result->value[SEEN_ID] = (uint32_t)wc.wr_id;
	result->value[SEEN_STATUS] = wc.status;
	return 0;
}
