/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder: serves the peer's requests in order. Everything in a descriptor is hostile until it is checked here:
 * its place in the sequence of messages, its place in its message, whether this kind of QP has that operation. Keys,
 * bounds and access are the owner's tables' business; what they forbid is answered with a NAK and the QP fails, or, on
 * an unreliable QP, the message is dropped whole.
 */
#include <errno.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/qp_private.h"
#include "client/soft/xrc.h"

#define KNOWN_FLAGS (VSD_F_FIRST | VSD_F_LAST | VSD_F_CHUNK | VSD_F_IMM | VSD_F_SOLICITED | \
		     VSD_F_RESTART | VSD_F_INV)

static bool is_write(const struct vsd_req *head)
{
	return head->op == VSD_REQ_WRITE || head->op == VSD_REQ_ATOMIC_WRITE;
}

static bool is_message(const struct vsd_req *head)
{
	return head->op == VSD_REQ_SEND || is_write(head);
}

static bool takes_receive(const struct vsd_req *head)
{
	return head->op == VSD_REQ_SEND || (head->flags & VSD_F_IMM);
}

/* --- receives ---------------------------------------------------------------------------------------------------- */

bool responder_take(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	struct receive_queue *rq = &resp->rq;

	if (resp->has_recv)
		return true;
	if (qp->srq) {
		resp->has_recv = soft_srq_take(qp->srq, &resp->recv, resp->recv_sge);
		return resp->has_recv;
	}
	if (rq->head == rq->tail)
		return false;
	const struct soft_rwqe *from = &rq->ring[rq->tail & rq->mask];

	resp->recv = *from;
	resp->recv.sge = resp->recv_sge;
	copy_sges(resp->recv_sge, from->sge, from->n_sge);
	rq->tail++;
	resp->has_recv = true;
	return true;
}

/* Of a UD QP one lock is held, which is not enough to note a failure: its next turn does that. */
static void receive_lost(struct soft_qp *qp)
{
	if (qp->init.qp_type != IBV_QPT_UD) {
		qp_fail(qp, QP_FAIL_CQ, IBV_EVENT_QP_FATAL);
	} else if (qp_state(qp) != IBV_QPS_ERR && !atomic_exchange(&qp->priv->recv_failed, true)) {
		qp_raise(qp, IBV_EVENT_QP_FATAL);
		rt_run_later(qp);
	}
}

/* Completes the receive that was taken; @cqe has what a success says, NULL: an error. */
void responder_cqe(struct soft_qp *qp, enum ibv_wc_status status, struct soft_cqe *cqe)
{
	struct responder *resp = &qp->priv->resp;
	struct soft_cqe failed = { .wc.opcode = IBV_WC_RECV, .solicited = true };
	struct soft_cq *cq = qp->srq && qp->srq->tags ? qp->srq->tags->cq : qp->recv_cq;

	if (!cqe)
		cqe = &failed;
	cqe->wc.wr_id = resp->recv.wr_id;
	cqe->wc.status = status;
	cqe->wc.vendor_err = status;
	cqe->wc.qp_num = qp->v.qp.qp_num;
	cqe->of = qp;
	if (qp->xrc) {
		cqe->wc.src_qp = qp->attr.dest_qp_num;
		cqe->of = qp->srq;
	}
	resp->has_recv = false;
	if (cq && !soft_cq_push(cq, cqe))
		receive_lost(qp);
}

uint64_t responder_room(const struct soft_rwqe *recv)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < recv->n_sge; i++)
		length += recv->sge[i].length;
	return length;
}

static void complete_receive(struct soft_qp *qp, const struct vsd_req *head)
{
	struct soft_cqe cqe = {
		.wc = {
			.opcode = head->op == VSD_REQ_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
			.byte_len = head->total,
		},
		.solicited = head->flags & VSD_F_SOLICITED,
	};

	if (head->flags & VSD_F_IMM) {
		cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		cqe.wc.imm_data = head->imm;
	} else if (head->flags & VSD_F_INV) {
		cqe.wc.wc_flags |= IBV_WC_WITH_INV;
		cqe.wc.invalidated_rkey = head->imm;
	}
	responder_cqe(qp, IBV_WC_SUCCESS, &cqe);
}

