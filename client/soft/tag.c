/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list of tagged receives. A message takes the first receive whose tag it has, in the order of posting, under the SRQ's
 * lock. One that finds none is unexpected and counted; from then on receives that are added do not count until the
 * program has said that it dealt with as many unexpected messages, so that no later message overtakes one of them.
 * The two counts are compared as 16 bits, which is what programs count in.
 */
#include "client/soft/tag.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/qp_private.h"
#include "client/soft/srq.h"

#define INDEX_BITS 12u
#define INDEX_MASK ((1u << INDEX_BITS) - 1)

_Static_assert(VSD_TAGS_MAX <= 1u << INDEX_BITS, "a handle has room for the index");

struct tag_entry {
	struct tag_entry *next;
	uint32_t handle; /* generation, then index; 0: free */
	bool live;	 /* it may match */
	uint64_t tag, mask, wr_id;
	uint32_t n_sge;
	struct ibv_sge sge[TAG_SGES];
};

int soft_tag_init(struct soft_srq *srq, struct soft_cq *cq, uint32_t max_tags, uint32_t max_ops)
{
	struct tag_list *list = calloc(1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	list->entries = calloc(max_tags, sizeof(*list->entries));
	if (!list->entries) {
		free(list);
		return -ENOMEM;
	}
	list->cq = cq;
	list->max_tags = max_tags;
	list->max_ops = max_ops;
	list->last = &list->first;
	for (uint32_t i = max_tags; i-- > 0;) {
		list->entries[i].next = list->free;
		list->free = &list->entries[i];
	}
	srq->tags = list;
	return 0;
}

void soft_tag_deinit(struct soft_srq *srq)
{
	struct tag_list *list = srq->tags;

	if (!list)
		return;
	soft_cq_purge(list->cq, list); /* completions of operations lead here */
	free(list->entries);
	free(list);
	srq->tags = NULL;
}

static bool in_step(const struct tag_list *list)
{
	return (uint16_t)list->unexpected == (uint16_t)list->handled;
}

/* --- operations (SRQ lock) ------------------------------------------------------------------------------------------------ */

static void op_complete(struct tag_list *list, const struct ibv_ops_wr *wr, enum ibv_wc_opcode opcode,
	enum ibv_wc_status status)
{
	struct soft_cqe cqe = {
		.wc = { .wr_id = wr->wr_id, .opcode = opcode, .status = status, .vendor_err = status },
		.of = list,
		.solicited = status != IBV_WC_SUCCESS,
		.freed = &list->ops_read,
	};

	if (!(wr->flags & IBV_OPS_SIGNALED) && status == IBV_WC_SUCCESS)
		return;
	if (!in_step(list))
		cqe.wc.wc_flags = IBV_WC_TM_SYNC_REQ;
	cqe.freed_to = ++list->ops;
	soft_cq_push(list->cq, &cqe);
}

static void synchronize(struct tag_list *list, uint32_t handled)
{
	list->handled = handled;
	if (!in_step(list))
		return;
	for (struct tag_entry *entry = list->first; entry; entry = entry->next)
		entry->live = true;
}

static void entry_unlink(struct tag_list *list, struct tag_entry **at)
{
	struct tag_entry *entry = *at;

	*at = entry->next;
	if (list->last == &entry->next)
		list->last = at;
	entry->handle = 0;
	entry->next = list->free;
	list->free = entry;
	list->n--;
}

static int op_add(struct tag_list *list, struct ibv_ops_wr *wr)
{
	struct tag_entry *entry = list->free;

	if (wr->tm.add.num_sge < 0 || (uint32_t)wr->tm.add.num_sge > TAG_SGES)
		return EINVAL;
	if (!entry)
		return ENOMEM;
	list->free = entry->next;
	if (++list->generation >= 1u << (32 - INDEX_BITS))
		list->generation = 1;
	*entry = (struct tag_entry){
		.handle = list->generation << INDEX_BITS | (uint32_t)(entry - list->entries),
		.live = in_step(list),
		.tag = wr->tm.add.tag,
		.mask = wr->tm.add.mask,
		.wr_id = wr->tm.add.recv_wr_id,
		.n_sge = (uint32_t)wr->tm.add.num_sge,
	};
	if (entry->n_sge)
		memcpy(entry->sge, wr->tm.add.sg_list, entry->n_sge * sizeof(*entry->sge));
	*list->last = entry;
	list->last = &entry->next;
	list->n++;
	wr->tm.handle = entry->handle;
	op_complete(list, wr, IBV_WC_TM_ADD, IBV_WC_SUCCESS);
	return 0;
}

/* A message may have taken it already. */
static int op_del(struct tag_list *list, const struct ibv_ops_wr *wr)
{
	struct tag_entry **at = &list->first;

	while (*at && (*at)->handle != wr->tm.handle)
		at = &(*at)->next;

	bool found = *at;

	if (found)
		entry_unlink(list, at);
	op_complete(list, wr, IBV_WC_TM_DEL, found ? IBV_WC_SUCCESS : IBV_WC_TM_ERR);
	return 0;
}

static int op_one(struct tag_list *list, struct ibv_ops_wr *wr)
{
	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC) || (unsigned)wr->opcode > IBV_WR_TAG_SYNC)
		return EINVAL;
	if (list->ops - atomic_load_explicit(&list->ops_read, memory_order_acquire) >= list->max_ops)
		return ENOMEM;
	if (wr->flags & IBV_OPS_TM_SYNC || wr->opcode == IBV_WR_TAG_SYNC)
		synchronize(list, wr->tm.unexpected_cnt);
	if (wr->opcode == IBV_WR_TAG_ADD)
		return op_add(list, wr);
	if (wr->opcode == IBV_WR_TAG_DEL)
		return op_del(list, wr);
	op_complete(list, wr, IBV_WC_TM_SYNC, IBV_WC_SUCCESS);
	return 0;
}

