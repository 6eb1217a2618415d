/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting: lists of work requests through ibv_post_send() and ibv_post_recv(), or as a batch of ibv_wr_*() calls for
 * QPs that were made for that.
 */
#include "tests/random/worker.h"

#include <errno.h>
#include <string.h>

/* How many commands from @i on are one call: those with `more`, and the one behind them. */
unsigned worker_chain(const struct worker *w, unsigned i, unsigned n)
{
	unsigned k = 1;

	while (i + k < n && cmd_goes_on(&w->cmds[i + k - 1], &w->cmds[i + k]))
		k++;
	return k;
}

union ibv_gid group_gid(int64_t number)
{
	return (union ibv_gid){ .raw = { 0xff, 0x0e, [14] = 7, [15] = (uint8_t)number } };
}

uint16_t group_lid(int64_t number)
{
	return (uint16_t)(0xc100 + number);
}

static struct ibv_ah *group_ah(struct domain *domain, unsigned number)
{
	struct ibv_ah_attr attr = {
		.dlid = group_lid(number),
		.port_num = 1,
		.is_global = 1,
		.grh = { .dgid = group_gid(number), .hop_limit = 1 },
	};

	if (!domain->groups[number])
		domain->groups[number] = ibv_create_ah(domain->pd, &attr);
	return domain->groups[number];
}

static struct ibv_ah *ah_find(struct worker *w, const struct send_cmd *send)
{
	struct domain *domain = &w->pds[send->ah_pd];
	struct ibv_ah_attr attr = {
		.dlid = (uint16_t)w->hello.lid,
		.port_num = 1,
		.is_global = send->grh,
		.grh = { .dgid = w->hello.gid, .hop_limit = 1 },
	};

	if (send->group)
		return group_ah(domain, send->group - 1u);
	if (!domain->ah[send->grh])
		domain->ah[send->grh] = ibv_create_ah(domain->pd, &attr);
	return domain->ah[send->grh];
}

static struct ibv_ah *ah_get(struct worker *w, const struct send_cmd *send)
{
	struct ibv_ah *ah;

	pthread_mutex_lock(&w->ah_lock);
	ah = ah_find(w, send);
	pthread_mutex_unlock(&w->ah_lock);
	return ah;
}

static struct ibv_mw_bind_info bind_info(struct worker *w, const struct send_cmd *send)
{
	return (struct ibv_mw_bind_info){
		.mr = w->mrs[send->mr],
		.addr = send->raddr,
		.length = send->compare,
		.mw_access_flags = (unsigned)send->swap,
	};
}

static void plain_wr(struct worker *w, struct cmd *cmd, struct ibv_send_wr *wr)
{
	const struct send_cmd *send = &cmd->send;

	*wr = (struct ibv_send_wr){
		.wr_id = cmd->wr_id,
		.sg_list = cmd->sge,
		.num_sge = cmd->n_sge,
		.opcode = (enum ibv_wr_opcode)send->opcode,
		.send_flags = send->flags,
		.imm_data = send->imm,
	};
	wr->qp_type.xrc.remote_srqn = send->srqn;
	if (w->qps[cmd->id].qp->qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = ah_get(w, send);
		wr->wr.ud.remote_qpn = send->qpn;
		wr->wr.ud.remote_qkey = send->qkey;
		return;
	}
	switch (send->opcode) {
	case IBV_WR_BIND_MW:
		wr->bind_mw.mw = w->mws[send->mw];
		wr->bind_mw.rkey = send->rkey;
		wr->bind_mw.bind_info = bind_info(w, send);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = send->raddr;
		wr->wr.atomic.rkey = send->rkey;
		wr->wr.atomic.compare_add = send->compare;
		wr->wr.atomic.swap = send->swap;
		break;
	default:
		wr->wr.rdma.remote_addr = send->raddr;
		wr->wr.rdma.rkey = send->rkey;
	}
}

static void plain_send(struct worker *w, unsigned i, unsigned n)
{
	struct ibv_send_wr wrs[LINK_CMDS], *bad = NULL;
	unsigned good = n;
	int err;

	for (unsigned k = 0; k < n; k++) {
		plain_wr(w, &w->cmds[i + k], &wrs[k]);
		wrs[k].next = k + 1 < n ? &wrs[k + 1] : NULL;
	}
	err = ibv_post_send(w->qps[w->cmds[i].id].qp, wrs, &bad);
	if (err)
		good = (unsigned)(bad - wrs);
	for (unsigned k = good; k < n; k++)
		w->reply.results[i + k].error = k == good ? err : LINK_NOT_TRIED;
}