/* --- refusals ------------------------------------------------------------------------------------------------------ */

void responder_message_done(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;

	resp->open = false;
	resp->msn++;
	resp->done++;
	if (qp_is_rc(qp))
		resp->notify = true;
}

void responder_nak(struct soft_qp *qp, enum ibv_wc_status status, int event)
{
	struct responder *resp = &qp->priv->resp;

	resp->open = false;
	resp->stream.active = resp->pulling = false;
	resp->nak_owed = true;
	resp->nak_status = status;
	qp_fail(qp, QP_FAIL_RECV, event);
}

/* An unreliable QP forgets the message; what is left of it is dropped. */
static void drop(struct soft_qp *qp)
{
	qp->priv->resp.skip = true;
	qp_count(qp, VSD_COUNT_DROPPED, 1);
}

static void refuse(struct soft_qp *qp, enum ibv_wc_status status,
	int event)
{
	if (qp_is_rc(qp))
		responder_nak(qp, status, event);
	else
		drop(qp);
}

/* The receive itself is at fault: it completes in error, and the QP fails whatever its type. */
static void refuse_receive(struct soft_qp *qp, enum ibv_wc_status local, enum ibv_wc_status remote)
{
	responder_cqe(qp, local, NULL);
	if (qp_is_rc(qp))
		responder_nak(qp, remote, -1);
	else
		qp_fail(qp, QP_FAIL_RECV, -1);
}

int responder_slot(struct soft_qp *qp, struct wire *wire)
{
	int space = wire_resp_space(wire);

	(void)qp;
	if (space == 0) {
		wire_want_space(wire, WIRE_WANT_RESP);
		space = wire_resp_space(wire);
	}
	return space < 0 ? space : space > 0;
}

static int put_answer(struct soft_qp *qp, struct wire *wire, struct vsd_resp *answer)
{
	struct responder *resp = &qp->priv->resp;
	int rc = responder_slot(qp, wire);

	if (rc <= 0)
		return rc;
	answer->msn = (uint32_t)resp->msn;
	/* Whoever sees the answer sees the acknowledgements before it too. */
	wire_ack(wire, resp->done);
	wire_resp_put(wire, answer, -1);
	resp->notify = true;
	return 1;
}

int responder_resume(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;
	int rc = 1;

	if (resp->stream.active)
		rc = read_stream_run(qp, wire);
	if (resp->pulling)
		rc = pull_run(qp, wire);
	if (rc > 0 && resp->rnr_owed) {
		rc = put_answer(qp, wire, &(struct vsd_resp){
			.op = VSD_RESP_RNR, .value = qp->attr.min_rnr_timer });
		resp->rnr_owed = rc == 0;
	}
	if (rc > 0 && resp->stage_owed) {
		rc = put_answer(qp, wire, &(struct vsd_resp){ .op = VSD_RESP_STAGE, .value = resp->stage });
		resp->stage_owed = rc == 0;
	}
	if (rc >= 0 && resp->nak_owed) {
		rc = put_answer(qp, wire, &(struct vsd_resp){
			.op = VSD_RESP_NAK, .status = resp->nak_status });
		resp->nak_owed = rc == 0;
	}
	return rc;
}

/* --- the sequence --------------------------------------------------------------------------------------------------- */