int soft_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct soft_srq *srq = soft_srq_of(ibsrq);
	int err = 0;

	if (rt_foreign(srq->ctx) || !srq->tags) {
		*bad = wr;
		return srq->tags ? EIO : EINVAL;
	}
	soft_lock(&srq->lock);
	for (; wr && !err; wr = err ? wr : wr->next) {
		err = op_one(srq->tags, wr);
		if (err)
			*bad = wr;
	}
	soft_unlock(&srq->lock);
	return err;
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

/* SRQ lock. */
static struct tag_entry **match(struct tag_list *list, uint64_t tag)
{
	struct tag_entry **at = &list->first;

	while (*at && (!(*at)->live || (tag & (*at)->mask) != (*at)->tag))
		at = &(*at)->next;
	return *at ? at : NULL;
}

static bool take_entry(struct soft_srq *srq, struct responder *resp)
{
	struct tag_entry **at;

	soft_lock(&srq->lock);
	at = match(srq->tags, resp->tag.tag);
	if (at) {
		resp->recv = (struct soft_rwqe){ .wr_id = (*at)->wr_id, .n_sge = (*at)->n_sge, .sge = resp->recv_sge };
		memcpy(resp->recv_sge, (*at)->sge, (*at)->n_sge * sizeof(*resp->recv_sge));
		resp->has_recv = true;
		entry_unlink(srq->tags, at);
	}
	soft_unlock(&srq->lock);
	return at;
}

/* The headers are copied once: the payload may be in memory that the peer can change. */
static bool headers_read(struct tag_match *tag, const struct vsd_req *head, const uint8_t *payload, bool *rendezvous)
{
	struct ibv_tmh tmh;
	struct ibv_rvh rvh;

	if (head->len < sizeof(tmh))
		return false;
	memcpy(&tmh, payload, sizeof(tmh));
	*rendezvous = tmh.opcode == IBV_TMH_RNDV;
	tag->kind = *rendezvous || tmh.opcode == IBV_TMH_EAGER ? TAG_UNEXPECTED : TAG_PLAIN;
	tag->tag = be64toh(tmh.tag);
	tag->app_ctx = be32toh(tmh.app_ctx);
	if (!*rendezvous)
		return true;
	if (head->len < sizeof(tmh) + sizeof(rvh))
		return false;
	memcpy(&rvh, payload + sizeof(tmh), sizeof(rvh));
	tag->va = be64toh(rvh.va);
	tag->rkey = be32toh(rvh.rkey);
	tag->length = be32toh(rvh.len);
	return true;
}

static bool may_fetch(struct soft_qp *qp)
{
	const struct requester *req = &qp->priv->req;
	int state = qp_state(qp);

	return (state == IBV_QPS_RTS || state == IBV_QPS_SQD) &&
	       req->internals - req->internals_done <= TAG_WRS - 2;
}

static enum tag_result take_plain(struct soft_qp *qp, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;
	struct soft_srq *srq = qp->srq;

	if (!responder_take(qp))
		return TAG_NO_RECEIVE;
	if (resp->tag.kind == TAG_UNEXPECTED) {
		soft_lock(&srq->lock);
		srq->tags->unexpected++;
		soft_unlock(&srq->lock);
	}
	return responder_room(&resp->recv) < head->total ? TAG_TOO_LONG : TAG_TAKEN;
}

enum tag_result tag_begin(struct soft_qp *qp, const struct vsd_req *head, const uint8_t *payload)
{
	struct responder *resp = &qp->priv->resp;
	bool rendezvous;

	resp->tag = (struct tag_match){ .kind = TAG_NONE };
	if (!headers_read(&resp->tag, head, payload, &rendezvous))
		return TAG_MALFORMED;
	/* What is longer than the device said is the program's to deal with. */
	if (resp->tag.kind == TAG_PLAIN || (rendezvous && head->total > TAG_HEADER_MAX))
		return take_plain(qp, head);
	if (rendezvous && !may_fetch(qp))
		return TAG_NO_RECEIVE;
	if (!take_entry(qp->srq, resp))
		return take_plain(qp, head);
	resp->tag.kind = rendezvous ? TAG_RENDEZVOUS : TAG_EAGER;
	if (!rendezvous && responder_room(&resp->recv) < head->total - sizeof(struct ibv_tmh))
		return TAG_TOO_LONG;
	return TAG_TAKEN;
}