static void ex_opcode(struct worker *w, struct ibv_qp_ex *qp, const struct cmd *cmd)
{
	const struct send_cmd *send = &cmd->send;
	struct ibv_mw_bind_info info;

	switch (send->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, send->imm);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qp, send->imm);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, send->rkey, send->raddr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, send->rkey, send->raddr, send->imm);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, send->rkey, send->raddr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, send->rkey, send->raddr, send->compare, send->swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, send->rkey, send->raddr, send->compare);
		break;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(qp, send->rkey, send->raddr, (const void *)(uintptr_t)cmd->sge[0].addr);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(qp, send->imm);
		break;
	case IBV_WR_BIND_MW:
		info = bind_info(w, send);
		ibv_wr_bind_mw(qp, w->mws[send->mw], send->rkey, &info);
		break;
	}
}

static void ex_payload(struct ibv_qp_ex *qp, struct cmd *cmd)
{
	struct ibv_data_buf data[SGES];

	if (cmd->send.opcode == IBV_WR_LOCAL_INV || cmd->send.opcode == IBV_WR_BIND_MW ||
		cmd->send.opcode == IBV_WR_ATOMIC_WRITE)
		return;
	if (!(cmd->send.flags & IBV_SEND_INLINE)) {
		if (cmd->n_sge == 1)
			ibv_wr_set_sge(qp, cmd->sge[0].lkey, cmd->sge[0].addr, cmd->sge[0].length);
		else
			ibv_wr_set_sge_list(qp, cmd->n_sge, cmd->sge);
		return;
	}
	for (unsigned k = 0; k < cmd->n_sge; k++)
		data[k] = (struct ibv_data_buf){ (void *)(uintptr_t)cmd->sge[k].addr, cmd->sge[k].length };
	if (cmd->n_sge == 1)
		ibv_wr_set_inline_data(qp, data[0].addr, data[0].length);
	else
		ibv_wr_set_inline_data_list(qp, cmd->n_sge, data);
}

static void ex_send(struct worker *w, unsigned i, unsigned n)
{
	struct queue_pair *qp = &w->qps[w->cmds[i].id];
	int err;

	ibv_wr_start(qp->ex);
	for (unsigned k = 0; k < n; k++) {
		struct cmd *cmd = &w->cmds[i + k];

		qp->ex->wr_id = cmd->wr_id;
		qp->ex->wr_flags = cmd->send.flags;
		ex_opcode(w, qp->ex, cmd);
		if (qp->qp->qp_type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(qp->ex, ah_get(w, &cmd->send), cmd->send.qpn, cmd->send.qkey);
		if (qp->qp->qp_type == IBV_QPT_XRC_SEND && cmd->send.opcode != IBV_WR_LOCAL_INV && cmd->send.opcode != IBV_WR_BIND_MW)
			ibv_wr_set_xrc_srqn(qp->ex, cmd->send.srqn);
		ex_payload(qp->ex, cmd);
	}
	err = ibv_wr_complete(qp->ex);
	for (unsigned k = 0; k < n; k++)
		w->reply.results[i + k].error = err;
}

/* A window of type 1 is bound by a verb of its own. */
static int bind_old(struct worker *w, unsigned i)
{
	struct cmd *cmd = &w->cmds[i];
	struct ibv_mw *mw = w->mws[cmd->send.mw];
	struct ibv_mw_bind bind = {
		.wr_id = cmd->wr_id,
		.send_flags = cmd->send.flags,
		.bind_info = bind_info(w, &cmd->send),
	};
	int err = ibv_bind_mw(w->qps[cmd->id].qp, mw, &bind);

	w->reply.results[i].value[0] = mw->rkey;
	return err;
}

unsigned worker_send(struct worker *w, unsigned i, unsigned n)
{
	unsigned k = worker_chain(w, i, n);
	struct cmd *cmd = &w->cmds[i];

	if (cmd->send.opcode == IBV_WR_BIND_MW && cmd->send.is_mw == IBV_MW_TYPE_1) {
		w->reply.results[i].error = bind_old(w, i);
		return 1;
	}
	if (w->qps[cmd->id].ex)
		ex_send(w, i, k);
	else
		plain_send(w, i, k);
	return k;
}

unsigned worker_recv(struct worker *w, unsigned i, unsigned n)
{
	struct ibv_recv_wr wrs[LINK_CMDS], *bad = NULL;
	unsigned k = worker_chain(w, i, n), good = k;
	int err;

	for (unsigned j = 0; j < k; j++) {
		struct cmd *cmd = &w->cmds[i + j];

		wrs[j] = (struct ibv_recv_wr){
			.wr_id = cmd->wr_id,
			.next = j + 1 < k ? &wrs[j + 1] : NULL,
			.sg_list = cmd->sge,
			.num_sge = cmd->n_sge,
		};
	}
	if (w->cmds[i].a[RECV_IS_SRQ])
		err = ibv_post_srq_recv(w->srqs[w->cmds[i].id], wrs, &bad);
	else
		err = ibv_post_recv(w->qps[w->cmds[i].id].qp, wrs, &bad);
	if (err)
		good = (unsigned)(bad - wrs);
	for (unsigned j = good; j < k; j++)
		w->reply.results[i + j].error = j == good ? err : LINK_NOT_TRIED;
	return k;
}