static bool legal(const struct soft_qp *qp, const struct vsd_req *head)
{
	uint8_t f = head->flags;

	if ((f & ~KNOWN_FLAGS) || ((f & VSD_F_IMM) && (f & VSD_F_INV)))
		return false;
	if (qp->xrc && !qp_is_leg(qp)) /* it only sends */
		return false;
	switch (head->op) {
	case VSD_REQ_SEND:
		return true;
	case VSD_REQ_WRITE:
		return !(f & VSD_F_INV);
	case VSD_REQ_ATOMIC_WRITE:
		return qp_is_rc(qp) && !(f & (VSD_F_CHUNK | VSD_F_IMM | VSD_F_INV)) && head->total == 8 &&
		       (f & VSD_F_FIRST) && (f & VSD_F_LAST);
	case VSD_REQ_READ:
	case VSD_REQ_CMP_SWAP:
	case VSD_REQ_FETCH_ADD:
		return qp_is_rc(qp) && !(f & (VSD_F_CHUNK | VSD_F_IMM | VSD_F_INV)) && !head->len &&
		       (f & VSD_F_FIRST) && (f & VSD_F_LAST);
	case VSD_REQ_PULL:
		return qp->priv->plain && !(f & (VSD_F_CHUNK | VSD_F_INV)) && !head->len && head->total &&
		       (f & VSD_F_FIRST) && (f & VSD_F_LAST);
	default:
		return false;
	}
}

/* First descriptor: the expected message. Later ones: the next piece of it. */
static bool in_sequence(const struct soft_qp *qp, const struct vsd_req *head)
{
	const struct responder *resp = &qp->priv->resp;
	uint32_t got = head->flags & VSD_F_FIRST ? 0 : resp->got;

	if (head->flags & VSD_F_FIRST) {
		if (resp->open || head->msn != (uint32_t)resp->msn)
			return false;
	} else if (!resp->open || head->msn != resp->head.msn || head->op != resp->head.op ||
		   head->total != resp->head.total || !head->len) {
		return false;
	}
	if (!is_message(head))
		return true;
	return head->len <= head->total - got &&
	       !(head->flags & VSD_F_LAST) == (got + head->len < head->total) &&
	       (head->len || !head->total);
}

/* A message of an unreliable sender that broke off: the next one begins. */
static void abandon(struct soft_qp *qp, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;

	if (!qp_is_rc(qp) && resp->open && (head->flags & VSD_F_FIRST) &&
		head->msn == (uint32_t)(resp->msn + 1))
		responder_message_done(qp);
}

/* --- SEND and WRITE --------------------------------------------------------------------------------------------------- */

static void find_no_receive(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;

	qp_count(qp, VSD_COUNT_RNR, 1);
	if (!qp_is_rc(qp)) {
		drop(qp);
		return;
	}
	resp->open = false;
	resp->rnr = resp->rnr_owed = true;
	resp->hinted = false;
}

void responder_hint(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);

	if (!resp->rnr || resp->hinted || !wire || wire->broken)
		return;
	if (qp->srq ? srq_starve(qp->srq, qp) : resp->rq.head == resp->rq.tail)
		return;
	resp->hinted = true;
	atomic_fetch_add_explicit(&wire->mine->recvs, 1, memory_order_release);
	wire_notify(wire);
}

