/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READ responses and atomics. A READ is a stream of responses that goes on as slots and chunks of the response lane
 * come back; requests behind it wait, as on a fabric. The region is looked up for every piece, so that a stream stops
 * when its region is deregistered.
 */
#include <errno.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/qp_private.h"

#define INLINE_READ sizeof(((struct vsd_resp *)0)->data)

static int read_piece(struct soft_qp *qp, const struct read_stream *s, void *buf, size_t n)
{
	struct mr_ref ref;
	void *ptr;
	int err;

	if (!n)
		return 0;
	err = mr_ref_in(qp_td(qp), s->rkey, qp->pd, qp, s->raddr + s->off, n, IBV_ACCESS_REMOTE_READ, true, &ref, &ptr);
	if (err < 0)
		return err;
	if (mr_is_paged(&ref))
		err = copy_from_paged(buf, ptr, n);
	else if (!ref.mr || !ref.mr->null)
		err = copy_from_program(buf, ptr, n);
	else
		memset(buf, 0, n);
	mr_unref(&ref);
	return err;
}

/* One response: 1 when it is in the lane; 0: no slot or chunk; -EACCES: the region is gone; -EPROTO. */
static int put_piece(struct soft_qp *qp, struct wire *wire, struct read_stream *s)
{
	struct vsd_resp answer = { .op = VSD_RESP_READ, .msn = (uint32_t)qp->priv->resp.msn };
	uint32_t left = s->total - s->off;
	int chunk = -1;
	void *to = answer.data;
	int rc = responder_slot(qp, wire);

	if (rc <= 0)
		return rc;
	if (left > INLINE_READ) {
		chunk = pair_chunk_get(wire->pair, POOL_RESP, qp);
		if (chunk < 0)
			return 0;
		to = pair_chunk(wire->pair, POOL_RESP, chunk);
		answer.flags = VSD_F_CHUNK;
		answer.chunk = chunk;
	}
	answer.len = left < VSD_CHUNK ? left : VSD_CHUNK;
	if (answer.len == left)
		answer.flags |= VSD_F_LAST;
	if (read_piece(qp, s, to, answer.len) < 0) {
		if (chunk >= 0)
			pair_chunk_put(wire->pair, POOL_RESP, chunk);
		return -EACCES;
	}
	wire_resp_put(wire, &answer, chunk);
	s->off += answer.len;
	return 1;
}

int read_stream_run(struct soft_qp *qp, struct wire *wire)
{
	struct responder *resp = &qp->priv->resp;
	struct read_stream *s = &resp->stream;
	uint32_t start = s->off;

	do {
		if (s->off - start >= QP_SLICE) {
			qp_again(qp);
			return 0;
		}
		int rc = put_piece(qp, wire, s);

		if (rc == -EACCES) {
			responder_nak(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
			return 1;
		}
		if (rc <= 0)
			return rc;
		resp->notify = true;
	} while (s->off < s->total);
	s->active = false;
	qp_count(qp, VSD_COUNT_BYTES_SENT, s->total);
	responder_message_done(qp);
	resp->dirty = true;
	return 1;
}

uint64_t atomic_apply(void *ptr, uint8_t op, uint64_t compare_add, uint64_t swap)
{
	uint64_t *word = ptr;

	if (op != VSD_REQ_CMP_SWAP)
		return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(word, &compare_add, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare_add;
}

/* 1: done or refused; 0: no slot for the answer yet; -EPROTO. */
int atomic_serve(struct soft_qp *qp, struct wire *wire, const struct vsd_req *head)
{
	struct responder *resp = &qp->priv->resp;
	struct vsd_resp answer = { .op = VSD_RESP_ATOMIC, .msn = (uint32_t)resp->msn };
	bool swap = head->op == VSD_REQ_CMP_SWAP;
	struct mr_ref ref;
	void *ptr;
	int rc = responder_slot(qp, wire);

	if (rc <= 0)
		return rc;
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !qp->attr.max_dest_rd_atomic || (head->atomic.raddr & 7)) {
		responder_nak(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		return 1;
	}
	rc = mr_ref_in(qp_td(qp), head->atomic.rkey, qp->pd, qp, head->atomic.raddr, 8, IBV_ACCESS_REMOTE_ATOMIC, true, &ref, &ptr);
	if (rc < 0) {
		responder_nak(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		return 1;
	}
	/* The progress thread must not fault on a page that the program unmapped, nor anybody on one that need not be. */
	if (ref.mr && ref.mr->null)
		rc = 0;
	else if ((uintptr_t)ptr & 7) /* of a window whose addresses start at 0 */
		rc = -EINVAL;
	else if ((mr_is_paged(&ref) || rt_in_progress_thread()) && mr_probe(ptr, 8, true) < 0)
		rc = -EFAULT;
	else
		answer.value = atomic_apply(ptr, head->op,
			swap ? head->atomic.compare : head->atomic.swap_add, head->atomic.swap_add);
	mr_unref(&ref);
	if (rc < 0) {
		responder_nak(qp, rc == -EINVAL ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR,
			rc == -EINVAL ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
		return 1;
	}
	wire_resp_put(wire, &answer, -1);
	responder_message_done(qp);
	return 1;
}