int tag_place(struct soft_qp *qp, const struct vsd_req *head, const uint8_t *payload)
{
	const struct responder *resp = &qp->priv->resp;
	uint32_t skip = resp->got ? 0 : sizeof(struct ibv_tmh);

	if (resp->tag.kind == TAG_RENDEZVOUS || head->len == skip)
		return 0;
	return sge_receive(qp, resp->got + skip - sizeof(struct ibv_tmh), payload + skip, head->len - skip);
}

/* --- rendezvous ------------------------------------------------------------------------------------------------------------- */

static struct swqe *internal_wr(struct requester *req, enum tag_wr kind, enum ibv_wr_opcode opcode)
{
	struct swqe *w = swqe_at(req, req->head++);

	swqe_begin(w, opcode);
	w->internal = kind;
	req->internals++;
	return w;
}

/* The READ into the receive, and behind it the answer to the sender that its buffer is its own again. */
static void fetch(struct soft_qp *qp, const struct soft_rwqe *recv)
{
	struct requester *req = &qp->priv->req;
	const struct tag_match *tag = &qp->priv->resp.tag;
	struct tag_fetch *f = &req->fetches[req->internals / 2 % TAG_FETCHES];
	struct swqe *w = internal_wr(req, TAG_WR_READ, IBV_WR_RDMA_READ);

	memcpy(f->sge, recv->sge, recv->n_sge * sizeof(*f->sge));
	w->wr_id = recv->wr_id;
	w->raddr = tag->va;
	w->rkey = tag->rkey;
	w->length = tag->length;
	w->n_sge = recv->n_sge;
	w->sge = f->sge;
	f->fin = (struct ibv_tmh){
		.opcode = IBV_TMH_FIN, .app_ctx = htobe32(tag->app_ctx), .tag = htobe64(tag->tag)
	};
	w = internal_wr(req, TAG_WR_FIN, IBV_WR_SEND);
	w->flags = IBV_SEND_INLINE | IBV_SEND_FENCE;
	w->length = sizeof(f->fin);
	w->data = (uint8_t *)&f->fin;
}

static void complete(struct soft_qp *qp, enum ibv_wc_status status, unsigned flags, uint32_t length)
{
	const struct tag_match *tag = &qp->priv->resp.tag;
	struct soft_cqe cqe = {
		.wc = {
			.opcode = tag->kind == TAG_PLAIN ? IBV_WC_TM_NO_TAG : IBV_WC_TM_RECV,
			.byte_len = length,
			.wc_flags = flags,
		},
		.solicited = qp->priv->resp.head.flags & VSD_F_SOLICITED,
	};

	if (flags & IBV_WC_WITH_IMM)
		cqe.wc.imm_data = qp->priv->resp.head.imm;
	if (flags & IBV_WC_WITH_INV)
		cqe.wc.invalidated_rkey = qp->priv->resp.head.imm;
	if (flags & IBV_WC_TM_MATCH) {
		cqe.tag = tag->tag;
		cqe.wc.src_qp = tag->app_ctx;
	}
	responder_cqe(qp, status, &cqe);
}

void tag_complete(struct soft_qp *qp, const struct vsd_req *first)
{
	struct responder *resp = &qp->priv->resp;
	const struct soft_rwqe recv = resp->recv;
	unsigned flags = first->flags & VSD_F_IMM ? IBV_WC_WITH_IMM : first->flags & VSD_F_INV ? IBV_WC_WITH_INV : 0;

	if (resp->tag.kind == TAG_EAGER) {
		complete(qp, IBV_WC_SUCCESS, flags | IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
			first->total - (uint32_t)sizeof(struct ibv_tmh));
	} else if (resp->tag.kind != TAG_RENDEZVOUS) {
		complete(qp, IBV_WC_SUCCESS, flags, first->total);
	} else if (responder_room(&recv) < resp->tag.length) {
		/* The program has the tag, and asks for the rest itself. */
		complete(qp, IBV_WC_TM_RNDV_INCOMPLETE, flags | IBV_WC_TM_MATCH, resp->tag.length);
	} else {
		complete(qp, IBV_WC_SUCCESS, flags | IBV_WC_TM_MATCH, resp->tag.length);
		fetch(qp, &recv);
	}
	resp->tag.kind = TAG_NONE;
}

void tag_fetched(struct soft_qp *qp, const struct swqe *w, enum ibv_wc_status status)
{
	struct soft_cqe cqe = {
		.wc = {
			.wr_id = w->wr_id,
			.status = status,
			.vendor_err = status,
			.opcode = IBV_WC_TM_RECV,
			.byte_len = w->length,
			.wc_flags = IBV_WC_TM_DATA_VALID,
			.qp_num = qp->v.qp.qp_num,
		},
		.of = qp,
		.solicited = true,
	};

	qp->priv->req.internals_done++;
	if (w->internal == TAG_WR_READ && !soft_cq_push(qp->srq->tags->cq, &cqe))
		qp_fail(qp, QP_FAIL_CQ, IBV_EVENT_QP_FATAL);
}