/* The same for a SEND to an SRQ with tags. */
static bool begin_tagged(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	uint8_t inline_payload[VSD_INLINE_RW];

	switch (tag_begin(qp, head, wire_req_payload(wire, head, inline_payload))) {
	case TAG_TAKEN:
		return true;
	case TAG_NO_RECEIVE:
		find_no_receive(qp);
		return false;
	case TAG_TOO_LONG:
		refuse_receive(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return false;
	case TAG_MALFORMED:
		break;
	}
	refuse(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	return false;
}

/* What is checked before the first byte of a message moves. False: it was refused or dropped. */
static bool begin(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;

	/* What the QP is not set up for is an invalid request, of no bytes too; keys are looked at after that. */
	if ((is_write(head) && !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) ||
		(head->op == VSD_REQ_ATOMIC_WRITE && (!qp->attr.max_dest_rd_atomic || head->rw.raddr & 7))) {
		refuse(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		return false;
	}
	if (is_write(head) && head->total) {
		struct mr_ref ref;
		void *ptr;
		int err = 0;

		/* One descriptor without a receive: placing it looks at all of it. */
		if (!(head->flags & VSD_F_LAST) || takes_receive(head)) {
			err = mr_ref_in(qp_td(qp), head->rw.rkey, qp->pd, qp, head->rw.raddr, head->total,
				IBV_ACCESS_REMOTE_WRITE, true, &ref, &ptr);
			if (!err)
				mr_unref(&ref);
		}
		if (err < 0) {
			refuse(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
			return false;
		}
	}
	if (!takes_receive(head))
		return true;
	if (head->op == VSD_REQ_SEND && qp->srq && qp->srq->tags)
		return begin_tagged(qp, wire, head);
	if (!responder_take(qp)) {
		find_no_receive(qp);
		return false;
	}
	if (head->op == VSD_REQ_SEND && responder_room(&resp->recv) < head->total) {
		refuse_receive(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return false;
	}
	return true;
}

/* One store, whoever makes it; the progress thread must not fault on a page that the program unmapped. */
static int store_word(void *ptr, const void *payload, bool paged)
{
	uint64_t word;

	if ((uintptr_t)ptr & 7) /* of a window whose addresses start at 0 */
		return -EDOM;
	if ((paged || rt_in_progress_thread()) && mr_probe(ptr, 8, true) < 0)
		return -EFAULT;
	memcpy(&word, payload, 8);
	__atomic_store_n((uint64_t *)ptr, word, __ATOMIC_RELEASE);
	return 0;
}

static int place_write(struct soft_qp *qp, const struct vsd_req *first, const void *payload, uint32_t len)
{
	struct responder *resp = &qp->priv->resp;
	struct mr_ref ref;
	void *ptr;
	int err;

	if (!len)
		return 0;
	err = mr_ref_in(qp_td(qp), first->rw.rkey, qp->pd, qp, first->rw.raddr + resp->got, len,
		IBV_ACCESS_REMOTE_WRITE, true, &ref, &ptr);
	if (err < 0)
		return err;
	if (ref.mr && ref.mr->null)
		err = 0;
	else if (first->op == VSD_REQ_ATOMIC_WRITE)
		err = store_word(ptr, payload, mr_is_paged(&ref));
	else if (mr_is_paged(&ref))
		err = copy_to_paged(ptr, payload, len);
	else
		err = copy_to_program(ptr, payload, len);
	mr_unref(&ref);
	return err;
}

static bool place(struct soft_qp *qp, const struct vsd_req *head, const void *payload)
{
	struct responder *resp = &qp->priv->resp;

	if (is_write(head)) {
		int err = place_write(qp, &resp->head, payload, head->len);

		if (!err)
			return true;
		if (resp->has_recv && qp_is_rc(qp))
			responder_cqe(qp, IBV_WC_WR_FLUSH_ERR, NULL);
		if (err == -EDOM)
			refuse(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		else
			refuse(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		return false;
	}
	if ((resp->tag.kind >= TAG_EAGER ? tag_place(qp, head, payload) :
					   sge_receive(qp, resp->got, payload, head->len)) == 0)
		return true;
	refuse_receive(qp, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	return false;
}

void responder_finish(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;
	const struct vsd_req *first = &resp->head;

	if ((first->flags & VSD_F_INV) && key_invalidate(first->imm, qp, true) < 0) {
		refuse_receive(qp, IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	qp_count(qp, VSD_COUNT_BYTES_RECEIVED, first->total);
	if (resp->tag.kind != TAG_NONE)
		tag_complete(qp, first);
	else if (takes_receive(first))
		complete_receive(qp, first);
	responder_message_done(qp);
}

static void serve_message(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;
	uint8_t inline_payload[VSD_INLINE_RW];

	if (head->flags & VSD_F_FIRST) {
		resp->head = *head;
		resp->got = 0;
		resp->open = true;
		resp->skip = false;
		if (!begin(qp, wire, head) && !resp->skip)
			return;
	}
	if (!resp->skip)
		place(qp, head, wire_req_payload(wire, head, inline_payload));
	resp->got += head->len;
	if (!resp->open || !(head->flags & VSD_F_LAST) || qp->priv->failure != QP_FINE)
		return;
	if (resp->skip)
		responder_message_done(qp);
	else
		responder_finish(qp);
}

/* A SEND that is to be fetched: all that can be said of it first is said as of others. */
static void serve_pull(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;

	resp->head = *head;
	resp->head.op = VSD_REQ_SEND;
	resp->got = 0;
	resp->open = true;
	resp->skip = false;
	resp->pulling = pull_begin(qp, wire) && begin(qp, wire, &resp->head);
}

/* --- READ -------------------------------------------------------------------------------------------------------------- */

static void serve_read(struct soft_qp *qp, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;
	struct mr_ref ref;
	void *ptr;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || !qp->attr.max_dest_rd_atomic) {
		responder_nak(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		return;
	}
	if (head->total) {
		if (mr_ref_in(qp_td(qp), head->rw.rkey, qp->pd, qp, head->rw.raddr, head->total, IBV_ACCESS_REMOTE_READ, true,
			    &ref, &ptr) < 0) {
			responder_nak(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
			return;
		}
		mr_unref(&ref);
	}
	resp->stream = (struct read_stream){
		.active = true,
		.raddr = head->rw.raddr,
		.rkey = head->rw.rkey,
		.total = head->total,
	};
}

/* --- any request -------------------------------------------------------------------------------------------------------- */

static void established(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;

	if (qp_state(qp) != IBV_QPS_RTR || resp->comm_est)
		return;
	resp->comm_est = true;
	qp_raise(qp, IBV_EVENT_COMM_EST);
}

/* While in RNR: true when the request is to be dropped. */
static bool waits_for_restart(struct responder *resp, const struct vsd_req *head)
{
	if (!resp->rnr)
		return false;
	if (!(head->flags & VSD_F_RESTART) || !(head->flags & VSD_F_FIRST) ||
		head->msn != (uint32_t)resp->msn)
		return true;
	resp->rnr = false;
	return false;
}

int responder_serve(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;

	if (qp->xrc && head->op == VSD_REQ_AIM)
		return xrc_aim(qp, wire, head);
	if (!waits_for_restart(resp, head)) {
		abandon(qp, head);
		if (!legal(qp, head) || !in_sequence(qp, head))
			return -EPROTO;
		established(qp);
		if (qp->xrc && (head->flags & VSD_F_FIRST) && !xrc_find_srq(qp)) {
			; /* answered */
		} else if (is_message(head)) {
			serve_message(qp, wire, head);
		} else if (head->op == VSD_REQ_PULL) {
			serve_pull(qp, wire, head);
		} else if (head->op == VSD_REQ_READ) {
			serve_read(qp, head);
		} else {
			int rc = atomic_serve(qp, wire, head);

			if (rc <= 0)
				return rc;
		}
	}
	wire_req_consume(wire, head);
	resp->dirty = true;
	/* An RNR or a NAK goes out at once, as long as there is a slot for it. */
	int rc = resp->rnr_owed || resp->nak_owed || resp->pulling || resp->stage_owed ? responder_resume(qp, wire) : 1;

	return rc < 0 ? rc : 1;
}

void responder_reset(struct soft_qp *qp)
{
	struct responder *resp = &qp->priv->resp;

	resp->msn = resp->done = 0;
	resp->dirty = resp->notify = false;
	resp->open = resp->skip = false;
	resp->rnr = resp->rnr_owed = resp->nak_owed = false;
	resp->stream.active = resp->pulling = resp->stage_owed = false;
	resp->got = 0;
	resp->aim = 0;
	resp->tag.kind = TAG_NONE;
}
